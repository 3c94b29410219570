"""A public drift model, to predict errors with before any data is seen.

What a private population looks like is unknown, so predictions need an assumption. Ours: half of
the divergence comes from cells that vanished, rare cells more often than common ones, and half from
mass that was shuffled around as a Dirichlet distribution would:

    r(x) = P(x)/Pi(x) = 0 with probability q(x), else Gamma(alpha) of mean 1/(1 - q(x))
    q(x) = min(0.9, k / sqrt Pi(x)),   E_Pi[q] = D / (2 f(gamma)),   E_Pi[f(v(r))] = D

where v(r) = gamma + (1 - gamma) r, f is the divergence's, and f(gamma) is ln 1/gamma for KL.

No guarantee rests on it; how well it predicts is measured (benchmarks/accuracy.py).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints, check_finite, check_positive_int
from fedprikl.divergence import Score, Skew
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy

__all__ = ["Drift", "DriftModel", "fit_drift", "model_drift", "skew_of"]

SEED = 7  # of public simulations: the same question always gets the same answer
DRAWS = 4096
MOST_VANISHED = 0.9
FITTED = 512  # cells that a drift is fitted to


@dataclass(frozen=True, slots=True)
class Drift:
    """A drift of some divergence, fitted to a reference."""

    divergence: float
    rarity: float  # k of q(x)
    alpha: float  # infinite: what is left is not shuffled

    def ratios(self, pi: Floats, uniforms: Floats) -> Floats:
        """r(x) of cells of these probabilities, at quantiles in (0, 1)."""
        return _quantiles(self.alpha, self._gone(pi), uniforms)

    def _gone(self, pi: Floats) -> Floats:
        gone: Floats = np.minimum(MOST_VANISHED, self.rarity / np.sqrt(pi))
        return gone


@dataclass(frozen=True, slots=True, eq=False)
class DriftModel:
    """Cells drawn in proportion to Pi, each with a ratio r(x) of a population that has drifted.

    Draws come in pairs of the same cell, so that variances within a cell can be told.
    """

    divergence: float
    cells: Ints  # positions in the list of probabilities
    ratios: Floats
    scores: Floats  # f(v(r)) of the ratios

    @property
    def mean_square(self) -> float:
        """E_Pi[f(v)^2]."""
        return float(np.mean(self.scores**2))


def skew_of(score: Score) -> float:
    """gamma; only for a skew with finite scores is their spread known."""
    if not isinstance(score.smoothing, Skew) or not score.finite:
        raise InvalidInputError("Errors are known for a skew only; use Skew(0.01).")
    return score.smoothing.gamma


def model_drift(
    mass: Floats, pi: Floats, *, divergence: float, score: Score, draws: int = DRAWS
) -> DriftModel:
    """A drift of size `divergence` on cells of probability `pi` drawn in proportion to `mass`.

    `mass` is Pi for a whole domain, the design weights for a sample of it. The size is in the unit
    of the score's divergence.

    >>> pi = np.full(10, 0.1)
    >>> model = model_drift(pi, pi, divergence=0.3, score=Score())
    >>> round(float(model.scores.mean()), 2)
    0.3
    """
    rng, pairs = np.random.default_rng(SEED), check_positive_int(draws, "draws") // 2
    # Two shuffled grids: every cell and every quantile of drift gets its share of the draws.
    quantiles = rng.permutation((np.arange(2 * pairs) + rng.random(2 * pairs)) / (2 * pairs))
    steps = (np.arange(pairs) + rng.random(pairs)) / pairs
    cumulative = np.cumsum(mass)
    cells = np.searchsorted(cumulative, steps * cumulative[-1], side="right")
    cells = np.repeat(np.minimum(cells, len(mass) - 1), 2)
    drift = fit_drift(mass, pi, divergence=divergence, score=score)
    gamma, ratios = skew_of(score), drift.ratios(pi[cells], quantiles)
    scores = score.divergence.f(gamma + (1 - gamma) * ratios)
    return DriftModel(divergence, cells, ratios, scores)


def fit_drift(mass: Floats, pi: Floats, *, divergence: float, score: Score) -> Drift:
    """k and alpha of a drift of this size. Cost: some thousand incomplete gammas."""
    gamma, f = skew_of(score), score.divergence.f
    if check_finite(divergence, "divergence") <= 0:
        return Drift(0.0, 0.0, math.inf)
    empty = score.divergence.empty(gamma)
    if divergence > 0.9 * empty:
        raise InvalidInputError(
            f"A divergence of {divergence:g} is out of reach: with a skew of {gamma:g} it is at "
            f"most {empty:.3g}."
        )
    steps = _fitted_steps()
    cumulative = np.cumsum(mass)
    at = np.minimum(np.searchsorted(cumulative, steps * cumulative[-1]), len(mass) - 1)
    some = pi[at]
    rarity = _rarity(divergence / (2 * empty), some)
    gone = np.minimum(MOST_VANISHED, rarity / np.sqrt(some))

    def missing(log_alpha: float) -> float:
        left = _fitted_quantiles(log_alpha) / (1 - gone)
        scores = (1 - gone) * f(gamma + (1 - gamma) * left) + gone * empty
        return float(scores.mean()) - divergence

    low, high = math.log(1e-3), math.log(1e8)
    if missing(low) < 0:  # a skew near 1: no drift of these cells is as large
        return Drift(divergence, rarity, math.exp(low))
    if missing(high) > 0:  # what vanished among these cells is enough
        return Drift(divergence, rarity, math.inf)
    found = float(scipy.optimize.brentq(missing, low, high, xtol=1e-3))
    return Drift(divergence, rarity, math.exp(found))


def _fitted_steps() -> Floats:
    return (np.arange(FITTED) + 0.5) / FITTED


@lru_cache(maxsize=64)  # every fit asks for both ends of its search, twice
def _fitted_quantiles(log_alpha: float) -> Floats:
    """Drift of the cells that a fit looks at, in an order that is always the same."""
    uniforms = np.random.default_rng(SEED).permutation(_fitted_steps())
    quantiles = _shuffled(math.exp(log_alpha), uniforms)
    quantiles.flags.writeable = False
    return quantiles


def _rarity(share: float, pi: Floats) -> float:
    """k such that so large a share of the mass is expected to vanish."""
    rare = 1 / np.sqrt(pi)

    def missing(scale: float) -> float:
        return float(np.minimum(MOST_VANISHED, scale * rare).mean()) - share

    top = MOST_VANISHED / float(rare.min())
    return float(scipy.optimize.brentq(missing, 0.0, top)) if missing(top) > 0 else top


def _quantiles(alpha: float, gone: Floats, uniforms: Floats) -> Floats:
    rest = (uniforms - gone) / (1 - gone)
    ratios: Floats = np.where(rest > 0, _shuffled(alpha, np.maximum(rest, 0.0)) / (1 - gone), 0.0)
    return ratios


def _shuffled(alpha: float, uniforms: Floats) -> Floats:
    """Quantiles of a Gamma variable of mean 1."""
    if alpha == math.inf:
        return np.ones_like(uniforms)
    quantiles = scipy.special.gammaincinv(alpha, np.minimum(uniforms, 1 - 1e-12)) / alpha
    return np.asarray(quantiles, dtype=np.float64)
