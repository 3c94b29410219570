"""What a count of the reference tells of a cell's share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl.reference.seen import seen_of, true_counts


def test_equal_rare_cells_deserve_less_than_they_were_seen() -> None:
    """Of 8,000 cells of half a record each, two thirds were not seen: whoever was, was lucky."""
    drawn = np.random.default_rng(4).poisson(0.5, 8000)
    mean, _ = true_counts(seen_of(drawn)).of(np.array([1.0, 2.0]))
    np.testing.assert_allclose(mean, 0.5, atol=0.2)


def test_cells_of_all_sizes_keep_their_counts() -> None:
    drawn = np.random.default_rng(5).poisson(1600 * np.random.default_rng(6).lognormal(size=62))
    known = true_counts(seen_of(drawn))
    mean, variance = known.of(drawn.astype(float))
    np.testing.assert_allclose(mean, drawn, rtol=0.03)
    np.testing.assert_allclose(variance, drawn, rtol=0.1)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=60).filter(any))
def test_what_cells_lose_is_what_was_not_seen(counts: list[int]) -> None:
    """As many records as there are cells of one record (Good, 1953), however few there are."""
    held = np.array([count for count in counts if count], dtype=float)
    known = true_counts(seen_of(np.array(counts)))
    mean, variance = known.of(held)
    once = np.count_nonzero(held == 1)
    assert mean.sum() == pytest.approx(max(held.sum() - once, 1.0))
    assert np.all(mean >= 0)
    assert np.all(variance > 0)
