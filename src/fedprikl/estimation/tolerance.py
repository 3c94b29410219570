"""Drift that matters: whether the total variation is beyond what somebody said does not matter.

By the triangle inequality the total variation T of the records that were counted, with noise, is at
most that of the population plus what T is without drift. So T above the tolerance plus a high
quantile of that shows a drift beyond the tolerance, in whatever cells it is:

    P(T > tolerance + t) <= level    for every P with TV(Pi, P) <= tolerance,
    t: what T exceeds with this probability without drift
"""

import math
from collections.abc import Sequence

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.noisy_counts import CountsDesign, NoisyCounts
from fedprikl.estimation.outcome import Tolerance
from fedprikl.estimation.statistic import Statistic
from fedprikl.estimation.verdict import simulate_together, tail_of
from fedprikl.reference import QueryPoints

DRAWS = 4_000
TV = "tv"


def counted_variation(points: QueryPoints, noisy: NoisyCounts) -> Statistic:
    """T of noisy counts of all cells and out of the domain, in one batch."""
    design, (records,) = CountsDesign.of(points, noisy), noisy.records
    shares = np.append(points.pi, max(0.0, 1 - math.fsum(points.pi.tolist())))

    def variation(counts: Floats, outside: Floats) -> Floats:
        seen = np.concatenate([counts, outside], axis=-1) / records
        return np.asarray(np.abs(seen - shares).sum(axis=-1) / 2)

    def simulated(_model: NoDrift, held: Ints, rng: np.random.Generator) -> Floats:
        on_counts, on_outside = design.draw_noise(rng, len(held))
        outside = records - held.sum(axis=1, keepdims=True)
        return variation(held + on_counts, outside + on_outside)[:, None]

    seen = float(variation(np.array(noisy.counts), np.array(noisy.out_of_domain)))
    return Statistic(
        name=TV,
        unit="",
        points=points,
        records=np.array([records]),
        observed=lambda _: seen,
        simulated=simulated,
    )


def judge_tolerance(
    variations: Sequence[Statistic], model: NoDrift, *, tolerated: float, level: float
) -> Tolerance | None:
    """Whether a view has drifted by more than is tolerated; None if T is not known, or nothing is.

    `variations` are total variations that were released, by themselves or with noisy counts. The
    one that is least without drift decides: that is public.
    """
    if not tolerated or not variations:
        return None
    nulls = simulate_together(variations, model, draws=DRAWS)
    depth = -math.log(level)
    limits = [tail_of(null.values.ravel(), null.mechanism).threshold(depth) for null in nulls]
    best = int(np.argmin(limits))
    return Tolerance(
        tolerated=tolerated,
        value=min(max(variations[best].observed(model), 0.0), 1.0),
        threshold=min(tolerated + limits[best], 1.0),
    )
