"""From counts to the number before noise, and how far one record, or one client, can move it."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_counts, check_positive_int
from fedprikl.divergence import KL, CellScores, Floor, Score
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import (
    BatchIncrements,
    BatchScores,
    Ranges,
    contribution_sensitivity,
    exact_sensitivity,
    joint_sensitivity,
    reachable_ranges,
    rounding_slack,
)
from fedprikl.reference import QueryPoints

Cached = TypeVar("Cached", bound=Callable[..., Any])

ROWS = 256  # simulated populations at a time: their numbers stay in the processor's cache


def some_rows(number: int) -> list[slice]:
    """All rows of an array, some at a time."""
    return [slice(start, start + ROWS) for start in range(0, number, ROWS)]


@dataclass(frozen=True, slots=True, eq=False)
class _ByValue:
    """An array that equals another of the same values."""

    array: Ints | Floats

    def __hash__(self) -> int:
        return hash(self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByValue) and np.array_equal(self.array, other.array)


def cached_by_value(maxsize: int) -> Callable[[Cached], Cached]:
    """`functools.lru_cache` for functions of positional arguments, some of which are arrays."""

    def decorate(function: Cached) -> Cached:
        @lru_cache(maxsize)
        def known(*args: Any) -> Any:
            return function(*(a.array if isinstance(a, _ByValue) else a for a in args))

        @wraps(function)
        def call(*args: Any) -> Any:
            return known(*(_ByValue(a) if isinstance(a, np.ndarray) else a for a in args))

        return cast(Cached, call)

    return decorate


@dataclass(frozen=True, slots=True, eq=False)
class BatchCounts:
    """h_t(x) for every asked point, and N_t for every batch: sums over clients, before noise.

    SECRET: this is what the aggregator sees, and nobody else.
    """

    points: QueryPoints
    counts: Ints  # h_t(x), in the order of `points`
    records: Ints  # N_t

    def __post_init__(self) -> None:
        counts, records = check_counts(self.counts, "counts"), check_counts(self.records, "records")
        points = self.points
        if len(counts) != len(points) or len(records) != points.batches:
            raise InvalidInputError(
                f"{len(points)} points in {points.batches} batches were asked, but there are "
                f"{len(counts)} counts and {len(records)} record totals."
            )
        if np.any(records == 0):
            raise InvalidInputError(
                f"Batch {int(np.argmin(records))} holds no records, so it has no distribution. "
                "Use fewer batches or more clients. Nothing was released."
            )
        asked = np.bincount(points.batch, weights=counts, minlength=points.batches)
        if np.any(asked > records):
            raise InvalidInputError(
                f"The counts of batch {int(np.argmax(asked > records))} exceed its number of "
                "records. A client lied or a sum is damaged; nothing was released."
            )
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "records", records)

    @property
    def records_per_point(self) -> Ints:
        """N_t of each point's batch."""
        return self.records[self.points.batch]

    def __repr__(self) -> str:  # the counts are secret
        return f"BatchCounts({len(self.points)} points in {self.points.batches} batches)"


@dataclass(frozen=True, slots=True, eq=False)
class AskedNumber:
    """One number that is asked of exact counts: all that is public about it.

    Everything that is said about a noised number follows from it: post-processing.
    """

    points: QueryPoints
    records: Ints
    score: Score
    client_effect: float = 1.0
    contribution: int = 1  # records of whoever is protected


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Terms:
    """The estimate is `sum weights * score(counts)` over terms. Public.

    Usually a term is a point. Where points are pooled, the points of one cell in several batches
    are one term: their counts are added, and it is as if one larger batch had been asked.
    """

    of_point: Ints  # the term of each point
    pi: Floats
    weights: Floats
    records: Ints  # records of the batches that were asked
    outside: Floats  # share of all records that lie in other batches

    @staticmethod
    @cached_by_value(32)  # simulated releases of one round ask for them thousands of times
    def of(points: QueryPoints, records: Ints) -> "Terms":
        """The terms of these points for batches of so many records."""
        if not points.pooled:
            counted = records[points.batch]
            of_point, pi, weights = np.arange(len(points)), points.pi, points.weights
        else:
            _, first, of_point = np.unique(points.cells, return_index=True, return_inverse=True)
            pi, weights = points.pi[first], points.weights[first]
            counted = np.zeros(len(first), np.int64)
            np.add.at(counted, of_point, records[points.batch])
        outside: Floats = 1 - counted / records.sum()
        return Terms(of_point=of_point, pi=pi, weights=weights, records=counted, outside=outside)

    def pool(self, values: npt.ArrayLike) -> Ints:
        """Whole values per point, added up per term; in every row, if there are rows."""
        found = np.asarray(values, dtype=np.int64)
        pooled = np.zeros((*found.shape[:-1], len(self.pi)), np.int64)
        if len(self.of_point) == len(self.pi):  # every term has one point; this is faster
            pooled[..., self.of_point] = found
        else:
            np.add.at(pooled.T, self.of_point, found.T)
        return pooled

    def scores(self, counts: npt.ArrayLike, score: Score) -> Floats:
        """s(h) of each term."""
        return score(counts, self.pi, self.records, outside=self.outside, weights=self.weights)

    def sums(self, counts: Ints, score: Score) -> Floats:
        """sum_j w_j s(h_j) of each row of counts; some rows at a time, for the sake of memory."""
        found = np.empty(len(counts))
        for rows in some_rows(len(counts)):
            found[rows] = self.scores(counts[rows], score) @ self.weights
        return found


def check_score(score: Score) -> Score:
    """The score itself; a bare smoothing is an easy mistake."""
    if not isinstance(score, Score):
        raise InvalidInputError(f"Expected a Score, got {score!r}; write Score({score!r}).")
    return score


def weighted_score(counts: BatchCounts, score: Score) -> float:
    """sum_j w_j s(h_j) over the terms: the estimate before noise. SECRET.

    `math.fsum` rounds only once, which the slack in `score_sensitivity` relies on.
    """
    terms = Terms.of(counts.points, counts.records)
    scores = terms.scores(terms.pool(counts.counts), check_score(score))
    return math.fsum((terms.weights * scores).tolist())


def score_sensitivity(
    points: QueryPoints, records: Ints, score: Score, contribution: int = 1
) -> float:
    """Delta of `weighted_score` for `contribution` substituted records of one batch, rounded up.

    For the records of one client, which is in one batch. Exact where scores are proved to be
    convex: less than so many times that of one record, which is taken for all others (a floor,
    weights below 0).

    >>> from fedprikl.reference import all_points
    >>> points, records = all_points(np.array([0.5, 0.3, 0.2])), np.array([1000])
    >>> [round(score_sensitivity(points, records, Score(), many), 3) for many in (1, 20)]
    [0.09, 1.092]
    """
    one, slack = _of_one(points, records, score, contribution)
    if contribution == 1 or not _is_convex(score, points.weights):
        return contribution * one + slack
    return contribution_sensitivity(_scores_per_batch(points, records, score), contribution) + slack


def score_reach(points: QueryPoints, records: Ints, score: Score, contribution: int) -> float:
    """How far `contribution` substituted records of any batches move `weighted_score`, at most.

    For the records of several clients, as those that lie. The same as `score_sensitivity` where
    there is one batch, and never less.
    """
    if points.batches == 1:
        return score_sensitivity(points, records, score, contribution)
    one, slack = _of_one(points, records, score, contribution)
    if not _is_convex(score, points.weights):
        return contribution * one + slack
    terms = Terms.of(points, records)
    everything = BatchScores(
        size=int(records.sum()),
        records=terms.records,
        kinds=np.arange(len(terms.pi)),
        scores=_cell_scores(terms, score),
    )
    return min(joint_sensitivity(everything, contribution), contribution * one) + slack


def _of_one(
    points: QueryPoints, records: Ints, score: Score, contribution: int
) -> tuple[float, float]:
    """The sensitivity to one record, and what rounding can add to that of `contribution` records.

    Up to twice as many cells change, each by a difference that is off by a few ulps of its own
    size; and rounding may mistake which of as many nearly equal steps are the largest.
    """
    one = exact_sensitivity(increments_per_batch(points, records, score))
    terms = Terms.of(points, records)
    magnitude = float(np.sum(np.abs(terms.weights) * score.bound(terms.pi, terms.records)))
    return one, rounding_slack(magnitude) * check_positive_int(contribution, "contribution")


def _is_convex(score: Score, weights: Floats) -> bool:
    """Whether every term w s(h) is proved to be convex."""
    return (
        score.divergence.proved
        and not isinstance(score.smoothing, Floor)
        and bool(np.all(weights >= 0))
    )


def _scores_per_batch(points: QueryPoints, records: Ints, score: Score) -> list[BatchScores]:
    """The convex terms of every batch, those of equal batches once. All public."""
    terms = Terms.of(points, records)
    scores = _cell_scores(terms, score)
    kinds = _kinds(terms.pi, terms.records, terms.outside, terms.weights)
    ends = np.searchsorted(points.batch, np.arange(points.batches + 1)).tolist()
    found: dict[tuple[int, bytes], BatchScores] = {}
    for size, (a, b) in zip(records.tolist(), itertools.pairwise(ends), strict=True):
        at = terms.of_point[a:b]
        batch = BatchScores(
            size=size,
            records=terms.records[at],
            kinds=kinds[at],
            scores=partial(_scores_at, scores, at),
        )
        found.setdefault((size, batch.kinds.tobytes()), batch)
    return list(found.values())


def _cell_scores(terms: Terms, score: Score) -> CellScores:
    return CellScores(score, terms.pi, terms.records, outside=terms.outside, weights=terms.weights)


def _scores_at(scores: CellScores, places: Ints, cells: Ints, counts: Ints) -> Floats:
    return scores(places[cells], counts)


def _kinds(*values: Floats | Ints) -> Ints:
    """A number for each entry, the same for entries with the same values."""
    order = np.lexsort(values)
    new = np.any([np.diff(each[order]) != 0 for each in values], axis=0)
    kinds = np.empty(len(order), np.int64)
    kinds[order] = np.append(0, np.cumsum(new))
    return kinds


def increments_per_batch(
    points: QueryPoints, records: Ints, score: Score, weights: Floats | None = None
) -> list[BatchIncrements]:
    """The extreme increments `w (s(h+1) - s(h))` of every batch. All public.

    One record is in one batch, so it moves terms of that batch only, each by one step of its
    pooled count. `weights` (per point) replaces those of the design.
    """
    terms = Terms.of(points, records)
    extremes = score.extreme_increments(
        terms.pi, terms.records, outside=terms.outside, weights=terms.weights
    )
    at = terms.of_point
    weight = points.weights if weights is None else weights
    up = weight >= 0
    lowest = weight * np.where(up, extremes.lowest[at], extremes.highest[at])
    highest = weight * np.where(up, extremes.highest[at], extremes.lowest[at])
    lowest_at = np.where(up, extremes.lowest_at[at], extremes.highest_at[at])
    highest_at = np.where(up, extremes.highest_at[at], extremes.lowest_at[at])
    ends = np.searchsorted(points.batch, np.arange(points.batches + 1))
    return [
        BatchIncrements(
            records=terms.records[at[a:b]],
            lowest=lowest[a:b],
            lowest_at=lowest_at[a:b],
            highest=highest[a:b],
            highest_at=highest_at[a:b],
            table=None if points.pooled else partial(_table, score, terms, at[a:b], weight[a:b]),
        )
        for a, b in itertools.pairwise(ends.tolist())
    ]


def _table(score: Score, terms: Terms, at: Ints, weights: Floats) -> Floats:
    """All increments of a batch: (points, N_t)."""
    records = terms.records[at]
    return weights[:, None] * score.increments(
        np.arange(int(records[0]))[None, :],
        terms.pi[at][:, None],
        records[:, None],
        outside=terms.outside[at][:, None],
        weights=terms.weights[at][:, None],
    )


def check_adaptive(score: Score, weights: Floats) -> None:
    """The score must be convex and not rise with the count, however much is counted."""
    if (
        score.divergence is not KL
        or score.control != 0
        or isinstance(score.smoothing, Floor)
        or not score.finite
    ):
        raise InvalidInputError(
            "Adaptive noise needs a score that falls with the count and is convex: kl with a skew "
            f"and without lambda, got {score!r}. Use Laplace noise instead."
        )
    if np.any(weights < 0):
        raise InvalidInputError("Adaptive noise needs weights of at least 0; use Laplace noise.")


def score_ranges(counts: BatchCounts, score: Score, *, steps: int, contribution: int = 1) -> Ranges:
    """The ranges of `weighted_score` for 1, 2, ... times `contribution` substitutions. SECRET.

    One record is in one batch, so a substitution lowers at most one term's count and raises at
    most one. That is all that is used, so batches of any sizes, pooled or not, are served.
    """
    terms = Terms.of(counts.points, counts.records)
    check_adaptive(score, terms.weights)
    # k more records than there are may be counted in a cell: v grows by less than a factor of
    # 1 + steps contribution, and the logarithm by the logarithm of that.
    reach = score.bound(terms.pi, terms.records) + np.log1p(steps * contribution)
    return reachable_ranges(
        terms.pool(counts.counts),
        terms.records,
        _cell_scores(terms, score),
        magnitude=float(np.sum(terms.weights * reach)),
        steps=steps,
        contribution=contribution,
    )
