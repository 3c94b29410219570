"""What a verdict could have found, from its design and its thresholds alone: public.

Drifts towards extremes: a record keeps its value, or takes one of an extreme population E,

    P_s = (1 - s) Pi + s E,    TV(Pi, P_s) = s TV(Pi, E)

Populations without drift are simulated, their records moved, and the verdict's statistics computed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.no_drift import NoDrift, public_noise, public_simulation
from fedprikl.estimation.noisy_counts import whole_counts
from fedprikl.estimation.statistic import Statistic, above
from fedprikl.search import bisect

POPULATIONS = 400
POWER = 0.5
UNSURE = 0.08  # of a power that so few populations tell: three standard deviations
SMALLEST, HALVINGS = 2**-16, 9  # of the size that is sought, in shares of the largest; to 2%


@dataclass(frozen=True, slots=True, eq=False)
class Extreme:
    """A population that all drift leads to."""

    tv: float  # TV(Pi, E)
    # Counts without drift (draws, terms), of whose records a share has moved.
    moved: Callable[[Ints, float, np.random.Generator], Ints]


def extremes(model: NoDrift, known: float) -> list[Extreme]:
    """All records in no asked cell, in the heaviest one, in the rarest one; and half of the mass,
    of heavy cells or of rare ones, in all others. `known` is the mass of the asked cells.
    """
    pi, records = model.pi, model.records_per_term
    order = np.argsort(-pi, kind="stable")

    def away(counts: Ints, share: float, rng: np.random.Generator) -> Ints:
        return rng.binomial(counts, 1 - share)

    def into(term: int) -> Extreme:
        batches = model.batch[model.term == term]
        beside = np.unique(model.term[np.isin(model.batch, batches)])  # of the same batches

        def moved(counts: Ints, share: float, rng: np.random.Generator) -> Ints:
            found = away(counts, share, rng)
            found[:, term] = counts[:, term]
            elsewhere = np.maximum(records[term] - counts[:, beside].sum(axis=1), 0)
            taken = (counts - found)[:, beside].sum(axis=1) + rng.binomial(elsewhere, share)
            found[:, term] += np.minimum(taken, records[term] - counts[:, term])
            return found

        return Extreme(1 - float(pi[term]), moved)

    def emptied(order: Ints) -> Extreme:
        mass = np.cumsum(pi[order]) / pi.sum()
        gone = order[: min(int(np.searchsorted(mass, 0.5)) + 1, len(order) - 1)]
        weights = records * pi
        weights[gone] = 0.0
        weights /= weights.sum()

        def moved(counts: Ints, share: float, rng: np.random.Generator) -> Ints:
            left = counts.copy()
            left[:, gone] = away(counts[:, gone], share, rng)
            free = (counts - left).sum(axis=1, keepdims=True)
            return left + whole_counts(free * weights, rng).astype(np.int64)

        return Extreme(known * float(mass[len(gone) - 1]), moved)

    found = [Extreme(min(known, 1.0), away)]
    if len(pi) > 1:
        found += [into(int(order[0])), into(int(order[-1])), emptied(order), emptied(order[::-1])]
    return found


def findable_drift(
    judged: Sequence[tuple[Statistic, float]], model: NoDrift, noises: Sequence[Floats | None]
) -> tuple[bool, float | None]:
    """Whether a verdict can tell, and the least total variation that half of the time is found.

    It can tell if towards any extreme a drift of half the largest possible size is found half of
    the time. None: not even the extremes are. `judged` are statistics with their thresholds,
    `noises` the usual noise of those whose noise depends on the counts, (draws, repetitions).
    Cost: 20 ms for 12 cells, half a second for 500.
    """
    if not judged:
        return False, None
    points = judged[0][0].points
    _, first = np.unique(points.cells, return_index=True)
    directions = extremes(model, math.fsum(points.pi[first].tolist()))
    counts = model.counts(POPULATIONS, public_simulation())

    def power(towards: Extreme, tv: float) -> float:
        rng = public_noise()
        held = towards.moved(counts, min(tv / towards.tv, 1.0), rng)
        missed = np.ones(POPULATIONS)
        for (statistic, threshold), noise in zip(judged, noises, strict=True):
            values = statistic.simulated(model, held, rng)
            if noise is not None:
                values = values + noise[:POPULATIONS]
            missed *= 1 - above(values, threshold, statistic.mechanism)
        return float(1 - missed.mean())

    least = math.inf
    for each in directions:
        most = min(least, each.tv)
        if most <= 0 or power(each, most) < POWER:
            continue

        def finds(halvings: float, most: float = most, towards: Extreme = each) -> bool:
            return power(towards, most * 2**-halvings) >= POWER

        furthest = -math.log2(SMALLEST)
        fewest = furthest if finds(furthest) else bisect(finds, 0.0, furthest, halvings=HALVINGS)[0]
        least = most * 2**-fewest
    half = max(each.tv for each in directions) / 2
    can_tell = least <= half or any(
        power(each, min(half, each.tv)) >= POWER - UNSURE for each in directions if each.tv > 0
    )
    return can_tell, None if least == math.inf else least
