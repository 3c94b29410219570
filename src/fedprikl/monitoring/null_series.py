"""Many periods of a channel without drift, simulated: the law of its statistics.

What deviates lastingly (the error of the reference, a tolerated deviation) is drawn once per
simulated series. So is what clients differ in, if they are the same in every period; if others are
counted each time, it is drawn anew. Nobody knows which, so both worlds are simulated.
The simulation is public and has a fixed seed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats
from fedprikl.estimation import NoisyCounts
from fedprikl.estimation.column_tails import KNEE, SKEWS, GammaLike, SmoothTail
from fedprikl.estimation.no_drift import public_simulation
from fedprikl.estimation.ratios import Ratios, gamma_like
from fedprikl.libraries import scipy
from fedprikl.monitoring.channels import Channel
from fedprikl.monitoring.lens import Lens
from fedprikl.monitoring.period_counts import ChannelCounts
from fedprikl.monitoring.statistic import TOLERATED, WindowStatistic
from fedprikl.reference import QueryPoints

__all__ = [
    "LENGTHS",
    "ChannelNull",
    "NullCase",
    "normal_deviate",
    "simulate_null",
    "simulation_error",
]

LENGTHS = (1, 2, 4, 8, 16, 32, 52)  # of windows, in counted periods
CHUNK = 2**20  # counts at a time
LEAST_DEPTH = 1e-9
FLAT = 0.05  # standard deviation of a statistic that tells nothing; usual is 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NullCase:
    """What the simulation of a channel depends on: all of it public. Equal cases are made once."""

    channel: Channel
    records: int  # of every period
    clients: int
    noise_sd: float
    laplace_scale: float | None
    periods: int  # of every simulated series
    judged: int  # the last ones, over which the largest statistic is looked for
    series: int

    @property
    def _key(self) -> tuple[object, ...]:
        channel = self.channel
        error = b"" if channel.error is None else channel.error.tobytes()
        law = channel.pi.tobytes(), channel.points.cells.tobytes(), channel.spread, error
        numbers = self.records, self.clients, self.noise_sd, self.laplace_scale
        return *law, *numbers, self.periods, self.judged, self.series

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NullCase) and self._key == other._key

    @property
    def lengths(self) -> tuple[int, ...]:
        """Windows that fit."""
        return tuple(length for length in LENGTHS if length <= self.periods)

    def statistic(self, lens: Lens, length: int) -> WindowStatistic:
        """Of a window of so many periods."""
        one = ChannelCounts(
            counts=self.channel.pi,
            rest=0.0,
            noise_sd=self.noise_sd,
            laplace_scale=self.laplace_scale,
        )
        return WindowStatistic.of(
            lens,
            self.channel.shares,
            self.channel.lasting(self.records, self.clients),
            records=length * self.records,
            noise=length * one.noise_sd**2,
            fourth=length * one.noise_fourth,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ChannelNull:
    """The statistics of one channel without drift, in every world that was simulated.

    A *depth* is -ln P(a larger value without drift): a common scale of all channels and windows.
    """

    windows: dict[int, tuple[tuple[SmoothTail, ...], ...]]  # per length, world and lens
    largest: tuple[tuple[SmoothTail, ...], ...]  # of the period test, of the cumulative test
    series: int

    def depth(self, length: int, values: Floats) -> Floats:
        """Of the statistics of windows, (lenses, ...): the rarest of all lenses, by the union
        bound, in the world where it is least rare.
        """
        found = [
            np.max([tail.depth(value) for tail, value in zip(tails, values, strict=True)], axis=0)
            for tails in self.windows[length]
        ]
        depth = np.min(found, axis=0) - math.log(len(values))
        return np.asarray(np.maximum(depth, LEAST_DEPTH))

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


@lru_cache(maxsize=1024)
def simulate_null(case: NullCase) -> ChannelNull:
    """The law of all windows' statistics, and of the largest of the judged periods.

    Cost: half a microsecond per cell, period and series.
    """
    worlds = [_simulate(case, same_clients=True)]
    if case.channel.alike:
        worlds.append(_simulate(case, same_clients=False))
    windows = {
        length: tuple(tuple(_tail(z.ravel()) for z in world[length]) for world in worlds)
        for length in case.lengths
    }
    null = ChannelNull(windows, ((), ()), case.series)
    largest = [
        [SmoothTail.of(_largest(null, world, lengths, case.judged)) for world in worlds]
        for lengths in (case.lengths[:1], case.lengths[1:])
        if lengths
    ]
    tests = [tuple(tails) for tails in largest]
    return ChannelNull(windows, (tests[0], tests[1] if len(tests) > 1 else ()), case.series)


def _tail(values: Floats) -> SmoothTail:
    """The law of a statistic; normal where it cannot vary, as of a column of one category."""
    if values.std() < FLAT:
        return SmoothTail(GammaLike(float(values.mean()), 1.0, SKEWS[0]), -math.log(KNEE), 1.0)
    return SmoothTail.of(values)


def _largest(
    null: ChannelNull, world: dict[int, Floats], lengths: tuple[int, ...], judged: int
) -> Floats:
    """The largest depth of windows of these lengths that end in a judged period, per series."""
    return np.asarray(
        np.max(
            [null.depth(length, world[length][..., -judged:]).max(axis=1) for length in lengths],
            axis=0,
        )
    )


def _simulate(case: NullCase, *, same_clients: bool) -> dict[int, Floats]:
    """Statistics of windows of every length: (lenses, series, windows that end in L - 1, ...)."""
    lenses = case.channel.lenses
    found: dict[int, list[Floats]] = {length: [] for length in case.lengths}
    laws = {length: [case.statistic(lens, length) for lens in lenses] for length in found}
    for counts, rng in _counts(case, same_clients=same_clients):
        total = np.cumsum(counts, axis=1)
        seen = [_tolerated(lens, case, lens.sums(total), rng) for lens in lenses]
        for length in found:
            z = [law(_windows(sums, length)) for law, sums in zip(laws[length], seen, strict=True)]
            found[length].append(np.array(z))
    return {length: np.concatenate(parts, axis=1) for length, parts in found.items()}


def _windows(total: Floats, length: int) -> Floats:
    """Of running sums (series, periods, groups): the sums of all windows of a length."""
    window = total[:, length - 1 :].copy()
    window[:, 1:] -= total[:, :-length]
    return window


def _tolerated(lens: Lens, case: NullCase, total: Floats, rng: np.random.Generator) -> Floats:
    """Running sums with a lasting deviation of `TOLERATED` nats, all of which the lens sees."""
    shares = lens.sums(case.channel.shares)
    if lens.rest:
        moved = TOLERATED * np.abs(rng.standard_normal((len(total), 1)))
    else:
        direction = rng.standard_normal((len(total), len(shares)))
        direction -= (direction @ shares)[:, None] / shares.sum()
        size = np.maximum(direction**2 @ shares, 1e-300)
        moved = direction * shares * np.sqrt(2 * TOLERATED / size)[:, None]
    records = case.records * np.arange(1, case.periods + 1)
    return np.asarray(total + records[:, None] * moved[:, None, :])


def _counts(case: NullCase, *, same_clients: bool) -> Iterator[tuple[Floats, np.random.Generator]]:
    """Noisy counts, the rest last, of some series at a time: (series, periods, cells + 1)."""
    rng, cells = public_simulation(), len(case.channel.points) + 1
    step = max(1, CHUNK // (case.periods * cells))
    for start in range(0, case.series, step):
        series = min(step, case.series - start)
        shares = _shares(case, series, rng, same_clients=same_clients)
        shape = series, case.periods
        counts = rng.multinomial(case.records, np.broadcast_to(shares, (*shape, cells)))
        yield counts + _noise(case, series * case.periods, rng).reshape(*shape, cells), rng


def _shares(case: NullCase, series: int, rng: np.random.Generator, *, same_clients: bool) -> Floats:
    """P without drift, the rest last: (series, periods, or 1 for all of them, cells + 1)."""
    channel = case.channel
    pi, cells = channel.pi, channel.points.cells
    spread = channel.spread_at(case.records, case.clients)
    (between,) = spread.between(np.array([case.records])).tolist()
    ratios = Ratios.draw(spread, cells, pi, series, rng)
    drawn = 1 if same_clients else case.periods
    every = np.arange(len(pi))
    (clients,) = spread.clients
    shares = np.stack([ratios.shares(every, between, clients, rng) for _ in range(drawn)], axis=1)
    if channel.error is not None:  # of a baseline
        error, normal = channel.error, rng.standard_normal((series, 1, len(pi) + 1))
        shares[..., :-1] *= gamma_like(normal[..., :-1] * np.sqrt(error[:-1]), error[:-1])
        shares[..., -1] += np.sqrt(error[-1]) * np.abs(normal[..., -1])
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def _noise(case: NullCase, draws: int, rng: np.random.Generator) -> Floats:
    points: QueryPoints = case.channel.points
    like = NoisyCounts(
        points=points,
        counts=np.zeros(len(points)),
        rest=np.zeros(1),
        records=np.array([case.records]),
        noise_sd=np.array([case.noise_sd]),
        laplace_scale=case.laplace_scale,
    )
    return np.concatenate(like.draw_noise(rng, draws), axis=1)


def simulation_error(series: int, channels: int, chance: float) -> float:
    """By how much the simulation may understate a small chance: a factor, with 99% confidence.

    The chance is read off the decay of the largest tenth, of which each of the series has one: the
    share of the tenth and the rate of its decay have a relative error of 1 over the root of their
    number.
    """
    reach = max(math.log(KNEE / chance), 0.0)
    sd = math.sqrt((1 + reach**2) / (KNEE * series * channels))
    return math.exp(float(scipy.special.ndtri(0.99)) * sd)
