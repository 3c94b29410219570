"""Which cells of which columns shifted, and the share of each: from public noisy counts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_open_unit
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.noisy_counts import CountedView, CountNoise, NoisyCounts
from fedprikl.estimation.statistic import SKEWS
from fedprikl.estimation.verdict import gamma_like_deviate
from fedprikl.libraries import scipy
from fedprikl.reference import Spread
from fedprikl.search import bisect_each

# P(noise > x).
Survival = Callable[[Floats], Floats]

FEW = 30.0  # expected records, up to which a count's own steps are seen
REACH, STEPS = 8.0, 80
FINE, COARSE = 193, 129  # nodes, for tests of cells and for the ends of intervals
POPULATIONS = 4_000
LEVEL = 0.95
HALVINGS = 20
DEEPEST = 1e-15  # of a p-value; below it rounding shows


def survival_of(noise: CountNoise) -> Survival:
    """P(noise > x) of the noise on each count: normal, or a sum of discrete Laplace variables.

    A sum of s such variables has the characteristic function

        [ (1 - q)^2 / (1 - 2 q cos(theta) + q^2) ]^s,    q = exp(-1 / scale)

    for every s > 0; its probabilities are a Fourier transform away.
    """
    sd = noise.sd
    if sd == 0:
        return lambda x: np.asarray(x < 0, dtype=np.float64)
    if noise.scale is None:
        return lambda x: np.asarray(scipy.special.ndtr(-x / sd))
    q = math.exp(-1 / noise.scale)
    half = 1 << math.ceil(math.log2(40 * noise.scale + 12 * sd + 8))
    theta = np.pi / half * np.arange(half + 1)
    logs = 2 * math.log1p(-q) - np.log((1 - q) ** 2 + 4 * q * np.sin(theta / 2) ** 2)
    chances = np.fft.fftshift(
        np.fft.irfft(np.exp(noise.variables * logs), 2 * half)
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


def law_without_drift(view: CountedView, rng: np.random.Generator) -> CountLaw:
    """The law of each noisy count of a view without drift.

    With the means and variances of simulated populations, if these are no smaller. They contain
    what a formula leaves out: how well the correlation of a client's records is known. The formula
    covers cells too rare to be simulated.
    """
    model, noise = _model(view), survival_of(view.noisy.noise[0])
    counts = np.concatenate(list(model.chunks(POPULATIONS, rng))).astype(np.float64)
    expected = model.records[0] * model.pi
    formula = model.design_effects * expected * (1 - model.pi)
    mean, variance = counts.mean(axis=0), np.maximum(counts.var(axis=0), formula)
    return CountLaw.of(np.where(expected < 1, expected, mean), variance, model.pi, noise)


def shifted_cells(
    views: Sequence[CountedView], *, false_discovery: float
) -> tuple[npt.NDArray[np.int64], ...]:
    """Per view and cell: 1 if its share went up, -1 if down, 0 if that cannot be told.

    Each noisy count is compared with the law it has without drift: sampling, clients whose records
    are correlated, the reference's own sampling, and the noise. Its p-value is two-sided. Of all
    cells of all views that are called shifted, a share of at most `false_discovery` has not, on
    average, or went the other way (Benjamini and Hochberg, 1995; tests/estimation measures it,
    as counts of one column depend on each other).

    The simulation is public and has a fixed seed. Cost: 20 ms a view of 12 cells.

    >>> from fedprikl.estimation import NoisyCounts
    >>> from fedprikl.reference import all_points
    >>> points, noise = all_points([0.5, 0.3, 0.2]), CountNoise(sd=10.0)
    >>> noisy = NoisyCounts.of([5004.0, 3404.0, 1604.0, -3.0], [10_000], [noise])
    >>> view = CountedView(points, noisy, 1.0)
    >>> [each.tolist() for each in shifted_cells([view], false_discovery=0.1)]
    [[0, 1, -1]]
    """
    rate = check_open_unit(false_discovery, "false_discovery", "Use 0.1 for one cell in ten.")
    if not views:
        return ()
    rng = public_simulation()
    seen = [(law_without_drift(view, rng), np.array(view.noisy.counts)) for view in views]
    above = np.concatenate([law.above(counts) for law, counts in seen])
    below = np.concatenate([law.below(counts) for law, counts in seen])
    shifted = step_up(above, below, rate)
    return tuple(np.split(shifted, np.cumsum([len(view.points) for view in views])[:-1]))


def step_up(above: Floats, below: Floats, false_discovery: float) -> npt.NDArray[np.int64]:
    """The directions of cells found by Benjamini and Hochberg, from both one-sided p-values.

    Of the two-sided p-values p_(1) <= p_(2) <= ... <= p_(n), all up to the last with

        p_(k) <= k false_discovery / n

    >>> step_up(np.array([0.001, 0.6, 0.99]), np.array([0.999, 0.5, 0.02]), 0.1).tolist()
    [1, 0, -1]
    """
    p = np.maximum(np.minimum(2 * np.minimum(above, below), 1.0), DEEPEST)
    n = len(p)
    small = np.flatnonzero(np.sort(p) <= false_discovery * np.arange(1, n + 1) / n)
    if not len(small):
        return np.zeros(n, dtype=np.int64)
    limit = false_discovery * (small[-1] + 1) / n
    return np.asarray(np.where(p <= limit, np.where(above < below, 1, -1), 0), dtype=np.int64)


def cell_shares(view: CountedView) -> tuple[Floats, Floats, Floats]:
    """The share of each cell among the records, and the two ends of its 95% interval.

    The interval is of the population's share p: all p under which a noisy count as large as seen,
    and one as small, have a probability of 2.5% each or more (Clopper and Pearson, 1934). A count
    varies by the noise and by d N p (1 - p); the design effect d of the cell leaves out the
    reference's sampling, which the population's share does not depend on. It reaches as
    far as that of the noisy count itself or that of the likeliest count, whichever is further.

    >>> from fedprikl.estimation import NoisyCounts
    >>> from fedprikl.reference import all_points
    >>> points, noise = all_points([0.5, 0.3, 0.2]), CountNoise(sd=10.0)
    >>> noisy = NoisyCounts.of([5004.0, 3404.0, 1604.0, -3.0], [10_000], [noise])
    >>> view = CountedView(points, noisy, 1.0)
    >>> [found.round(3).tolist() for found in cell_shares(view)]
    [[0.5, 0.34, 0.16], [0.49, 0.331, 0.153], [0.51, 0.35, 0.168]]
    """
    noisy, likeliest = view.noisy, view.design.projected(view.noisy)
    if isinstance(view.spread, Spread):
        view = replace(view, spread=replace(view.spread, counted=0))
    effects = _model(view).design_effects
    return _limits(noisy, np.array(noisy.counts), likeliest, effects)


def outside_share(view: CountedView, effect: float) -> tuple[float, float, float]:
    """The share of records in none of the cells, and the two ends of its 95% interval.

    As in `cell_shares`; `effect` is by how much a client's records come together in a rare cell.

    >>> from fedprikl.estimation import NoisyCounts
    >>> from fedprikl.reference import all_points
    >>> noisy = NoisyCounts.of([5004.0, 4804.0, 192.0], [10_000], [CountNoise(sd=10.0)])
    >>> view = CountedView(all_points([0.5, 0.5]), noisy, 1.0)
    >>> [round(found, 3) for found in outside_share(view, 1.0)]
    [0.019, 0.016, 0.023]
    """
    noisy, counts = view.noisy, np.array([view.noisy.counts])
    seen = np.array(noisy.out_of_domain)
    (likeliest,) = view.design.likely_outside(counts, seen[None])
    share, low, high = _limits(noisy, seen, likeliest, np.array([effect]))
    return float(share[0]), float(low[0]), float(high[0])


def _limits(
    noisy: NoisyCounts, seen: Floats, likeliest: Floats, effects: Floats
) -> tuple[Floats, Floats, Floats]:
    """Shares of cells whose noisy counts were `seen`, and the two ends of their intervals."""
    (records,), noise = noisy.records, survival_of(noisy.noise[0])

    def law(share: Floats) -> CountLaw:
        mean = records * share
        return CountLaw.smooth(mean, effects * mean * (1 - share), share, noise)

    shares = np.clip(likeliest / records, 0.0, 1.0)

    def furthest(chance: Callable[[Floats], Floats], outer: Floats) -> Floats:
        """The last share with a chance of 2.5% or more, on the way to `outer`."""

        def plausible(share: Floats) -> npt.NDArray[np.bool_]:
            return chance(share) >= (1 - LEVEL) / 2

        _, far = bisect_each(plausible, shares, outer, halvings=HALVINGS)
        return np.where(plausible(outer), outer, far)

    fewest, largest = np.minimum(seen, likeliest), np.maximum(seen, likeliest)
    low = furthest(lambda share: law(share).above(fewest), np.zeros_like(shares))
    high = furthest(lambda share: law(share).below(largest), np.ones_like(shares))
    return shares, np.minimum(low, shares), np.maximum(high, shares)


def _model(view: CountedView) -> NoDrift:
    if view.points.batches > 1:
        raise InvalidInputError("Cells are looked at where all of them are counted in one batch.")
    return view.model
