"""The answer of a trimmed mean of cohort scores: noise, debiasing, interval, verdict.

Scores of cohorts are those of small samples, so they are far too high near no drift. Which drift
makes a trimmed mean as high as it is is simulated from public quantities, after the noise: it costs
no privacy.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.envelope import Ladder, ladder
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.interval import Interval
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.trials import Populations, ValueNoise, noise_quantiles
from fedprikl.estimation.trimmed import TrimmedMean
from fedprikl.estimation.trusted_aggregator import state_number
from fedprikl.privacy import Calibrated, Mechanism, NoiseSource
from fedprikl.reference import QueryPoints

__all__ = ["DebiasedNoise", "TrimmedNoise", "TrimmedStatistic", "estimate_trimmed_mean"]

LEVEL = 0.95  # of intervals
TRUST = "the aggregator, with the exact sums of each cohort; the server sees the release only."
DEALS = 2  # of a simulated population to cohorts
TYPICAL = 100  # populations without drift that tell the mean


@dataclass(frozen=True, slots=True)
class TrimmedNoise(ValueNoise):
    """The trimmed mean of cohort scores with additive noise, of clients dealt at random; biased."""

    sizes: tuple[int, ...] = ()  # N_c, per cohort
    trim: float = 0.0
    alike: int = 1  # records that always are in the same cohort: those of one client

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """Every population is dealt a few times; the noise is spread over its quantiles."""
        records = np.array(self.sizes)
        mean = TrimmedMean.of(drawn.points, records, self.trim)
        noise: Floats = noise_quantiles(cast(Any, self.mechanism), max(1, draws // DEALS))
        found = []
        for counts in drawn.counts:
            dealt = np.stack([self._deal(counts, rng) for _ in range(DEALS)])
            values = mean.values(dealt.reshape(DEALS, -1), score)
            found.append((values[:, None] + noise).ravel())
        return np.stack(found)

    def ladder(self, points: QueryPoints, score: Score, client_effect: float) -> Ladder:
        """Its errors at drifts of all sizes, for the points of one batch."""
        everybody = np.array([sum(self.sizes)])
        return ladder(points, everybody, score, self, level=LEVEL, design_effect=client_effect)

    def _deal(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """The counts of every cohort, (T, m), if clients are dealt at random.

        Records of a cell are dealt as groups of equal ones, as large as clients' are alike.
        """
        everybody = np.append(counts, max(0, sum(self.sizes) - int(counts.sum())))
        groups = np.concatenate([everybody // self.alike, everybody % self.alike])
        ends = np.cumsum(self.sizes) / sum(self.sizes) * groups.sum()
        numbers = np.diff(np.rint(ends).astype(np.int64), prepend=0)
        found = np.empty((len(numbers), len(counts)), np.int64)
        for cohort, number in enumerate(numbers.tolist()):
            taken = rng.multivariate_hypergeometric(groups, number, method="marginals")
            groups = groups - taken
            whole, single = np.split(taken, 2)
            found[cohort] = (self.alike * whole + single)[:-1]
        return found


@dataclass(frozen=True, slots=True)
class DebiasedNoise:
    """The same, debiased: what is released."""

    biased: TrimmedNoise
    client_effect: float
    effort: ClassVar[tuple[int, int]] = TrimmedNoise.effort

    @classmethod
    def of(
        cls, mechanism: Mechanism, records: Ints, *, trim: float, client_effect: float
    ) -> "DebiasedNoise":
        """For cohorts of so many records."""
        alike = max(1, round(client_effect))
        sizes = tuple(records.tolist())
        return cls(TrimmedNoise(mechanism, sizes=sizes, trim=trim, alike=alike), client_effect)

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """The divergences at which trimmed means are as high as those of these populations."""
        found = self.biased.values(drawn, score, rng, draws)
        return self.ladder(drawn.points, score).centres(found)

    def ladder(self, points: QueryPoints, score: Score) -> Ladder:
        """The errors before debiasing."""
        return self.biased.ladder(points, score, self.client_effect)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrimmedStatistic:
    """A trimmed mean with noise of one known law, not debiased: what a verdict rests on."""

    value: float
    score: Score
    mean: TrimmedMean
    mechanism: Mechanism

    @property
    def name(self) -> str:
        """Of the divergence."""
        return self.score.divergence.name

    @property
    def unit(self) -> str:
        """Of the divergence, and that it is not debiased."""
        return f"{self.score.unit} (mean of cohorts)".strip()

    @property
    def points(self) -> QueryPoints:
        """Those of every cohort."""
        return self.mean.points

    @property
    def records(self) -> Ints:
        """Of every cohort."""
        return self.mean.records

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The trimmed mean with its noise."""
        return self.value

    def simulated(
        self,
        model: NoDrift,  # noqa: ARG002
        counts: Ints,
        rng: np.random.Generator,  # noqa: ARG002  the noise enters by its distribution function
    ) -> Floats:
        """The values before noise."""
        return self.mean.values(counts, self.score)[:, None]


def estimate_trimmed_mean(
    points: QueryPoints,
    counts: Ints,
    records: Ints,
    *,
    trim: float,
    moved: int,
    calibrated: Calibrated,
    score: Score,
    client_effect: float,
    source: NoiseSource,
) -> Estimate:
    """A divergence from the counts of every cohort, (T, m).

    With noise for what one client with `moved` records can do to it, known once the sums are open;
    then debiased. `points` are those of one batch. The interval is measured: whoever dealt clients
    to cohorts other than at random could give them any scores, so none is guaranteed.
    """
    mean = TrimmedMean.of(points, records, trim)
    asked = BatchCounts(mean.points, np.ravel(counts), mean.records)
    mechanism = calibrated.for_sensitivity(mean.sensitivity(score, moved))
    noisy = float(mechanism.add_to([mean.value(asked.counts, score)], source)[0])
    release = DebiasedNoise.of(mechanism, records, trim=trim, client_effect=client_effect)
    errors = release.ladder(points, score)
    return Estimate(
        method="trimmed mean of cohort scores",
        value=float(errors.centres(np.array([noisy]))[0]),
        target=score.target,
        unit=score.unit,
        payload=points.payload,
        noise_sd=mechanism.standard_deviation,
        limits=lambda: Interval(errors.interval(noisy)),
        statistic=TrimmedStatistic(value=noisy, score=score, mean=mean, mechanism=mechanism),
        typical=partial(_typical, mean, score, errors),
        privacy=state_number(mechanism, calibrated, source),
    )


def _typical(mean: TrimmedMean, score: Score, errors: Ladder, model: NoDrift) -> float:
    """The mean answer without drift."""
    counts = model.counts(TYPICAL, public_simulation())
    return float(errors.centres(mean.values(counts, score)).mean())
