"""The statistic of a window: how far its summed noisy counts are from what no drift gives."""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.monitoring.lens import Lens

__all__ = ["TOLERATED", "WindowStatistic"]

TOLERATED = 2e-5  # nats: a lasting deviation so small is not called drift
LEAST_SKEW = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class WindowStatistic:
    """z of the noisy counts of a window of N records: near standard normal without drift.

        Q = sum_x w_x (h_x - N Pi_x)^2 / var_x,    w_x = N Pi_x / var_x
        var_x = noise^2 + N Pi_x + N^2 b_x

    b is the variance of a lasting deviation of the shares: `Channel.lasting`, and a deviation of
    `TOLERATED` nats in a random direction, 2 Pi_x^2 TOLERATED. Without noise and b it is Pearson's
    chi-square statistic; cells that the noise exceeds, or whose share is not known well, have
    little weight. Groups of cells have w = 1: a group of rare cells is there to be heard.

    Q is standardised by the mean and variance of a quadratic form of normal variables (squares of
    heavy-tailed noise vary more: fourth cumulants), and made normal by a cube root (Wilson and
    Hilferty, 1931).

    >>> shares, lasting = np.array([0.5, 0.5, 0.0]), np.zeros(3)
    >>> law = WindowStatistic.of(Lens(), shares, lasting, records=1000, noise=4.0)
    >>> law(np.array([[500.0, 500.0], [560.0, 440.0]])).round(1).tolist()
    [-1.7, 3.5]
    """

    mean: Floats  # N Pi of every group of the lens
    scale: Floats  # w / var
    centre: Floats  # mean of Q
    sd: Floats
    skew: Floats

    @classmethod
    def of(
        cls,
        lens: Lens,
        shares: Floats,
        lasting: Floats,
        *,
        records: Floats | float,
        noise: Floats | float,
        fourth: Floats | float = 0.0,
    ) -> "WindowStatistic":
        """For N `records`, noise of variance `noise` and fourth cumulant `fourth` on each count.

        They, and `lasting`, may have a leading axis: one statistic for each of several windows.
        With A = diag(w / var) and S = diag(var) - N Pi Pi', the cumulants of Q are tr(A S),
        2 tr((A S)^2) and 8 tr((A S)^3).
        """
        n = np.asarray(records, dtype=np.float64)
        counts = lens.sums(np.ones(len(shares)))  # that are added up
        shares = lens.sums(shares)
        lasting = lens.sums(lasting) + 2 * TOLERATED * shares**2
        if lens.rest:
            lasting = lasting + TOLERATED**2
        mean = n[..., None] * shares
        noisy = np.asarray(noise)[..., None] * counts
        variance = np.maximum(noisy + mean + n[..., None] ** 2 * lasting, 1e-9)
        weights = mean / variance if lens.groups is None else np.ones_like(mean)
        scale = weights / variance
        one, two, three = (n * np.sum(scale * weights**k * shares**2, axis=-1) for k in range(3))
        fourths = np.sum(scale**2 * (mean + np.asarray(fourth)[..., None] * counts), axis=-1)
        spread = 2 * (np.sum(weights**2, axis=-1) - 2 * two + one**2) + fourths
        third = 8 * (np.sum(weights**3, axis=-1) - 3 * three + 3 * one * two - one**3)
        return cls(
            mean=mean,
            scale=scale,
            centre=np.sum(weights, axis=-1) - one,
            sd=np.sqrt(spread),
            skew=np.maximum(third / spread**1.5, LEAST_SKEW),
        )

    def take(self, which: Ints) -> "WindowStatistic":
        """Of several statistics, these, in this order; one that serves all is not repeated."""
        if len(self.sd) == 1:
            return self
        parts = (self.mean, self.scale, self.centre, self.sd, self.skew)
        return WindowStatistic(*(part[which] for part in parts))

    def __call__(self, counts: Floats) -> Floats:
        """Of the counts of all groups of the lens; they may have leading axes."""
        squares = np.einsum("...k,...k->...", (counts - self.mean) ** 2, self.scale)
        excess = (squares - self.centre) / self.sd
        root = np.cbrt(np.maximum(1 + self.skew / 2 * excess, 0.0))
        return np.asarray((root - 1 + self.skew**2 / 36) * 6 / self.skew)
