"""Brute force over small histograms: every data set, every neighbour."""

from collections.abc import Callable, Iterator
from functools import cache

Histogram = tuple[int, ...]


def histograms(cells: int, records: int, at_least: int = 0) -> Iterator[Histogram]:
    """All ways to spread the records over the cells, each holding `at_least` so many."""
    if cells == 1:
        if records >= at_least:
            yield (records,)
        return
    for first in range(at_least, records + 1):
        for rest in histograms(cells - 1, records - first, at_least):
            yield (first, *rest)


def neighbours(histogram: Histogram) -> Iterator[Histogram]:
    """All histograms that differ by the substitution of one record."""
    for losing, count in enumerate(histogram):
        for gaining in range(len(histogram)):
            if count and gaining != losing:
                changed = list(histogram)
                changed[losing] -= 1
                changed[gaining] += 1
                yield tuple(changed)


def distance(one: Histogram, other: Histogram) -> int:
    """How many records must be substituted to turn one histogram into another."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) // 2


@cache
def within(histogram: Histogram, most: int) -> tuple[tuple[Histogram, int], ...]:
    """All histograms at most so many substitutions away, each with how many."""
    others = histograms(len(histogram), sum(histogram))
    found = ((other, distance(histogram, other)) for other in others)
    return tuple((other, k) for other, k in found if k <= most)


def largest_change(
    value: Callable[[Histogram], float], cells: int, records: int, at_least: int = 0
) -> float:
    """The largest |value(h) - value(h')| over all neighbours, the last cell not being asked."""
    values = {h: value(h) for h in histograms(cells, records, at_least)}
    changes = (
        0.0 if values[h] == values[n] else abs(values[h] - values[n])  # infinite on both sides: 0
        for h in values
        for n in neighbours(h)
        if n in values
    )
    return max(changes, default=0.0)
