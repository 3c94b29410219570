"""`fedprikl ledger` as a user types it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli.app import app, main
from fedprikl.privacy import AccountedRelease, Ledger, Numbers, calibrate

runner = CliRunner()
COMMAND = ("ledger", "--ledger")
AT = "2030-01-31T12:00:00+00:00"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def run(file: Path, *arguments: str) -> str:
    result = runner.invoke(app, ["ledger", "--ledger", str(file), *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def run_json(file: Path, *arguments: str) -> Any:
    result = runner.invoke(app, ["ledger", "--ledger", str(file), *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_set_show_spend_show(file: Path) -> None:
    made = runner.invoke(app, [*COMMAND, str(file), "--population", "phones", "--set-epsilon", "1"])
    assert "is a new ledger: there was none" in " ".join(made.stderr.split())
    again = runner.invoke(app, [*COMMAND, str(file)])
    assert "a new ledger" not in again.stderr
    shown = " ".join(made.stdout.split())
    assert "phones: spent epsilon 0 of 1 (delta 1e-06), 1 is left." in shown
    assert "One more release fits with epsilon up to 1 (Laplace) or 1 (Gaussian)." in shown
    assert "more than what is left" not in shown
    with Ledger.open(file) as ledger:
        noise = calibrate(Numbers(0.1), epsilon=0.25, law="laplace")
        reserved = ledger.reserve("phones", noise, round_id="w1", at=AT, note="[bold]")
        ledger.commit(reserved, release_hash="0" * 64, at=AT)
        ledger.reserve("phones", AccountedRelease(proved_epsilon=0.5), round_id="w2", at=AT)
        gone = ledger.reserve("phones", noise, round_id="w3", at=AT)
        ledger.cancel(gone, reason="too few clients", at=AT)
        head = ledger.head
    shown = run(file)  # the only population is shown in full
    assert "spent epsilon 0.75 of 1 (delta 1e-06), 0.25 is left." in shown
    for word in ("w1", "committed", "[bold]", "w2", "open,", "w3", "cancelled"):
        assert word in shown
    assert "1 open: running now, or ended by a crash." in shown
    assert head.hash[:16] in shown
    document = run_json(file)
    assert document["head"] == {"count": head.count, "hash": head.hash}
    (account,) = document["populations"]
    assert account["spent"] == pytest.approx(0.75)
    assert account["left"] == pytest.approx(0.25)
    assert account["fits"]["laplace"] == pytest.approx(0.25, abs=0.001)
    states = [(known["round_id"], known["state"], known["charged"]) for known in account["rounds"]]
    assert states == [("w1", "committed", True), ("w2", "open", True), ("w3", "cancelled", False)]


def test_several_populations_and_a_raised_budget(file: Path) -> None:
    run(file, "--population", "phones", "--set-epsilon", "1", "--set-delta", "1e-9")
    run(file, "--population", "banks", "--set-epsilon", "2", "--set-delta", "0")
    assert "population" in run(file)
    run(file, "--population", "phones", "--set-epsilon", "3")  # keeps its delta
    accounts = {row["population"]: row for row in run_json(file)["populations"]}
    assert (accounts["phones"]["epsilon"], accounts["phones"]["delta"]) == (3, 1e-9)
    assert (accounts["banks"]["epsilon"], accounts["banks"]["delta"]) == (2, 0)
    assert [
        row["population"] for row in run_json(file, "--population", "banks")["populations"]
    ] == ["banks"]


def test_an_empty_ledger_and_a_full_budget(file: Path) -> None:
    Ledger.open(file).close()
    assert "No population has a budget yet" in run(file)
    assert run_json(file)["populations"] == []
    run(file, "--population", "phones", "--set-epsilon", "1")
    with Ledger.open(file) as ledger:
        ledger.reserve("phones", AccountedRelease(proved_epsilon=1.0), round_id="a", at=AT)
    assert "No further release fits." in run(file)


def test_help_has_an_example() -> None:
    result = runner.invoke(app, ["ledger", "--help"])
    assert result.exit_code == 0
    assert "Example: fedprikl ledger" in " ".join(result.stdout.split())


def test_wrong_usage_exits_with_2(file: Path) -> None:
    for arguments in (["--set-epsilon", "1"], ["--set-delta", "0"], ["--set-epsilon", "much"]):
        result = runner.invoke(app, ["ledger", "--ledger", str(file), *arguments])
        assert result.exit_code == 2
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ledger", "{missing}"], "There is no ledger"),
        (["--ledger", "{foreign}"], "is not a ledger"),
        (["--population", "cars"], "has no budget"),
        (["--population", "phones", "--set-epsilon", "0.5"], "already spent"),
        (["--population", "phones", "--set-epsilon", "-1"], "epsilon must be above 0"),
    ],
)
def test_errors_are_sentences_without_traceback(
    file: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    foreign = file.parent / "notes.txt"
    foreign.write_text("not a database " * 100)
    with Ledger.open(file) as ledger:
        ledger.set_budget("phones", epsilon=1, delta=0, at=AT)
        ledger.reserve("phones", AccountedRelease(proved_epsilon=1.0), round_id="a", at=AT)
    names = {"missing": str(file.parent / "nothing.db"), "foreign": str(foreign)}
    filled = [argument.format(**names) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["fedprikl", "ledger", "--ledger", str(file), *filled])
    with pytest.raises(SystemExit) as stop:
        main()
    streams = capsys.readouterr()
    assert stop.value.code == 1
    assert words in streams.err
    assert "Traceback" not in streams.err
    assert streams.out == ""


def test_a_release_that_costs_more_alone_than_is_left_is_explained(file: Path) -> None:
    run(file, "--population", "phones", "--set-epsilon", "2", "--set-delta", "1e-5")
    with Ledger.open(file) as ledger:
        noise = calibrate(Numbers(0.1), epsilon=1.0, delta=1e-6, law="gaussian")
        for name in ("w1", "w2"):
            ledger.reserve("phones", noise, round_id=name, at=AT)
    shown = run(file)
    assert "(more than what is left, because costs of several releases add up to less)" in shown
