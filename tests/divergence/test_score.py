"""The score: its increments, its bounds, its bias correction."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.checks import Ints
from fedprikl.divergence import Additive, Floor, Score, Skew, Smoothing

smoothings = st.one_of(
    st.sampled_from([0.001, 0.01, 0.3, 0.9]).map(Skew),
    st.sampled_from([0.1, 1.0]).map(lambda a: Additive(a, 10)),
    st.sampled_from([1e-3, 0.1, 0.37]).map(Floor),
)


@st.composite
def scores(draw: st.DrawFn) -> Score:
    smoothing = draw(smoothings)
    correction = 0.0 if isinstance(smoothing, Floor) else draw(st.sampled_from([0, 0.5, 1.0, 4.0]))
    maximum_step = (
        np.inf if isinstance(smoothing, Floor) else draw(st.sampled_from([0.003, 1, np.inf]))
    )
    control = draw(st.floats(-3, 3))
    return Score(smoothing, control=control, correction=correction, maximum_step=maximum_step)


def of(count: int) -> Ints:
    return np.array([count])


@given(scores(), st.integers(1, 300), st.floats(1e-4, 1.0))
def test_extreme_increments_are_found_among_all(score: Score, records: int, pi: float) -> None:
    cell, n = np.array([pi]), of(records)
    every = score.increments(np.arange(records), cell, n)
    found = score.extreme_increments(cell, n)
    tolerance = 1e-12 * (1 + float(np.abs(every).max()))
    assert found.lowest[0] == pytest.approx(every.min(), abs=tolerance)
    assert found.highest[0] == pytest.approx(every.max(), abs=tolerance)
    assert every[found.lowest_at[0]] == pytest.approx(every.min(), abs=tolerance)
    assert every[found.highest_at[0]] == pytest.approx(every.max(), abs=tolerance)


def test_that_the_ends_alone_would_miss_an_extreme() -> None:
    """A floor is not convex: its maximum step is at the kink, so that is searched too."""
    score, cell, n = Score(Floor(0.3)), np.array([0.3]), of(300)
    every = score.increments(np.arange(300), cell, n)
    assert every.min() < min(every[0], every[-1]) - 1e-3


@given(scores(), st.integers(1, 200), st.floats(1e-4, 1.0))
def test_the_bound_holds(score: Score, records: int, pi: float) -> None:
    values = score(np.arange(records + 1), np.array([pi]), of(records))
    assert np.all(np.abs(values) <= score.bound(np.array([pi]), of(records)) * (1 + 1e-12))


def test_the_smoothings_are_what_they_say() -> None:
    pi, n, h = np.array([0.2]), of(50), np.array([7])
    p = 7 / 50
    expected: dict[Smoothing, float] = {
        Skew(0.1): 0.1 + 0.9 * p / 0.2,
        Additive(1.0, 4): (8 / 54) / 0.2,
        Floor(0.3): 0.3 / 0.2,
        Floor(0.1): p / 0.2,
        Skew(0.0): p / 0.2,
    }
    for smoothing, ratio in expected.items():
        assert Score(smoothing).ratio(h, pi, n)[0] == pytest.approx(ratio)
        value = Score(smoothing, control=2.0)(h, pi, n)[0]
        assert value == pytest.approx(2 * (ratio - 1) - np.log(ratio))
        assert Score(smoothing).target == f"D(Pi || {smoothing})"


def expected_score(score: Score, pi: float, records: int, p: float) -> float:
    """E[s(h)] for h ~ Binomial(records, p), exactly."""
    counts = np.arange(records + 1)
    return float(stats.binom.pmf(counts, records, p) @ score(counts, np.array([pi]), of(records)))


@pytest.mark.parametrize("per_cell", [20, 50, 200])
def test_the_correction_removes_most_of_the_bias(per_cell: int) -> None:
    records, p, pi = 1000, per_cell / 1000, per_cell / 1500
    plain, corrected = Score(), Score(correction=1.0)
    truth = float(plain(per_cell, np.array([pi]), of(records))[0])
    bias = expected_score(plain, pi, records, p) - truth
    left = expected_score(corrected, pi, records, p) - truth
    assert bias > 0
    assert abs(left) < 0.3 * bias


@given(scores().filter(lambda s: not isinstance(s.smoothing, Floor)), st.integers(2, 300))
def test_every_score_but_a_floor_is_convex(score: Score, records: int) -> None:
    """The sensitivity looks at the first and the last step only; convexity is why it may."""
    steps = score.increments(np.arange(records), np.array([0.05]), of(records))
    assert np.all(np.diff(steps) >= -1e-12 * (1 + np.abs(steps).max()))


def test_the_line_is_exact_for_vanished_cells_and_far_from_them() -> None:
    pi, n, weight = np.array([0.1]), of(10_000), 0.1
    plain, clipped = Score(), Score(maximum_step=0.005)
    counts = np.array([0, 5, 400, 1000])
    values = clipped(counts, pi, n, weights=weight) - plain(counts, pi, n)
    assert values[[0, 2, 3]].tolist() == [0, 0, 0]
    assert 0.1 < values[1] < 0.3  # 0.5% of the usual count: nearly vanished


def test_a_batch_of_a_finite_population_needs_less_correction() -> None:
    """One of T batches is a draw without replacement: its counts vary 1 - 1/T as much."""
    records, everybody, batches, pi = 4000, 160, 4, 0.03
    size = records // batches
    counts = np.arange(min(everybody, size) + 1)
    chance = stats.hypergeom.pmf(counts, records, everybody, size)
    truth = float(Score()(everybody, np.array([pi]), of(records))[0])

    def bias(outside: float) -> float:
        values = Score(correction=1.0)(counts, np.array([pi]), of(size), outside=outside)
        return abs(float(chance @ values) - truth)

    assert bias(1 - 1 / batches) < 0.2 * bias(0.0)
    assert bias(1 - 1 / batches) < 0.5 * bias(1.0)


def test_an_empty_cell_without_smoothing_is_infinite() -> None:
    assert Score(Skew(0.0))(0, np.array([0.5]), of(10)).tolist() == [np.inf]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Skew(-0.1), "at least 0"),
        (lambda: Skew(1.0), "below 1"),
        (lambda: Floor(0.0), "strictly between"),
        (lambda: Additive(0.0, 4), "above 0"),
        (lambda: Additive(1.0, 0), "at least 1"),
        (lambda: Score(control=np.nan), "finite"),
        (lambda: Score(correction=-0.5), "design effect"),
        (lambda: Score(Floor(0.1), correction=1.0), "needs a smoothing"),
        (lambda: Score(Skew(0.0), correction=1.0), "needs a smoothing"),
        (lambda: Score(maximum_step=0.0), "above 0"),
        (lambda: Score(Floor(0.1), maximum_step=1.0), "needs a smoothing"),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()
