"""A client's policy: what it agrees to, whatever the plan says."""

from dataclasses import dataclass

import numpy as np

from fedprikl.errors import PolicyRefusal
from fedprikl.federation.round import Invitation, entry_maxima, noise_share
from fedprikl.reference import Reference

__all__ = ["Policy", "check_invitation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits a client sets for itself. Outside of them it takes no part and says why."""

    largest_epsilon: float = 2.0
    largest_delta: float = 1e-5
    most_points: int = 1000
    smallest_cohort: int = 3
    smallest_threshold: int = 2
    organiser: str = ""  # public key that must have signed the plan; "" accepts any plan
    estimators: frozenset[str] = frozenset({"exact", "baseline"})  # those whose claim is true


def check_invitation(invitation: Invitation, policy: Policy, reference: Reference) -> None:
    """Raises `PolicyRefusal` unless the client may take part. Nothing has been sent before."""
    plan, sums = invitation.signed.plan, invitation.sums
    if policy.organiser and not invitation.signed.is_signed_by(policy.organiser):
        raise PolicyRefusal("the plan is not signed by the organiser this client trusts")
    if plan.reference != reference.fingerprint:
        raise PolicyRefusal("the plan is about another reference than this client has")
    if plan.estimator not in policy.estimators:
        raise PolicyRefusal(f"the estimator {plan.estimator!r} does not protect records")
    if plan.epsilon > policy.largest_epsilon or plan.delta > policy.largest_delta:
        raise PolicyRefusal(
            f"epsilon {plan.epsilon:g} and delta {plan.delta:g} exceed the limits "
            f"{policy.largest_epsilon:g} and {policy.largest_delta:g}"
        )
    if sums.minimum < policy.smallest_cohort or sums.threshold < policy.smallest_threshold:
        raise PolicyRefusal(
            f"a sum of {sums.minimum} clients with threshold {sums.threshold} is too small"
        )
    _check_points(invitation, policy, reference)
    share = noise_share(plan, clients=sums.clients, minimum=sums.minimum)
    if sums.maxima != entry_maxima(plan, len(invitation.cells), share):
        raise PolicyRefusal("the secure sum does not fit the plan")


def _check_points(invitation: Invitation, policy: Policy, reference: Reference) -> None:
    cells = np.array(invitation.cells, dtype=np.int64)
    if not 1 <= len(cells) <= policy.most_points:
        raise PolicyRefusal(f"{len(cells)} points are asked, at most {policy.most_points} allowed")
    if len(np.unique(cells)) < len(cells):
        raise PolicyRefusal("a point is asked twice")
    if cells.max() >= reference.domain.size or np.any(reference.mass[cells] <= 0):
        raise PolicyRefusal("a point is not a cell of the reference")
