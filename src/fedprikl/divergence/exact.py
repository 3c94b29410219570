"""Exact divergences of two known distributions, for ground truth and for theory."""

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_probabilities
from fedprikl.divergence.f_divergence import Divergence
from fedprikl.divergence.kl import KL
from fedprikl.divergence.smoothing import check_skew
from fedprikl.errors import InvalidInputError


def kl_divergence(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """D(first || second), in nats; infinite where `second` misses a cell of `first`.

    D(Pi || P) = sum_x Pi(x) ln(Pi(x) / P(x))                            [def:KLDiv]

    >>> round(kl_divergence([0.5, 0.5], [0.9, 0.1]), 4)
    0.5108
    """
    pi, p = _pair(first, second)
    return _gap_sum(pi, p, KL, keep=1.0)


def skewed_divergence(
    pi: npt.ArrayLike, p: npt.ArrayLike, *, skew: float, divergence: Divergence = KL
) -> float:
    """D_gamma = D_f(Pi || gamma Pi + (1 - gamma) P); for KL in nats, at most ln(1/gamma).

    The target of every private release: finite for all P, zero if P = Pi, and D_f(Pi || P) for
    gamma = 0 (`skew`), which is infinite for KL where P misses a cell of Pi.

    >>> round(skewed_divergence([0.5, 0.5], [1.0, 0.0], skew=0.01), 4)
    1.9585
    >>> from fedprikl.divergence import TV
    >>> skewed_divergence([0.5, 0.5], [0.75, 0.25], skew=0.0, divergence=TV)
    0.25
    """
    return _gap_sum(*_pair(pi, p), divergence, keep=1 - check_skew(skew))


def _pair(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[Floats, Floats]:
    pi, p = check_probabilities(first, "first"), check_probabilities(second, "second")
    if pi.shape != p.shape:
        raise InvalidInputError(
            f"Both distributions must be over the same cells, got {pi.size} and {p.size}."
        )
    return pi, p


def _gap_sum(pi: Floats, p: Floats, divergence: Divergence, *, keep: float) -> float:
    """sum Pi f(v) for v = 1 + keep (P/Pi - 1), as a sum of non-negative terms.

    E[f(v)] = E[f(v) - f'(1) (v - 1)] + f'(1) E[v - 1], and the last mean is -keep times P's mass
    off Pi's support: no cancellation when P is close to Pi.
    """
    on = pi > 0
    excess = keep * ((p[on] - pi[on]) / pi[on])
    ratio = (1 - keep) + keep * (p[on] / pi[on])
    slope = float(divergence.slope(np.ones(1))[0])
    gaps = np.sum(pi[on] * divergence.gap(ratio, excess))
    return float(gaps - slope * (keep * np.sum(p[~on])))
