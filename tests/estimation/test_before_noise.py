"""Counts as they may have been before noise, and divergences read off them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl.checks import Floats
from fedprikl.divergence import TV, Score, Skew
from fedprikl.estimation import CountNoise, CountsDesign
from fedprikl.estimation.before_noise import mixture_weights
from fedprikl.estimation.noisy_counts import whole_counts
from fedprikl.privacy import laplace_variance
from fedprikl.reference import all_points
from tests.false_alarm import looks_centred

PI = np.random.default_rng(3).lognormal(size=250)
PI /= PI.sum()
RELEASES = 60


def law(records: int, scale: float, pi: Floats = PI) -> CountsDesign:
    noise = CountNoise(sd=math.sqrt(laplace_variance(scale)), scale=scale)
    return CountsDesign(all_points(pi), np.array([records]), (noise,))


def errors(drift: float, records: int, scale: float, *, textbook: bool = False) -> Floats:
    """Of released values, if a tilt of this slope has changed Pi."""
    rng, design, score = np.random.default_rng(4), law(records, scale), Score()
    p = PI * np.exp(drift * np.linspace(-1, 1, len(PI)))
    held = rng.multinomial(records, p / p.sum(), RELEASES)
    (found,) = design.simulate(held, scores=[score], rng=rng, draws=20, textbook=textbook)
    return np.asarray(found - score(held, PI, np.full((RELEASES, 1), records)) @ PI)


@pytest.mark.parametrize("drift", [0.0, 0.6])
def test_noise_that_dominates_counts_makes_little_error(drift: float) -> None:
    """Noise of 28 on counts of 20: a textbook is off by 0.3 nats, this by a fourth of it."""
    found, rival = errors(drift, 5000, 20.0), errors(drift, 5000, 20.0, textbook=True)
    assert rival.mean() > 0.3
    assert np.abs(found).mean() < 0.25 * np.abs(rival).mean()


def test_small_noise_leaves_little_to_gain() -> None:
    """Counts of 1,600 with noise of 3: errors are those of a textbook, within 10% for 60 releases
    of the same noise, and centred (false alarms: 1e-9).
    """
    found, rival = errors(0.3, 400_000, 2.0), errors(0.3, 400_000, 2.0, textbook=True)
    assert np.abs(found).mean() == pytest.approx(np.abs(rival).mean(), rel=0.1)
    assert looks_centred(found, 0.0)


def test_draws_vary_as_counts_did_before_noise(rng: np.random.Generator) -> None:
    """2,000 cells of 100 records with noise of 20: noisy counts vary 2.2 times as much."""
    pi = np.full(2000, 1 / 2000)
    design = law(200_000, 14.0, pi)
    held = rng.multinomial(200_000, pi)
    on_counts, on_outside = design.draw_noise(rng)
    drawn = design.before_noise(held + on_counts, on_outside, rng=rng, draws=20)
    assert (held + on_counts).std() > 2 * held.std()
    assert drawn.std() == pytest.approx(held.std(), rel=0.25)
    np.testing.assert_allclose(drawn.sum(axis=2), 200_000, rtol=0.01)
    assert drawn.min() >= 0


def test_few_cells_that_changed_are_not_drawn_in(rng: np.random.Generator) -> None:
    """What one cell of 250 lost or gained is seen, though all others have not drifted."""
    pi = np.full(250, 1 / 250)
    design, held = law(50_000, 2.0, pi), np.full(250, 200)
    held[:2] = 20, 600
    on_counts, on_outside = design.draw_noise(rng)
    (drawn,) = design.before_noise(held + on_counts, on_outside, rng=rng, draws=200)
    assert drawn[:, 0].mean() == pytest.approx(20, abs=12)
    assert drawn[:, 1].mean() == pytest.approx(600, abs=12)


@pytest.mark.parametrize("gone", [3, 12, 25])
def test_cells_that_grew_as_others_vanished_are_not_drawn_in(gone: int) -> None:
    """Some of 250 cells of 1,600 records are gone, so that all others grew by 1 to 11%.

    The error of TV is that of a textbook, within 30%; drawn in to a ratio of 1, it would be thrice.
    """
    rng, pi, score = np.random.default_rng(6), np.full(250, 1 / 250), Score(Skew(0.0), TV)
    p = np.where(np.arange(250) < gone, 0.0, 1.0)
    design, held = law(400_000, 20.0, pi), rng.multinomial(400_000, p / p.sum(), RELEASES)
    truth = score(held, pi, np.full((RELEASES, 1), 400_000)) @ pi
    (found,) = design.simulate(held, scores=[score], rng=rng, draws=20)
    (rival,) = design.simulate(held, scores=[score], rng=rng, draws=20, textbook=True)
    assert np.abs(found - truth).mean() < 1.3 * np.abs(rival - truth).mean()


@pytest.mark.parametrize("left", [0, 10, 40])
def test_a_cell_with_a_few_records_left_is_not_called_empty(
    left: int, rng: np.random.Generator
) -> None:
    """Of 4,000, with noise of 2.8: within 5 records on average, and of an empty cell within 1."""
    pi, held = np.full(30, 1 / 30), np.full((RELEASES, 30), 4000)
    held[:, 0] = left
    design = law(int(held[0].sum()), 2.0, pi)
    noisy = design.renoised(held, rng)
    drawn = design.before_noise(*noisy, rng=rng, draws=20)[..., 0]
    assert drawn.mean() == pytest.approx(left, abs=5 if left else 1)


def test_a_group_of_cells_may_change_as_others_do_not(rng: np.random.Generator) -> None:
    """The rarest 60 of 250 cells have doubled, each hidden by its noise; a textbook sees less."""
    design, p, score = law(20_000, 20.0), PI.copy(), Score(Skew(0.0), TV)
    p[np.argsort(PI)[:60]] *= 3
    held = rng.multinomial(20_000, p / p.sum(), 40)
    truth = score(held, PI, np.full((40, 1), 20_000)) @ PI
    (found,) = design.simulate(held, scores=[score], rng=rng, draws=20)
    (rival,) = design.simulate(held, scores=[score], rng=rng, draws=20, textbook=True)
    assert np.abs(found - truth).mean() < np.abs(rival - truth).mean()


def test_weights_of_a_mixture_are_found(rng: np.random.Generator) -> None:
    """Of 3,000 values, 30% are of the second law; within 5 standard errors."""
    second = rng.random(3000) < 0.3
    values = rng.normal(np.where(second, 3.0, 0.0))
    likelihoods = np.exp(-((values[:, None] - [0.0, 3.0]) ** 2) / 2)
    (found,) = mixture_weights(likelihoods[None], np.full((1, 2), 0.5), 60)
    assert found[1] == pytest.approx(0.3, abs=5 * math.sqrt(0.3 * 0.7 / 3000))


@given(
    counts=st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=6),
    outside=st.integers(-1000, 1000),
    records=st.integers(1, 10**6),
    scale=st.sampled_from([None, 0.01, 2.0, 2000.0]),
)
def test_whatever_noise_made_of_counts_a_divergence_is_possible(
    counts: list[int], outside: int, records: int, scale: float | None
) -> None:
    pi = np.arange(1.0, len(counts) + 1)
    points = all_points(pi / pi.sum())
    sd = 0.0 if scale is None else math.sqrt(laplace_variance(scale))
    design = CountsDesign(points, np.array([records]), (CountNoise(sd=sd, scale=scale),))
    (found,), (spread,) = design.read(
        np.array([counts], dtype=float),
        np.array([[outside]], dtype=float),
        scores=[Score()],
        rng=np.random.default_rng(1),
        draws=5,
    )
    assert 0 <= found[0] <= math.log(100) + 1e-9
    assert spread[0] >= 0


def test_whole_counts_keep_the_mean_and_the_sum(rng: np.random.Generator) -> None:
    counts = np.array([0.1, 2.5, 0.4, 7.0])
    found = whole_counts(np.tile(counts, (4000, 1)), rng)
    np.testing.assert_allclose(found.mean(axis=0), counts, atol=0.05)
    assert set(found.sum(axis=1)) == {10.0}
    assert np.array_equal(found, np.rint(found))
