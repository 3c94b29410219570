"""docs/deployment.md, word for word in one folder: every block that is not marked is run.

`fedprikl relay`, `aggregator` and `site` are run up to where their processes would start: what they
check, make and would start is real. Real processes run in tests/deployment/test_loopback.py.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli import aggregator_command, relay_command, running, site_command
from fedprikl.cli.app import app
from fedprikl.cli.running import private_folder
from fedprikl.deployment.flower import organiser
from fedprikl.protocol import Roster, SealingKey, SignedPlan, SigningKey
from tests.docs.pages import code_of
from tests.docs.test_code_blocks import lines_of

pytestmark = pytest.mark.slow

pytest.importorskip("flwr")
PAGE = "deployment.md"
NOT_RUN = (
    "fedprikl federation",
    "pip install",
    "flwr supernode register",
    "federate",
    "flwr run",
    "fedprikl prune",
    "fedprikl site requests",
)
runner = CliRunner()


class Reader:
    """Somebody who follows the page, with every machine in one folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self.started: dict[str, list[str]] = {}
        self.said: dict[str, str] = {}
        for module in (relay_command, aggregator_command, site_command):
            monkeypatch.setattr(module, "run_party", self._start)
        monkeypatch.setattr(running, "check_relay", lambda *_: 0.0)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.delenv("FLWR_HOME", raising=False)

    def _start(
        self, name: str, home: Path, children: Any, *, health_port: int, **_: object
    ) -> None:
        with private_folder(home, name) as private:
            self.started[name] = [child.name for child in children(private)]
        assert health_port

    def run(self, shell: str) -> None:
        placed = shell.replace("/srv/", f"{self._folder}/srv/").replace("~/", f"{self._folder}/")
        if "printf" in placed:  # needs a shell
            subprocess.run(["/bin/sh", "-ec", placed], check=True)
            return
        for words in lines_of(placed):
            self._line([os.path.expandvars(word) for word in words])

    def _line(self, words: list[str]) -> None:
        if words[0] == "export":
            for setting in words[1:]:
                name, value = setting.split("=", 1)
                told = self._told(name) if value == "..." else value
                self._monkeypatch.setenv(name, told)
        elif words[0] == "fedprikl":
            result = runner.invoke(app, words[1:])
            assert result.exit_code == 0, f"{words}: {result.output} {result.exception}"
            self.said[words[1]] = result.stdout
        else:
            assert words[0] == "ssh-keygen", f"{words}: mark the block as not run"
            if shutil.which("ssh-keygen") is None:
                pytest.skip("there is no ssh-keygen here")
            subprocess.run(words, check=True)

    def _told(self, name: str) -> str:
        """What the page says stands in what was printed before."""
        where = {"SEALING": ("keys", "^sealing key.*: "), "ORGANISER": ("plan", "signed by ")}
        command, before = where[name]
        found = re.search(rf"{before}([0-9a-f]{{64}})$", self.said[command], re.MULTILINE)
        assert found, f"{name} is not in what `fedprikl {command}` printed"
        return found[1]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    rows = "\n".join(f"{20 + n % 50},{'basic' if n % 3 else 'plus'}" for n in range(600))
    for name in ("public.csv", "records.csv"):
        (tmp_path / name).write_text(f"age,plan\n{rows}\n")
    keys = (f"{SigningKey.generate().public} site{n}" for n in range(8))
    (tmp_path / "roster.txt").write_text("\n".join(keys) + "\n")
    return Reader(tmp_path, monkeypatch)


def test_the_page_can_be_followed_from_top_to_bottom(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srv = tmp_path / "srv"
    for block in code_of(PAGE):
        if block.mark == "not run":
            continue
        reader.run(block.text)
        if "relay" in reader.started:  # "Give ca.pem to everybody, superexec.secret to ..."
            for name in ("ca.pem", "superexec.secret"):
                shutil.copy(srv / "fedprikl-relay" / name, tmp_path)
    assert reader.started == {
        "relay": ["superlink"],
        "aggregator": ["executor"],
        "site": ["supernode", "executor"],
    }
    signed = SignedPlan.load("plan.json")
    assert signed.signer == SigningKey.load(Path("organiser.pem")).public
    assert signed.plan.aggregator == SealingKey.load(srv / "fedprikl" / "sealing.pem").public
    assert signed.plan.roster == Roster.load(Path("roster.txt")).fingerprint
    assert (srv / "fedprikl-site" / "identity.pem").exists()
    assert (srv / "fedprikl-site" / "ledger.db").exists()
    asked: list[tuple[object, ...]] = []

    def no_clock(*relay: object) -> float:
        asked.append(relay)
        return 0.0

    monkeypatch.setattr(organiser, "check_relay", no_clock)
    organiser.check_connection("hospitals")  # of Flower's config file
    assert asked == [("relay.example.org:9443", str(tmp_path / "ca.pem"))]


def test_only_what_needs_a_federation_is_not_run() -> None:
    for block in code_of(PAGE):
        assert (block.mark == "not run") is any(words in block.text for words in NOT_RUN)
