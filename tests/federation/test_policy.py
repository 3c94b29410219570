"""A client guards itself: what it refuses, and that nothing is sent then."""

import os
from dataclasses import replace
from typing import Any

import pytest

from fedprikl import PolicyRefusal, Reference
from fedprikl.errors import WrongStepError
from fedprikl.federation import Client, Invitation, Policy, SignedPlan, SigningKey
from tests.federation.worlds import World

WORLD = World.make(clients=9)


def invitation(**plan: Any) -> Invitation:
    this = WORLD.run(WORLD.plan(cohort=9, **plan)).round
    return Invitation.to_member(this, this.cohorts[0], 0)


def client(policy: Policy | None = None, reference: Reference | None = None) -> Client:
    return Client(WORLD.held[0], reference or WORLD.reference, policy=policy, randomness=os.urandom)


def test_a_sound_invitation_is_taken_once() -> None:
    who, message = client(), invitation().to_bytes()
    who.join(message)
    assert len(who.advertise()) > 0
    with pytest.raises(PolicyRefusal, match="answered already"):
        who.join(message)
    assert "1 rounds joined" in repr(who)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(largest_epsilon=0.5), "epsilon 1 and delta 1e-06 exceed"),
        (Policy(largest_delta=1e-9), "exceed the limits"),
        (Policy(most_points=5), "6 points are asked, at most 5"),
        (Policy(smallest_cohort=100), "is too small"),
        (Policy(smallest_threshold=50), "is too small"),
        (Policy(organiser=SigningKey.generate().public), "not signed by the organiser"),
        (Policy(estimators=frozenset({"baseline"})), "does not protect"),
    ],
)
def test_a_policy_is_kept(policy: Policy, words: str) -> None:
    who = client(policy)
    with pytest.raises(PolicyRefusal, match=words):
        who.join(invitation().to_bytes())
    with pytest.raises(WrongStepError, match="has not joined"):
        who.advertise()


def test_a_plan_of_the_trusted_organiser_is_taken() -> None:
    client(Policy(organiser=WORLD.key.public)).join(invitation().to_bytes())


def test_a_plan_changed_on_the_way_is_refused() -> None:
    asked = invitation()
    weaker = SignedPlan(
        replace(asked.signed.plan, epsilon=2.0), asked.signed.signer, asked.signed.signature
    )
    with pytest.raises(PolicyRefusal, match="not signed"):
        client(Policy(organiser=WORLD.key.public)).join(replace(asked, signed=weaker).to_bytes())


def test_points_are_checked() -> None:
    asked = invitation()
    twice = replace(asked, cells=(asked.cells[0], *asked.cells[:-1]))
    outside = replace(asked, cells=(*asked.cells[:-1], 999))
    never = replace(asked, cells=(*asked.cells[:-1], WORLD.reference.domain.other))
    fewer = replace(asked, cells=asked.cells[:-1])
    for changed, words in (
        (twice, "asked twice"),
        (outside, "not a cell"),
        (never, "not a cell"),
        (fewer, "does not fit the plan"),
        (replace(asked, cells=()), "0 points"),
    ):
        with pytest.raises(PolicyRefusal, match=words):
            client().join(changed.to_bytes())


def test_another_reference_is_refused() -> None:
    with pytest.raises(PolicyRefusal, match="another reference"):
        client(reference=Reference.from_counts([1, 2, 3])).join(invitation().to_bytes())


def test_a_client_with_more_records_than_the_plan_has_room_for() -> None:
    this = WORLD.run(WORLD.plan(cohort=9)).round
    cohort = this.cohorts[0]
    small = replace(
        Invitation.to_member(this, cohort, 0),
        signed=SignedPlan(replace(this.plan, most_records=3)),
        sums=replace(cohort.sums, maxima=(3,) * 7),
    )
    with pytest.raises(PolicyRefusal, match="no room"):
        client().join(small.to_bytes())


def test_unprotected_estimators_need_consent() -> None:
    for estimator in ("no privacy", "paper"):
        if estimator == "paper":
            asked = invitation()
            asked = replace(asked, signed=SignedPlan(replace(asked.signed.plan, estimator="paper")))
        else:
            asked = invitation(estimator=estimator)
        with pytest.raises(PolicyRefusal, match="does not protect"):
            client().join(asked.to_bytes())


def test_a_step_is_answered_once_and_in_order() -> None:
    who = client()
    seat = who.join(invitation().to_bytes())
    with pytest.raises(WrongStepError, match="once, in order"):
        who.mask_input(b"")
    who.advertise()
    with pytest.raises(WrongStepError, match="once, in order"):
        who.advertise()
    assert not seat.is_over
