"""Trust "none": every client adds a share of the noise, and only noisy counts are opened."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import (
    CountNoise,
    Estimate,
    Estimates,
    NoisyCounts,
    NoisyViews,
    estimates_from_counts,
)
from fedprikl.privacy import (
    Charge,
    NoiseSource,
    PrivacyStatement,
    SharedCounts,
    SharedMechanism,
    calibrate,
)
from fedprikl.protocol.cohort_sums import (
    Noised,
    OpenedSum,
    cohort_degree,
    expected_records,
    split_views,
)
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question
from fedprikl.reference import (
    QueryPoints,
    distinct_points,
    inclusion_probabilities,
    spread_points,
    spread_shares,
)
from fedprikl.secure_sum import DEFAULT_FAILURE, Degree, SumPlan

LARGEST_MARK = 2**32  # of insecure noise
NOBODY = "nobody: every client adds its share of the noise inside the secure sum."


@dataclass(frozen=True, eq=False)
class NoisyHistogram:
    """What follows from an untrusted aggregator: noise shares, and counts that are public."""

    plan: Plan
    shares_noise: ClassVar[bool] = True
    _made: dict[int, SharedMechanism] = field(default_factory=dict, init=False, repr=False)

    @property
    def score(self) -> Score:
        """Of the first question."""
        return self.score_of(self.plan.question)

    def score_of(self, question: Question) -> Score:
        """Neither corrected nor limited: noisy counts are public, and debiased by simulation."""
        return question.score(correction=0.0, limited=False)

    def draw_points(self, pi: Floats, rng: np.random.Generator) -> QueryPoints:
        """Points of all batches; several batches are asked different cells, as none is pooled."""
        asked, batches = self.plan.whole, self.plan.sums.batches
        if batches > 1:
            return distinct_points(pi, asked.points, batches=batches, rng=rng)
        return spread_points(pi, asked.points, batches=1, exponent=asked.exponent, rng=rng)

    def asked_points(self, pi: Floats, released: NoisyCounts) -> QueryPoints:
        """The points of the noisy counts of a release of this plan, with their weights."""
        plan, asked = self.plan, self.plan.whole
        cells, known = np.array(released.cells, dtype=np.int64), np.flatnonzero(pi)
        if len(released.records) != plan.sums.batches or not np.all(np.isin(cells, known)):
            raise InvalidInputError("The noisy counts of the release do not fit the plan.")
        if plan.sums.batches > 1:
            inclusion = inclusion_probabilities(pi, asked.points * plan.sums.batches)
        else:
            inclusion = spread_shares(pi, asked.points, asked.exponent)
        points = QueryPoints.build(
            pi,
            cells=cells,
            batch=released.batch,
            weights=pi[cells] / inclusion[cells],
            batches=plan.sums.batches,
        )
        if (released.batch, released.cells) != (tuple(points.batch), tuple(points.cells)):
            raise InvalidInputError("The noisy counts of a release are not sorted by its points.")
        return points

    def share(self, clients: int) -> SharedMechanism:
        """The noise that each client of a cohort adds. Made once: drawn, charged and stated."""
        if clients not in self._made:
            self._made[clients] = self._make_share(clients)
        return self._made[clients]

    def _make_share(self, clients: int) -> SharedMechanism:
        """For the honest clients of every sum that can be opened.

        A sum can be opened with `minimum` inputs, of which a share `corruption` of the cohort may
        collude and subtract its own noise: the rest must suffice. At least one share is discounted:
        whoever takes part knows its own and sees the release.
        """
        plan, minimum = self.plan, self.minimum(clients)
        honest = minimum - max(1, int(np.ceil(plan.sums.corruption * clients)))
        if honest < 1:
            raise InvalidInputError(
                f"Of {minimum} inputs none would be honest for certain. Use larger cohorts, or a "
                "smaller corruption."
            )
        sparse = self.degree(clients).neighbours < clients - 1
        on = SharedCounts(
            shares=honest,
            coordinates=2 * len(self._blocks(plan.points)),
            contribution=plan.contribution_bound,
            failure=DEFAULT_FAILURE if sparse else 0.0,  # a complete graph leaves none to chance
        )
        budget, law = plan.budget, plan.questions[0].noise
        return calibrate(on, epsilon=budget.epsilon, delta=budget.delta, law=law)

    def _blocks(self, points: int) -> list[int]:
        """How many noisy counts stand for the whole, and for each view: all cells, and the rest.

        A record moves two counts of every block.
        """
        return [(view.points if view.columns else points) + 1 for view in self.plan.views]

    def worst_share(self, cohorts: Sequence[int]) -> SharedMechanism:
        """The noise of the least protected cohort: a record is in one cohort only."""
        delta = self.plan.budget.delta
        return max(map(self.share, cohorts), key=lambda share: share.epsilon(delta))

    def degree(self, clients: int) -> Degree:
        """Of the graph of a cohort's secure sum.

        Whoever gives the clients their places is not trusted either. Only in a
        complete graph is no place surrounded by colluders.
        """
        return cohort_degree(self.plan, clients, complete=self.plan.roster != "")

    def minimum(self, clients: int) -> int:
        """The fewest inputs with which a sum may be opened: their noise must suffice."""
        least = self.degree(clients).threshold + 1
        return max(least, int(np.floor((1 - self.plan.sums.dropout) * clients)))

    def smallest_cohort(self, roster: int) -> int:
        """The fewest clients of a cohort, of a roster of so many, that may rely on each other.

        Up to a share `corruption` of a cohort may collude. Whoever deals the cohorts could deal all
        colluders to one client; so a cohort is the whole roster, but for as many as may vanish.
        """
        return max(3, int(np.floor((1 - self.plan.sums.dropout) * roster)))

    def maxima(self, *, clients: int, points: int) -> tuple[int, ...]:
        """The largest value of each entry of a client's vector.

            noisy counts of the points and of the rest, of each view and its rest, records, insecure

        Noise may be negative, so noisy entries are shifted up by its reach. `insecure` is a random
        number from 1 for a client whose noise is not from a secure source, and 0 for all others:
        whoever wants to cancel the mark of another has to guess it.
        """
        most, reach = self.plan.sums.most_records, self.share(clients).reach
        return (most + 2 * reach,) * sum(self._blocks(points)) + (most, LARGEST_MARK)

    def vector(
        self,
        asked: Ints,
        views: Sequence[Ints],
        records: int,
        *,
        sums: SumPlan,
        source: NoiseSource,
        randomness: Callable[[int], bytes],
    ) -> Ints:
        """What a client hands to the secure sum of a cohort. SECRET.

        A client whose noise is not secure says so in the last entry, which marks the release. Noise
        is shifted by the reach that all of the cohort were told, which the aggregator takes off.
        """
        share = self.share(sums.clients)
        reach = (sums.maxima[0] - self.plan.sums.most_records) // 2
        blocks = ([asked] if self.plan.points else []) + list(views)
        counts = np.concatenate([np.append(block, records - block.sum()) for block in blocks])
        noise = np.clip(share.draw_share(len(counts), source), -reach, reach)
        mark = 1 + int.from_bytes(randomness(4), "little") if source.insecure else 0
        return np.append(counts + noise + reach, [records, mark]).astype(np.int64)

    def open(self, total: Ints, *, clients: int, included: int) -> OpenedSum:
        """The sum of a cohort: noisy counts of points and views; the rest last in each."""
        share = self.share(clients)
        of_views = [view.points + 1 for view in self.plan.columns]
        counts, views = np.split(
            total[:-2] - included * share.reach, [len(total) - 2 - sum(of_views)]
        )
        return OpenedSum(
            counts=counts,
            views=views,
            records=expected_records(self.plan, included, said=int(total[-2])),
            noise_variance=included * share.share_variance,
            insecure=bool(total[-1]),
        )

    def charge(self, cohorts: Sequence[int]) -> Charge:
        """What a release costs, known before any sum is. `cohorts` are their sizes."""
        return self.worst_share(cohorts).charge(self.plan.budget.delta)

    def client_charge(self, clients: int) -> Charge | None:
        """What a client of a cohort charges to a ledger of its own."""
        return self.share(clients).charge(self.plan.budget.delta)

    def expected_noise(self, cohorts: Sequence[int]) -> CountNoise:
        """On each count, if nobody leaves."""
        variance = sum(size * self.share(size).share_variance for size in cohorts)
        return CountNoise(sd=math.sqrt(variance), scale=self.share(cohorts[-1]).laplace_scale)

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
        """All divergences from the same noisy counts, their intervals and verdict.

        All of it is post-processing; `rng` serves the debiasing only, it never makes release noise.
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
        """The noised numbers of opened sums: the clients have drawn all the noise."""
        counts: Sequence[float] = ()
        if points is not None:
            parts = [batch.counts[:-1] for batch in batches]
            rest = [batch.counts[-1] for batch in batches]
            counts = np.concatenate([*parts, rest]).astype(np.float64).tolist()
        of_views: list[Ints] = []
        if views:
            of_views = split_views(self.plan, sum(batches[1:], batches[0]).views, more=1)
        return Noised(
            records=tuple(batch.records for batch in batches),
            counts=tuple(counts),
            views=tuple(tuple(each.astype(np.float64).tolist()) for each in of_views),
            variances=tuple(batch.noise_variance for batch in batches),
            insecure=source.insecure or any(batch.insecure for batch in batches),
        )

    def explain(
        self,
        points: QueryPoints | None,
        views: Sequence[QueryPoints],
        noised: Noised,
        cohorts: Sequence[int],
        *,
        rng: np.random.Generator,
    ) -> Estimates:
        """The estimates that noised numbers are, with intervals: all of it post-processing."""
        share = self.worst_share(cohorts)  # all shares of a round have one kind and one scale
        scale = share.laplace_scale
        noisy = None
        if points is not None:
            laws = [CountNoise(sd=math.sqrt(each), scale=scale) for each in noised.variances]
            noisy = NoisyCounts.of(noised.counts, noised.records, laws, points)
        columns = None
        if views:
            law = CountNoise(sd=math.sqrt(sum(noised.variances)), scale=scale)
            columns = NoisyViews(
                counts=tuple(
                    NoisyCounts.of(block, [sum(noised.records)], [law]) for block in noised.views
                ),
                mechanism=str(share),
            )
        cells = (0 if points is None else len(points)) + self.plan.column_points
        payload = sum(self._blocks(0 if points is None else points.payload))
        privacy = PrivacyStatement(
            epsilon=share.epsilon(self.plan.budget.delta),
            delta=share.proved_delta(self.plan.budget.delta),
            claimed_epsilon=self.plan.budget.epsilon,
            mechanism=str(share),
            released=f"the noisy counts of {cells} cells",
            trust=NOBODY,
            sensitivity=share.sensitivity,
            insecure=noised.insecure,
        )
        each: tuple[Estimate, ...] = ()
        if points is not None and noisy is not None:
            each = estimates_from_counts(
                points,
                noisy,
                [self.score_of(question) for question in self.plan.about_whole],
                method="noisy counts, no trusted party",
                payload=payload,
                privacy=privacy,
                rng=rng,
            )
        return Estimates(
            each=each,
            columns=columns,
            privacy=privacy,
            payload=payload,
            records=sum(noised.records),
            noisy_counts=noisy,
        )
