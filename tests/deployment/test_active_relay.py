"""A relay that changes, swaps, repeats and forges: it may lose clients, and learns nothing."""

import json
import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deploy.small_world import write_plan
from flwr.app import ConfigRecord, Message, RecordDict

from fedprikl.deployment import hosted_round as host_checks
from fedprikl.deployment.flower import server
from fedprikl.deployment.flower.client import SESSION, pack, unpack
from fedprikl.deployment.settings import Home
from fedprikl.deployment.site import Envelope
from fedprikl.errors import (
    InvalidInputError,
    ReleaseRefused,
)
from fedprikl.protocol import Invitation, SealingKey, Step
from fedprikl.protocol.keys import seal
from tests.deployment.fake_grid import FakeFederation, FakeGrid, has_session, spent
from tests.deployment.in_process import in_process_value
from tests.protocol.worlds import InsecureNoNoise, consistent

pytestmark = pytest.mark.slow


def test_without_a_trusted_party_strangers_are_asked_nothing(federation: FakeFederation) -> None:
    """A relay in the place of all clients but one would leave one share of the noise."""
    write_plan(federation.home, trust="none", dropout=0.1, corruption=0.0)
    grid = federation.grid()
    with pytest.raises(InvalidInputError, match="needs a roster of clients"):
        federation.run(grid)
    assert grid.carried == []
    assert spent(federation) == 0


def test_without_a_trusted_party_no_site_answers_among_strangers(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody is trusted, an aggregator that does not refuse is to be expected."""
    monkeypatch.setattr(host_checks, "_check_trust", lambda _: None)
    write_plan(federation.home, trust="none", dropout=0.1, corruption=0.0)
    grid = federation.grid()
    with pytest.raises(ReleaseRefused, match=r"8 clients took no part.*needs a roster of clients"):
        federation.run(grid)
    assert not any(map(has_session, grid.contexts.values()))


def test_second_and_foreign_answers_change_nothing(federation: FakeFederation) -> None:
    grid = federation.grid()
    earlier: list[Message] = []

    def alter(asked: Message, answer: Message) -> list[Message]:
        foreign = Message(pack(Envelope("0" * 32, b"sealed elsewhere")), reply_to=asked)
        odd = Message(RecordDict({"other": ConfigRecord({"a": 1})}), reply_to=asked)
        earlier.append(answer)
        return [answer, answer, foreign, odd, earlier[0]]

    grid.alter = alter
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert release.value == in_process_value(federation.home, federation.files, {})
    assert all("0 lost" in line for line in lines[1:6])


@pytest.mark.parametrize("inside", [b"", b"\1", b"\1\xff\xff\xff\xff", b"\7" * 300])
def test_a_message_with_nothing_usable_inside_is_left_out(
    federation: FakeFederation, inside: bytes
) -> None:
    grid = federation.grid()

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.dst_node_id != 5 or asked.metadata.message_type != "query.advertise":
            return [answer]
        invitation = Invitation.from_bytes(unpack(asked).message)
        aggregator = invitation.signed.plan.aggregator
        message = seal(inside, aggregator, invitation.address(Step.ADVERTISE))
        return [Message(pack(Envelope(invitation.round_id, message)), reply_to=asked)]

    grid.alter = alter
    _, lines = federation.run(grid)
    assert "advertise: 7 of 8 answered, 0 refused, 1 lost" in lines[1]


def test_an_answer_of_one_step_or_member_does_not_open_in_another(
    federation: FakeFederation,
) -> None:
    """A relay that swaps two sealed answers, or repeats the last step's, only loses them."""
    grid = federation.grid()
    kept: dict[int, Message] = {}

    def alter(asked: Message, answer: Message) -> list[Message]:
        node = asked.metadata.dst_node_id
        if asked.metadata.message_type == "query.share" and node in (1, 2):
            other = kept.get(3 - node, answer)
            kept[node] = answer
            swapped = pack(Envelope(unpack(asked).round_id, unpack(other).message))
            return [Message(swapped, reply_to=asked)]
        return [answer]

    grid.alter = alter
    _, lines = federation.run(grid)
    assert "share: 7 of 8 answered, 0 refused, 1 lost" in lines[2]


def test_messages_of_a_void_round_are_refused_later(federation: FakeFederation) -> None:
    grid = federation.grid()
    federation.run(grid)
    asked = [message for message in grid.carried if message.metadata.dst_node_id == 1]
    before = dict(grid.contexts[1].state.config_records[SESSION])
    for message, words in ((asked[0], "answered already"), (asked[1], "no session")):
        answer = unpack(grid.deliver(message))
        assert answer.message == b""
        assert words in answer.refusal
    assert dict(grid.contexts[1].state.config_records[SESSION]) == before


def run_until_reveal(federation: FakeFederation, grid: FakeGrid) -> None:
    """A round in which nobody answers the last step: every client still has its session."""
    grid.delay = lambda _, step: math.inf if step is Step.REVEAL else 0.0
    with pytest.raises(ReleaseRefused):
        federation.run(grid)


def test_a_step_is_answered_once_even_from_an_old_memory(federation: FakeFederation) -> None:
    """Flower keeps the state after the answer has left: a crash in between would roll it back."""
    grid = federation.grid()
    kept: dict[str, Any] = {}

    def alter(asked: Message, answer: Message) -> list[Message]:
        node, what = asked.metadata.dst_node_id, asked.metadata.message_type
        if node == 1 and what == "query.echo":
            kept["again"] = asked
        if node == 1 and what == "query.input":
            kept["session"] = ConfigRecord(dict(grid.contexts[1].state.config_records[SESSION]))
        return [answer]

    grid.alter = alter
    run_until_reveal(federation, grid)
    grid.contexts[1].state[SESSION] = kept["session"]  # as before it echoed
    answer = unpack(grid.deliver(kept["again"]))
    assert (answer.message, answer.refusal) == (b"", "this step has been answered already")


def test_an_invitation_to_another_round_reopens_no_step(federation: FakeFederation) -> None:
    """The relay invites elsewhere, the process dies, the old memory is back: still answered."""
    write_plan(federation.home, releases=2)
    grid = federation.grid(most_counts=2)
    kept: dict[str, Any] = {}

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.dst_node_id == 1:
            kept[asked.metadata.message_type] = asked
            if asked.metadata.message_type == "query.input":
                kept["session"] = ConfigRecord(dict(grid.contexts[1].state.config_records[SESSION]))
        return [answer]

    grid.alter = alter
    run_until_reveal(federation, grid)
    echo = kept["query.echo"]
    here = Invitation.from_bytes(unpack(kept["query.advertise"]).message)
    elsewhere = consistent(replace(here, round_id="ab" * 16))
    invited = Message(
        pack(Envelope("ab" * 16, elsewhere.to_bytes())),
        dst_node_id=1,
        message_type="query.advertise",
    )
    assert unpack(grid.deliver(invited)).message != b""
    grid.contexts[1].state[SESSION] = kept["session"]  # as before it echoed
    answer = unpack(grid.deliver(echo))
    assert (answer.message, answer.refusal) == (b"", "this step has been answered already")


def test_a_plan_changed_on_the_way_is_refused_by_everybody(federation: FakeFederation) -> None:
    """A relay that puts its own sealing key into the plan gets no answer at all."""
    mine = SealingKey.generate()
    document = json.loads((federation.home / "plan.json").read_text())
    theirs = document["plan"]["aggregator"]
    grid = federation.grid()
    original = grid.deliver

    def deliver(message: Message) -> Message:
        invitation = unpack(message).message.replace(theirs.encode(), mine.public.encode())
        changed = Message(
            pack(Envelope(unpack(message).round_id, invitation)),
            dst_node_id=message.metadata.dst_node_id,
            message_type=message.metadata.message_type,
        )
        answer = unpack(original(changed))
        assert answer.message == b""
        return Message(pack(answer), reply_to=message)

    grid.deliver = deliver  # type: ignore[method-assign]
    with pytest.raises(ReleaseRefused, match=r"8 clients took no part.*not signed"):
        federation.run(grid)
    assert spent(federation) == 0


def another_plan(federation: FakeFederation, asked: Invitation) -> Invitation:
    """Signed by the same organiser, for a secure sum of the same sizes, with twice the epsilon."""
    return replace(asked, signed=write_plan(federation.home, "other.json", epsilon=2.0))


def other_cells(_: FakeFederation, asked: Invitation) -> Invitation:
    return replace(asked, cells=asked.cells[::-1])


def another_cohort(_: FakeFederation, asked: Invitation) -> Invitation:
    return replace(asked, cohort=asked.cohort + 1)


@pytest.mark.parametrize("swap", [another_plan, other_cells, another_cohort])
@pytest.mark.parametrize("victims", [1, 8])
def test_answers_to_another_invitation_do_not_open(
    federation: FakeFederation,
    swap: Callable[[FakeFederation, Invitation], Invitation],
    victims: int,
) -> None:
    """A relay shows clients something that they accept, but that was not asked."""
    grid = federation.grid()
    original = grid.deliver
    joined: list[bool] = []

    def deliver(message: Message) -> Message:
        asked, node = unpack(message), message.metadata.dst_node_id
        if message.metadata.message_type != "query.advertise" or node > victims:
            return original(message)
        swapped = consistent(swap(federation, Invitation.from_bytes(asked.message)))
        changed = Message(
            pack(Envelope(asked.round_id, swapped.to_bytes())),
            dst_node_id=node,
            message_type=message.metadata.message_type,
        )
        answer = original(changed)
        joined.append(bool(unpack(answer).message) and has_session(grid.contexts[node]))
        return Message(answer.content, reply_to=message)

    grid.deliver = deliver  # type: ignore[method-assign]
    if victims == 8:
        with pytest.raises(ReleaseRefused):
            federation.run(grid)
        assert spent(federation) == 0
    else:
        release, lines = federation.run(grid)
        assert "advertise: 7 of 8 answered, 0 refused, 1 lost" in lines[1]
        assert release.cohorts[0].included == 7
    assert joined == [True] * victims  # nothing else stopped them


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"most_records": 10}, "no room"),
        ({"most_records": 11}, "the plan has no room for as many records"),
    ],
)
def test_sealed_refusals_reach_the_aggregators_folder_and_no_log(
    federation: FakeFederation,
    changes: dict[str, Any],
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log of a run is stored at the relay, and a reason may depend on records."""
    write_plan(federation.home, **changes)
    monkeypatch.setenv("FEDPRIKL_HOME", str(federation.home))
    context = federation.grid().contexts[1]
    context.run_config = {"clients": 8}
    with pytest.raises(ReleaseRefused, match="8 clients took no part") as raised:
        server.app(federation.grid(), context)
    told = "".join(traceback.format_exception(raised.value)) + "".join(capsys.readouterr())
    assert why not in told
    assert "8 of the reasons are in the aggregator's folder" in told
    assert spent(federation) == 0
    (path,) = Home(federation.home).refusals.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    reasons = json.loads(path.read_text())
    assert sorted(reasons) == [str(node) for node in range(1, 9)]
    assert all(why in reason for reason in reasons.values())


def test_a_refusal_is_as_long_as_an_answer(federation: FakeFederation) -> None:
    """Whatever the reason: the length of a sealed message is seen by the relay."""
    grid = federation.grid()
    grid.limit(6, smallest_threshold=50)
    grid.limit(7, smallest_cohort=100)
    _, lines = federation.run(grid)
    assert "advertise: 6 of 8 answered, 2 refused" in lines[1]
    answers = [
        len(unpack(message).message)
        for message in grid.carried
        if message.metadata.message_type == "query.advertise"
        and message.metadata.reply_to_message_id
    ]
    assert len(answers) == 8
    assert len(set(answers)) == 1
    assert all("refused" not in line for line in lines[6:])
    (path,) = Home(federation.home).refusals.iterdir()
    assert sorted(json.loads(path.read_text())) == ["6", "7"]


def test_only_the_same_message_gets_the_same_answer_again(federation: FakeFederation) -> None:
    grid = federation.grid()
    seen: list[str] = []

    def alter(asked: Message, answer: Message) -> list[Message]:
        again, other = unpack(grid.deliver(asked)), unpack(asked)
        assert again == unpack(answer)  # to the byte, though sealing is random
        changed = Message(
            pack(Envelope(other.round_id, other.message + b" ")),
            dst_node_id=asked.metadata.dst_node_id,
            message_type=asked.metadata.message_type,
        )
        different = unpack(grid.deliver(changed))
        assert different.message == b""
        seen.append(different.refusal)
        return [answer]

    grid.alter = alter
    release, _ = federation.run(grid)
    assert release.cohorts[0].included == 8
    assert seen == (
        ["this round has been answered already"] * 8
        + ["this step has been answered already"] * 24
        + ["it has no session in this round"] * 8
    )
