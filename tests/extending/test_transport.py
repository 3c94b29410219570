"""A third transport, in one file: a whole round over queues, every client in a thread."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl.errors import SecureSumError
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol import (
    Client,
    ClientSession,
    Policy,
    RoundResult,
    Server,
    SignedPlan,
    Step,
    StepCount,
    Transport,
    run_round,
)
from fedprikl.secure_sum import Leaves
from tests.extending.page import blocks, module
from tests.protocol.worlds import AT, World

pytestmark = pytest.mark.slow

WORLD = World.make(clients=12)
LAST = {Step.INPUT: Leaves.BEFORE_INPUT, Step.REVEAL: Leaves.BEFORE_UNMASK}


class Vanishing(Client):
    """Says nothing any more when it comes to one step."""

    step = Step.INPUT

    def join(self, message: bytes, *, at: str) -> ClientSession:
        session = super().join(message, at=at)
        honest = session.answer

        def answer(step: Step, message: bytes) -> bytes:
            if step is self.step:
                raise SecureSumError("gone")
            return honest(step, message)

        session.answer = answer  # type: ignore[method-assign]
        return session


class Slow(Client):
    """Answers the adverts in time, and thinks about everything else until it may go on."""

    go_on: threading.Event

    def join(self, message: bytes, *, at: str) -> ClientSession:
        session = super().join(message, at=at)
        honest = session.answer

        def answer(step: Step, message: bytes) -> bytes:
            if step is not Step.ADVERTISE:
                self.go_on.wait(60.0)
            return honest(step, message)

        session.answer = answer  # type: ignore[method-assign]
        return session


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def members(gone: Step | None = None) -> dict[str, Client]:
    clients = WORLD.clients()
    if gone is not None:
        silent = Vanishing(
            WORLD.held[5], WORLD.reference, policy=WORLD.policy, randomness=os.urandom
        )
        silent.step = gone
        clients["c5"] = silent
    return clients


def release_over(
    clients: dict[str, Client], transport: Transport | None, **more: Any
) -> RoundResult:
    plan = WORLD.plan(cohort=6, dropout=0.2)
    return run_round(
        Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference),
        clients,
        key=WORLD.key,
        ledger=None,
        software="test",
        at=AT,
        rng=np.random.default_rng(3),
        source=InsecureSeededNoise(4),
        transport=transport,
        **more,
    )


@pytest.mark.parametrize("gone", [None, Step.INPUT, Step.REVEAL])
def test_a_round_over_a_queue_is_the_round_in_memory(tmp_path: Path, gone: Step | None) -> None:
    """To the last digit, also if a client vanishes on the way."""
    made = module("A transport", tmp_path, name="queue_transport")
    clients, steps = members(gone), list[StepCount]()
    over = made.QueueTransport(clients, AT, timeout=60.0, grace=60.0 if gone is None else 4.0)
    found = release_over(clients, over, report=steps.append)
    leaves = {} if gone is None else {"c5": LAST[gone]}
    expected = release_over(members(), None, leaves=leaves)
    assert found.release.value == expected.release.value
    assert found.release.cohorts == expected.release.cohorts
    assert [count.step for count in steps] == list(Step)
    assert {count.step for count in steps if count.lost} == ({gone} if gone else set())


def test_a_refusal_travels_over_the_queue(tmp_path: Path) -> None:
    made = module("A transport", tmp_path, name="queue_transport")
    clients = members()
    clients["c7"] = Client(
        WORLD.held[7], WORLD.reference, policy=Policy(largest_epsilon=0.1), randomness=os.urandom
    )
    found = release_over(clients, made.QueueTransport(clients, AT, timeout=60.0, grace=60.0))
    assert list(found.refusals) == ["c7"]
    assert sum(outcome.included for outcome in found.release.cohorts) == 11


def test_one_slow_client_costs_the_others_nothing(tmp_path: Path, go_on: threading.Event) -> None:
    """The first to be asked answers too late: it is left out, and everybody else is counted."""
    made = module("A transport", tmp_path, name="queue_transport")
    clients, steps = members(), list[StepCount]()
    slow = Slow(WORLD.held[0], WORLD.reference, policy=WORLD.policy, randomness=os.urandom)
    slow.go_on = go_on
    clients["c0"] = slow
    over = made.QueueTransport(clients, AT, timeout=60.0, grace=4.0)
    found = release_over(clients, over, report=steps.append)
    assert sum(outcome.included for outcome in found.release.cohorts) == 11
    assert {count.step: count.lost for count in steps if count.lost} == {Step.SHARE: 1}


def test_a_late_reply_is_not_one_of_the_next_step(tmp_path: Path, go_on: threading.Event) -> None:
    made = module("A transport", tmp_path, name="queue_transport")

    class Session:
        def answer(self, step: Step, message: bytes) -> bytes:
            if step is Step.SHARE:
                go_on.wait(60.0)
            return message

    over = made.QueueTransport({}, AT, timeout=0.05, grace=0.05)
    over.sessions["c0"] = Session()
    before = set(threading.enumerate())
    assert list(over.exchange(Step.SHARE, {"c0": b"share"}, lambda: False)) == []
    (late,) = set(threading.enumerate()) - before
    go_on.set()
    late.join(60.0)
    (reply,) = over.exchange(Step.INPUT, {"c0": b"input"}, lambda: False)
    assert reply.message == b"input"


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile("\n".join(blocks("A transport")), "docs/extending.md", "exec"), {})
    assert "included=5" in capsys.readouterr().out


def test_the_transport_is_one_short_file() -> None:
    assert len(blocks("A transport")[0].splitlines()) <= 40
