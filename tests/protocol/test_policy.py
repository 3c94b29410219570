"""A client guards itself: what it refuses, and that nothing is sent then."""

import json
import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fedprikl import InvalidInputError, Reference
from fedprikl.errors import PolicyRefusal, WrongStepError
from fedprikl.protocol import Client, Invitation, Policy, SignedPlan, SigningKey, Step
from tests.protocol.worlds import AT, World, consistent

WORLD = World.make(clients=9)


def invitation(**plan: Any) -> Invitation:
    this = WORLD.run(WORLD.plan(cohort=9, **plan)).round
    return Invitation.to_member(this, this.cohorts[0], 0)


def client(policy: Policy | None = None, reference: Reference | None = None) -> Client:
    return Client(WORLD.held[0], reference or WORLD.reference, policy=policy, randomness=os.urandom)


def test_a_sound_invitation_is_taken_once() -> None:
    who, message = client(), invitation().to_bytes()
    session = who.join(message, at=AT)
    assert len(session.answer(Step.ADVERTISE, message)) > 0
    with pytest.raises(PolicyRefusal, match="answered already"):
        who.join(message, at=AT)
    assert "1 rounds joined" in repr(who)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(largest_epsilon=0.5), r"epsilon 1 exceeds the limit 0.5 \(largest-epsilon\)"),
        (Policy(largest_delta=1e-9), r"takes no part: delta 1e-06 exceeds .* \(largest-delta\)"),
        (Policy(most_points=5), "6 counts are asked, at most 5"),
        (Policy(smallest_cohort=100), "is too small"),
        (Policy(smallest_threshold=50), "is too small"),
        (
            Policy(organisers=frozenset({SigningKey.generate().public})),
            "not signed by an organiser",
        ),
        (Policy(trusts=frozenset({"none"})), "no part in a round with trust 'aggregator'"),
    ],
)
def test_a_policy_is_kept(policy: Policy, words: str) -> None:
    who = client(policy)
    with pytest.raises(PolicyRefusal, match=words):
        who.join(invitation().to_bytes(), at=AT)
    assert "0 rounds joined" in repr(who)


@pytest.mark.parametrize("points", [6, 1])
def test_as_many_counts_as_a_policy_allows_are_answered(points: int) -> None:
    client(Policy(most_points=points)).join(invitation(points=points).to_bytes(), at=AT)


def test_a_plan_of_the_trusted_organiser_is_taken() -> None:
    client(Policy(organisers=frozenset({WORLD.key.public, 64 * "a"}))).join(
        invitation().to_bytes(), at=AT
    )


def test_a_plan_changed_on_the_way_is_refused() -> None:
    asked = invitation()
    weaker = SignedPlan(
        asked.signed.plan.changed(epsilon=2.0), asked.signed.signer, asked.signed.signature
    )
    with pytest.raises(PolicyRefusal, match="not signed"):
        client(Policy(organisers=frozenset({WORLD.key.public, 64 * "a"}))).join(
            replace(asked, signed=weaker).to_bytes(), at=AT
        )


def test_points_are_checked() -> None:
    asked = invitation()
    twice = replace(asked, cells=(asked.cells[0], *asked.cells[:-1]))
    outside = replace(asked, cells=(*asked.cells[:-1], 999))
    never = replace(asked, cells=(*asked.cells[:-1], WORLD.reference.domain.other))
    size = WORLD.reference.domain.size
    for changed, words in (
        (twice, "asked twice"),
        (outside, "not a cell"),
        (replace(asked, cells=(*asked.cells[:-1], size)), "not a cell"),
        (never, "not a cell"),
        (replace(asked, cells=asked.cells[:-1]), "other points or batches"),
        (replace(asked, cells=(*asked.cells, *range(size - 1))), "other points or batches"),
        (replace(asked, batch=1), "other points or batches"),
        (replace(asked, batch=99), "other points or batches"),
        (replace(asked, cells=()), "other points or batches"),
        (replace(asked, cells=asked.cells[::-1]), "does not fit the plan"),
        (replace(asked, cohort=7), "does not fit the plan"),
        (replace(asked, round_id="00" * 16), "does not fit the plan"),
    ):
        with pytest.raises(PolicyRefusal, match=words):
            client().join(changed.to_bytes(), at=AT)
        if words != "does not fit the plan":  # no sum makes it right
            with pytest.raises(PolicyRefusal, match=words):
                client().join(as_if_it_followed(changed).to_bytes(), at=AT)


@pytest.mark.parametrize("cell", [-1, 2**63, 10**400])
def test_points_that_no_domain_has_cannot_be_read(cell: int) -> None:
    asked = invitation()
    with pytest.raises(InvalidInputError, match="'cells' must be a whole number"):
        client().join(replace(asked, cells=(*asked.cells[:-1], cell)).to_bytes(), at=AT)


def as_if_it_followed(asked: Invitation) -> Invitation:
    """A liar computes the sum for whatever it asks."""
    return consistent(asked) if asked.cells else asked


def test_cells_may_have_any_mass_above_zero() -> None:
    """Also of a reference that was given as probabilities: all of them are below 1."""
    pi = WORLD.reference.probabilities[:-1]
    reference = Reference.from_probabilities(pi)
    asked = invitation()
    plan = replace(asked.signed.plan, reference=reference.fingerprint)
    same = consistent(replace(asked, signed=SignedPlan(plan)))
    client(reference=reference).join(same.to_bytes(), at=AT)


@pytest.mark.parametrize(
    ("changes", "at", "words"),
    [
        ({"valid_until": "2030-01-31T11:59:59+00:00"}, AT, "expired"),
        ({"valid_from": "2030-01-31T13:00:01+01:00"}, AT, "not valid yet"),
        ({"valid_from": "2030-01-01T00:00:00+00:00"}, AT, "for ever"),
        ({"valid_until": "2030-02-01T00:00:00+00:00"}, AT, "for ever"),
        (
            {
                "valid_from": "2029-01-01T00:00:00+00:00",
                "valid_until": "2030-02-02T00:00:00+00:00",
            },
            AT,
            "more than 30 days",
        ),
    ],
)
def test_plans_end(changes: dict[str, str], at: str, words: str) -> None:
    asked = invitation()
    plan = asked.signed.plan.changed(**changes)
    changed = consistent(replace(asked, signed=SignedPlan(plan)))
    with pytest.raises(PolicyRefusal, match=words):
        client(Policy(longest_validity=timedelta(days=30))).join(changed.to_bytes(), at=at)


def test_a_newer_plan_replaces_the_older_ones() -> None:
    """Of the same organiser for the same population; others have serial numbers of their own."""

    def plan(serial: int, key: SigningKey = WORLD.key, population: str = "testers") -> bytes:
        asked = invitation()
        changed = asked.signed.plan.changed(serial=serial, population=population)
        return consistent(replace(asked, signed=SignedPlan.sign(changed, key))).to_bytes()

    who = client()
    who.join(plan(7), at=AT)
    who.join(plan(7), at=AT)
    for older in (6, 0):
        with pytest.raises(PolicyRefusal, match="replaced this plan by a newer one"):
            who.join(plan(older), at=AT)
    who.join(plan(1, SigningKey.generate()), at=AT)
    who.join(plan(2, population="others"), at=AT)
    who.join(plan(8), at=AT)
    with pytest.raises(PolicyRefusal, match="newer one"):
        who.join(plan(7), at=AT)


def test_a_refused_plan_replaces_nothing() -> None:
    asked = invitation()
    who = client()
    greedy = asked.signed.plan.changed(serial=9, epsilon=5.0)
    with pytest.raises(PolicyRefusal, match="exceed"):
        who.join(consistent(replace(asked, signed=SignedPlan(greedy))).to_bytes(), at=AT)
    who.join(consistent(replace(asked, signed=SignedPlan(asked.signed.plan))).to_bytes(), at=AT)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(populations=frozenset({"others"})), "another than this client"),
        (Policy(views=frozenset({"columns"})), "asks about whole"),
        (Policy(columns=frozenset({"age"})), "asks about the column 'value'"),
        (Policy(least_corruption=0.2), "a share of 0.1 colluding clients, this client insists"),
    ],
)
def test_a_client_knows_where_it_belongs(policy: Policy, words: str) -> None:
    with pytest.raises(PolicyRefusal, match=words):
        client(policy).join(invitation().to_bytes(), at=AT)
    content = Policy(populations=frozenset({"testers"}), least_corruption=0.1)
    client(content).join(invitation().to_bytes(), at=AT)


def test_another_reference_is_refused() -> None:
    with pytest.raises(PolicyRefusal, match=r"about the reference .* and this client has"):
        client(reference=Reference.from_counts([1, 2, 3])).join(invitation().to_bytes(), at=AT)


def test_a_client_with_more_records_than_the_plan_has_room_for() -> None:
    this = WORLD.run(WORLD.plan(cohort=9)).round
    cohort = this.cohorts[0]
    small = consistent(
        replace(
            Invitation.to_member(this, cohort, 0),
            signed=SignedPlan(this.plan.changed(most_records=3)),
        )
    )
    with pytest.raises(PolicyRefusal, match="no room"):
        client().join(small.to_bytes(), at=AT)


@pytest.mark.parametrize("trust", ["no privacy", "paper", "exact"])
def test_a_plan_without_protection_is_no_plan(trust: str) -> None:
    """Whatever a client's policy says: its records would be released without enough noise."""
    document = json.loads(invitation().to_bytes())
    document["signed"]["plan"]["trust"] = trust
    with pytest.raises(InvalidInputError, match="one of 'aggregator', 'none'"):
        client().join(json.dumps(document).encode(), at=AT)


def test_a_client_that_trusts_nobody_takes_part_where_nobody_is_trusted() -> None:
    careful = Policy(trusts=frozenset({"none"}))
    client(careful).join(invitation(trust="none").to_bytes(), at=AT)


def test_a_step_is_answered_once_and_in_order() -> None:
    session = client().join(invitation().to_bytes(), at=AT)
    with pytest.raises(WrongStepError, match="once, in order"):
        session.answer(Step.INPUT, b"")
    session.answer(Step.ADVERTISE, b"")
    with pytest.raises(WrongStepError, match="once, in order"):
        session.answer(Step.ADVERTISE, b"")
    assert not session.is_over
