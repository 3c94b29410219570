"""Kinds of drift have the size that was asked for, and hit the cells they are named after."""

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.divergence import Score, Skew, skewed_divergence
from fedprikl.estimation.drift_model import (
    KINDS,
    drifted_ratios,
    ratio_divergence,
    smooth_examples,
)

SCORE = Score(Skew(0.01))


def lognormal(cells: int) -> Floats:
    mass = np.random.default_rng(1).lognormal(0, 1.2, cells)
    normalised: Floats = mass / mass.sum()
    return normalised


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-5, 0.01, 0.1, 0.4])
@pytest.mark.parametrize("cells", [2, 30, 3000])
def test_the_size_is_exact(kind: str, size: float, cells: int) -> None:
    pi = lognormal(cells)
    ratios = drifted_ratios(pi, kind, size, SCORE)
    if ratios is None:
        assert kind in ("rare", "heavy", "faded", "fading")
        return
    assert ratios.min() >= 0
    assert pi @ ratios == pytest.approx(1, abs=1e-12)
    assert skewed_divergence(pi, pi * ratios, skew=0.01) == pytest.approx(size, rel=1e-6)


def test_examples_of_a_smooth_drift_raise_and_lower_every_cell_evenly() -> None:
    pi = lognormal(40)
    found = smooth_examples(pi, 0.2, SCORE, 8)
    assert found is not None
    assert found @ pi == pytest.approx(np.ones(8), abs=1e-12)
    assert ratio_divergence(pi, found, SCORE) == pytest.approx(np.full(8, 0.2), rel=1e-6)
    places = np.argsort(np.argsort(found, axis=1), axis=1)
    assert np.std(places.mean(axis=0)) < 1.5  # of unrelated orders 40 / sqrt(12 * 8) = 4.1
    assert smooth_examples(pi, 100.0, SCORE, 8) is None
    nothing = smooth_examples(pi, 0.0, SCORE, 8)
    assert nothing is not None
    assert np.all(nothing == 1)


def test_each_kind_hits_its_cells() -> None:
    pi = np.sort(lognormal(30))
    found = {kind: drifted_ratios(pi, kind, 0.1, SCORE) for kind in KINDS if kind != "fading"}
    assert all(ratios is not None for ratios in found.values())
    ratios = {kind: ratios for kind, ratios in found.items() if ratios is not None}
    assert np.array_equal(ratios["rare"] < 1, np.arange(30) < 15)
    assert np.flatnonzero(ratios["heavy"] < 1).tolist() == [29]
    assert np.count_nonzero(ratios["faded"] < 1) == 1
    assert ratios["faded"].min() < 0.1 * ratios["heavy"].min()
    gone = np.flatnonzero(ratios["gone"] == 0)
    assert gone.size > 3
    assert np.array_equal(gone, np.arange(gone.size))
    assert np.all(ratios["smooth"] > 0)
    assert np.unique(ratios["shuffled"]).size == 30


def test_none_is_no_drift_and_some_drifts_are_out_of_reach() -> None:
    pi = lognormal(30)
    for kind in KINDS:
        assert drifted_ratios(pi, kind, 0.0, SCORE) == pytest.approx(np.ones(30))
        assert drifted_ratios(pi, kind, 4.7, SCORE) is None
        nearest = drifted_ratios(pi, kind, 4.7, SCORE, nearest=True)
        assert nearest is not None
        assert pi @ nearest == pytest.approx(1)
        assert drifted_ratios(pi, kind, 0.01, SCORE, nearest=True) == pytest.approx(
            drifted_ratios(pi, kind, 0.01, SCORE)
        )
    assert drifted_ratios(np.ones(1), "smooth", 0.1, SCORE) is None
    assert drifted_ratios(np.ones(1), "gone", 0.1, SCORE) is None
    with pytest.raises(InvalidInputError, match="no kind of drift"):
        drifted_ratios(pi, "sudden", 0.1, SCORE)


def test_cells_of_a_sample_stand_for_others() -> None:
    pi, mass = np.array([0.01, 0.02, 0.03, 0.2]), np.array([0.25, 0.25, 0.3, 0.2])
    for kind in KINDS:
        ratios = drifted_ratios(pi, kind, 0.2, SCORE, mass=mass)
        assert ratios is not None
        assert mass @ ratios == pytest.approx(1)
        assert ratio_divergence(mass, ratios, SCORE) == pytest.approx(0.2, rel=1e-6)
    rare = drifted_ratios(pi, "rare", 0.2, SCORE, mass=mass)
    assert rare is not None
    assert np.array_equal(rare < 1, [True, True, False, False])
