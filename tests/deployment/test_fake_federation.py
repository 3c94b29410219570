"""Whole rounds over a grid in one process: equal to the in-process round, whatever nodes do."""

import json
import math
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deploy.small_world import write_plan
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedprikl.cli.federation_command import _is_released
from fedprikl.deployment import hosted_round
from fedprikl.deployment.flower import server
from fedprikl.deployment.flower.client import pack, unpack
from fedprikl.deployment.host import Host
from fedprikl.deployment.provisioning import Federation
from fedprikl.deployment.settings import Home, NodeSettings
from fedprikl.deployment.site import Envelope
from fedprikl.errors import (
    BudgetExceededError,
    DeploymentError,
    InvalidInputError,
    RecordsError,
    ReleaseRefused,
)
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    Invitation,
    NoisedRound,
    Release,
    SealingKey,
    Server,
    SignedPlan,
    SigningKey,
    Step,
)
from fedprikl.protocol.keys import ANSWER, unpadded
from fedprikl.reference import Reference
from fedprikl.secure_sum import Leaves
from tests.deployment.fake_grid import FakeFederation, FakeGrid, has_session, read_counters, spent
from tests.deployment.in_process import in_process_value
from tests.protocol.worlds import InsecureNoNoise

pytestmark = pytest.mark.slow

LEAVES = dict(zip(Step, Leaves, strict=True))


def vanish(node: int, step: Step) -> Callable[[int, Step], float]:
    """From this step on the node does not answer."""
    steps = list(Step)
    return lambda who, now: math.inf if who == node and steps.index(now) >= steps.index(step) else 0


@pytest.mark.parametrize("step", [None, *Step])
def test_a_round_equals_the_in_process_one_to_the_bit(
    federation: FakeFederation, step: Step | None
) -> None:
    grid = federation.grid()
    gone = {} if step is None else {federation.files[2]: LEAVES[step]}
    if step is not None:
        grid.delay = vanish(3, step)
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert release.value == in_process_value(federation.home, federation.files, gone)
    lost = [line for line in lines if "1 lost" in line]
    assert len(lost) == (step is not None)
    assert grid.time.seconds >= (30 if lost else 0)  # it was waited for, and not longer
    assert grid.time.seconds < 32


def test_cohorts_go_side_by_side_and_nothing_is_left_at_the_clients(
    federation: FakeFederation,
) -> None:
    write_plan(federation.home, cohort=4, dropout=0.1, batches=2, points=4)
    grid = federation.grid()
    release, lines = federation.run(grid)
    assert "8 clients in 2 cohorts of 4 to 4" in lines[0]
    assert [c.included for c in release.cohorts] == [4, 4]
    assert len(grid.carried) == 2 * 8 * len(Step)
    assert not any(map(has_session, grid.contexts.values()))
    saved = json.loads((Home(federation.home).releases / f"{release.round_id}.json").read_text())
    assert saved == release.to_dict()
    assert release.is_signed_by(SigningKey.load(Home(federation.home).signing_key).public)


def test_an_aggregator_with_another_key_than_expected_asks_nobody(
    federation: FakeFederation,
) -> None:
    grid = federation.grid()
    with pytest.raises(DeploymentError, match="Nothing was asked, nothing was charged"):
        federation.run(grid, signer="ab" * 32)
    with pytest.raises(InvalidInputError, match="`signer` is a public key"):
        federation.run(grid, signer="AB" * 32)
    assert (grid.carried, spent(federation)) == ([], 0.0)
    own = SigningKey.load(Home(federation.home).signing_key).public
    assert federation.run(grid, signer=own)[0].is_signed_by(own)


def test_slow_clients_are_waited_for_and_late_ones_are_not(federation: FakeFederation) -> None:
    grid = federation.grid()
    grid.delay = lambda node, step: {1: 20.0, 2: 31.0}.get(node, 0.0) if step is Step.ECHO else 0.0
    release, lines = federation.run(grid)
    assert "echo: 7 of 8 answered, 0 refused, 1 lost" in lines[4]
    assert "reveal: 7 of 7" in lines[5]
    assert release.cohorts[0].included == 8  # its counts had been sent


@pytest.mark.parametrize(
    "damage",
    [
        lambda asked, _: Message(
            RecordDict({"fedprikl": ConfigRecord({"round": 3})}), reply_to=asked
        ),
        lambda asked, _: Message(Error(code=1, reason="secret words"), reply_to=asked),
        lambda asked, _: Message(pack(Envelope(unpack(asked).round_id, b"x" * 99)), reply_to=asked),
        lambda asked, _: Message(pack(Envelope("f" * 32, b"", "no")), reply_to=asked),
        lambda asked, answer: Message(
            pack(Envelope(unpack(asked).round_id, unpack(answer).message[:-1])), reply_to=asked
        ),
    ],
    ids=["no envelope", "an error", "not sealed", "another round", "cut off"],
)
def test_a_node_that_answers_damage_is_left_out(
    federation: FakeFederation, damage: Callable[[Message, Message], Message]
) -> None:
    grid = federation.grid()

    def alter(asked: Message, answer: Message) -> list[Message]:
        bad = asked.metadata.dst_node_id == 5 and asked.metadata.message_type == "query.input"
        return [damage(asked, answer)] if bad else [answer]

    grid.alter = alter
    release, lines = federation.run(grid, source=InsecureNoNoise())
    gone = {federation.files[4]: Leaves.BEFORE_INPUT}
    assert release.value == in_process_value(federation.home, federation.files, gone)
    assert "secret words" not in "".join(lines)


@pytest.mark.parametrize(("errors", "included"), [(2, 8), (3, 7)])
def test_a_message_is_sent_again_where_flower_reports_an_error(
    federation: FakeFederation, errors: int, included: int
) -> None:
    """The answer was lost on the way; asked again, the client repeats its bytes. Three times."""
    grid, made = federation.grid(), list[bytes]()

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.dst_node_id != 5 or asked.metadata.message_type != "query.input":
            return [answer]
        made.append(unpack(answer).message)
        gone = Message(Error(code=5, reason="Node unavailable"), reply_to=asked)
        return [gone if len(made) <= errors else answer]

    grid.alter = alter
    release, _ = federation.run(grid)
    assert release.cohorts[0].included == included
    assert len(made) == 3
    assert len(set(made)) == 1


def test_a_site_that_refused_under_seal_repeats_its_bytes(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, it must not say in the open that it has answered: that would be the refusal."""
    monkeypatch.setattr("fedprikl.monitoring.counted_records.open_records", rows_that_fail)
    grid, made = federation.grid(), list[bytes]()

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.dst_node_id != 5:
            return [answer]
        made.append(unpack(answer).message)
        return [Message(Error(code=5, reason="Node unavailable"), reply_to=asked)]

    grid.alter = alter
    with pytest.raises(ReleaseRefused):
        federation.run(grid)
    assert len(made) == 3
    assert len(set(made)) == 1
    assert made[0]


def test_a_serverapp_that_dies_leaves_a_void_round_and_a_right_ledger(
    federation: FakeFederation,
) -> None:
    """The counts had left, so that another round needs a plan and sites that allow it."""
    write_plan(federation.home, releases=2)
    grid = federation.grid(most_counts=2)

    def die(_: int, step: Step) -> float:
        if step is Step.ECHO:
            raise KeyboardInterrupt
        return 0.0

    grid.delay = die
    with pytest.raises(KeyboardInterrupt):
        federation.run(grid)
    assert spent(federation) == 0
    assert not Home(federation.home).releases.exists()
    assert all(map(has_session, grid.contexts.values()))
    grid.delay = lambda _node, _step: 0.0
    first = {unpack(message).round_id for message in grid.carried}
    release, _ = federation.run(grid)  # the clients still hold the old round
    assert {release.round_id} & first == set()
    assert release.cohorts[0].included == 8
    assert spent(federation) == pytest.approx(1.0, abs=1e-6)


def test_a_serverapp_that_dies_after_the_noise_loses_no_release(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run of the plan is given the release: nobody is asked, and nothing is charged."""

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    grid = federation.grid()
    with monkeypatch.context() as patch:
        patch.setattr(NoisedRound, "release", die)
        with pytest.raises(KeyboardInterrupt):
            federation.run(grid, request="aa")
    asked = len(grid.carried)
    (round_id,) = {unpack(message).round_id for message in grid.carried}
    assert spent(federation) == pytest.approx(1.0, abs=1e-6)
    release, lines = federation.run(grid, request="bb")
    assert (release.round_id, release.request) == (round_id, "bb")
    assert len(grid.carried) == asked
    assert any("finished from its kept numbers" in line for line in lines)
    assert Release.load(Home(federation.home).releases / f"{round_id}.json") == release
    assert spent(federation) == pytest.approx(1.0, abs=1e-6)


def test_too_few_answers_release_nothing_and_charge_nothing(federation: FakeFederation) -> None:
    grid = federation.grid()
    grid.delay = lambda node, step: math.inf if node > 3 and step is Step.INPUT else 0.0
    with pytest.raises(ReleaseRefused, match=r"The first cohort ended because: .*are needed"):
        federation.run(grid)
    assert spent(federation) == 0
    counters = read_counters(Home(federation.home).metrics)
    assert counters['fedprikl_rounds_total{outcome="failed"}'] == 1
    assert counters['fedprikl_clients_lost_total{step="input"}'] == 5


@pytest.mark.parametrize(
    "named",
    [SealingKey.generate().public, ""],
    ids=["another", "none"],  # ids: equal in all workers
)
def test_an_aggregator_with_another_key_than_the_plans_says_so(
    federation: FakeFederation, named: str
) -> None:
    write_plan(federation.home, aggregator=named)
    with pytest.raises(InvalidInputError, match="another aggregator's sealing key"):
        federation.run(federation.grid())


def test_refusals_that_cannot_be_written_lose_no_release(federation: FakeFederation) -> None:
    Home(federation.home).refusals.write_text("a file where the folder should be")
    grid = federation.grid()
    grid.limit(7, largest_epsilon=0.5)
    release, lines = federation.run(grid)
    assert release.cohorts[0].included == 7
    assert any("could not be written" in line for line in lines)


def test_some_may_refuse_and_the_rest_go_on(federation: FakeFederation) -> None:
    grid = federation.grid()
    grid.limit(7, largest_epsilon=0.5)
    release, lines = federation.run(grid)
    assert "advertise: 7 of 8 answered, 1 refused, 0 lost" in lines[1]
    assert release.cohorts[0].included == 7
    counters = read_counters(Home(federation.home).metrics)
    assert counters["fedprikl_clients_refused_total"] == 1
    text = Home(federation.home).metrics.read_text()
    assert 'fedprikl_epsilon_left{population="sites"} 9' in text
    assert 'fedprikl_step_seconds{step="reveal"}' in text
    assert f'fedprikl_release_records{{population="sites"}} {release.records}\n' in text
    assert 'fedprikl_release_clients{population="sites"} 7\n' in text


@pytest.mark.parametrize("config", [{"policy": ""}, {"reference": 3}, {"most-counts": "2"}])
def test_a_site_that_is_not_set_up_tells_only_itself_why(
    federation: FakeFederation, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    grid = federation.grid()
    grid.contexts[7].node_config.update(config)
    release, _ = federation.run(grid)
    assert release.cohorts[0].included == 7
    (told,) = {unpack(message).refusal for message in grid.carried} - {""}
    assert "not set up for this round" in told
    assert any(name in caplog.text for name in config)


def test_a_site_that_is_counted_says_so_in_its_log(
    federation: FakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fedprikl")
    release, _ = federation.run(federation.grid())
    words = f"takes part: counts leave, masked, in round {release.round_id} under plan "
    assert caplog.text.count(words) == release.cohorts[0].included


def rows_that_fail(*_: Any, **__: Any) -> None:
    raise RecordsError("row 7 of nowhere.csv, the record of Jane Doe")


def rows_that_crash(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("the record of Jane Doe")


def no_room(*_: Any, **__: Any) -> None:
    raise OverflowError("the count of Jane Doe")


@pytest.mark.parametrize(
    ("place", "fail", "logged"),
    [
        ("fedprikl.monitoring.counted_records.open_records", rows_that_fail, "nowhere.csv"),
        (
            "fedprikl.monitoring.counted_records.open_records",
            rows_that_crash,
            "ZeroDivisionError",
        ),
        ("fedprikl.deployment.site.Client.join", no_room, "OverflowError"),
        ("fedprikl.secure_sum.sum_client.SumClient.mask_input", no_room, "OverflowError"),
    ],
)
def test_from_the_records_on_failures_are_sealed_and_as_long_as_answers(
    federation: FakeFederation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    fail: Callable[..., None],
    logged: str,
) -> None:
    """The relay sees messages, all of one length in the first step; why stays in the site's log."""
    monkeypatch.setattr(place, fail)
    grid = federation.grid()
    with pytest.raises(ReleaseRefused, match="8 of the reasons are in the aggregator's folder"):
        federation.run(grid)
    answers = [m for m in grid.carried if m.metadata.reply_to_message_id]
    assert all(unpack(message).message and not unpack(message).refusal for message in answers)
    first = [m for m in answers if m.metadata.message_type == "query.advertise"]
    assert len({len(unpack(message).message) for message in first}) == 1
    (path,) = Home(federation.home).refusals.iterdir()
    assert "could not count its records" in path.read_text()
    assert "Jane" not in path.read_text()
    assert logged in caplog.text


@pytest.mark.parametrize(
    "row",
    [
        b"\xff\xfe,basic",
        b"46.0,ba\x00sic",
        b"46.0," + b"x" * 3_000_000,
        b"46.0,basic,and,more",
        b'46.0,"basic',
        b"46.0",
        b"nan,basic",
        b"1e999,plus",
        b"",
    ],
    ids=["bytes", "nul", "overlong", "fields", "quote", "short", "nan", "huge", "empty"],
)
@pytest.mark.parametrize("place", [1, 30, -1])
def test_no_single_record_stops_its_site(
    federation: FakeFederation, row: bytes, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    """That a site takes no part would be one bit of one record, for free: it is "other" instead."""
    header, *rows = federation.files[6].read_bytes().splitlines()
    rows[place] = row
    federation.files[6].write_bytes(b"\n".join([header, *rows]) + b"\n")
    grid = federation.grid()
    message = first_message(federation)
    answer = unpack(grid.deliver(message))
    invitation = Invitation.from_bytes(unpack(message).message)
    key = SealingKey.load(Home(federation.home).sealing_key)
    kind, _ = unpadded(key.open(answer.message, invitation.address(Step.ADVERTISE)))
    assert kind == ANSWER
    assert caplog.text == ""


def first_message(federation: FakeFederation) -> Message:
    """What the seventh site is asked first."""
    reference = Reference.load(Home(federation.home).reference)
    current = Server(SignedPlan.load(federation.home / "plan.json"), reference).open_round(
        [str(number) for number in range(1, 9)],
        rng=np.random.default_rng(1),
        randomness=lambda size: b"r" * size,
    )
    cohort = current.cohorts[0]
    invitation = Invitation.to_member(current, cohort, cohort.members.index("7"))
    return Message(
        pack(Envelope(current.round_id, invitation.to_bytes())),
        dst_node_id=7,
        message_type="query.advertise",
    )


def test_a_site_whose_file_is_missing_seals_that_too(federation: FakeFederation) -> None:
    grid = federation.grid()
    grid.contexts[7].node_config["data"] = "/nowhere.csv"
    release, _ = federation.run(grid)
    assert release.cohorts[0].included == 7
    assert {unpack(message).refusal for message in grid.carried} == {""}
    (path,) = Home(federation.home).refusals.iterdir()
    assert list(json.loads(path.read_text())) == ["7"]
    assert "nowhere" not in path.read_text()


def test_the_budget_is_checked_and_kept(federation: FakeFederation) -> None:
    write_plan(federation.home, population="strangers")
    with pytest.raises(InvalidInputError, match="no budget at this aggregator"):
        federation.run(federation.grid())
    with Ledger.open(Home(federation.home).ledger) as ledger:
        ledger.set_budget("few", epsilon=0.5, delta=1e-6, at="2030-01-31T12:00:00Z")
    write_plan(federation.home, population="few")
    grid = federation.grid()
    with pytest.raises(BudgetExceededError):
        federation.run(grid)
    assert grid.carried == []  # known before anybody is asked
    assert grid.time.seconds == 0
    assert not Home(federation.home).releases.exists()


def test_too_few_nodes_are_waited_for_and_then_said_so(federation: FakeFederation) -> None:
    grid = federation.grid()
    with pytest.raises(DeploymentError, match="8 sites are connected after 5 s, 9 are needed"):
        federation.run(grid, clients=9, wait=5.0)
    assert 5 <= grid.time.seconds < 7
    assert grid.carried == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda home: (home / "plan.json").write_text("{"), "not a whole JSON document"),
        (lambda home: (home / "plan.json").unlink(), "Cannot read the plan"),
        (lambda home: (home / "sealing.pem").unlink(), "Cannot read the key"),
        (lambda home: (home / "sealing.pem").write_text("no key"), "not an unencrypted X25519 key"),
        (
            lambda home: (home / "plan.json").write_text(
                (home / "plan.json").read_text().replace('"epsilon": 1.0', '"epsilon": 2.0')
            ),
            "not signed as it stands",
        ),
    ],
)
def test_a_home_that_cannot_be_used(
    federation: FakeFederation, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(federation.home)
    grid = federation.grid()
    with pytest.raises(InvalidInputError, match=words):
        federation.run(grid)
    assert grid.carried == []


def test_a_home_that_is_not_there(federation: FakeFederation) -> None:
    federation.home = Path("/nowhere")
    grid = FakeGrid({})
    with pytest.raises(DeploymentError, match="There is no folder"):
        federation.run(grid)


def test_the_last_few_get_a_grace_and_not_the_whole_timeout(federation: FakeFederation) -> None:
    write_plan(federation.home, releases=2)
    grid = federation.grid()
    grid.delay = vanish(3, Step.INPUT)
    patience: dict[str, Any] = {"step-timeout": 1000.0, "grace": 4.0}
    _, lines = federation.run(grid, **patience)
    assert "input: 7 of 8 answered, 0 refused, 1 lost, 4 s" in lines[3]
    crowd = federation.grid(most_counts=2)
    crowd.delay = lambda node, step: math.inf if node < 5 and step is Step.INPUT else 0.0
    with pytest.raises(ReleaseRefused):
        federation.run(crowd, **patience)
    assert crowd.time.seconds >= 1000  # four of eight are more than the plan can spare


def test_a_busy_relay_does_not_end_a_round(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid = federation.grid()
    push, pull = grid.push_messages, grid.pull_messages
    calls = {"push": 0, "pull": 0}

    def busy(name: str, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(argument: Any) -> Any:
            calls[name] += 1
            if calls[name] % 3 == 1:
                raise TimeoutError("words of the relay")
            return method(argument)

        return call

    monkeypatch.setattr(grid, "push_messages", busy("push", push))
    monkeypatch.setattr(grid, "pull_messages", busy("pull", pull))
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert release.value == in_process_value(federation.home, federation.files, {})
    assert all("0 lost" in line for line in lines[1:6])
    assert "TimeoutError" in caplog.text
    assert "words of the relay" not in caplog.text


def test_messages_sent_again_after_a_lost_reply_lose_nobody(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay took and delivered them, but its reply was lost; in every step."""
    grid = federation.grid()
    push, first = grid.push_messages, set[str]()

    def lossy(messages: list[Message]) -> Any:
        ids = push(messages)
        if messages[0].metadata.message_type not in first:
            first.add(messages[0].metadata.message_type)
            assert len(list(grid.pull_messages(ids))) == 8  # answered, and nobody looks for it
            raise TimeoutError
        return ids

    monkeypatch.setattr(grid, "push_messages", lossy)
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert len(first) == len(Step)
    assert release.value == in_process_value(federation.home, federation.files, {})
    assert all("8 of 8 answered, 0 refused, 0 lost" in line for line in lines[1:6])


def test_a_relay_that_takes_nothing_ends_the_round_without_a_release(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = federation.grid()

    def refuse(_: Any) -> Any:
        raise TimeoutError

    monkeypatch.setattr(grid, "push_messages", refuse)
    with pytest.raises(ReleaseRefused):
        federation.run(grid)
    assert spent(federation) == 0


def test_a_failed_run_says_so_in_its_log_and_fails(
    federation: FakeFederation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The entry point that Flower calls: a line for people, an exception for Flower."""
    monkeypatch.setenv("FEDPRIKL_HOME", "/nowhere")
    context = federation.grid().contexts[1]
    with pytest.raises(DeploymentError):
        server.app(federation.grid(), context)
    assert "[fedprikl] no release: There is no folder /nowhere" in capsys.readouterr().out


def test_a_run_cannot_send_the_aggregator_to_another_folder(
    federation: FakeFederation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """To one with a fresh ledger, say."""
    monkeypatch.setenv("FEDPRIKL_HOME", str(federation.home))
    shutil.copytree(federation.home, tmp_path / "elsewhere")
    grid = federation.grid()
    context = federation.grid().contexts[1]
    context.run_config = {"home": str(tmp_path / "elsewhere"), "clients": 8}
    with pytest.raises(InvalidInputError, match="cannot choose"):
        server.app(grid, context)
    assert "no release: A run cannot choose" in capsys.readouterr().out
    assert grid.carried == []


def test_the_entry_point_runs_a_whole_round(
    federation: FakeFederation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDPRIKL_HOME", str(federation.home))
    grid = federation.grid()
    context = federation.grid().contexts[1]
    context.run_config = {"clients": 8}
    server.app(grid, context)
    assert "[fedprikl] release: {" in capsys.readouterr().out


def test_a_node_of_the_simulation_engine_takes_the_file_of_its_number(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRIKL_HOME", str(federation.home))
    (federation.home / "clients").symlink_to(federation.files[0].parent)
    settings = NodeSettings.of({"partition-id": 3, "num-partitions": 8})
    assert isinstance(settings.data, Path)
    assert settings.data.name == federation.files[3].name
    organiser = SigningKey.load(federation.home / "organiser.pem").public
    assert settings.policy.limits.organisers == {organiser}


def test_unexpected_words_never_reach_the_relays_log(
    federation: FakeFederation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("the sum is 123456")

    monkeypatch.setattr("fedprikl.protocol.aggregator.RoundDriver.release", fail)
    monkeypatch.setenv("FEDPRIKL_HOME", str(federation.home))
    grid = federation.grid()
    context = federation.grid().contexts[1]
    context.run_config = {"clients": 8}
    with pytest.raises(DeploymentError, match="ZeroDivisionError") as raised:
        server.app(grid, context)
    told = "".join(traceback.format_exception(raised.value))
    assert "123456" not in told + "".join(capsys.readouterr())
    assert spent(federation) == 0


def test_a_full_disk_loses_no_release(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hosted_round, "write_release", full)
    monkeypatch.setattr(hosted_round, "write_metrics", full)
    lines: list[str] = []
    grid = federation.grid()
    host = Host(clock=grid.time.now, sleep=grid.time.sleep, say=lines.append)
    with pytest.raises(OSError, match="No space"):
        server.run_on_flower(grid, federation.settings(), host)
    assert any(line.startswith("[fedprikl] release: {") for line in lines)
    assert "metrics could not be written: No space left" in lines[-1]


def test_the_organiser_sees_that_a_plan_is_released(federation: FakeFederation) -> None:
    known = Federation(folder=federation.home.parent, name="small", relay="127.0.0.1:9443")
    plan = SignedPlan.load(federation.home / "plan.json").plan
    assert known.home.folder == federation.home
    assert not _is_released(known, plan)
    federation.run(federation.grid())
    assert _is_released(known, plan)
