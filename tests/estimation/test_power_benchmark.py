"""benchmarks/power.py: rivals and drifts are what they say, and a tiny run gives every table."""

import json
import math
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from fedprikl.divergence import Score, Skew
from fedprikl.estimation import score_sensitivity
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol.answering import estimate_sums
from fedprikl.protocol.round import cohort_sizes
from fedprikl.reference import Reference, all_points
from tests.benchmark_modules import loaded

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
    extent = dict.fromkeys(power.QUICK, 20) | {"rounds": 1, "sampled": 2}
    tasks = [
        ("alarms", power.measure_alarms, ("lognormal", "none")),
        ("coverage", power.measure_coverage, ("none", "none")),
        ("coverage", power.measure_coverage, ("sampled", "aggregator")),
        ("errors", power.measure_errors, ("flights", 10, 5_000, 1.0)),
        ("power", power.measure_power, ("digits", 10, 5_000, 1.0)),
    ]
    out = tmp_path_factory.mktemp("power") / "power.json"
    with pytest.MonkeyPatch.context() as patch, out.open("w", encoding="utf-8") as stream:
        patch.setattr(power, "QUICK", extent)
        patch.setattr(power, "SPEED_CELLS", (40,))
        patch.setattr(power, "tasks", lambda _effort, quick: tasks)  # noqa: ARG005
        patch.setattr(sys, "stdout", stream)
        power.main(["--json", "--quick", "--workers", "1", "--seed", "5"])
    return out


@pytest.mark.validation
def test_one_json_object_with_every_table(saved: Path) -> None:
    result = json.loads(saved.read_text(encoding="utf-8"))
    keys = {name: set(result[name][0]) for name in ("power", "errors", "alarms", "coverage")}
    assert {"cells", "records", "epsilon", "kind", "chi2", "default", "ratio"} <= keys["power"]
    methods = {"default", "ask_kl", "trust_none", "textbook", "previous"}
    measured = methods | {"predicted", "predicted_ask_kl", "predicted_trust_none"}
    assert measured | {"cells", "records", "epsilon", "drift"} <= keys["errors"]
    assert {"world", "trust", "rate", "upper"} <= keys["alarms"]
    assert {"case", "trust", "rate", "lower"} <= keys["coverage"]
    assert [row["kind"] for row in result["power"]] == ["smooth", "rare", "heavy"]
    assert all(row["ratio"] > 0.5 for row in result["power"])
    assert len(result["errors"]) == 6
    assert all(row[name] > 0 for row in result["errors"] for name in measured)
    assert result["speed"][0]["asked"] == 40
    assert all(set(bar) >= {"bar", "worst", "limit", "holds"} for bar in result["bars"])


def test_the_seed_changes_all_that_is_random(bench: Any) -> None:
    domain = bench.power_worlds.domain
    for name in bench.power_worlds.DOMAINS:
        assert np.array_equal(domain(name, 30, 1), domain(name, 30, 1))
        assert not np.allclose(domain(name, 30, 1), domain(name, 30, 2))
    draw = bench.power_worlds.generator
    assert draw(1, "a", 2).random() == draw(1, "a", 2).random() != draw(2, "a", 2).random()


@pytest.mark.parametrize("kind", ["smooth", "rare", "heavy"])
@pytest.mark.parametrize("nats", [1e-4, 0.02, 0.1])
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


def test_the_previous_default_has_its_exact_sensitivity(bench: Any) -> None:
    """The library's own: no drift and huge counts leave nothing but the noise, of mean |L| = b."""
    records, epsilon = 60_000, 1.0
    held = np.round(PI * records).astype(np.int64)[None]
    points = all_points(Reference.from_probabilities(PI).probabilities)
    first = PI * np.log1p(99 / (records * PI))
    found = float(bench.power_rivals.previous_errors(held, np.zeros(1), PI, epsilon)[0])
    step = found * epsilon
    score = Score(Skew(0.01), maximum_step=step)
    delta = score_sensitivity(points, np.array([records]), score)
    assert delta == pytest.approx(step, rel=1e-6)
    assert 0.5 < step / first.max() < 0.95


def test_the_textbook_error_grows_with_its_noise(bench: Any) -> None:
    rng = np.random.default_rng(5)
    held = rng.multinomial(5_000, PI, 4)
    truth = bench.power_worlds.truths(PI, held)
    errors = bench.power_rivals.textbook_errors
    standard = rng.standard_exponential((2, 4, 25, len(PI)))
    little, much = (errors(held, truth, PI, eps, standard, rng).mean() for eps in (10.0, 0.1))
    assert 10 * little < much


def test_alarms_that_come_together_count_for_less(bench: Any) -> None:
    limit = bench.power_measures.upper_limit
    apart, together = [0.01] * 100, [0.0] * 90 + [0.1] * 10
    exact = float(scipy.special.betaincinv(21, 1980, 0.99))  # 20 alarms in 2,000
    assert limit(apart, 20) == pytest.approx(exact)
    assert limit(together, 20) > limit(apart, 20)
    assert limit([0.0] * 10, 10) == pytest.approx(1 - 0.01 ** (1 / 100))
    assert limit([1.0], 5) == 1


@pytest.mark.parametrize(("release", "records"), [("counts", 3_000), ("adaptive", 100_000)])
def test_many_releases_at_once_are_those_of_the_library(
    bench: Any, release: str, records: int
) -> None:
    """Errors are those of drawn values, and those of whole releases: 300 of them are within 30%."""
    pi = PI if release == "counts" else bench.power_worlds.domain("lognormal", 40, 11)
    ours = bench.power_default.planned(pi, records, 30, 1.0)
    assert ours.plan.question.release == release
    rng = np.random.default_rng(6)
    held = np.repeat(rng.multinomial(records, pi, 1), 300, axis=0)
    truth = bench.power_worlds.truths(pi, held)
    standard = rng.standard_exponential((2, 20, 60, len(pi)))
    mean = ours.errors(held[:20], truth[:20], standard, rng)
    drawn = ours.values(held, rng) - truth
    sums = ours.opened(ours.points, held[:1], rng)
    released = [ours.estimate(ours.points, sums, rng).value for _ in held] - truth
    assert np.abs(drawn).mean() == pytest.approx(mean.mean(), rel=0.3)
    assert np.abs(released).mean() == pytest.approx(mean.mean(), rel=0.3)


def test_shares_of_few_clients_carry_the_noise_they_add(bench: Any) -> None:
    """More than one Laplace variable: not what the textbook adds. Means of 1,500 within 15%."""
    ours = bench.power_default.planned(PI, 3_000, 12, 1.0, trust="none")
    noise = ours.release.noise
    assert noise.sd > 1.15 * math.sqrt(2) * noise.scale
    rng = np.random.default_rng(8)
    held = rng.multinomial(3_000, PI, 60)
    truth = bench.power_worlds.truths(PI, held)
    standard = rng.standard_exponential((2, 60, 25, len(PI)))
    mean = ours.errors(held, truth, standard, rng).mean()
    rows = np.repeat(held, 25, axis=0)
    drawn = ours.values(rows, rng) - np.repeat(truth, 25)
    assert mean == pytest.approx(np.abs(drawn).mean(), rel=0.15)


def test_intervals_of_numbers_are_those_of_the_library(bench: Any) -> None:
    pi = bench.power_worlds.domain("lognormal", 40, 11)
    ours = bench.power_default.planned(pi, 100_000, 30, 1.0)
    held = np.random.default_rng(9).multinomial(100_000, pi, 12)
    found = ours.intervals(held, np.random.default_rng(10))
    values = ours.values(held, np.random.default_rng(10))
    rng = np.random.default_rng(11)
    limits = ours.estimate(ours.points, ours.opened(ours.points, held[:1], rng), rng).limits
    for i in (0, 5):
        exact = limits.func(float(values[i]), *limits.args[1:], **limits.keywords).printed
        assert found[i] == pytest.approx(exact, rel=0.02)


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


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_threshold_serves_all_releases(bench: Any, trust: str) -> None:
    """It is that of the library's own verdict on a release."""
    ours = bench.power_default.planned(PI, 3_000, 30, 1.0, trust=trust)
    rng = np.random.default_rng(7)
    sums = ours.opened(ours.points, rng.multinomial(3_000, PI, 1), rng)
    cohorts = cohort_sizes(ours.plan, 30)
    source = InsecureSeededNoise(1)
    found = estimate_sums(ours.trust, (ours.points,), sums, cohorts, source=source, rng=rng)
    verdict = found.judge(0.01, ours.simulated.spread)[0]
    thresholds = sorted(threshold for _, threshold in ours.statistics)
    assert sorted(each.threshold for each in verdict.statistics) == pytest.approx(thresholds)


def test_bars_hold_or_not(bench: Any) -> None:
    tables = bench.power_tables
    cell = {"cells": 30, "records": 5_000, "epsilon": 1.0}
    error = {"default": 1.0, "ask_kl": 0.6, "textbook": 1.0, "previous": 4.5, "predicted": 1.4}
    error |= {"predicted_ask_kl": 0.1, "trust_none": 1.0, "predicted_trust_none": 1.6}
    result = {
        "power": [
            cell | {"kind": "smooth", "chi2": 0.01, "default": 0.014, "ratio": 1.4},
            cell | {"kind": "rare", "chi2": 0.01, "default": None, "ratio": None},
        ],
        "errors": [cell | error | {"drift": "none"}],
        "alarms": [{"upper": 0.021}],
        "coverage": [{"lower": 0.94}],
        "speed": [{"cells": 250, "seconds": 0.04}, {"cells": 65_536, "seconds": 2.0}],
    }
    held = {bar["bar"]: bar["holds"] for bar in tables.bars(result)}
    drift = "smallest drift / chi-square, epsilon 1, "
    assert held[f"{drift}N >= 5,000, smooth"]
    assert not held[f"{drift}N >= 5,000, rare"]
    assert not held[f"{drift}N = 720, smooth"]  # nothing was measured
    assert held["error of ask kl / textbook, worst"]
    assert held["error of default / textbook, worst"]
    assert held["previous error / default, N >= 5,000, K <= 62, drift <= 0.05, worst"]
    assert held["predicted / measured, default, largest"]
    assert not held["predicted / measured, ask_kl, smallest"]
    assert not held["predicted / measured, trust_none, largest"]
    assert not held["false alarms at 1%, upper limit"]
    assert held["coverage, lower limit"]
    assert held["seconds of a release of 250 cells"]
    assert not held["seconds of a release of 65,536 cells"]


def test_every_task_of_the_benchmark_has_its_table(bench: Any) -> None:
    effort = bench.power_measures.Effort(data=Path("digits"))
    for quick in (True, False):
        tasks = list(bench.power.tasks(effort, quick=quick))
        assert {name for name, _, _ in tasks} == {"power", "errors", "alarms", "coverage"}
    asked = [arguments for name, _, arguments in tasks if name == "errors"]
    assert len(asked) == len(set(asked)) == 3 * 4 * 4 * 2
    assert ("digits", 250, 400_000, 0.1) in asked
    assert ("writers, one digit", "none") in [arguments for _, _, arguments in tasks]


def test_tables_are_printed_and_written_between_their_marks(
    saved: Path,
    bench: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "RESULTS.md"
    shutil.copy(ROOT / "benchmarks" / page.name, page)
    write = bench.power_tables.write_docs
    monkeypatch.setattr(bench.power, "write_docs", lambda result: write(result, page))
    before = page.read_text(encoding="utf-8")
    bench.power.main(["--read", str(saved), "--write-docs"])
    after = page.read_text(encoding="utf-8")
    table = bench.power_tables.alarms_table(json.loads(saved.read_text(encoding="utf-8")))
    assert table in after
    assert table in capsys.readouterr().out
    assert before.split("<!--")[0] == after.split("<!--")[0]
    bench.power.main(["--read", str(saved), "--write-docs"])
    assert page.read_text(encoding="utf-8") == after
