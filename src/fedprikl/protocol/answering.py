"""From opened sums to answers. Runs at the aggregator: noise first, then only post-processing.

`noise_sums` is the last step that sees exact sums. What it returns is public and final: `explain`
makes estimates of it, with intervals, as often as anybody likes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

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
    beside_counts,
    estimates_from_counts,
    noise_counts,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.adaptive import adaptive_value
from fedprikl.estimation.scoring import AskedNumber
from fedprikl.estimation.statistic import Statistic, counts_statistics, scored_statistic
from fedprikl.estimation.trusted_aggregator import (
    TRUST,
    adaptive_estimate,
    looked_estimate,
    scored_estimate,
)
from fedprikl.privacy import (
    Calibrated,
    InverseSensitivityMechanism,
    LookedMechanism,
    NoiseSource,
    PrivacyStatement,
    SharedMechanism,
    compose_statements,
)
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import WHOLE, Columns, Question
from fedprikl.protocol.round import Outcome
from fedprikl.protocol.sums import (
    NoisyHistogram,
    OpenedSum,
    QuestionNoise,
    ScoredSum,
    ServersSum,
    asked_views,
    servers_law,
)
from fedprikl.reference import (
    OutOfDomain,
    QueryPoints,
    Reference,
    View,
    inclusion_probabilities,
    spread_shares,
)

METHODS = {
    "aggregator": "noisy counts of a trusted aggregator",
    "none": "noisy counts, no trusted party",
    "servers": "noisy counts of three servers",
}
ROUNDING = 1e-9  # of probabilities that sum to 1
NOBODY = "nobody: every client adds its share of the noise inside the secure sum."
SERVERS = (
    "three servers not to collude: no single server, and no server together with any number of "
    "clients, learns more than the release; two colluding servers learn the counts of every "
    "client."
)
ONE_LOST = f"{SERVERS} One server was lost."


@dataclass(frozen=True, slots=True, kw_only=True)
class Noised:
    """What the noise made of the sums of a round: final numbers, and all that leaves the sums.

    Public. Numbers of records have no noise: they are public anyway.
    """

    records: tuple[int, ...]  # of each batch
    # Of each question with noise of its own, per view; of one with a look, the look comes first.
    values: tuple[tuple[float, ...], ...] = ()
    counts: tuple[tuple[float, ...], ...] = ()  # of each view with noisy counts: of its asked
    # cells, then of all other records of each batch
    variances: tuple[float, ...] = ()  # on each count: of the clients' own noise, by batch; of two
    # servers' noise, by group of questions, if one was lost
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


def _pooled(points: QueryPoints, batches: Sequence[OpenedSum]) -> Sequence[OpenedSum]:
    """SECRET: where all batches are asked the same, their sums are added up."""
    return [sum(batches[1:], batches[0])] if points.batches < len(batches) else batches


def _summed(points: QueryPoints, place: int, batches: Sequence[OpenedSum]) -> BatchCounts:
    """SECRET: exact counts of a view."""
    batches = _pooled(points, batches)
    counts = np.concatenate([batch.counts[place] for batch in batches])
    return BatchCounts(points, counts, np.array([batch.records for batch in batches]))


def _in_shares(points: QueryPoints, place: int, batches: Sequence[OpenedSum]) -> tuple[float, ...]:
    """Noisy counts of a view, those of all other records of each batch last."""
    blocks = [batch.counts[place] for batch in _pooled(points, batches)]
    parts = [*(block[:-1] for block in blocks), *(block[-1:] for block in blocks)]
    return tuple(np.concatenate(parts).astype(np.float64).tolist())


def _noised(
    trust: ScoredSum, noise: QuestionNoise, exact: Sequence[BatchCounts], source: NoiseSource
) -> list[tuple[float, ...]]:
    """Noisy counts of each view; or, in one tuple, the scored sum of each view with noise."""
    score, bound = trust.score_of(noise.questions[0]), trust.plan.contribution_bound
    law = noise.law
    if isinstance(law, LookedMechanism):
        ((look,),) = _noised(trust, replace(noise, law=law.look), exact, source)
        ((value,),) = _noised(trust, replace(noise, law=law.rest(look)), exact, source)
        return [(look, value)]
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
    outside: OutOfDomain | None = None,
) -> Estimates:
    """Noise, and what follows from it: an estimate for each question. `cohorts` are their sizes.

    `rng` serves the debiasing of noisy counts only; it never makes release noise. `outside` is
    that of `law_outside`, for the whole.
    """
    noised = noise_sums(trust, points, batches, source=source)
    return explain(trust, points, noised, cohorts, rng=rng, outside=outside)


def explain(
    trust: ScoredSum | NoisyHistogram,
    points: Sequence[QueryPoints],
    noised: Noised,
    cohorts: Sequence[int],
    *,
    rng: np.random.Generator,
    outside: OutOfDomain | None = None,
) -> Estimates:
    """The estimates that noised numbers are, with intervals: all of it post-processing."""
    reading = _Reading(trust, points, noised, rng, outside)
    if isinstance(trust, NoisyHistogram):
        reading.read_shares(trust.worst_share(cohorts))
    else:
        values, counts = iter(noised.values), iter(noised.counts)
        if isinstance(trust, ServersSum) and noised.variances:
            reading.read_after_loss(trust)
            return reading.estimates()
        for noise in trust.noises:
            views = range(len(noise.questions[0].views) if noise.is_counts else 1)
            reading.read(noise, [next(counts if noise.is_counts else values) for _ in views])
    return reading.estimates()


@dataclass(eq=False)
class _Reading:
    """Noised numbers of a round, read as what they are, one noise after the other."""

    trust: ScoredSum | NoisyHistogram
    points: Sequence[QueryPoints]  # of each view
    noised: Noised
    rng: np.random.Generator
    outside: OutOfDomain | None  # the law of records outside the whole's cells
    each: dict[Question, Estimate] = field(default_factory=dict)
    stated: list[PrivacyStatement] = field(default_factory=list)
    values: list[list[Statistic]] = field(default_factory=list)  # of each question, by column
    noisy: dict[Columns, NoisyCounts] = field(default_factory=dict)
    mechanism: str = ""  # of the counts of columns
    of_whole: str = ""  # of those of the whole

    def estimates(self) -> Estimates:
        """All that was read."""
        plan, counts, counted = self.trust.plan, dict(self.noisy), tuple[Statistic, ...]()
        whole, columns = counts.pop(WHOLE, None), None
        if whole is not None:
            counted = counts_statistics(self.points[0], whole, self.outside)
            for question, found in self.each.items():
                if question.release != "counts":
                    self.each[question] = beside_counts(
                        found, whole, mechanism=self.of_whole, rng=self.rng
                    )
        if counts:
            columns = NoisyViews(
                counts=tuple(counts.values()),
                mechanism=self.mechanism,
                values=tuple(zip(*self.values, strict=True)),
            )
        privacy = self.stated[0]
        if isinstance(self.trust, ScoredSum):
            privacy = compose_statements(self.stated, claimed_epsilon=plan.budget.epsilon)
            if plan.budget.parts > 1:
                privacy = replace(privacy, epsilon=self.trust.spent, delta=plan.budget.delta)
        if isinstance(self.trust, ServersSum):
            delta = privacy.delta + self.trust.left_over.proved_delta
            privacy = replace(privacy, trust=SERVERS, delta=delta)
            if delta > plan.budget.delta:  # the law alone takes all of it: less is left for the law
                privacy = replace(privacy, epsilon=self.trust.spent, delta=plan.budget.delta)
            if self.noised.variances:
                spent = self.trust.spent_after_loss
                privacy = replace(privacy, trust=ONE_LOST, epsilon=spent, delta=plan.budget.delta)
        return Estimates(
            each=tuple(self.each[question] for question in plan.about_whole),
            columns=columns,
            privacy=privacy,
            payload=self._payload(self.points),
            records=sum(self.noised.records),
            noisy_counts=whole,
            counted=counted,
        )

    def read(self, noise: QuestionNoise, numbers: Sequence[Sequence[float]]) -> None:
        """The counts of each view of a question, or the values of all its views."""
        question, law = noise.questions[0], noise.law
        points = [self.points[place] for place in places_of(self.trust.plan, noise)]
        if question.of_whole and not noise.is_counts:
            self.each[question] = self._one_number(noise, numbers[0], points[0])
            self.stated.append(self.each[question].privacy)
            return
        assert isinstance(law, Calibrated)  # noqa: S101  only the whole has adaptive noise
        self.stated.append(self._state(noise, law, points))
        if not noise.is_counts:
            self.values.append(self._scored(question, law, points, numbers[0]))
            return
        laws = [CountNoise.of(law.noise)] * points[0].batches
        for columns, counts in zip(question.views, numbers, strict=True):
            self._read_counts(columns, counts, laws)
        if question.of_whole:
            self.of_whole = str(law.noise)
            self._read_off(noise.questions, self.points[:1])
        else:
            self.mechanism = str(law.noise)

    def read_after_loss(self, trust: ServersSum) -> None:
        """Noisy counts of two servers, off which every question is read."""
        counts = iter(self.noised.counts)
        for noise, law in trust.after_loss:
            question = noise.questions[0]
            points = [self.points[place] for place in places_of(trust.plan, noise)]
            stated = self._state(noise, servers_law(noise), points)
            self.stated.append(replace(stated, mechanism=str(law)))
            for columns in question.views:
                self._read_counts(columns, next(counts), [CountNoise.of(law)])
            if question.of_whole:
                self.of_whole = str(law)
                self._read_off(trust.plan.about_whole, self.points[:1])
            else:
                self.mechanism = str(law)

    def read_shares(self, share: SharedMechanism) -> None:
        """Noisy counts of every view, to which the clients added the noise.

        All shares of a round have one law and one scale; `share` is the least protected one.
        """
        plan, noised = self.trust.plan, self.noised
        for asked, counts in zip(plan.views, noised.counts, strict=True):
            variances = [sum(noised.variances)] if asked.columns else noised.variances
            self._read_counts(asked.columns, counts, [_share_law(share, v) for v in variances])
        self.mechanism = str(share)
        privacy = PrivacyStatement(
            epsilon=share.epsilon(plan.budget.delta),
            delta=share.proved_delta(plan.budget.delta),
            claimed_epsilon=plan.budget.epsilon,
            mechanism=str(share),
            released=f"the noisy counts of {sum(map(len, self.points))} cells",
            trust=NOBODY,
            sensitivity=share.sensitivity,
            insecure=noised.insecure,
        )
        self.stated.append(privacy)
        if plan.about_whole:
            self._read_off(plan.about_whole, self.points)

    def _read_counts(
        self, columns: Columns, counts: Sequence[float], laws: Sequence[CountNoise]
    ) -> None:
        """Of one view. Columns are asked of all batches together."""
        records, points = self.noised.records, self.points[0] if columns == WHOLE else None
        asked = records if columns == WHOLE else [sum(records)]
        self.noisy[columns] = NoisyCounts.of(counts, asked, laws, points)

    def _read_off(self, questions: Sequence[Question], payload: Sequence[QueryPoints]) -> None:
        """The answers about the whole that are read off its noisy counts, stated last."""
        found = estimates_from_counts(
            self.points[0],
            self.noisy[WHOLE],
            [self.trust.score_of(question) for question in questions],
            method=METHODS[self.trust.plan.trust],
            payload=self._payload(payload),
            privacy=self.stated[-1],
            rng=self.rng,
        )
        self.each |= zip(questions, found, strict=True)

    def _payload(self, points: Sequence[QueryPoints]) -> int:
        """Counts that each client reported; without an aggregator, also of other records."""
        others = self.trust.plan.trust != "aggregator"
        return sum(view.payload + others for view in points)

    def _one_number(
        self, noise: QuestionNoise, numbers: Sequence[float], points: QueryPoints
    ) -> Estimate:
        """The answer that a noised number is, the last one where there was a look."""
        asked = AskedNumber(
            points,
            np.array(self.noised.records),
            self.trust.score_of(noise.questions[0]),
            client_effect=self.trust.plan.verdict.client_effect,
            contribution=self.trust.plan.contribution_bound,
        )
        law, insecure, (*looks, value) = noise.law, self.noised.insecure, numbers
        if isinstance(law, LookedMechanism):
            return looked_estimate(asked, looks[0], value, law, insecure=insecure)
        if isinstance(law, Calibrated):
            return scored_estimate(asked, value, law, insecure=insecure)
        return adaptive_estimate(asked, value, law.epsilon, insecure=insecure)

    def _scored(
        self,
        question: Question,
        law: Calibrated,
        points: Sequence[QueryPoints],
        values: Sequence[float],
    ) -> list[Statistic]:
        """The value of a divergence in each view, as a verdict takes it."""
        score, records = self.trust.score_of(question), np.array([sum(self.noised.records)])
        bound = self.trust.plan.contribution_bound
        return [
            scored_statistic(
                value,
                score=score,
                points=view,
                records=records,
                mechanism=law.for_sensitivity(score_sensitivity(view, records, score, bound)),
            )
            for view, value in zip(points, values, strict=True)
        ]

    def _state(
        self, noise: QuestionNoise, law: Calibrated, points: Sequence[QueryPoints]
    ) -> PrivacyStatement:
        """What noise on counts, or on a number of each column, costs."""
        question, charge = noise.questions[0], law.charge
        released = f"{question.divergence} of {len(points)} columns"
        if noise.is_counts:
            where = "" if question.of_whole else " of columns"
            released = f"the noisy counts of {sum(map(len, points))} cells{where}"
        return PrivacyStatement(
            epsilon=charge.epsilon(law.delta),
            delta=charge.proved_delta(law.delta),
            claimed_epsilon=law.epsilon,
            mechanism=str(charge),
            released=released,
            trust=TRUST,
            sensitivity=law.noise.sensitivity if question.of_whole else None,
            insecure=self.noised.insecure,
        )


def law_outside(
    plan: Plan, view: View, points: QueryPoints, *, clients: int, records: int
) -> OutOfDomain | None:
    """How many records lie in no cell of a view without drift; None where that is not counted.

    Of the whole, records that the reference itself has outside are a cell, which is asked.
    """
    if not view.columns and (points.batches > 1 or math.fsum(points.pi.tolist()) < 1 - ROUNDING):
        return None
    effect = plan.verdict.design_effect
    law = view.out_of_domain(clients=clients, records=records, design_effect=effect)
    return law if view.columns else replace(law, known=0.0)


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
