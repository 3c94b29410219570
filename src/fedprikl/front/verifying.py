"""Is a release genuine? A release that is not raises."""

from pathlib import Path

from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import Answer, CountedView, answers_from_counts
from fedprikl.front.plan_checks import AnyPlan, signed_plan
from fedprikl.front.result import Comparison
from fedprikl.protocol import Release
from fedprikl.protocol.answering import asked_points, counted_by_batch
from fedprikl.protocol.keys import is_fingerprint
from fedprikl.reference import Reference


def verify(release: Release | str | Path, *, key: str = "", plan: AnyPlan | None = None) -> Release:
    """The release (or the one in a file), if it is genuine; raises `InvalidInputError` if not.

    `key` is the aggregator's public key, 64 hexadecimal digits. Without it, only this is shown:
    the release is as its signer made it. Then compare `release.signer` with the key you know.
    With `plan` (what `fedprikl.plan` returned, or a plan file), the release must be about that
    plan.

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
    wanted = key.strip().lower()
    if wanted and not is_fingerprint(wanted):
        raise InvalidInputError(
            "The key is malformed: a public key has 64 hexadecimal digits. Nothing was checked."
        )
    if not (found.is_signed_by(wanted) if wanted else found.is_intact):
        raise InvalidInputError(
            f"{what} is NOT genuine: it was changed after it was signed, or another key signed it. "
            "Do not use it."
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
    spread = agreed.verdict.spread(known.whole, counted_by_batch(agreed, found.cohorts))
    noise = str(found.noisy_counts.noise[0])
    view = CountedView(points, found.noisy_counts, spread)
    (answer,) = answers_from_counts(view, [score], mechanism=noise)
    return answer
