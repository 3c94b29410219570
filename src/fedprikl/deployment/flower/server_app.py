"""The ServerApp: hosts the server and the aggregator, on the aggregator's own host."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedprikl.deployment.flower.exchange import FlowerNetwork
from fedprikl.deployment.host import Host, print_line
from fedprikl.deployment.hosted_round import host_round
from fedprikl.deployment.progress import MARK, failure_line, printable
from fedprikl.deployment.settings import RoundSettings
from fedprikl.errors import DeploymentError, FedPriKLError
from fedprikl.protocol import Release

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Entry point of a run. A run without a release fails, so that Flower shows it as failed.

    Flower logs an exception at the relay. Ours hold no secret; the words of any other might, so
    only its name leaves this process.
    """
    try:
        print_line(f"{MARK} the aggregator has the run")
        settings = RoundSettings.of(context.run_config)
        run_on_flower(grid, settings, Host())
    except FedPriKLError as error:
        error.args = (printable(str(error)),)
        print_line(failure_line(str(error)))
        raise
    except Exception as error:
        words = f"The ServerApp failed unexpectedly ({type(error).__name__}). Please report it."
        print_line(failure_line(words))
        raise DeploymentError(words) from None


def run_on_flower(grid: Grid, settings: RoundSettings, host: Host) -> Release:
    """One round over a grid."""
    return host_round(FlowerNetwork(grid, settings.patience, host.clock), settings, host)
