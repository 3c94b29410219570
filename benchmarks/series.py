"""A year of weekly releases: false alarms, delay of drifts, errors of sums and speed.

    python benchmarks/series.py [--json] [--seed S] [--quick] [--workers W]

52 weeks of 7,749 records in 250 cells, epsilon 1 per record for the whole year (every record is
counted in one week), all questions asked. Alarms are those of `fedprikl.monitoring.judge_series` at
a stated 1% per year. Beside it: 52 separate tests at 1%, and a chi-square test of the raw counts,
Bonferroni over the weeks. `bars` says what holds. A quarter of an hour on two cores.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from power_worlds import KINDS, drifted, generator, truths
from scipy import stats
from series_worlds import DOMAINS, WEEKS, ClientsWorld, KnownWorld, released

from fedprikl.checks import Ints
from fedprikl.divergence import Score
from fedprikl.estimation import estimate_noisy_counts, sum_counts
from fedprikl.monitoring.alarms import SeriesVerdict
from fedprikl.monitoring.monitored_views import PeriodCounts
from fedprikl.monitoring.sequential import judge_series

FALSE_ALARM, SINGLE = 0.01, float(stats.norm.isf(0.01))
DRIFTS = (0.005, 0.05)
SIZES = (0.0, 0.5)  # nats, of which the error is measured
BARS = {"upper": 0.02, 0.005: (4, 0.90), 0.05: (1, 0.95), 0.0: 0.006, 0.5: 0.014}
World = KnownWorld | ClientsWorld
Row = dict[str, Any]


def judge(world: World, periods: Sequence[PeriodCounts]) -> SeriesVerdict:
    """As a series of a year is judged."""
    return judge_series(
        [world.view], periods, false_alarm=FALSE_ALARM, per_year=WEEKS, horizon=WEEKS
    )


def make(world: str, trust: str, seed: int) -> World:
    """A world by its name."""
    if world.startswith("clients"):
        stay, uneven = "stay" in world, "uneven" in world
        return ClientsWorld(seed, same=stay, trust=trust, uneven=uneven)
    name, _, kind = world.partition(", ")
    return KnownWorld(name, seed, trust, varying="varying" in kind, one_cell="one cell" in kind)


def measure_alarms(world: str, trust: str, years: int, seed: int, references: int) -> Row:
    """How many years without drift raise an alarm; a share of them for each reference."""
    found = np.zeros(4, dtype=np.int64)
    parts = np.array_split(np.arange(years), references)
    for number, part in enumerate(parts):
        here = make(world, trust, 1000 * seed + number)
        for year in part:
            rng = generator(seed, "alarms", world, trust, year)
            held = here.held(rng, None)
            verdict = judge(here, released(here, held, rng))
            alone = [period.views[0].statistic > SINGLE for period in verdict.judged]
            raised = bool(verdict.alarms), len(verdict.alarms) > 1, any(alone)
            found += *raised, any(raw_alarms(here, held))
    alarms, several, separate, raw = found.tolist()
    upper = float(stats.beta.ppf(0.99, alarms + 1, years - alarms)) if alarms < years else 1.0
    return {
        "world": world,
        "trust": trust,
        "years": years,
        "references": references,
        "alarms": alarms,
        "false_alarm_per_year": alarms / years,
        "upper": upper,
        "several": several / years,
        "separate_tests": separate / years,
        "raw_chi_square": raw / years,
    }


def raw_alarms(world: World, held: Ints) -> list[bool]:
    """Weeks in which a chi-square test of the raw counts exceeds at 1% / 52."""
    pi, counts = world.view.pi, held[:, :-1]
    mean = counts.sum(axis=1, keepdims=True) * pi
    chance = stats.chi2.sf(((counts - mean) ** 2 / mean).sum(axis=1), len(pi) - 1)
    return [bool(each < FALSE_ALARM / WEEKS) for each in chance]


def measure_delay(world: str, trust: str, kind: str, nats: float, years: int, seed: int) -> Row:
    """How many weeks after its begin a drift is found; it begins in a random week of the year."""
    here = make(world, trust, 1000 * seed)
    assert isinstance(here, KnownWorld)  # noqa: S101
    row = {"world": world, "trust": trust, "kind": kind, "nats": nats, "years": years}
    try:
        moved = drifted(here.pi, kind, nats)
    except ValueError:
        return row | {"possible": False}
    ours, raw, dated = [], [], []
    for year in range(years):
        rng = generator(seed, "delay", world, trust, kind, nats, year)
        start = int(rng.integers(4, WEEKS - 8))
        held = here.held(rng, moved, start)[: start + 8]
        alarms = [a for a in judge(here, released(here, held, rng)).alarms if a.raised >= start]
        ours.append(alarms[0].raised - start + 1 if alarms else WEEKS)
        dated += [alarms[0].since - start] if alarms else []
        heard = np.flatnonzero(raw_alarms(here, held)[start:])
        raw.append(int(heard[0]) + 1 if len(heard) else WEEKS)
    weeks = np.array(ours)
    return row | {
        "possible": True,
        "mean_weeks": float(weeks[weeks < WEEKS].mean()) if np.any(weeks < WEEKS) else None,
        "within_1": float(np.mean(weeks <= 1)),
        "within_4": float(np.mean(weeks <= 4)),
        "since_error": float(np.mean(np.abs(dated))) if dated else None,
        "raw_within_1": float(np.mean(np.array(raw) <= 1)),
        "raw_within_4": float(np.mean(np.array(raw) <= 4)),
    }


def measure_error(world: str, trust: str, nats: float, years: int, seed: int) -> Row:
    """Of KL of all weeks so far, from the summed noisy counts, against that of the very records."""
    here = make(world, trust, 1000 * seed)
    assert isinstance(here, KnownWorld)  # noqa: S101
    errors = np.zeros(WEEKS)
    for year in range(years):
        rng = generator(seed, "error", world, trust, nats, year)
        moved = drifted(here.pi, "smooth", nats) if nats else None
        held = here.held(rng, moved)
        periods = released(here, held, rng)
        truth = truths(here.pi, np.cumsum(held[:, :-1], axis=0))
        for week in range(WEEKS):
            noisy = sum_counts([period.views[0] for period in periods[: week + 1]])
            value, _ = estimate_noisy_counts(
                here.view.points, noisy, score=Score(correction=0.0), rng=rng
            )
            errors[week] += abs(value - truth[week]) / years
    return {
        "world": world,
        "trust": trust,
        "nats": nats,
        "years": years,
        "mean": float(errors.mean()),
        "by_week": [round(float(error), 6) for error in errors],
    }


def measure_speed(seed: int) -> Row:
    """Seconds to judge the first release of a series, and the last of a year after that."""
    here, rng = make("lognormal", "aggregator", seed), generator(seed, "speed")
    periods = released(here, here.held(rng, None), rng)
    times = []
    for weeks in (1, WEEKS):
        begun = time.perf_counter()
        judge(here, periods[:weeks])
        times.append(time.perf_counter() - begun)
    return {"first": times[0], "whole_year": times[1], "each": times[1] / WEEKS}


def tasks(seed: int, *, quick: bool) -> list[tuple[str, Callable[..., Row], tuple[Any, ...]]]:
    """Everything that is measured."""
    years, few, lots = (100, 20, 1) if quick else (500, 100, 5)
    listed: list[tuple[str, Callable[..., Row], tuple[Any, ...]]] = []
    cases = [(name, "aggregator") for name in DOMAINS[: 1 if quick else 3]]
    cases += [("lognormal", "none"), ("lognormal, varying weeks", "aggregator")]
    for world, trust in cases:
        listed.append(("alarms", measure_alarms, (world, trust, years, seed, 1 if quick else 4)))
    one = "lognormal, one cell deviates"
    listed.append(("alarms", measure_alarms, (one, "aggregator", years, seed, 1 if quick else 4)))
    for world in ("clients stay", "clients change", "clients stay, uneven"):
        share = 1 if quick else 20
        listed.append(("alarms", measure_alarms, (world, "aggregator", years, seed, share)))
    for world, trust in cases[:-1]:
        for kind in KINDS:
            for nats in DRIFTS:
                listed.append(("delay", measure_delay, (world, trust, kind, nats, few, seed)))
        for nats in SIZES:
            listed.append(("error", measure_error, (world, trust, nats, lots, seed)))
    return listed


def result_of(rows: dict[str, list[Row]], speed: Row, seed: int) -> Row:
    """All tables, the worst of each, and which bars hold."""
    alarms = rows["alarms"]
    delays = [row for row in rows["delay"] if row["possible"]]
    found = {
        nats: min(row[f"within_{BARS[nats][0]}"] for row in delays if row["nats"] == nats)  # type: ignore[index]
        for nats in DRIFTS
    }
    errors = {n: max(row["mean"] for row in rows["error"] if row["nats"] == n) for n in SIZES}
    worst = max(alarms, key=lambda row: row["upper"])
    return {
        "seed": seed,
        "years": min(row["years"] for row in alarms),
        "false_alarm_per_year": worst["false_alarm_per_year"],
        "upper": worst["upper"],
        "delay_weeks": rows["delay"],
        "error_by_week": rows["error"],
        "seconds_per_release": speed,
        "alarms": alarms,
        "bars": {
            "false alarms per year, upper 99% limit, at most 2%": worst["upper"] <= BARS["upper"],  # type: ignore[operator]
            **{
                f"a drift of {nats} found in time": share >= BARS[nats][1]  # type: ignore[index]
                for nats, share in found.items()
            },
            **{
                f"mean error at {nats} nats": error <= BARS[nats]  # type: ignore[operator]
                for nats, error in errors.items()
            },
        },
    }


def run(seed: int, *, quick: bool, workers: int) -> Row:
    """Speed first and alone; then all tasks."""
    speed, listed = measure_speed(seed), tasks(seed, quick=quick)
    rows: dict[str, list[Row]] = {"alarms": [], "delay": [], "error": []}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [(name, pool.submit(function, *given)) for name, function, given in listed]
        for name, task in running:
            row = task.result()
            rows[name].append(row)
            print(json.dumps(row)[:300], file=sys.stderr, flush=True)
    return result_of(rows, speed, seed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then prints tables or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--quick", action="store_true", help="a small part, in three minutes")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args(arguments)
    result = run(options.seed, quick=options.quick, workers=options.workers)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print("false alarms per year    ours  (upper)   52 tests at 1%   raw chi-square")
    for row in result["alarms"]:
        print(
            f"{row['world']:26}{row['trust']:12}{row['false_alarm_per_year']:6.2%} "
            f"({row['upper']:.2%}) {row['separate_tests']:8.0%} {row['raw_chi_square']:8.1%}"
        )
    print("\nfound within             1 week  4 weeks   raw: 1 week  4 weeks")
    for row in result["delay_weeks"]:
        if row["possible"]:
            print(
                f"{row['world']:12}{row['trust']:12}{row['kind']:8}{row['nats']:<7}"
                f"{row['within_1']:6.0%} {row['within_4']:6.0%}   "
                f"{row['raw_within_1']:6.0%} {row['raw_within_4']:6.0%}"
            )
    print("\nmean error of the cumulative value")
    for row in result["error_by_week"]:
        print(f"{row['world']:12}{row['trust']:12}{row['nats']:5} {row['mean']:.4f}")
    for bar, holds in result["bars"].items():
        print(f"{'holds' if holds else 'FAILS'}: {bar}")


if __name__ == "__main__":
    main()
