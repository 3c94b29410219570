"""Releases to show: made up, but of the very types that a round ends with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import polars as pl

from fedprikl.estimation import CountNoise, JudgedStatistic, NoisyCounts, Verdict
from fedprikl.estimation.outcome import Tolerance
from fedprikl.privacy import PrivacyStatement
from fedprikl.protocol import Answer, Outcome, Release
from fedprikl.protocol.release import CellAnswer, ColumnAnswer
from fedprikl.reference import Reference
from tests.plans import make_plan

RECORDS = 40_295
PLAN = make_plan(population="aircraft", points=40)
COLUMNS: dict[str, tuple[str, ...]] = {
    "departure delay": (
        "early or on time",
        "up to 15 min",
        "15 to 30 min",
        "30 to 60 min",
        "over 60 min",
    ),
    "carrier": ("American", "Delta", "JetBlue", "Southwest", "United", "Alaska", "Spirit"),
    "origin": ("EWR", "JFK", "LGA"),
    "month": ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    "distance": ("under 500 km", "500 to 1,000 km", "1,000 to 2,000 km", "over 2,000 km"),
    "engine": ("turbofan", "turbojet", "piston"),
}
HOSTILE = "<script>alert(1)</script><b>]]>&amp;\"'[red]x[/red]\x1b[31m\u202e"
LONG = "minutes_between_scheduled_and_actual_departure_as_reported_by_the_carrier_to_the_authority"


def column(
    name: str | tuple[str, ...],
    labels: Sequence[str],
    *,
    drift: float = 0.0,
    seed: int = 1,
    trust: Literal["aggregator", "none"] = "aggregator",
    rest: float = 12.0,
    noise_sd: float = 12.0,
    design_effect: float | None = 1.5,
) -> ColumnAnswer:
    """A column whose first cells lost `drift` of all records to its last ones."""
    rng = np.random.default_rng(seed)
    size = len(labels)
    reference = np.sort(rng.dirichlet(np.full(size, 3.0)))[::-1]
    share = reference.copy()
    half = max(1, size // 2)
    share[:half] -= drift * share[:half] / share[:half].sum()
    share[half:] += drift * reference[half:] / reference[half:].sum()
    share = np.abs(share + rng.normal(0, 0.0015, size))
    share /= share.sum()
    width = 0.004 + 0.02 * np.sqrt(share * (1 - share))
    cells = []
    for n, label in enumerate(labels):
        changed = bool(drift) and abs(share[n] - reference[n]) > width[n]
        cells.append(
            CellAnswer(
                label=label,
                reference=float(reference[n]),
                share=float(share[n]),
                interval=(float(max(0, share[n] - width[n])), float(share[n] + width[n])),
                shifted=("up" if share[n] > reference[n] else "down") if changed else "",
            )
        )
    tv = float(np.abs(share - reference).sum() / 2)
    kl = float((reference * np.log(reference / share)).sum())
    names = (name,) if isinstance(name, str) else name
    said = JudgedStatistic(name="tv", value=tv + 0.001, threshold=0.021, unit="")
    if trust == "none":
        said = JudgedStatistic(name="counts", value=9.0 * (tv > 0.02), threshold=4.2, unit="")
    return ColumnAnswer(
        columns=names,
        verdict=Verdict(statistics=(said,), false_alarm=0.01, design_effect=design_effect),
        answers=(
            answer("tv", tv, no_drift=0.0082, width=0.009),
            answer("kl", kl, no_drift=0.0004, width=0.002),
        ),
        cells=tuple(cells),
        counts=NoisyCounts.of(
            [*np.round(RECORDS * share), rest], [RECORDS], [CountNoise(sd=noise_sd)]
        ),
    )


def answer(divergence: str, value: float, *, no_drift: float, width: float) -> Answer:
    return Answer(
        divergence=divergence,
        value=value,
        interval=(max(0.0, value - width), value + width),
        no_drift=no_drift,
        target="TV(Pi, P)" if divergence == "tv" else "D(Pi || 0.01 Pi + 0.99 P)",
        unit="" if divergence == "tv" else "nats",
        mechanism="Laplace noise of scale 0.0021",
    )


def release(columns: Sequence[ColumnAnswer], *, drifted: bool = True, **changes: Any) -> Release:
    size = 0.094 if drifted else 0.0094
    found = Release(
        round_id="7aa28379b0451df65889870b737c57e8",
        population="aircraft",
        trust="aggregator",
        plan=PLAN.fingerprint,
        reference=64 * "0",
        answers=(
            answer("kl", 3 * size**2 + 0.02, no_drift=0.0198, width=0.012),
            answer("tv", size, no_drift=0.0091, width=0.011),
        ),
        columns=tuple(columns),
        verdict=Verdict(
            statistics=(
                JudgedStatistic(name="kl", value=3 * size**2 + 0.02, threshold=0.0311, unit="nats"),
                JudgedStatistic(name="tv", value=size, threshold=0.0204, unit=""),
            ),
            false_alarm=0.01,
            design_effect=1.4,
        ),
        privacy=PrivacyStatement(
            epsilon=1.0,
            delta=1e-6,
            claimed_epsilon=1.0,
            mechanism="Laplace noise of scale 0.0021",
            released="2 numbers and the noisy counts of 34 cells",
            trust="the aggregator.",
        ),
        cohorts=(Outcome(batch=0, clients=412, included=400),),
        payload=96,
        records=RECORDS,
        software="fedprikl",
        released_at="2030-01-31T12:00:00+00:00",
    )
    return replace(found, **changes)


def two_of_six(**more: Any) -> tuple[ColumnAnswer, ...]:
    drifts = {"departure delay": 0.081, "carrier": 0.052}
    return tuple(
        column(name, labels, drift=drifts.get(name, 0.0), seed=n, **more)
        for n, (name, labels) in enumerate(COLUMNS.items(), start=1)
    )


def forty() -> tuple[ColumnAnswer, ...]:
    labels = [f"level {n}" for n in range(1, 26)]
    drifts = {3: 0.09, 17: 0.06, 31: 0.04}
    return tuple(
        column(f"sensor_{n:02d}", labels, drift=drifts.get(n, 0.0), seed=n, rest=2100.0 * (n == 3))
        for n in range(1, 41)
    )


def no_party_trusted() -> Release:
    counts = NoisyCounts(
        batch=(0,),
        cells=(3,),
        counts=(12.0,),
        out_of_domain=(30.0,),
        records=(RECORDS,),
        noise=(CountNoise(sd=2.5),),
    )
    found = release(two_of_six(trust="none"))
    said = JudgedStatistic(name="counts", value=31.0, threshold=6.1, unit="")
    return replace(
        found,
        trust="none",
        noisy_counts=counts,
        verdict=Verdict(statistics=(said,), false_alarm=0.01, design_effect=None),
    )


def long_names() -> tuple[ColumnAnswer, ...]:
    words = "a category with a name so long that nobody would ever want to read it to its very end"
    labels = [
        words,
        LONG,
        "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW",
        "漢字" * 40,
        "short",
    ]
    return (
        column(LONG, labels, drift=0.07, seed=2),
        column((LONG, "carrier of the aircraft"), labels, drift=0.05, seed=3),
        column("漢字" * 40, labels, seed=4),
    )


def hostile() -> Release:
    labels = [HOSTILE, f"{HOSTILE}2", "[bold]y[/bold]"]
    columns = (column(HOSTILE, labels, drift=0.1), column("plain", labels, seed=2))
    return release(columns, population="<i>[red]people[/red]</i>")


def blind(findable: float | None = 0.62, *, only_whole: bool = False) -> Release:
    """So few records that not even large drifts could have been found."""

    def untold(verdict: Verdict | None, least: float | None) -> Verdict:
        assert verdict is not None
        calm = tuple(replace(each, value=each.threshold / 2) for each in verdict.statistics)
        return replace(verdict, statistics=calm, can_tell=False, findable=least)

    columns = [
        column(name, labels, seed=n)
        for n, (name, labels) in enumerate(() if only_whole else COLUMNS.items(), start=1)
    ]
    more = None if findable is None else findable + 0.1
    found = release(
        [replace(each, verdict=untold(each.verdict, more)) for each in columns], drifted=False
    )
    return replace(found, verdict=untold(found.verdict, findable))


def tolerant() -> Release:
    """Two columns and the whole differ, by less than matters."""

    def mild(verdict: Verdict | None) -> Verdict:
        assert verdict is not None
        return replace(verdict, tolerance=Tolerance(tolerated=0.12, value=0.1, threshold=0.14))

    found = release([replace(each, verdict=mild(each.verdict)) for each in two_of_six()])
    return replace(found, verdict=mild(found.verdict))


def partly_blind() -> Release:
    """Drift in two columns, and one of which nothing can be told."""
    told, other = release(two_of_six()), blind().columns[2]
    return replace(told, columns=(*told.columns[:2], other, *told.columns[3:]))


def with_values() -> tuple[Release, Reference]:
    """Numbers, times and categories, and the reference that says which cells are which."""
    rng, rows = np.random.default_rng(4), 4_000
    frame = {
        "delay": [*rng.integers(-20, 90, rows - 80).tolist(), *80 * [None]],
        "distance": np.round(rng.gamma(3, 350, rows), 1),
        "day": np.datetime64("2024-01-01") + rng.integers(0, 180, rows),
        "carrier": rng.choice(["UA", "B6", "DL"], rows),
    }
    reference = Reference.fit(pl.DataFrame(frame))
    columns = [
        column(view.columns, view.labels, drift=drift, seed=n, rest=rest)
        for n, (view, drift, rest) in enumerate(
            zip(reference.views, (0.1, 0.0, 0.0, 0.1), (0.0, 0.0, 0.0, 900.0), strict=True)
        )
    ]
    return release(columns, reference=reference.fingerprint), reference


SCENES: dict[str, Release] = {
    "two of six": release(two_of_six()),
    "forty": release(forty(), answers=(), verdict=None),
    "no drift": release(
        [column(name, labels, seed=n) for n, (name, labels) in enumerate(COLUMNS.items(), start=1)],
        drifted=False,
    ),
    "no party trusted": no_party_trusted(),
    "three servers": release(two_of_six(), trust="servers"),
    "whole only": release(()),
    "long names": release(long_names(), population=LONG),
    "hostile": hostile(),
    "cannot tell": blind(),
    "tolerated": tolerant(),
    "of one column it cannot be told": partly_blind(),
}
