"""What every role receives in a full round, byte by byte, and what cannot be found in it."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from fedprikl.checks import Ints
from fedprikl.estimation import weighted_score
from fedprikl.protocol import (
    Client,
    ClientSession,
    InMemoryTransport,
    Invitation,
    Reply,
    Server,
    Step,
    trust_of,
)
from fedprikl.secure_sum import SumAggregator
from tests.protocol.worlds import World


class Views:
    """Every message each party receives."""

    def __init__(self) -> None:
        self.server: list[bytes] = []
        self.aggregator: list[bytes] = []
        self.clients: dict[str, list[bytes]] = {}


def recorded_round(monkeypatch: pytest.MonkeyPatch, world: World, plan: Any) -> tuple[Views, Any]:
    views = Views()

    def note(kind: type, name: str, keep: Callable[[Any, Any], None]) -> None:
        original = getattr(kind, name)

        def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
            keep(self, arguments[-1])
            return original(self, *arguments, **named)

        monkeypatch.setattr(kind, name, wrapped)

    exchange = InMemoryTransport.exchange

    def carried(
        self: InMemoryTransport, step: Step, messages: Mapping[str, bytes], enough: Any
    ) -> Iterator[Reply]:
        for name, message in messages.items():
            views.clients.setdefault(name, []).append(message)
        return exchange(self, step, messages, enough)

    monkeypatch.setattr(InMemoryTransport, "exchange", carried)
    note(SumAggregator, "receive", lambda _, data: views.aggregator.append(data))
    note(Server, "accept", lambda _, data: views.server.append(data))
    return views, world.run(plan)


def encodings(vector: Ints) -> list[bytes]:
    """A run of counts in the ways it could stand in a message."""
    run = [int(x) for x in vector]
    return [
        np.array(run, dtype=kind).tobytes() for kind in ("<i8", ">i8", "<i4", ">i4", "<u4", ">u4")
    ] + [json.dumps(run).encode(), json.dumps(run, separators=(",", ":")).encode()[1:-1]]


def contains(messages: list[bytes], vector: Ints) -> bool:
    everything = b"\x00\xff".join(messages)
    return any(text in everything for text in encodings(vector))


def distinctive_world() -> World:
    """Counts of six digits, so that finding three in a row by chance is out of the question."""
    world = World.make(clients=9)
    world.held = np.random.default_rng(8).integers(100_000, 900_000, world.held.shape)
    return world


def asked(world: World, result: Any) -> Ints:
    return np.array([world.held[i][result.round.points.cells] for i in range(len(world.held))])


def test_no_role_sees_what_it_must_not(monkeypatch: pytest.MonkeyPatch) -> None:
    world = distinctive_world()
    plan = world.plan(most_records=10**8, cohort=9)
    views, result = recorded_round(monkeypatch, world, plan)
    counts = asked(world, result)
    sums = counts.sum(axis=0)
    exact = weighted_score(world.plain_counts(result, set()), trust_of(plan).score)

    assert len(set(views.server)) == 1  # the release and nothing else
    assert not contains(views.server, sums[:3])
    assert repr(exact).encode() not in views.server[0]
    assert result.release.value != exact

    assert len(views.aggregator) == 5 * 9
    for own in counts:
        assert not contains(views.aggregator, own[:3])

    for index, name in enumerate(world.names()):
        received = views.clients[name]
        assert len(received) == len(Step)
        for other in range(9):
            if other != index:
                assert not contains(received, counts[other][:3])
        assert not contains(received, sums[:3])


class Careless(Client):
    """Sends its counts in the open beside the masked ones."""

    def join(self, message: bytes, *, at: str) -> ClientSession:
        session = super().join(message, at=at)
        honest = session.answer

        def answer(step: Step, message: bytes) -> bytes:
            counts = session._vector.astype("<i8").tobytes() if step is Step.INPUT else b""
            return honest(step, message) + counts

        session.answer = answer  # type: ignore[method-assign]
        return session


def test_that_check_would_catch_counts_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    world = distinctive_world()
    clients = world.clients()
    careless = Careless(
        world.held[0], world.reference, policy=world.policy, randomness=lambda n: bytes(range(n))
    )
    clients["c0"] = careless
    seen: list[bytes] = []
    original = SumAggregator.receive

    def spy(self: SumAggregator, sender: int, data: bytes) -> None:
        seen.append(data)
        original(self, sender, data)

    monkeypatch.setattr(SumAggregator, "receive", spy)
    plan = world.plan(most_records=10**8, cohort=9)
    result = world.run(plan, clients=clients)  # the message is rejected, but it has been seen
    assert contains(seen, asked(world, result)[0][:3])


def test_masked_inputs_of_equal_counts_are_all_different(monkeypatch: pytest.MonkeyPatch) -> None:
    world = distinctive_world()
    world.held[:] = world.held[0]
    views, _ = recorded_round(monkeypatch, world, world.plan(most_records=10**8, cohort=9))
    long = [data for data in views.aggregator if len(data) > 20]
    assert len(set(long)) == len(long)


def test_the_invitation_is_the_same_for_all_but_the_number() -> None:
    world = World.make(clients=9)
    current = world.run(world.plan(cohort=9)).round
    first, second = (
        json.loads(Invitation.to_member(current, current.cohorts[0], i).to_bytes()) for i in (0, 1)
    )
    assert first.pop("index") != second.pop("index")
    assert first == second
