"""The noisy counts of one period of a series, per channel. Public."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts
from fedprikl.privacy import laplace_variance
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question_noise import noises_of
from fedprikl.protocol.release import Release
from fedprikl.reference import QueryPoints, Reference, all_points

__all__ = ["ChannelCounts", "PeriodCounts", "counts_of", "summed"]


MANY = 13  # periods whose noise is taken as normal together


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChannelCounts:
    """Noisy counts of all cells of a channel, and of the records in none of them."""

    counts: Floats  # per cell
    rest: float
    noise_sd: float  # of the noise on each
    laplace_scale: float | None = None  # of discrete Laplace noise; None: about normal noise

    @property
    def all(self) -> Floats:
        """The counts, the rest last."""
        return np.append(self.counts, self.rest)

    @property
    def noise_fourth(self) -> float:
        """The fourth cumulant of the noise: s Laplace variables of variance v have 3 s v^2."""
        if self.laplace_scale is None:
            return 0.0
        return 3 * self.noise_sd**2 * laplace_variance(self.laplace_scale)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PeriodCounts:
    """What the release of one period says, channel by channel."""

    number: int  # of the period, from 0
    records: int
    clients: int  # whose records are counted
    channels: tuple[ChannelCounts, ...]  # in the order of `channels_of`

    def __post_init__(self) -> None:
        check_positive_int(self.records, "records")
        check_positive_int(self.clients, "clients")


def counts_of(release: Release, plan: Plan, reference: Reference, number: int) -> PeriodCounts:
    """The noisy counts of a release, which is that of period `number`."""
    found: list[ChannelCounts] = []
    if plan.questions:
        noisy = release.noisy_counts
        if noisy is None or noisy.cells != tuple(all_points(reference.probabilities).cells):
            raise InvalidInputError("A release of a series has the noisy counts of every cell.")
        found.append(
            ChannelCounts(
                counts=np.array(noisy.counts),
                rest=noisy.rest[0],
                noise_sd=noisy.noise_sd[0],
                laplace_scale=noisy.noise.scale,
            )
        )
    if release.columns:
        scale = _column_scale(release, plan)
        found += (
            ChannelCounts(
                counts=np.array([cell.count for cell in column.cells]),
                rest=column.rest,
                noise_sd=column.noise_sd,
                laplace_scale=scale,
            )
            for column in release.columns
        )
    return PeriodCounts(
        number=number,
        records=release.records,
        clients=sum(cohort.included for cohort in release.cohorts),
        channels=tuple(found),
    )


def _column_scale(release: Release, plan: Plan) -> float | None:
    """Of the Laplace noise on the counts of columns, which follows from the plan."""
    if plan.trust == "none":
        counted = [cohort.clients for cohort in release.cohorts if cohort.included]
        return NoisyHistogram(plan).worst_share(counted).laplace_scale
    columns = noises_of(plan)[1]
    return None if columns is None else getattr(columns.counts, "scale", None)


def summed(points: QueryPoints, periods: Sequence[PeriodCounts], channel: int) -> NoisyCounts:
    """The noisy counts of several periods as one longer period: noises add up.

    The sum of many Laplace variables is about normal (13: an excess kurtosis of 0.23), and normal
    noise is simulated many times as fast.

    >>> one = ChannelCounts(counts=np.array([5.0, 4.0]), rest=1.0, noise_sd=3.0)
    >>> week = PeriodCounts(number=0, records=10, clients=2, channels=(one,))
    >>> both = summed(all_points([0.5, 0.5]), [week, week], 0)
    >>> both.counts.tolist(), both.records.tolist(), both.noise_sd.round(2).tolist()
    ([10.0, 8.0], [20], [4.24])
    """
    counted = [period.channels[channel] for period in periods]
    scales = {each.laplace_scale for each in counted}
    return NoisyCounts(
        points=points,
        counts=np.sum([each.counts for each in counted], axis=0),
        rest=np.array([sum(each.rest for each in counted)]),
        records=np.array([sum(period.records for period in periods)]),
        noise_sd=np.sqrt([sum(each.noise_sd**2 for each in counted)]),
        laplace_scale=scales.pop() if len(scales) == 1 and len(periods) < MANY else None,
    )
