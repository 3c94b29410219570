"""Windows of a series: the sum of the noisy counts of several periods is one longer period."""

from collections.abc import Sequence

from fedprikl.estimation import ColumnSize, column_sizes
from fedprikl.monitoring.channels import Channel
from fedprikl.monitoring.period_counts import PeriodCounts, summed
from fedprikl.monitoring.status import Size, WindowFacts

__all__ = ["sizes_of", "window_values"]


def window_values(
    channels: Sequence[Channel],
    periods: Sequence[PeriodCounts],
    lengths: Sequence[int] = (4, 13, 52),
) -> tuple[WindowFacts, ...]:
    """How large the drift of the last 4, 13 and 52 counted periods is, each taken together.

    Post-processing of public noisy counts: it costs no privacy. Windows longer than the series so
    far are left out. Cost: 30 ms for a divergence of 12 cells.

    >>> import numpy as np
    >>> from fedprikl.monitoring.period_counts import ChannelCounts
    >>> from fedprikl.reference import Reference
    >>> seen = ChannelCounts(counts=np.array([600.0, 300.0, 100.0]), rest=0.0, noise_sd=3.0)
    >>> weeks = [PeriodCounts(number=n, records=1000, clients=9, channels=(seen,)) for n in (0, 1)]
    >>> channel = Channel.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> (found,) = window_values([channel], weeks, lengths=(2, 4))
    >>> found.first, found.last, found.records
    (0, 1, 2000)
    >>> [(size.divergence, round(size.value, 2)) for size in found.sizes]
    [('kl', 0.05), ('tv', 0.1), ('js', 0.01)]
    """
    return tuple(
        WindowFacts(
            name=channel.name,
            length=length,
            first=periods[-length].number,
            last=periods[-1].number,
            records=sum(period.records for period in periods[-length:]),
            sizes=sizes_of(channel, periods[-length:], place),
        )
        for length in lengths
        if 1 <= length <= len(periods)
        for place, channel in enumerate(channels)
    )


def sizes_of(channel: Channel, periods: Sequence[PeriodCounts], place: int) -> tuple[Size, ...]:
    """The divergences of a channel over some periods together; it stands at this place in each.

    Without drift, clients that stay the same differ from the reference by as much in many periods
    as in one.
    """
    noisy = summed(channel.points, periods, place)
    records = round(int(noisy.records[0]) / len(periods))
    clients = max(round(sum(period.clients for period in periods) / len(periods)), 1)
    found = column_sizes(noisy, channel.spread_at(records, clients), channel.scores)
    return tuple(_size(each) for each in found)


def _size(found: ColumnSize) -> Size:
    return Size(
        divergence=found.divergence,
        value=found.value,
        interval=found.interval,
        no_drift=found.no_drift,
        unit=found.unit,
    )
