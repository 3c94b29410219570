"""Clients that lie: the round always ends in the same way, and one record never moves more."""

import os
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Client, Invitation, Plan
from fedprikl.protocol.sums import possible_counts
from fedprikl.secure_sum.masking import Ring
from tests.protocol.worlds import InsecureNoNoise, World, budgeted

pytestmark = pytest.mark.slow

TOP, RECORDS, RING = 5, 4, 16  # the largest honest count, the records of the cohort, 2^width
PLACES = 3


def neighbours(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """One record leaves a cell for another, or for one that is not asked; in the ring."""
    found = []
    for losing, gaining in product([None, *range(PLACES)], repeat=2):
        if losing != gaining:
            moved = list(counts)
            if losing is not None:
                moved[losing] = (moved[losing] - 1) % RING
            if gaining is not None:
                moved[gaining] = (moved[gaining] + 1) % RING
            found.append(tuple(moved))
    return found


def substitutions(before: Ints, after: Ints) -> int:
    """How many records have to be replaced to get from one list of counts to the other."""
    moved = after - before
    return int(max(moved[moved > 0].sum(), -moved[moved < 0].sum()))


def possible(counts: tuple[int, ...], records: int = RECORDS) -> Ints:
    return possible_counts(np.array(counts, dtype=np.int64), top=TOP, records=records)


def test_one_record_moves_possible_counts_like_one_record() -> None:
    """Over all sums and all neighbours: by at most two where a liar went beyond the ring's half."""
    lied = 0
    for counts in product(range(RING), repeat=PLACES):
        here = possible(counts)
        assert here.min() >= 0
        assert here.sum() <= RECORDS
        for other in neighbours(counts):
            honest = max(*counts, *other) <= TOP
            moved = substitutions(here, possible(other))
            assert moved <= (1 if honest else 2)
            lied += moved == 2
    assert lied > 0  # the weaker bound is needed, and so is the room of the ring


def test_counts_that_are_possible_stay_as_they_are() -> None:
    for counts in product(range(TOP + 1), repeat=PLACES):
        if sum(counts) <= RECORDS:
            assert possible(counts).tolist() == list(counts)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=8), st.integers(1, 2**30), st.data())
def test_large_counts_are_made_possible_too(
    counts: list[int], records: int, data: st.DataObject
) -> None:
    top = data.draw(st.integers(records, 2**39))
    found = possible_counts(np.array(counts), top=top, records=records)
    assert found.min() >= 0
    assert found.sum() <= records


def test_the_ring_has_room_for_folding() -> None:
    """Twice the largest honest sum fits, so that folded counts are 0 again where it wraps."""
    world = World.make(clients=9)
    this = world.run(world.plan(cohort=9, most_records=100)).round
    sums = this.cohorts[0].sums
    widths = Ring(sums.maxima, sums.clients).widths
    assert all(2 ** int(width) >= 2 * 100 * 9 for width in widths[:-1])


class Shifted(Client):
    """Adds a number to the first count, around the ring; its masks hide that it did."""

    by: ClassVar[int] = 0

    def _vector(self, invitation: Invitation) -> Ints:
        vector = super()._vector(invitation)
        vector[0] += self.by
        return vector


def shifted_by(amount: int) -> type[Shifted]:
    return type("Liar", (Shifted,), {"by": amount})


def with_liar(world: World, kind: type[Client], **options: object) -> dict[str, Client]:
    clients = world.clients(InsecureNoNoise())
    clients["c0"] = kind(
        world.held[0],
        world.reference,
        policy=world.policy,
        randomness=lambda n: b"x" * n,
        **options,  # type: ignore[arg-type]
    )
    return clients


@pytest.mark.parametrize("amount", [1, 50, 1_000, 10_000, 10**6])
def test_a_sum_that_cannot_be_right_is_released_all_the_same(amount: int, tmp_path: Path) -> None:
    """Whether there is a release, who is in it and what is charged does not depend on any sum."""
    world = World.make()
    clients = with_liar(world, shifted_by(amount))
    with budgeted(tmp_path / "ledger.db") as ledger:
        result = world.run(world.plan(), clients=clients, ledger=ledger)
        assert ledger.account("testers").spent == pytest.approx(1.0, abs=1e-6)
    assert [outcome.reason for outcome in result.release.cohorts] == ["", "", ""]
    assert sum(outcome.included for outcome in result.release.cohorts) == 24


def test_a_liar_at_the_edge_is_no_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The liar takes off the others' count, and the sum wraps or not by one record of another.

    Before noise, neighbours differ by no more than two records may; they would differ by the
    whole range if an entry that wrapped were simply cut off.
    """
    world = World.make(clients=9)
    plan = world.plan(cohort=9, points=12)
    cell = 0
    monkeypatch.setattr("fedprikl.secure_sum.sum_client.SumClient._check_values", lambda _, v: v)
    values = []
    for moved in (0, 1):
        held = world.held.copy()
        held[3, cell] -= moved
        held[3, -1] += moved
        there = World(held, world.reference, world.key)
        taken = -int(world.held[:, cell].sum())  # the sum of the cell becomes 0, or wraps
        result = there.run(
            plan, clients=with_liar(there, shifted_by(taken)), source=InsecureNoNoise()
        )
        values.append(result.release.value)
    sensitivity = result.release.privacy.sensitivity
    assert sensitivity is not None
    assert abs(values[0] - values[1]) <= 2 * sensitivity


def test_insecure_noise_of_one_client_marks_the_release() -> None:
    """Its share is known to whoever knows the seed, so the release must not claim to be proved."""
    world = World.make(clients=12)
    plan = world.plan(trust="none", cohort=12)
    honest = world.run(plan).release.privacy
    assert not honest.insecure
    assert honest.holds
    clients = world.clients()
    clients["c7"] = Client(
        world.held[7],
        world.reference,
        policy=world.policy,
        randomness=lambda n: b"x" * n,
        source=InsecureNoNoise(),
    )
    marked = world.run(plan, clients=clients).release.privacy
    assert marked.insecure
    assert not marked.holds
    assert str(marked).startswith("INSECURE")


def test_nobody_takes_the_mark_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A liar that sends one less than nothing would cancel a mark of 1."""
    monkeypatch.setattr("fedprikl.secure_sum.sum_client.SumClient._check_values", lambda _, v: v)
    world = World.make(clients=12)
    plan = world.plan(trust="none", cohort=12)
    clients = world.clients()
    clients["c7"] = Client(
        world.held[7],
        world.reference,
        policy=world.policy,
        randomness=os.urandom,
        source=InsecureNoNoise(),
    )
    clients["c3"] = Unmarking(
        world.held[3], world.reference, policy=world.policy, randomness=os.urandom
    )
    assert world.run(plan, clients=clients).release.privacy.insecure


class Unmarking(Client):
    """Takes 1 off the entry that marks insecure noise."""

    def _vector(self, invitation: Invitation) -> Ints:
        vector = super()._vector(invitation)
        vector[-1] -= 1
        return vector


def test_a_plan_that_the_ledger_cannot_charge_is_refused() -> None:
    """The true epsilon of the paper's noise is known only once the sums are open: too late."""
    document = World.make().plan().to_dict() | {"trust": "paper"}
    with pytest.raises(InvalidInputError, match="one of 'aggregator', 'none'"):
        Plan.from_dict(document)
