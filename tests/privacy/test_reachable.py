"""Reachable ranges: against every data set at distance k, and nested for neighbours."""

import itertools
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl import InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Floor, Score, Skew
from fedprikl.divergence.divergences import KullbackLeibler
from fedprikl.estimation import BatchCounts, weighted_score
from fedprikl.estimation.scoring import score_ranges
from fedprikl.privacy import (
    InverseSensitivityMechanism,
    Ranges,
    adaptive,
    adaptive_release,
    reachable_ranges,
)
from fedprikl.privacy.adaptive import Scores
from fedprikl.reference import QueryPoints, all_points, spread_points
from tests.brute_force import histograms, neighbours

SCORES = [
    Score(Skew(0.01)),
    Score(Skew(0.2), correction=1.0),
    Score(Skew(0.01), correction=3.0, maximum_step=0.3),
]
FAR = 6


def ends(ranges: Ranges) -> tuple[Floats, Floats]:
    return np.multiply(ranges.lows, ranges.grid), np.multiply(ranges.highs, ranges.grid)


def one_batch(pi: list[float], counts: Ints) -> BatchCounts:
    points = all_points(pi)
    return BatchCounts(points, counts[: len(points)], np.array([counts.sum()]))


def within(counts: Ints, k: int) -> Iterator[Ints]:
    """Every list of counts that k substitutions reach: at most k fewer and at most k more."""
    for change in itertools.product(*(range(-min(k, int(h)), k + 1) for h in counts)):
        moved = np.array(change)
        if moved[moved > 0].sum() <= k and -moved[moved < 0].sum() <= k:
            yield counts + moved


def convex_scores(rng: np.random.Generator, cells: int) -> Scores:
    """Weighted scores of random weights, skews and slopes, some of them clipped."""
    weights, skew = rng.lognormal(0, 1.5, cells), rng.uniform(0.001, 0.5, cells)
    slope, clip = rng.lognormal(-1, 1.5, cells), rng.choice([0.01, 0.3, np.inf], cells)

    def scores(entries: Ints, at: Ints) -> Floats:
        line = np.where(at > 0, -clip[entries] * np.maximum(at, 1), 0.0)
        found = np.log(skew[entries]) - np.log(skew[entries] + slope[entries] * at)
        return np.asarray(weights[entries] * np.maximum(found, line))

    return scores


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "counts", [(3, 0), (1, 4), (2, 2, 5), (0, 6, 1), (1, 1, 1, 1), (2, 0, 3, 1)]
)
def test_ranges_are_what_k_substitutions_reach(score: Score, counts: tuple[int, ...]) -> None:
    """The least and largest sum over every list of counts at distance k, k = 1 .. 3."""
    pi = np.arange(1.0, len(counts) + 1)
    held = one_batch((pi / pi.sum()).tolist(), np.array(counts))
    found = score_ranges(held, score, steps=4)
    low, high = ends(found)
    lowest, highest = (end * found.grid for end in found.outer)

    def value(at: Ints) -> float:
        # `weighted_score` of counts that need not add up to the records
        points = held.points
        ratio = score(at, points.pi, held.records_per_point, outside=0.0, weights=points.weights)
        return float(points.weights @ ratio)

    for k in (1, 2, 3):
        sums = [value(at) for at in within(np.array(counts), k)]
        assert low[k - 1] <= max(min(sums), lowest)
        assert high[k - 1] >= min(max(sums), highest)
        assert low[k - 1] == pytest.approx(max(min(sums), lowest), abs=1e-9)
        assert high[k - 1] == pytest.approx(min(max(sums), highest), abs=1e-9)


@pytest.mark.parametrize("score", SCORES)
def test_ranges_hold_every_data_set_of_two_pooled_batches(score: Score) -> None:
    """Every pair of histograms, each batch with cells of its own besides one they share."""
    points = QueryPoints.build(
        [0.2, 0.5, 0.3],
        cells=[0, 1, 1, 2],
        batch=[0, 0, 1, 1],
        weights=[0.2, 0.5, 0.5, 0.3],
        batches=2,
        pooled=True,
    )
    asked = [np.array([0, 1]), np.array([1, 2])]
    worlds = list(itertools.product(histograms(3, 3), histograms(3, 2)))

    def held(world: tuple[tuple[int, ...], ...]) -> BatchCounts:
        counts = np.concatenate([np.array(h)[a] for h, a in zip(world, asked, strict=True)])
        return BatchCounts(points, counts, np.array([3, 2]))

    ranges = {world: score_ranges(held(world), score, steps=FAR) for world in worlds}
    values = {world: weighted_score(held(world), score) for world in worlds}
    for left, right in itertools.product(worlds, worlds):
        far = sum(
            int(np.abs(np.subtract(a, b)).sum()) // 2 for a, b in zip(left, right, strict=True)
        )
        if 1 <= far < FAR:
            low, high = ends(ranges[left])
            assert low[far - 1] <= values[right] <= high[far - 1]
    for left in worlds:
        for right in [
            *((first, left[1]) for first in neighbours(left[0])),
            *((left[0], second) for second in neighbours(left[1])),
        ]:
            assert nested(ranges[left], ranges[right])


def nested(inner: Ranges, outer: Ranges) -> bool:
    """Whether I_k of the first lies in I_(k+1) of the second for every k, on the same grid."""
    return (
        inner.grid == outer.grid
        and inner.outer == outer.outer
        and bool(np.all(inner.lows[:-1] >= outer.lows[1:]))
        and bool(np.all(inner.highs[:-1] <= outer.highs[1:]))
    )


@pytest.mark.parametrize("exact", [0, 3, 128])
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_ranges_of_neighbours_are_nested(exact: int, seed: int) -> None:
    """Wherever the knapsack ends and divisible records begin."""
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(1, 40))
    scores = convex_scores(rng, cells)
    counts = rng.negative_binomial(0.5, 0.05, cells)
    changed = counts.copy()
    losing, gaining = rng.integers(0, cells, 2)
    changed[losing] -= min(1, counts[losing])
    changed[gaining] += rng.integers(0, 2)
    records = np.full(cells, int(counts.sum()) + 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "EXACT", exact)
        left, right = (
            reachable_ranges(h, records, scores, magnitude=200.0 * cells, steps=30)
            for h in (counts, changed)
        )
    assert nested(left, right)
    assert nested(right, left)


def test_ranges_around_the_value_by_local_sensitivity_are_not_nested() -> None:
    """The check above has teeth: a multiple of what one record can do now is not enough."""

    def scores(entries: Ints, at: Ints) -> Floats:
        return np.asarray(0 * entries - np.log(0.01 + 0.1 * at))

    def naive(count: int) -> Ranges:
        found = reachable_ranges(np.array([count]), np.array([9]), scores, magnitude=10.0, steps=9)
        k = np.arange(1, 9)
        return Ranges(
            value=found.value,
            lows=found.value - k * (found.value - found.lows[0]),
            highs=found.value + k * (found.highs[0] - found.value),
            outer=(-(2**60), 2**60),
            grid=found.grid,
        )

    assert not nested(naive(1), naive(0))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_the_knapsack_is_exact(seed: int) -> None:
    """Against a knapsack that may take any number of records from every cell."""
    rng = np.random.default_rng(seed)
    cells, most = int(rng.integers(1, 30)), int(rng.integers(1, 25))
    scores, counts = convex_scores(rng, cells), rng.negative_binomial(0.7, 0.1, cells)
    best = np.zeros(most + 1)
    for cell, h in enumerate(counts.tolist()):
        removed = np.arange(min(h, most) + 1)
        at = np.full(len(removed), cell)
        gain = scores(at, h - removed) - scores(at, np.full(len(removed), h))
        best = np.array(
            [max(best[j - r] + gain[r] for r in removed if r <= j) for j in range(most + 1)]
        )
    found = adaptive._rises(counts, scores, 2.0**-40, np.arange(1, most + 1)) * 2.0**-40
    assert found == pytest.approx(best[1:], abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_divisible_records_reach_a_little_further(seed: int) -> None:
    """At least as far as the knapsack, and by less than one cell."""
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(1, 60))
    scores, counts = convex_scores(rng, cells), rng.negative_binomial(0.7, 0.1, cells)
    exact = adaptive._rises(counts, scores, 2.0**-40, np.arange(1, 61))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "EXACT", 0)
        found = adaptive._rises(counts, scores, 2.0**-40, np.arange(1, 61))
    entries = np.arange(cells)
    removed = np.minimum(np.arange(1, 61)[:, None], counts)
    one = ((scores(entries, counts - removed) - scores(entries, counts)) * 2.0**40).max(axis=1)
    assert np.all(found >= exact - 1000)
    assert np.all(found <= exact + one + 1000)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_large_tables_have_the_ranges_of_small_ones(seed: int) -> None:
    """Whether all gains are computed, or only those that matter, a few at a time."""
    rng = np.random.default_rng(seed)
    cells, steps = int(rng.integers(1, 60)), int(rng.integers(2, 60))
    moved = int(rng.integers(1, 6))
    scores = convex_scores(rng, cells)
    counts = rng.negative_binomial(0.5, rng.choice([0.3, 0.03, 0.003]), cells)
    records = np.full(cells, int(counts.sum()) + 2)

    def found() -> Ranges:
        return reachable_ranges(
            counts, records, scores, magnitude=200.0 * cells, steps=steps, contribution=moved
        )

    small = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "SMALL_TABLE", 0)
        patch.setattr(adaptive, "LARGEST_TABLE", 50)
        large = found()
    rounding = 8 * np.arange(1, steps) * moved  # of each gain, in steps of the grid
    assert np.all(np.abs(large.lows - small.lows) <= rounding)
    assert np.all(np.abs(large.highs - small.highs) <= rounding)


def test_gains_below_the_grid_have_ranges() -> None:
    """Rounded, they are no longer convex; cells are chosen with room for that."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        counts = rng.negative_binomial(0.5, 0.005, 80)
        scores = convex_scores(rng, 80)
        found = reachable_ranges(counts, np.full(80, 10**6), scores, magnitude=2.0**44, steps=200)
        assert found.grid > 0.01
        assert found.lows[0] < found.value < found.highs[0]


def test_designs_of_the_planner_have_ranges() -> None:
    rng = np.random.default_rng(5)
    pi = rng.dirichlet(np.ones(40))
    for points in (all_points(pi), spread_points(pi, 12, batches=3, rng=rng)):
        records = np.full(points.batches, 900)
        counts = rng.binomial(900 // points.payload, 0.5, len(points))
        held = BatchCounts(points, counts, records)
        found = score_ranges(held, SCORES[1], steps=20)
        value = weighted_score(held, SCORES[1])
        assert found.value * found.grid == pytest.approx(value, abs=1e-12)
        assert found.lows[0] < found.value < found.highs[0]


class Other(KullbackLeibler):
    """Nobody has proved anything about this one."""

    __slots__ = ()
    name = "other"


@pytest.mark.parametrize(
    "score",
    [
        Score(Skew(0.01), control=0.5),
        Score(Floor(0.01)),
        Score(Skew(0.01), Other()),
    ],
)
def test_scores_that_may_rise_are_refused(score: Score) -> None:
    with pytest.raises(InvalidInputError, match="Use Laplace noise"):
        score_ranges(one_batch([0.5, 0.5], np.array([2, 3])), score, steps=4)


def test_weights_below_0_are_refused() -> None:
    points = QueryPoints.build([0.5, 0.5], cells=[0, 1], batch=[0, 0], weights=[0.5, -0.5])
    held = BatchCounts(points, np.array([2, 3]), np.array([5]))
    with pytest.raises(InvalidInputError, match="weights of at least 0"):
        score_ranges(held, SCORES[0], steps=4)


def test_ranges_that_are_not_nested_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="contain"):
        Ranges(value=0, lows=np.array([-1, 0]), highs=np.array([1, 2]), outer=(-5, 5), grid=1.0)


def test_ranges_do_not_print() -> None:
    found = score_ranges(one_batch([0.5, 0.5], np.array([2, 3])), SCORES[0], steps=4)
    assert repr(found) == "Ranges(4 steps)"


@pytest.mark.parametrize(
    ("cells", "records", "limit"), [(250, 5_000, 0.05), (250, 400_000, 0.05), (65_536, 400_000, 1)]
)
@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_a_release_is_fast(cells: int, records: int, limit: float, epsilon: float) -> None:
    """Of processor time, with room for a slower machine: at most twice what is promised."""
    rng = np.random.default_rng(1)
    pi = rng.dirichlet(np.ones(cells))
    held = BatchCounts(all_points(pi), rng.multinomial(records, pi), np.array([records]))
    steps = InverseSensitivityMechanism(epsilon=epsilon).steps
    taken = []
    for _ in range(3):
        begin = time.process_time()
        adaptive_release(score_ranges(held, SCORES[1], steps=steps), epsilon=epsilon)
        taken.append(time.process_time() - begin)
    assert min(taken) < 2 * limit
