"""Populations that noisy counts do not rule out, and the errors of an estimate at each of them.

Noisy counts are public, so they say themselves where their estimate is uncertain: in cells whose
noisy count is small against the noise. Such a cell may be empty, as common as in Pi, or something
between, and the errors differ: the logarithm of a count near 0 is what noise distorts most.
"""

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.envelope import sampling_variance
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.trials import CountsNoise, Populations
from fedprikl.libraries import scipy

__all__ = ["plausible_counts", "plausible_interval"]

DRAWS = 24  # simulated releases of each population
UNCERTAIN = 3.0  # a count of less than so many deviations of its noise may be any below
UNSEEN = (0.0, 2.0)  # a rest may be larger by so many deviations of its noise
CAUTION = 0.9  # deviations more: errors are not normal, and their spread is known from few trials


def plausible_counts(noisy: NoisyCounts) -> Ints:
    """Counts of some populations, (populations, points); their sums do not exceed N."""
    sd, records = float(noisy.noise_sd[0]), int(noisy.records[0])
    likeliest = noisy.projected()
    expected = records * noisy.points.pi
    most = np.maximum(noisy.counts, 0.0) + UNCERTAIN * sd
    unsure = noisy.counts < UNCERTAIN * sd
    rows = [likeliest]
    for filled in (0.0, 0.25, 0.5, 1.0):
        row = np.where(unsure, np.minimum(filled * expected, most), likeliest)
        rows.append(_within(row, ~unsure, records))
    if noisy.whole[0]:  # a rest that noise may explain is taken as none, and may be some
        for more in UNSEEN:
            hidden = min(max(float(noisy.rest[0]), 0.0) + more * sd, float(records))
            rows.append(_within(likeliest, likeliest > 0, records - round(hidden)))
    return np.unique(np.stack([_whole(row) for row in rows]), axis=0)


def plausible_interval(
    noisy: NoisyCounts, value: float, *, score: Score, level: float
) -> tuple[float, float]:
    """The value less the errors of all plausible populations, from their quantiles."""
    counts = plausible_counts(noisy)
    drawn = Populations(noisy.points, noisy.records, counts, counts)
    release = CountsNoise(float(noisy.noise_sd[0]), noisy.laplace_scale)
    truths = drawn.truths(score)
    values = release.values(drawn, score, np.random.default_rng(SEED), DRAWS)
    errors = values - truths[:, None]
    z = float(scipy.special.ndtri((1 + level) / 2))
    spread = (z + CAUTION) * errors.std(axis=1)
    sampling = z * np.sqrt(sampling_variance(noisy.points, score) * np.maximum(truths, 0.0))
    reach = np.hypot(spread, sampling)
    means = errors.mean(axis=1)
    return float((value - means - reach).min()), float((value - means + reach).max())


def _whole(counts: Floats) -> Ints:
    """Whole counts with the same sum: what is cut off goes to those that lost most.

    Else half a record of every cell would lie outside all cells.
    """
    whole = np.floor(counts).astype(np.int64)
    missing = int(np.floor(counts.sum() + 1e-6)) - int(whole.sum())
    whole[np.argsort(whole - counts, kind="stable")[:missing]] += 1
    return whole


def _within(counts: Floats, sure: npt.NDArray[np.bool_], records: int) -> Floats:
    """The sure counts scaled down so that all together are at most N."""
    excess, total = counts.sum() - records, counts[sure].sum()
    left = max(0.0, 1 - excess / total) if excess > 0 and total > 0 else 1.0
    scaled: Floats = np.where(sure, left * counts, counts)
    return scaled * min(1.0, records / max(float(scaled.sum()), 1.0))
