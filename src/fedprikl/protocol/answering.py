"""From opened sums to answers. Runs at the aggregator: noise first, then only post-processing.

`noise_sums` is the last step that sees exact sums. What it returns is public and final: `explain`
makes estimates of it, with intervals, as often as anybody likes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    Estimate,
    Estimates,
    NoisyCounts,
    NoisyViews,
    ViewVector,
    estimates_from_counts,
    noise_counts,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.adaptive import adaptive_value
from fedprikl.estimation.trusted_aggregator import TRUST, AskedNumber
from fedprikl.privacy import (
    Calibrated,
    InverseSensitivityMechanism,
    NoiseSource,
    PrivacyStatement,
    SharedMechanism,
    compose_statements,
)
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import WHOLE, Question
from fedprikl.protocol.round import Outcome
from fedprikl.protocol.sums import (
    NoisyHistogram,
    OpenedSum,
    QuestionNoise,
    ScoredSum,
    asked_views,
)
from fedprikl.reference import (
    QueryPoints,
    Reference,
    inclusion_probabilities,
    spread_shares,
)

METHODS = {
    "aggregator": "noisy counts of a trusted aggregator",
    "none": "noisy counts, no trusted party",
}
NOBODY = "nobody: every client adds its share of the noise inside the secure sum."


@dataclass(frozen=True, slots=True, kw_only=True)
class Noised:
    """What the noise made of the sums of a round: final numbers, and all that leaves the sums.

    Public. Numbers of records have no noise: they are public anyway.
    """

    records: tuple[int, ...]  # of each batch
    values: tuple[tuple[float, ...], ...] = ()  # of each question with noise of its own, per view
    counts: tuple[tuple[float, ...], ...] = ()  # of each view with noisy counts: of its asked
    # cells, then of all other records of each batch
    variances: tuple[float, ...] = ()  # of the clients' own noise on each count, by batch
    insecure: bool = False  # whether any of the noise is not from a secure source


def points_of(
    plan: Plan, reference: Reference, whole: QueryPoints | None
) -> tuple[QueryPoints, ...]:
    """The asked points of each view of the plan: the drawn ones of the whole, all of columns."""
    columns = (view.points() for view in asked_views(plan, reference))
    return (*(() if whole is None else (whole,)), *columns)


def noise_sums(
    trust: ScoredSum | NoisyHistogram,
    points: Sequence[QueryPoints],
    batches: Sequence[OpenedSum],
    *,
    source: NoiseSource,
) -> Noised:
    """All the noised numbers of a release: the last step that sees exact sums."""
    records = tuple(batch.records for batch in batches)
    if isinstance(trust, NoisyHistogram):  # the clients have drawn all the noise
        return Noised(
            records=records,
            counts=tuple(_in_shares(each, i, batches) for i, each in enumerate(points)),
            variances=tuple(batch.noise_variance for batch in batches),
            insecure=source.insecure or any(batch.insecure for batch in batches),
        )
    found: dict[QuestionNoise, list[tuple[float, ...]]] = {}
    for noise in as_drawn(trust.noises):
        exact = [_summed(points[i], i, batches) for i in places_of(trust.plan, noise)]
        found[noise] = _noised(trust, noise, exact, source)
    of_counts = [each for each in trust.noises if each.is_counts]
    return Noised(
        records=records,
        values=tuple(found[each][0] for each in trust.noises if each not in of_counts),
        counts=tuple(view for each in of_counts for view in found[each]),
        insecure=source.insecure,
    )


def as_drawn(noises: Sequence[QuestionNoise]) -> list[QuestionNoise]:
    """In the order in which noise is drawn: of columns, that of the counts comes first."""

    def order(noise: QuestionNoise) -> tuple[bool, bool]:
        columns = not noise.questions[0].of_whole
        return columns, columns and not noise.is_counts

    return sorted(noises, key=order)


def places_of(plan: Plan, noise: QuestionNoise) -> list[int]:
    """Where the views that it is about stand in the plan."""
    names = [view.columns for view in plan.views]
    return [names.index(columns) for columns in noise.questions[0].views]


def _summed(points: QueryPoints, place: int, batches: Sequence[OpenedSum]) -> BatchCounts:
    """SECRET: exact counts of a view; where all batches are asked the same, added up."""
    if points.batches < len(batches):
        batches = [sum(batches[1:], batches[0])]
    counts = np.concatenate([batch.counts[place] for batch in batches])
    return BatchCounts(points, counts, np.array([batch.records for batch in batches]))


def _in_shares(points: QueryPoints, place: int, batches: Sequence[OpenedSum]) -> tuple[float, ...]:
    """Noisy counts of a view, those of all other records of each batch last."""
    if points.batches < len(batches):
        batches = [sum(batches[1:], batches[0])]
    blocks = [batch.counts[place] for batch in batches]
    parts = [*(block[:-1] for block in blocks), *(block[-1:] for block in blocks)]
    return tuple(np.concatenate(parts).astype(np.float64).tolist())


def _noised(
    trust: ScoredSum, noise: QuestionNoise, exact: Sequence[BatchCounts], source: NoiseSource
) -> list[tuple[float, ...]]:
    """Noisy counts of each view; or, in one tuple, the scored sum of each view with noise."""
    score, bound = trust.score_of(noise.questions[0]), trust.plan.contribution_bound
    law = noise.law
    if isinstance(law, InverseSensitivityMechanism):
        epsilon = law.epsilon
        (counts,) = exact
        return [
            (adaptive_value(counts, score, epsilon=epsilon, source=source, contribution=bound),)
        ]
    if noise.is_counts:
        return [noise_counts(each, law.noise, source).numbers for each in exact]
    values = [weighted_score(each, score) for each in exact]
    deltas = [score_sensitivity(each.points, each.records, score, bound) for each in exact]
    return [tuple(law.add_to(values, deltas, source).tolist())]


def estimate_sums(
    trust: ScoredSum | NoisyHistogram,
    points: Sequence[QueryPoints],
    batches: Sequence[OpenedSum],
    cohorts: Sequence[int],
    *,
    source: NoiseSource,
    rng: np.random.Generator,
) -> Estimates:
    """Noise, and what follows from it: an estimate for each question. `cohorts` are their sizes.

    `rng` serves the debiasing of noisy counts only; it never makes release noise.
    """
    noised = noise_sums(trust, points, batches, source=source)
    return explain(trust, points, noised, cohorts, rng=rng)


def explain(
    trust: ScoredSum | NoisyHistogram,
    points: Sequence[QueryPoints],
    noised: Noised,
    cohorts: Sequence[int],
    *,
    rng: np.random.Generator,
) -> Estimates:
    """The estimates that noised numbers are, with intervals: all of it post-processing."""
    if isinstance(trust, NoisyHistogram):
        return _explain_shares(trust, points, noised, cohorts, rng)
    plan, insecure = trust.plan, noised.insecure
    each: dict[Question, Estimate] = {}
    stated: list[PrivacyStatement] = []
    vectors: list[ViewVector] = []
    noisy: NoisyCounts | None = None
    columns: NoisyViews | None = None
    values, counts = iter(noised.values), iter(noised.counts)
    for noise in trust.noises:
        question, asked = noise.questions[0], [points[i] for i in places_of(plan, noise)]
        law = noise.law
        if question.of_whole and not noise.is_counts:
            (value,) = next(values)
            each[question] = _one_number(trust, noise, value, asked[0], noised)
            stated.append(each[question].privacy)
            continue
        assert isinstance(law, Calibrated)  # noqa: S101  only the whole has adaptive noise
        stated.append(_state(noise, law, asked, insecure))
        if not noise.is_counts:
            vectors.append(_vector(trust, question, law, asked, next(values), noised))
            continue
        laws = [CountNoise.of(law.noise)] * asked[0].batches
        found = [_noisy(question.of_whole, view, next(counts), noised, laws) for view in asked]
        if question.of_whole:
            (noisy,) = found
            read = _read_off(trust, asked, noisy, stated[-1], rng)
            each |= zip(noise.questions, read, strict=True)
        else:
            columns = NoisyViews(
                counts=tuple(found), mechanism=str(law.noise), vectors=tuple(vectors)
            )
    return Estimates(
        each=tuple(each[question] for question in plan.about_whole),
        columns=columns,
        privacy=compose_statements(stated, claimed_epsilon=plan.budget.epsilon),
        payload=_payload(trust, points),
        records=sum(noised.records),
        noisy_counts=noisy,
    )


def _explain_shares(
    trust: NoisyHistogram,
    points: Sequence[QueryPoints],
    noised: Noised,
    cohorts: Sequence[int],
    rng: np.random.Generator,
) -> Estimates:
    """All divergences from the same noisy counts, to which the clients added the noise."""
    plan, share = trust.plan, trust.worst_share(cohorts)  # of a round, all have one kind and scale
    each_batch = [_share_law(share, variance) for variance in noised.variances]
    together = [_share_law(share, sum(noised.variances))]
    found = {
        asked.columns: _noisy(
            asked.columns == WHOLE, view, counts, noised, together if asked.columns else each_batch
        )
        for asked, view, counts in zip(plan.views, points, noised.counts, strict=True)
    }
    privacy = PrivacyStatement(
        epsilon=share.epsilon(plan.budget.delta),
        delta=share.proved_delta(plan.budget.delta),
        claimed_epsilon=plan.budget.epsilon,
        mechanism=str(share),
        released=f"the noisy counts of {sum(map(len, points))} cells",
        trust=NOBODY,
        sensitivity=share.sensitivity,
        insecure=noised.insecure,
    )
    noisy = found.pop(WHOLE, None)
    each: tuple[Estimate, ...] = ()
    if noisy is not None:
        each = _read_off(trust, points, noisy, privacy, rng)
    return Estimates(
        each=each,
        columns=NoisyViews(counts=tuple(found.values()), mechanism=str(share)) if found else None,
        privacy=privacy,
        payload=_payload(trust, points),
        records=sum(noised.records),
        noisy_counts=noisy,
    )


def _noisy(
    whole: bool,
    points: QueryPoints,
    counts: Sequence[float],
    noised: Noised,
    laws: Sequence[CountNoise],
) -> NoisyCounts:
    """Noised numbers of a view as what they are. Columns are asked of all batches together."""
    if whole:
        return NoisyCounts.of(counts, noised.records, laws, points)
    return NoisyCounts.of(counts, [sum(noised.records)], laws)


def _read_off(
    trust: ScoredSum | NoisyHistogram,
    points: Sequence[QueryPoints],
    noisy: NoisyCounts,
    privacy: PrivacyStatement,
    rng: np.random.Generator,
) -> tuple[Estimate, ...]:
    """The answers about the whole, whose points come first, that are read off noisy counts."""
    asked = [each for each in trust.plan.about_whole if each.release == "counts"]
    return estimates_from_counts(
        points[0],
        noisy,
        [trust.score_of(question) for question in asked],
        method=METHODS[trust.plan.trust],
        payload=points[0].payload if isinstance(trust, ScoredSum) else _payload(trust, points),
        privacy=privacy,
        rng=rng,
    )


def _payload(trust: ScoredSum | NoisyHistogram, points: Sequence[QueryPoints]) -> int:
    """Counts that each client reported; with noise shares, also of all other records of a view."""
    return sum(view.payload + trust.shares_noise for view in points)


def _one_number(
    trust: ScoredSum, noise: QuestionNoise, value: float, points: QueryPoints, noised: Noised
) -> Estimate:
    """The answer that a noised number is."""
    asked = AskedNumber(
        points,
        np.array(noised.records),
        trust.score_of(noise.questions[0]),
        client_effect=trust.plan.verdict.client_effect,
        contribution=trust.plan.contribution_bound,
    )
    if isinstance(noise.law, Calibrated):
        return asked.estimate(value, noise.law, insecure=noised.insecure)
    return asked.adaptive_estimate(value, noise.law.epsilon, insecure=noised.insecure)


def _vector(
    trust: ScoredSum,
    question: Question,
    law: Calibrated,
    points: Sequence[QueryPoints],
    values: Sequence[float],
    noised: Noised,
) -> ViewVector:
    """The value of a divergence in each view."""
    score, records = trust.score_of(question), np.array([sum(noised.records)])
    bound = trust.plan.contribution_bound
    return ViewVector(
        score=score,
        values=np.array(values),
        sensitivities=np.array([score_sensitivity(v, records, score, bound) for v in points]),
        noise=law,
    )


def _state(
    noise: QuestionNoise, law: Calibrated, points: Sequence[QueryPoints], insecure: bool
) -> PrivacyStatement:
    """What noise on counts, or on a number of each column, costs."""
    question, charge = noise.questions[0], law.charge
    cells = sum(map(len, points))
    if not noise.is_counts:
        released = f"{question.divergence} of {len(points)} columns"
    else:
        released = f"the noisy counts of {cells} cells{'' if question.of_whole else ' of columns'}"
    return PrivacyStatement(
        epsilon=charge.epsilon(law.delta),
        delta=charge.proved_delta(law.delta),
        claimed_epsilon=law.epsilon,
        mechanism=str(charge),
        released=released,
        trust=TRUST,
        sensitivity=law.noise.sensitivity if question.of_whole else None,
        insecure=insecure,
    )


def _share_law(share: SharedMechanism, variance: float) -> CountNoise:
    return CountNoise(sd=math.sqrt(variance), scale=share.laplace_scale)


def expected_noise(trust: NoisyHistogram, cohorts: Sequence[int]) -> CountNoise:
    """On each count, if nobody leaves cohorts of these sizes."""
    variance = sum(size * trust.share(size).share_variance for size in cohorts)
    return _share_law(trust.share(cohorts[-1]), variance)


def asked_points(plan: Plan, pi: Floats, released: NoisyCounts) -> QueryPoints:
    """The points of the noisy counts of a release without a trusted party, with their weights."""
    asked, batches = plan.whole, plan.sums.batches
    cells, known = np.array(released.cells, dtype=np.int64), np.flatnonzero(pi)
    if len(released.records) != batches or not np.all(np.isin(cells, known)):
        raise InvalidInputError("The noisy counts of the release do not fit the plan.")
    if batches > 1:
        inclusion = inclusion_probabilities(pi, asked.points * batches)
    else:
        inclusion = spread_shares(pi, asked.points, asked.exponent)
    points = QueryPoints.build(
        pi,
        cells=cells,
        batch=released.batch,
        weights=pi[cells] / inclusion[cells],
        batches=batches,
    )
    if (released.batch, released.cells) != (tuple(points.batch), tuple(points.cells)):
        raise InvalidInputError("The noisy counts of a release are not sorted by its points.")
    return points


def counted_by_batch(plan: Plan, outcomes: Iterable[Outcome]) -> list[int]:
    """How many clients of each batch are in the sums."""
    clients = [0] * plan.sums.batches
    for outcome in outcomes:
        clients[outcome.batch] += outcome.included
    return clients
