"""One false-alarm rate for all columns."""

import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import CountNoise, Verdict
from fedprikl.estimation import verdict as module
from fedprikl.estimation.no_drift import public_simulation
from fedprikl.estimation.verdict import ColumnNull, Judged, common_depth, judge_columns
from fedprikl.privacy import (
    GaussianMechanism,
    LaplaceMechanism,
    Mechanism,
    Numbers,
    laplace_variance,
)
from fedprikl.reference import Correlation, Spread
from tests.estimation.column_releases import Column, alarm_rate, falling
from tests.estimation.test_verdict import alarms_too_often

pytestmark = pytest.mark.slow

RATE, POPULATIONS, FEWER = 0.05, 4000, 300
SIZES = (2, 2, 3, 3, 4, 5, 6, 8, 10, 12, 12, 15, 20, 25, 30, 40, 60, 80, 120, 200)
EXACT = Spread(clients=(100,), correlation=Correlation(icc=0.05, size_variation=0.0, clients=9999))


def columns_of(
    sizes: tuple[int, ...],
    *,
    records: int = 5000,
    noise: str = "gaussian",
    spread: float | Spread = 1.0,
) -> list[Column]:
    """Columns of so many cells, with tv, js and noisy counts at epsilon 1 each."""
    d, scale = len(sizes), 2.0 * len(sizes)
    values: dict[str, Mechanism]
    if noise == "laplace":
        values = {
            "tv": LaplaceMechanism.calibrated(Numbers(d / records), epsilon=1.0, delta=0.0),
            "js": LaplaceMechanism.calibrated(Numbers(0.7 * d / records), epsilon=1.0, delta=0.0),
        }
        law = CountNoise(sd=laplace_variance(scale) ** 0.5, scale=scale)
    else:
        one, other = (
            GaussianMechanism.calibrated(Numbers(s * d**0.5 / records), epsilon=1.0, delta=1e-6)
            for s in (1.0, 0.7)
        )
        values, law = {"tv": one, "js": other}, CountNoise(sd=4 * (2 * d) ** 0.5)
    return [
        Column(pi=falling(k), records=records, values=values, spread=spread, noise=law)
        for k in sizes
    ]


def judged(columns: list[Column], rate: float = RATE) -> tuple[Verdict, ...]:
    return judge_columns([column.case() for column in columns], false_alarm=rate)


@cache
def verdicts_of(count: int, noise: str = "gaussian") -> tuple[Verdict, ...]:
    """On columns of 12 cells, whose thresholds several tests look at."""
    return judged(columns_of((12,) * count, noise=noise))


def without_drift(columns: list[Column], rng: np.random.Generator) -> list[Ints]:
    return [rng.multinomial(each.records, each.pi, POPULATIONS) for each in columns]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_family_keeps_its_rate(noise: str, count: int, rng: np.random.Generator) -> None:
    columns, verdicts = columns_of((12,) * count, noise=noise), verdicts_of(count, noise)
    alarms, _ = alarm_rate(columns, verdicts, without_drift(columns, rng), rng)
    assert not alarms_too_often(alarms, POPULATIONS, RATE)
    assert alarms > 0.5 * RATE * POPULATIONS  # and the thresholds are not far too high


@pytest.mark.validation
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("records", [300, 5000])
def test_columns_of_all_sizes_share_it_fairly(
    noise: str, records: int, rng: np.random.Generator
) -> None:
    """From 2 to 200 cells, with more cells than half the records among them."""
    columns = columns_of(SIZES, noise=noise, records=records)
    alarms, each = alarm_rate(columns, judged(columns), without_drift(columns, rng), rng)
    assert not alarms_too_often(alarms, POPULATIONS, RATE)
    assert alarms > 0.5 * RATE * POPULATIONS
    # A fair share is 0.25% less the simulation's margin: 10 of 4,000. Poisson: 1e-9 beyond 34.
    assert each.max() * POPULATIONS <= 34


def test_without_a_correction_over_columns_the_rate_is_not_kept(rng: np.random.Generator) -> None:
    columns = columns_of((12,) * 20)
    alone = judged(columns[:1]) * 20
    alarms, _ = alarm_rate(columns, alone, without_drift(columns, rng), rng)
    assert alarms_too_often(alarms, POPULATIONS, 6 * RATE)


def test_columns_that_go_together_raise_fewer_alarms(rng: np.random.Generator) -> None:
    """Twenty copies of one column, each with its own noise: the union bound covers them."""
    columns, verdicts = columns_of((12,) * 20), verdicts_of(20)
    apart, _ = alarm_rate(columns, verdicts, without_drift(columns, rng), rng)
    same = without_drift(columns[:1], rng) * 20
    together, _ = alarm_rate(columns, verdicts, same, rng)
    assert not alarms_too_often(together, POPULATIONS, RATE)
    assert together < apart


def alike_counts(column: Column, clients: int, rng: np.random.Generator, icc: float) -> Ints:
    """Clients of a distribution each, and of as many records."""
    own = rng.dirichlet(column.pi * (1 - icc) / icc, (FEWER, clients))
    held: Ints = rng.multinomial(column.records // clients, own).sum(axis=1)
    return held


@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_rate_is_kept_for_clients_that_differ(count: int, rng: np.random.Generator) -> None:
    columns = columns_of((12,) * count, spread=EXACT)
    held = [alike_counts(column, 100, rng, 0.05) for column in columns]
    alarms, _ = alarm_rate(columns, judged(columns), held, rng)
    assert not alarms_too_often(alarms, FEWER, RATE)
    unaware = [replace(column, spread=1.0) for column in columns]
    alarms, _ = alarm_rate(unaware, verdicts_of(count), held, rng)
    assert alarms_too_often(alarms, FEWER, RATE)  # the check has teeth


def test_the_references_own_sampling_is_allowed_for(rng: np.random.Generator) -> None:
    """Pi is counted from as many records; thresholds are those of one such reference."""
    columns = [
        replace(each, noise=None, values={"tv": each.values["tv"]}, spread=spread)
        for spread in (Spread(clients=(5000,), counted=5000), 1.0)
        for each in columns_of((12, 5, 12))
    ]
    found = np.zeros((6, POPULATIONS), dtype=bool)
    verdicts = judged(columns[:3]) + judged(columns[3:])
    for each, verdict, row in zip(columns, verdicts, found, strict=True):
        counted, held = (rng.multinomial(5000, each.pi, POPULATIONS) / 5000 for _ in range(2))
        noise = rng.normal(0, each.values["tv"].standard_deviation, POPULATIONS)
        row[:] = np.abs(counted - held).sum(axis=1) / 2 + noise > verdict.statistics[0].threshold
    aware, unaware = (np.count_nonzero(part.any(axis=0)) for part in (found[:3], found[3:]))
    assert not alarms_too_often(int(aware), POPULATIONS, RATE)
    assert alarms_too_often(int(unaware), POPULATIONS, RATE)  # the check has teeth


class Straight:
    """A tail that fits nothing: the same thresholds in all columns, whatever they are."""

    def threshold(self, depth: float) -> float:
        return depth * 0.01


def test_a_wrong_tail_is_unfair_but_keeps_the_rate(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    columns = [replace(each, noise=None) for each in columns_of((2, 12, 200), records=1000)]
    held = without_drift(columns, rng)
    _, fair = alarm_rate(columns, judged(columns), held, rng)
    monkeypatch.setattr(module, "tail_of", lambda *_: Straight())
    alarms, unfair = alarm_rate(columns, judged(columns), held, rng)
    assert not alarms_too_often(alarms, POPULATIONS, RATE)
    assert alarms > 0.5 * RATE * POPULATIONS
    assert fair.max() < 3 * fair.min()
    assert unfair.max() > 10 * unfair.min()


def drifted(pi: Floats, by: float) -> Floats:
    moved = pi * np.exp(by * np.cos(np.arange(len(pi))))
    normalised: Floats = moved / moved.sum()
    return normalised


def release(column: Column, p: Floats, rng: np.random.Generator) -> Judged:
    held = rng.multinomial(column.records, p)
    seen = column.released(held[None], rng)
    sd = 0.0 if column.noise is None else column.noise.sd
    noisy = held + np.rint(rng.normal(0, sd, len(held))).astype(np.int64)
    return column.case({name: float(values[0]) for name, values in seen.items()}, noisy)


@pytest.mark.parametrize("control", ["family", "discovery"])
def test_one_drifted_column_of_twenty_is_found(control: str, rng: np.random.Generator) -> None:
    columns = columns_of((12,) * 20, records=40_295)
    cases = [
        release(each, drifted(each.pi, 0.2 if j == 7 else 0.0), rng)
        for j, each in enumerate(columns)
    ]
    found = judge_columns(cases, false_alarm=0.01, control=control)  # type: ignore[arg-type]
    assert [j for j, verdict in enumerate(found) if verdict.drifted] == [7]
    for verdict in found:
        assert [statistic.name for statistic in verdict.statistics] == ["tv", "js", "counts"]
        assert verdict.drifted == any(w.value > w.threshold for w in verdict.statistics)
        assert verdict.design_effect == 1.0
    assert found == judge_columns(cases, false_alarm=0.01, control=control)  # type: ignore[arg-type]


def test_discoveries_lower_the_thresholds_of_others(rng: np.random.Generator) -> None:
    columns = columns_of((12,) * 20)
    cases = [
        release(each, drifted(each.pi, 0.5 if j < 10 else 0.0), rng)
        for j, each in enumerate(columns)
    ]
    family = judge_columns(cases, false_alarm=0.05)
    discovery = judge_columns(cases, false_alarm=0.05, control="discovery")
    assert sum(verdict.drifted for verdict in discovery) >= 10
    for one, other in zip(family, discovery, strict=True):
        for strict, mild in zip(one.statistics, other.statistics, strict=True):
            assert mild.threshold < strict.threshold


@pytest.mark.parametrize("moved", [0, 2])
def test_few_discoveries_are_false(moved: int, rng: np.random.Generator) -> None:
    """The mean share of false ones, against 10%, within 6 of its standard errors."""
    columns, rate, releases = columns_of((12,) * 10), 0.1, 1000
    cases, simulation = [column.case() for column in columns], public_simulation()
    nulls = [ColumnNull.simulate(case, 4000, simulation) for case in cases]
    seen = [
        each.released(rng.multinomial(5000, drifted(each.pi, 0.12 * (j < moved)), releases), rng)
        for j, each in enumerate(columns)
    ]

    def alarms(expected: float) -> Floats:
        depth = common_depth(nulls, rate * expected)
        names = [statistic.name for statistic in cases[0][1]]
        return np.stack(
            [
                np.any(
                    [each[n] > t for n, t in zip(names, null.thresholds(depth), strict=True)],
                    axis=0,
                )
                for each, null in zip(seen, nulls, strict=True)
            ]
        )

    chosen, done = np.zeros((10, releases), dtype=bool), np.zeros(releases, dtype=bool)
    for expected in range(10, 0, -1):
        now = alarms(expected)
        fits = (now.sum(axis=0) >= expected) & ~done
        chosen[:, fits], done = now[:, fits], done | fits

    def false_share(found: Floats) -> Floats:
        return np.asarray(found[moved:].sum(axis=0) / np.maximum(found.sum(axis=0), 1))

    shares = false_share(chosen)
    assert shares.mean() < rate + 6 * shares.std() / releases**0.5
    uncorrected = false_share(alarms(10))  # every column at 10%
    assert uncorrected.mean() > rate + 6 * uncorrected.std() / releases**0.5
    if moved:
        assert chosen[:moved].mean() > 0.3


def test_many_columns_take_seconds() -> None:
    spread = Spread(
        clients=(400,),
        correlation=Correlation(icc=0.01, size_variation=0.2, clients=400),
        counted=100_000,
    )
    cases = [each.case() for each in columns_of((12,) * 100, records=40_295, spread=spread)]
    started = time.process_time()
    assert len(judge_columns(cases, false_alarm=0.01)) == 100
    assert time.process_time() - started < 20  # usually 4


def test_what_cannot_be_judged_is_refused() -> None:
    (column,) = columns_of((3,))
    case = column.case()
    assert judge_columns([], false_alarm=0.01) == ()
    with pytest.raises(InvalidInputError, match="'family' or by 'discovery'"):
        judge_columns([case], false_alarm=0.01, control="hope")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="false-alarm rate lies between"):
        judge_columns([case], false_alarm=1e-6)
    with pytest.raises(InvalidInputError, match="each of its own name"):
        judge_columns([(case[0], [*case[1][:1]] * 2)], false_alarm=0.01)
    with pytest.raises(InvalidInputError, match="one or more statistics"):
        Verdict(statistics=(), false_alarm=0.01, design_effect=1.0)
