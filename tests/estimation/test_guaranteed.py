"""Guaranteed intervals cover for every population: brute force over all data sets."""

import itertools
import math

import numpy as np
import pytest

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, skewed_divergence
from fedprikl.estimation import BatchCounts, score_sensitivity, weighted_score
from fedprikl.estimation.adaptive import adaptive_law, dead_zone
from fedprikl.estimation.interval import (
    AdaptiveBound,
    adaptive_interval,
    largest_raise,
    value_interval,
)
from fedprikl.estimation.scoring import AskedNumber
from fedprikl.privacy import LaplaceMechanism, NoiseLaw, Numbers
from fedprikl.reference import QueryPoints, all_points
from tests.adaptive_losses import survival

pytestmark = pytest.mark.slow

PI = np.array([0.55, 0.3, 0.15])
POINTS = all_points(PI)
LARGEST = math.log(100)


def all_counts(records: int) -> list[Ints]:
    """Every data set of these cells; the records that are left lie outside all cells."""
    found = itertools.product(range(records + 1), repeat=len(PI))
    return [np.array(counts) for counts in found if sum(counts) <= records]


def truth(counts: Ints, records: int) -> float:
    """D of these records, with those outside of all cells as a cell of probability 0."""
    p = np.append(counts, records - counts.sum()) / records
    return skewed_divergence(np.append(PI, 0.0), p, skew=0.01)


def clipped(points: QueryPoints, records: int, share: float) -> Score:
    """A score whose steps are limited to a share of the largest."""
    whole = score_sensitivity(points, np.array([records]), Score())
    return Score(maximum_step=share * whole) if share < 1 else Score()


Law = tuple[float, NoiseLaw]


def all_laws(records: int, score: Score, epsilon: float) -> list[Law]:
    """The value before noise and the law of the noise, of every data set."""
    return [
        adaptive_law(BatchCounts(POINTS, counts, np.array([records])), score, epsilon=epsilon)
        for counts in all_counts(records)
    ]


def coverages(bound: AdaptiveBound, laws: list[Law]) -> Floats:
    """P(the release allows F(x)) for every data set x, from its law; not too large."""
    values = np.linspace(-0.5, 6.0, 131)
    back = np.stack([bound.reaches(max(t, 0.0)) for t in values])
    found = []
    for f, law in laws:
        enough = np.flatnonzero(f <= values + back[:, bound.distance(f) - 1])
        least = values[enough[0]] if enough.size else math.inf
        inside = survival(law, np.array([least - f, bound.upper(f) - f]))
        found.append(inside[0] - inside[1])
    return np.array(found)


def contains(bound: AdaptiveBound, divergence: float, value: float) -> bool:
    """Whether the value allows F = `divergence`."""
    back = float(bound.reaches(max(value, 0.0))[bound.distance(divergence) - 1])
    return bound.upper(divergence) >= value and divergence <= value + back


@pytest.mark.parametrize(("records", "epsilon", "share"), [(8, 6.0, 1.0), (7, 8.0, 0.6)])
def test_an_adaptive_release_allows_every_data_set(
    records: int, epsilon: float, share: float
) -> None:
    """At least 95% for each of the 165 and 120 data sets, and not because all is allowed."""
    score = clipped(POINTS, records, share)
    bound = AdaptiveBound(POINTS, np.array([records]), score, epsilon, 0.95)
    laws = all_laws(records, score, epsilon)
    assert coverages(bound, laws).min() >= 0.95
    low, high = bound.interval(2.0, LARGEST)
    assert 0 < low < 2.0 < high
    # The check would notice a bound for a third of the releases.
    careless = AdaptiveBound(POINTS, np.array([records]), score, epsilon, 0.3)
    assert coverages(careless, laws).min() < 0.95


def test_the_interval_is_what_the_release_allows() -> None:
    score = clipped(POINTS, 5000, 0.6)
    bound = AdaptiveBound(POINTS, np.array([5000]), score, 1.0, 0.95)
    for value in (0.0, 0.003, 0.2, 1.5):
        low, high = bound.interval(value, LARGEST)
        assert contains(bound, (low + high) / 2, value)
        assert contains(bound, low + 1e-3 * max(value, 0.001), value) or low == high
        assert not contains(bound, high * 1.001 + 1e-9, value)
        assert low == 0 or not contains(bound, low * 0.99, value)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_clipping_raises_no_data_set_by_more_than_the_bound(share: float) -> None:
    """Over all data sets of 16 records, plain and in the gap form; some come near it."""
    records = 16
    score = clipped(POINTS, records, share)
    ratio, most = largest_raise(score, records, POINTS.pi_min)
    gap_ratio, gap_most = largest_raise(score, records, POINTS.pi_min, gap=True)
    nearest = 0.0
    for counts in all_counts(records):
        current = BatchCounts(POINTS, counts, np.array([records]))
        d = truth(counts, records)
        raised = weighted_score(current, score) - d
        assert -1e-9 <= raised <= min(ratio * d, most) + 1e-9
        nearest = max(nearest, raised / max(min(ratio * d, most), 1e-9))
        gaps = PI * score.divergence.gap(*_ratios(counts, records))
        line = score.divergence.gap(np.array(0.01), np.array(-0.99))
        lifted = np.maximum(gaps, PI * line - score.maximum_step * counts) if share < 1 else gaps
        assert (lifted - gaps).sum() <= min(gap_ratio * d, gap_most) + 1e-9
    assert share == 1 or nearest > 0.5


def _ratios(counts: Ints, records: int) -> tuple[Floats, Floats]:
    excess = 0.99 * (counts / (records * PI) - 1)
    return 1 + excess, excess


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_value_with_noise_is_covered_for_every_data_set(share: float) -> None:
    """P(cover) from the law of the noise, over all data sets of 14 records."""
    records, scores = np.array([14]), clipped(POINTS, 14, share)
    noise = LaplaceMechanism.calibrated(
        Numbers(score_sensitivity(POINTS, records, scores)), epsilon=2.0, delta=0.0
    )
    values = np.linspace(-8, 12, 2001)
    limits = []
    for value in values:
        found = value_interval(value, noise, AskedNumber(POINTS, records, scores))
        assert found is not None
        assert found.guaranteed == found.printed
        limits.append(found.printed)
    low, high = np.array(limits).T
    for counts in all_counts(14):
        d, f = truth(counts, 14), weighted_score(BatchCounts(POINTS, counts, records), scores)
        inside = values[(low <= d + 1e-12) & (d <= high + 1e-12)]
        step = values[1] - values[0]
        ends = noise.survival(np.array([inside[0] - step - f, inside[-1] + step - f]))
        assert ends[0] - ends[1] >= 0.95


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_guaranteed_adaptive_interval_covers_with_records_outside(epsilon: float) -> None:
    """Dead zone and clipping lie between D and the value before noise. Of 8 at most 1 misses."""
    records, rng = 400, np.random.default_rng(3)
    score, covered = clipped(POINTS, records, 0.6), []
    tau = dead_zone(epsilon, records=records, cells=3)
    counts = np.array([230, 105, 65 - int(tau)])
    current = BatchCounts(POINTS, counts, np.array([records]))
    f, law = adaptive_law(current, score, epsilon=epsilon)
    for value in f + law.simulate(rng, 8):
        asked = AskedNumber(POINTS, np.array([records]), score)
        found = adaptive_interval(value, epsilon, asked)
        assert found is not None
        assert found.guaranteed is not None
        assert found.guaranteed[0] <= found.printed[0] <= found.printed[1] <= found.guaranteed[1]
        covered.append(found.guaranteed[0] <= truth(counts, records) <= found.guaranteed[1])
    assert sum(covered) >= 7
