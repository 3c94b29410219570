"""How often a verdict finds a drift, and the least drift that it finds nearly always. Public."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.findable import findable_drift
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import Statistic, above
from fedprikl.estimation.verdict import joint_thresholds, simulate_together
from fedprikl.libraries import scipy

POWER = 0.95
FEW = 200  # populations that tell where to look
MANY_POPULATIONS, MANY_COUNTS = 2000, 400_000  # that tell the size, and their counts
FURTHEST = math.log(2)  # from a known size, on a line
FINE = 2  # further sizes that are looked at with many populations
LEAST = 1e-9  # nobody looks for less
NOISES = 64  # populations whose adaptive noise is computed


@dataclass(frozen=True, eq=False)
class VerdictPower:
    """A verdict whose thresholds are known, as a function of how the population has drifted."""

    judged: Sequence[tuple[Statistic, float]]  # with their thresholds; hopeless ones are left out
    noises: Sequence[Floats | None]  # of each without drift, where it is adaptive: (draws, m)
    model: NoDrift

    @classmethod
    def of(
        cls,
        statistics: Sequence[Statistic],
        model: NoDrift,
        false_alarm: float,
        populations: Sequence[Ints],
    ) -> "VerdictPower":
        """With the thresholds that a release with these statistics has.

        `populations` are counts without drift.
        """
        draws = sum(map(len, populations))
        nulls = simulate_together(statistics, model, draws=draws, populations=populations)
        limits = joint_thresholds(nulls, false_alarm=false_alarm)
        known = [
            ((statistic, max(limit, null.possible[0])), null.noise)
            for statistic, null, limit in zip(statistics, nulls, limits, strict=True)
            if limit < math.inf
        ]
        return cls([judged for judged, _ in known], [noise for _, noise in known], model)

    def at(self, counts: Ints) -> float:
        """How often drift is found in populations with these counts, one a row.

        Small drifts hardly change adaptive noise, which is costly to compute: it is as without.
        """
        rng, missed = np.random.default_rng([SEED, 1]), np.ones(len(counts))
        for (statistic, threshold), noise in zip(self.judged, self.noises, strict=True):
            values = statistic.simulated(self.model, counts, rng)
            if noise is not None:
                values = values + noise[:NOISES].ravel()
            missed *= 1 - above(values, threshold, statistic.mechanism)
        return float(1 - missed.mean())

    @cached_property
    def findable(self) -> tuple[bool, float | None]:
        """Whether the verdict can tell, and the least total variation that is found half of the
        time: as a release says it.
        """
        return findable_drift(self.judged, self.model, self.noises)


def drifted_counts(model: NoDrift, examples: Floats, populations: int) -> Ints:
    """Counts of so many populations with these P / Pi of the terms, one example a row.

    The random numbers are the same for all drifts.
    """
    each = max(1, populations // len(examples))
    return model.counts(each * len(examples), np.random.default_rng(SEED), examples)


def least_found(
    power: Callable[[float, int], float], start: float, largest: float, many: int = 0
) -> float | None:
    """The least size that is found with 95% power; None if not even the largest is.

    `power` is that of a size, from so many populations, and rises with it. Of the sizes

        start 2^(j/2),  j = ..., -1, 0, 1, ...

    the least one that is found is looked for, with few populations. Between it and the one before,
    the power is taken as a normal probability in the logarithm of the size (a probit line); with
    `many` populations the line is drawn again through sizes near the goal.

    >>> from statistics import NormalDist
    >>> true = lambda size, _: NormalDist(math.log(0.02), 0.3).cdf(math.log(size))
    >>> round(least_found(true, 0.001, 1.0, many=1), 3)  # exactly: 0.02 exp(0.3 * 1.645)
    0.033
    >>> least_found(true, 0.001, 0.025)
    """

    def size(place: int) -> float:
        return min(rounded(start * 2 ** (place / 2)), largest)

    rough = {0: power(size(0), FEW)}
    place, step = 0, -1 if rough[0] >= POWER else 1
    while (rough[place] >= POWER) == (step < 0) and size(place) > LEAST:
        if step > 0 and size(place) >= largest:
            return None
        place += 2 * step
        rough[place] = power(size(place), FEW)
    place -= step
    rough[place] = power(size(place), FEW)
    found = min(place for place, seen in rough.items() if seen >= POWER)
    if found - 1 not in rough:
        return size(found)
    known = {size(place): rough[place] for place in (found - 1, found)}
    if many == 0:
        return _on_the_line(known)
    known = {each: power(each, many) for each in known}
    for _ in range(FINE):
        guess = min(rounded(_on_the_line(known)), largest)
        known[guess] = power(guess, many)
    return min(_on_the_line(known), largest)


def chi_square_drift(cells: int, records: float, false_alarm: float) -> float:
    """The KL, in nats, that a chi-square test of the raw counts finds with 95% power.

    2 N KL is the noncentrality of the statistic, for small drifts of whatever kind.

    >>> round(chi_square_drift(62, 50_000, 0.01), 5)
    0.00058
    """
    degrees = max(cells - 1, 1)
    threshold = float(scipy.special.chdtri(degrees, false_alarm))

    def missed(noncentrality: float) -> float:
        return float(scipy.special.chndtr(threshold, degrees, noncentrality)) - (1 - POWER)

    found = scipy.optimize.brentq(missed, 0.0, 50 + 10 * threshold)
    return float(found) / (2 * records)


def rounded(size: float) -> float:
    """With four digits: a size that differs by rounding alone is the same on every processor."""
    return float(f"{size:.4g}")


def _on_the_line(known: dict[float, float]) -> float:
    """Where the probit line through the sizes next to the goal, on both sides, reaches it.

    Two on one side may be so near each other that the chance in their power is all of the slope:
    they serve only where there is none on the other side.

    >>> round(_on_the_line({0.03: 0.80, 0.037: 0.916, 0.0416: 0.956, 0.043: 0.958}), 4)
    0.0407
    """
    goal = scipy.special.ndtri(POWER)
    levels = {
        size: float(scipy.special.ndtri(np.clip(seen, 1e-3, 1 - 1e-4)))
        for size, seen in known.items()
    }
    order = sorted(levels, key=lambda size: abs(levels[size] - goal))
    near = order[:2]
    others = [size for size in order if (levels[size] < goal) != (levels[near[0]] < goal)]
    if others:
        near = [near[0], others[0]]
    one, other = min(near), max(near)
    slope = (levels[other] - levels[one]) / math.log(other / one) if other > one else 0.0
    if slope <= 0:
        return near[0]
    steps = float(np.clip((goal - levels[near[0]]) / slope, -FURTHEST, FURTHEST))
    return near[0] * math.exp(steps)
