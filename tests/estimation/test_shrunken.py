"""Counts as they may have been before noise, and the bias that is left of a divergence."""

import math
from typing import Any

import numpy as np
import pytest

from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.estimation import CountNoise, CountsDesign
from fedprikl.estimation import noisy_counts as module
from fedprikl.estimation.noisy_counts import (
    CELLS,
    SURE,
    noise_groups,
    shrink_counts,
    whole_counts,
)
from fedprikl.privacy import laplace_variance
from fedprikl.reference import all_points
from tests.false_alarm import looks_centred

PI = np.random.default_rng(3).lognormal(size=250)
PI /= PI.sum()
RELEASES, RESAMPLES = 60, 20


def law(records: int, scale: float) -> CountsDesign:
    noise = CountNoise(sd=math.sqrt(laplace_variance(scale)), scale=scale)
    return CountsDesign(all_points(PI), np.array([records]), (noise,))


def errors(drift: float, records: int, scale: float) -> Floats:
    """Of released values, if a tilt of this slope has changed Pi."""
    rng, noisy = np.random.default_rng(4), law(records, scale)
    p = PI * np.exp(drift * np.linspace(-1, 1, len(PI)))
    held = rng.multinomial(records, p / p.sum(), RELEASES)
    on_counts, on_rest = noisy.draw_noise(rng, RELEASES)
    totals, score = np.full((RELEASES, 1), records), Score()
    values, _ = noisy.debias(held + on_counts, on_rest, score=score, rng=rng, resamples=RESAMPLES)
    return np.asarray(values - score(held, PI, totals) @ PI)


@pytest.mark.parametrize("drift", [0.0, 0.6])
def test_little_bias_is_left_where_noise_drowns_the_counts(
    drift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise of 28 on counts of 20: a bias of half a nat without the shrinkage, a fourth with it."""
    found = errors(drift, 5000, 20.0)
    monkeypatch.setattr(module, "FEW", math.inf)  # never
    before = errors(drift, 5000, 20.0)
    assert before.mean() > 0.35
    assert abs(found.mean()) < 0.25 * before.mean()


def test_quiet_noise_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last digit; and the criterion is public: it does not look at the counts."""
    assert not law(400_000, 2.0).noise_dominated
    assert law(5000, 20.0).noise_dominated
    found = errors(0.3, 400_000, 2.0)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "shrink_counts", never)
    assert np.array_equal(errors(0.3, 400_000, 2.0), found)
    with pytest.raises(AssertionError):
        errors(0.3, 5000, 20.0)


def test_shrunken_counts_vary_like_counts(rng: np.random.Generator) -> None:
    """With and without a drift of their own; noisy counts vary more."""
    expected = np.full(CELLS * 200, 400.0)
    noise = np.full(len(expected), 40.0**2)
    groups = noise_groups(expected, noise)
    for drift in (0.0, 0.1):
        held = rng.poisson(expected * np.maximum(rng.normal(1, drift, len(expected)), 0))
        noisy = held + rng.normal(0, 40, (1, len(expected)))
        found = shrink_counts(noisy, expected[None], noise, groups)
        assert found.std() == pytest.approx(held.std(), rel=0.25)
        assert noisy.std() > 1.25 * held.std()


def test_a_group_that_shrank_is_not_drawn_back(rng: np.random.Generator) -> None:
    """Half of the cells lost nine of ten records: their group says so, each cell could not."""
    expected = np.concatenate([np.full(200, 20.0), np.full(200, 60.0)])
    noise = np.full(400, 30.0**2)
    noisy = expected * np.repeat([0.1, 1.0], 200) + rng.normal(0, 30, (50, 400))
    found = shrink_counts(noisy, np.tile(expected, (50, 1)), noise, noise_groups(expected, noise))
    assert found[:, :200].mean() < 0.35 * 20
    assert 0.9 * 60 < found[:, 200:].mean() < 1.1 * 60


def test_groups_are_large_enough_and_public() -> None:
    expected = 5000 * PI
    order, begins = noise_groups(expected, np.full(len(PI), 28.0**2))
    assert np.all(np.diff(expected[order]) >= 0)
    assert len(begins) > 1
    for group in np.split(order, begins[1:]):
        assert len(group) >= CELLS
        assert expected[group].sum() >= SURE * 28.0 * math.sqrt(len(group)) - 1e-9
    few = noise_groups(np.array([3.0, 1.0]), np.ones(2))
    assert (few[0].tolist(), few[1].tolist()) == ([1, 0], [0])


def test_whole_counts_keep_the_mean_and_the_sum(rng: np.random.Generator) -> None:
    counts = np.array([0.2, 3.7, 0.0, 12.5, 0.6])
    found = whole_counts(np.tile(counts, (4000, 1)), rng)
    assert np.array_equal(found, np.rint(found))
    assert found.min() >= 0
    assert np.abs(found.sum(axis=1) - counts.sum()).max() < 1 + 1e-9
    assert np.all(found[:, 2] == 0)
    for cell in (0, 1, 3, 4):
        assert looks_centred(found[:, cell], counts[cell])
