"""What counts may have been before noise: draws, given the noisy counts. Public post-processing.

Empirical Bayes (decision 33). How much cells have drifted, the noisy counts of many cells tell
together: the ratio P / Pi of each comes from one mixture of normal laws, whose weights are
estimated from all cells, and then somewhat anew for those that are about as rare. Given the mixture
and its own noisy count, the count of each cell is drawn. Where noise is small that is about the
noisy count; where it dominates, counts vary no more than the data shows that they do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.libraries import scipy

# Normal laws of a ratio: widths of those around 1 (hardly drifted), an empty cell, means of cells
# with a few records left, as wide, and means of others, whose width is a share of the mean. A few
# left are less likely before any count is seen, and there is no such law where noise cannot tell
# them from none: it would take that one's weight, and 0 and half a record differ much in KL.
AROUND_1 = (0.0, 0.01, 0.025, 0.06, 0.15, 0.35)
NONE, LEFT, LEFT_LIKELY = 0.0, (0.0015, 0.012), 0.25
OTHERS = (0.036, 0.066, 0.12, 0.22, 0.4, 0.72, 1.3, 2.3, 4.2, 7.5, 14.0)
WIDTH = 0.33
CENTRES = np.array([*(1.0 for _ in AROUND_1), NONE, *LEFT, *OTHERS])
WIDTHS = np.array([*AROUND_1, NONE, *LEFT, *(WIDTH * each for each in OTHERS)])
OF_LEFT = np.isin(CENTRES, LEFT)
LIKELY = np.where(OF_LEFT, LEFT_LIKELY, 1.0) / np.where(OF_LEFT, LEFT_LIKELY, 1.0).sum()
CELLS, GROUPS = 25, 16  # about as rare, at least; and how many groups of them, at most
STEPS, GROUP_STEPS = 60, 20  # of the search for weights: of all cells, and of a group
# So many cells tell as much as what is taken for granted: how likely the laws are, and of a group,
# that its weights are those of all cells.
PRIOR, GROUP_PRIOR = 1.0, 20.0
FEW = 10.0  # records: where fewer are expected or found, counts are drawn as whole numbers
LEAST = 0.01  # records: the variance of a count whose mean is 0, so that it rounds to 0
TINY, LEAST_CHANCE, LEAST_PRIOR = 1e-12, 1e-300, 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class BeforeNoise:
    """The laws of the counts of some cells before noise and after it. Public.

    With the law j of `CENTRES` c_j and `WIDTHS` w_j, the count e that is expected without drift,
    and a variance s_n^2 of the noise,

        count ~ N(e c_j, (e w_j)^2 + e c_j),    noisy count ~ N(count, s_n^2)

    so that given j, n and one of the two the other is normal.
    """

    few: Ints  # cells in which few records are expected
    groups: tuple[Ints, ...]  # cells that are about as rare
    centre: Floats  # (cells, laws)
    own: Floats  # variances before noise, (cells, laws)
    noise: Floats  # of the noise, (cells, nodes)
    precision: Floats  # of the noisy count, (cells, laws, nodes)
    level: Floats  # logarithms of what its density has at its mean, weighted, (cells, laws, nodes)

    @classmethod
    def of(cls, expected: Floats, noise: Floats, weights: Floats) -> "BeforeNoise":
        """Of cells with these expected counts, and normal laws that are together like their noise.

        Their variances and weights: (cells, nodes).
        """
        e = np.maximum(expected, TINY)[:, None]
        own = (e * WIDTHS) ** 2 + np.maximum(e * CENTRES, LEAST)
        precision = 1 / (own[..., None] + noise[:, None, :])
        level = 0.5 * np.log(precision) + np.log(np.maximum(weights, TINY))[:, None, :]
        sd = np.sqrt(np.sum(noise * weights, axis=1))
        level[OF_LEFT & (e * CENTRES < sd[:, None])] = -np.inf
        order = np.argsort(expected, kind="stable")
        return cls(
            np.flatnonzero(expected < FEW),
            tuple(np.array_split(order, min(max(len(order) // CELLS, 1), GROUPS))),
            e * CENTRES,
            own,
            noise,
            precision,
            level,
        )

    def draw(
        self, counts: Floats, draws: int, rng: np.random.Generator, *, varied: bool = False
    ) -> tuple[Floats, Floats]:
        """Counts before noise, (releases, draws, cells), and the variance of each over its draws.

        Given noisy counts (releases, cells). `varied` draws the mixture too, once for each release,
        instead of taking the likeliest one. Cost: releases x cells x (60 + draws).
        """
        off = counts[..., None] - self.centre
        chances = self.level - 0.5 * self.precision * (off**2)[..., None]
        chances -= chances.max(axis=(2, 3), keepdims=True)
        np.exp(chances, out=chances)
        for cells, weights in self._weights(chances.sum(axis=3), rng if varied else None):
            chances[:, cells] *= weights[:, None, :, None]
        place = _chosen(chances.reshape(*counts.shape, -1), draws, rng)
        law, node = np.divmod(place, self.noise.shape[1])
        cell = np.arange(counts.shape[1])[:, None]
        own, noise, centre = self.own[cell, law], self.noise[cell, node], self.centre[cell, law]
        towards = own / (own + noise)
        middle = centre + towards * (counts[..., None] - centre)
        variance = towards * noise
        found = _possible(middle, variance, rng)
        few = np.maximum(middle[:, self.few], 0.0)
        found[:, self.few] = _whole(few, variance[:, self.few], rng)
        return found.transpose(0, 2, 1), variance.mean(axis=2) + TINY

    def _weights(
        self, likelihoods: Floats, rng: np.random.Generator | None
    ) -> Iterator[tuple[Ints, Floats]]:
        """The mixture of each group of cells, (releases, laws): the likeliest one.

        Given a generator, one that is drawn by a Bayesian bootstrap (Rubin, 1981): each cell, and
        each of those that the prior is worth, counts as an exponential variable instead of 1.
        """
        releases, cells, _ = likelihoods.shape
        prior = np.tile(PRIOR * LIKELY, (releases, 1))
        usual = mixture_weights(likelihoods, prior, STEPS, _bootstrapped((releases, cells), rng))
        for cells_here in self.groups:
            if len(self.groups) == 1:
                yield cells_here, usual
                continue
            prior = GROUP_PRIOR * usual
            if rng is not None:
                prior = rng.standard_gamma(prior) + LEAST_PRIOR
            each = _bootstrapped((releases, len(cells_here)), rng)
            here = likelihoods[:, cells_here]
            yield cells_here, mixture_weights(here, prior, GROUP_STEPS, each)


def _bootstrapped(shape: tuple[int, int], rng: np.random.Generator | None) -> Floats:
    """How much each cell counts."""
    return np.ones(shape) if rng is None else rng.standard_exponential(shape)


def mixture_weights(
    likelihoods: Floats, prior: Floats, steps: int, counted: Floats | None = None
) -> Floats:
    """How often each law of a mixture occurs, (releases, laws), from (releases, cells, laws).

    By expectation and maximisation (Dempster, Laird and Rubin, 1977), from the prior: cells that
    each law is as likely for before any count is seen. A cell counts as so many (releases, cells).

    >>> likelihoods, prior = np.array([[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]]), np.full((1, 2), 0.5)
    >>> mixture_weights(likelihoods, prior, 60).round(3).tolist()
    [[0.875, 0.125]]
    """
    found = prior / prior.sum(axis=1, keepdims=True)
    cells = np.ones(likelihoods.shape[:2]) if counted is None else counted
    total = (prior.sum(axis=1) + cells.sum(axis=1))[:, None]
    for _ in range(steps):
        each = np.maximum((likelihoods @ found[..., None])[..., 0], 1e-300)
        found = found * ((cells / each)[:, None, :] @ likelihoods)[:, 0, :] + prior
        found /= total
    return np.asarray(found)


def _chosen(chances: Floats, draws: int, rng: np.random.Generator) -> Ints:
    """The place of a law and a node for every draw of every cell, spread evenly over chances."""
    releases, cells, kinds = chances.shape
    reached = np.cumsum(chances, axis=2).reshape(-1, kinds)
    reached /= reached[:, -1:]
    row = np.arange(releases * cells)[:, None]
    first = rng.random((releases * cells, 1))  # draws of a cell are 1 / draws apart, in a circle
    wanted = row + (first + np.arange(draws) / draws) % 1
    place = np.searchsorted((reached + row).ravel(), wanted) - kinds * row
    return np.asarray(np.clip(place, 0, kinds - 1).reshape(releases, cells, draws))


def _possible(mean: Floats, variance: Floats, rng: np.random.Generator) -> Floats:
    """Counts of normal laws, given that none is negative: small ones rounded to whole numbers.

    A whole count k stands for all that is between k - 1/2 and k + 1/2. If what is negative were
    taken as 0 instead, cells would be called empty too often, and in KL an empty one weighs most.

    >>> drawn = _possible(np.full(100_000, 1.0), np.full(100_000, 4.0), np.random.default_rng(1))
    >>> round(float(drawn.mean()), 1), float(drawn.min()), round(float((drawn == 0).mean()), 2)
    (1.8, 0.0, 0.23)
    """
    sd = np.sqrt(variance) + TINY
    above = np.maximum(scipy.special.ndtr((mean + 0.5) / sd), LEAST_CHANCE)
    found = mean - sd * scipy.special.ndtri(rng.random(mean.shape) * above)
    return np.maximum(np.where(found < FEW, np.rint(found), found), 0.0)


def _whole(mean: Floats, variance: Floats, rng: np.random.Generator) -> Floats:
    """Whole numbers with about these means and variances: of a Gamma law, rounded at random.

    Rounding adds a variance of 1/6 on average.

    >>> drawn = _whole(np.full(100_000, 2.0), np.full(100_000, 2.0), np.random.default_rng(1))
    >>> round(float(drawn.mean()), 1), round(float(drawn.var()), 1)
    (2.0, 2.0)
    """
    scale = np.maximum(variance - 1 / 6, variance / 4) / np.maximum(mean, TINY)
    smooth = scale * rng.standard_gamma(mean / np.maximum(scale, TINY))
    return np.floor(smooth + rng.random(mean.shape))
