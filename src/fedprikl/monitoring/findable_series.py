"""What the tests of a series could have found, from its design and thresholds alone: public.

A drift that lasts through all counted periods, towards an extreme population E,

    P_s = (1 - s) Pi + s E,    TV(Pi, P_s) = s TV(Pi, E)

where E has all records out of the domain, in the heaviest cell, or in the rarest one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedprikl.checks import Floats
from fedprikl.estimation.findable import HALVINGS, POWER, SMALLEST, UNSURE
from fedprikl.monitoring.alarms import FindableInSeries
from fedprikl.monitoring.monitored_views import MonitoredView
from fedprikl.monitoring.null_series import NullCase, ViewNull, null_counts, total_variation
from fedprikl.reference import Spread
from fedprikl.search import bisect

FEWEST, MOST = 60, 120  # simulated series
ENDS = 12  # of windows, at most, the last period among them: those of others show nearly the same
EFFORT = 2**18  # counts that are simulated, of one view


def findable_in_series(
    cases: Sequence[NullCase],
    nulls: Sequence[ViewNull],
    depths: tuple[float, float],
    counted: int,
    *,
    variation: float = math.inf,
) -> FindableInSeries:
    """What the tests find, more often than not, once so many periods are counted.

    Looked at are windows that end with some of them, each beside its test's threshold; where a
    drift is tolerated, its total variation too, beside that of this depth (`variation`). A drift
    shifts the mean of the counts, which vary as they do without. Cost: 20 ms for 12 cells and a
    year of weeks, a quarter of a second for 500 cells.
    """
    least, untold = math.inf, []
    for case, null in zip(cases, nulls, strict=True):
        towards = extremes(case.view)
        power = _power(case, null, depths, counted, variation)
        half = (case.view.tolerance + max(tv for tv, _ in towards)) / 2
        if not any(power(e, min(half / tv, 1.0)) >= POWER - UNSURE for tv, e in towards):
            untold.append(case.view.name)
        for tv, extreme in towards:
            least = _least(partial(power, extreme), tv, least)
    return FindableInSeries(
        can_tell=len(untold) < len(cases),
        findable=None if least == math.inf else least,
        untold=tuple(untold),
        ordinary=any(_has_times(case.view) for case in cases),
    )


def _least(power: Callable[[float], float], tv: float, known: float) -> float:
    """The least total variation that half of the time is found, if it is below the known one."""
    most = min(known, tv)
    if power(most / tv) < POWER:
        return known
    fewest, _ = bisect(
        lambda halvings: power(most / tv * 2**-halvings) >= POWER,
        0.0,
        -math.log2(SMALLEST),
        halvings=HALVINGS,
    )
    return float(most * 2**-fewest)


def extremes(view: MonitoredView) -> list[tuple[float, Floats]]:
    """TV(Pi, E) and E, out of the domain last: all there, in the heaviest cell, in the rarest.

    >>> from fedprikl.reference import Reference
    >>> view = MonitoredView.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> [(round(tv, 6), e.tolist()) for tv, e in extremes(view)]
    [(1.0, [0.0, 0.0, 0.0, 1.0]), (0.5, [1.0, 0.0, 0.0, 0.0]), (0.8, [0.0, 0.0, 1.0, 0.0])]
    """
    shares = view.shares / view.shares.sum()
    places = dict.fromkeys([len(shares) - 1, int(view.pi.argmax()), int(view.pi.argmin())])
    found = [(1 - float(shares[place]), np.eye(len(shares))[place]) for place in places]
    return [(tv, e) for tv, e in found if tv > 0]


def _power(
    case: NullCase, null: ViewNull, depths: tuple[float, float], counted: int, variation: float
) -> Callable[[Floats, float], float]:
    """How often a drift of share s towards E is found in windows that end with some periods."""
    periods = min(counted, case.periods)
    lengths = [length for length in case.lengths if length <= periods]
    cells = len(case.view.points) + 1
    series = min(max(EFFORT // (periods * cells), FEWEST), MOST)
    few = replace(case, periods=periods, series=series)
    counts = np.concatenate([each for each, _ in null_counts(few, same_clients=True)])
    total = np.concatenate([np.zeros((series, 1, cells)), np.cumsum(counts, axis=1)], axis=1)
    ends = np.unique(np.linspace(1, periods, min(periods, ENDS)).round().astype(int))
    sums = {n: total[:, ends[ends >= n]] - total[:, ends[ends >= n] - n] for n in lengths}
    groupings = case.view.groupings
    laws = {length: [case.statistic(each, length) for each in groupings] for length in lengths}
    shares, tolerance = case.view.shares / case.view.shares.sum(), case.view.tolerance

    def power(extreme: Floats, share: float) -> float:
        found = np.zeros(series, dtype=bool)
        for length in lengths:
            moved = sums[length] + length * case.records * share * (extreme - shares)
            pairs = zip(laws[length], groupings, strict=True)
            values = np.array([law(grouping.sums(moved)) for law, grouping in pairs])
            above = null.depth(length, values) > depths[length > 1]
            if tolerance:
                least = tolerance + null.least_variation(length, variation)
                above &= total_variation(moved, case.view.shares, length * case.records) > least
            found |= above.any(axis=1)
        return float(found.mean())

    return power


def _has_times(view: MonitoredView) -> bool:
    return isinstance(view.spread, Spread) and view.spread.periods != ""
