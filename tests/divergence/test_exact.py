"""Exact divergences against plain sums in high precision."""

from typing import Any

import mpmath
import numpy as np
import pytest
from experiments.paper.variance import phi
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.divergence import skewed_divergence

probabilities = st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=6).map(
    lambda w: np.array(w) / np.sum(w)
)


def precise_skewed(pi: Floats, p: Floats, gamma: float) -> float:
    with mpmath.workdps(60):
        g = mpmath.mpf(gamma)
        total = mpmath.mpf(0)
        norm_pi, norm_p = mpmath.fsum(map(mpmath.mpf, pi)), mpmath.fsum(map(mpmath.mpf, p))
        for a, b in zip(pi, p, strict=True):
            x, y = mpmath.mpf(a) / norm_pi, mpmath.mpf(b) / norm_p
            if x:
                total -= x * mpmath.log(g + (1 - g) * y / x)
        return float(total)


@given(probabilities, st.data())
def test_divergences_match_high_precision(pi: Floats, data: st.DataObject) -> None:
    p = data.draw(probabilities.filter(lambda q: len(q) == len(pi)))
    gamma = data.draw(st.sampled_from([1e-6, 0.01, 0.5, 0.99]))
    for skew in (0.0, gamma):
        expected = precise_skewed(pi, p, skew)
        assert skewed_divergence(pi, p, skew=skew) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("distance", [1e-3, 1e-5, 1e-7])
def test_a_tiny_drift_keeps_its_digits(distance: float) -> None:
    """A plain sum of logarithms would return rounding noise here."""
    pi = np.array([0.5, 0.25, 0.25])
    p = pi + distance * np.array([1.0, -0.5, -0.5])
    expected = float(np.sum((p - pi) ** 2 / (2 * pi)))  # leading order
    assert skewed_divergence(pi, p, skew=0.0) == pytest.approx(expected, rel=10 * distance)


def test_empty_cells() -> None:
    assert skewed_divergence([0.5, 0.5], [1.0, 0.0], skew=0.0) == np.inf
    assert skewed_divergence([1.0, 0.0], [0.5, 0.5], skew=0.0) == pytest.approx(np.log(2))
    assert skewed_divergence([0.0, 1.0], [1.0, 0.0], skew=0.01) == pytest.approx(np.log(100))


@given(probabilities, st.data())
def test_the_skewed_divergence_is_a_divergence(pi: Floats, data: st.DataObject) -> None:
    p = data.draw(probabilities.filter(lambda q: len(q) == len(pi)))
    value = skewed_divergence(pi, p, skew=0.01)
    assert 0 <= value <= np.log(100)
    assert value <= skewed_divergence(pi, p, skew=0.0) + 1e-12
    assert skewed_divergence(pi, pi, skew=0.01) == 0


def test_phi_matches_its_formula_and_its_mean_is_the_divergence() -> None:
    pi, p = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    for control in (-1.0, 0.0, 0.7, 3.0):
        terms = phi(p / pi, control=control)
        np.testing.assert_allclose(terms, control * (p / pi - 1) - np.log(p / pi), atol=1e-15)
        assert pi @ terms == pytest.approx(skewed_divergence(pi, p, skew=0.0), rel=1e-12)


@pytest.mark.parametrize("ratio", [1e-300, 1e-20, 0.5, 0.93, 1 - 1e-9, 1.0, 1 + 1e-9, 1.07, 1e9])
def test_phi_keeps_its_digits_for_all_ratios(ratio: float) -> None:
    with mpmath.workdps(60):
        precise = float((mpmath.mpf(ratio) - 1) - mpmath.log(mpmath.mpf(ratio)))
    assert float(phi(ratio, control=1.0)) == pytest.approx(precise, rel=1e-13, abs=0)


def test_phi_at_zero_is_infinite() -> None:
    assert phi([0.0], control=0.0).tolist() == [np.inf]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: phi([-1.0], control=0.0), "not negative"),
        (lambda: phi([np.nan], control=0.0), "finite"),
        (lambda: phi([1.0], control=np.inf), "finite number"),
        (lambda: skewed_divergence([1.0], [0.5, 0.5], skew=0.0), "same cells"),
        (lambda: skewed_divergence([0.7], [1.0], skew=0.0), "sum to 1"),
        (lambda: skewed_divergence([1.0], [1.0], skew=-0.1), "at least 0 and below 1"),
        (lambda: skewed_divergence([1.0], [1.0], skew=1.0), "at least 0 and below 1"),
        (lambda: skewed_divergence([1.0], [1.0], skew=np.nan), "finite"),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()
