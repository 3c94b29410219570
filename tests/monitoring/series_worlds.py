"""Small series with noisy counts, drawn in the open for tests."""

from collections.abc import Sequence

import numpy as np

from fedprikl.checks import Floats
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts
from fedprikl.privacy import laplace_variance
from fedprikl.reference import Reference

PI = np.array([0.3, 0.2, 0.15, 0.15, 0.1, 0.05, 0.03, 0.02])
MOVED = np.array([0.25, 0.25, 0.15, 0.15, 0.1, 0.05, 0.03, 0.02])
SCALE = 2.0
YEAR = {"false_alarm": 0.05, "per_year": 52, "horizon": 12}


def view(pi: Floats = PI, name: str = "") -> MonitoredView:
    """A view around a known Pi."""
    whole = MonitoredView.of(Reference.from_probabilities(pi))
    return MonitoredView(name=name, points=whole.points, spread=whole.spread)


def noisy(p: Floats, records: int, rng: np.random.Generator, rest: float = 0.0) -> NoisyCounts:
    """Counts of records from P, a share of them in no cell, with discrete Laplace noise."""
    held = rng.multinomial(records, np.append(p * (1 - rest), rest))
    up, down = (np.floor(SCALE * rng.standard_exponential(len(held))) for _ in range(2))
    noise = CountNoise(sd=float(np.sqrt(laplace_variance(SCALE))), scale=SCALE)
    return NoisyCounts.of((held + up - down).tolist(), [records], [noise])


def weeks(
    shares: Sequence[Sequence[Floats]],
    rng: np.random.Generator,
    *,
    records: int = 2000,
    start: int = 0,
    rest: float = 0.0,
) -> list[PeriodCounts]:
    """A period for each row of `shares`: P of every view."""
    return [
        PeriodCounts(
            number=start + number,
            records=records,
            clients=20,
            views=tuple(noisy(p, records, rng, rest) for p in row),
        )
        for number, row in enumerate(shares)
    ]


def drifting(calm: int, moved: int, seed: int = 0) -> list[PeriodCounts]:
    """One view: some periods without drift, then some with."""
    rng = np.random.default_rng(seed)
    return weeks([[PI]] * calm + [[MOVED]] * moved, rng)
