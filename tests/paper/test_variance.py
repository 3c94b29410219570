"""The paper's theory of variance and lambda, against enumeration and numerical optima."""

from typing import Any

import numpy as np
import pytest
from experiments.paper.variance import (
    estimator_variance,
    jeffreys_divergence,
    optimal_control,
    optimal_control_lower_bound,
    optimal_control_with_noise,
    ratio_variance,
    variance_bound,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.divergence import skewed_divergence

pytestmark = pytest.mark.slow

Pair = tuple[Floats, Floats]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    size = draw(st.integers(2, 6))
    both = draw(st.lists(st.floats(0.01, 1.0), min_size=2 * size, max_size=2 * size).map(np.array))
    return both[:size] / both[:size].sum(), both[size:] / both[size:].sum()


def enumerated_variance(pi: Floats, p: Floats, control: float) -> float:
    """Var[Phi] cell by cell, from the definition."""
    terms = [control * (b / a - 1) - np.log(b / a) for a, b in zip(pi, p, strict=True)]
    mean = sum(a * t for a, t in zip(pi, terms, strict=True))
    return float(sum(a * (t - mean) ** 2 for a, t in zip(pi, terms, strict=True)))


@given(pairs(), st.floats(-3, 3))
def test_the_variance_is_the_enumerated_one(pair: Pair, control: float) -> None:
    pi, p = pair
    expected = (enumerated_variance(pi, p, control) + 0.5) / 30
    found = estimator_variance(pi, p, control=control, draws=30, noise_variance=0.5)
    assert found == pytest.approx(expected, rel=1e-9)


@given(pairs(), st.floats(-3, 3))
def test_the_paper_decomposition_of_the_variance(pair: Pair, control: float) -> None:
    """lambda^2 Var[r] + Var[ln r] - 2 lambda J, as in the proof of th:gen_estimator_variance."""
    pi, p = pair
    log_variance = enumerated_variance(pi, p, 0.0)
    expected = control**2 * ratio_variance(pi, p) + log_variance
    expected -= 2 * control * jeffreys_divergence(pi, p)
    found = estimator_variance(pi, p, control=control, draws=1)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(pairs(), st.floats(-3, 3), st.floats(0, 10))
def test_the_variance_bound_holds(pair: Pair, control: float, noise: float) -> None:
    pi, p = pair
    variance = estimator_variance(pi, p, control=control, draws=7, noise_variance=noise)
    bound = variance_bound(pi, p, control=control, draws=7, noise_variance=noise)
    assert variance <= bound * (1 + 1e-9) + 1e-12


@given(pairs())
def test_the_step_that_repairs_the_proof(pair: Pair) -> None:
    """E[ln^2 r] <= E[1/r] - 1 <= max(alpha, beta^2) - 1, by |ln r| <= |r - 1| / sqrt(r)."""
    pi, p = pair
    r = p / pi
    log_square = float(pi @ np.log(r) ** 2)
    assert log_square <= float(pi @ (1 / r)) - 1 + 1e-12
    assert float(pi @ (1 / r)) <= max(r.max(), (1 / r).max() ** 2) + 1e-12


@given(pairs())
def test_the_optimal_control_minimises_the_variance(pair: Pair) -> None:
    pi, p = pair
    if ratio_variance(pi, p) < 1e-6:
        return
    best = optimize.minimize_scalar(
        lambda c: estimator_variance(pi, p, control=c, draws=1), bracket=(-1, 1)
    )
    assert optimal_control(pi, p) == pytest.approx(best.x, rel=1e-3, abs=1e-4)
    assert 0 <= optimal_control_lower_bound(pi, p) <= optimal_control(pi, p) * (1 + 1e-9)


def noisy_variance(pi: Floats, p: Floats, control: float, gain: float, records: int) -> float:
    kappa = abs(control) / (records * pi.min()) + np.log(2)
    return estimator_variance(pi, p, control=control, draws=1, noise_variance=gain * kappa**2)


@given(pairs(), st.floats(1e-4, 10), st.integers(5, 1000))
def test_the_optimal_control_under_noise_minimises_the_variance(
    pair: Pair, gain: float, records: int
) -> None:
    pi, p = pair
    chosen = optimal_control_with_noise(pi, p, noise_gain=gain, records=records)
    least = noisy_variance(pi, p, chosen, gain, records)
    for control in np.linspace(-3, 6, 200):
        assert least <= noisy_variance(pi, p, float(control), gain, records) * (1 + 1e-9) + 1e-12
    assert 0 <= chosen <= optimal_control(pi, p) * (1 + 1e-9) + 1e-12  # corr:opt_lambda_order


@given(pairs(), st.floats(1e-4, 10), st.integers(5, 1000))
def test_below_zero_the_variance_only_falls_towards_zero(
    pair: Pair, gain: float, records: int
) -> None:
    """The paper's case 2 (a negative optimum) cannot occur: its derivative has a sign slip."""
    pi, p = pair
    values = [noisy_variance(pi, p, c, gain, records) for c in (-3.0, -2.0, -1.0, -0.1, 0.0)]
    assert values == sorted(values, reverse=True)


def test_the_paper_case_2_is_not_optimal() -> None:
    """Its printed formula, on a case where its premise holds, loses to lambda = 0."""
    pi, p, gain, records = np.array([0.5, 0.5]), np.array([0.52, 0.48]), 4.0, 5
    reach = 1 / (records * pi.min())
    assert ratio_variance(pi, p) < gain * reach**2  # the premise of case 2
    printed = (jeffreys_divergence(pi, p) + gain * np.log(2) * reach) / (
        ratio_variance(pi, p) - gain * reach**2
    )
    assert printed < 0
    assert noisy_variance(pi, p, printed, gain, records) > noisy_variance(pi, p, 0, gain, records)


def test_no_drift_has_no_preferred_control() -> None:
    pi = np.array([0.25, 0.75])
    assert optimal_control(pi, pi) == 0
    assert optimal_control_lower_bound(pi, pi) == 0
    assert optimal_control_with_noise(pi, pi, noise_gain=0.0, records=10) == 0
    assert jeffreys_divergence(pi, pi) == skewed_divergence(pi, pi, skew=0.0) == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ratio_variance([0.5, 0.5], [1.0, 0.0]), "Smooth P first"),
        (lambda: ratio_variance([1.0, 0.0], [0.5, 0.5]), "Smooth P first"),
        (lambda: ratio_variance([1.0], [0.5, 0.5]), "same cells"),
        (lambda: estimator_variance([1.0], [1.0], control=0, draws=0), "at least 1"),
        (
            lambda: optimal_control_with_noise([1.0], [1.0], noise_gain=-1.0, records=1),
            "cannot be negative",
        ),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()
