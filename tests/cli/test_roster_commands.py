"""`fedprikl keys --site` and `fedprikl plan --roster`: identities, and a plan that names them."""

import json
import stat
from pathlib import Path

import pytest

from fedprikl.protocol import Roster, SignedPlan, SigningKey
from tests.cli.test_round_commands import call, fails, folder

__all__ = ["folder"]  # a fixture


def test_a_site_makes_its_identity_once_and_shows_its_public_half(tmp_path: Path) -> None:
    home = tmp_path / "site"
    first = json.loads(call("keys", str(home), "--site", "--json").stdout)
    path = home / "identity.pem"
    assert first == {"home": str(home), "identity": SigningKey.load(path).public}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in home.iterdir()] == ["identity.pem"]  # no aggregator's keys
    shown = call("keys", str(home), "--site").stdout
    assert first["identity"] in shown
    assert path.read_text().splitlines()[1] not in shown
    assert SigningKey.load(path).private_bytes().hex() not in shown


def test_a_plan_names_the_roster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = []
    for site in "abc":
        shown = json.loads(call("keys", str(folder / site), "--site", "--json").stdout)
        lines.append(f"{shown['identity']} site {site}")
    (folder / "roster.txt").write_text("\n".join(lines))
    call("reference", "public.csv", "-o", "ref.json")
    line = ("plan", "ref.json", "--clients", "3", "--records", "180", "--trust", "none")
    call(*line, "--roster", "roster.txt")
    assert SignedPlan.load("plan.json").plan.roster == Roster.load("roster.txt").fingerprint
    error = fails(monkeypatch, capsys, "estimate", "plan.json", "clients")
    assert "The plan names a roster" in " ".join(error.split())
    call(*line, "--force")
    assert SignedPlan.load("plan.json").plan.roster == ""
    more = [*(word.replace("3", "4", 1) for word in line), "--force"]
    assert "roster.txt knows 3" in fails(monkeypatch, capsys, *more, "--roster", "roster.txt")
    (folder / "roster.txt").write_text(lines[0])
    again = [*line, "--force", "--roster", "roster.txt"]
    assert "holds 1 keys" in fails(monkeypatch, capsys, *again)
