"""A third transport, in one file: a whole round over a queue between two threads."""

import os
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
    over = made.QueueTransport(clients, AT, timeout=60.0, grace=2.0)
    found = release_over(clients, over, report=steps.append)
    leaves = {} if gone is None else {"c5": LAST[gone]}
    expected = release_over(members(), None, leaves=leaves)
    assert found.release.value == expected.release.value
    assert found.outcomes == expected.outcomes
    assert [count.step for count in steps] == list(Step)
    assert {count.step for count in steps if count.lost} == ({gone} if gone else set())


def test_a_refusal_travels_over_the_queue(tmp_path: Path) -> None:
    made = module("A transport", tmp_path, name="queue_transport")
    clients = members()
    clients["c7"] = Client(
        WORLD.held[7], WORLD.reference, policy=Policy(largest_epsilon=0.1), randomness=os.urandom
    )
    found = release_over(clients, made.QueueTransport(clients, AT, timeout=60.0, grace=2.0))
    assert list(found.refusals) == ["c7"]
    assert sum(outcome.included for outcome in found.outcomes) == 11


def test_the_transport_is_one_short_file() -> None:
    (block,) = blocks("A transport")
    assert len(block.splitlines()) <= 50
