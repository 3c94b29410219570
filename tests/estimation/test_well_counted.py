"""Cells that noise changes little are scored without a guess how far they have drifted."""

import math

import numpy as np
import pytest

from fedprikl.checks import Floats
from fedprikl.divergence import JS, KL, TV, Divergence, Score, Skew
from fedprikl.estimation import CountNoise, CountsDesign
from fedprikl.estimation.well_counted import exchanged, has_gaps, well_counted, without_bias
from fedprikl.privacy import laplace_variance
from fedprikl.reference import all_points
from tests.false_alarm import looks_centred

SCALE, RELEASES = 20.0, 60
SD = math.sqrt(laplace_variance(SCALE))


@pytest.mark.parametrize("divergence", [KL, JS])
@pytest.mark.parametrize("left", [0.3, 1.0, 3.0])
def test_the_bias_of_noise_is_taken_off(divergence: Divergence, left: float) -> None:
    """Exactly, over the whole law of the noise: a tenth of the bias is left at ten times its sd."""
    score, pi, records = Score(Skew(0.01), divergence), np.array([0.5]), np.array([int(20 * SD)])
    noise = np.arange(-9 * int(SD), 9 * int(SD) + 1)
    law = np.exp(-np.abs(noise) / SCALE)
    law /= law.sum()
    records = (records / left).astype(np.int64)  # so that `left` of what is expected is ten times
    count = left * records[0] / 2
    noisy = (count + noise)[:, None]
    exact = float(score(count, pi, records)[0])
    biased = float(law @ score(noisy, pi, records)[:, 0]) - exact
    kept = float(law @ without_bias(score, noisy, np.array([SD]), pi=pi, records=records)[:, 0])
    assert biased > 0
    assert abs(kept - exact) < 0.1 * biased


def test_both_what_is_expected_and_what_was_found_must_be_large() -> None:
    expected, sd = np.array([49.0, 51.0, 51.0]), np.full(3, 10.0)
    found = well_counted(np.array([[80.0, 49.0, 80.0]]), expected, sd)
    assert found.tolist() == [[False, False, True]]


def test_a_kink_is_left_to_the_mixture() -> None:
    assert has_gaps(Score())
    assert not has_gaps(Score(Skew(0.0), TV))


def test_nothing_is_exchanged_where_noise_hides_all() -> None:
    counts, pi = np.array([[5.0, 7.0]]), np.array([0.5, 0.5])
    before = counts[:, None]
    found = exchanged(
        Score(),
        counts,
        before,
        Score()(before, pi, np.array([12, 12])),
        np.full(2, 28.0),
        pi=pi,
        weights=pi,
        records=np.array([12, 12]),
    )
    assert found.tolist() == [0.0]


@pytest.mark.parametrize("divergence", [KL, JS])
@pytest.mark.parametrize(
    ("cells", "records", "scale", "uneven"),
    [(250, 100_000, 20.0, 0.4), (1000, 400_000, 4.0, 1.0)],
)
def test_many_cells_that_drifted_by_little_add_up_to_no_bias(
    cells: int, records: int, scale: float, uneven: float, divergence: Divergence
) -> None:
    """Errors are centred (false alarms: 1e-9), and as large as a textbook's: two means of 60 differ
    by 60% once in 10,000 times.

    By the mixture alone, they are 1.5 times a textbook's usual error above 0, 11 standard errors.
    """
    rng, pi = np.random.default_rng(4), np.random.default_rng(3).lognormal(sigma=uneven, size=cells)
    pi /= pi.sum()
    p = pi * np.exp(0.6 * rng.permutation(np.linspace(-1, 1, cells)))
    held = rng.multinomial(records, p / p.sum(), RELEASES)
    noise = CountNoise(sd=math.sqrt(laplace_variance(scale)), scale=scale)
    design = CountsDesign(all_points(pi), np.array([records]), (noise,))
    score = Score(Skew(0.01), divergence)
    truth = score(held, pi, np.full((RELEASES, 1), records)) @ pi

    def errors(*, textbook: bool) -> Floats:
        (found,) = design.simulate(held, scores=[score], rng=rng, draws=20, textbook=textbook)
        return np.asarray(found - truth)

    found, rival = errors(textbook=False), errors(textbook=True)
    assert looks_centred(found, 0.0)
    assert np.abs(found).mean() < 1.6 * np.abs(rival).mean()
