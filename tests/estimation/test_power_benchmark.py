"""benchmarks/power.py: rivals and drifts are what they say, and a tiny run gives every table."""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from fedprikl.divergence import divergence_named, skewed_divergence
from tests.benchmark_modules import loaded
from tests.long import long

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PI = np.array([0.3, 0.25, 0.2, 0.12, 0.08, 0.05])


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """All modules of the benchmark, by name."""
    with loaded("power") as modules:
        yield modules


@pytest.fixture(scope="module")
def saved(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run with one small task of every kind."""
    power = bench.power
    extent = dict.fromkeys(power.QUICK, 20) | {"rounds": 1, "sampled": 2, "years": 2, "draws": 2}
    tasks = [
        ("alarms", power.measure_alarms, ("blocks, 60 ids, 40 clients", "none", "client")),
        ("series", power.measure_series, ("lognormal", "aggregator")),
        ("coverage", power.measure_coverage, ("none", "none")),
        ("coverage", power.measure_coverage, ("sampled", "aggregator")),
        ("errors", power.measure_errors, ("flights", 10, 5_000, 1.0)),
        ("power", power.measure_power, ("digits", 10, 5_000, 1.0)),
        ("printed", power.measure_printed, ("digits", 10, 5_000, 1.0)),
        ("outside", power.measure_outside, ("bimodal", 40, 5_000, 1.0)),
        ("ranges", power.measure_ranges, (0,)),
        ("speed", power.measure_speed, (40,)),
    ]
    out = tmp_path_factory.mktemp("power") / "power.json"
    with pytest.MonkeyPatch.context() as patch, out.open("w", encoding="utf-8") as stream:
        patch.setattr(power, "QUICK", extent)
        patch.setattr(power, "tasks", lambda _effort, quick: tasks)  # noqa: ARG005
        patch.setattr(sys, "stdout", stream)
        power.main(["--json", "--quick", "--workers", "1", "--seed", "5"])
    return out


@pytest.mark.validation
def test_one_json_object_with_every_table(saved: Path, bench: Any) -> None:
    result = json.loads(saved.read_text(encoding="utf-8"))
    names = ("power", "printed", "outside", "errors", "alarms", "series", "coverage", "ranges")
    keys = {name: set(result[name][0]) for name in names}
    assert all({"world", "statistic", "split"} <= each for each in keys.values())
    assert {"cells", "records", "epsilon", "kind", "chi2", "default", "ratio"} <= keys["power"]
    methods = {"default", "ask_kl", "trust_none", "textbook"}
    measured = methods | {"predicted", "predicted_ask_kl", "predicted_trust_none"}
    assert measured | {"cells", "records", "epsilon", "drift"} <= keys["errors"]
    assert {"trust", "unit", "rate", "upper", "references"} <= keys["alarms"]
    assert {"case", "trust", "rate", "lower"} <= keys["coverage"]
    assert [row["kind"] for row in result["power"]] == list(bench.power_tables.KINDS)
    assert {row["statistic"] for row in result["errors"]} == {"kl", "tv", "js"}
    assert all(row["default"] > 0 < row["textbook"] for row in result["errors"])
    assert result["outside"][0]["power"] <= result["outside"][4]["power"] == 1
    assert result["ranges"][0]["releases"] == 20
    assert result["speed"][0]["asked"] == 40
    assert all(set(bar) >= {"bar", "worst", "limit", "holds"} for bar in result["bars"])


def test_the_seed_changes_all_that_is_random(bench: Any) -> None:
    domain = bench.power_worlds.domain
    for name in bench.power_worlds.DOMAINS:
        assert np.array_equal(domain(name, 30, 1), domain(name, 30, 1))
        assert not np.allclose(domain(name, 30, 1), domain(name, 30, 2))
    draw = bench.power_worlds.generator
    assert draw(1, "a", 2).random() == draw(1, "a", 2).random() != draw(2, "a", 2).random()


@pytest.mark.parametrize(
    "kind", ["smooth", "rare", "heavy", "fading", "growing", "contamination", "ordinal"]
)
@pytest.mark.parametrize("nats", [1e-4, 0.02])
def test_a_drift_has_the_size_it_says(bench: Any, kind: str, nats: float) -> None:
    worlds = bench.power_worlds
    p = worlds.drifted(PI, kind, nats)
    assert p.sum() == pytest.approx(1)
    assert float(np.sum(PI * np.log(PI / p))) == pytest.approx(nats, rel=1e-6)
    assert worlds.drifted(PI, "gone", 0.0)[0] == 0


def test_the_smallest_drift_is_where_the_power_says(bench: Any) -> None:
    smallest = bench.power_measures.smallest

    def power(nats: float) -> float:
        return float(1 - math.exp(-nats / 0.01))

    true = 0.01 * math.log(20)
    for start in (1e-5, 0.03, 2.0):
        assert smallest(power, start, 3.0) == pytest.approx(true, rel=1e-3)
    assert smallest(power, 0.001, 0.029) is None


def test_discrete_laplace_noise_has_its_law(bench: Any) -> None:
    """200,000 draws: a share of at most 0.17 has a standard error below 0.001."""
    noise = bench.power_rivals.discrete_laplace(2.0, (200_000,), np.random.default_rng(3))
    zero = math.tanh(1 / 4)
    for k in (0, 1, 3):
        expected = zero * math.exp(-k / 2)
        assert np.mean(noise == k) == pytest.approx(expected, abs=0.006)
        assert np.mean(noise == -k) == pytest.approx(expected, abs=0.006)


def test_chi_square_keeps_its_rate(bench: Any) -> None:
    rng = np.random.default_rng(4)
    found = bench.power_rivals.chi_square_threshold(PI, 20_000, 0.01, rng)
    assert found == pytest.approx(scipy.stats.chi2.isf(0.01, len(PI) - 1), rel=0.05)


def test_the_textbook_has_the_divergences_of_the_library(bench: Any) -> None:
    """With records out of the domain, which are in no cell of Pi."""
    held = np.array([[30, 20, 10, 9, 0, 6, 5]])
    ours = bench.power_default.planned(PI, 720, 12, 1.0)
    for question in ours.plan.about_whole:
        found = bench.power_rivals.plug_in(held, PI, question.divergence)[0]
        true = skewed_divergence(
            np.append(PI, 0.0),
            held[0] / held.sum(),
            skew=question.skew,
            divergence=divergence_named(question.divergence),
        )
        assert found == pytest.approx(true, rel=1e-12)


def test_the_textbook_error_grows_with_its_noise(bench: Any) -> None:
    rng = np.random.default_rng(5)
    held = rng.multinomial(5_000, np.append(PI, 0.0), 4)
    little, much = (bench.power_rivals.textbook_errors(held, PI, eps, 25, rng) for eps in (10, 0.1))
    assert all(5 * little[name] < much[name] for name in ("kl", "tv", "js"))


def test_clients_in_blocks_hold_one_category_only(bench: Any) -> None:
    """Clients that share a cell are in one block: of at most 25 of more than 100 cells."""
    here = bench.power_worlds.source("blocks, 300 ids, 60 clients", np.random.default_rng(1), None)
    held = here.draw(np.random.default_rng(2))
    assert held.shape == (60, len(here.reference.probabilities))
    assert held.sum() == here.records
    cells = held[:, :-1] > 0
    reach = [cells[cells[:, i]].any(axis=0) for i in np.flatnonzero(cells.any(axis=0))]
    assert max(each.sum() for each in reach) <= 25 < 100 < cells.any(axis=0).sum()


def test_every_world_of_alarms_has_clients_and_as_many_records(bench: Any) -> None:
    worlds = bench.power_worlds
    for world in worlds.ALARMS:
        here = worlds.source(world, np.random.default_rng(1), None)
        held = here.draw(np.random.default_rng(2))
        assert held.shape == (here.clients, len(here.reference.probabilities))
        assert held.sum() == here.records
        assert here.clients >= 40
    assert {worlds.split(world) for world in worlds.ALARMS} == {"tune", "check"}


def test_alarms_that_come_together_count_for_less(bench: Any) -> None:
    limit = bench.power_measures.upper_limit
    apart, together = [0.01] * 100, [0.0] * 90 + [0.1] * 10
    exact = float(scipy.special.betaincinv(21, 1980, 0.99))  # 20 alarms in 2,000
    assert limit(apart, 20) == pytest.approx(exact)
    assert limit(together, 20) > limit(apart, 20)
    assert limit([0.0] * 10, 10) == pytest.approx(1 - 0.01 ** (1 / 100))
    assert limit([1.0], 5) == 1


@pytest.mark.validation
def test_intervals_of_numbers_are_those_of_the_library(bench: Any) -> None:
    pi = bench.power_worlds.domain("lognormal", 40, 11)
    ours = bench.power_default.planned(pi, 100_000, 30, 1.0)
    held = np.random.default_rng(9).multinomial(100_000, np.append(pi, 0.0), 12)
    found = ours.intervals(held, np.random.default_rng(10))
    releases = list(ours.each(held, np.random.default_rng(10)))
    for i in (0, 5):
        for each, limits in zip(releases[i].each, found.values(), strict=True):
            assert limits[i] == pytest.approx(each.interval, rel=0.05, abs=1e-4)


def test_no_private_release_beats_the_least_error(bench: Any) -> None:
    """Two cells, one of them empty or not: by hand, and below the error of a private release."""
    least = bench.power_rivals.least_error
    pi, records, epsilon = np.array([0.01, 0.99]), 5_000, 0.5
    d = [
        -float(pi @ np.log(0.01 + 0.99 * np.array([k, records - k]) / (records * pi)))
        for k in range(9)
    ]
    by_hand = max((d[0] - d[k]) / (1 + math.exp(k * epsilon)) for k in range(1, 9))
    assert least(pi, records, epsilon, 0.05) == pytest.approx(by_hand, rel=1e-9)
    laplace = (d[0] - d[1]) / epsilon  # the sensitivity is that of the first record
    assert by_hand < laplace
    assert least(pi, records, 10 * epsilon, 0.05) < by_hand
    assert least(pi, records, epsilon, 0.001) == 0  # an empty cell is a larger drift


@pytest.mark.parametrize("trust", [long("aggregator"), "none"])
def test_verdicts_of_many_populations_are_those_of_their_releases(bench: Any, trust: str) -> None:
    """A threshold serves all releases; simulated verdicts find as much: 400 each, within 4 sd."""
    ours = bench.power_default.planned(PI, 3_000, 30, 1.0, trust=trust)
    rng = np.random.default_rng(7)
    p = bench.power_worlds.with_outside(bench.power_worlds.drifted(PI, "smooth", 0.004))
    held = rng.multinomial(3_000, p, 400)
    known = {statistic.name: threshold for statistic, threshold in ours.thresholds[1]}
    release = ours.printed(held[0], rng)
    for statistic in release.verdict.statistics:
        assert statistic.threshold == pytest.approx(known[statistic.name])
    one, other = ours.verdicts(held, rng).mean(), ours.flags(held, rng).mean()
    assert 0.05 < one < 0.999
    assert abs(one - other) < 4 * math.sqrt(2 * 0.25 / 400)


@pytest.mark.validation
def test_clients_are_counted_whole_or_by_their_draws(bench: Any) -> None:
    here = bench.power_worlds.source("sizes 2", np.random.default_rng(1), None)
    rng = np.random.default_rng(2)
    held = here.draw(rng)
    options = {"clients": here.clients, "records": here.records, "epsilon": 1.0}
    every = bench.power_default.Default(here.reference, **options)
    assert np.array_equal(every.counted(held, rng)[0], held.sum(axis=0))
    drawn = bench.power_default.Default(here.reference, **options, unit="client", per_client=7)
    assert drawn.counted(held, rng).sum() == 7 * here.clients == drawn.records


def test_impossible_numbers_are_seen(bench: Any) -> None:
    """Teeth: of a release that prints a negative number, or one out of its interval."""
    ours = bench.power_default.planned(PI, 50_000, 30, 1.0)
    rng = np.random.default_rng(8)
    p = bench.power_worlds.with_outside(bench.power_worlds.drifted(PI, "smooth", 0.2))
    release = ours.printed(rng.multinomial(50_000, p), rng)
    impossible = bench.power_measures.impossible
    assert list(impossible(release)) == []
    first, *others = release.answers
    for value in (-0.01, 4.7, 0.9 * first.interval[0]):
        wrong = dataclasses.replace(first, value=value)
        assert list(impossible(dataclasses.replace(release, answers=(wrong, *others))))


def test_bars_hold_or_not(bench: Any) -> None:
    tables = bench.power_tables
    cell = {"cells": 30, "records": 5_000, "epsilon": 1.0}
    error = {"default": 0.6, "ask_kl": 0.6, "textbook": 1.0, "predicted": 0.8, "statistic": "kl"}
    error |= {"predicted_ask_kl": 0.1, "trust_none": 1.0, "predicted_trust_none": 1.6}
    result: dict[str, Any] = {name: [] for name in tables.NAMES} | {
        "power": [
            cell | {"kind": "smooth", "chi2": 0.01, "default": 0.012, "ratio": 1.2},
            cell | {"kind": "rare", "chi2": 0.01, "default": None, "ratio": None},
        ],
        "errors": [
            cell | error | {"drift": "none"},
            cell | {"statistic": "tv", "default": 1.6, "textbook": 1.0, "drift": "none"},
        ],
        "alarms": [{"upper": 0.021}],
        "coverage": [{"lower": 0.94}],
        "printed": [{"power": 0.98}],
        "outside": [{"epsilon": 1.0, "records": 30_000, "share": 0.003, "power": 0.4}],
        "ranges": [{"impossible": 0, "could_tell": 1}],
        "speed": [{"cells": 250, "seconds": 0.04}, {"cells": 65_536, "seconds": 2.0}],
    }
    held = {bar["bar"]: bar["holds"] for bar in tables.bars(result)}
    drift = "smallest drift / chi-square, epsilon 1, N >= 5,000, "
    assert held.pop(f"{drift}smooth")
    assert not held.pop(f"{drift}rare")
    assert held == {
        "error of ask kl / textbook, worst": True,
        "error of kl / textbook, worst": True,
        "error of kl / textbook, geometric mean": True,
        "error of tv / textbook, worst": False,
        "error of tv / textbook, geometric mean": False,
        "predicted / measured, default, largest": True,
        "predicted / measured, default, smallest": True,
        "predicted / measured, ask_kl, largest": True,
        "predicted / measured, ask_kl, smallest": False,
        "predicted / measured, trust_none, largest": False,
        "predicted / measured, trust_none, smallest": True,
        "false alarms at 1%, a release, upper limit": False,
        "coverage, lower limit": True,
        "power at the printed drift, least": True,
        "power at the printed drift, most": False,
        "power where 0.3% or more are out of the domain, N >= 30,000, epsilon 1": False,
        "impossible numbers printed": True,
        "cannot tell, and could": False,
        "seconds of a release of 250 cells": True,
        "seconds of a release of 65,536 cells": False,
    }


def test_every_task_of_the_benchmark_has_its_table(bench: Any) -> None:
    power, names = bench.power, set(bench.power_tables.NAMES)
    effort = bench.power_measures.Effort(data=Path("digits"))
    for quick in (True, False):
        tasks = list(power.tasks(effort, quick=quick))
        assert {name for name, _, _ in tasks} == names
    asked = [(name, *arguments) for name, _, arguments in tasks]
    assert len(asked) == len(set(asked))
    assert ("errors", "lognormal", 250, 500, 0.1) in asked  # two records a cell
    assert ("alarms", "blocks, 60 ids, 40 clients", "none", "client") in asked
    assert ("alarms", "writers, one digit", "none", "record") in asked
    some = power.chosen(iter(tasks), "alarms,power", "blocks,zipf")
    assert {name for name, _, _ in some} == {"alarms", "power"}
    assert {arguments[0].split(",")[0] for _, _, arguments in some} == {"blocks", "zipf"}


@pytest.mark.validation
def test_tables_are_printed(saved: Path, bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bench.power.main(["--read", str(saved)])
    table = bench.power_tables.alarms_table(json.loads(saved.read_text(encoding="utf-8")))
    assert table in capsys.readouterr().out
