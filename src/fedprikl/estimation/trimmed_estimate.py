"""The answer of a trimmed mean of cohort scores: noise, interval and what a verdict rests on."""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.envelope import ladder
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.interval import Interval
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.trials import Populations, ValueNoise, noise_quantiles
from fedprikl.estimation.trimmed import TrimmedMean
from fedprikl.privacy import Calibrated, Mechanism, NoiseSource, PrivacyStatement
from fedprikl.reference import QueryPoints

__all__ = ["TrimmedNoise", "TrimmedStatistic", "estimate_trimmed_mean"]

TRUST = "the aggregator, with the exact sums of each cohort; the server sees the release only."
DEALS = 2  # of a simulated population to cohorts


@dataclass(frozen=True, slots=True)
class TrimmedNoise(ValueNoise):
    """The trimmed mean of cohort scores with additive noise, of clients dealt at random."""

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


def trimmed_interval(
    value: float,
    *,
    mechanism: Mechanism,
    points: QueryPoints,
    records: Ints,
    trim: float,
    score: Score,
    client_effect: float,
    level: float = 0.95,
) -> Interval:
    """Measured: populations of all kinds of drift, dealt to cohorts at random, are simulated."""
    release = TrimmedNoise(
        mechanism, sizes=tuple(records.tolist()), trim=trim, alike=max(1, round(client_effect))
    )
    everybody = np.array([records.sum()])
    found = ladder(points, everybody, score, release, level=level, design_effect=client_effect)
    return Interval(found.interval(value))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrimmedStatistic:
    """A trimmed mean with noise of one known law: what a verdict rests on."""

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
        """Of the divergence."""
        return self.score.unit

    @property
    def points(self) -> QueryPoints:
        """Those of every cohort."""
        return self.mean.points

    @property
    def records(self) -> Ints:
        """Of every cohort."""
        return self.mean.records

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The released value."""
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

    With noise for what one client with `moved` records can do to it, known once the sums are open.
    `points` are those of one batch. The interval is measured: whoever dealt clients to cohorts
    other than at random could give them any scores, so none is guaranteed.
    """
    mean = TrimmedMean.of(points, records, trim)
    asked = BatchCounts(mean.points, np.ravel(counts), mean.records)
    mechanism = calibrated.for_sensitivity(mean.sensitivity(score, moved))
    value = float(mechanism.add_to([mean.value(asked.counts, score)], source)[0])
    return Estimate(
        method="trimmed mean of cohort scores",
        value=value,
        target=score.target,
        unit=score.unit,
        payload=points.payload,
        noise_sd=mechanism.standard_deviation,
        limits=partial(
            trimmed_interval,
            value,
            mechanism=mechanism,
            points=points,
            records=records,
            trim=trim,
            score=score,
            client_effect=client_effect,
        ),
        statistic=TrimmedStatistic(value=value, score=score, mean=mean, mechanism=mechanism),
        privacy=PrivacyStatement(
            epsilon=mechanism.epsilon(calibrated.delta),
            delta=mechanism.proved_delta(calibrated.delta),
            claimed_epsilon=calibrated.epsilon,
            mechanism=str(mechanism),
            released="one number",
            trust=TRUST,
            sensitivity=mechanism.sensitivity,
            insecure=source.insecure,
        ),
    )
