"""Plans and releases as users hand them over: which are refused, and which are genuine."""

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np

from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.errors import InvalidInputError, PolicyRefusal
from fedprikl.estimation import Answer, CountedView, answers_from_counts
from fedprikl.front.result import Comparison
from fedprikl.protocol import Invitation, Plan, Policy, Release, Round, Server, SignedPlan
from fedprikl.protocol.answering import asked_points, counted_by_batch
from fedprikl.protocol.client import check_invitation
from fedprikl.protocol.keys import is_fingerprint
from fedprikl.reference import Reference

if TYPE_CHECKING:
    from fedprikl.planning.planned_round import PlannedRound

AnyPlan = Union["PlannedRound", SignedPlan, Plan, str, Path]


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
        case str() | Path():
            return SignedPlan.load(plan)
    from fedprikl.planning.planned_round import PlannedRound  # whoever has one has loaded it

    if isinstance(plan, PlannedRound):
        return SignedPlan(plan.plan)
    raise InvalidInputError(
        "A plan is what `fedprikl.plan` returns, or the path of a plan file, got "
        f"{type(plan).__name__}."
    )


def check_plan(signed: SignedPlan, policy: Policy, at: str) -> None:
    """Refuses a plan that was changed, is not valid now, or asks for more than the user allows."""
    _check_unchanged(signed)
    check_valid(signed.plan, at)
    check_limits(signed.plan, policy)


def _check_unchanged(signed: SignedPlan) -> None:
    if signed.signer and not signed.is_signed_by(signed.signer):
        raise InvalidInputError("The plan was changed after it was signed. Make it again.")


def check_limits(plan: Plan, policy: Policy) -> None:
    """Refuses a plan whose release spends more than the user allows."""
    for name, wanted, largest in (
        ("epsilon", plan.budget.epsilon, policy.largest_epsilon),
        ("delta", plan.budget.delta, policy.largest_delta),
    ):
        if not wanted <= largest:
            raise InvalidInputError(
                f"The plan spends {name} {wanted:g} on one release, and at most {largest:g} is "
                f"allowed. Raise largest_{name} if you mean it, or plan with less."
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


def verify(release: Release | str | Path, *, key: str = "", plan: AnyPlan | None = None) -> Release:
    """The release (or the one in a file), if it is genuine; raises `InvalidInputError` if not.

    `key` is the aggregator's public key, 64 hexadecimal digits. Without it, only this is shown:
    the release is as its signer made it. Then compare `release.signer` with the key you know.
    With `plan` (what `fedprikl.plan` returned, or a plan file), the release must be about that
    plan; if it names servers, all of them must have signed.

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([50, 50])
    >>> planned = fk.plan(reference, clients=3, records=60, epsilon=1)
    >>> key = fk.SigningKey.generate()
    >>> result = fk.compare(reference, [[0, 1] * 10, [1] * 20, [0] * 20], planned,
    ...                     ledger=None, key=key)
    >>> fk.verify(result.release, key=key.public, plan=planned) is result.release
    True
    >>> fk.verify(result.release, key=fk.SigningKey.generate().public)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedprikl.errors.InvalidInputError: The release is NOT genuine: it was changed after it was ...
    """
    named = isinstance(release, str | Path)
    what = str(release) if named else "The release"
    found = Release.load(release) if isinstance(release, str | Path) else release
    if isinstance(found, Comparison):
        raise InvalidInputError("A Comparison is more than a release. Give result.release.")
    if not isinstance(found, Release):
        raise InvalidInputError(f"{type(found).__name__} is no release and no path of one.")
    if not isinstance(key, str):
        raise InvalidInputError(
            f"The key is a text of 64 hexadecimal digits, got {type(key).__name__}; of a "
            "SigningKey, give key.public. Nothing was checked."
        )
    wanted = key.strip().lower()
    if wanted and not is_fingerprint(wanted):
        raise InvalidInputError(
            "The key is malformed: a public key has 64 hexadecimal digits. Nothing was checked."
        )
    if not found.is_intact or (wanted and not found.is_signed_by(wanted)):  # no signer is a guest
        raise InvalidInputError(
            f"{what} is NOT genuine: it was changed after it was signed, or another key signed it. "
            "Do not use it."
        )
    if plan is not None:  # it names the servers
        _check_unchanged(signed_plan(plan))
    if plan is not None and not found.has_signers_of(signed_plan(plan).plan):
        raise InvalidInputError(
            f"{what} is not signed by all servers of the plan. Two of them may sign only if the "
            "plan allows one to be lost, and the release says that it was. Do not use it."
        )
    if plan is not None and not found.is_about(signed_plan(plan).plan):
        about = f"than {plan}" if isinstance(plan, str | Path) else "than the one given"
        raise InvalidInputError(f"{what} is genuine, but about another plan {about}.")
    return found


def divergence_of(
    release: Release | str | Path,
    divergence: str,
    *,
    reference: Reference | str | Path,
    plan: AnyPlan,
    skew: float | None = None,
) -> Answer:
    """Any registered divergence from a release with noisy counts, at no further privacy cost.

    Without a trusted party a release about the whole has them; with one, where the plan reads
    answers off them. They are public, so whatever is computed from them is too: "kl", "reverse_kl",
    "psi", "js", "hellinger", "tv", or one of your own. `reference` and `plan` are those of the
    round: the plan says how likely each cell was to be asked. `skew` is what the divergence
    recommends unless given. The value comes with what no drift would give. It is computed with
    public draws, so for the divergence of the plan it differs a little from the value in the
    release.

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([50_000, 30_000, 20_000])
    >>> planned = fk.plan(reference, clients=6, records=6000, epsilon=1, trust="none")
    >>> clients = [[0] * 500 + [1] * 200 + [2] * 300 for _ in range(6)]  # TV 0.1
    >>> result = fk.compare(reference, clients, planned, ledger=None)
    >>> found = fk.divergence_of(result.release, "tv", reference=reference, plan=planned)
    >>> 0.05 < found.value < 0.15, found.no_drift < 0.05, found.target
    (True, True, 'TV(Pi, P)')
    """
    found, agreed = verify(release, plan=plan), signed_plan(plan).plan
    if not found.answers:
        raise InvalidInputError(
            "The release is about columns only, and has no counts of the whole."
        )
    if found.noisy_counts is None:
        raise InvalidInputError(
            "The release carries no counts, only its answers: a trusted aggregator kept the counts "
            "to itself. Ask for the divergence in the plan."
        )
    known = Reference.of(reference)
    if known.fingerprint != found.reference:
        raise InvalidInputError("The release is about another reference. Give that of its plan.")
    asked = divergence_named(divergence)
    score = Score(Skew(asked.skew if skew is None else skew), asked)
    if not score.finite:
        raise InvalidInputError(
            f"The divergence {divergence!r} is infinite where a cell vanishes; use a skew above 0."
        )
    points = asked_points(agreed, known.probabilities, found.noisy_counts)
    spread = agreed.spread(known.whole, counted_by_batch(agreed, found.cohorts))
    noise = str(found.noisy_counts.noise[0])
    view = CountedView(points, found.noisy_counts, spread)
    (answer,) = answers_from_counts(view, [score], mechanism=noise)
    return answer
