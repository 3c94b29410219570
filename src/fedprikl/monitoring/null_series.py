"""Many periods of a view without drift, simulated: the law of its statistics.

What deviates lastingly (the error of the reference, a tolerated deviation) is drawn once per
simulated series. So is what clients differ in, if they are the same in every period; if others are
counted each time, it is drawn anew. Nobody knows which, so both worlds are simulated.
The simulation is public and has a fixed seed.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from statistics import fmean
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation import CountNoise
from fedprikl.estimation.no_drift import public_simulation
from fedprikl.estimation.ordinary_periods import ordinary_ratios
from fedprikl.estimation.statistic import Grouping
from fedprikl.estimation.verdict import KNEE, SmoothTail
from fedprikl.estimation.worlds import Cells, period_shares
from fedprikl.libraries import scipy
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts

TOLERATED = 2e-5  # nats: a lasting deviation so small is not called drift
LEAST_SKEW = 1e-3
LENGTHS = (1, 2, 4, 8, 16, 32, 52)  # of windows, in counted periods
CHUNK = 2**20  # counts at a time
LEAST_DEPTH = 1e-9
FLAT = 0.05  # standard deviation of a statistic that tells nothing; usual is 1
BLOCK = 52  # periods of a simulated series that are judged, at most
FEWEST, MOST = 400, 2_000  # simulated series
EFFORT = 2**24  # counts that are simulated, of all views together

Worlds = tuple[tuple[SmoothTail, ...], ...]  # of every world that was simulated, some tails


@dataclass(frozen=True, slots=True, eq=False)
class WindowStatistic:
    """z of the noisy counts of a window of N records: near standard normal without drift.

        Q = sum_x w_x (h_x - N Pi_x)^2 / var_x,    w_x = N Pi_x / var_x
        var_x = noise^2 + N Pi_x + N^2 b_x

    b is the variance of a lasting deviation of the shares: `MonitoredView.lasting`, and one of
    `TOLERATED` nats in a random direction, 2 Pi_x^2 TOLERATED. Without noise and b it is Pearson's
    chi-square statistic; cells that the noise exceeds, or whose share is not known well, have
    little weight. Groups of cells have w = 1: a group of rare cells is there to be heard.

    Q is standardised by the mean and variance of a quadratic form of normal variables (squares of
    heavy-tailed noise vary more: fourth cumulants), and made normal by a cube root (Wilson and
    Hilferty, 1931).

    >>> shares, lasting = np.array([0.5, 0.5, 0.0]), np.zeros(3)
    >>> cells = Grouping(np.arange(2), np.arange(2), "cells")
    >>> law = WindowStatistic.of(cells, shares, lasting, records=1000, noise=4.0)
    >>> law(np.array([[500.0, 500.0], [560.0, 440.0]])).round(1).tolist()
    [-1.7, 3.5]
    """

    mean: Floats  # N Pi of every group of the grouping
    variance: Floats
    scale: Floats  # w / var
    centre: Floats  # mean of Q
    sd: Floats
    skew: Floats

    @classmethod
    def of(
        cls,
        grouping: Grouping,
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
        counts = grouping.sums(np.ones(len(shares)))  # that are added up
        shares = grouping.sums(shares)
        lasting = grouping.sums(lasting) + 2 * TOLERATED * shares**2
        if grouping.kind == "out_of_domain":
            lasting = lasting + TOLERATED**2
        mean = n[..., None] * shares
        noisy = np.asarray(noise)[..., None] * counts
        variance = np.maximum(noisy + mean + n[..., None] ** 2 * lasting, 1e-9)
        weights = mean / variance if grouping.kind == "cells" else np.ones_like(mean)
        scale = weights / variance
        one, two, three = (n * np.sum(scale * weights**k * shares**2, axis=-1) for k in range(3))
        fourths = np.sum(scale**2 * (mean + np.asarray(fourth)[..., None] * counts), axis=-1)
        spread = 2 * (np.sum(weights**2, axis=-1) - 2 * two + one**2) + fourths
        third = 8 * (np.sum(weights**3, axis=-1) - 3 * three + 3 * one * two - one**3)
        return cls(
            mean=mean,
            variance=variance,
            scale=scale,
            centre=np.sum(weights, axis=-1) - one,
            sd=np.sqrt(spread),
            skew=np.maximum(third / spread**1.5, LEAST_SKEW),
        )

    def take(self, which: Ints) -> "WindowStatistic":
        """Of several statistics, these, in this order; one that serves all is not repeated."""
        if len(self.sd) == 1:
            return self
        parts = (self.mean, self.variance, self.scale, self.centre, self.sd, self.skew)
        return WindowStatistic(*(part[which] for part in parts))

    def __call__(self, counts: Floats) -> Floats:
        """Of the counts of all groups of the grouping; they may have leading axes."""
        squares = np.einsum("...k,...k->...", (counts - self.mean) ** 2, self.scale)
        excess = (squares - self.centre) / self.sd
        root = np.cbrt(np.maximum(1 + self.skew / 2 * excess, 0.0))
        return np.asarray((root - 1 + self.skew**2 / 36) * 6 / self.skew)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NullCase:
    """What the simulation of a view depends on: all of it public. Equal cases are made once."""

    view: MonitoredView
    records: int  # of every period
    clients: int
    noise: CountNoise  # on each count
    periods: int  # of every simulated series
    judged: int  # the last ones, over which the largest statistic is looked for
    series: int

    @property
    def _key(self) -> tuple[object, ...]:
        view = self.view
        error, ranked = (b"" if x is None else x.tobytes() for x in (view.error, view.ranked))
        law = (
            ranked,
            view.pi.tobytes(),
            view.points.cells.tobytes(),
            view.spread,
            error,
            view.tolerance,
        )
        series = self.periods, self.judged, self.series
        return *law, self.records, self.clients, self.noise, *series

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NullCase) and self._key == other._key

    @property
    def digest(self) -> str:
        """Of all that the simulation depends on, the version of this software with it."""
        return _digest(self)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Windows that fit."""
        return tuple(length for length in LENGTHS if length <= self.periods)

    def statistic(self, grouping: Grouping, length: int) -> WindowStatistic:
        """Of a window of so many periods."""
        return WindowStatistic.of(
            grouping,
            self.view.shares,
            self.view.lasting(self.records, self.clients),
            records=length * self.records,
            noise=length * self.noise.sd**2,
            fourth=length * self.noise.fourth_cumulant,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ViewNull:
    """The statistics of one view without drift, in every world that was simulated.

    A *depth* is -ln P(a larger value without drift): a common scale of all views and windows.
    """

    windows: dict[int, Worlds]  # per length, world and grouping
    variations: dict[int, tuple[SmoothTail, ...]]  # of total variations, where one is tolerated
    largest: Worlds  # of the period test, of the cumulative test
    series: int

    def to_dict(self) -> dict[str, Any]:
        """As a history keeps it: five numbers for each tail."""

        def plain(worlds: Sequence[Sequence[SmoothTail]]) -> list[list[tuple[float, ...]]]:
            return [list(map(astuple, tails)) for tails in worlds]

        return {
            "windows": {str(length): plain(worlds) for length, worlds in self.windows.items()},
            "variations": {str(length): plain([each]) for length, each in self.variations.items()},
            "largest": plain(self.largest),
            "series": self.series,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "ViewNull":
        """The inverse of `to_dict`."""

        def tails(worlds: Sequence[Sequence[Sequence[float]]]) -> Worlds:
            return tuple(tuple(SmoothTail(*each) for each in world) for world in worlds)

        period, windows = tails(found["largest"])
        return cls(
            windows={int(length): tails(each) for length, each in found["windows"].items()},
            variations={int(n): tails(each)[0] for n, each in found["variations"].items()},
            largest=(period, windows),
            series=found["series"],
        )

    def depth(self, length: int, values: Floats) -> Floats:
        """Of the statistics of windows, (groupings, ...): the rarest of all groupings, by the union
        bound, in the world where it is least rare.
        """
        found = [
            np.max([tail.depth(value) for tail, value in zip(tails, values, strict=True)], axis=0)
            for tails in self.windows[length]
        ]
        depth = np.min(found, axis=0) - math.log(len(values))
        return np.asarray(np.maximum(depth, LEAST_DEPTH))

    def least_variation(self, length: int, depth: float) -> float:
        """What the total variation of a window exceeds as rarely without drift, in any world."""
        return max(tail.threshold(depth) for tail in self.variations[length])

    def chance(self, test: int, depth: float) -> float:
        """That the largest depth of a test exceeds this, in the worst world."""
        tails = self.largest[test]
        return max((math.exp(-float(tail.depth(np.array(depth)))) for tail in tails), default=0.0)


def normal_deviate(depth: Floats | float) -> Floats:
    """The number of standard deviations that a normal variable exceeds as rarely.

    >>> normal_deviate(-math.log(0.00135)).round(2).tolist()
    3.0
    """
    return np.asarray(-scipy.special.ndtri_exp(-np.asarray(depth)), dtype=np.float64)


@lru_cache(maxsize=1024)  # what a reference's clients hold is a long text
def _digest(case: NullCase) -> str:
    return hashlib.sha256(repr((version("fedprikl"), case._key)).encode()).hexdigest()


@lru_cache(maxsize=1024)
def simulate_null(case: NullCase) -> ViewNull:
    """The law of all windows' statistics, and of the largest of the judged periods.

    Cost: half a microsecond per cell, period and series.
    """
    worlds = [_simulate(case, same_clients=True)]
    if case.view.correlated:
        worlds.append(_simulate(case, same_clients=False))
    windows = {
        length: tuple(tuple(_tail(z.ravel()) for z in world[length]) for world in worlds)
        for length in case.lengths
    }
    variations = {
        length: tuple(SmoothTail.of(world[length][-1].ravel()) for world in worlds)
        for length in (case.lengths if case.view.tolerance else ())
    }
    if case.view.tolerance:  # stands behind the groupings
        windows = {n: tuple(tails[:-1] for tails in each) for n, each in windows.items()}
        worlds = [{n: values[:-1] for n, values in world.items()} for world in worlds]
    null = ViewNull(windows, variations, ((), ()), case.series)
    largest = tuple(
        tuple(_largest(null, world, lengths, case.judged) for world in worlds if lengths)
        for lengths in (case.lengths[:1], case.lengths[1:])
    )
    return replace(null, largest=largest)


def _tail(values: Floats) -> SmoothTail:
    """The law of a statistic; normal where it cannot vary, as of a column of one category."""
    if values.std() < FLAT:
        return SmoothTail(float(values.mean()), 1.0)
    return SmoothTail.of(values)


def _largest(
    null: ViewNull, world: dict[int, Floats], lengths: tuple[int, ...], judged: int
) -> SmoothTail:
    """The law of the largest depth of windows of these lengths that end in a judged period."""
    depths = [null.depth(length, world[length][..., -judged:]).max(axis=1) for length in lengths]
    return SmoothTail.of(np.max(depths, axis=0))


def _simulate(case: NullCase, *, same_clients: bool) -> dict[int, Floats]:
    """Statistics of windows of every length: (groupings, series, windows ending in L - 1, ...).

    Where a total variation is tolerated, that of the windows comes last.
    """
    groupings, tolerance = case.view.groupings, case.view.tolerance
    found: dict[int, list[Floats]] = {length: [] for length in case.lengths}
    laws = {
        length: [case.statistic(grouping, length) for grouping in groupings] for length in found
    }
    for counts, rng in null_counts(case, same_clients=same_clients):
        total = np.cumsum(counts, axis=1)
        seen = [_tolerated(grouping, case, grouping.sums(total), rng) for grouping in groupings]
        drifted = np.cumsum(_at_tolerance(case, counts, rng), axis=1) if tolerance else total
        for length in found:
            z = [law(_windows(sums, length)) for law, sums in zip(laws[length], seen, strict=True)]
            if tolerance:
                z.append(_beyond(case, total, drifted, length))
            found[length].append(np.array(z))
    return {length: np.concatenate(parts, axis=1) for length, parts in found.items()}


def total_variation(counts: Floats, shares: Floats, records: Floats | float) -> Floats:
    """Of the noisy counts of N records, out of the domain last, and of what they should be.

        T = 1/2 sum_x | h_x / N - Pi_x |

    By the triangle inequality T is at most the true total variation plus how far the counts are
    from the population: so T beyond a tolerance plus a high quantile of that is a drift beyond it.
    """
    seen = counts / np.asarray(records, dtype=np.float64)[..., None]
    return np.asarray(np.abs(seen - shares).sum(axis=-1) / 2)


def _at_tolerance(case: NullCase, counts: Floats, rng: np.random.Generator) -> Floats:
    """The counts, but records of as large a share as is tolerated are out of the domain.

    A cell that has grown varies more than it did when it was rare.
    """
    moved = rng.binomial(case.records, min(case.view.tolerance, 1.0), counts.shape[:2])[..., None]
    found = counts * (1 - moved / case.records)
    found[..., -1:] += moved
    return np.asarray(found)


def _beyond(case: NullCase, total: Floats, drifted: Floats, length: int) -> Floats:
    """How far T of windows is beyond the tolerance: without drift as if all T were, or at it."""
    shares, records = case.view.shares, length * case.records
    calm, moved = (
        total_variation(_windows(each, length), shares, records) for each in (total, drifted)
    )
    return np.maximum(calm, moved - case.view.tolerance)


def _windows(total: Floats, length: int) -> Floats:
    """Of running sums (series, periods, groups): the sums of all windows of a length."""
    window = total[:, length - 1 :].copy()
    window[:, 1:] -= total[:, :-length]
    return window


def _tolerated(
    grouping: Grouping, case: NullCase, total: Floats, rng: np.random.Generator
) -> Floats:
    """Running sums with a lasting deviation of `TOLERATED` nats, all of which the grouping sees.

    Of every second series it is spread over all cells, and of the others in one of them, which
    gains what all others lose.
    """
    shares, series = grouping.sums(case.view.shares), len(total)
    if grouping.kind == "out_of_domain":
        shift = TOLERATED * np.abs(rng.standard_normal((series, 1)))
    else:
        direction = rng.standard_normal((series, len(shares)))
        one = rng.integers(0, len(shares), series)[1::2]
        direction[1::2] = np.arange(len(shares)) == one[:, None]
        direction[1::2] /= np.maximum(shares[one], 1e-300)[:, None]
        direction -= (direction @ shares)[:, None] / shares.sum()
        size = np.maximum(direction**2 @ shares, 1e-300)
        shift = direction * shares * np.sqrt(2 * TOLERATED / size)[:, None]
    records = case.records * np.arange(1, case.periods + 1)
    return np.asarray(total + records[:, None] * shift[:, None, :])


def null_counts(
    case: NullCase, *, same_clients: bool
) -> Iterator[tuple[Floats, np.random.Generator]]:
    """Noisy counts, out of the domain last, of some series: (series, periods, cells + 1)."""
    rng, cells = public_simulation(), len(case.view.points) + 1
    step = max(1, CHUNK // (case.periods * cells))
    for start in range(0, case.series, step):
        series = min(step, case.series - start)
        shares = _shares(case, series, rng, same_clients=same_clients)
        shape = series, case.periods
        counts = rng.multinomial(case.records, np.broadcast_to(shares, (*shape, cells)))
        yield counts + case.noise.draw(rng, (*shape, cells)), rng


def _shares(case: NullCase, series: int, rng: np.random.Generator, *, same_clients: bool) -> Floats:
    """P without drift, out of the domain last: (series, periods or 1 for all, cells + 1)."""
    view = case.view
    pi, cells = view.pi, view.points.cells
    spread = view.spread_at(case.records, case.clients)
    (clients,) = spread.clients
    shape = series, 1 if same_clients else case.periods
    among = Cells.of(cells, pi)
    shares = period_shares(spread, among, case.records, clients, shape, rng)
    if spread.periods:
        shares = shares * ordinary_ratios(spread, among, (series, case.periods), rng)
    if view.error is not None:  # of a baseline
        error, normal = view.error, rng.standard_normal((series, 1))
        shape_of = 1 / np.maximum(error[:-1], 1e-12)
        shares[..., :-1] *= rng.standard_gamma(shape_of, (series, 1, len(pi))) / shape_of
        shares[..., -1] += np.sqrt(error[-1]) * np.abs(normal)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def simulation_error(series: int, views: int, chance: float) -> float:
    """By how much the simulation may understate a small chance: a factor, with 99% confidence.

    The chance is read off the decay of the largest tenth, of which each of the series has one: the
    share of the tenth and the rate of its decay have a relative error of 1 over the root of their
    number.
    """
    reach = max(math.log(KNEE / chance), 0.0)
    sd = math.sqrt((1 + reach**2) / (KNEE * series * views))
    return math.exp(float(scipy.special.ndtri(0.99)) * sd)


@dataclass(frozen=True, slots=True)
class Nominal:
    """The size of a usual period."""

    records: int
    clients: int
    noises: tuple[CountNoise, ...]  # per view, on each count


def nominal_of(periods: Sequence[PeriodCounts]) -> list[Nominal]:
    """For every period, the usual size of the last ones up to it.

    Only what was known then counts, so what is said about a period never changes. Statistics are
    standardised for the numbers of their own periods; how rare they are hardly depends on these.
    """
    found = []
    for place in range(len(periods)):
        last = periods[max(0, place + 1 - BLOCK) : place + 1]
        noises = zip(*([view.noise[0] for view in period.views] for period in last), strict=True)
        found.append(
            Nominal(
                records=max(round(_half_octave(fmean(period.records for period in last))), 1),
                clients=max(round(_half_octave(fmean(period.clients for period in last))), 1),
                noises=tuple(
                    replace(laws[-1], sd=_usual([law.sd for law in laws])) for laws in noises
                ),
            )
        )
    return found


def null_cases(
    views: Sequence[MonitoredView], nominal: Nominal, *, per_year: int, horizon: int
) -> tuple[tuple[NullCase, ...], float]:
    """The null of every view, and how many simulated blocks make a year.

    In a series of more than a block, windows reach back to before it. A year of more periods than
    a block has several, whose chances are added up.
    """
    judged = min(BLOCK, per_year, horizon)
    periods = min(judged + LENGTHS[-1] - 1, horizon)
    cells = sum(len(view.points) + 1 for view in views)
    worlds = 2 if any(view.correlated for view in views) else 1
    series = min(max(EFFORT // (periods * cells * worlds), FEWEST), MOST)
    cases = tuple(
        NullCase(
            view=view,
            records=nominal.records,
            clients=nominal.clients,
            noise=noise,
            periods=periods,
            judged=judged,
            series=series,
        )
        for view, noise in zip(views, nominal.noises, strict=True)
    )
    return cases, min(per_year, horizon) / judged


def _usual(values: Sequence[float]) -> float:
    """Exactly, as long as nothing changes."""
    if max(values) <= min(values) * (1 + 1e-9):
        return values[0]
    return _half_octave(math.sqrt(fmean(value**2 for value in values)))


def _half_octave(value: float) -> float:
    """The nearest power of sqrt(2)."""
    return float(2 ** (round(2 * math.log2(value)) / 2)) if value > 0 else 0.0
