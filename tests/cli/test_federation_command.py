"""`fedprikl federation`: what is said and refused before anything runs."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from deploy.small_world import write_plan, write_sites
from typer.testing import CliRunner

from fedprikl.cli import federation_command, site_command
from fedprikl.cli.app import app
from fedprikl.cli.running import held
from fedprikl.deployment import site_check
from fedprikl.deployment.flower.privates import node_key
from fedprikl.deployment.provisioning import Federation
from fedprikl.deployment.tls import first_end
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Roster, SealingKey, Series, SignedPlan
from fedprikl.records import fit_reference
from fedprikl.reference import Reference
from tests.cli.test_round_commands import fails

runner = CliRunner()
NAMES = ("aachen", "bergen", "cork")
INIT = ("federation", "init", "hospitals", "--relay", "127.0.0.1:9443", "--reference", "ref.json")


def said(*line: str) -> str:
    done = runner.invoke(app, list(line))
    assert done.exit_code == 0, f"{line}: {done.output}{done.exception}"
    return done.stdout


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPRIKL_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(federation_command, "_tell_relay", lambda *_: None)
    write_sites(tmp_path, sites=1, rows=30)[0].rename("records.csv")
    fit_reference(tmp_path / "public.csv").save(tmp_path / "ref.json")
    return tmp_path


def planned(**changes: Any) -> None:
    """Signs a plan for the federation as it is, as `fedprikl plan` does."""
    known = Federation.load(Path("hospitals"))
    shutil.copy(known.folder / "organiser.pem", "organiser.pem")
    shutil.copy(known.home.sealing_key, "sealing.pem")
    own: dict[str, Any] = {
        "reference": Reference.load(known.home.reference).fingerprint,
        "roster": Roster.load(known.home.roster).fingerprint,
        "aggregator": SealingKey.load(known.home.sealing_key).public,
    }
    write_plan(Path(), "plan.json", **(own | changes))


@pytest.fixture
def admitted(place: Path) -> Path:
    said(*INIT, "--epsilon", "3")
    said("federation", "invite", "hospitals", *NAMES)
    for name in NAMES:
        said("federation", "join", f"{name}.invite", "--folder", f"{name}-site")
    said("federation", "admit", "hospitals", *(f"{name}.join" for name in NAMES), "--yes")
    return place


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("bad", [("--epsilon", "0"), ("--epsilon", "3", "--delta", "1")])
def test_an_init_that_fails_leaves_nothing_and_can_be_mended(
    bad: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = fails(monkeypatch, capsys, *INIT, *bad)
    assert "--epsilon above 0" in error
    assert "no_privacy" not in error
    assert not Path("hospitals").exists()
    assert "one release about the same records" in said(*INIT, "--epsilon", "3")


@pytest.mark.usefixtures("place")
def test_status_says_what_is_to_be_done_next() -> None:
    said(*INIT, "--epsilon", "3")
    assert "federation invite" in said("federation", "status", "hospitals")
    said("federation", "invite", "hospitals", *NAMES)
    shown = said("federation", "status", "hospitals")
    assert "federation admit" in shown
    assert "--clients 0" not in shown


def test_after_a_kit_comes_a_question_and_after_a_removal_a_new_plan(
    admitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert admitted.is_dir()
    planned()
    shown = said("federation", "kit", "hospitals", "plan.json")
    assert "federation start kit.json --data" in shown
    assert "federation ask" in shown
    assert "federation ask" in said("federation", "status", "hospitals")
    assert "most-counts" not in said("federation", "status", "hospitals")
    said("federation", "invite", "hospitals", "delft")
    said("federation", "join", "delft.invite", "--folder", "delft-site")
    said("federation", "admit", "hospitals", "delft.join", "--yes")
    shown = said("federation", "remove", "hospitals", "cork")
    assert "-o plan.json --force" in shown
    assert "--population sites --epsilon 1 --roster" in shown
    assert "cork was removed before" in said("federation", "remove", "hospitals", "cork")
    assert "federation kit" in shown
    error = fails(monkeypatch, capsys, "federation", "ask", "hospitals")
    assert "it was made elsewhere, or sites were admitted or removed since" in error
    assert "--roster out" not in error


@pytest.mark.usefixtures("place")
def test_admit_without_anybody_to_ask_changes_nothing_and_says_how() -> None:
    said(*INIT, "--epsilon", "3")
    said("federation", "invite", "hospitals", "aachen")
    said("federation", "join", "aachen.invite", "--folder", "aachen-site")
    done = runner.invoke(app, ["federation", "admit", "hospitals", "aachen.join"], input="")
    assert isinstance(done.exception, InvalidInputError)
    assert "--yes" in str(done.exception)
    assert not Federation.load(Path("hospitals")).admitted


def test_status_and_ask_name_who_is_connected(
    admitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "The relay does not answer" in said("federation", "status", "hospitals")
    known = Federation.load(Path("hospitals"))
    nodes = {node_key(each.node): each.name != "cork" for each in known.sites}
    monkeypatch.setattr(federation_command, "check_relay", lambda *_: 0.0)
    monkeypatch.setattr(federation_command, "connected_nodes", lambda *_: nodes)
    found = json.loads(said("federation", "status", "hospitals", "--json"))["sites"]
    assert {each["name"]: each["connected"] for each in found} == {
        "aachen": True,
        "bergen": True,
        "cork": False,
    }
    planned()
    said("federation", "kit", "hospitals", "plan.json")
    shown = said("federation", "status", "hospitals")
    assert "not connected: cork. Each starts with the newest kit" in " ".join(shown.split())
    done = runner.invoke(app, ["federation", "ask", "hospitals"])
    assert "not connected yet: cork" in done.stderr
    assert "--clients 2" not in done.stderr  # a sum has at least three
    assert admitted.is_dir()


def test_the_log_of_the_host_names_sites(admitted: Path) -> None:
    key = Federation.load(Path("hospitals")).site("bergen").identity
    line = f"INFO : [fedprikl] not counted: {key[:12]}, 0123456789ab"
    named = federation_command.with_names(admitted / "hospitals", line)
    assert named == "INFO : [fedprikl] not counted: bergen, 0123456789ab"
    other = f"Push replies; lost: {key[:12]}"  # not a line of a round
    assert federation_command.with_names(admitted / "hospitals", other) == other


def test_a_kit_for_the_same_sites_stops_nobody(admitted: Path) -> None:
    assert admitted.is_dir()
    planned()
    assert "stop it if it runs" in said("federation", "kit", "hospitals", "plan.json")
    planned(serial=9)
    shown = said("federation", "kit", "hospitals", "plan.json", "--force")
    assert "Sites that run with the kit before go on" in shown
    assert "federation start" not in shown
    said("federation", "invite", "hospitals", "delft")
    said("federation", "join", "delft.invite", "--folder", "delft-site")
    said("federation", "admit", "hospitals", "delft.join", "--yes")
    planned(serial=10)
    shown = said("federation", "kit", "hospitals", "plan.json", "--force")
    assert "stop it if it runs" in shown


def test_a_kit_with_an_older_plan_is_refused_before_all_sites_refuse_it(admitted: Path) -> None:
    planned(serial=9)
    said("federation", "kit", "hospitals", "plan.json")
    planned(serial=7)
    refused = runner.invoke(app, ["federation", "kit", "hospitals", "plan.json", "--force"])
    assert isinstance(refused.exception, InvalidInputError)
    for words in ("has the serial 7", "with `--serial 9`", "Nothing was changed"):
        assert words in str(refused.exception)
    home = Federation.load(Path("hospitals")).home
    assert SignedPlan.load(home.folder / "plan.json").plan.validity.serial == 9
    planned(serial=9, population="others")  # another lineage may begin where it likes
    (admitted / "second.json").write_text((admitted / "plan.json").read_text())
    planned(serial=9, epsilon=0.5)
    said("federation", "kit", "hospitals", "plan.json", "--force")
    planned(serial=1, population="others")
    said("federation", "kit", "hospitals", "plan.json", "--force")


def test_a_kit_says_what_most_counts_a_second_release_needs(
    admitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(times: int) -> str:
        monkeypatch.setattr(federation_command, "_times_counted", lambda _: times)
        done = runner.invoke(app, ["federation", "kit", "hospitals", "plan.json", "--force"])
        assert done.exit_code == 0, done.output
        return " ".join(done.stderr.split())

    assert admitted.is_dir()
    planned()
    assert "takes part again" not in told(0)
    assert "in the release before takes part again only if most-counts in its policy is 2" in told(
        1
    )
    assert "in all 2 releases before takes part again only if most-counts" in told(2)


@pytest.mark.usefixtures("admitted")
def test_a_command_to_fill_in_says_what_is_to_be_filled_in() -> None:
    words = "For NUMBER give about how many records all sites hold together."
    assert words in said("federation", "status", "hospitals")
    planned()
    said("federation", "kit", "hospitals", "plan.json")
    assert words not in said("federation", "status", "hospitals")


def test_a_kit_that_is_refused_leaves_no_reference(admitted: Path) -> None:
    other = Reference.from_counts([3, 2, 1])
    other.save(admitted / "other.json")
    kit = ["federation", "kit", "hospitals", "plan.json", "--reference", "other.json"]
    planned(reference=other.fingerprint, roster=64 * "0")
    refused = runner.invoke(app, kit)
    assert "Nothing was changed" in str(refused.exception)
    home = Federation.load(Path("hospitals")).home
    assert home.find_reference(other.fingerprint) is None
    planned(reference=other.fingerprint)
    said(*kit)
    assert home.find_reference(other.fingerprint) is not None


def test_ask_does_not_begin_what_it_could_not_write(
    admitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(federation_command, "_tell_relay", lambda *_: pytest.fail("too late"))
    (admitted / "release.json").write_text("of last week")
    planned()
    said("federation", "kit", "hospitals", "plan.json")
    assert "exists already" in fails(monkeypatch, capsys, "federation", "ask", "hospitals")
    assert "holds no federation" in fails(monkeypatch, capsys, "federation", "ask", "hospital")
    (admitted / "release.json").unlink()
    error = fails(monkeypatch, capsys, "federation", "ask", "hospitals")
    assert "Start it: `fedprikl federation host" in error


def test_a_new_kit_brings_its_reference_into_the_next_plan(admitted: Path) -> None:
    second = fit_reference(admitted / "records.csv")
    second.save(admitted / "second.json")
    planned(reference=second.fingerprint)
    said("federation", "kit", "hospitals", "plan.json", "--reference", "second.json")
    said("federation", "remove", "hospitals", "cork")
    said("federation", "invite", "hospitals", "delft")
    said("federation", "join", "delft.invite", "--folder", "delft-site")
    shown = said("federation", "admit", "hospitals", "delft.join", "--yes")
    place = f"hospitals/aggregator/references/{second.fingerprint}.json"
    assert f"fedprikl plan {admitted}/{place} --clients 3" in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"epsilon": 3.5},
            "This plan spends epsilon 3.5, and 3 of the budget is left: `ask` will",
        ),
        (
            {"epsilon": 3.5},
            "aggregator/ledger.db --population sites --set-epsilon 3.5`",
        ),
        ({"epsilon": 1.5}, "epsilon 1.5 exceeds the limit 1 (largest-epsilon)"),
        ({"population": "others"}, "The population 'others' has no budget: `ask` will"),
        ({}, ""),
    ],
)
def test_a_kit_says_what_will_stop_its_plan(
    admitted: Path, changes: dict[str, Any], words: str
) -> None:
    assert admitted.is_dir()
    planned(**changes)
    done = runner.invoke(app, ["federation", "kit", "hospitals", "plan.json"])
    assert done.exit_code == 0, done.output
    assert words in " ".join(done.stderr.split())
    assert ("note:" in done.stderr) == bool(changes)


def test_status_says_when_a_plan_is_released_and_shows_the_line_of_the_next(
    admitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert admitted.is_dir()
    planned()
    said("federation", "kit", "hospitals", "plan.json")
    monkeypatch.setattr(federation_command, "_times_released", lambda *_: 1)
    shown = said("federation", "status", "hospitals")
    assert "is released, as often as it allows" in shown
    assert "federation ask" not in shown
    assert "fedprikl plan" in shown


def test_a_series_is_asked_by_monitor_and_one_release_by_ask(
    admitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert admitted.is_dir()
    planned()
    said("federation", "kit", "hospitals", "plan.json")
    assert "federation ask" in fails(monkeypatch, capsys, "federation", "monitor", "hospitals")


@pytest.fixture
def site(admitted: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `start` would have run; aachen has its kit beside it."""
    planned()
    said("federation", "kit", "hospitals", "plan.json")
    monkeypatch.setattr(site_check, "look_at_relay", lambda _, roots: (0.0, first_end(roots)))
    found: dict[str, Any] = {"place": admitted}
    monkeypatch.setattr(site_command, "run", lambda **given: found.update(given))
    return found


START = ("federation", "start", "kit.json", "--folder", "aachen-site", "--data")


def test_start_runs_the_same_check_as_site_check(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.csv").write_text("age\n3\n")
    error = fails(monkeypatch, capsys, *START, "bad.csv")
    assert "WRONG data" in error
    assert "The site was not started" in error
    assert "relay" not in site
    assert "can be started" in said(*START, "records.csv", "--check")
    assert "relay" not in site
    assert "superlink" not in site
    said(*START, "records.csv")
    assert site["superlink"] == "127.0.0.1:9443"


def test_a_site_says_how_its_csv_files_are_written_and_is_told_the_whole_line(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.csv").write_text(Path("records.csv").read_text().replace(",", ";"))
    assert "--separator" in fails(monkeypatch, capsys, *START, "own.csv")
    more = ("--separator", ";", "--encoding", "cp1252", "--health-port", "8499")
    line = shlex.join(["federation", "start", "kit.json", "--data", "own.csv"])
    shown = said(*START, "own.csv", *more, "--check")
    assert f"fedprikl {line} --folder aachen-site --separator ';'" in shown
    assert "--encoding cp1252 --health-port 8499" in shown
    said(*START, "own.csv", *more)
    assert (site["separator"], site["encoding"], site["health_port"]) == (";", "cp1252", 8499)
    check = ("site", "check", "--folder", "aachen-site", "--data", "own.csv")
    assert "nothing is wrong" in said(*check, "--separator", ";")


def test_a_site_with_unusual_records_starts_and_its_log_says_no_more(site: dict[str, Any]) -> None:
    Path("months.csv").write_text("age,plan\n" + "480,basic\n" * 30)
    done = runner.invoke(app, [*START, "months.csv"])
    assert site["superlink"] == "127.0.0.1:9443"
    (line,) = [line for line in done.stderr.splitlines() if "LOOK" in line]
    assert "`fedprikl site check`" in done.stderr
    assert "age" not in done.stderr
    assert "100%" not in done.stderr
    assert line.startswith("LOOK  data: the first records are unusual")
    done = runner.invoke(app, [*START, "months.csv", "--log-format", "json"])
    told = [json.loads(each) for each in done.stderr.splitlines()]  # each line is an object
    assert any("LOOK data: the first" in " ".join(each["message"].split()) for each in told)
    assert {each["level"] for each in told if "LOOK" in each["message"]} == {"WARNING"}


@pytest.mark.usefixtures("site")
def test_a_kit_for_a_site_that_runs_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(Path("aachen-site"), "site"):
        assert "running already" in fails(monkeypatch, capsys, *START, "records.csv")
    assert not Path("aachen-site/roster.txt").exists()


def test_before_the_kit_a_check_says_where_things_come_from(site: dict[str, Any]) -> None:
    assert site
    line = ["site", "check", "--folder", "aachen-site", "--data", "records.csv"]
    before = runner.invoke(app, line)
    assert before.exit_code == 1
    assert before.stdout.count("comes with the organiser's kit") == 2  # reference and roster
    said(*START, "records.csv", "--check")
    assert "nothing is wrong" in said(*line)


def test_monitor_finds_plan_roster_key_and_reference_in_the_folder(
    admitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is due yet, so no relay is needed."""
    weeks = Series(every="week", first="2090-01-02", periods=4, time_column="day")
    planned(when=weeks, valid_until="2091-01-01T00:00:00+00:00")
    said("federation", "kit", "hospitals", "plan.json")
    assert "federation monitor" in said("federation", "status", "hospitals")
    assert "federation monitor" in fails(monkeypatch, capsys, "federation", "ask", "hospitals")
    done = runner.invoke(app, ["federation", "monitor", "hospitals", "--metrics", "drift.prom"])
    assert done.exit_code == 0, done.output
    assert Path("drift.prom").exists()
    (history,) = (admitted / "hospitals").glob("history-*.db")
    assert f"--history {history}" in " ".join(done.stderr.split())
