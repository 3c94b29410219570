"""The median of a column that is cut into bins: from public noisy counts, so it costs no privacy.

Where in its bin the median lies is a guess: the values of a bin are taken as evenly spread. The
interval is none: its ends are edges of bins, and it holds however they are spread.
"""

import math

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.cells import LEVEL, REACH, CountLaw, survival_of
from fedprikl.estimation.noisy_counts import CountedView, sum_noise
from fedprikl.reference import Spread
from fedprikl.reference.client_counts import ClientCounts

NODES = 129
ROUNDING = 1e-9


def binned_median(shares: Floats, edges: Floats, step: float = 0.0) -> float:
    """The value that half of the records do not exceed, in the unit of the edges.

    Bin i is (edges[i - 1], edges[i]]; the first and the last are open, and a median in them is
    -inf or inf. Inside a bin it is interpolated; values that are multiples of a `step` stay such.

    >>> binned_median(np.array([0.25, 0.5, 0.25]), np.array([0.0, 8.0]))
    4.0
    >>> binned_median(np.array([0.6, 0.4]), np.array([0.0]))
    -inf
    """
    reached = np.cumsum(shares) / np.sum(shares)
    place = int(np.argmax(reached >= 0.5 - ROUNDING))
    if place == 0 or place == len(edges):
        return math.inf if place else -math.inf
    low, high = float(edges[place - 1]), float(edges[place])
    part = (0.5 - reached[place - 1]) / (reached[place] - reached[place - 1])
    exact = low + float(part) * (high - low)
    return min(math.ceil(exact / step - ROUNDING) * step, high) if step else exact


def median_interval(view: CountedView, bins: Ints, edges: Floats) -> tuple[float, float]:
    """The two ends of the 95% interval of the population's median: edges, or -inf and inf.

    `bins` are the cells of the view that are bins, in order; records in other cells (missing
    values) have no part in it. With L records up to edge e, and R above it,

        the median is above e only if L - R is below 0 on average, and else up to e.

    An edge is a lower end if a noisy L - R as small as seen has a probability under 2.5% where
    both are equally many, and so have all edges before it: going from edge to edge until the first
    that is not, one test decides, however many there are. Upper ends are found from the other side.
    L - R varies by the noise of all its counts, and by sampling with the clients' correlation:

        sd(L - R) <= sd(L) + sd(R),    sd(L)^2 = d N p (1 - p),    p = share(L) = share(R)

    where d is the design effect of L as one cell: a client's values lie close together, so it can
    be far larger than those of its bins.

    >>> from fedprikl.estimation import CountNoise, NoisyCounts
    >>> from fedprikl.reference import all_points
    >>> noisy = NoisyCounts.of([900.0, 700.0, 1900.0, 1500.0, 3.0], [5000], [CountNoise(sd=10.0)])
    >>> view = CountedView(all_points([0.25] * 4), noisy, 1.0)
    >>> median_interval(view, np.arange(4), np.array([0.0, 5.0, 15.0]))
    (5.0, 15.0)
    """
    noisy = view.noisy
    (records,), counts = noisy.records, np.array(noisy.counts)[bins]
    share = float(np.clip(view.design.projected(noisy)[bins].sum() / records, 0.0, 1.0)) / 2
    chance = records * share * (1 - share)
    deviation = np.array(
        [
            sum(math.sqrt(chance * effect) for effect in _effects(view, bins, upto))
            for upto in range(1, len(bins))
        ]
    )
    normal = np.linspace(-REACH, REACH, NODES)
    weights = np.exp(-(normal**2) / 2)
    noise = survival_of(sum_noise(noisy.noise * len(bins)))
    even = CountLaw(deviation[:, None] * normal, weights / weights.sum(), noise)
    up = np.cumsum(counts)[:-1]
    contrast = 2 * up - counts.sum()
    few = even.below(contrast) < (1 - LEVEL) / 2  # records up to the edge: the median is above it
    many = even.above(contrast) < (1 - LEVEL) / 2
    lower, upper = _run(few), _run(many[::-1])
    return (
        float(edges[lower - 1]) if lower else -math.inf,
        float(edges[len(edges) - upper]) if upper else math.inf,
    )


def _run(found: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> int:
    """How many are true before the first that is not."""
    return int(np.argmin(np.append(found, False)))


def _effects(view: CountedView, bins: Ints, upto: int) -> tuple[float, float]:
    """The design effects of the first so many bins as one cell, and of the others."""
    spread, (records,) = view.spread, view.noisy.records
    if not isinstance(spread, Spread):
        return spread, spread
    kind = spread.correlation
    if kind is None:
        return 1.0, 1.0
    correlated = np.full(2, kind.icc)
    if kind.held:
        held = ClientCounts.read(kind.held)
        group = np.full(max(int(held.cell.max()), int(view.points.cells.max())) + 1, 2)
        group[view.points.cells[bins[:upto]]] = 0
        group[view.points.cells[bins[upto:]]] = 1
        correlated = held.merged(group).correlations(np.arange(2), kind.icc)
    below, above = 1 + correlated * (records - 1) * float(spread.between(np.array([records]))[0])
    return float(below), float(above)
