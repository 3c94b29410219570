"""All divergences from the same noisy counts."""

import math
from typing import Any

import numpy as np
import pytest

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew, divergence_named, skewed_divergence
from fedprikl.estimation import (
    CountedView,
    CountNoise,
    NoisyCounts,
    answers_from_counts,
    estimate_noisy_counts,
)
from fedprikl.estimation.no_drift import multinomial, public_simulation
from fedprikl.reference import QueryPoints, all_points, distinct_points
from tests.false_alarm import FALSE_ALARM

pytestmark = pytest.mark.slow

NAMES = ("kl", "reverse_kl", "psi", "js", "hellinger", "tv")
PI = np.arange(1.0, 41) / np.arange(1.0, 41).sum()
N, SD = 40_000, 8.0


def score_of(name: str) -> Score:
    divergence = divergence_named(name)
    return Score(Skew(divergence.skew), divergence)


def noisy_counts(points: QueryPoints, held: Ints, rng: np.random.Generator) -> NoisyCounts:
    """`held` per batch and cell."""
    counts = held[points.batch, points.cells]
    taken = np.bincount(points.batch, counts, minlength=points.batches)
    records = held.sum(axis=1)
    exact = np.append(counts, records - taken)
    laws = [CountNoise(sd=SD)] * points.batches
    return NoisyCounts.of(exact + rng.normal(0, SD, len(exact)), records, laws, points)


def answer_of(points: QueryPoints, noisy: NoisyCounts, *, score: Score, spread: float = 1.0) -> Any:
    return answers_from_counts(CountedView(points, noisy, spread), [score], mechanism="")[0]


def drifted() -> Floats:
    p = PI * np.exp(np.cos(np.arange(40)))
    moved: Floats = p / p.sum()
    return moved


@pytest.mark.parametrize("name", NAMES)
def test_the_value_is_that_of_the_counts(name: str) -> None:
    rng, score = np.random.default_rng(5), score_of(name)
    held = rng.multinomial(N, drifted())
    points = all_points(PI)
    noisy = noisy_counts(points, held[None, :], rng)
    found = answer_of(points, noisy, score=score)
    truth = skewed_divergence(PI, held / N, skew=score.divergence.skew, divergence=score.divergence)
    value, noise_sd = estimate_noisy_counts(
        points, noisy, score=score.plain, rng=public_simulation()
    )
    assert found.value == value == pytest.approx(truth, abs=5 * noise_sd)
    assert noise_sd < 0.2 * truth
    assert found.excess > 0.5 * truth  # a plain drift
    assert (found.target, found.unit) == (score.target, score.unit)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("design_effect", [1.0, 4.0])
def test_without_drift_the_excess_is_0_on_average(name: str, design_effect: float) -> None:
    """The mean of 20 rounds, within 6 of its standard errors and those of the simulation."""
    rng, score, points, rounds = np.random.default_rng(8), score_of(name), all_points(PI), 20
    groups = round(N / design_effect)
    held = round(design_effect) * multinomial(groups, PI, rounds, rng)
    seen = [
        answer_of(
            points, noisy_counts(points, each[None, :], rng), score=score, spread=design_effect
        )
        for each in held
    ]
    error = np.std([each.value for each in seen]) * math.sqrt(1 / rounds + 1 / 200)
    assert abs(np.mean([each.excess for each in seen])) < 6 * error
    if name == "tv":  # the check has teeth: the values themselves are far from 0
        assert np.mean([each.value for each in seen]) > 20 * error


def test_the_rate_of_that_check_is_small() -> None:
    assert math.erfc(6 / math.sqrt(2)) < 2 * FALSE_ALARM


@pytest.mark.parametrize("name", ["js", "tv"])
def test_several_batches_with_different_cells(name: str) -> None:
    rng, score = np.random.default_rng(9), score_of(name)
    points = distinct_points(PI, 20, batches=2, rng=rng)
    held = rng.multinomial(N // 2, drifted(), 2)
    found = answer_of(points, noisy_counts(points, held, rng), score=score)
    truth = skewed_divergence(
        PI, drifted(), skew=score.divergence.skew, divergence=score.divergence
    )
    assert found.value == pytest.approx(truth, rel=0.3)
    assert found.excess > 0.5 * truth
    assert found.interval is None  # not known for several batches


def test_it_repeats() -> None:
    rng, points = np.random.default_rng(1), all_points(PI)
    noisy = noisy_counts(points, rng.multinomial(N, PI)[None, :], rng)
    found = [answer_of(points, noisy, score=score_of("js")) for _ in range(2)]
    assert found[0] == found[1]
