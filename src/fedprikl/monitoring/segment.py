"""A stretch of a series that is judged against one baseline: statistics of all its windows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.monitoring.channels import Channel
from fedprikl.monitoring.period_counts import PeriodCounts
from fedprikl.monitoring.statistic import WindowStatistic

__all__ = ["Segment", "Watched"]


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """Running sums of one channel over the periods of a segment, from 0 periods to all."""

    channel: Channel
    counts: Floats  # (periods + 1, cells + 1)
    records: Floats  # (periods + 1), and so are all others
    clients: Floats
    noise: Floats  # variance
    fourth: Floats  # cumulant of the noise

    @classmethod
    def of(cls, channel: Channel, place: int, periods: Sequence[PeriodCounts]) -> "Watched":
        """The channel that stands at this place in every period."""
        seen = [period.channels[place] for period in periods]
        return cls(
            channel,
            _running([each.all for each in seen]),
            _running([period.records for period in periods]),
            _running([period.clients for period in periods]),
            _running([each.noise_sd**2 for each in seen]),
            _running([each.noise_fourth for each in seen]),
        )

    def statistics(self, first: Sequence[int] | Ints, last: Sequence[int] | Ints) -> Floats:
        """z of windows from period `first` to `last` of the segment, both included.

        One row for each lens, one column for each window.
        """
        start, end = np.asarray(first), np.asarray(last) + 1
        length = end - start
        counts, records, clients, noise, fourth = (
            sums[end] - sums[start]
            for sums in (self.counts, self.records, self.clients, self.noise, self.fourth)
        )
        # Windows of the same size have the same law; running sums differ in the last digits.
        sizes = np.column_stack([records, records / length, clients / length, noise, fourth])
        distinct, which = np.unique(sizes.round(6), axis=0, return_inverse=True)
        shares, lasting = self.channel.shares, self.channel.lasting(*distinct[:, 1:3].T)
        found = []
        for lens in self.channel.lenses:
            law = WindowStatistic.of(
                lens,
                shares,
                lasting,
                records=distinct[:, 0],
                noise=distinct[:, 3],
                fourth=distinct[:, 4],
            )
            found.append(law.take(which.ravel())(lens.sums(counts)))
        return np.array(found)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Periods that are judged against one baseline: None is the reference."""

    baseline: tuple[int, int] | None
    periods: tuple[PeriodCounts, ...]
    channels: tuple[Watched, ...]

    @classmethod
    def of(
        cls,
        channels: Sequence[Channel],
        periods: Sequence[PeriodCounts],
        baseline: tuple[int, int] | None = None,
    ) -> "Segment":
        """These periods beside these channels."""
        watched = (Watched.of(channel, i, periods) for i, channel in enumerate(channels))
        return cls(baseline, tuple(periods), tuple(watched))


def _running(values: Sequence[Floats] | Sequence[float]) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    return np.concatenate([np.zeros((1, *found.shape[1:])), np.cumsum(found, axis=0)])
