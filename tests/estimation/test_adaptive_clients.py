"""Adaptive noise for whole clients: nesting, and the loss of every pair of small populations."""

import itertools
import time
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.divergence import Score, Skew
from fedprikl.estimation import BatchCounts
from fedprikl.estimation.adaptive import adaptive_law, adaptive_ranges, adaptive_value, dead_zone
from fedprikl.estimation.interval import AdaptiveBound
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import AskedNumber
from fedprikl.estimation.simulated_releases import AdaptiveNoise, simulated_errors
from fedprikl.estimation.trusted_aggregator import adaptive_estimate, adaptive_statistic
from fedprikl.privacy import NoiseLaw, Ranges, adaptive, reachable_ranges
from fedprikl.privacy.adaptive import ring_weights
from fedprikl.reference import QueryPoints, all_points
from tests.adaptive_losses import log, ratios
from tests.brute_force import Histogram, distance, histograms
from tests.estimation.test_guaranteed import coverages
from tests.privacy.test_reachable import convex_scores, nested

pytestmark = pytest.mark.slow

EPSILON = 6.0
PI = {2: [0.3, 0.7], 3: [0.15, 0.5, 0.35]}
SCORES = [Score(Skew(0.01)), Score(Skew(0.05), maximum_step=0.3)]
POOLED = QueryPoints.build(
    [0.2, 0.5, 0.3],
    cells=[0, 1, 1, 2],
    batch=[0, 0, 1, 1],
    weights=[0.2, 0.5, 0.5, 0.3],
    batches=2,
    pooled=True,
)
SAMPLED = QueryPoints.build(
    [0.2, 0.5, 0.3], cells=[0, 1, 2], batch=[0, 0, 1], weights=[0.4, 0.8, 0.3], batches=2
)


@cache
def whole(histogram: Histogram, score: Score, moved: int) -> Ranges:
    """Of all cells; the last number counts the records outside of them."""
    *held, _ = histogram
    counts = BatchCounts(all_points(PI[len(held)]), np.array(held), np.array([sum(histogram)]))
    return adaptive_ranges(counts, score, epsilon=EPSILON, contribution=moved)


def largest_loss(left: Ranges, right: Ranges) -> tuple[float, float]:
    """Of all outcomes: the largest loss either way, and the length of its range."""
    found = ratios(left, right, ring_weights(EPSILON))
    most, least = log(max(found)), log(min(found))
    return max(most, -least), most - least


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("cells", "moved"), [(2, 2), (2, 3), (2, 4), (3, 2)])
def test_the_loss_of_all_populations_of_three_clients(score: Score, cells: int, moved: int) -> None:
    """At most epsilon, over a range of at most epsilon; clients with records outside included.

    Two populations are neighbours if one client's records turn one into the other.
    """
    populations = list(histograms(cells + 1, 3 * moved))
    worst = 0.0
    for left, right in itertools.combinations(populations, 2):
        if distance(left, right) <= moved:
            loss, length = largest_loss(whole(left, score, moved), whole(right, score, moved))
            assert loss <= EPSILON
            assert length <= EPSILON
            worst = max(worst, loss)
    assert worst > EPSILON / 4


@pytest.mark.parametrize("points", [POOLED, SAMPLED])
@pytest.mark.parametrize("moved", [2, 3])
def test_the_loss_of_clients_in_one_of_two_batches(points: QueryPoints, moved: int) -> None:
    """A client is in one batch: two clients in the first, one in the second."""
    records = np.array([2 * moved, moved])
    asked = np.bincount(points.batch)
    each = [list(histograms(n + 1, int(r))) for n, r in zip(asked, records, strict=True)]

    @cache
    def found(world: tuple[Histogram, ...]) -> Ranges:
        counts = np.concatenate([h[:-1] for h in world])
        held = BatchCounts(points, counts, records)
        return adaptive_ranges(held, SCORES[0], epsilon=EPSILON, contribution=moved)

    for world in itertools.product(*each):
        first, second = world
        changed = [(one, second) for one in each[0] if distance(first, one) <= moved]
        changed += [(first, one) for one in each[1] if distance(second, one) <= moved]
        for other in changed:
            if world >= other:
                continue
            loss, length = largest_loss(found(world), found(other))
            assert loss <= EPSILON
            assert length <= EPSILON


@pytest.mark.parametrize("moved", [2, 4])
def test_ranges_of_half_a_client_lose_more(moved: int) -> None:
    """The tests above have teeth: ranges for half of a client's records do not hide it."""
    worst = 0.0
    for left, right in itertools.combinations(histograms(3, 3 * moved), 2):
        if distance(left, right) == moved:
            halves = (whole(each, SCORES[0], moved // 2) for each in (left, right))
            worst = max(worst, largest_loss(*halves)[0])
    assert worst > EPSILON * 1.3


@pytest.mark.parametrize("moved", [2, 7, 50, 200])
def test_ranges_are_those_of_every_so_many_records(moved: int) -> None:
    rng = np.random.default_rng(moved)
    scores, counts = convex_scores(rng, 30), rng.negative_binomial(0.7, 0.02, 30)
    records = np.full(30, int(counts.sum()))
    fine = reachable_ranges(counts, records, scores, magnitude=1e4, steps=6 * moved + 1)
    found = reachable_ranges(counts, records, scores, magnitude=1e4, steps=7, contribution=moved)
    assert found.steps == 7
    assert (found.value, found.outer, found.grid) == (fine.value, fine.outer, fine.grid)
    np.testing.assert_array_equal(found.lows, fine.lows[moved - 1 :: moved])
    np.testing.assert_allclose(found.highs, fine.highs[moved - 1 :: moved], atol=len(counts))


@pytest.mark.parametrize("exact", [0, 7, 128])
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_ranges_of_clients_are_nested(exact: int, seed: int) -> None:
    """After `moved` substitutions, wherever divisible records begin."""
    rng = np.random.default_rng(seed)
    cells, moved = int(rng.integers(1, 40)), int(rng.integers(2, 30))
    scores = convex_scores(rng, cells)
    counts = rng.negative_binomial(0.5, 0.05, cells)
    changed = counts.copy()
    for _ in range(moved):
        losing, gaining = rng.integers(0, cells, 2)
        changed[losing] -= min(1, changed[losing])
        changed[gaining] += rng.integers(0, 2)
    records = np.full(cells, int(counts.sum()) + moved + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "EXACT", exact)
        left, right = (
            reachable_ranges(
                h, records, scores, magnitude=200.0 * cells, steps=12, contribution=moved
            )
            for h in (counts, changed)
        )
    assert nested(left, right)
    assert nested(right, left)


def test_one_record_is_a_client_of_one() -> None:
    held = BatchCounts(all_points(PI[3]), np.array([40, 150, 110]), np.array([303]))
    one, same = (
        adaptive_ranges(held, SCORES[0], epsilon=1.0),
        adaptive_ranges(held, SCORES[0], epsilon=1.0, contribution=1),
    )
    np.testing.assert_array_equal(one.lows, same.lows)
    np.testing.assert_array_equal(one.highs, same.highs)
    for source in (InsecureSeededNoise(3), InsecureSeededNoise(3)):
        first = adaptive_value(held, SCORES[0], epsilon=1.0, source=source)
    again = adaptive_value(
        held, SCORES[0], epsilon=1.0, source=InsecureSeededNoise(3), contribution=1
    )
    assert again == first


def test_a_dead_zone_is_as_many_clients_as_it_was_records() -> None:
    one = dead_zone(1.0, records=5000, cells=3)
    assert dead_zone(1.0, records=5000, cells=3, contribution=20) == pytest.approx(20 * one)


def test_an_adaptive_release_allows_every_population_of_clients() -> None:
    """The guaranteed part of the interval: at least 95% for each population, by its own law."""
    points, n, moved = all_points(np.array([0.55, 0.3, 0.15])), 9, 3
    records, epsilon = np.array([n]), 8.0
    laws: list[tuple[float, NoiseLaw]] = [
        adaptive_law(
            BatchCounts(points, np.array(held), records),
            Score(),
            epsilon=epsilon,
            contribution=moved,
        )
        for *held, _ in histograms(4, n)
    ]
    bound = AdaptiveBound(points, records, Score(), epsilon, 0.95, moved)
    assert coverages(bound, laws).min() >= 0.95
    careless = AdaptiveBound(points, records, Score(), epsilon, 0.95, 1)  # for one record
    assert coverages(careless, laws).min() < 0.95


def test_a_bound_for_single_records_would_be_too_narrow() -> None:
    points, records = all_points(np.array([0.55, 0.3, 0.15])), np.array([3000])
    widths = [
        np.subtract(*AdaptiveBound(points, records, Score(), 1.0, 0.95, moved).interval(0.2, 4.0))
        for moved in (1, 10, 100)
    ]
    assert widths[2] < 2 * widths[1] < 4 * widths[0] < 0  # high - low, negated


def test_everything_that_is_told_of_a_release_knows_the_client() -> None:
    """Value, interval, statistic and forecasts: noise of 20 records, not of one."""
    pi = np.array([0.4, 0.3, 0.2, 0.1])
    held = BatchCounts(all_points(pi), np.array([800, 580, 420, 200]), np.array([2000]))
    source = InsecureSeededNoise(1)
    asked = [AskedNumber(held.points, held.records, Score(), contribution=k) for k in (1, 20)]
    spans = []
    for each in asked:
        value = adaptive_value(
            held, Score(), epsilon=1.0, source=source, contribution=each.contribution
        )
        spans.append(adaptive_estimate(each, value, 1.0, insecure=True).interval)
    assert spans[0] is not None
    assert spans[1] is not None
    assert spans[1][1] - spans[1][0] > 3 * (spans[0][1] - spans[0][0])
    counts = np.tile(held.counts, (4, 1))
    model = NoDrift.of(held.points, held.records, 1.0)
    spread = [
        np.std(adaptive_statistic(each, 0.0, 1.0).draw(model, counts, np.random.default_rng(1)))
        for each in asked
    ]
    assert spread[1] > 3 * spread[0]
    errors = [
        simulated_errors(held.points, held.records, np.ones(4), Score(), release).mean_absolute
        for release in (AdaptiveNoise(1.0), AdaptiveNoise(1.0, 20))
    ]
    assert errors[1] > 3 * errors[0]


@pytest.mark.parametrize(("epsilon", "limit"), [(1.0, 0.15), (0.1, 1.0)])
def test_a_release_for_clients_is_fast(epsilon: float, limit: float) -> None:
    """250 cells, 20 records of each client: processor time, with room for a slower machine."""
    rng = np.random.default_rng(1)
    pi = rng.dirichlet(np.ones(250))
    held = BatchCounts(all_points(pi), rng.multinomial(71_580, pi), np.array([71_580]))
    taken = []
    for _ in range(3):
        begin = time.process_time()
        adaptive_ranges(held, Score(), epsilon=epsilon, contribution=20)
        taken.append(time.process_time() - begin)
    assert min(taken) < limit


def test_bad_input_says_what_to_do() -> None:
    held = BatchCounts(all_points(PI[2]), np.array([4, 5]), np.array([9]))
    with pytest.raises(InvalidInputError, match="contribution"):
        adaptive_ranges(held, SCORES[0], epsilon=1.0, contribution=0)
