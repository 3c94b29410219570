"""A server that asks the members of one sum for different things: what it can and cannot open.

The roles are the real ones; only the server's side is played by the attacker.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from fedprikl.checks import Ints
from fedprikl.errors import PolicyRefusal, SecureSumError
from fedprikl.protocol import Client, ClientSession, Invitation, Round, Server, SignedPlan, Step
from fedprikl.secure_sum import SumAggregator
from tests.protocol.worlds import AT, World, consistent

WORLD = World.make(clients=9)
VICTIM = 0
Ask = Callable[[Invitation], Invitation]


def open_round(**plan: object) -> Round:
    signed = SignedPlan.sign(WORLD.plan(cohort=9, **plan), WORLD.key)
    rng = np.random.default_rng(5)
    return Server(signed, WORLD.reference).open_round(
        WORLD.names(), rng=rng, randomness=lambda n: b"r" * n
    )


def unheld(asked: Invitation) -> tuple[int, ...]:
    """Cells that nobody of the others holds: all of them emptied for this attack."""
    return tuple(cell for cell in range(12) if cell not in asked.cells)


def run_attack(current: Round, others: Ask) -> Ints | None:
    """The victim is asked for the real cells, all others for something else; the opened sum.

    The others hold nothing in the cells that they are asked for, so that a sum would be the
    victim's own counts.
    """
    cohort = current.cohorts[0]
    sessions: dict[int, ClientSession] = {}
    for index, name in enumerate(cohort.members):
        asked = Invitation.to_member(current, cohort, index)
        held = WORLD.held[int(name[1:])].copy()
        if index != VICTIM:
            asked = others(asked)
            held[list(asked.cells)] = 0
        client = Client(
            held,
            WORLD.reference,
            policy=WORLD.policy,
            randomness=lambda n: bytes([index]) * n,  # noqa: B023
        )
        with suppress(PolicyRefusal):
            sessions[index] = client.join(asked.to_bytes(), at=AT)
    sums = SumAggregator(cohort.sums)
    messages = dict.fromkeys(sessions, b"")
    ends = (sums.send_keys, sums.send_shares, sums.send_survivors, sums.send_echoes)
    try:
        for step, end in zip(Step, (*ends, None), strict=True):
            for index, message in messages.items():
                with suppress(SecureSumError):
                    sums.receive(index, sessions[index].answer(step, message))
            if end is not None:
                messages = end()
        return sums.unmask().total
    except SecureSumError:
        return None


def honest_total(current: Round) -> list[int]:
    name = current.cohorts[0].members[VICTIM]
    return WORLD.held[int(name[1:])][current.cohorts[0].cells].tolist()  # type: ignore[no-any-return]


def other_cells(asked: Invitation) -> Invitation:
    return replace(asked, cells=unheld(asked))


def another_batch(asked: Invitation) -> Invitation:
    return replace(asked, batch=1)


def another_cohort(asked: Invitation) -> Invitation:
    return replace(asked, cohort=1)


def another_plan(asked: Invitation) -> Invitation:
    weaker = asked.signed.plan.changed(epsilon=1.5)
    return replace(asked, signed=SignedPlan.sign(weaker, WORLD.key))


@pytest.mark.parametrize("lie", [other_cells, another_batch, another_cohort, another_plan])
@pytest.mark.parametrize("fitting", [True, False])
def test_members_who_are_asked_different_things_do_not_add_up(lie: Ask, fitting: bool) -> None:
    """With the victim's sum the others refuse; with a sum of their own they are foreign to it."""
    current = open_round(batches=1)
    assert run_attack(current, (lambda a: consistent(lie(a))) if fitting else lie) is None


def test_the_attack_works_on_sums_that_are_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The companion: if the nonce said nothing about the cells, the victim's counts would open."""
    current = open_round()
    monkeypatch.setattr("fedprikl.protocol.client._fits_the_plan", lambda _: True)
    opened = run_attack(current, other_cells)
    assert opened is not None
    assert opened[:-1].tolist() == honest_total(current)


def test_an_honest_server_opens_the_sum() -> None:
    current = open_round()
    assert run_attack(current, lambda asked: asked) is not None
