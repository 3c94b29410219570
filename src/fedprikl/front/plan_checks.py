"""Plans as users hand them over, and what is refused before anything is counted."""

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedprikl.errors import InvalidInputError, PolicyRefusal
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.protocol import Invitation, Plan, Policy, Round, Server, SignedPlan
from fedprikl.protocol.policy import check_invitation
from fedprikl.reference import Reference

AnyPlan = PlannedRound | SignedPlan | Plan | str | Path


def now() -> str:
    """The time of this machine, ISO 8601 with an offset."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def signed_plan(plan: AnyPlan) -> SignedPlan:
    """The plan with its signature, if it has one: of the planner, of a file, or itself."""
    match plan:
        case SignedPlan():
            return plan
        case Plan():
            return SignedPlan(plan)
        case PlannedRound():
            return SignedPlan(plan.plan)
        case str() | Path():
            return SignedPlan.load(plan)
    raise InvalidInputError(
        "A plan is what `fedprikl.plan` returns, or the path of a plan file, got "
        f"{type(plan).__name__}."
    )


def check_plan(signed: SignedPlan, policy: Policy, at: str) -> None:
    """Refuses a plan that was changed, is not valid now, or asks for more than the user allows."""
    plan = signed.plan
    if signed.signer and not signed.is_signed_by(signed.signer):
        raise InvalidInputError("The plan was changed after it was signed. Make it again.")
    check_valid(plan, at)
    check_limits(plan, policy)


def check_limits(plan: Plan, policy: Policy) -> None:
    """Refuses a plan whose release spends more than the user allows."""
    for name, wanted, largest in (
        ("epsilon", plan.budget.epsilon, policy.largest_epsilon),
        ("delta", plan.budget.delta, policy.largest_delta),
    ):
        if not wanted <= largest:
            raise InvalidInputError(
                f"The plan spends {name} {wanted:g} on one release, and at most {largest:g} is "
                f"allowed. Raise --largest-{name} (in Python: largest_{name}) if you mean it, or "
                "plan with less."
            )


def check_valid(plan: Plan, at: str) -> None:
    """Refuses a plan that may not be used now."""
    if not plan.validity.includes(at):
        raise InvalidInputError(
            f"The plan is valid {validity(plan)}, and it is {at} now. Make a new one with "
            "`fedprikl plan`."
        )


def rehearse(
    server: Server, clients: Iterable[str], reference: Reference, policy: Policy, at: str
) -> Round:
    """A round that is never run: what clients would refuse is refused before they count."""
    trial = server.open_round(sorted(clients), rng=np.random.default_rng(), randomness=os.urandom)
    for cohort in trial.cohorts:
        try:
            check_invitation(Invitation.to_member(trial, cohort, 0), policy, reference, at=at)
        except PolicyRefusal as refusal:
            raise InvalidInputError(f"The clients would refuse: {refusal.reason}.") from None
    return trial


def validity(plan: Plan) -> str:
    """From when until when a plan may be used, for people."""
    limits = (("from", plan.validity.valid_from), ("until", plan.validity.valid_until))
    return " ".join(f"{word} {at}" for word, at in limits if at) or "for ever"


Progress = Callable[[str, int, int], None]  # what is done, how many are done, of how many


def silent(_: str, __: int, ___: int) -> None:
    """Tells nobody."""
