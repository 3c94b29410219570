"""Neighbouring data sets that are hard to hide: they differ in one record, or in all of a client.

`moved` is the number of records in which they differ.
"""

from collections.abc import Iterator

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import BatchCounts, weighted_score
from fedprikl.estimation.terms import Terms
from fedprikl.paper.audit_cases import worst_neighbours
from fedprikl.reference import QueryPoints

__all__ = ["Pair", "adaptive_pairs", "counts_pair", "value_pair"]

Pair = tuple[Ints, Ints]  # counts of the points in either data set
HELD = (0, 1, 2, 4, 8)  # units in a cell that gets one more
UNITS = (200, 2000, 20_000)  # units in all
MOST_STEPS = 2**20  # that are looked at


def counts_pair(points: QueryPoints, records: Ints, moved: int) -> Pair:
    """One cell holds all records; then `moved` of them are in another, or outside all cells.

    No other change moves counts further, in sum or in square.
    """
    left = np.zeros(len(points), np.int64)
    left[0] = records[0]
    right = left.copy()
    right[0] -= moved
    right[1:2] += moved
    return left, right


def value_pair(points: QueryPoints, records: Ints, score: Score, moved: int) -> Pair:
    """The data sets whose weighted scores lie furthest apart; of several records, nearly so."""
    if moved == 1:
        one, other = worst_neighbours(points, records, score)
        return one.counts, other.counts

    def distance(pair: Pair) -> float:
        left, right = (weighted_score(BatchCounts(points, h, records), score) for h in pair)
        return abs(left - right)

    return max(_client_pairs(points, records, score, moved), key=distance)


def _client_pairs(points: QueryPoints, records: Ints, score: Score, moved: int) -> Iterator[Pair]:
    """A client of the first batch moves to the empty cells whose scores fall fastest: from outside,
    or from the cell whose score rises fastest, which holds all records.
    """
    terms, mine = Terms.of(points, records), np.flatnonzero(points.batch == 0)

    def steps(some: Ints, counts: Ints) -> Floats:
        """w (s(h + 1) - s(h)) of points (rows) at counts."""
        at = terms.of_point[some][:, None]
        law = {"outside": terms.outside[at], "weights": terms.weights[at]}
        found = score.increments(counts, terms.pi[at], terms.records[at], **law)
        return np.asarray(terms.weights[at] * found)

    first = steps(mine, np.zeros((1, 1), np.int64))[:, 0]
    steepest = mine[np.argsort(first, kind="stable")][: MOST_STEPS // moved + 1]
    falls = -steps(steepest, np.arange(moved)[None, :])
    full = terms.records[terms.of_point[mine]][:, None]
    source = int(mine[np.argmax(steps(mine, full - 1)[:, 0])])
    for filled in (False, True):
        left, open_ = np.zeros(len(points), np.int64), falls.copy()
        if filled:
            same = terms.of_point == terms.of_point[source]
            left[same] = records[points.batch[same]]
            open_[steepest == source] = -np.inf
        right = left.copy()
        right[source] -= moved * filled
        chosen = np.argsort(-open_.ravel(), kind="stable")[:moved] // moved
        yield left, right + np.bincount(steepest[chosen], minlength=len(points))


def adaptive_pairs(points: QueryPoints, moved: int) -> Iterator[tuple[Ints, Pair]]:
    """One more unit in a cell that holds none or few, with the records of each batch.

    All others are spread as the reference says, or outside all cells.
    """
    mine = np.flatnonzero(points.batch == 0)
    order = mine[np.argsort(points.pi[mine], kind="stable")]
    for cell in sorted({int(order[place]) for place in (0, len(order) // 2, -1)}):
        for units in UNITS:
            for held in HELD:
                records = np.full(points.batches, units * moved)
                for shares in (points.pi, np.zeros(len(points))):
                    left = np.floor((units - held - 1) * moved * shares).astype(np.int64)
                    left[cell] = held * moved
                    right = left.copy()
                    right[cell] += moved
                    yield records, (left, right)
