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
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints, check_finite, check_positive_int
from fedprikl.divergence import Score, Skew
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.scoring import cached_by_value
from fedprikl.libraries import scipy

SEED = 7  # of public simulations: the same question always gets the same answer
DRAWS = 4096
MOST_VANISHED = 0.9
FITTED = 512  # cells that a drift is fitted to
LEVELS = 1024  # quantiles of a Gamma law that are told apart
STEEPEST = 60.0  # theta: by then all mass is in one cell
LEAST_ALPHA, MOST_ALPHA = 1e-3, 1e9
GROWING = 12  # of so many cells, the rarest one grows
FEW = 1024  # cells: ratios of so few are small enough to keep hundreds


@dataclass(frozen=True, slots=True)
class Drift:
    """A drift of some divergence, fitted to a reference."""

    divergence: float
    rarity: float  # k of q(x)
    alpha: float  # infinite: what is left is not shuffled

    def ratios(self, pi: Floats, uniforms: Floats) -> Floats:
        """r(x) of cells of these probabilities, at quantiles in (0, 1)."""
        gone = np.minimum(MOST_VANISHED, self.rarity / np.sqrt(pi))
        left = (uniforms - gone) / (1 - gone)
        ratios = _shuffled(self.alpha, np.maximum(left, 0.0)) / (1 - gone)
        return np.where(left > 0, ratios, 0.0)


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


def _shuffled(alpha: float, uniforms: Floats) -> Floats:
    """Quantiles of a Gamma variable of mean 1."""
    if alpha == math.inf:
        return np.ones_like(uniforms)
    quantiles = scipy.special.gammaincinv(alpha, np.minimum(uniforms, 1 - 1e-12)) / alpha
    return np.asarray(quantiles, dtype=np.float64)


def drifted_ratios(
    pi: Floats,
    kind: str,
    size: float,
    score: Score,
    *,
    mass: Floats | None = None,
    seed: int = SEED,
    nearest: bool = False,
) -> Floats | None:
    """r = P / Pi of each cell for a drift of this kind and size; None if it cannot be as large.

        sum Pi r = 1,    sum Pi f(gamma + (1 - gamma) r) = size

    `size` is in the unit of the score's divergence. Where cells are a sample, `mass` are their
    design weights, which stand for Pi in both sums; `pi` still says which cells are rare. `seed`
    says which cells a smooth or shuffled drift raises. With `nearest`, the largest drift of this
    kind stands for one that is out of reach.

    >>> pi = np.array([0.4, 0.3, 0.2, 0.1])
    >>> drifted_ratios(pi, "heavy", 0.1, Score()).round(2).tolist()
    [0.5, 1.33, 1.33, 1.33]
    >>> drifted_ratios(pi, "gone", 0.5, Score()).round(2).tolist()
    [1.35, 1.35, 0.28, 0.0]
    >>> drifted_ratios(pi, "rare", 3.0, Score()) is None
    True
    """
    if kind not in _KINDS:
        raise InvalidInputError(f"There is no kind of drift {kind!r}; known: {', '.join(KINDS)}.")
    share = np.asarray(pi if mass is None else mass, dtype=np.float64)
    share = share / share.sum()
    if check_finite(size, "size") <= 0:
        return np.ones(len(share))
    rare = np.asarray(pi, dtype=np.float64)
    known = _drifted_few if len(share) <= FEW else _drifted_many
    found = known(rare, share, kind, size, score, seed, nearest)
    return None if found is None else found.copy()


def _drifted(
    pi: Floats, share: Floats, kind: str, size: float, score: Score, seed: int, nearest: bool
) -> Floats | None:
    return _KINDS[kind](_Cells(pi, share, score, seed, nearest=nearest), size)


def smooth_examples(pi: Floats, size: float, score: Score, number: int) -> Floats | None:
    """Smooth drifts of one size that raise different cells, (examples, cells); None if none is.

    The places of the cells are a Latin hypercube (McKay, Beckman, Conover 1979): over the
    examples every cell is raised and lowered evenly. So a mean over them hardly depends on
    which were drawn, although a heavy cell that is lowered makes a far larger error than others.

    >>> found = smooth_examples(np.full(4, 0.25), 0.1, Score(), 4)
    >>> found.shape, np.allclose(found.mean(axis=1), 1)
    ((4, 4), True)
    """
    if check_finite(size, "size") <= 0:
        return np.ones((1, len(pi)))
    found = _smooth_examples(np.asarray(pi, dtype=np.float64), size, score, number)
    return None if found is None else found.copy()


@cached_by_value(32)
def _smooth_examples(pi: Floats, size: float, score: Score, number: int) -> Floats | None:
    rng, cells = np.random.default_rng(SEED), _Cells(pi, pi / pi.sum(), score, SEED, nearest=False)
    strata = np.argsort(rng.random((number, len(pi))), axis=0)
    places = np.argsort(np.argsort(strata + rng.random(strata.shape), axis=1), axis=1)
    found = [_tilted(cells, order, size) for order in places]
    known = [ratios for ratios in found if ratios is not None]
    return np.stack(known) if known else None


def ratio_divergence(mass: Floats, ratios: Floats, score: Score) -> Floats:
    """sum mass f(v) of ratios with sum mass r = 1; `ratios` may have leading axes."""
    return _divergence(mass, ratios, score, 1 - skew_of(score))


def _divergence(mass: Floats, ratios: Floats, score: Score, keep: float) -> Floats:
    excess = keep * (ratios - 1)
    gaps = score.divergence.gap(np.asarray(1 + excess), np.asarray(excess))
    return np.asarray(gaps @ mass)


class _Cells:
    """The cells that drift."""

    def __init__(self, pi: Floats, mass: Floats, score: Score, seed: int, *, nearest: bool) -> None:
        self.pi, self.mass, self.score = pi, mass, score
        self.seed, self.nearest, self.keep = seed, nearest, 1 - skew_of(score)

    def size(self, ratios: Floats) -> float:
        return float(_divergence(self.mass, ratios, self.score, self.keep))

    def solve(
        self, path: Callable[[float], Floats], size: float, none: float, most: float
    ) -> Floats | None:
        """The ratios on a path, from no drift to the most, that have this size."""
        if self.size(path(most)) < size:
            return path(most) if self.nearest else None
        missing = lambda at: self.size(path(at)) - size  # noqa: E731
        return path(float(scipy.optimize.brentq(missing, none, most, xtol=1e-14)))

    def shrink(self, cells: Ints, size: float) -> Floats | None:
        """A share of these cells is left; all others grow in proportion."""
        which = np.zeros(len(self.mass))
        which[cells] = 1.0
        if not which.any() or which.all():
            return None
        mass = float(self.mass @ which)

        def path(gone: float) -> Floats:
            left = 1 - gone
            return np.where(which > 0, left, (1 - left * mass) / (1 - mass))

        return self.solve(path, size, 0.0, 1.0)

    def sizes_gone(self, mass: Floats) -> Floats:
        """The sizes if cells of this mass vanish, and all others grow in proportion."""
        two = np.stack([np.zeros_like(mass), 1 / np.maximum(1 - mass, 1e-300)], axis=-1)
        gaps = self.score.divergence.gap(1 + self.keep * (two - 1), self.keep * (two - 1))
        return np.asarray(mass * gaps[..., 0] + (1 - mass) * gaps[..., 1])

    def normalised(self, ratios: Floats) -> Floats:
        return np.asarray(ratios / (self.mass @ ratios))

    def shuffled_order(self) -> Ints:
        return np.random.default_rng(self.seed).permutation(len(self.mass))


def _smooth(cells: _Cells, size: float) -> Floats | None:
    return _tilted(cells, cells.shuffled_order(), size)


def _tilted(cells: _Cells, order: Ints, size: float) -> Floats | None:
    direction = (2 * order + 1) / len(order) - 1

    def path(theta: float) -> Floats:
        return cells.normalised(np.exp(theta * (direction - direction.max())))

    return cells.solve(path, size, 0.0, STEEPEST)


def _rare(cells: _Cells, size: float) -> Floats | None:
    return cells.shrink(np.argsort(cells.pi, kind="stable")[: len(cells.mass) // 2], size)


def _heavy(cells: _Cells, size: float) -> Floats | None:
    return cells.shrink(np.argmax(cells.mass, keepdims=True), size)


def _fading(cells: _Cells, size: float) -> Floats | None:
    """One cell of median probability shrinks."""
    return cells.shrink(np.argsort(cells.pi, kind="stable")[[len(cells.pi) // 2]], size)


def _growing(cells: _Cells, size: float) -> Floats | None:
    """The rarest twelfth of the cells grows, all others shrink in proportion."""
    rarest = np.argsort(cells.pi, kind="stable")[: max(1, len(cells.pi) // GROWING)]
    which = np.zeros(len(cells.mass))
    which[rarest] = 1.0
    mass = float(cells.mass @ which)
    if not 0 < mass < 1:
        return None

    def path(moved: float) -> Floats:
        return np.where(which > 0, 1 + moved * (1 - mass) / mass, 1 - moved)

    return cells.solve(path, size, 0.0, 1.0)


def _faded(cells: _Cells, size: float) -> Floats | None:
    able = np.flatnonzero(cells.sizes_gone(cells.mass) >= size)
    if not able.size:
        return _heavy(cells, size)
    return cells.shrink(able[np.argmin(cells.mass[able], keepdims=True)], size)


def _gone(cells: _Cells, size: float) -> Floats | None:
    order = np.argsort(cells.pi, kind="stable")[:-1]  # one cell stays
    lost = np.cumsum(cells.mass[order])
    if not order.size:
        return None
    enough = min(int(np.searchsorted(cells.sizes_gone(lost), size)), len(order) - 1)
    which: Floats = np.ones(len(cells.mass))
    which[order[: enough + 1]] = 0.0
    last, before = order[enough], float(cells.mass[order[:enough]].sum())

    def path(gone: float) -> Floats:
        left = (1 - gone) * float(cells.mass[last]) / (1 - before)
        ratios = cells.normalised(which) * (1 - left)
        ratios[last] = left / cells.mass[last]
        return ratios

    return cells.solve(path, size, 0.0, 1.0)


def _shuffled_cells(cells: _Cells, size: float) -> Floats | None:
    levels = min(len(cells.mass), LEVELS)
    level = cells.shuffled_order() % levels

    def path(log_alpha: float) -> Floats:
        return cells.normalised(_gamma_quantiles(log_alpha, levels)[level])

    return cells.solve(path, size, float(np.log(MOST_ALPHA)), float(np.log(LEAST_ALPHA)))


@lru_cache(maxsize=256)  # every search begins at the same two
def _gamma_quantiles(log_alpha: float, levels: int) -> Floats:
    quantiles = scipy.special.gammaincinv(np.exp(log_alpha), (np.arange(levels) + 0.5) / levels)
    quantiles.flags.writeable = False
    return np.asarray(quantiles)


_KINDS: dict[str, Callable[[_Cells, float], Floats | None]] = {
    "smooth": _smooth,
    "rare": _rare,
    "heavy": _heavy,
    "fading": _fading,
    "growing": _growing,
    "faded": _faded,
    "gone": _gone,
    "shuffled": _shuffled_cells,
}
KINDS = tuple(_KINDS)

# A plan tries every way to release on the same drifts, some of them in several examples.
_drifted_few, _drifted_many = cached_by_value(512)(_drifted), cached_by_value(32)(_drifted)
