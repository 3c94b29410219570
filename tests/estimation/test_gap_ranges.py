"""The gap form of KL: its value, its ranges against brute force, and the loss of every pair."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedprikl.divergence import Score, Skew, skewed_divergence
from fedprikl.estimation import BatchCounts
from fedprikl.estimation.adaptive import adaptive_ranges, dead_zone, gap_ranges, is_whole
from fedprikl.estimation.scoring import score_ranges
from fedprikl.privacy import InverseSensitivityMechanism, Ranges
from fedprikl.privacy.adaptive import ring_weights
from fedprikl.reference import all_points, spread_points
from tests.adaptive_losses import log, ratios
from tests.brute_force import Histogram, histograms, neighbours

pytestmark = pytest.mark.slow

PI = {2: [0.3, 0.7], 3: [0.15, 0.5, 0.35]}
SCORES = [Score(Skew(0.01)), Score(Skew(0.05), maximum_step=0.3)]
EPSILON = 4.0  # a dead zone of 2.3 records and more


def zone(records: int, cells: int) -> float:
    return dead_zone(EPSILON, records=records, cells=cells)


@cache
def ranges_of(histogram: Histogram, score: Score, epsilon: float = EPSILON) -> Ranges:
    """The last number counts the records outside all cells."""
    *held, _ = histogram
    points = all_points(PI[len(held)])
    counts = BatchCounts(points, np.array(held), np.array([sum(histogram)]))
    return adaptive_ranges(counts, score, epsilon=epsilon)


def value_of(histogram: Histogram, score: Score, tau: float) -> float:
    """The score of all cells, and of the records outside but for the dead zone."""
    *held, outside = histogram
    pi, n = np.array(PI[len(held)]), sum(histogram)
    gap = replace(score, control=1.0)
    cells = gap(np.array(held), pi, np.array(n), outside=0.0, weights=pi) @ pi
    smoothing = score.smoothing
    assert isinstance(smoothing, Skew)
    return float(cells + (1 - smoothing.gamma) * max(0.0, outside - tau) / n)


@pytest.mark.parametrize("outside", [0, 3, 5, 40])
def test_the_value_is_kl_but_for_the_dead_zone(outside: int) -> None:
    held = np.array([20, 50, 30])
    n = int(held.sum()) + outside
    found = ranges_of((*held.tolist(), outside), SCORES[0])
    kl = skewed_divergence(np.append(PI[3], 0.0), np.append(held, outside) / n, skew=0.01)
    left_out = 0.99 * min(outside, zone(n, 3)) / n
    assert found.value * found.grid == pytest.approx(kl - left_out, abs=1e-11)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("cells", "records"), [(2, 9), (3, 6)])
def test_ranges_hold_all_that_can_be_reached(score: Score, cells: int, records: int) -> None:
    """And no more than the two parts reach on their own: all data sets, all distances."""
    tau = zone(records, cells)
    everything = list(histograms(cells + 1, records))
    values = {each: value_of(each, score, tau) for each in everything}
    for one in everything:
        found = ranges_of(one, score)
        assert found.value * found.grid == pytest.approx(values[one], abs=1e-11)
        for other in everything:
            k = sum(max(a - b, 0) for a, b in zip(one, other, strict=True))
            if k:
                low, high = found.lows[k - 1] * found.grid, found.highs[k - 1] * found.grid
                assert low <= values[other] <= high


@pytest.mark.parametrize("score", SCORES)
def test_no_range_is_wider_than_the_parts_allow(score: Score) -> None:
    """Brute force over the parts: records taken away and added to each on its own."""
    one, n = (3, 4, 1), 8
    held, tau = one[:-1], zone(n, 2)
    found, gap = ranges_of(one, score), replace(score, control=1.0)

    def cell(i: int, h: int) -> float:
        pi = np.array(PI[2])[i]
        return float(pi * gap(h, pi, np.array(n), outside=0.0, weights=pi))

    turn = [int(np.argmin([cell(i, h) for h in range(n + 1)])) for i in range(2)]
    gamma = score.smoothing.gamma  # type: ignore[union-attr]

    def falling(counts: tuple[int, ...]) -> float:
        return sum(cell(i, min(h, turn[i])) for i, h in enumerate(counts[:2]))

    def rising(counts: tuple[int, ...]) -> float:
        above = sum(cell(i, max(h, turn[i])) for i, h in enumerate(counts[:2]))
        return above + (1 - gamma) * max(0.0, counts[2] - tau) / n

    start = (*held, one[2])
    for k in range(1, 8):
        moves = [m for m in itertools.product(range(-k, k + 1), repeat=3) if any(m)]
        reach = [
            tuple(h + d for h, d in zip(start, m, strict=True))
            for m in moves
            if sum(max(d, 0) for d in m) <= k and sum(max(-d, 0) for d in m) <= k
        ]
        within = [c for c in reach if min(c) >= 0] + [start]
        parts = [
            [part(c) - part(start) for c in within if max(c) <= n] for part in (falling, rising)
        ]
        high = sum(max(p) for p in parts)
        low = sum(min(p) for p in parts)
        value = found.value * found.grid
        assert found.highs[k - 1] * found.grid - value == pytest.approx(high, abs=1e-9)
        assert found.lows[k - 1] * found.grid - value == pytest.approx(low, abs=1e-9)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("cells", "records"), [(2, 8), (3, 5)])
def test_the_loss_of_every_pair_of_small_data_sets(score: Score, cells: int, records: int) -> None:
    """At most epsilon, over a range of at most epsilon; records outside all cells included."""
    weights = ring_weights(EPSILON)
    for left in histograms(cells + 1, records):
        for right in neighbours(left):
            found = ratios(ranges_of(left, score), ranges_of(right, score), weights)
            assert max(log(max(found)), -log(min(found))) <= EPSILON
            assert log(max(found) / min(found)) <= EPSILON


def test_ranges_that_are_too_narrow_lose_more() -> None:
    """The test above has teeth."""
    weights, worst = ring_weights(EPSILON), 0.0
    for left in histograms(3, 8):
        for right in neighbours(left):
            halves = [_narrower(ranges_of(each, SCORES[0])) for each in (left, right)]
            worst = max(worst, log(max(ratios(halves[0], halves[1], weights))))
    assert worst > EPSILON


def _narrower(ranges: Ranges) -> Ranges:
    """As if a substitution raised the value only every third time."""
    k = np.arange(len(ranges.highs)) // 3
    return replace(ranges, highs=ranges.highs[k], lows=ranges.lows)


def test_near_no_drift_it_is_far_narrower_than_the_plain_form() -> None:
    pi, n = np.full(20, 0.05), 100_000
    points = all_points(pi)
    counts = BatchCounts(points, np.full(20, n // 20), np.array([n]))
    steps = InverseSensitivityMechanism(epsilon=1.0).steps
    gap = gap_ranges(counts, SCORES[0], steps=steps, epsilon=1.0)
    plain = score_ranges(counts, SCORES[0], steps=steps)

    def width(ranges: Ranges) -> float:
        return float(ranges.highs[3] - ranges.lows[3]) * ranges.grid

    assert width(gap) < width(plain) / 100
    assert math.isclose(gap.value * gap.grid, plain.value * plain.grid, abs_tol=1e-9)


def test_what_counts_as_whole() -> None:
    pi, rng = np.full(10, 0.1), np.random.default_rng(1)
    assert is_whole(all_points(pi))
    assert not is_whole(spread_points(pi, 4, batches=1, rng=rng))
    assert not is_whole(spread_points(pi, 4, batches=3, rng=rng))
