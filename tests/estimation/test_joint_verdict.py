"""Several statistics, one false-alarm rate."""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew
from fedprikl.estimation import (
    BatchCounts,
    CountsDesign,
    JudgedStatistic,
    Verdict,
    estimate_scored_sum,
    judge_together,
    score_sensitivity,
)
from fedprikl.estimation.estimate import Estimates, noise_counts
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import Statistic, scored_statistic, variation_statistic
from fedprikl.estimation.verdict import NullValues, alarm_threshold, joint_thresholds
from fedprikl.privacy import (
    Calibrated,
    Counts,
    InsecureSeededNoise,
    LaplaceMechanism,
    Numbers,
    calibrate,
)
from fedprikl.reference import QueryPoints, spread_points
from tests.estimation.test_verdict import alarms_too_often

pytestmark = pytest.mark.slow

NORMAL = np.random.default_rng(3).normal(size=(4000, 1))
LAPLACE = LaplaceMechanism.calibrated(Numbers(0.5), epsilon=1.0, delta=0.0)


def zipf(cells: int) -> Floats:
    mass = 1 / np.arange(1.0, cells + 1)
    normalised: Floats = mass / mass.sum()
    return normalised


def whole(pi: Floats) -> QueryPoints:
    return spread_points(pi, len(pi), batches=1, rng=np.random.default_rng(0))


def test_one_statistic_has_the_threshold_it_has_alone() -> None:
    for mechanism in (None, LAPLACE):
        (found,) = joint_thresholds([NullValues(NORMAL, mechanism)], false_alarm=0.01)
        assert found == alarm_threshold(NORMAL[:, 0], mechanism, false_alarm=0.01)


def test_the_same_statistic_twice_costs_nothing() -> None:
    """Statistics that always agree share one false alarm."""
    alone = alarm_threshold(NORMAL[:, 0], None, false_alarm=0.02)
    twice = joint_thresholds([NullValues(NORMAL)] * 2, false_alarm=0.02)
    assert twice == pytest.approx((alone, alone), abs=0.05)


def test_every_statistic_is_exceeded_equally_often_and_any_rarely() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(4000, 3)) * [1.0, 5.0, 0.2]
    nulls = [
        NullValues(values[:, [0]]),
        NullValues(values[:, [1]], LAPLACE),
        NullValues(values[:, [2]] + rng.normal(size=(4000, 8))),
    ]
    thresholds = joint_thresholds(nulls, false_alarm=0.05)
    levels = [null.above(t).mean() for null, t in zip(nulls, thresholds, strict=True)]
    assert levels == pytest.approx([levels[0]] * 3, abs=6e-4)
    calm = np.prod([1 - n.above(t) for n, t in zip(nulls, thresholds, strict=True)], axis=0)
    assert 0.035 < 1 - calm.mean() < 0.05
    fresh = rng.normal(size=(100_000, 3)) * [1.0, 5.0, 0.2]
    fresh[:, 1] += rng.laplace(0, LAPLACE.scale, 100_000)
    fresh[:, 2] += rng.normal(size=100_000)
    rate = np.mean(np.any(fresh > thresholds, axis=1))
    assert 0.03 < rate < 0.055


def test_too_few_populations_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="needs at least 40000 simulated populations"):
        joint_thresholds([NullValues(NORMAL)] * 2, false_alarm=0.001)


def round_of(
    pi: Floats, counts: Ints, seed: int, *, noisy: bool = True
) -> tuple[QueryPoints, Ints, list[Statistic]]:
    """KL with and without a correction and noisy counts: three statistics of one round."""
    source, points = InsecureSeededNoise(seed), whole(pi)
    records = np.array([counts.sum()])
    held = BatchCounts(points, counts[points.cells], records)
    found: list[Statistic] = []
    for score in (Score(Skew(0.01)),):
        estimate = estimate_scored_sum(
            held, calibrated=Calibrated(Numbers(), 0.5, 1e-6), score=score, source=source
        )
        assert estimate.statistic is not None
        found.append(estimate.statistic)
    if noisy:
        mechanism = calibrate(Counts(), epsilon=0.5, delta=1e-6)
        released = noise_counts(held, mechanism, source)
        design = CountsDesign.of(points, released)
        found.append(variation_statistic(design, np.array(released.counts)))
    return points, records, found


def test_the_rate_holds_for_any_of_several_statistics(rng: np.random.Generator) -> None:
    pi, records = zipf(12), 3000
    points, sizes, statistics = round_of(pi, rng.multinomial(records, pi), 0)
    verdict = judge_together(statistics, NoDrift.of(points, sizes, 1.0), false_alarm=0.05)
    limits = {statistic.name: statistic.threshold for statistic in verdict.statistics}
    assert list(limits) == ["kl", "counts"]
    model, alarms = NoDrift.of(points, sizes, 1.0), 0
    for seed in range(600):
        _, _, fresh = round_of(pi, rng.multinomial(records, pi), seed)
        alarms += any(each.observed(model) > limits[each.name] for each in fresh)
    assert not alarms_too_often(alarms, 600, 0.05)
    assert alarms > 6  # and the thresholds are not far too high
    shifted = pi * np.linspace(1.6, 0.4, 12)
    found = round_of(pi, rng.multinomial(records, shifted / shifted.sum()), 7)[2]
    assert any(each.observed(model) > limits[each.name] for each in found)


def test_noise_that_depends_on_the_counts_is_drawn_for_simulated_ones() -> None:
    """Adaptive noise: twice as wide on populations whose first count is low."""
    pi = zipf(6)
    points, records = whole(pi), np.array([500])
    score = Score(Skew(0.01))
    plain = scored_statistic(0.1, score=score, points=points, records=records, mechanism=LAPLACE)
    model = NoDrift.of(points, records, 1.0)

    def noise(counts: Ints) -> Any:
        wide = np.where(counts[:, 0] < 500 * points.pi[0], 2.0, 1.0)
        return lambda rng, draws: wide[:draws, None] * same(rng, draws)

    def same(rng: np.random.Generator, draws: int) -> Floats:
        return rng.laplace(0, LAPLACE.scale, (draws, 16))

    def adaptive(law: Any) -> float:
        statistic = replace(plain, mechanism=None, noise=law)
        return judge_together([statistic], model, false_alarm=0.01).statistics[0].threshold

    known = judge_together([plain], model, false_alarm=0.01)
    alike = adaptive(lambda _: same)
    assert alike == pytest.approx(known.statistics[0].threshold, rel=0.05)
    assert adaptive(noise) > 1.5 * alike


def test_what_no_drift_gives_is_the_mean_of_many_populations(rng: np.random.Generator) -> None:
    """Few records: most of the value is chance, and the same number says so."""
    pi, records = zipf(30), 300
    points, sizes, statistics = round_of(pi, rng.multinomial(records, pi), 0, noisy=False)
    score = Score(Skew(0.01))
    held = BatchCounts(points, rng.multinomial(records, pi)[points.cells], sizes)
    calibrated = Calibrated(Numbers(), 1.0, 1e-6)
    one = estimate_scored_sum(held, calibrated=calibrated, score=score)
    found = Estimates(each=(one,), privacy=one.privacy, payload=30, records=300)
    verdict, no_drift = found.judge(0.01, 1.0)
    model = NoDrift.of(points, sizes, 1.0)
    drawn = statistics[0].simulated(model, model.counts(4000, rng), rng)[:, 0]
    noise = calibrated.for_sensitivity(score_sensitivity(points, sizes, score))
    released = drawn + rng.laplace(0, noise.standard_deviation / 2**0.5, (16, 4000))
    assert no_drift == pytest.approx((released.clip(0, math.log(100)).mean(),), rel=0.02)
    assert drawn.mean() > 0.04
    assert released.min() < 0
    assert verdict == one.verdict()


def test_a_joint_verdict_is_quick(rng: np.random.Generator) -> None:
    pi = zipf(500)
    points, sizes, statistics = round_of(pi, rng.multinomial(50_000, pi), 0)
    started = time.process_time()
    judge_together(statistics, NoDrift.of(points, sizes, 1.0), false_alarm=0.01)
    assert time.process_time() - started < 4  # usually a second


def test_a_verdict_names_each_statistic_once() -> None:
    seen = JudgedStatistic(name="kl", value=0.1, threshold=0.2, unit="nats")
    for statistics in ((), (seen, seen)):
        with pytest.raises(InvalidInputError, match="one or more statistics"):
            Verdict(statistics=statistics, false_alarm=0.01, design_effect=1.0)


def test_verdicts_of_several_statistics_speak_plainly() -> None:
    kl = JudgedStatistic(name="kl", value=0.1, threshold=0.2, unit="nats")
    tv = JudgedStatistic(name="tv", value=0.3, threshold=0.25, unit="")
    counts = JudgedStatistic(name="counts", value=9.0, threshold=12.0, unit="")
    verdict = Verdict(statistics=(kl, tv, counts), false_alarm=0.01, design_effect=2.0)
    assert str(verdict) == (
        "Drift found: tv (1.2 times its threshold); populations without drift (design effect 2) "
        "exceed any threshold at most 1% of the time"
    )
    both = replace(verdict, statistics=(replace(kl, value=0.4), tv, counts))
    assert "kl (2 times its threshold) and tv (1.2 times its threshold);" in str(both)
    calm = replace(verdict, statistics=(kl, counts))
    assert str(calm).startswith(
        "No drift found: closest is the variation of the noisy counts (0.75 times its threshold);"
    )
    assert verdict.to_dict()["exceeding"] == ["tv"]
    assert verdict.statistic("tv") is tv
    assert verdict.statistic("js") is None
