"""A client's policy: what it agrees to, whatever the plan says."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import get_args

from fedprikl.errors import InvalidInputError, PolicyRefusal
from fedprikl.privacy import Unit
from fedprikl.protocol.keys import Roster, SigningKey
from fedprikl.protocol.plan import Plan, Trust
from fedprikl.protocol.round import Invitation, plan_cohort, sum_nonce
from fedprikl.protocol.sums import trust_of, view_places
from fedprikl.reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits a client sets for itself. Outside of them it takes no part and says why."""

    largest_epsilon: float = 2.0
    largest_delta: float = 1e-5
    most_points: int = 10_000  # counts, of the domain and of columns
    smallest_cohort: int = 3
    smallest_threshold: int = 2
    organiser: str = ""  # public key that must have signed the plan; "" accepts any plan
    trusts: frozenset[Trust] = frozenset(get_args(Trust))  # whom it lets see exact sums
    require_roster: bool = False  # take part only among clients that the plan knows
    population: str = ""  # the only population it belongs to; "" accepts any name
    least_corruption: float = 0.0  # the share of a cohort that a plan must allow to collude
    longest_validity: timedelta | None = None  # of a plan; None accepts plans without an end
    most_counts: int = 1  # how often the same records may be counted; kept by the site's memory
    most_drawn: int = 100_000  # records that it draws, where whole clients are protected
    units: frozenset[Unit] = frozenset(get_args(Unit))  # {"client"}: only if all of it is protected

    def __post_init__(self) -> None:
        """Refuses what limits nothing: no number is larger than NaN."""
        for name, largest in (("epsilon", self.largest_epsilon), ("delta", self.largest_delta)):
            if not largest > 0:
                raise InvalidInputError(
                    f"The limit largest-{name} is {largest}. Give a number above 0, like "
                    "largest-epsilon 1 or largest-delta 1e-6."
                )


def check_invitation(
    invitation: Invitation, policy: Policy, reference: Reference, *, at: str
) -> None:
    """Raises `PolicyRefusal` unless the client may take part. Nothing has been sent before.

    `at` is the client's own time, ISO 8601 with an offset.
    """
    plan, sums = invitation.signed.plan, invitation.sums
    if policy.organiser and not invitation.signed.is_signed_by(policy.organiser):
        raise PolicyRefusal("the plan is not signed by the organiser this client trusts")
    check_validity(plan, policy, at=at)
    if policy.population and plan.population != policy.population:
        raise PolicyRefusal("the plan is about another population than this client belongs to")
    if plan.reference != reference.fingerprint:
        raise PolicyRefusal("the plan is about another reference than this client has")
    if plan.trust not in policy.trusts:
        raise PolicyRefusal(f"this client takes no part in a round with trust {plan.trust!r}")
    check_protected(plan, policy)
    if not (
        plan.budget.epsilon <= policy.largest_epsilon and plan.budget.delta <= policy.largest_delta
    ):
        raise PolicyRefusal(
            f"epsilon {plan.budget.epsilon:g} and delta {plan.budget.delta:g} exceed the limits "
            f"{policy.largest_epsilon:g} and {policy.largest_delta:g}"
        )
    if sums.minimum < policy.smallest_cohort or sums.threshold < policy.smallest_threshold:
        raise PolicyRefusal(
            f"a sum of {sums.minimum} clients with threshold {sums.threshold} is too small"
        )
    if not plan.sums.corruption >= policy.least_corruption:
        raise PolicyRefusal(
            f"the plan reckons with a share of {plan.sums.corruption:g} colluding clients, this "
            f"client insists on {policy.least_corruption:g}"
        )
    _check_points(invitation, policy, reference)
    check_period(invitation, at=at)
    if not _fits_the_plan(invitation):
        raise PolicyRefusal("the secure sum does not fit the plan")


def check_protected(plan: Plan, policy: Policy) -> None:
    """Raises `PolicyRefusal` unless the client agrees to whom the plan protects, and how."""
    if plan.unit.kind not in policy.units:
        raise PolicyRefusal(f"this client takes no part where one {plan.unit.kind} is protected")
    if plan.unit.kind == "client" and plan.unit.records > policy.most_drawn:
        raise PolicyRefusal(
            f"{plan.unit.records:,} records are to be drawn, at most {policy.most_drawn:,} allowed"
        )


def check_period(invitation: Invitation, *, at: str) -> None:
    """Raises `PolicyRefusal` unless a period of the plan's series is asked that is over.

    `at` is the client's own time: records that are yet to come cannot be counted once.
    """
    when, number = invitation.signed.plan.when, invitation.period
    if when.kind == "once" and number is None:
        return
    if when.kind == "once" or number is None or number >= when.periods:
        raise PolicyRefusal("a period is asked that the plan does not have, or none where it has")
    if when.period(number).end > datetime.fromisoformat(at):
        raise PolicyRefusal("the period is not over yet by this client's clock")


def check_validity(plan: Plan, policy: Policy, *, at: str) -> None:
    """Raises `PolicyRefusal` unless the plan may be used now, and not for too long."""
    if not plan.validity.includes(at):
        raise PolicyRefusal("the plan has expired, or is not valid yet")
    if policy.longest_validity is not None and (
        plan.validity.length is None or plan.validity.length > policy.longest_validity
    ):
        raise PolicyRefusal(
            f"the plan is valid for more than {policy.longest_validity.days} days, or for ever"
        )


def check_roster(
    invitation: Invitation, policy: Policy, roster: Roster | None, identity: SigningKey | None
) -> None:
    """Raises `PolicyRefusal` unless all of the cohort are who the signed plan says may take part.

    It looks at no record, so the reason may be told in the open.
    """
    plan, sums, index = invitation.signed.plan, invitation.sums, invitation.index
    if not plan.roster:
        if policy.require_roster:
            raise PolicyRefusal("the plan names no roster, and this client insists on one")
        if sums.roster:
            raise PolicyRefusal("the secure sum has a roster, but the plan names none")
        return
    if roster is None or identity is None:
        raise PolicyRefusal("the plan names a roster, and this client has none or no identity")
    if roster.fingerprint != plan.roster:
        raise PolicyRefusal("the plan names another roster than this client has")
    if not sums.roster or not roster.holds(sums.roster):
        raise PolicyRefusal("the cohort has members who are not in the roster")
    if sums.roster[index : index + 1] != (bytes.fromhex(identity.public),):
        raise PolicyRefusal("its identity does not stand at its place in the cohort")
    least = trust_of(plan).smallest_cohort(len(roster))
    if sums.clients < least:
        raise PolicyRefusal(
            f"the cohort has {sums.clients} clients; where nobody is trusted it needs {least} of "
            f"the roster's {len(roster)}"
        )


def _fits_the_plan(invitation: Invitation) -> bool:
    """Whether every number of the secure sum follows from the plan and from what is asked.

    The plan is signed, the invitation is not. With fewer neighbours, a lower threshold or another
    minimum than the plan's, fewer colluders or less noise would do than the plan promises. With
    another nonce, the other members may have been asked something else.
    """
    plan, sums, cells = invitation.signed.plan, invitation.sums, invitation.cells
    nonce = sum_nonce(
        plan,
        invitation.round_id,
        cohort=invitation.cohort,
        batch=invitation.batch,
        cells=cells,
        period=invitation.period,
    )
    try:
        expected = plan_cohort(plan, clients=sums.clients, nonce=nonce, roster=sums.roster)
    except InvalidInputError:
        return False
    if sums == expected or not trust_of(plan).shares_noise:
        return sums == expected
    # The reach of noise shares is a real number rounded up, and the last bit of that may differ
    # between processors. One less still lies beyond what the account cuts off (16 sigma, or
    # 2^-tail_bits); one more cuts off less. What is stated is what this client then uses.
    *noisy, records, mark = expected.maxima
    return any(
        sums == replace(expected, maxima=(*(top + more for top in noisy), records, mark))
        for more in (-2, 2)
    )


def _check_points(invitation: Invitation, policy: Policy, reference: Reference) -> None:
    plan, cells = invitation.signed.plan, invitation.cells
    counts = len(cells) + plan.column_points
    if not 1 <= counts <= policy.most_points:
        raise PolicyRefusal(f"{counts} counts are asked, at most {policy.most_points} allowed")
    try:
        view_places(plan, reference)
    except InvalidInputError:
        raise PolicyRefusal(
            "the plan asks about columns that the reference does not have"
        ) from None
    if len(cells) != plan.points or invitation.batch >= plan.sums.batches:
        raise PolicyRefusal("other points or batches are asked than the plan has")
    if len(set(cells)) < len(cells):
        raise PolicyRefusal("a point is asked twice")
    inside = max(cells, default=0) < reference.domain.size
    if not inside or min(reference.whole.mass[list(cells)], default=1) <= 0:
        raise PolicyRefusal("a point is not a cell of the reference")
