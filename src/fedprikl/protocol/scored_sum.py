"""Trust "aggregator": it opens exact sums and adds noise to what it makes of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    Estimate,
    Estimates,
    NoisyCounts,
    NoisyViews,
    estimates_from_counts,
    noise_counts,
    noise_views,
)
from fedprikl.estimation.adaptive import adaptive_value
from fedprikl.estimation.noisy_views import Released, read_views
from fedprikl.estimation.trusted_aggregator import (
    TRUST,
    explain_adaptive,
    explain_score,
    noised_score,
)
from fedprikl.privacy import (
    Calibrated,
    Charge,
    NoiseSource,
    PrivacyStatement,
    compose_charges,
    compose_statements,
)
from fedprikl.protocol.cohort_sums import (
    Noised,
    OpenedSum,
    cohort_degree,
    expected_records,
    split_views,
    view_score,
)
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question
from fedprikl.protocol.question_noise import (
    AdaptiveNoise,
    ColumnsNoise,
    CountsNoise,
    QuestionNoise,
    ValueNoise,
    noises_of,
)
from fedprikl.reference import QueryPoints, spread_points
from fedprikl.secure_sum import Degree, SumPlan


def possible_counts(opened: Ints, *, top: int, records: int) -> Ints:
    """Counts of at least 0 that sum to at most `records`, near the opened ones.

        f(h) = h up to `top`, then falling:  max(0, 2 top - h)
        g_i  = C_i - C_(i-1),   C_i = min(records, f(h_1) + ... + f(h_i))

    Counts that are possible stay as they are. The ring is at least 2 `top` around, so f moves by at
    most 1 if h does, also where it wraps. A record that leaves one cell for another moves g in the
    same way or not at all: the clipped cumulative sums differ by 1 between the two cells, up to the
    first place where they reach `records`. Only where an entry is beyond `top`, which no honest
    cohort reaches, can a record move g like two records: such a liar can double epsilon, and learns
    nothing from whether there is a release.
    """
    folded = np.where(opened <= top, opened, np.maximum(2 * top - opened, 0))
    clipped = np.minimum(np.cumsum(np.minimum(folded, records)), records)
    possible: Ints = np.diff(clipped, prepend=0)
    return possible


NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ScoredSum:
    """What follows from a trusted aggregator: it makes numbers or noisy counts of exact sums."""

    plan: Plan
    shares_noise: ClassVar[bool] = False

    @cached_property
    def _all_noises(self) -> tuple[tuple[QuestionNoise, ...], ColumnsNoise | None]:
        """Made once: the ledger reserves their charges, they draw, and the release states them."""
        return noises_of(self.plan)

    @property
    def noises(self) -> tuple[QuestionNoise, ...]:
        """Of the questions about the whole."""
        return self._all_noises[0]

    @property
    def columns_noise(self) -> ColumnsNoise | None:
        """Of what is released about columns."""
        return self._all_noises[1]

    def calibrated(self, question: Question) -> Calibrated:
        """The noise of a question whose answer is released as a value."""
        for noise in self.noises:
            if isinstance(noise, ValueNoise) and question in noise.questions:
                return noise.calibrated
        raise InvalidInputError(f"The answer for {question.divergence!r} is no value with noise.")

    @property
    def score(self) -> Score:
        """Of the first question."""
        return self.score_of(self.plan.question)

    def score_of(self, question: Question) -> Score:
        """Of exact counts: corrected for small batches of clients whose records are alike, with
        limited steps. Of noisy counts: neither, they are public and debiased by simulation.
        """
        if question.release == "counts":
            return question.score(correction=0.0, limited=False)
        return question.score(correction=self.plan.verdict.client_effect, limited=True)

    def draw_points(self, pi: Floats, rng: np.random.Generator) -> QueryPoints:
        """Points of all batches, pooled where several are asked the same cell."""
        asked = self.plan.whole
        return spread_points(
            pi, asked.points, batches=self.plan.sums.batches, exponent=asked.exponent, rng=rng
        )

    def degree(self, clients: int) -> Degree:
        """Of the graph of a cohort's secure sum."""
        return cohort_degree(self.plan, clients, complete=False)

    def minimum(self, clients: int) -> int:
        """The fewest inputs with which a sum may be opened."""
        return self.degree(clients).threshold + 1

    def smallest_cohort(self, roster: int) -> int:  # noqa: ARG002  nobody relies on the others
        """The fewest clients of a cohort: a sum of fewer hides nobody."""
        return 3

    def maxima(self, *, clients: int, points: int) -> tuple[int, ...]:  # noqa: ARG002
        """The largest value of each entry of a client's vector.

            counts of the points, counts of the views, records

        Counts have twice the room they need: the aggregator folds impossible sums back into what
        is possible (`possible_counts`), and folding takes a ring twice as large.
        """
        most = self.plan.sums.most_records
        return (2 * most,) * (points + self.plan.column_points) + (most,)

    def vector(
        self,
        asked: Ints,
        views: Sequence[Ints],
        records: int,
        *,
        sums: SumPlan,  # noqa: ARG002
        source: NoiseSource,  # noqa: ARG002  the aggregator adds the noise
        randomness: Callable[[int], bytes],  # noqa: ARG002
    ) -> Ints:
        """What a client hands to the secure sum of a cohort. SECRET."""
        return np.concatenate([asked, *views, [records]]).astype(np.int64)

    def open(self, total: Ints, *, clients: int, included: int) -> OpenedSum:  # noqa: ARG002
        """The sum of a cohort. One that cannot be right is made possible."""
        top = self.plan.sums.most_records * included
        records = expected_records(self.plan, included, said=int(total[-1]))
        points, views = np.split(total[:-1], [len(total) - 1 - self.plan.column_points])
        parts = [
            possible_counts(part, top=top, records=records)
            for part in (points, *split_views(self.plan, views))
        ]
        return OpenedSum(parts[0], np.concatenate([*parts[1:], NOTHING]), records)

    def charge(self, cohorts: Sequence[int]) -> Charge:  # noqa: ARG002
        """What a release costs, known before any sum is. `cohorts` are their sizes."""
        charges = [noise.charge for noise in self.noises]
        if self.columns_noise is not None:
            charges += self.columns_noise.charges
        return compose_charges(charges)

    def client_charge(self, clients: int) -> Charge | None:  # noqa: ARG002
        """What a client of a cohort charges to a ledger of its own: the aggregator's will do."""
        return None

    def estimate(
        self,
        points: QueryPoints | None,
        views: Sequence[QueryPoints],
        batches: Sequence[OpenedSum],
        cohorts: Sequence[int],
        *,
        source: NoiseSource,
        rng: np.random.Generator,
    ) -> Estimates:
        """An estimate for each question, and of each view, each with its share of the budget.

        `rng` serves the debiasing of noisy counts only; it never makes release noise.
        """
        noised = self.noise(points, views, batches, source=source)
        return self.explain(points, views, noised, cohorts, rng=rng)

    def noise(
        self,
        points: QueryPoints | None,
        views: Sequence[QueryPoints],
        batches: Sequence[OpenedSum],
        *,
        source: NoiseSource,
    ) -> Noised:
        """Draws all the noise of a release: the last step that sees exact sums."""
        values: list[float] = []
        counts: tuple[float, ...] = ()
        for noise in self.noises:
            assert points is not None  # noqa: S101  questions about the whole have points
            if isinstance(noise, CountsNoise):
                counts = noise_counts(_summed(points, batches), noise.charge, source).numbers
            else:
                values.append(self._noised_number(points, batches, noise, source))
        noised: tuple[Released, ...] = ()
        vectors: tuple[Released, ...] = ()
        if self.columns_noise is not None:
            noised, vectors = noise_views(
                views,
                split_views(self.plan, np.sum([batch.views for batch in batches], axis=0)),
                sum(batch.records for batch in batches),
                source=source,
                **self._view_noise(self.columns_noise),
            )
        return Noised(
            records=tuple(batch.records for batch in batches),
            values=tuple(values),
            counts=counts,
            views=noised,
            vectors=vectors,
            insecure=source.insecure,
        )

    def explain(
        self,
        points: QueryPoints | None,
        views: Sequence[QueryPoints],
        noised: Noised,
        cohorts: Sequence[int],  # noqa: ARG002
        *,
        rng: np.random.Generator,
    ) -> Estimates:
        """The estimates that noised numbers are, with intervals: all of it post-processing."""
        records = np.array(noised.records)
        answers: dict[Question, Estimate] = {}
        noisy: NoisyCounts | None = None
        values = iter(noised.values)
        for noise in self.noises:
            assert points is not None  # noqa: S101  questions about the whole have points
            if isinstance(noise, CountsNoise):
                laws = [CountNoise.of(noise.charge)] * points.batches
                noisy = NoisyCounts.of(noised.counts, noised.records, laws, points)
                found = self._from_counts(points, noisy, noise, noised.insecure, rng)
            else:
                value = next(values)
                found = (self._one_number(value, points, records, noise, noised.insecure),)
            answers |= zip(noise.questions, found, strict=True)
        stated = [answers[noise.questions[0]].privacy for noise in self.noises]
        columns: NoisyViews | None = None
        if self.columns_noise is not None:
            columns = read_views(
                views,
                int(records.sum()),
                noised.views,
                noised.vectors,
                **self._view_noise(self.columns_noise),
            )
            stated += self._stated(self.columns_noise, noised.insecure)
        return Estimates(
            each=tuple(answers[question] for question in self.plan.about_whole),
            columns=columns,
            privacy=compose_statements(stated, claimed_epsilon=self.plan.budget.epsilon),
            payload=(0 if points is None else points.payload) + self.plan.column_points,
            records=int(records.sum()),
            noisy_counts=noisy,
        )

    def _view_noise(self, noise: ColumnsNoise) -> dict[str, Any]:
        """What the noise on views is made with, and read with."""
        return {
            "vectors": [(view_score(name), vector) for name, vector in noise.values],
            "mechanism": noise.counts,
            "moved": self.plan.contribution_bound,
        }

    def _stated(self, noise: ColumnsNoise, insecure: bool) -> list[PrivacyStatement]:
        """What it costs."""
        vectors = [
            (
                f"{name} of {vector.on.coordinates} columns",
                vector.charge,
                vector.epsilon,
                vector.delta,
            )
            for name, vector in noise.values
        ]
        cells = f"the noisy counts of {self.plan.column_points} cells of columns"
        return [
            PrivacyStatement(
                epsilon=charge.epsilon(delta),
                delta=charge.proved_delta(delta),
                claimed_epsilon=epsilon,
                mechanism=str(charge),
                released=released,
                trust=TRUST,
                insecure=insecure,
            )
            for released, charge, epsilon, delta in (
                *vectors,
                (cells, noise.counts, noise.epsilon, noise.delta),
            )
        ]

    def _noised_number(
        self,
        points: QueryPoints,
        batches: Sequence[OpenedSum],
        noise: ValueNoise | AdaptiveNoise,
        source: NoiseSource,
    ) -> float:
        """The scored sum of a question, with noise."""
        (question,), plan = noise.questions, self.plan
        score, counts = self.score_of(question), _summed(points, batches)
        if isinstance(noise, AdaptiveNoise):
            epsilon = noise.charge.epsilon
            return adaptive_value(
                counts, score, epsilon=epsilon, source=source, moved=plan.contribution_bound
            )
        return noised_score(
            counts,
            calibrated=noise.calibrated,
            score=score,
            moved=plan.contribution_bound,
            source=source,
        )

    def _one_number(
        self,
        value: float,
        points: QueryPoints,
        records: Ints,
        noise: ValueNoise | AdaptiveNoise,
        insecure: bool,
    ) -> Estimate:
        """The answer that a noised number is."""
        (question,), plan = noise.questions, self.plan
        public: dict[str, Any] = {
            "score": self.score_of(question),
            "client_effect": plan.verdict.client_effect,
            "moved": plan.contribution_bound,
            "insecure": insecure,
        }
        if isinstance(noise, AdaptiveNoise):
            return explain_adaptive(value, points, records, epsilon=noise.charge.epsilon, **public)
        return explain_score(value, points, records, calibrated=noise.calibrated, **public)

    def _from_counts(
        self,
        points: QueryPoints,
        noisy: NoisyCounts,
        noise: CountsNoise,
        insecure: bool,
        rng: np.random.Generator,
    ) -> tuple[Estimate, ...]:
        """The answers to all questions that are read off noisy counts."""
        mechanism = noise.charge
        return estimates_from_counts(
            points,
            noisy,
            [self.score_of(question) for question in noise.questions],
            method="noisy counts of a trusted aggregator",
            payload=points.payload,
            privacy=PrivacyStatement(
                epsilon=mechanism.epsilon(noise.delta),
                delta=mechanism.proved_delta(noise.delta),
                claimed_epsilon=noise.epsilon,
                mechanism=str(mechanism),
                released=f"the noisy counts of {len(points)} cells",
                trust=TRUST,
                sensitivity=mechanism.sensitivity,
                insecure=insecure,
            ),
            rng=rng,
        )


def _summed(points: QueryPoints, batches: Sequence[OpenedSum]) -> BatchCounts:
    """SECRET: the exact counts of all points."""
    asked = np.concatenate([batch.counts for batch in batches])
    return BatchCounts(points, asked, np.array([batch.records for batch in batches]))
