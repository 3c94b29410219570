"""What the null of a period is simulated with: rounded means, so that few simulations serve all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedprikl.monitoring.channels import Channel
from fedprikl.monitoring.null_series import LENGTHS, NullCase
from fedprikl.monitoring.period_counts import PeriodCounts

__all__ = ["Nominal", "nominal_of", "null_cases"]

BLOCK = 52  # periods of a simulated series that are judged, at most
FEWEST, MOST = 400, 2_000  # simulated series
EFFORT = 2**24  # counts that are simulated, of all channels together


@dataclass(frozen=True, slots=True)
class Nominal:
    """The size of a usual period."""

    records: int
    clients: int
    noises: tuple[tuple[float, float | None], ...]  # per channel: sd, and scale of Laplace noise


def nominal_of(periods: Sequence[PeriodCounts]) -> list[Nominal]:
    """For every period, the usual size of the last ones up to it.

    Only what was known then counts, so what is said about a period never changes. Statistics are
    standardised for the numbers of their own periods; how rare they are hardly depends on these.
    """
    return [
        _nominal(periods[max(0, place + 1 - BLOCK) : place + 1]) for place in range(len(periods))
    ]


def _nominal(periods: Sequence[PeriodCounts]) -> Nominal:
    return Nominal(
        records=max(round(_half_octave(_mean([period.records for period in periods]))), 1),
        clients=max(round(_half_octave(_mean([period.clients for period in periods]))), 1),
        noises=tuple(
            (_usual([period.channels[i].noise_sd for period in periods]), last.laplace_scale)
            for i, last in enumerate(periods[-1].channels)
        ),
    )


def null_cases(
    channels: Sequence[Channel], nominal: Nominal, *, per_year: int, horizon: int
) -> tuple[tuple[NullCase, ...], float]:
    """The null of every channel, and how many simulated blocks make a year.

    In a series of more than a block, windows reach back to before it. A year of more periods than
    a block has several, whose chances are added up.
    """
    judged = min(BLOCK, per_year, horizon)
    periods = min(judged + LENGTHS[-1] - 1, horizon)
    cells = sum(len(channel.points) + 1 for channel in channels)
    worlds = 2 if any(channel.alike for channel in channels) else 1
    series = min(max(EFFORT // (periods * cells * worlds), FEWEST), MOST)
    cases = tuple(
        NullCase(
            channel=channel,
            records=nominal.records,
            clients=nominal.clients,
            noise_sd=noise_sd,
            laplace_scale=scale,
            periods=periods,
            judged=judged,
            series=series,
        )
        for channel, (noise_sd, scale) in zip(channels, nominal.noises, strict=True)
    )
    return cases, min(per_year, horizon) / judged


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _usual(values: Sequence[float]) -> float:
    """Exactly, as long as nothing changes."""
    if max(values) <= min(values) * (1 + 1e-9):
        return values[0]
    return _half_octave(math.sqrt(_mean([value**2 for value in values])))


def _half_octave(value: float) -> float:
    """The nearest power of sqrt(2)."""
    return float(2 ** (round(2 * math.log2(value)) / 2)) if value > 0 else 0.0
