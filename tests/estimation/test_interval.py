"""The interval covers at least as often as it says, for spread and for concentrated drift."""

import math

import numpy as np
import pytest
from scipy import stats

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import KL, Score, Skew, skewed_divergence
from fedprikl.estimation import BatchCounts, trusted_aggregator
from fedprikl.estimation.drift_model import fit_drift
from fedprikl.estimation.interval import confidence_interval, error_before_noise
from fedprikl.estimation.terms import Terms
from fedprikl.privacy import GaussianMechanism, LaplaceMechanism
from fedprikl.reference import QueryPoints, distinct_points, spread_points

REPETITIONS = 2000


def zipf(cells: int) -> Floats:
    mass = np.append(1 / np.arange(1.0, cells + 1), 0.0)
    normalised: Floats = mass / mass.sum()
    return normalised


def population(kind: str) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(5)
    pi = zipf(600)
    tilt = {
        "no drift": np.ones(601),
        "spread drift": np.exp(0.5 * rng.normal(size=601)),
        "concentrated drift": (rng.random(601) > 0.08).astype(float),
    }[kind]
    p = pi * tilt
    return pi, rng.multinomial(60_000, p / p.sum())


@pytest.mark.parametrize("kind", ["no drift", "spread drift", "concentrated drift"])
def test_the_interval_covers(kind: str) -> None:
    """2,000 repetitions: coverage at least 94% (a true 95% fails here with probability 0.02)."""
    pi, held = population(kind)
    truth = skewed_divergence(pi, held / held.sum(), skew=0.01)
    rng, source = np.random.default_rng(6), InsecureSeededNoise(7)
    covered = 0
    for _ in range(REPETITIONS):
        points = distinct_points(pi, 60, rng=rng)
        counts = BatchCounts(points, held[points.cells], np.array([held.sum()]))
        limits = trusted_aggregator(counts, epsilon=0.5, source=source).interval
        assert limits is not None
        covered += limits[0] <= truth <= limits[1]
    assert covered / REPETITIONS >= 0.94


@pytest.mark.parametrize("kind", ["no drift", "spread drift", "concentrated drift"])
def test_the_interval_covers_with_pooled_batches_and_clipping(kind: str) -> None:
    """100 repetitions of a planner's design: at least 88% (a true 95% fails with p = 0.002)."""
    pi, held = population(kind)
    truth = skewed_divergence(pi, held / held.sum(), skew=0.01)
    rng, source = np.random.default_rng(8), InsecureSeededNoise(9)
    score, repetitions, covered = Score(correction=1.0, maximum_step=0.01), 100, 0
    for _ in range(repetitions):
        points = spread_points(pi, 60, batches=6, rng=rng)
        table = rng.multivariate_hypergeometric(held, int(held.sum()) // 6, method="marginals")
        batches, left = [table], held - table
        for n in (5, 4, 3, 2):
            table = rng.multivariate_hypergeometric(left, int(left.sum()) // n, method="marginals")
            batches.append(table)
            left = left - table
        dealt = np.stack([*batches, left])
        counts = BatchCounts(points, dealt[points.batch, points.cells], dealt.sum(axis=1))
        limits = trusted_aggregator(counts, epsilon=0.5, score=score, source=source).interval
        assert limits is not None
        covered += limits[0] <= truth <= limits[1]
    assert covered / repetitions >= 0.88


def test_the_moment_bound_behind_it() -> None:
    """s^2 <= R ((v - 1) - ln v) for all v >= gamma, attained at gamma."""
    gamma = 0.01
    bound = KL.square_ratio(gamma, 1e4)
    v = np.concatenate([np.geomspace(gamma, 0.999, 5000), np.geomspace(1.001, 1e4, 5000)])
    ratio = np.log(v) ** 2 / (v - 1 - np.log(v))
    assert ratio.max() <= bound * (1 + 1e-12)
    assert ratio[0] == pytest.approx(bound)


@pytest.mark.parametrize("probability", [0.6, 0.975, 0.9999])
@pytest.mark.parametrize("sd", [0.0, 0.01, 1.0, 30.0])
def test_quantiles_of_noise_and_sampling(probability: float, sd: float) -> None:
    laplace = LaplaceMechanism(scale=0.7, sensitivity=1.0)
    found = laplace.quantile(probability, error_sd=sd)
    grid = np.linspace(-80, 80, 400_001) * max(1.0, sd / 5)
    density = stats.laplace.pdf(grid, scale=0.7) * (grid[1] - grid[0])
    below = float(density @ (stats.norm.cdf((found - grid) / sd) if sd else (grid <= found)))
    assert below == pytest.approx(probability, abs=2e-3)
    gaussian = GaussianMechanism(sigma=0.7, sensitivity=1.0)
    expected = stats.norm.ppf(probability) * math.hypot(0.7, sd)
    assert gaussian.quantile(probability, error_sd=sd) == pytest.approx(expected)


def test_batches_widen_the_interval(rng: np.random.Generator) -> None:
    pi, _ = population("no drift")
    one, four = (distinct_points(pi, 20, batches=t, rng=rng) for t in (1, 4))
    assert error_before_noise(one, np.array([1000]), Score())(0.0) == (0, 0)
    of_four = error_before_noise(four, np.full(4, 1000), Score())
    related = error_before_noise(four, np.full(4, 1000), Score(), client_effect=4.0)
    assert of_four(0.0)[0] > 0
    assert related(0.0)[0] > of_four(0.0)[0]


def error_by_hand(points: QueryPoints, score: Score, divergence: float) -> tuple[float, float]:
    """Standard deviation and mean of what small batches and clipping add, in 600 populations."""
    terms, rng, sums = Terms.of(points, BATCHES[: points.batches]), np.random.default_rng(1), []
    everybody = int(BATCHES[: points.batches].sum())
    drift = fit_drift(terms.weights, terms.pi, divergence=divergence, score=Score())
    for _ in range(600):
        rate = terms.pi * drift.ratios(terms.pi, rng.random(len(terms.pi)))
        asked = rng.poisson(terms.records * rate)
        others = rng.poisson((everybody - terms.records) * rate)
        all_counts = Score()(asked + others, terms.pi, np.full(len(terms.pi), everybody))
        sums.append(float(terms.weights @ (terms.scores(asked, score) - all_counts)))
    return float(np.std(sums)), float(np.mean(sums))


BATCHES = np.full(6, 10_000)


@pytest.mark.parametrize("batches", [1, 6])
def test_the_bias_of_clipping_is_the_one_that_populations_show(batches: int) -> None:
    """Within 25%: the cells are sampled, so their weights are not their probabilities, and mixing
    up the two gives a quarter of the bias.
    """
    pi, _ = population("no drift")
    points = spread_points(pi, 40, batches=batches, rng=np.random.default_rng(3))
    score, divergence = Score(correction=1.0, maximum_step=0.005), 0.15 * math.log(100)
    _, expected = error_by_hand(points, score, divergence)
    _, bias = error_before_noise(points, BATCHES[:batches], score)(divergence)
    assert expected > 0.01
    assert bias == pytest.approx(expected, rel=0.25)


def test_the_spread_without_drift_is_the_one_that_populations_show() -> None:
    pi, _ = population("no drift")
    points = spread_points(pi, 40, batches=6, rng=np.random.default_rng(3))
    score = Score(correction=1.0, maximum_step=0.005)
    expected, _ = error_by_hand(points, score, 0.0)
    assert error_before_noise(points, BATCHES, score)(0.0)[0] == pytest.approx(expected, rel=0.1)


def test_the_interval_leaves_room_for_twice_the_bias_on_its_side() -> None:
    """Clipping makes values too large, so a large value does not contradict a small divergence."""
    pi, _ = population("no drift")
    points = spread_points(pi, 40, batches=6, rng=np.random.default_rng(3))
    score, truth = Score(correction=1.0, maximum_step=0.005), 0.15 * math.log(100)
    noise = LaplaceMechanism(scale=0.001, sensitivity=0.001)
    sd, bias = error_before_noise(points, BATCHES, score)(truth)
    usual = noise.quantile(0.975, error_sd=sd)
    assert bias > 0.1 * usual

    def contains(value: float) -> bool:
        limits = confidence_interval(
            value, mechanism=noise, points=points, records=BATCHES, score=score
        )
        assert limits is not None
        return limits[0] <= truth <= limits[1]

    assert contains(truth + usual + 1.95 * bias)
    assert not contains(truth + usual + 2.05 * bias)
    assert contains(truth - 0.99 * usual)
    assert not contains(truth - 1.01 * usual)


def test_impossible_values_and_other_scores(rng: np.random.Generator) -> None:
    pi, _ = population("no drift")
    points, noise = distinct_points(pi, 20, rng=rng), LaplaceMechanism(scale=0.01, sensitivity=0.01)

    def interval(value: float, score: Score) -> tuple[float, float] | None:
        return confidence_interval(
            value, mechanism=noise, points=points, records=np.array([1000]), score=score
        )

    far = interval(50.0, Score())
    assert far is not None
    assert far[0] == far[1] == pytest.approx(math.log(100))
    low = interval(-0.01, Score())
    assert low is not None
    assert low[0] == 0
    assert interval(0.1, Score(Skew(0.01), control=1.0)) is None
    assert interval(0.1, Score(Skew(0.0))) is None
    with pytest.raises(InvalidInputError, match="strictly between"):
        confidence_interval(
            0.1, mechanism=noise, points=points, records=np.array([9]), score=Score(), level=95.0
        )


@pytest.mark.parametrize("skew", [0.001, 0.5, 0.9, 0.99, 0.999])
def test_every_skew_has_an_interval(skew: float) -> None:
    """It is computed after the budget was charged, so it must not fail."""
    rng, pi = np.random.default_rng(11), zipf(50)
    for seed in range(5):
        points = spread_points(pi, 10, batches=4, rng=rng)
        held = rng.multinomial(4000, pi)
        dealt = np.stack([held // 4] * 4)
        counts = BatchCounts(points, dealt[points.batch, points.cells], dealt.sum(axis=1))
        score = Score(Skew(skew), correction=2.0, maximum_step=0.1)
        found = trusted_aggregator(
            counts, epsilon=0.5, score=score, source=InsecureSeededNoise(seed)
        ).interval
        assert found is not None
        assert 0 <= found[0] <= found[1] <= -math.log(skew) * (1 + 1e-9)


def test_clients_with_correlated_records_are_covered_too() -> None:
    """Clients of 50 records, design effect about 3.5: of 40 intervals at least 33 cover.

    (A true 95% fails with probability 0.003.) Ignoring the effect, far fewer do.
    """
    rng, pi = np.random.default_rng(12), zipf(400)[:-1]
    clients, size, effect = 800, 50, 3.45
    covered = {effect: 0, 1.0: 0}
    for seed in range(40):
        taste = rng.dirichlet(pi * 19, clients)  # icc = 1 / 20
        held = rng.multinomial(size, taste)
        batch = rng.permutation(np.arange(clients) % 4)
        dealt = np.stack([held[batch == t].sum(axis=0) for t in range(4)])
        truth = skewed_divergence(pi, dealt.sum(axis=0) / dealt.sum(), skew=0.01)
        points = spread_points(pi, 60, batches=4, rng=rng)
        counts = BatchCounts(points, dealt[points.batch, points.cells], dealt.sum(axis=1))
        for each in covered:
            low, high = trusted_aggregator(
                counts,
                epsilon=5.0,
                score=Score(correction=each),
                client_effect=each,
                source=InsecureSeededNoise(seed),
            ).interval or (0.0, 0.0)
            covered[each] += low <= truth <= high
    assert covered[effect] >= 33
    assert covered[1.0] < 30
