"""Series whose periods differ among themselves, as those of their reference do: false alarms.

    python benchmarks/series_ordinary.py [--seed S] [--references R] [--split checked] [--only NAME]

A world draws periods one after the other: the first ones are the reference, with times, and the
next ones are watched, without drift. `TUNED` worlds were looked at while the simulation of ordinary
periods was chosen, `CHECKED` ones were not. Alarms are those of `judge_series` at a stated 5% for
the watched periods. `step` is how often a lasting drift is found in the same worlds.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from power_worlds import generator
from scipy import stats

from fedprikl.checks import Floats
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts
from fedprikl.monitoring.sequential import judge_series
from fedprikl.reference import ClientCounts, QueryPoints, Spread

FALSE_ALARM, SD = 0.05, 3.0
SERIES = 4  # watched, for each reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """Log-ratios ln(P / Pi) of periods, of standard deviation `size` in every cell."""

    name: str
    kind: str = "white"  # how they follow each other
    slow: float = 0.0  # correlation with the period before
    common: bool = False  # all along one direction
    cells: int = 5
    reference: int = 26  # periods
    watched: int = 26
    gap: int = 0  # periods between the two
    size: float = 0.12
    records: int = 4000

    def shares(self, pi: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """P of the periods of the reference, and of `SERIES` continuations: (series, periods)."""
        before, after = self.reference, self.gap + self.watched
        width = 1 if self.common else len(pi)
        head = self._deviations(before, np.zeros((1, width)), 0, rng)
        tails = [self._deviations(after, head[-1:], before, rng) for _ in range(SERIES)]
        if self.kind == "mixture":  # of two populations, in parts that vary
            other = rng.dirichlet(np.full(len(pi), 3.0))
            parts = [1 / (1 + np.exp(2 - each)) for each in (head, *tails)]
            p = [pi + each * (other - pi) for each in parts]
            return p[0], np.array([each[self.gap :] for each in p[1:]])
        direction = rng.standard_normal(len(pi)) if self.common else np.eye(len(pi))
        ratios = [np.exp(self.size * each @ np.atleast_2d(direction)) for each in (head, *tails)]
        p = [pi * each / (pi * each).sum(axis=1, keepdims=True) for each in ratios]
        return p[0], np.array([each[self.gap :] for each in p[1:]])

    def _deviations(self, number: int, last: Floats, at: int, rng: np.random.Generator) -> Floats:
        """Of so many periods from period `at` on, (periods, directions), after those of `last`."""
        width, rho, kind = last.shape[1], self.slow, self.kind
        fresh = rng.standard_normal((number, width))
        time_ = np.arange(at, at + number)[:, None]
        if kind == "walk":  # steps of a tenth
            return np.asarray(last + np.cumsum(0.1 * fresh, axis=0))
        if kind == "holiday":  # one period in twelve
            there = time_ % 12 == 5
            pattern = np.random.default_rng(width).standard_normal(width)
            return np.asarray(0.3 * fresh + 3 * there * pattern)
        if kind == "heavy":
            return np.asarray(rng.standard_t(3, (number, width)) / np.sqrt(3))
        if kind == "weekdays":
            pattern = np.random.default_rng(width).standard_normal((7, width))
            return np.asarray(pattern[time_[:, 0] % 7] + 0.2 * fresh)
        if kind == "season":  # of 13 periods
            angle = np.random.default_rng(width).uniform(0, 2 * np.pi, width)
            return np.asarray(1.4 * np.sin(2 * np.pi * time_ / 13 + angle) + 0.2 * fresh)
        each = np.full(width, rho)
        if kind == "one slow":  # all others are independent
            each[1:] = 0.0
        found, state = np.empty((number, width)), last[0]
        if at == 0:
            state = rng.standard_normal(width)
        for place in range(number):
            state = each * state + np.sqrt(1 - each**2) * fresh[place]
            found[place] = state
        return found


TUNED = (
    Periods(name="independent"),
    Periods(name="independent, 20 cells, 13 periods", cells=20, reference=13),
    Periods(name="holidays", kind="holiday", cells=12),
    Periods(name="one direction", common=True, cells=12),
    Periods(name="AR 0.5, one direction", kind="ar", slow=0.5, common=True, cells=12),
    Periods(name="AR 0.8", kind="ar", slow=0.8),
    Periods(name="AR 0.9, one direction", kind="ar", slow=0.9, common=True, cells=8),
    Periods(name="AR 0.8, one slow cell", kind="one slow", slow=0.8),
    Periods(name="AR 0.8, 60 cells, 13 periods", kind="ar", slow=0.8, cells=60, reference=13),
    Periods(name="weekdays, 91 days", kind="weekdays", reference=91, watched=91, cells=6),
)
CHECKED = (
    Periods(name="independent, 3 cells, 13 periods", cells=3, reference=13),
    Periods(name="independent, 60 cells, small", cells=60, reference=52, watched=52, size=0.03),
    Periods(name="none", cells=20, size=0.0),
    Periods(name="heavy-tailed", kind="heavy", cells=10),
    Periods(name="holidays, 52 periods", kind="holiday", cells=30, reference=52, watched=52),
    Periods(name="one direction, 13 periods", common=True, cells=30, reference=13),
    Periods(name="AR 0.5", kind="ar", slow=0.5, cells=12),
    Periods(name="AR 0.5, 3 cells, 13 periods", kind="ar", slow=0.5, cells=3, reference=13),
    Periods(name="AR 0.8, one direction", kind="ar", slow=0.8, common=True, cells=12),
    Periods(name="AR 0.8, 52 periods", kind="ar", slow=0.8, cells=20, reference=52, watched=52),
    Periods(name="AR 0.8, small", kind="ar", slow=0.8, cells=10, size=0.04),
    Periods(name="AR 0.8, a gap of 20", kind="ar", slow=0.8, cells=10, gap=20),
    Periods(name="AR 0.9", kind="ar", slow=0.9, cells=10),
    Periods(name="AR 0.9, 52 periods", kind="ar", slow=0.9, cells=5, reference=52, watched=52),
    Periods(name="AR 0.9, 13 periods", kind="ar", slow=0.9, cells=5, reference=13, watched=26),
    Periods(name="one slow cell", kind="one slow", slow=0.9, cells=10),
    Periods(name="AR 0.8, a mixture", kind="mixture", slow=0.8, common=True, cells=12),
    Periods(name="season of 13", kind="season", cells=8, reference=52, watched=52),
    Periods(name="weekdays, 28 days", kind="weekdays", cells=4, reference=28, watched=56),
    Periods(name="random walk", kind="walk", cells=5),
)


def view_of(p: Floats, records: int, rng: np.random.Generator) -> MonitoredView:
    """What a reference of these periods is, with times."""
    counts = rng.multinomial(records, p)
    period, cell = np.nonzero(counts)
    held = ClientCounts(period, cell, counts[period, cell]).write()
    mass = counts.sum(axis=0) + 1e-3
    pi = mass / mass.sum()
    points = QueryPoints.build(
        np.append(pi, 0.0), cells=np.arange(len(pi)), batch=np.zeros(len(pi), int), weights=pi
    )
    spread = Spread(clients=(1,), counted=int(counts.sum()), periods=held)
    return MonitoredView(name="", points=points, spread=spread)


def alarm(view: MonitoredView, p: Floats, records: int, rng: np.random.Generator) -> bool:
    """Whether the periods with these P raise an alarm."""
    periods = []
    for number, counts in enumerate(rng.multinomial(records, p)):
        noisy = [*(counts + rng.normal(0, SD, len(counts))), 0.0]
        seen = NoisyCounts.of(noisy, [records], [CountNoise(sd=SD)])
        periods.append(PeriodCounts(number=number, records=records, clients=40, views=(seen,)))
    found = judge_series([view], periods, false_alarm=FALSE_ALARM, per_year=len(p), horizon=len(p))
    return bool(found.alarms)


def measure(world: Periods, references: int, seed: int, step: float) -> dict[str, float]:
    """How many watched series raise an alarm, without drift and with one of total variation `step`.

    The drift takes records out of the heaviest cell and is there from the first period on.
    """
    alarms = found = 0
    begun = time.process_time()
    for number in range(references):
        rng = generator(seed, world.name, number)
        pi = rng.dirichlet(np.full(world.cells, 3.0))
        head, tails = world.shares(pi, rng)
        view = view_of(head, world.records, rng)
        away = np.full(world.cells, step / (world.cells - 1))
        away[np.argmax(pi)] = -step
        for p in tails:
            alarms += alarm(view, p, world.records, rng)
        moved = np.maximum(tails[0] + away, 0.0)
        found += alarm(view, moved / moved.sum(axis=1, keepdims=True), world.records, rng)
    series = references * SERIES
    return {
        "rate": alarms / series,
        "upper": float(stats.beta.ppf(0.99, alarms + 1, max(series - alarms, 1e-9))),
        "step": found / references,
        "seconds": time.process_time() - begun,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each world as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--references", type=int, default=50, help="of every world")
    parser.add_argument("--step", type=float, default=0.1, help="total variation of a drift")
    parser.add_argument("--split", choices=("tuned", "checked"), help="one of the two parts")
    parser.add_argument("--only", default="", help="worlds whose names have this")
    options = parser.parse_args(arguments)
    for split, worlds in (("tuned", TUNED), ("checked", CHECKED)):
        for world in worlds if options.split in (None, split) else ():
            if options.only in world.name:
                row = measure(world, options.references, options.seed, options.step)
                print(
                    f"{split:8}{world.name:36}{row['rate']:7.1%} (upper {row['upper']:.1%}) "
                    f"drift of {options.step} found {row['step']:5.0%} {row['seconds']:6.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
