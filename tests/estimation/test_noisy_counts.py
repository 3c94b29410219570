"""Post-processing of noisy counts: projection, and removing the bias of the known noise."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.divergence import Score, Skew, skewed_divergence
from fedprikl.documents import read_fields, to_plain
from fedprikl.estimation import CountNoise, CountsDesign, NoisyCounts, estimate_noisy_counts
from fedprikl.estimation.noisy_counts import project_counts
from fedprikl.privacy import laplace_variance
from fedprikl.reference import QueryPoints, all_points
from tests.false_alarm import FALSE_ALARM, looks_centred, looks_distributed

PI = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
HELD = np.array([500, 900, 420, 30, 260])  # the rest is more than noise explains


POINTS = all_points(PI)


def noisy(sd: float, rng: np.random.Generator, **changes: Any) -> NoisyCounts:
    settings: dict[str, Any] = {
        "counts": tuple(HELD[:4] + rng.normal(0, sd, 4)),
        "out_of_domain": (HELD[4] + rng.normal(0, sd),),
        "records": (int(HELD.sum()),),
        "noise": (CountNoise(sd=sd),),
    }
    return NoisyCounts(**(settings | changes))


def projected(counts: NoisyCounts, points: QueryPoints = POINTS) -> Floats:
    return CountsDesign.of(points, counts).projected(counts)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.1, 500))
def test_a_projection_is_the_nearest_feasible_point(values: list[float], total: float) -> None:
    """Feasible, and optimal by its conditions: one shift for all that stay above 0."""
    x, y = np.array(values), project_counts(values, total)
    assert np.all(y >= 0)
    assert y.sum() == pytest.approx(total, rel=1e-9)
    shift = (x - y)[y > 1e-9]
    np.testing.assert_allclose(shift, shift[0], atol=1e-7)
    assert np.all(x[y <= 1e-9] <= shift[0] + 1e-7)
    np.testing.assert_allclose(project_counts(y, total), y, atol=1e-7)


def test_without_noise_it_is_the_divergence(rng: np.random.Generator) -> None:
    exact, score = noisy(1e-9, rng), Score(Skew(0.01))
    value, noise_sd = estimate_noisy_counts(POINTS, exact, score=score, rng=rng)
    truth = skewed_divergence(PI, HELD / HELD.sum(), skew=0.01)
    assert value == pytest.approx(truth, abs=1e-6)
    assert noise_sd < 1e-6


def test_the_bias_of_the_noise_is_reduced(rng: np.random.Generator) -> None:
    """Noise of 20 on counts of 30 to 900: the plain estimate is off, the debiased one less.

    With noise of 60 there is no gain left, so this shows where it helps, not that it always does.
    """
    score, truth = Score(Skew(0.01)), skewed_divergence(PI, HELD / HELD.sum(), skew=0.01)
    plain, debiased = [], []
    for _ in range(700):
        counts = noisy(20.0, rng)
        plain.append(POINTS.weights @ score(projected(counts), POINTS.pi, HELD.sum()))
        found = estimate_noisy_counts(POINTS, counts, score=score, rng=rng, resamples=30)
        debiased.append(found[0])
    assert not looks_centred(np.array(plain), truth)
    assert abs(np.mean(debiased) - truth) < 0.8 * abs(np.mean(plain) - truth)


@pytest.mark.parametrize(("rest", "none"), [(-40.0, True), (186.0, True), (195.0, False)])
def test_a_rest_that_noise_explains_is_none(
    rest: float, none: bool, rng: np.random.Generator
) -> None:
    """Below 20 / sqrt(2) ln(5000 2110 / 4^2) = 190 it is none, where all cells are asked."""
    likeliest = projected(noisy(20.0, rng, out_of_domain=(rest,)))
    assert bool(likeliest.sum() == pytest.approx(HELD.sum())) is none
    some = POINTS.cells < 3
    part = QueryPoints.build(
        PI,
        cells=POINTS.cells[some],
        batch=POINTS.batch[some],
        weights=POINTS.weights[some],
        batches=1,
    )
    sampled = noisy(20.0, rng, counts=tuple(HELD[:3]), out_of_domain=(HELD[3:].sum(),))
    np.testing.assert_allclose(projected(sampled, part), HELD[:3])  # it sums up already


def test_an_empty_rest_costs_nothing(rng: np.random.Generator) -> None:
    """No drift and nobody outside the cells: without the dead zone a rest of noise costs 1/N."""
    pi, records = np.full(4, 0.25), 4000
    held, score = np.full(4, 1000.0), Score(Skew(0.01))
    values = []
    for _ in range(200):
        counts = NoisyCounts.of(
            np.append(held, 0.0) + rng.laplace(0, 2, 5),
            [records],
            [CountNoise(sd=math.sqrt(8), scale=2.0)],
        )
        values.append(score(projected(counts, all_points(pi)), pi, np.array([records])) @ pi)
    assert np.mean(values) < 0.2 / records


def laplace_noise(sums: float, scale: float, size: int, rng: np.random.Generator) -> Any:
    """Sums of discrete Laplace variables by another way: gamma-mixed Poisson differences."""
    odds = 1 / np.expm1(1 / scale)
    above, below = rng.poisson(rng.gamma(sums, odds, (2, size)))
    return above - below


@pytest.mark.parametrize(("scale", "sums"), [(2.0, 1.25), (20.0, 1.0), (0.3, 2.5)])
def test_simulated_noise_has_the_law_of_the_noise(
    scale: float, sums: float, rng: np.random.Generator
) -> None:
    """Kolmogorov-Smirnov on jittered values at a false-alarm rate of 1e-9; normal noise of the
    same spread would be seen.
    """
    sd = np.sqrt(sums * laplace_variance(scale))
    noise = CountNoise(sd=sd, scale=scale)
    assert noise.variables == pytest.approx(sums)
    drawn = noise.draw(rng, (8000, 5)).ravel()
    fourth = np.mean(drawn**4) - 3 * np.mean(drawn**2) ** 2
    assert noise.fourth_cumulant + sd**2 == pytest.approx(fourth, rel=0.5)
    other = laplace_noise(sums, scale, len(drawn), rng) + rng.uniform(-0.5, 0.5, len(drawn))
    jittered = drawn + rng.uniform(-0.5, 0.5, len(drawn))
    assert stats.ks_2samp(jittered, other).pvalue > FALSE_ALARM
    assert stats.ks_2samp(rng.normal(0, sd, len(drawn)), other).pvalue < FALSE_ALARM
    assert looks_centred(drawn**2, sd**2)


def test_normal_noise_is_simulated_as_normal(rng: np.random.Generator) -> None:
    noise = CountNoise(sd=5.0)
    assert looks_distributed(noise.draw(rng, (4000, 5)).ravel(), stats.norm(scale=5.0))
    assert (noise.variables, noise.fourth_cumulant) == (1.0, 0.0)


def test_the_law_of_the_noise_is_written_and_read() -> None:
    normal = CountNoise(sd=5.0)
    assert (to_plain(normal), normal.kind) == ({"sd": 5.0, "scale": None}, "gaussian")
    laplace = CountNoise(sd=math.sqrt(3 * laplace_variance(2.0)), scale=2.0)
    assert laplace.kind == "laplace"
    assert laplace.variables == pytest.approx(3.0)
    for law in (normal, laplace):
        assert read_fields(CountNoise, to_plain(law)) == law


def test_the_bias_of_laplace_noise_is_reduced(rng: np.random.Generator) -> None:
    score, truth = Score(Skew(0.01)), skewed_divergence(PI, HELD / HELD.sum(), skew=0.01)
    scale, plain, debiased = 14.0, [], []
    law = CountNoise(sd=math.sqrt(laplace_variance(scale)), scale=scale)
    for _ in range(700):
        counts = NoisyCounts.of(HELD + laplace_noise(1.0, scale, 5, rng), [HELD.sum()], [law])
        plain.append(POINTS.weights @ score(projected(counts), POINTS.pi, HELD.sum()))
        found = estimate_noisy_counts(POINTS, counts, score=score, rng=rng, resamples=30)
        debiased.append(found[0])
    assert not looks_centred(np.array(plain), truth)
    assert abs(np.mean(debiased) - truth) < 0.8 * abs(np.mean(plain) - truth)


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": (CountNoise(sd=1.0, scale=0.0),)},
        {"counts": (0.0, 0.0, 0.0)},
        {"out_of_domain": (0.0, 0.0)},
        {"records": (0,)},
    ],
)
def test_bad_input_says_what_is_wrong(changes: dict[str, Any], rng: np.random.Generator) -> None:
    with pytest.raises(InvalidInputError):
        CountsDesign.of(POINTS, noisy(1.0, rng, **changes))


def test_a_rest_is_explained_by_noise_the_more_often_the_more_records() -> None:
    """15 scales: too rare to matter beside 400 records, not beside 4,000,000."""
    scale, pi = 10.0, PI[:4]
    for records, explained in ((400, False), (4_000_000, True)):
        law = CountNoise(sd=scale * math.sqrt(2))
        counts = NoisyCounts.of([*(records * pi), 15 * scale], [records], [law])
        found = projected(counts, all_points(pi))
        assert found.sum() == pytest.approx(records if explained else records - 15 * scale, abs=40)
