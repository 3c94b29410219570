"""A lying ServerApp with the aggregator's own keys, against the real handlers of the sites.

It asks one site for the real cells and all others for cells that nobody holds, or for a period in
which nobody has a record. The masks would cancel, and the sum would be that site's counts.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from deploy.small_world import write_plan, write_roster
from flwr.app import Message

from fedprikl.checks import Ints
from fedprikl.deployment.flower.client import pack, unpack
from fedprikl.deployment.settings import Home
from fedprikl.deployment.site import Envelope
from fedprikl.errors import SecureSumError
from fedprikl.protocol import (
    Invitation,
    Round,
    SealingKey,
    Series,
    Server,
    SignedPlan,
    SigningKey,
    Step,
)
from fedprikl.protocol.keys import ANSWER, unpadded
from fedprikl.records import open_records
from fedprikl.reference import Reference
from fedprikl.secure_sum import SumAggregator
from tests.deployment.fake_grid import FakeFederation, FakeGrid
from tests.protocol.worlds import consistent

pytestmark = pytest.mark.slow

VICTIM = 1
POINTS = 4
Lie = Callable[[Invitation], Invitation]


def prepare(federation: FakeFederation, *, roster: bool) -> Round:
    """The others hold one kind of record only, so that nobody has anything in most cells."""
    for number, file in enumerate(federation.files, start=1):
        if number != VICTIM:
            file.write_text("age,plan\n" + "46.0,basic\n" * 60)
    named = write_roster(federation.home, federation.files).fingerprint if roster else ""
    write_plan(federation.home, points=POINTS, roster=named)
    nodes = [str(number) for number in range(1, len(federation.files) + 1)]
    identities = {
        node: bytes.fromhex(SigningKey.load(file.with_suffix(".pem")).public)
        for node, file in zip(nodes, federation.files, strict=True)
        if roster
    }
    reference = Reference.load(Home(federation.home).reference)
    server = Server(SignedPlan.load(federation.home / "plan.json"), reference)
    return server.open_round(
        nodes,
        rng=np.random.default_rng(5),
        randomness=lambda size: b"r" * size,
        identities=identities,
    )


def held(federation: FakeFederation, number: int) -> Ints:
    reference = Reference.load(Home(federation.home).reference)
    return open_records(federation.files[number - 1]).count(reference).counts


def nobodys(federation: FakeFederation, asked: Invitation) -> tuple[int, ...]:
    """As many other cells of the reference, in which none of the others has a record."""
    reference = Reference.load(Home(federation.home).reference)
    other = held(federation, VICTIM + 1)
    cells = [
        cell
        for cell in np.flatnonzero(reference.whole.mass).tolist()
        if other[cell] == 0 and cell not in asked.cells
    ]
    assert len(cells) >= POINTS
    return tuple(cells[:POINTS])


class Attacker:
    """Holds the sealing key; speaks to each site as the relay would let it."""

    def __init__(self, federation: FakeFederation, grid: FakeGrid) -> None:
        self._grid = grid
        self._key = SealingKey.load(Home(federation.home).sealing_key)

    def ask(self, node: int, step: Step, invitation: Invitation, message: bytes) -> bytes | None:
        """What the site answers, opened; None if it refuses."""
        question = Message(
            pack(Envelope(invitation.round_id, message)),
            dst_node_id=node,
            message_type=f"query.{step}",
        )
        answer = unpack(self._grid.deliver(question)).message
        if not answer:
            return None
        kind, content = unpadded(self._key.open(answer, invitation.address(step)))
        return content if kind == ANSWER else None

    def open_sum(self, current: Round, lie: Lie) -> Ints | None:
        """The sum of the cohort, if it opens."""
        cohort = current.cohorts[0]
        asked = {i: Invitation.to_member(current, cohort, i) for i in range(len(cohort.members))}
        asked = {i: a if cohort.members[i] == str(VICTIM) else lie(a) for i, a in asked.items()}
        sums = SumAggregator(cohort.sums)
        messages = {i: invitation.to_bytes() for i, invitation in asked.items()}
        ends = (sums.send_keys, sums.send_shares, sums.send_survivors, sums.send_echoes, None)
        try:
            for step, end in zip(Step, ends, strict=True):
                for i, message in messages.items():
                    answer = self.ask(int(cohort.members[i]), step, asked[i], message)
                    if answer is not None:
                        with suppress(SecureSumError):
                            sums.receive(i, answer)
                messages = {} if end is None else end()
            return sums.unmask().total
        except SecureSumError:
            return None


@pytest.mark.parametrize("roster", [False, True])
@pytest.mark.parametrize("fitting", [False, True])
def test_one_site_among_others_who_are_asked_for_nothing_is_not_opened(
    federation: FakeFederation, fitting: bool, roster: bool
) -> None:
    """With the victim's sum the others refuse; with one that fits they are foreign to it."""
    current = prepare(federation, roster=roster)

    def lie(asked: Invitation) -> Invitation:
        other = replace(asked, cells=nobodys(federation, asked))
        return consistent(other) if fitting else other

    assert Attacker(federation, federation.grid()).open_sum(current, lie) is None


@pytest.mark.parametrize("roster", [False, True])
def test_that_attack_opens_the_sites_counts_if_sums_are_not_bound(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, roster: bool
) -> None:
    current = prepare(federation, roster=roster)
    monkeypatch.setattr("fedprikl.protocol.client._fits_the_plan", lambda _: True)
    opened = Attacker(federation, federation.grid()).open_sum(
        current, lambda asked: replace(asked, cells=nobodys(federation, asked))
    )
    assert opened is not None
    own = held(federation, VICTIM)[current.cohorts[0].cells]
    assert own.sum() > 0
    assert opened[:-1].tolist() == own.tolist()


def test_the_same_attacker_opens_an_honest_round(federation: FakeFederation) -> None:
    current = prepare(federation, roster=False)
    opened = Attacker(federation, federation.grid()).open_sum(current, lambda asked: asked)
    assert opened is not None
    assert opened[-1] == 60 * len(federation.files)


def more_cells(asked: Invitation) -> Invitation:
    return replace(asked, cells=(*asked.cells, *(c for c in range(8) if c not in asked.cells)))


def a_later_batch(asked: Invitation) -> Invitation:
    return replace(asked, batch=99)


@pytest.mark.parametrize("lie", [more_cells, a_later_batch])
def test_no_site_counts_more_than_the_plan_asks(federation: FakeFederation, lie: Lie) -> None:
    current = prepare(federation, roster=False)
    attacker = Attacker(federation, federation.grid())
    for index, name in enumerate(current.cohorts[0].members):
        asked = consistent(lie(Invitation.to_member(current, current.cohorts[0], index)))
        assert attacker.ask(int(name), Step.ADVERTISE, asked, asked.to_bytes()) is None


# A series: one site is asked for its records, all others for a period without any


def prepare_series(federation: FakeFederation) -> Round:
    """All records are of the first day."""
    first = datetime.now(UTC).date() - timedelta(days=3)
    for file in federation.files:
        header, *rows = file.read_text().splitlines()
        lines = [f"{header},at", *(f"{row},{first}T12:00" for row in rows)]
        file.write_text("\n".join(lines) + "\n")
    series = Series(every="day", first=first.isoformat(), periods=3, time_column="at")
    signed = write_plan(federation.home, when=series)
    return Server(signed, Reference.load(Home(federation.home).reference)).open_round(
        [str(number) for number in range(1, len(federation.files) + 1)],
        rng=np.random.default_rng(5),
        randomness=lambda size: b"r" * size,
        period=0,
    )


@pytest.mark.parametrize("fitting", [False, True])
def test_one_site_among_others_of_another_period_is_not_opened(
    federation: FakeFederation, fitting: bool
) -> None:
    current = prepare_series(federation)

    def lie(asked: Invitation) -> Invitation:
        other = replace(asked, period=1)
        return consistent(other) if fitting else other

    assert Attacker(federation, federation.grid()).open_sum(current, lie) is None


def test_that_attack_opens_the_sites_records_if_sums_are_not_bound(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = prepare_series(federation)
    monkeypatch.setattr("fedprikl.protocol.client._fits_the_plan", lambda _: True)
    opened = Attacker(federation, federation.grid()).open_sum(
        current, lambda asked: replace(asked, period=1)
    )
    assert opened is not None
    own = held(federation, VICTIM)[current.cohorts[0].cells]
    assert opened[: len(own)].tolist() == own.tolist()
    assert opened[-1] == 60


def test_the_same_attacker_opens_an_honest_period(federation: FakeFederation) -> None:
    current = prepare_series(federation)
    opened = Attacker(federation, federation.grid()).open_sum(current, lambda asked: asked)
    assert opened is not None
    assert opened[-1] == 60 * len(federation.files)
