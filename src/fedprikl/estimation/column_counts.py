"""The law of one noisy count: whole, skewed and dispersed, plus noise of its own exact law.

A count of few expected records is far from normal. Its tails are computed here for any mean, so
that a rare cell is called moved no more often than a common one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.column_tails import SKEWS, gamma_like_deviate
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.libraries import scipy

__all__ = ["CountLaw", "Survival", "count_noise"]

# P(noise > x).
Survival = Callable[[Floats], Floats]

FEW = 30.0  # expected records, up to which a count's own steps are seen
REACH, STEPS = 8.0, 80
FINE, COARSE = 193, 129  # nodes, for tests of cells and for the ends of intervals


def count_noise(noisy: NoisyCounts) -> Survival:
    """P(noise > x) of the noise on each count: normal, or a sum of discrete Laplace variables.

    A sum of s such variables has the characteristic function

        [ (1 - q)^2 / (1 - 2 q cos(theta) + q^2) ]^s,    q = exp(-1 / scale)

    for every s > 0; its probabilities are a Fourier transform away.
    """
    sd = float(noisy.noise_sd[0])
    if sd == 0:
        return lambda x: np.asarray(x < 0, dtype=np.float64)
    if noisy.laplace_scale is None:
        return lambda x: np.asarray(scipy.special.ndtr(-x / sd))
    sums, q = float(noisy.laplace_sums[0]), math.exp(-1 / noisy.laplace_scale)
    half = 1 << math.ceil(math.log2(40 * noisy.laplace_scale + 12 * sd + 8))
    theta = np.pi / half * np.arange(half + 1)
    logs = 2 * math.log1p(-q) - np.log((1 - q) ** 2 + 4 * q * np.sin(theta / 2) ** 2)
    chances = np.fft.fftshift(
        np.fft.irfft(np.exp(sums * logs), 2 * half)
    )  # of -half, 1 - half, ...
    # P(noise >= k), from the far end: small numbers first.
    above = np.append(np.cumsum(np.maximum(chances, 0.0)[::-1])[::-1], 0.0)

    def survival(x: Floats) -> Floats:
        place = np.clip(np.floor(x) + 1 + half, 0, 2 * half).astype(np.int64)
        return np.asarray(np.minimum(above[place], 1.0))

    return survival


@dataclass(frozen=True, slots=True, eq=False)
class CountLaw:
    """Counts of some cells as points and the probability of each: (cells, points)."""

    counts: Floats
    weights: Floats
    noise: Survival

    @classmethod
    def of(cls, mean: Floats, variance: Floats, pi: Floats, noise: Survival) -> "CountLaw":
        """Of counts with these means and variances.

        Of up to `FEW` records: Poisson, or negative binomial where counts vary more. Of more: a
        shifted Gamma law with the skewness of a beta-binomial count.
        """
        many = cls.smooth(mean, variance, pi, noise, nodes=FINE)
        few = np.flatnonzero(mean <= FEW)
        if not len(few):
            return many
        counts, weights = _whole_counts(mean[few], variance[few])
        width = max(counts.shape[1] - many.counts.shape[1], 0)
        wide = np.pad(many.counts, ((0, 0), (0, width)), mode="edge")
        weighed = np.pad(np.broadcast_to(many.weights, many.counts.shape), ((0, 0), (0, width)))
        wide[few, : counts.shape[1]] = counts
        weighed[few] = 0.0
        weighed[few, : counts.shape[1]] = weights
        return cls(wide, weighed, noise)

    @classmethod
    def smooth(
        cls, mean: Floats, variance: Floats, pi: Floats, noise: Survival, *, nodes: int = COARSE
    ) -> "CountLaw":
        """The shifted Gamma law for counts of any size.

        A beta-binomial count of variance d N Pi (1 - Pi) has skewness (2 d - 1) (1 - 2 Pi) / sd.
        """
        sd = np.sqrt(np.maximum(variance, 1e-12))
        effect = np.maximum(variance / np.maximum(mean * (1 - pi), 1e-12), 1.0)
        skew = np.clip((2 * effect - 1) * (1 - 2 * pi) / sd, -SKEWS[1], SKEWS[1])
        normal = np.linspace(-REACH, REACH, nodes)
        weights = np.exp(-(normal**2) / 2)
        drawn = gamma_like_deviate(normal, skew[..., None])
        counts = np.maximum(mean[..., None] + sd[..., None] * drawn, 0.0)
        return cls(counts, weights / weights.sum(), noise)

    def above(self, seen: Floats) -> Floats:
        """P(noisy count >= seen) of each cell; `seen` may have leading axes."""
        gap = seen[..., None] - 0.5 - self.counts
        return np.asarray(np.sum(self.weights * self.noise(gap), axis=-1))

    def below(self, seen: Floats) -> Floats:
        """P(noisy count <= seen) of each cell: the noise is symmetric."""
        gap = self.counts - 0.5 - seen[..., None]
        return np.asarray(np.sum(self.weights * self.noise(gap), axis=-1))


def _whole_counts(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """0, 1, 2, ... and further out ever larger steps, with their probabilities."""
    reach = mean + 40 * np.maximum(variance / np.maximum(mean, 1e-12), 1.0) + 10 * np.sqrt(variance)
    far = np.geomspace(1.0, np.maximum(reach.max(initial=1.0), 2.0 * STEPS), 2 * STEPS)
    ends: Ints = np.unique(np.concatenate([np.arange(STEPS), np.ceil(far)])).astype(np.int64)
    more = np.maximum(variance - mean, 1e-9 * mean)
    shape = mean**2 / np.maximum(more, 1e-300)
    success = mean / (mean + more)
    some = np.asarray(
        scipy.special.betainc(shape[:, None], ends + 1.0, success[:, None]), dtype=np.float64
    )
    poisson = np.asarray(scipy.special.gammaincc(ends + 1.0, mean[:, None]), dtype=np.float64)
    reached = np.where((variance > mean * (1 + 1e-3))[:, None], some, poisson)  # P(count <= end)
    weights = np.diff(reached, axis=1, prepend=0.0)
    start = np.concatenate([[0], ends[:-1] + 1])
    return np.broadcast_to((start + ends) / 2, weights.shape).copy(), weights
