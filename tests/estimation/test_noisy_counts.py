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
from fedprikl.estimation import noisy_counts as module
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


@pytest.mark.parametrize("scale", [None, 14.0])
def test_of_few_cells_the_error_is_near_a_textbooks(
    scale: float | None, rng: np.random.Generator
) -> None:
    """Noise of 20 on counts of 30 to 900: four cells tell little of how they drifted together.

    A ratio of mean errors over 700 releases of the same counts is known to about 5%.
    """
    score, truth = Score(Skew(0.01)), skewed_divergence(PI, HELD / HELD.sum(), skew=0.01)
    design = CountsDesign(POINTS, np.array([HELD.sum()]), (CountNoise(sd=20.0, scale=scale),))
    held, errors = np.repeat(HELD[None, :4], 700, axis=0), []
    for textbook in (False, True):
        (found,) = design.simulate(held, scores=[score], rng=rng, draws=40, textbook=textbook)
        errors.append(np.abs(found - truth).mean())
    assert errors[0] < 1.3 * errors[1]


@pytest.mark.parametrize(
    ("scales", "likely"),
    [(-3.0, 0.0), (1.4, 0.0), (2.5, 1.75), (3.4, 3.325), (3.6, 3.6), (9.0, 9.0)],
)
def test_out_of_domain_records_count_as_far_as_noise_lets_tell(
    scales: float, likely: float, rng: np.random.Generator
) -> None:
    """In noise scales b: none up to 1.5, all from 3.5 on, a line between; sampled cells: as is."""
    b = 20.0 / math.sqrt(2)
    outside = scales * b
    counts = tuple((HELD.sum() - outside) * PI[:4])  # all sum to N
    likeliest = projected(noisy(20.0, rng, counts=counts, out_of_domain=(outside,)))
    assert HELD.sum() - likeliest.sum() == pytest.approx(likely * b)
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


def outside_errors(hidden: float, rng: np.random.Generator) -> tuple[float, float]:
    """Mean errors of KL, ours and with a plain projection, if so many noise scales are outside."""
    pi, records, scale, score = np.full(4, 0.25), 4000, 2.0, Score(Skew(0.01))
    outside = round(hidden * scale)
    held = np.append(np.full(4, (records - outside) / 4), outside)
    law = CountNoise(sd=math.sqrt(laplace_variance(scale)), scale=scale)
    design = CountsDesign(all_points(pi), np.array([records]), (law,))
    drawn = held + law.draw(rng, (1500, 5))
    (ours,), _ = design.read(drawn[:, :4], drawn[:, 4:], scores=[score], rng=rng, draws=10)
    plain = score(project_counts(drawn, records)[:, :4], pi, np.array(records)) @ pi
    truth = score(held[:4], pi, np.array(records)) @ pi
    return float(np.abs(ours - truth).mean()), float(np.abs(plain - truth).mean())


def test_no_share_of_out_of_domain_records_has_a_large_error(rng: np.random.Generator) -> None:
    """Beside a plain projection: less than half without any, nowhere 1.6 times as large.

    Means of 1,500 releases are known to 3%. A threshold of 5 scales would make it 3 times at 4.
    """
    ours, plain = outside_errors(0.0, rng)
    assert ours < 0.5 * plain
    for hidden in (1.0, 2.0, 3.0, 4.0, 6.0, 9.0):
        ours, plain = outside_errors(hidden, rng)
        assert ours < 1.6 * plain


def test_a_threshold_would_have(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(module, "BELIEVED", (5.0, 5.001))
    ours, plain = outside_errors(4.0, rng)
    assert ours > 2 * plain


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


@pytest.mark.parametrize(("sd", "scale"), [(3.0, 0.01), (1e-9, 2.0), (1e9, 2.0)], ids=str)
def test_laws_of_noise_that_no_release_has_are_finite(sd: float, scale: float) -> None:
    variances, weights = CountNoise(sd=sd, scale=scale).normals
    assert np.all(np.isfinite(variances))
    assert weights.sum() == pytest.approx(1)


def test_many_laplace_variables_are_normal_also_where_weights_would_overflow() -> None:
    variances, weights = CountNoise(sd=1e3, scale=2.0).normals  # 127,626 variables
    assert variances @ weights == pytest.approx(1e6)
    below, above = (
        CountNoise(sd=math.sqrt(n * laplace_variance(2.0)), scale=2.0).normals for n in (99, 101)
    )
    assert np.sqrt(below[0] @ below[1]) == pytest.approx(np.sqrt(above[0] @ above[1]), rel=0.02)
