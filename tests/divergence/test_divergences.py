"""The six divergences: what they are, how precisely they are computed, and what bounds them."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import distance

from fedprikl.checks import Floats
from fedprikl.divergence import Divergence, Score, Skew, divergence_named, skewed_divergence

NAMES = ("kl", "reverse_kl", "psi", "js", "hellinger", "tv")
FINITE = ("reverse_kl", "js", "hellinger", "tv")  # without a skew
SYMMETRIC = ("psi", "js", "hellinger", "tv")
CORRECTED = ("kl", "reverse_kl", "psi", "hellinger")

every = pytest.mark.parametrize("name", NAMES)
ratios = st.just(0.0) | st.floats(1e-30, 1e9) | st.floats(0.9, 1.1)
distributions = st.integers(2, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(1e-6, 1.0), min_size=n, max_size=n)] * 2).map(
        lambda pair: (np.array(pair[0]) / sum(pair[0]), np.array(pair[1]) / sum(pair[1]))
    )
)


def skewed(*skews: float) -> pytest.MarkDecorator:
    """Every divergence with every skew that leaves it finite."""
    pairs = [(name, skew) for name in NAMES for skew in skews if skew or name in FINITE]
    return pytest.mark.parametrize(("name", "skew"), pairs)


def at(divergence: Divergence, v: float) -> float:
    return float(divergence.f(np.array(v)))


def precise_gap(name: str, v: Any) -> Any:
    """f(v) - f'(1) (v - 1), as on paper; for v > 0."""
    log = mpmath.log
    return {
        "kl": lambda: v - 1 - log(v),
        "reverse_kl": lambda: v * log(v) - v + 1,
        "psi": lambda: (v - 1) * log(v),
        "js": lambda: (v * log(v) - (1 + v) * log((1 + v) / 2)) / 2,
        "hellinger": lambda: (mpmath.sqrt(v) - 1) ** 2 / 2,
        "tv": lambda: abs(v - 1) / 2,
    }[name]()


@every
@pytest.mark.parametrize(
    "v", [1e-300, 1e-20, 1e-3, 0.3, 0.6, 0.8, 1 - 1e-9, 1.0, 1 + 1e-12, 1.2, 1.6, 30, 1e12, 1e200]
)
def test_f_and_gap_keep_their_digits(name: str, v: float) -> None:
    divergence = divergence_named(name)
    with mpmath.workdps(500):
        slopes = {"kl": -1, "js": -mpmath.log(2) / 2, "hellinger": -0.5, "tv": -0.5}
        exact = precise_gap(name, mpmath.mpf(v))
        gap, f = float(exact), float(exact + slopes.get(name, 0) * (mpmath.mpf(v) - 1))
    found = float(divergence.gap(np.array([v]), np.array([v - 1]))[0])
    assert found == pytest.approx(gap, rel=1e-13, abs=0)
    reach = abs(f) + abs(v * float(divergence.slope(np.array([v]))[0])) + 1
    assert abs(at(divergence, v) - f) <= 4e-16 * 8 * reach


@every
def test_a_gap_is_known_beyond_the_digits_of_v(name: str) -> None:
    """v rounds to 1; the gap comes from the excess."""
    excess = np.array([-1e-20, 1e-20])
    expected = 5e-21 if name == "tv" else divergence_named(name).curvature / 2 * 1e-40
    found = divergence_named(name).gap(1 + excess, excess)
    assert found.tolist() == pytest.approx([expected, expected], rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kl", math.inf),
        ("reverse_kl", 1.0),
        ("psi", math.inf),
        ("js", math.log(2)),
        ("hellinger", 1.0),
        ("tv", 1.0),
    ],
)
def test_an_empty_cell(name: str, value: float) -> None:
    divergence = divergence_named(name)
    assert divergence.empty(0.0) == value
    gap = float(divergence.gap(np.zeros(1), -np.ones(1))[0])
    assert gap == pytest.approx(value + float(divergence.slope(np.ones(1))[0]), rel=1e-14)
    assert divergence.skew > 0 or value < math.inf


@every
@given(ratios, ratios, st.floats(0, 1))
def test_f_is_convex_and_lies_above_its_tangents(name: str, a: float, b: float, t: float) -> None:
    divergence = divergence_named(name)
    assert at(divergence, 1.0) == 0
    middle, ends = at(divergence, t * a + (1 - t) * b), (at(divergence, a), at(divergence, b))
    if math.inf not in ends:
        assert middle <= t * ends[0] + (1 - t) * ends[1] + 1e-12 * (1 + sum(map(abs, ends)))
    if b > 0 and ends[0] < math.inf:
        line = ends[1] + float(divergence.slope(np.array([b]))[0]) * (a - b)
        assert ends[0] >= line - 1e-12 * (1 + abs(line) + abs(ends[1]))
    assert float(divergence.gap(np.array([a]), np.array([a - 1]))[0]) >= 0


@given(distributions, st.sampled_from([0.0, 0.01, 0.5]))
def test_values_are_those_of_other_libraries(pair: tuple[Floats, Floats], skew: float) -> None:
    pi, p = pair
    mixed = skew * pi + (1 - skew) * p
    forward, backward = stats.entropy(pi, mixed), stats.entropy(mixed, pi)
    middle = (pi + mixed) / 2
    expected = {
        "kl": forward,
        "reverse_kl": backward,
        "psi": forward + backward,
        "js": (stats.entropy(pi, middle) + stats.entropy(mixed, middle)) / 2,
        "hellinger": float(np.sum((np.sqrt(pi) - np.sqrt(mixed)) ** 2)) / 2,
        "tv": float(np.abs(pi - mixed).sum()) / 2,
    }
    for name in NAMES:
        found = skewed_divergence(pi, p, skew=skew, divergence=divergence_named(name))
        assert found == pytest.approx(expected[name], rel=1e-7, abs=1e-13)


@given(distributions)
def test_symmetric_ones_are_symmetric(pair: tuple[Floats, Floats]) -> None:
    pi, p = pair
    for name in NAMES:
        divergence = divergence_named(name)
        there = skewed_divergence(pi, p, skew=0.0, divergence=divergence)
        back = skewed_divergence(p, pi, skew=0.0, divergence=divergence)
        assert divergence.symmetric is (name in SYMMETRIC)
        if divergence.symmetric:
            assert there == pytest.approx(back, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("name", ["kl", "reverse_kl"])
def test_that_the_directions_of_kl_differ(name: str) -> None:
    pi, p = [0.5, 0.5], [0.9, 0.1]
    one = skewed_divergence(pi, p, skew=0.0, divergence=divergence_named(name))
    other = skewed_divergence(p, pi, skew=0.0, divergence=divergence_named(name))
    assert abs(one - other) > 0.1


@pytest.mark.parametrize(("name", "expected"), [("js", math.log(2)), ("hellinger", 1), ("tv", 1)])
def test_all_mass_outside_the_reference_is_the_largest_value(name: str, expected: float) -> None:
    """f stops rising, so what lies in cells that Pi does not have counts as it should."""
    divergence = divergence_named(name)
    found = skewed_divergence([0.5, 0.5, 0.0], [0, 0, 1.0], skew=0.0, divergence=divergence)
    assert found == pytest.approx(expected, rel=1e-15)
    assert divergence.largest(0.0, 1e6) == pytest.approx(expected, rel=1e-15)
    half = skewed_divergence([0.5, 0.5, 0.0], [0.25, 0.25, 0.5], skew=0.0, divergence=divergence)
    vector = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    by_hand = {
        "js": distance.jensenshannon(*vector) ** 2,
        "hellinger": 1 - math.sqrt(0.5),
        "tv": 0.5,
    }
    assert half == pytest.approx(by_hand[name], rel=1e-12)


@pytest.mark.parametrize(
    ("name", "skew", "target"),
    [
        ("kl", 0.01, "D(Pi || 0.01 Pi + 0.99 P)"),
        ("reverse_kl", 0.01, "D(0.01 Pi + 0.99 P || Pi)"),
        ("psi", 0.02, "PSI(Pi, 0.02 Pi + 0.98 P)"),
        ("js", 0.0, "JS(Pi, P)"),
        ("hellinger", 0.01, "H^2(Pi, 0.01 Pi + 0.99 P)"),
        ("tv", 0.0, "TV(Pi, P)"),
    ],
)
def test_the_target_says_the_skew(name: str, skew: float, target: str) -> None:
    assert Score(Skew(skew), divergence_named(name)).target == target


@pytest.mark.parametrize("correction", [0.0, 1.0, 4.0])
@skewed(0.0, 1e-3, 0.01, 0.5)
def test_scores_are_convex_and_bounded(name: str, skew: float, correction: float) -> None:
    """The sensitivity looks at the first and the last step only, the slack for rounding at bounds.

    KL counts v f'(v) = -1 as the 1 of the bound.
    """
    divergence = divergence_named(name)
    score = Score(Skew(skew), divergence, correction=correction)
    for pi in (1e-5, 1e-3, 0.05, 0.7):
        cell, n, h = np.array([pi]), np.array([300]), np.arange(301)
        scores = score(h, cell, n)
        assert np.all(np.diff(scores, n=2) >= -1e-12 * (1 + np.abs(scores).max()))
        v = np.maximum(score.ratio(h, cell, n), 1e-12)
        reach = np.abs(scores) + np.abs(v * divergence.slope(v)) + (name != "kl")
        assert np.all(reach <= score.bound(cell, n)[0] * (1 + 1e-12))
        assert score.bound(cell, n)[0] < 1e3 * reach.max()


@pytest.mark.parametrize("name", CORRECTED)
@pytest.mark.parametrize("per_cell", [20, 200])
def test_a_correction_removes_most_of_the_bias(name: str, per_cell: int) -> None:
    records, p, pi = 1000, per_cell / 1000, per_cell / 1500
    cell, n, h = np.array([pi]), np.array([records]), np.arange(records + 1)
    chance = stats.binom.pmf(h, records, p)
    plain = Score(Skew(0.01), divergence_named(name))
    corrected = Score(Skew(0.01), divergence_named(name), correction=1.0)
    truth = float(plain(per_cell, cell, n)[0])
    bias = float(chance @ plain(h, cell, n)) - truth
    assert bias > 0
    assert abs(float(chance @ corrected(h, cell, n)) - truth) < 0.3 * bias


@every
def test_who_corrects(name: str) -> None:
    assert divergence_named(name).corrects is (name in CORRECTED)


@skewed(0.0, 0.01, 0.3)
def test_the_bounds_of_the_interval_hold(name: str, skew: float) -> None:
    """E[f^2] <= R D and D <= largest, for 300 populations; corners come close to both."""
    divergence = divergence_named(name)
    pi, rng = np.array([0.5, 0.3, 0.15, 0.05]), np.random.default_rng(1)
    highest = skew + (1 - skew) / pi.min()
    bound, largest = divergence.square_ratio(skew, highest), divergence.largest(skew, highest)
    populations = [*rng.dirichlet(np.full(4, 0.3), 250), *rng.dirichlet(200 * pi, 50), *np.eye(4)]
    for p in populations:
        v = skew + (1 - skew) * p / pi
        size = float(pi @ divergence.f(v))
        assert size <= largest * (1 + 1e-12)
        assert float(pi @ divergence.f(v) ** 2) <= bound * size * (1 + 1e-6)
    assert max(float(pi @ divergence.f(skew + (1 - skew) * p / pi)) for p in np.eye(4)) > (
        0.5 * largest
    )


@pytest.mark.parametrize("name", FINITE)
def test_a_maximum_step_needs_no_skew_where_scores_are_finite(name: str) -> None:
    pi, n = np.array([0.1]), np.array([1000])
    plain = Score(Skew(0.0), divergence_named(name))
    step = -0.5 * 0.1 * float(plain.increments(0, pi, n)[0])
    clipped = Score(Skew(0.0), divergence_named(name), maximum_step=step)
    falls = -0.1 * clipped.increments(np.arange(1000), pi, n, weights=0.1)
    assert falls.max() == pytest.approx(step, rel=1e-9)
    assert clipped(0, pi, n, weights=0.1) == plain(0, pi, n)
