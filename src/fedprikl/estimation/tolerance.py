"""Drift that matters: whether the total variation is beyond what somebody said does not matter.

By the triangle inequality the total variation T of the records that were counted, with noise, is at
most that of the population plus how far the counts are from the population. That is known if the
population has not drifted, but a cell of 1% of the records varies less than one that has gained 5%.
So populations at the tolerance are simulated too, in which records have moved to some extreme
(`findable.py`), and the threshold is the largest: of the tolerance plus what T exceeds at a level
without drift, and of what T exceeds at this level in each of them.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.findable import extremes
from fedprikl.estimation.no_drift import NoDrift, public_noise, public_simulation
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
    limits = _limits(variations, model, tolerated, -math.log(level))
    best = int(np.argmin(limits))
    return Tolerance(
        tolerated=tolerated,
        value=float(min(max(variations[best].observed(model), 0.0), 1.0)),
        threshold=float(min(limits[best], 1.0)),  # signed as JSON, which NumPy's numbers are not
    )


def _limits(
    variations: Sequence[Statistic], model: NoDrift, tolerated: float, depth: float
) -> Floats:
    """What each total variation exceeds with probability exp(-depth), at the tolerance."""
    rng, counts = public_noise(), list(model.chunks(DRAWS, public_simulation()))
    ends = extremes(model, math.fsum(model.pi.tolist()))
    shares = [0.0, *(min(tolerated / max(each.tv, tolerated), 1.0) for each in ends)]
    found = []
    for end, share in zip([ends[0], *ends], shares, strict=True):
        moved = [end.moved(some, share, rng) for some in counts] if share else counts
        nulls = simulate_together(variations, model, draws=DRAWS, rng=rng, populations=moved)
        tails = [tail_of(null.values.ravel(), null.mechanism).threshold(depth) for null in nulls]
        found.append(np.array(tails) + (0.0 if share else tolerated))
    return np.asarray(np.max(found, axis=0))
