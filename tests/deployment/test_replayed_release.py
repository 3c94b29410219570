"""A relay replays what a real round of the ServerApp and the sites released before."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.deployment.flower import organiser
from fedprikl.deployment.flower.server import run_on_flower
from fedprikl.deployment.host import Host
from fedprikl.deployment.settings import Home
from fedprikl.protocol import Release, SigningKey
from tests.deployment.fake_grid import FakeFederation

pytestmark = pytest.mark.slow


def test_federate_takes_only_the_release_of_its_own_run(
    federation: FakeFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    shutil.copy(federation.home / "plan.json", "plan.json")
    kept: list[str] = []

    def real(_: Path, __: str, config: dict[str, Any], ___: list[str]) -> Iterator[str]:
        grid = federation.grid()
        host = Host(
            clock=grid.time.now,
            sleep=grid.time.sleep,
            now=lambda: datetime.now(UTC).isoformat(),
            say=kept.append,
        )
        run_on_flower(grid, federation.settings(**config), host)
        return iter(kept)

    key = SigningKey.load(Home(federation.home).signing_key).public
    line = ["federate", "relay", "--signer", key, "--clients", str(len(federation.files))]
    monkeypatch.setattr(organiser, "_flwr_run", real)
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert Release.load("release.json").is_intact

    monkeypatch.setattr(organiser, "_flwr_run", lambda *_: iter(kept))  # the relay, a day later
    result = CliRunner().invoke(app, [*line, "-o", "today.json", "--report", "today.html"])
    assert "An old or foreign release was offered" in str(result.exception)
    assert not Path("today.json").exists()
