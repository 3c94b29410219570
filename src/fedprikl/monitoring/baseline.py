"""A baseline: what a series is judged against after people accept a drift. Public, at no cost."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedprikl.errors import InvalidInputError
from fedprikl.estimation.noisy_counts import project_counts
from fedprikl.monitoring.channels import Channel
from fedprikl.monitoring.period_counts import PeriodCounts, summed
from fedprikl.reference import QueryPoints, Spread

__all__ = ["baseline_of"]

LEAST = 0.5  # records in a cell: none may be impossible


def baseline_of(
    channels: Sequence[Channel], periods: Sequence[PeriodCounts]
) -> tuple[Channel, ...]:
    """The channels with the shares of these periods, made from their noisy counts, as Pi.

    Their sampling and their noise make the new Pi uncertain, by a variance of
    (noise^2 + h) / h^2 of P / Pi in a cell of h records.

    >>> from fedprikl.monitoring.period_counts import ChannelCounts
    >>> from fedprikl.reference import Reference
    >>> channel = Channel.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> seen = ChannelCounts(counts=np.array([600.0, 300.0, 100.0]), rest=0.0, noise_sd=10.0)
    >>> week = PeriodCounts(number=3, records=1000, clients=10, channels=(seen,))
    >>> (found,) = baseline_of([channel], [week])
    >>> found.pi.round(2).tolist(), found.error.round(4).tolist()
    ([0.6, 0.3, 0.1], [0.0019, 0.0044, 0.02, 0.0001])
    """
    if not periods:
        raise InvalidInputError("A baseline needs at least one counted period.")
    return tuple(_baseline(channel, periods, i) for i, channel in enumerate(channels))


def _baseline(channel: Channel, periods: Sequence[PeriodCounts], place: int) -> Channel:
    seen = summed(channel.points, periods, place)
    noise, records = float(seen.noise_sd[0]) ** 2, int(seen.records[0])
    counts = project_counts(np.append(seen.counts, seen.rest), records)
    held = np.maximum(counts, LEAST)
    held[-1] = counts[-1]  # the rest may well be empty
    pi = held / held.sum()
    error = np.append((noise + held[:-1]) / held[:-1] ** 2, (noise + held[-1]) / records**2)
    spread = channel.spread
    if isinstance(spread, Spread):  # the reference's own error is not part of it any more
        spread = replace(spread, counted=0, discount=0.0)
    whole = np.zeros(max(int(channel.points.cells.max()) + 2, len(pi)))
    whole[channel.points.cells], whole[-1] = pi[:-1], pi[-1]
    points = QueryPoints.build(
        whole,
        cells=channel.points.cells,
        batch=channel.points.batch,
        weights=pi[:-1],
    )
    return replace(channel, points=points, spread=spread, error=error)
