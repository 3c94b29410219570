"""Statistics of sparse drift: the largest cell and unseen values, with half of the alarm rate."""

import numpy as np
import pytest

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import TV, Score, Skew
from fedprikl.estimation import CountNoise, NoisyCounts, judge_columns, judge_together
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import score_sensitivity
from fedprikl.estimation.statistic import (
    Statistic,
    alarm_shares,
    counts_statistics,
    normal_scores,
    scored_statistic,
)
from fedprikl.estimation.verdict import (
    NullValues,
    any_above,
    joint_thresholds,
    simulate_together,
    simulated_draws,
)
from fedprikl.privacy import LaplaceMechanism, Numbers
from fedprikl.reference import OutOfDomain, QueryPoints, Reference, all_points
from tests.estimation.test_verdict import alarms_too_often

RECORDS, RATE = 8_000, 0.01
NOISE = CountNoise(sd=3.1, scale=2.2)  # of epsilon 1, about
MISSED = OutOfDomain(shape=1.0, scale=1 / 40_000, effect=1.0)
SCORE = Score(Skew(0.0), TV)


def bimodal() -> Floats:
    x = np.arange(40)
    mass = np.exp(-(((x - 10) / 4) ** 2) / 2) + 0.6 * np.exp(-(((x - 28) / 5) ** 2) / 2) + 0.01
    return np.asarray(mass / mass.sum())


PI, POINTS, SIZES = bimodal(), all_points(bimodal()), np.array([RECORDS])
MODEL = NoDrift.of(POINTS, SIZES, 1.0)


def released(
    held: Ints, rng: np.random.Generator, points: QueryPoints = POINTS
) -> tuple[Statistic, ...]:
    """tv, and noisy counts with the count of unseen values last, as a verdict takes them."""
    sizes = np.array([held.sum()])
    law = LaplaceMechanism.calibrated(
        Numbers(score_sensitivity(points, sizes, SCORE)), epsilon=0.08, delta=0
    )
    exact = float(SCORE(held[:-1], points.pi, sizes) @ points.weights)
    value = exact + rng.laplace(0, law.scale)
    noisy = NoisyCounts.of(held + NOISE.draw(rng, held.shape), sizes, [NOISE])
    tv = scored_statistic(value, score=SCORE, points=points, records=sizes, mechanism=law)
    return (tv, *counts_statistics(points, noisy, MISSED))


def population(p: Floats, rng: np.random.Generator, unseen: float = 0.0) -> Ints:
    return rng.multinomial(RECORDS, np.append((1 - unseen) * p / p.sum(), unseen))


NONE = released(np.append(np.rint(RECORDS * PI).astype(int), 0), np.random.default_rng(0))
NULLS = simulate_together(NONE, MODEL, draws=simulated_draws(RATE))


def found(
    statistics: tuple[Statistic, ...], thresholds: tuple[float, ...], *, but: str = ""
) -> list[str]:
    pairs = zip(statistics, thresholds, strict=True)
    return [each.name for each, t in pairs if each.name != but and each.observed(MODEL) > t]


def test_each_statistic_has_its_share_of_the_rate() -> None:
    shares = alarm_shares([each.sparse for each in NONE])
    assert shares.tolist() == [0.25] * 4  # tv and the variation; the largest cell and unseen values
    two = [NULLS[1], NULLS[2], NULLS[3]]  # the variation has half of it
    limits = joint_thresholds(two, false_alarm=0.05)
    levels = np.array([null.above(t).mean() for null, t in zip(two, limits, strict=True)])
    assert levels[0] == pytest.approx(2 * levels[1], rel=0.03)
    # Of unseen values the statistic is a whole number: no threshold has exactly its share.
    assert 0.7 * levels[1] < levels[2] < 1.03 * levels[1]


def test_all_of_them_together_keep_the_rate(rng: np.random.Generator) -> None:
    """1,500 populations; a rate of 1% is called exceeded with probability 1e-4 (see there)."""
    thresholds, alarms, careless = joint_thresholds(NULLS, false_alarm=RATE), 0, 0
    alone = tuple(joint_thresholds([null], false_alarm=RATE)[0] for null in NULLS)
    for _ in range(1_500):
        statistics = released(population(PI, rng), rng)
        alarms += bool(found(statistics, thresholds))
        careless += bool(found(statistics, alone))
    assert not alarms_too_often(alarms, 1_500, RATE)
    assert alarms > 2  # and the thresholds are not far too high
    assert careless > alarms


def test_a_check_of_the_rate_has_teeth() -> None:
    """Thresholds that each statistic would have alone break the rate of all together."""
    alone = [joint_thresholds([null], false_alarm=0.05)[0] for null in NULLS]
    together = joint_thresholds(NULLS, false_alarm=0.05)
    assert any_above(NULLS, alone).mean() > 0.1
    assert any_above(NULLS, together).mean() < 0.05


def test_columns_keep_it_too(rng: np.random.Generator) -> None:
    """In smooth tails: 300 releases of two columns at 5%."""
    pi = bimodal()[:12] / bimodal()[:12].sum()
    points, alarms = all_points(pi), 0
    model = NoDrift.of(points, np.array([2_000]), 1.0)

    def column() -> tuple[NoDrift, tuple[Statistic, ...]]:
        return model, released(rng.multinomial(2_000, np.append(pi, 0.0)), rng, points)

    limits = [v.statistics for v in judge_columns([column(), column()], false_alarm=0.05)]
    for _ in range(300):
        alarms += any(
            each.observed(model) > judged.threshold
            for row in limits
            for each, judged in zip(column()[1], row, strict=True)
        )
    assert not alarms_too_often(alarms, 300, 0.05)
    assert alarms > 1


def test_one_fading_cell_is_found_that_the_variation_misses(rng: np.random.Generator) -> None:
    faded = PI.copy()
    faded[np.argsort(PI)[20]] *= 0.55  # a median cell
    thresholds = joint_thresholds(NULLS, false_alarm=RATE)
    before = joint_thresholds(NULLS[:2], false_alarm=RATE)
    hits = np.zeros(2, dtype=int)
    for _ in range(100):
        statistics = released(population(faded, rng), rng)
        hits += "largest_cell" in found(statistics, thresholds), bool(found(statistics[:2], before))
    assert hits[0] >= 90
    assert hits[1] <= 50


def test_a_hundredth_of_unseen_values_is_found(rng: np.random.Generator) -> None:
    thresholds = joint_thresholds(NULLS, false_alarm=RATE)
    for _ in range(40):
        statistics = released(population(PI, rng, unseen=0.01), rng)
        assert "out_of_domain" in found(statistics, thresholds)


def test_deviations_are_those_of_a_normal_law_where_counts_are() -> None:
    model = NoDrift.of(all_points([0.5, 0.5]), np.array([100_000]), 2.0)
    noisy = np.array([[50_000.0, 50_000.0], [50_000.0, 50_700.0]])
    scores = normal_scores(noisy, model, np.full(2, 300.0))
    sd = np.sqrt(300**2 + 2 * 25_000)
    assert scores == pytest.approx(np.array([[0, 0], [0, 700 / sd]]), abs=0.05)


def test_a_rare_cell_of_few_clients_does_not_hide_the_others(rng: np.random.Generator) -> None:
    """Clients hold their records of a rare cell together: its count is skewed."""
    counts = rng.multinomial(100, rng.dirichlet(np.append(np.full(20, 1.0), 0.01), 300))
    view = Reference.from_counts(counts).whole
    model = NoDrift.of(view.points(), np.array([8_000]), view.spread(clients=[80]))
    drawn = model.counts(4_000, rng) + rng.normal(0, 3.0, (4_000, len(model.pi)))
    scores = np.abs(normal_scores(drawn, model, np.full(len(model.pi), 3.0)))
    plain = np.abs(drawn - drawn.mean(axis=0)) / drawn.std(axis=0)
    assert np.quantile(scores.max(axis=1), 0.995) < 5
    assert np.quantile(plain.max(axis=1), 0.995) > 6


def test_statistics_of_the_same_counts_see_the_same_noise(rng: np.random.Generator) -> None:
    """Else what one of them sees would be a second chance of the other."""
    counts = MODEL.counts(2_000, rng)
    values = [each.simulated(MODEL, counts, rng)[:, 0] for each in NONE[1:3]]
    assert float(np.corrcoef(values[0], values[1]).min()) > 0.3
    apart = [each.simulated(MODEL, counts.copy(), rng)[:, 0] for each in NONE[1:3]]
    assert not np.array_equal(apart[0], values[0])
    same = [each.simulated(MODEL, counts, rng)[:, 0] for each in NONE[1:3]]
    again = NONE[2].simulated(MODEL, counts, rng)[:, 0]
    assert np.array_equal(same[1], again)


def test_a_hopeless_statistic_has_no_share(rng: np.random.Generator) -> None:
    """Its threshold lies above all that is possible, so only noise would exceed it."""
    some = rng.normal(size=(4_000, 2))
    hopeful = NullValues(some[:, :1])
    hopeless = NullValues(100 * some[:, 1:], possible=(0.0, 1.0), sparse=True)
    alone = joint_thresholds([hopeful], false_alarm=RATE)
    assert joint_thresholds([hopeful, hopeless], false_alarm=RATE) == (*alone, np.inf)
    assert joint_thresholds([hopeless, hopeless], false_alarm=RATE) == (np.inf, np.inf)


def test_a_verdict_leaves_hopeless_statistics_out(rng: np.random.Generator) -> None:
    points, sizes = all_points([0.6, 0.4]), np.array([20])
    statistics = released(np.array([12, 8, 0]), rng, points)
    for verdict in (
        judge_together(statistics, NoDrift.of(points, sizes, 1.0), false_alarm=RATE),
        *judge_columns([(NoDrift.of(points, sizes, 1.0), statistics)], false_alarm=RATE),
    ):
        assert verdict.statistic("tv") is None  # noise of 0.6 / 0.08
        assert verdict.statistic("out_of_domain") is not None
