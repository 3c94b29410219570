"""The exact sensitivity against brute force over all neighbouring histograms; paper's bounds."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from experiments.paper.variance import phi
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.audit import worst_neighbours
from fedprikl.divergence import (
    KL,
    Additive,
    Divergence,
    Floor,
    Score,
    Skew,
    divergence_named,
    skewed_divergence,
)
from fedprikl.errors import UnboundedSensitivityError
from fedprikl.estimation import BatchCounts, score_sensitivity, weighted_score
from fedprikl.estimation.scoring import increments_per_batch
from fedprikl.paper import paper_kl_sensitivity, paper_term_sensitivity
from fedprikl.privacy import (
    exact_sensitivity,
    rounding_slack,
    terms_sensitivity,
    worst_substitution,
)
from fedprikl.privacy import sensitivity as module
from fedprikl.reference import QueryPoints, all_points
from tests.brute_force import Histogram, histograms, largest_change, neighbours

pytestmark = pytest.mark.slow

OTHERS = ("reverse_kl", "psi", "js", "hellinger", "tv")
Case = tuple[QueryPoints, np.ndarray[Any, np.dtype[np.int64]], Score]


def random_case(rng: np.random.Generator, batches: int = 1, divergence: Divergence = KL) -> Case:
    """A few asked cells and records; any lambda, skew, smoothing, correction and weights."""
    asked = int(rng.integers(1, 4))
    pi = np.maximum(rng.dirichlet(np.full(asked + 1, rng.choice([0.3, 1, 5]))), 1e-4)
    points = QueryPoints.build(
        np.append(pi / pi.sum(), 0.0),
        cells=np.tile(np.arange(asked), batches),
        batch=np.repeat(np.arange(batches), asked),
        weights=rng.gamma(1, 1, asked * batches)
        * rng.choice([-1, 1], asked * batches, p=[0.1, 0.9]),
        batches=batches,
    )
    smoothing = rng.choice(
        np.array(
            [
                random_skew(rng, divergence),
                Additive(float(rng.choice([0.1, 1.0])), asked + 2),
                Floor(float(rng.choice([0.01, 0.3, 0.6]))),
            ]
        )
    )
    score = random_score(rng, smoothing, divergence)
    return points, rng.integers(1, 9, batches), score


def random_skew(rng: np.random.Generator, divergence: Divergence) -> Skew:
    """None at all, too, where scores are finite without."""
    least = 0.001 if divergence.empty(0.0) == math.inf else 0.0
    return Skew(float(rng.choice([least, 0.01, 0.1, 0.5])))


def random_score(rng: np.random.Generator, smoothing: Any, divergence: Divergence = KL) -> Score:
    convex = not isinstance(smoothing, Floor)
    return Score(
        smoothing,
        divergence,
        control=float(rng.choice([0, -1, 1, 0.3, -2])),
        correction=float(rng.choice([0, 0.5, 1, 4])) if convex else 0.0,
        maximum_step=float(rng.choice([0.01, 0.2, 1, math.inf])) if convex else math.inf,
    )


def random_pooled_case(rng: np.random.Generator, divergence: Divergence = KL) -> Case:
    """Two or three small batches, some of their cells in common, as the planner asks them."""
    cells, batches = 3, int(rng.integers(2, 4))
    pi = np.maximum(rng.dirichlet(np.full(cells + 1, rng.choice([0.3, 1, 5]))), 1e-4)
    asked = rng.random((batches, cells)) < 0.6
    asked[np.arange(batches), rng.integers(0, cells, batches)] = True
    batch, cell = np.nonzero(asked)
    points = QueryPoints.build(
        np.append(pi / pi.sum(), 0.0),
        cells=cell,
        batch=batch,
        weights=rng.gamma(1, 1, cells)[cell],
        batches=batches,
        pooled=True,
    )
    score = random_score(rng, random_skew(rng, divergence), divergence)
    return points, rng.integers(1, 6 - batches, batches), score


def brute_force(points: QueryPoints, records: Any, score: Score) -> float:
    """Over every batch, every histogram of the asked cells and one that is not asked."""
    changes = []
    for t in range(points.batches):
        mine = points.batch == t
        weights, pi = points.weights[mine], points.pi[mine]
        outside = 1 - records[t] / records.sum()

        def value(
            h: Histogram,
            weights: Any = weights,
            pi: Any = pi,
            n: int = records[t],
            outside: float = outside,
        ) -> float:
            counts = np.array(h[:-1])
            return float(
                weights @ score(counts, pi, np.array([n]), outside=outside, weights=weights)
            )

        changes.append(largest_change(value, len(pi) + 1, int(records[t])))
    return max(changes)


def brute_force_of_all_batches(points: QueryPoints, records: Any, score: Score) -> float:
    """Over every histogram of all batches at once: a pooled term sees several of them."""
    sizes = np.bincount(points.batch, minlength=points.batches)
    each = [list(histograms(size + 1, int(n))) for size, n in zip(sizes, records, strict=True)]

    def value(joint: tuple[Histogram, ...]) -> float:
        counts = np.concatenate([h[:-1] for h in joint])
        return weighted_score(BatchCounts(points, counts, records), score)

    values = {joint: value(joint) for joint in itertools.product(*each)}
    return max(
        abs(values[joint] - values[(*joint[:t], other, *joint[t + 1 :])])
        for joint in values
        for t in range(points.batches)
        for other in neighbours(joint[t])
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_exact_sensitivity_is_brute_force(seed: int) -> None:
    """20 x 20 random cases: equal up to rounding, never below, and attained by two data sets."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(20):
        points, records, score = random_case(rng, batches=int(rng.integers(1, 3)))
        exact = exact_sensitivity(increments_per_batch(points, records, score, points.weights))
        brute = brute_force(points, records, score)
        assert exact == pytest.approx(brute, rel=1e-11, abs=1e-13)
        assert score_sensitivity(points, records, score) >= brute
        left, right = worst_neighbours(points, records, score)
        distance = abs(weighted_score(left, score) - weighted_score(right, score))
        assert distance == pytest.approx(exact, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("seed", range(10))
def test_the_sensitivity_of_pooled_counts_is_brute_force(seed: int) -> None:
    """10 x 8 random cases: equal up to rounding, never below, and attained by two data sets."""
    rng = np.random.default_rng([seed, 2])
    for _ in range(8):
        points, records, score = random_pooled_case(rng)
        exact = exact_sensitivity(increments_per_batch(points, records, score))
        brute = brute_force_of_all_batches(points, records, score)
        assert exact == pytest.approx(brute, rel=1e-11, abs=1e-13)
        assert score_sensitivity(points, records, score) >= brute
        left, right = worst_neighbours(points, records, score)
        distance = abs(weighted_score(left, score) - weighted_score(right, score))
        assert distance == pytest.approx(exact, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("name", OTHERS)
def test_the_sensitivity_of_every_divergence_is_brute_force(name: str) -> None:
    """60 sampled and 15 pooled cases each: equal to 1e-12, never below, and attained."""
    rng, divergence = np.random.default_rng([len(name), 3]), divergence_named(name)
    cases = [random_case(rng, int(rng.integers(1, 3)), divergence) for _ in range(60)]
    cases += [random_pooled_case(rng, divergence) for _ in range(15)]
    for points, records, score in cases:
        exact = exact_sensitivity(increments_per_batch(points, records, score, points.weights))
        found = brute_force_of_all_batches if points.pooled else brute_force
        brute = found(points, records, score)
        assert exact == pytest.approx(brute, rel=1e-12, abs=1e-14 * scale_of(points, score))
        assert score_sensitivity(points, records, score) >= brute
        left, right = worst_neighbours(points, records, score)
        distance = abs(weighted_score(left, score) - weighted_score(right, score))
        assert distance == pytest.approx(brute, rel=1e-12, abs=1e-14 * scale_of(points, score))


def scale_of(points: QueryPoints, score: Score) -> float:
    """The size of the sums whose differences are compared: their rounding is no error."""
    n = np.full(len(points), 8)
    return float(np.abs(points.weights) @ score.bound(points.pi, n))


@pytest.mark.parametrize(
    ("name", "skew", "expected"),
    [
        ("kl", 0.01, 98.8),
        ("psi", 0.01, 112.5),
        ("reverse_kl", 0.01, 13.7),
        ("hellinger", 0.01, 4.94),
        ("hellinger", 0.0, 145),
        ("js", 0.01, 2.28),
        ("js", 0.0, 5.47),
        ("tv", 0.01, 0.99),
        ("tv", 0.0, 1.0),
    ],
)
def test_the_sensitivity_per_record_of_250_lognormal_cells(
    name: str, skew: float, expected: float
) -> None:
    """Delta N: a hundred times less noise for TV than for KL."""
    mass = np.exp(1.1 * stats.norm.ppf((np.arange(250) + 0.5) / 250))
    points, n = all_points(mass / mass.sum()), np.array([400_000])
    found = score_sensitivity(points, n, Score(Skew(skew), divergence_named(name)))
    assert found * 400_000 == pytest.approx(expected, rel=5e-3)


def test_pooled_extremes_that_do_not_fit_together_are_bounded() -> None:
    """A floor has its maximum step at the kink: pooled, the bound may be loose, never low."""
    points = QueryPoints.build(
        np.array([0.1, 0.8, 0.1]),
        cells=[0, 1, 0, 1],
        batch=[0, 0, 1, 1],
        weights=np.ones(4),
        batches=2,
        pooled=True,
    )
    records, score = np.array([4, 4]), Score(Floor(0.6), control=0.5)
    exact = exact_sensitivity(increments_per_batch(points, records, score))
    brute = brute_force_of_all_batches(points, records, score)
    assert brute <= exact <= 1.5 * brute


def test_the_steepest_step_is_the_sensitivity_it_promises() -> None:
    """No record moves the release by more than c, and without the line it would."""
    points = all_points(np.array([0.5, 0.3, 0.2]))
    records = np.array([1000])
    assert score_sensitivity(points, records, Score()) > 0.09
    limited = score_sensitivity(points, records, Score(maximum_step=0.01))
    assert limited == pytest.approx(0.01, rel=1e-9)


def test_the_extremes_alone_would_overestimate() -> None:
    """The same cell cannot lose and gain: a formula without y != z is not tight."""
    points = QueryPoints.build(np.array([0.5, 0.5, 0.0]), cells=[0], batch=[0], weights=[1.0])
    records, score = np.array([8]), Score(Skew(0.1), control=2.0)
    (batch,) = increments_per_batch(points, records, score, points.weights)
    loose = float(batch.highest[0] - batch.lowest[0])
    assert exact_sensitivity([batch]) == pytest.approx(brute_force(points, records, score))
    assert loose > exact_sensitivity([batch]) * 1.1


def floor_case(records: int) -> Case:
    """Two cells whose extremes cannot occur together: one at the kink, one at the last count."""
    points = QueryPoints.build(
        np.array([0.1, 0.8, 0.1]), cells=[0, 1], batch=[0, 0], weights=[1.0, 1.0]
    )
    return points, np.array([records]), Score(Floor(0.6), control=0.5)


def test_extremes_that_cannot_occur_together_are_settled_by_the_table() -> None:
    points, records, score = floor_case(8)
    (batch,) = increments_per_batch(points, records, score, points.weights)
    assert batch.highest_at[0] + batch.lowest_at[1] >= 8
    assert exact_sensitivity([batch]) == pytest.approx(brute_force(points, records, score))


def test_beyond_the_table_the_bound_is_never_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    points, records, score = floor_case(8)
    batches = increments_per_batch(points, records, score, points.weights)
    exact = exact_sensitivity(batches)
    monkeypatch.setattr(module, "ENUMERATION_LIMIT", 0)
    assert exact <= exact_sensitivity(batches) <= 1.5 * exact


def test_a_substitution_names_the_cells() -> None:
    points = QueryPoints.build(
        np.array([0.1, 0.2, 0.7]), cells=[0, 1], batch=[0, 0], weights=[0.5, 0.5]
    )
    worst = worst_substitution(increments_per_batch(points, np.array([9]), Score(), points.weights))
    assert (worst.losing, worst.lose_at, worst.gaining) == (0, 0, None)


@pytest.mark.parametrize("seed", range(20))
def test_the_worst_batch_is_found_among_many(seed: int) -> None:
    """Batches that cannot matter are skipped; examining each on its own finds the same."""
    points, records, score = random_case(np.random.default_rng(seed), batches=6)
    batches = increments_per_batch(points, records, score, points.weights)
    assert exact_sensitivity(batches) == max(exact_sensitivity([batch]) for batch in batches)


def test_no_batch_has_no_sensitivity() -> None:
    with pytest.raises(InvalidInputError, match="no batch"):
        exact_sensitivity([])


def test_the_sensitivity_of_all_terms_is_brute_force(rng: np.random.Generator) -> None:
    """L2 distance of the vectors of terms, a point drawn twice standing twice."""
    for _ in range(50):
        points, records, score = random_case(rng)
        score = Score(Skew(0.05), control=0.0)
        draws = rng.integers(1, 4, len(points))
        batches = increments_per_batch(points, records, score, np.ones(len(points)))
        found = terms_sensitivity(batches, [draws])
        worst = 0.0
        values = {
            h: score(np.array(h[:-1]), points.pi, records)
            for h in histograms(len(points) + 1, int(records[0]))
        }
        for h in values:
            for n in neighbours(h):
                worst = max(worst, float(np.sqrt(draws @ (values[h] - values[n]) ** 2)))
        assert found == pytest.approx(worst, rel=1e-11)


def test_without_smoothing_there_is_no_finite_sensitivity() -> None:
    points, records, _ = floor_case(8)
    score = Score(Skew(0.0))
    with pytest.raises(UnboundedSensitivityError, match="Choose a smoothing"):
        exact_sensitivity(increments_per_batch(points, records, score, points.weights))
    with pytest.raises(UnboundedSensitivityError):
        terms_sensitivity(
            increments_per_batch(points, records, score, points.weights), [points.draws]
        )


@pytest.mark.parametrize("cells", [2, 3])
@pytest.mark.parametrize("records", [6, 7, 9, 11])
def test_the_paper_bound_of_the_divergence(cells: int, records: int) -> None:
    """th:SensitivityOfKLD by enumeration of all histograms with every count above 1."""
    assert math.log(2) == paper_kl_sensitivity() < 0.7
    pi = np.full(cells, 0.02 / (cells - 1))
    pi[0] = 0.98

    def value(h: Histogram) -> float:
        return skewed_divergence(pi, np.array(h) / records, skew=0.0)

    allowed = largest_change(value, cells, records, at_least=2)
    assert allowed <= math.log(1.5) < paper_kl_sensitivity()  # 3 -> 2 is the maximum step left
    one_allowed = largest_change(value, cells, records, at_least=1)
    assert one_allowed == pytest.approx(0.98 * math.log(2), rel=0.05)  # nearly attained
    assert largest_change(value, cells, records) == math.inf  # and false without the premise


@pytest.mark.parametrize("control", [-2.0, -0.5, 0.0, 0.7, 3.0])
def test_the_paper_bound_of_a_term(control: float, rng: np.random.Generator) -> None:
    """th:SensitivityOfSampledKLD by enumeration, for every sampled cell."""
    records = 9
    for _ in range(10):
        pi = np.maximum(rng.dirichlet(np.ones(3)), 0.01)
        pi /= pi.sum()
        kappa = paper_term_sensitivity(control=control, records=records, pi_min=float(pi.min()))
        for cell in range(3):

            def term(h: Histogram, cell: int = cell, pi: Any = pi) -> float:
                return float(phi(h[cell] / records / pi[cell], control=control))

            assert largest_change(term, 3, records, at_least=2) <= kappa


@pytest.mark.parametrize("gamma", [0.5, 0.99, 1 - 1e-9])
@pytest.mark.parametrize("weight", [1.0, 1e10])
def test_the_slack_covers_rounding_where_logarithms_are_small(gamma: float, weight: float) -> None:
    """Huge weights and counts, v near 1: computed neighbours stay within the sensitivity."""
    points = QueryPoints.build([0.5, 0.5], cells=[0], batch=[0], weights=[weight])
    records, score = np.array([10**12]), Score(Skew(gamma))
    limit = score_sensitivity(points, records, score)
    for start in (0, 300_690_000, 10**11, 10**12 - 1000):
        counts = np.arange(start, start + 1000)
        computed = weight * score(counts, points.pi, records)
        assert np.abs(np.diff(computed)).max() <= limit


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("gamma", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("pi", [0.5, 1e-4])
def test_the_slack_covers_the_rounding_of_every_divergence(
    name: str, gamma: float, pi: float
) -> None:
    """Steps of 1e-12 against scores of up to 1e5: computed ones stay within the sensitivity."""
    divergence, records = divergence_named(name), np.array([10**12, 10**12])
    least = 1e-3 if name == "psi" else 0.0
    score = Score(Skew(max(gamma, least)), divergence, correction=2.0)
    points = QueryPoints.build(
        [pi, 1 - pi], cells=[0, 0], batch=[0, 1], weights=[pi, pi], batches=2
    )
    limit = score_sensitivity(points, records, score)
    for start in (0, int(pi * 10**12) - 500, 10**11, 10**12 - 1000):
        counts = np.arange(start, start + 1000)
        computed = pi * score(counts, points.pi[:1], records[:1], outside=0.5)
        assert np.abs(np.diff(computed)).max() <= limit


def test_the_slack_grows_with_the_magnitude() -> None:
    assert 0 < rounding_slack(1.0) < 1e-13
    assert rounding_slack(1e6) == 1e6 * rounding_slack(1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: paper_term_sensitivity(control=0, records=0, pi_min=0.1), "at least 1"),
        (lambda: paper_term_sensitivity(control=0, records=1, pi_min=0.0), "above 0"),
        (lambda: paper_term_sensitivity(control=np.nan, records=1, pi_min=0.1), "finite"),
        (lambda: rounding_slack(np.inf), "finite"),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()
