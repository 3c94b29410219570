"""Drift models, spectra and forecasts: what a plan's predictions are made of."""

import math

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.divergence import Score, Skew
from fedprikl.estimation.drift_model import fit_drift, model_drift
from fedprikl.estimation.scoring import Terms
from fedprikl.planning import Design, Spectrum, search_designs
from fedprikl.planning.design import simulated_moments
from fedprikl.reference import spread_points, spread_shares


def zipf(cells: int) -> Floats:
    mass = 1 / np.arange(1.0, cells + 1)
    normalised: Floats = mass / mass.sum()
    return normalised


@pytest.mark.parametrize("divergence", [0.01, 0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("gamma", [0.01, 0.1])
def test_a_model_has_the_divergence_it_is_of(divergence: float, gamma: float) -> None:
    if divergence > 0.9 * -math.log(gamma):
        with pytest.raises(InvalidInputError, match="out of reach"):
            fit_drift(zipf(500), zipf(500), divergence=divergence, score=Score(Skew(gamma)))
        return
    pi = zipf(500)
    model = model_drift(pi, pi, divergence=divergence, score=Score(Skew(gamma)), draws=2**17)
    v = gamma + (1 - gamma) * model.ratios
    assert float(-np.log(v).mean()) == pytest.approx(divergence, rel=0.05, abs=2e-3)
    assert model.mean_square == pytest.approx(float(np.mean(np.log(v) ** 2)))


def test_rare_cells_vanish_more_often() -> None:
    pi = zipf(500)
    drift = fit_drift(pi, pi, divergence=0.5, score=Score())
    uniforms = (np.arange(1000) + 0.5) / 1000
    gone = [(drift.ratios(np.full(1000, p), uniforms) == 0).mean() for p in (pi[0], pi[-1])]
    assert gone[0] < 0.3 * gone[1]
    assert np.all(fit_drift(pi, pi, divergence=0.0, score=Score()).ratios(pi, uniforms[:500]) == 1)


@pytest.mark.parametrize("points", [1, 7, 100, 600])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_a_spectrum_spreads_points_like_the_domain(points: int, exponent: float) -> None:
    pi = np.random.default_rng(1).permutation(zipf(600))
    expected = np.sort(spread_shares(pi, points, exponent))[::-1]
    assert Spectrum.of(pi).shares(points, exponent) == pytest.approx(expected, rel=1e-9)


def test_a_large_domain_is_grouped_and_keeps_its_mass() -> None:
    pi = zipf(50_000)
    spectrum = Spectrum.of(pi)
    assert len(spectrum.pi) <= 2048
    assert spectrum.cells == 50_000
    assert spectrum.mass.sum() == pytest.approx(1)
    assert np.all(np.diff(spectrum.pi) <= 0)
    shares = spectrum.shares(300, 0.5)
    assert float(shares @ spectrum.copies) == pytest.approx(300)
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        spectrum.shares(300, 2.0)


def test_everybody_asked_without_clipping_has_no_error_but_noise() -> None:
    found, *_ = search_designs(
        Spectrum.of(zipf(100)),
        points={1: 100},
        records=10_000,
        noise_per_sensitivity=2.0,
        score=Score(correction=1.0),
    )
    assert found.design == Design(points=100, batches=1, exponent=1.0)
    for forecast in found.forecasts:
        assert (forecast.sampling, forecast.bias, forecast.spread) == (0, 0, 0)
        assert forecast.error == forecast.noise_sd > 0
    assert [f.divergence for f in found.forecasts] == [0.0, 0.1, 0.5, 1.0]


def test_small_batches_are_biased_upwards_and_the_moments_show_it() -> None:
    """Against a plain simulation: binomial thinning of one drawn population."""
    rng, pi = np.random.default_rng(2), zipf(300)
    points = spread_points(pi, 30, batches=10, rng=rng)
    terms = Terms.of(points, np.full(10, 2000))
    model = model_drift(terms.weights, terms.pi, divergence=0.0, score=Score(), draws=2**15)
    score = Score(Skew(0.01))  # without correction
    bias, variance = simulated_moments(terms, score, model)(math.inf)
    errors = []
    for _ in range(300):
        everywhere = rng.poisson(20_000 * terms.pi)
        counts = rng.binomial(everywhere, 1 - terms.outside)
        whole = np.full(len(terms.pi), 20_000)
        difference = terms.scores(counts, score) - score(everywhere, terms.pi, whole)
        errors.append(float(terms.weights @ difference))
    assert bias == pytest.approx(np.mean(errors), rel=0.1)
    assert math.sqrt(variance) == pytest.approx(np.std(errors), rel=0.2)
    corrected, _ = simulated_moments(terms, Score(correction=1.0), model)(math.inf)
    assert 0 < corrected < 0.8 * bias


def test_the_search_tries_every_design() -> None:
    found = search_designs(
        Spectrum.of(zipf(300)),
        score=Score(correction=1.0),
        records=10_000,
        points={1: 20, 4: 20},
        noise_per_sensitivity=1.4,
    )
    designs = {
        (d.design.batches, d.design.exponent, d.design.maximum_step == math.inf) for d in found
    }
    assert len(designs) == 2 * 3 * 2
    clipped = [d for d in found if d.design.maximum_step < math.inf]
    plain = {(d.design.batches, d.design.exponent): d for d in found if d not in clipped}
    for each in clipped:
        same = plain[each.design.batches, each.design.exponent]
        assert each.forecasts[0].noise_sd < same.forecasts[0].noise_sd
