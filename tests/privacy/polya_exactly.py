"""Exact probabilities of shares of Laplace noise, from the very table they are drawn with."""

from itertools import pairwise

import numpy as np

from fedprikl.checks import Floats
from fedprikl.privacy.noise import PolyaTable


def masses(table: PolyaTable) -> list[int]:
    """P(X = k) in units of 2^-bits, exactly, for k = 0, 1, ..., reach."""
    edges = [0, *table.thresholds, 2**table.bits]
    return [after - before for before, after in pairwise(edges)]


def share_probabilities(table: PolyaTable) -> Floats:
    """Of one share, the difference of two Polya variables, centred."""
    one = np.array([mass / 2**table.bits for mass in masses(table)])
    return np.convolve(one, one[::-1])


def summed(share: Floats, shares: int) -> Floats:
    """Of the sum of so many shares, without the tails below 1e-60; centred."""
    total = np.ones(1)
    for _ in range(shares):
        total = np.convolve(total, share)
        keep = np.flatnonzero(total > 1e-60)
        cut = min(int(keep[0]), len(total) - 1 - int(keep[-1]))
        total = total[cut : len(total) - cut]
    return total


def worst_loss(total: Floats, *, above: float = 1e-20) -> float:
    """The largest log ratio over outcomes of two counts, one losing and one gaining a record.

    The two counts are independent, so the largest ratio of the pair is twice that of one. Outcomes
    that are rarer than `above` are left out: there the table ends.
    """
    known = total[total > above]
    return 2 * float(np.abs(np.diff(np.log(known))).max())
