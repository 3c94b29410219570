"""Counts as they may have been before noise: noisy counts, shrunken towards what is expected.

Where noise exceeds the counts, noisy counts vary far more than the counts did. Their cells are
taken in groups of similar noise. The variance of a group beyond that of the noise is the counts'
own (empirical Bayes), and noisy counts are drawn in until they vary no more than that.
"""

from itertools import accumulate

import numpy as np

from fedprikl.checks import Floats, Ints

__all__ = ["noise_groups", "shrink_counts", "whole_counts"]

CELLS = 20  # of a group, at least: their variance is estimated
SURE = 4.0  # deviations of its noise that the count of a group has, at least: so is their mean
TINY = 1e-9


def noise_groups(expected: Floats, variances: Floats) -> tuple[Ints, Ints]:
    """Cells from the least expected count to the largest, and where among them each group begins.

    From what is public alone: counts expected without drift, and variances of the noise.

    >>> order, begins = noise_groups(np.arange(100.0, 0.0, -1.0), np.full(100, 4.0))
    >>> order[:3].tolist(), begins.tolist()
    ([99, 98, 97], [0, 20, 40, 60, 80])
    """
    order = np.argsort(expected, kind="stable")
    counts, noise = (list(accumulate(each[order].tolist())) for each in (expected, variances))
    begins, before, loud = [0], 0.0, 0.0
    for cell, (count, variance) in enumerate(zip(counts, noise, strict=True), start=1):
        known = count - before >= SURE * (variance - loud) ** 0.5
        if known and cell - begins[-1] >= CELLS and len(order) - cell >= CELLS:
            begins.append(cell)
            before, loud = count, variance
    return order, np.array(begins)


def shrink_counts(
    counts: Floats, expected: Floats, variances: Floats, groups: tuple[Ints, Ints]
) -> Floats:
    """The counts drawn in towards the mean ratio of their group, (releases, cells).

    In a group, h / `expected` has a mean m, itself drawn in towards 1 by as much as noise explains,
    and a variance V beyond that of the noise, s^2 = variance / expected^2. V is at least
    m / expected, which whole records have without any drift. A count becomes

        m expected + sqrt(V / (V + s^2)) (h - m expected),

    so that the results vary like counts without noise. Without the root, which gives each count its
    least error, they would vary less (Louis 1984, JASA 79: 393-398). Not negative only after a
    projection.

    >>> rng, expected, noise = np.random.default_rng(1), np.full(4000, 100.0), np.full(4000, 144.0)
    >>> held = rng.poisson(expected)
    >>> noisy = held + rng.normal(0.0, 12.0, (1, 4000))
    >>> found = shrink_counts(noisy, expected[None], noise, noise_groups(expected, noise))
    >>> round(noisy.std()), round(found.std()), round(held.std())
    (16, 11, 10)
    """
    order, begins = groups
    h, e, noise = counts[:, order], np.maximum(expected[:, order], TINY), variances[order]
    sizes = np.diff(begins, append=len(order))

    def of_group(values: Floats) -> Floats:
        """Sums."""
        return np.asarray(np.add.reduceat(values, begins, axis=1))

    def of_cell(values: Floats) -> Floats:
        """Those of its group."""
        return np.repeat(values, sizes, axis=1)

    whole = of_group(e)
    off = of_group(h) / whole - 1
    chance = (of_group(np.broadcast_to(noise, e.shape)) + whole) / whole**2
    mean = of_cell(np.maximum(1 + off * np.maximum(1 - chance / np.maximum(off**2, TINY), 0), 0))
    blur, sampling = noise / e**2, mean / e
    weights = (blur + 1 / e) ** -2
    beyond = of_group(weights * ((h / e - mean) ** 2 - blur - sampling)) / of_group(weights)
    own = of_cell(np.maximum(beyond, 0)) + sampling
    found = np.empty_like(h)
    found[:, order] = mean * e + np.sqrt(own / (own + blur)) * (h - mean * e)
    return found


def whole_counts(counts: Floats, rng: np.random.Generator) -> Floats:
    """Counts of whole records that are these on average, with the same sum up to one record.

    >>> whole_counts(np.full((1, 8), 0.25), np.random.default_rng(1)).sum()
    np.float64(2.0)
    """
    reached = np.floor(np.cumsum(counts, axis=1) + rng.random((len(counts), 1)))
    return np.diff(reached, axis=1, prepend=0.0)
