"""Repetitions: the package's own estimators, numbers that do not depend on what else is run."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from experiments.handwriting import Digits, synthetic_handwriting
from experiments.paper.repetition import BASELINE_FLOOR, Repetition, Setting

from fedprikl import InsecureSeededNoise
from fedprikl.divergence import Score
from fedprikl.estimation import trusted_aggregator
from fedprikl.paper import no_privacy

SMALL = Setting(method="trusted aggregator", batches=4, points=5)


@pytest.fixture(scope="module")
def digits() -> Digits:
    return synthetic_handwriting(writers=200)


def test_a_slice_gives_the_numbers_of_the_whole(digits: Digits) -> None:
    whole, part = (Repetition(digits, seed=1, number=2) for _ in range(2))
    settings = [replace(SMALL, control=control) for control in (-1.0, 0.0, 0.5)]
    pairs = [(3, 8), (9, 0)]
    values = {(p, s): whole.estimate(p, s).value for s in settings for p in pairs}
    assert part.estimate((9, 0), settings[1]).value == values[(9, 0), settings[1]]
    assert len(set(values.values())) == len(values)


def test_seeds_and_repetitions_differ(digits: Digits) -> None:
    values = {
        Repetition(digits, seed=seed, number=number).estimate((3, 8), SMALL).value
        for seed in (1, 2)
        for number in (0, 1)
    }
    assert len(values) == 4


def test_the_estimate_is_the_package_estimators_own(digits: Digits) -> None:
    repetition = Repetition(digits, seed=1, number=0)
    counts = repetition.counts((3, 8), SMALL)
    plain = repetition.estimate((3, 8), replace(SMALL, method="no privacy", control=0.3))
    assert plain.value == no_privacy(counts, score=Score(control=0.3)).value
    exact = repetition.estimate((3, 8), replace(SMALL, calibration="exact", corrected=True))
    again = trusted_aggregator(counts, epsilon=1.0, source=InsecureSeededNoise(0))
    assert exact.privacy.sensitivity == again.privacy.sensitivity
    assert exact.privacy.insecure
    assert exact.noise_sd == again.noise_sd


@pytest.mark.parametrize("calibration", ["paper", "exact"])
def test_the_baseline_runs_with_its_floor(
    digits: Digits, calibration: Literal["paper", "exact"]
) -> None:
    setting = replace(
        SMALL,
        method="baseline",
        control=-1.0,
        smoothing=BASELINE_FLOOR,
        calibration=calibration,
    )
    estimate = Repetition(digits, seed=1, number=0).estimate((4, 1), setting)
    assert np.isfinite(estimate.value)
    assert "max(P, 0.0001)" in estimate.target


def test_distinct_points_run_out_gracefully() -> None:
    ours = Setting(method="no privacy", design="distinct", points=10, batches=10)
    assert ours.fitted(37) == (10, 3)
    assert ours.fitted(233) == (10, 10)
    assert replace(ours, points=250).fitted(112) == (112, 1)
    assert replace(ours, design="iid").fitted(37) == (10, 10)
