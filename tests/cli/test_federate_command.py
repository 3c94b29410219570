"""`fedprikl keys` and `fedprikl federate`, with a recorded run in place of Flower's stream."""

import importlib.util
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.deployment.flower import APP_FOLDER, organiser
from fedprikl.deployment.flower.organiser import check_connection
from fedprikl.deployment.progress import release_line
from fedprikl.errors import DeploymentError, InvalidInputError, MissingExtraError
from fedprikl.protocol import (
    Plan,
    Release,
    Roster,
    SealingKey,
    Series,
    SignedPlan,
    SigningKey,
)
from tests.cli.test_round_commands import fails, shown
from tests.protocol.worlds import World

pytestmark = pytest.mark.slow

runner = CliRunner()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path / "home"))
    return World.make(clients=9)


def answer(world: World, plan: Plan, request: str, *, age: timedelta = timedelta()) -> Release:
    """A release as the aggregator makes it for a request."""
    at = (datetime.now(UTC) - age).isoformat()
    return replace(world.run(plan).release, request=request, released_at=at).sign(world.key)


def record(
    world: World, monkeypatch: pytest.MonkeyPatch, *lines: str, released: bool = True
) -> dict[str, Any]:
    """A run that prints these lines and, maybe, a release."""
    plan = world.plan(cohort=9)
    Path("plan.json").write_text(json.dumps(SignedPlan.sign(plan, world.key).to_dict()))
    seen: dict[str, Any] = {}

    def flwr_run(folder: Path, superlink: str, config: Any, more: list[str]) -> Iterator[str]:
        seen.update(config, folder=folder, superlink=superlink, more=more)
        yield from ["Loading\n", *lines]
        if released:
            yield release_line(answer(world, plan, config["request"])) + "\n"

    monkeypatch.setattr(organiser, "_flwr_run", flwr_run)
    return seen


def test_keys_are_made_once_and_shown_again(world: World, tmp_path: Path) -> None:
    assert world
    first = json.loads(runner.invoke(app, ["keys", "--json"]).stdout)
    assert first["home"] == str(tmp_path / "home")
    assert first["sealing"] == SealingKey.load(tmp_path / "home" / "sealing.pem").public
    shown = runner.invoke(app, ["keys"]).stdout
    assert first["sealing"] in shown
    assert first["signing"] in shown
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0


def test_a_home_that_cannot_be_made(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world
    Path("file").write_text("")
    assert "Cannot make" in fails(monkeypatch, capsys, "keys", "file/home")


def test_a_round_is_followed_verified_and_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = record(world, monkeypatch, "[fedprikl] input: 8 of 9 answered\n")
    line = ["federate", "mine", "--signer", world.key.public, "--clients", "9"]
    result = runner.invoke(app, line)
    assert result.exit_code == 0, result.output
    assert "[fedprikl] input: 8 of 9 answered" in result.stderr
    assert "Loading" not in result.stderr
    assert "with the aggregator's key" in result.stdout
    asked = SignedPlan.load("plan.json").plan.fingerprint  # whatever its file is called there
    assert (seen["superlink"], seen["plan"], seen["clients"]) == ("mine", asked, 9)
    assert Path("release.json").exists()
    assert "differ from the reference" in Path("report.html").read_text(encoding="utf-8")
    assert ("home" in seen, len(seen["request"])) == (False, 32)
    assert seen["signer"] == world.key.public
    assert result.stdout.startswith(shown(Release.load("release.json")))
    assert "drift found" in result.stdout.lower()
    document = json.loads(runner.invoke(app, [*line, "--json", "--force"]).stdout)
    assert document["release"]["request"] == seen["request"]
    assert document["progress"] == ["input: 8 of 9 answered"]
    assert document["release"]["population"] == "testers"


def test_a_run_without_a_release_says_why(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(world, monkeypatch, "[fedprikl] no release: all refused.\n", released=False)
    error = fails(monkeypatch, capsys, "federate", "mine", "--signer", world.key.public)
    assert "There is no release. all refused." in error
    record(world, monkeypatch, "flwr: strange\n", released=False)
    assert "strange" in fails(monkeypatch, capsys, "federate", "mine", "--signer", world.key.public)
    assert not Path("release.json").exists()


def test_a_release_of_another_signer_or_plan_is_not_written(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(world, monkeypatch)
    assert "NOT genuine" in fails(monkeypatch, capsys, "federate", "mine", "--signer", "ab" * 32)
    other = SignedPlan.sign(world.plan(epsilon=0.5), world.key)
    Path("plan.json").write_text(json.dumps(other.to_dict()))
    assert "another plan" in fails(
        monkeypatch, capsys, "federate", "mine", "--signer", world.key.public
    )
    assert not Path("release.json").exists()


def test_help_shows_no_path_of_this_machine() -> None:
    said = runner.invoke(app, ["federate", "--help"], env={"COLUMNS": "300"}).stdout
    assert "the one of this package" in said
    assert str(APP_FOLDER.parent) not in said
    assert "site-packages" not in said


def test_without_flower_the_extra_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(world, monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert issubclass(MissingExtraError, Exception)
    assert "fedprikl[flower]" in fails(
        monkeypatch, capsys, "federate", "mine", "--signer", world.key.public
    )


def connect(tmp_path: Path, text: str) -> None:
    (tmp_path / "flwr").mkdir(exist_ok=True)
    (tmp_path / "flwr" / "config.toml").write_text(text)
    check_connection("mine")


def test_a_connection_that_cannot_work_is_explained(world: World, tmp_path: Path) -> None:
    assert world
    check_connection("mine")  # no config file: Flower makes one
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f'address = "127.0.0.1:{probe.getsockname()[1]}"\n'
    with pytest.raises(InvalidInputError, match=r"Did you mean root-certificates\?"):
        connect(tmp_path, f'[superlink.mine]\n{address}root_certificates = "ca.pem"\n')
    with pytest.raises(DeploymentError, match="not TOML"):
        connect(tmp_path, "[superlink")
    with pytest.raises(DeploymentError, match=r"no connection \[superlink.mine\]"):
        connect(tmp_path, "[superlink.other]\n")
    with pytest.raises(DeploymentError, match="cannot be reached: Connection refused"):
        connect(tmp_path, f"[superlink.mine]\n{address}")
    with pytest.raises(DeploymentError, match="no certificate file"):
        connect(tmp_path, f'[superlink.mine]\n{address}root-certificates = "none.pem"\n')
    with pytest.raises(DeploymentError, match="is a folder, no certificate file"):
        connect(tmp_path, f'[superlink.mine]\n{address}root-certificates = "flwr"\n')
    connect(tmp_path, '[superlink.mine]\naddress = ":local:"\n')
    connect(tmp_path, f"[superlink.mine]\n{address}insecure = true\n")
    (tmp_path / "flwr" / "config.toml").unlink()
    (tmp_path / "flwr" / "config.toml").mkdir()
    with pytest.raises(DeploymentError, match=r"config file .* cannot be read: Is a directory"):
        check_connection("mine")


def test_a_plan_with_a_wrong_aggregator_key_is_refused(world: World) -> None:
    with pytest.raises(InvalidInputError, match="X25519 public key"):
        world.plan(aggregator="ab")


def test_flowers_own_words_come_through(world: World, tmp_path: Path) -> None:
    """The real `flwr run`, against a connection that Flower does not know."""
    assert world
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text("[superlink.other]\n")
    lines = list(organiser._flwr_run(APP_FOLDER, "nowhere", {"clients": 3}, ["a=1"]))
    assert "nowhere" in "".join(lines)


def test_a_stream_that_breaks_off_is_taken_up_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan(cohort=9)
    first = ["Successfully started run 77\n", "[fedprikl] share: 9 of 9\n"]
    seen = record(world, monkeypatch, *first, released=False)
    again = ["[fedprikl] share: 9 of 9\n", "[fedprikl] input: 9 of 9\n"]

    def rest() -> Iterator[list[str]]:
        yield again[:1]
        yield [*again, release_line(answer(world, plan, seen["request"])) + "\n"]

    answers = {
        "list": iter([listed("running"), ["The SuperLink is not available\n"]]),
        "log": rest(),
    }
    asked: list[tuple[str, ...]] = []

    def flwr(*arguments: str) -> Iterator[str]:
        asked.append(arguments)
        yield from next(answers[arguments[0]])

    monkeypatch.setattr(organiser, "_flwr", flwr)
    monkeypatch.setattr(organiser, "PAUSE", 0.0)
    result = runner.invoke(app, ["federate", "mine", "--signer", world.key.public, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["progress"] == ["share: 9 of 9", "input: 9 of 9"]
    assert ("log", "77", "mine", "--stream") in asked


def test_a_run_that_finished_meanwhile_is_read_to_its_end_once(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(world, monkeypatch, "Successfully started run 77\n", released=False)
    asked: list[str] = []

    def flwr(*arguments: str) -> Iterator[str]:
        asked.append(arguments[0])
        yield from listed("finished:failed") if arguments[0] == "list" else ["the end\n"]

    monkeypatch.setattr(organiser, "_flwr", flwr)
    monkeypatch.setattr(organiser, "PAUSE", 0.0)
    said = fails(monkeypatch, capsys, "federate", "mine", "--signer", world.key.public)
    assert "Flower's last words:" in said
    assert "the end" in said
    assert asked == ["list", "log"]


def test_after_a_killed_aggregator_it_says_what_was_charged_and_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [STARTED, "[fedprikl] round c0ffee: 9 clients in 1 cohort of 9 to 9\n"]
    record(world, monkeypatch, *lines, released=False)
    monkeypatch.setattr(organiser, "_flwr", lambda *_: iter(listed("finished:failed")))
    monkeypatch.setattr(organiser, "PAUSE", 0.0)
    said = " ".join(
        fails(monkeypatch, capsys, "federate", "mine", "--signer", world.key.public).split()
    )
    assert "did not say how the run ended (finished:failed: why): it was stopped or killed" in said
    assert "What round c0ffee has charged is in the aggregator's ledger" in said
    assert "is open or committed stays charged" in said
    assert "See that the aggregator runs, then run this again" in said


def listed(status: str) -> list[str]:
    """What the real `flwr list` prints of a run."""
    from flwr.cli.ls import _to_json
    from flwr.cli.run_utils import RunRow

    row = dict.fromkeys(RunRow.__dataclass_fields__, "N/A")
    numbers = {name: 0 for name in row if name.startswith(("network", "compute"))}
    run = RunRow(**(row | numbers | {"status_text": status, "details": "why"}))  # type: ignore[arg-type]
    return [_to_json([run])]


def replay(world: World, monkeypatch: pytest.MonkeyPatch, old: Release) -> None:
    """A relay that answers every run with a release it has kept."""
    record(world, monkeypatch, release_line(old) + "\n", released=False)


def test_a_relay_cannot_pass_an_old_release_for_todays(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Genuine, of the same plan and the right key: only the request and the time tell."""
    seen = record(world, monkeypatch)
    line = ["federate", "mine", "--signer", world.key.public]
    assert runner.invoke(app, line).exit_code == 0
    old = Release.load("release.json")
    assert old.request == seen["request"]
    Path("release.json").unlink()
    Path("report.html").unlink()
    replay(world, monkeypatch, old)
    assert "old or foreign release" in fails(monkeypatch, capsys, *line)
    plan = SignedPlan.load("plan.json").plan
    replay(world, monkeypatch, answer(world, plan, ""))  # of a run that nobody asked for
    assert "old or foreign release" in fails(monkeypatch, capsys, *line)
    assert not Path("release.json").exists()
    assert not Path("report.html").exists()


@pytest.mark.parametrize(("minutes", "accepted"), [(-6, False), (-4, True), (4, True), (6, False)])
def test_a_release_is_as_old_as_the_command(
    world: World, monkeypatch: pytest.MonkeyPatch, minutes: int, accepted: bool
) -> None:
    """A nonce that leaked beforehand does not help either, beyond a difference of the clocks."""
    monkeypatch.setattr("fedprikl.deployment.flower.organiser.os.urandom", bytes)
    record(world, monkeypatch, released=False)
    plan = SignedPlan.load("plan.json").plan
    replay(world, monkeypatch, answer(world, plan, "00" * 16, age=timedelta(minutes=minutes)))
    result = runner.invoke(app, ["federate", "mine", "--signer", world.key.public])
    assert (result.exit_code == 0) is accepted, result.output
    assert Path("release.json").exists() is accepted
    lost = "The round was charged. Its release lies in releases/ of the aggregator's"
    assert (lost in str(result.exception)) is not accepted


@pytest.mark.parametrize(
    "line",
    [
        "--wait 1e308",
        "--wait nan",
        "--step-timeout inf",
        "--timeout 1e18",
        "--timeout nan",
        "--grace nan",
    ],
)
def test_a_time_that_nobody_can_wait_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    seen = record(world, monkeypatch)
    line_of = ["federate", "mine", "--signer", world.key.public, *line.split()]
    said = fails(monkeypatch, capsys, *line_of)
    assert f"{line.split()[0]} " in said
    assert "is no time to wait" in said
    assert seen == {}


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe[/bold][link=http://x]y[/link]\r\x00"


@pytest.mark.parametrize("kind", ["progress", "failure", "last words", "verbose", "run"])
def test_a_relays_words_cannot_steer_the_terminal(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    prefix = {"progress": "[fedprikl] ", "failure": "[fedprikl] no release: "}.get(kind, "")
    record(world, monkeypatch, f"{prefix}evil {ESCAPES}\n", released=False)
    verbose = ["--verbose"] if kind == "verbose" else []
    if kind == "run":
        record(world, monkeypatch, "started run 7\n", released=False)
        monkeypatch.setattr(organiser, "PAUSE", 0.0)
        told = json.dumps({"runs": [{"status": "finished:evil", "status-details": ESCAPES}]})
        monkeypatch.setattr(organiser, "_flwr", lambda *_: iter([told]))
    said = fails(monkeypatch, capsys, "federate", "mine", "--signer", world.key.public, *verbose)
    assert "evil" in said
    assert "[link=http://x]" in said  # shown as it is, not as a link
    assert all(c.isprintable() for c in said.replace("\n", ""))


def test_what_is_known_is_refused_before_a_run_is_started(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = record(world, monkeypatch)
    Path("report.html").write_text("mine")
    assert "--force" in fails(monkeypatch, capsys, "federate", "mine", "--signer", world.key.public)
    Path("report.html").unlink()
    expired = world.plan(cohort=9, valid_until="2020-01-01T00:00:00+00:00")
    Path("plan.json").write_text(json.dumps(SignedPlan.sign(expired, world.key).to_dict()))
    assert "until 2020-01-01" in fails(
        monkeypatch, capsys, "federate", "mine", "--signer", world.key.public
    )
    series = Series(every="day", first="2030-01-05", periods=3)
    many = SignedPlan.sign(world.plan(cohort=9, release="counts", series=series), world.key)
    Path("plan.json").write_text(json.dumps(many.to_dict()))
    assert "fedprikl monitor run --federation" in fails(
        monkeypatch, capsys, "federate", "mine", "--signer", world.key.public
    )
    assert runner.invoke(app, ["federate", "mine", "--signer", "abc"]).exit_code == 2
    assert runner.invoke(app, ["federate", "mine", "--home", "/srv"]).exit_code == 2
    for key in ([], ["--signer", ""]):
        assert runner.invoke(app, ["federate", "mine", *key]).exit_code == 2
    assert seen == {}


def test_a_release_that_the_relay_signed_itself_is_not_believed(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is intact, about the plan, and answers the request; only the key tells."""
    record(replace(world, key=SigningKey.generate()), monkeypatch)
    line = ["federate", "mine", "--signer", world.key.public]
    assert "NOT genuine" in fails(monkeypatch, capsys, *line)
    assert not Path("release.json").exists()


def test_all_or_nothing_refuses_a_release_that_lacks_a_client(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relay may leave out of the run config that all were asked for."""
    seen = record(world, monkeypatch)  # of 9 clients
    line = ["federate", "mine", "--signer", world.key.public, "--all", "--clients"]
    assert "the release counts 9 of 10 clients" in fails(monkeypatch, capsys, *line, "10")
    assert seen["everybody"] is True
    assert not Path("release.json").exists()
    assert runner.invoke(app, [*line, "9"]).exit_code == 0


def quiet_run(world: World, monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[tuple[str, ...]]:
    """A run that prints these lines and then nothing any more; Flower's commands meanwhile."""
    record(world, monkeypatch)
    asked: list[tuple[str, ...]] = []

    def flwr_run(*_: object) -> Iterator[str]:
        yield from lines
        while True:
            time.sleep(0.01)
            yield ""

    def flwr(*arguments: str) -> Iterator[str]:
        asked.append(arguments)
        yield "Run 77 successfully stopped.\n"

    monkeypatch.setattr(organiser, "_flwr_run", flwr_run)
    monkeypatch.setattr(organiser, "_flwr", flwr)
    monkeypatch.setattr(organiser, "LAST_WORDS", timedelta())
    return asked


STARTED = "Successfully started run 77\n"


@pytest.mark.parametrize(
    ("lines", "waits", "words"),
    [
        ([], "the relay to take the run", "The relay did not take the run"),
        ([STARTED], "the aggregator to take the run", "start it with `fedprikl aggregator`"),
        (
            [STARTED, "[fedprikl] input: 8 of 9\n"],
            "",
            "heard of it: input: 8 of 9. What the run has charged is in the aggregator's ledger",
        ),
    ],
)
def test_a_run_that_takes_too_long_is_stopped(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lines: list[str],
    waits: str,
    words: str,
) -> None:
    asked = quiet_run(world, monkeypatch, *lines)
    said = fails(
        monkeypatch, capsys, "federate", "mine", "--signer", world.key.public, "--timeout", "1"
    )
    assert "There is no release after 1 s." in said
    assert words in said
    assert (f"waiting for {waits}, until" in said) is bool(waits)
    assert said.count("waiting for") == bool(waits)
    assert asked == ([("stop", "77", "mine")] if lines else [])
    assert ("Run 77 was stopped." in said) is bool(lines)


def test_ctrl_c_stops_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = quiet_run(world, monkeypatch, STARTED)

    def flwr_run(*_: object) -> Iterator[str]:
        yield STARTED
        raise KeyboardInterrupt

    monkeypatch.setattr(organiser, "_flwr_run", flwr_run)
    result = runner.invoke(app, ["federate", "mine", "--signer", world.key.public])
    assert result.exit_code == 130
    assert asked == [("stop", "77", "mine")]
    assert "Run 77 was stopped." in result.stderr


def test_a_run_has_a_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = record(world, monkeypatch)
    before = datetime.now(UTC)
    waits = ["--wait", "30", "--step-timeout", "10"]
    line = ["federate", "mine", "--signer", world.key.public, *waits]
    assert runner.invoke(app, line).exit_code == 0
    left = datetime.fromisoformat(seen["deadline"]) - before
    assert timedelta(seconds=149) < left < timedelta(seconds=180)  # 60 + 30 + 6 * 10
    assert runner.invoke(app, [*line, "--force", "--timeout", "500"]).exit_code == 0
    left = datetime.fromisoformat(seen["deadline"]) - before
    assert timedelta(seconds=499) < left < timedelta(seconds=530)


def test_lost_sites_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [SigningKey.generate().public for _ in range(9)]
    lines = [f"{key} clinic {number}" for number, key in enumerate(keys)]
    Path("roster.txt").write_text("\n".join(lines))
    roster = Roster.load("roster.txt")
    record(world, monkeypatch, f"[fedprikl] input: 8 of 9, 1 lost, 5 s; lost: {keys[4][:12]}\n")
    plan = world.plan(cohort=9, roster=roster.fingerprint)
    Path("plan.json").write_text(json.dumps(SignedPlan.sign(plan, world.key).to_dict()))
    monkeypatch.setattr(organiser, "_check_genuine", lambda *_, **__: None)
    result = runner.invoke(
        app, ["federate", "mine", "--signer", world.key.public, "--roster", "roster.txt", "--json"]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["progress"] == ["input: 8 of 9, 1 lost, 5 s; lost: clinic 4"]
    assert "lost: clinic 4" in result.stderr
    assert "The roster has" not in Path("report.html").read_text(encoding="utf-8")


def test_the_answer_says_how_many_of_the_roster_are_not_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("roster.txt").write_text("\n".join(SigningKey.generate().public for _ in range(11)))
    record(world, monkeypatch)
    plan = world.plan(cohort=9, roster=Roster.load("roster.txt").fingerprint)
    Path("plan.json").write_text(json.dumps(SignedPlan.sign(plan, world.key).to_dict()))
    monkeypatch.setattr(organiser, "_check_genuine", lambda *_, **__: None)
    line = ["federate", "mine", "--signer", world.key.public, "--roster", "roster.txt"]
    result = runner.invoke(app, line)
    assert result.exit_code == 0, result.output
    words = "The roster has 11 sites; 2 not counted."
    assert words in result.stdout
    assert words in Path("report.html").read_text(encoding="utf-8")


def test_lines_come_as_they_are_printed_and_silence_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(organiser, "QUIET", 0.05)
    reader, writer = os.pipe()
    os.write(writer, b"one\ntw")
    lines = organiser._lines(reader)
    assert [next(lines), next(lines)] == ["one\n", ""]
    os.write(writer, "o\nthr\u00e9e".encode())
    os.close(writer)
    assert list(lines) == ["two\n", "thr\u00e9e"]
    os.close(reader)
