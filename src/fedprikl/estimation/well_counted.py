"""Scores of counts that noise changes little, without any guess how far cells have drifted. Public.

Where noise is small beside a count, the bias that it gives a score is known from the noisy count
alone. A mixture of laws (`before_noise.py`) is always a little wider than how cells have drifted,
and in a sum over hundreds of cells that bias exceeds the errors that are noise. So these cells are
scored by themselves, and the mixture serves the others (decision 33).
"""

import math

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew

LEAST = 5.0  # times the noise: what is expected in a cell, and was found, that is well counted


def has_gaps(score: Score) -> bool:
    """Whether scores are smooth, so that small noise gives them a known bias: not those of TV."""
    smooth = isinstance(score.smoothing, Skew) and not score.control and score.finite
    return smooth and math.isfinite(score.divergence.curvature)


def well_counted(counts: Floats, expected: Floats, sd: Floats) -> npt.NDArray[np.bool_]:
    """Which noisy counts noise of this standard deviation changes little, (releases, cells).

    Both what is expected and what was found must be large. Only few cells have drifted so far that
    the second decides, so that the choice of cells by their noise causes no bias.
    """
    return (expected >= LEAST * sd) & (counts >= LEAST * sd)


def without_bias(
    score: Score,
    counts: Floats,
    sd: Floats,
    *,
    pi: Floats,
    records: Ints,
) -> Floats:
    """Scores of noisy counts above `sd`, less the bias of noise with this standard deviation.

    Noise n gives a score s a bias of E[s(h + n) - s(h)], which is about that of n = sd and n = -sd
    with a chance of 1/2 each: s'' sd^2 / 2, whatever the law of n.

        2 s(h) - (s(h + sd) + s(h - sd)) / 2

    >>> pi, records = np.array([0.5]), np.array([200])
    >>> noisy, sd = np.array([[90.0], [110.0]]), np.array([10.0])  # of a count of 100
    >>> found = without_bias(Score(), noisy, sd, pi=pi, records=records)
    >>> round(float(Score()(noisy, pi, records).mean()), 4), round(float(found.mean()), 4)
    (0.0049, -0.0001)
    """
    middle, above, below = (score(counts + by, pi, records) for by in (0.0, sd, -sd))
    return np.asarray(2 * middle - (above + below) / 2)


def slopes(score: Score, pi: Floats, records: Ints) -> Floats:
    """s'(N Pi) of each cell: what a count adds to its score whether or not it has drifted."""
    _, of_count = score.smoothing.line(pi, records)
    return np.asarray(score.divergence.slope(np.ones(1)) * of_count)


def exchanged(
    score: Score,
    counts: Floats,
    before: Floats,
    scores: Floats,
    sd: Floats,
    *,
    pi: Floats,
    weights: Floats,
    records: Ints,
) -> Floats:
    """What divergences gain if well counted cells are scored by themselves, (releases,).

    `counts` are noisy, (releases, cells); `before` is what they may have been, with these `scores`,
    (releases, draws, cells). All counts sum to N, so what is linear in them is known, and is not
    exchanged: noise would come back with it.
    """
    expected = records * pi
    chosen = well_counted(counts, expected, sd)
    if not np.any(chosen):
        return np.zeros(len(counts))
    slope, safe = slopes(score, pi, records), np.where(chosen, counts, expected + sd)
    alone = without_bias(score, safe, sd, pi=pi, records=records) - slope * safe
    drawn = scores.mean(axis=1) - slope * before.mean(axis=1)
    return np.asarray(np.where(chosen, alone - drawn, 0.0) @ weights)
