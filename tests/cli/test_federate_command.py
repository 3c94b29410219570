"""`fedprikl keys` and `fedprikl federate`, with a recorded run in place of Flower's stream."""

import importlib.util
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli import federate
from fedprikl.cli.app import app
from fedprikl.errors import DeploymentError, InvalidInputError, MissingExtraError
from fedprikl.federation import SealingKey, SignedPlan
from fedprikl.flower_app import APP_FOLDER
from fedprikl.flower_app.connection import check_connection
from fedprikl.flower_app.progress import release_line
from tests.cli.test_round_commands import fails
from tests.federation.worlds import World

runner = CliRunner()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path / "home"))
    return World.make(clients=9)


def record(
    world: World, monkeypatch: pytest.MonkeyPatch, *lines: str, released: bool = True
) -> dict[str, Any]:
    """A run that prints these lines and, maybe, a release."""
    plan = world.plan(cohort=9)
    Path("plan.json").write_text(json.dumps(SignedPlan.sign(plan, world.key).to_dict()))
    stream = ["Loading\n", *lines]
    if released:
        stream.append(release_line(world.run(plan).release) + "\n")
    seen: dict[str, Any] = {}

    def flwr_run(folder: Path, superlink: str, config: Any, more: list[str]) -> Iterator[str]:
        seen.update(config, folder=folder, superlink=superlink, more=more)
        yield from stream

    monkeypatch.setattr(federate, "_flwr_run", flwr_run)
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
    line = ["federate", "mine", "--key", world.key.public, "--clients", "9"]
    result = runner.invoke(app, line)
    assert result.exit_code == 0, result.output
    assert "[fedprikl] input: 8 of 9 answered" in result.stderr
    assert "Loading" not in result.stderr
    assert "with the key you gave" in result.stdout
    assert (seen["superlink"], seen["plan"], seen["clients"]) == ("mine", "plan.json", 9)
    assert Path("release.json").exists()
    assert "differ from the reference" in Path("report.html").read_text(encoding="utf-8")
    document = json.loads(runner.invoke(app, [*line, "--json"]).stdout)
    assert document["progress"] == ["input: 8 of 9 answered"]
    assert document["release"]["population"] == "testers"


def test_a_run_without_a_release_says_why(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(world, monkeypatch, "[fedprikl] no release: all refused.\n", released=False)
    error = fails(monkeypatch, capsys, "federate", "mine")
    assert "There is no release. all refused." in error
    record(world, monkeypatch, "flwr: strange\n", released=False)
    assert "strange" in fails(monkeypatch, capsys, "federate", "mine")
    assert not Path("release.json").exists()


def test_a_release_of_another_signer_or_plan_is_not_written(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(world, monkeypatch)
    assert "NOT genuine" in fails(monkeypatch, capsys, "federate", "mine", "--key", "ab" * 32)
    other = SignedPlan.sign(world.plan(epsilon=0.5), world.key)
    Path("plan.json").write_text(json.dumps(other.to_dict()))
    assert "another plan" in fails(monkeypatch, capsys, "federate", "mine")
    assert not Path("release.json").exists()


def test_without_flower_the_extra_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(world, monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert issubclass(MissingExtraError, Exception)
    assert "fedprikl[flower]" in fails(monkeypatch, capsys, "federate", "mine")


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
    with pytest.raises(DeploymentError, match="not TOML"):
        connect(tmp_path, "[superlink")
    with pytest.raises(DeploymentError, match=r"no connection \[superlink.mine\]"):
        connect(tmp_path, "[superlink.other]\n")
    with pytest.raises(DeploymentError, match="cannot be reached: Connection refused"):
        connect(tmp_path, f"[superlink.mine]\n{address}")
    with pytest.raises(DeploymentError, match="no certificate file"):
        connect(tmp_path, f'[superlink.mine]\n{address}root-certificates = "none.pem"\n')
    connect(tmp_path, '[superlink.mine]\naddress = ":local:"\n')
    connect(tmp_path, f"[superlink.mine]\n{address}insecure = true\n")


def test_a_plan_with_a_wrong_aggregator_key_is_refused(world: World) -> None:
    with pytest.raises(InvalidInputError, match="X25519 public key"):
        world.plan(aggregator="ab")


def test_flowers_own_words_come_through(world: World, tmp_path: Path) -> None:
    """The real `flwr run`, against a connection that Flower does not know."""
    assert world
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text("[superlink.other]\n")
    lines = list(federate._flwr_run(APP_FOLDER, "nowhere", {"clients": 3}, ["a=1"]))
    assert "nowhere" in "".join(lines)


def test_a_stream_that_breaks_off_is_taken_up_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan(cohort=9)
    first = ["Successfully started run 77\n", "[fedprikl] share: 9 of 9\n"]
    record(world, monkeypatch, *first, released=False)
    again = ["[fedprikl] share: 9 of 9\n", "[fedprikl] input: 9 of 9\n"]
    answers = {
        "list": iter([listed("running"), ["The SuperLink is not available\n"]]),
        "log": iter([again[:1], [*again, release_line(world.run(plan).release) + "\n"]]),
    }
    asked: list[tuple[str, ...]] = []

    def flwr(*arguments: str) -> Iterator[str]:
        asked.append(arguments)
        yield from next(answers[arguments[0]])

    monkeypatch.setattr(federate, "_flwr", flwr)
    monkeypatch.setattr(federate, "PAUSE", 0.0)
    result = runner.invoke(app, ["federate", "mine", "--json"])
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

    monkeypatch.setattr(federate, "_flwr", flwr)
    monkeypatch.setattr(federate, "PAUSE", 0.0)
    said = fails(monkeypatch, capsys, "federate", "mine")
    assert "Flower ended without one (finished:failed: why). Its last words:" in said
    assert "the end" in said
    assert asked == ["list", "log"]


def listed(status: str) -> list[str]:
    """What the real `flwr list` prints of a run."""
    from flwr.cli.ls import _to_json
    from flwr.cli.run_utils import RunRow

    row = dict.fromkeys(RunRow.__dataclass_fields__, "N/A")
    numbers = {name: 0 for name in row if name.startswith(("network", "compute"))}
    run = RunRow(**(row | numbers | {"status_text": status, "details": "why"}))  # type: ignore[arg-type]
    return [_to_json([run])]
