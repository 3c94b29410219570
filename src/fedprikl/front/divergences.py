"""Other divergences from a release that carries noisy counts."""

from pathlib import Path

from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyDivergence, noisy_divergence
from fedprikl.front.plan_checks import AnyPlan, signed_plan
from fedprikl.front.verifying import verify
from fedprikl.protocol import Release
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.outcome import spread_of
from fedprikl.reference import Reference

__all__ = ["divergence_of"]


def divergence_of(
    release: Release | str | Path,
    divergence: str,
    *,
    reference: Reference | str | Path,
    plan: AnyPlan,
    skew: float | None = None,
) -> NoisyDivergence:
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
    noisy = NoisyHistogram(agreed).read_counts(known.probabilities, found.noisy_counts)
    spread = spread_of(agreed, known, found.cohorts)
    return noisy_divergence(noisy, score=score, spread=spread)
