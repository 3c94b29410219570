"""A ServerApp without noise, for tests only: its release is the value before noise, and says so."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedprikl.deployment.flower.server import run_on_flower
from fedprikl.deployment.host import Host
from fedprikl.deployment.settings import RoundSettings
from tests.protocol.worlds import InsecureNoNoise

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run_on_flower(grid, RoundSettings.of(context.run_config), Host(source=InsecureNoNoise()))
