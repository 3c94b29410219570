"""A channel over many periods without drift, simulated: the law of its statistics and of the largest.

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
import scipy

from fedprikl.checks import Floats
from fedprikl.estimation import NoisyCounts
from fedprikl.estimation.column_tails import KNEE, SmoothTail
from fedprikl.estimation.no_drift import public_simulation
from fedprikl.estimation.ratios import Ratios, gamma_like
from fedprikl.monitoring.channels import TOLERATED, Channel
from fedprikl.monitoring.period_counts import ChannelCounts
from fedprikl.monitoring.statistic import WindowStatistic
from fedprikl.reference import QueryPoints

__all__ = ["LENGTHS", "ChannelNull", "NullCase", "deviate", "normal_deviate", "simulate_null"]

LENGTHS = (1, 2, 4, 8, 16, 32, 52)  # of windows, in counted periods
CHUNK = 2**20  # counts at a time
LEAST_DEPTH = 1e-9


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

    def statistic(self, length: int) -> WindowStatistic:
        """Of a window of so many periods."""
        one = ChannelCounts(
            counts=self.channel.pi,
            rest=0.0,
            noise_sd=self.noise_sd,
            laplace_scale=self.laplace_scale,
        )
        return WindowStatistic.of(
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

    windows: dict[int, tuple[SmoothTail, ...]]  # per length
    largest: tuple[tuple[SmoothTail, ...], ...]  # of the period test, of the cumulative test
    series: int

    def depth(self, length: int, values: Floats) -> Floats:
        """Of values of a window's statistic: the smallest of all worlds."""
        found = np.min([tail.depth(values) for tail in self.windows[length]], axis=0)
        return np.maximum(found, LEAST_DEPTH)

    def chance(self, test: int, depth: float) -> float:
        """That the largest depth of a test exceeds this, in the worst world."""
        tails = self.largest[test]
        return max((math.exp(-float(tail.depth(np.array(depth)))) for tail in tails), default=0.0)


def normal_deviate(depth: Floats | float) -> Floats:
    """The number of standard deviations that a normal variable exceeds as rarely.

    >>> normal_deviate(-math.log(0.00135)).round(2).tolist()
    3.0
    """
    return np.asarray(-scipy.special.ndtri_exp(-np.asarray(depth)))


@lru_cache(maxsize=1024)
def simulate_null(case: NullCase) -> ChannelNull:
    """The law of all windows' statistics, and of the largest of the judged periods.

    Cost: half a microsecond per cell, period and series.
    """
    persistent = _simulate(case, same_clients=True)
    worlds = [persistent]
    spread = case.channel.spread_at(case.records, case.clients)
    if spread.correlation is not None:
        worlds.append(_simulate(case, same_clients=False))
    windows = {
        length: tuple(SmoothTail.of(world[length].ravel()) for world in worlds)
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


def _largest(
    null: ChannelNull, world: dict[int, Floats], lengths: tuple[int, ...], judged: int
) -> Floats:
    """The largest depth of windows of these lengths that end in a judged period, per series."""
    return np.asarray(
        np.max(
            [null.depth(length, world[length][:, -judged:]).max(axis=1) for length in lengths],
            axis=0,
        )
    )


def _simulate(case: NullCase, *, same_clients: bool) -> dict[int, Floats]:
    """The statistics of windows of every length: (series, windows that end in period L - 1 ...)."""
    laws = {length: case.statistic(length) for length in case.lengths}
    found: dict[int, list[Floats]] = {length: [] for length in laws}
    for counts in _counts(case, same_clients=same_clients):
        total = np.cumsum(counts, axis=1)
        for length, law in laws.items():
            window = total[:, length - 1 :].copy()
            window[:, 1:] -= total[:, :-length]
            found[length].append(law(window))
    return {length: np.concatenate(parts) for length, parts in found.items()}


def _counts(case: NullCase, *, same_clients: bool) -> Iterator[Floats]:
    """Noisy counts, the rest last, of some series at a time: (series, periods, cells + 1)."""
    rng, cells = public_simulation(), len(case.channel.points) + 1
    step = max(1, CHUNK // (case.periods * cells))
    for start in range(0, case.series, step):
        series = min(step, case.series - start)
        shares = _shares(case, series, rng, same_clients=same_clients)
        shape = series, case.periods
        counts = rng.multinomial(case.records, np.broadcast_to(shares, (*shape, cells)))
        yield counts + _noise(case, series * case.periods, rng).reshape(*shape, cells)


def _shares(
    case: NullCase, series: int, rng: np.random.Generator, *, same_clients: bool
) -> Floats:
    """P without drift, the rest last: (series, periods, or 1 for all of them, cells + 1)."""
    channel = case.channel
    pi, cells = channel.pi, channel.points.cells
    spread = channel.spread_at(case.records, case.clients)
    (between,) = spread.between(np.array([case.records])).tolist()
    ratios = Ratios.draw(spread, cells, pi, series, rng)
    drawn = 1 if same_clients else case.periods
    every = np.arange(len(pi))
    shares = np.stack([ratios.shares(every, between, rng) for _ in range(drawn)], axis=1)
    ratio, rest = deviate(channel, series, rng)
    shares[..., :-1] *= ratio[:, None, :]
    shares[..., -1] += rest[:, None]
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def deviate(channel: Channel, series: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A tolerated deviation, and the error of a baseline: P / Pi, and what the rest gains."""
    pi = channel.pi
    direction = rng.standard_normal((series, len(pi)))
    direction *= np.sqrt(2 * TOLERATED / (direction**2 @ pi))[:, None]
    ratio, rest = np.maximum(1 + direction, 0.0), TOLERATED * np.abs(rng.standard_normal(series))
    if channel.error is not None:
        error = channel.error[:-1]
        ratio *= gamma_like(rng.standard_normal(ratio.shape) * np.sqrt(error), error)
        rest += np.sqrt(channel.error[-1]) * np.abs(rng.standard_normal(series))
    return ratio, rest


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
