"""A divergence in one file of its own goes through everything that KL goes through."""

import html
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import (
    KL,
    Divergence,
    Score,
    Skew,
    divergence_named,
    divergences,
    register,
    skewed_divergence,
)
from fedprikl.divergence.divergences import KullbackLeibler
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    CountsDesign,
    NoisyCounts,
    estimate_noisy_counts,
    judge_together,
    score_sensitivity,
    trusted_aggregator,
    weighted_score,
)
from fedprikl.estimation.drift_model import drifted_ratios, model_drift
from fedprikl.estimation.interval import counts_interval
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.simulated_releases import CountsNoise, simulated_errors
from fedprikl.estimation.statistic import variation_statistic
from fedprikl.planning import (
    Design,
    DesignForecast,
    PlannedRound,
    Spectrum,
    plan_round,
    search_designs,
)
from fedprikl.planning.explain import design_reasons
from fedprikl.protocol import Plan, Question, Release
from fedprikl.protocol.plan import Trust
from fedprikl.reference import all_points, distinct_points, spread_points
from fedprikl.reporting import release_page
from tests.brute_force import Histogram, largest_change
from tests.extending.page import module
from tests.protocol.worlds import InsecureNoNoise, World, budgeted

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def triangular(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Divergence]:
    made = module("A divergence", tmp_path_factory.mktemp("page"), name="triangular")
    yield made.TRIANGULAR
    del divergences._known["triangular"]


def zipf(cells: int) -> Floats:
    mass = 1 / np.arange(1.0, cells + 1)
    normalised: Floats = mass / mass.sum()
    return normalised


def drifted(pi: Floats, records: int, seed: int = 1) -> Ints:
    """Counts of a population whose divergence from Pi is plain."""
    rng = np.random.default_rng(seed)
    p = pi * np.exp(rng.normal(size=len(pi)))
    return np.asarray(rng.multinomial(records, p / p.sum()))


def by_definition(pi: Floats, p: Floats, skew: float) -> float:
    """sum (P' - Pi)^2 / (P' + Pi)."""
    some = (pi > 0) | (p > 0)
    effective = (skew * pi + (1 - skew) * p)[some]
    return float(np.sum((effective - pi[some]) ** 2 / (effective + pi[some])))


def test_it_is_known_by_its_name(triangular: Divergence) -> None:
    assert divergence_named("triangular") is triangular
    assert Score(divergence=triangular).target == "T(Pi || 0.01 Pi + 0.99 P)"
    with pytest.raises(InvalidInputError, match=r"Known: .*kl, .*triangular"):
        divergence_named("triangle")
    with pytest.raises(InvalidInputError, match="already"):
        register(type(triangular)())


def test_its_exact_value_is_its_definition(triangular: Divergence) -> None:
    pi = np.append(zipf(20), 0.0)  # the last cell is outside the reference
    p = drifted(np.append(zipf(20), 0.1), 1000) / 1000
    found = skewed_divergence(pi, p, skew=0.02, divergence=triangular)
    assert found == pytest.approx(by_definition(pi, p, 0.02), rel=1e-12)
    assert skewed_divergence(pi, pi, skew=0.02, divergence=triangular) == 0
    near = pi + 1e-7 * np.append(np.resize([1, -1], 20), 0)
    tiny = skewed_divergence(pi, near, skew=0.02, divergence=triangular)
    assert tiny == pytest.approx(by_definition(pi, near, 0.02), rel=1e-3)


@pytest.mark.parametrize(
    ("smoothing", "step"),
    [(Skew(0.01), math.inf), (Skew(0.01), 0.1), (Skew(0.3), 0.05), (Skew(0.0), math.inf)],
)
def test_the_sensitivity_is_that_of_all_neighbours(
    triangular: Divergence, smoothing: Skew, step: float
) -> None:
    """Even without a skew: f(0) = 2 is finite, so an empty cell has a finite score."""
    points, records = all_points([0.6, 0.25, 0.15, 0.0]), np.array([7])
    score = Score(smoothing, triangular, maximum_step=step)

    def value(histogram: Histogram) -> float:
        return weighted_score(BatchCounts(points, np.array(histogram[:-1]), records), score)

    found = score_sensitivity(points, records, score)
    brute = largest_change(value, 4, 7)
    assert brute <= found <= brute * (1 + 1e-9)


def test_the_slack_for_rounding_covers_its_scores(triangular: Divergence) -> None:
    score, pi, n = Score(Skew(0.01), triangular), np.array([1e-4, 0.3]), np.array([500, 500])
    for h in range(501):
        v = score.ratio(h, pi, n)
        reach = np.abs(triangular.f(v)) + np.abs(v * triangular.slope(v)) + 1
        assert np.all(reach <= score.bound(pi, n))


def test_the_moment_bound_of_the_interval(triangular: Divergence) -> None:
    """f^2 / gap = 4 / (v + 1): the numbers find its maximum, at v = skew."""
    assert triangular.square_ratio(0.01, 1e4) == pytest.approx(4 / 1.01, rel=1e-6)
    assert Divergence.square_ratio(KL, 0.01, 1e4) == pytest.approx(KL.square_ratio(0.01, 1e4))
    assert triangular.largest(0.01, 1e4) == pytest.approx(2 * 0.99 / 1.01)
    assert Divergence.largest(KL, 0.01, 1e4) == pytest.approx(math.log(100))


def test_a_release_has_interval_verdict_and_words(triangular: Divergence) -> None:
    """200 releases: at least 90% of the intervals cover (a true 95% fails with p = 0.001)."""
    pi, rng, source = zipf(300), np.random.default_rng(6), InsecureSeededNoise(7)
    counts, score = drifted(pi, 50_000), Score(Skew(0.01), triangular)
    truth = skewed_divergence(pi, counts / counts.sum(), skew=0.01, divergence=triangular)
    covered, repetitions = 0, 200
    for _ in range(repetitions):
        points = distinct_points(pi, 40, rng=rng)
        seen = BatchCounts(points, counts[points.cells], np.array([50_000]))
        found = trusted_aggregator(seen, epsilon=0.5, score=score, source=source)
        low, high = found.interval or (math.nan, math.nan)
        assert 0 <= low <= high <= triangular.largest(0.01, 1 / points.pi_min)
        covered += low <= truth <= high
    assert covered / repetitions >= 0.9
    assert f"T(Pi || 0.01 Pi + 0.99 P) is about {found.value:.4f} units" in str(found)
    verdict = found.verdict()
    assert verdict.drifted
    assert "triangular (9" in str(verdict)


def test_the_verdict_keeps_its_false_alarm_rate(triangular: Divergence) -> None:
    """400 populations without drift at 10%: at most 60 alarms (exceeded with p = 0.001)."""
    pi, rng, source = zipf(50), np.random.default_rng(2), InsecureSeededNoise(3)
    points, score, n = all_points(pi), Score(Skew(0.01), triangular), 5_000
    alarms, threshold = 0, None
    for _ in range(400):
        seen = BatchCounts(points, rng.multinomial(n, pi), np.array([n]))
        found = trusted_aggregator(seen, epsilon=0.5, score=score, source=source)
        threshold = threshold or found.verdict(0.1).statistics[0].threshold
        alarms += found.value > threshold
    assert alarms <= stats.binom.isf(1e-3, 400, 0.1)
    assert alarms > 10  # the threshold is not merely far away


def test_a_drift_model_has_its_divergence(triangular: Divergence) -> None:
    pi, score = zipf(300), Score(Skew(0.01), triangular)
    for size in triangular.drifts(0.01):
        model = model_drift(pi, pi, divergence=size, score=score, draws=2**16)
        assert float(model.scores.mean()) == pytest.approx(size, rel=0.05, abs=2e-3)
    with pytest.raises(InvalidInputError, match="out of reach"):
        model_drift(pi, pi, divergence=1.9, score=score)


def test_a_search_of_designs_predicts_its_errors(triangular: Divergence) -> None:
    spectrum, score = Spectrum.of(zipf(300)), Score(Skew(0.01), triangular, correction=1.0)
    sizes: dict[str, Any] = {"records": 20_000, "noise_per_sensitivity": 2.0}
    searched = search_designs(spectrum, score=score, points={1: 30, 4: 30}, **sizes)
    found = min(searched, key=lambda each: each.error)
    assert [each.divergence for each in found.forecasts] == list(triangular.drifts(0.01))
    assert all(0 < each.error < 1 for each in found.forecasts)


def test_the_predicted_noise_is_that_of_a_release(triangular: Divergence) -> None:
    pi, score = zipf(100), Score(Skew(0.01), triangular)
    sizes: dict[str, Any] = {"records": 9_000, "noise_per_sensitivity": 1.0}
    found, *_ = search_designs(Spectrum.of(pi), points={1: 100}, score=score, **sizes)
    predicted = found.forecasts[0].noise_sd
    points = spread_points(pi, 100, batches=1, rng=np.random.default_rng(1))
    assert predicted == pytest.approx(score_sensitivity(points, np.array([9_000]), score))


def test_noisy_counts_are_estimated_and_judged(triangular: Divergence) -> None:
    pi, score, rng = zipf(100), Score(Skew(0.01), triangular), np.random.default_rng(4)
    points, counts = all_points(pi), drifted(pi, 50_000)
    noise, records = CountNoise(sd=10.0), np.array([50_000])
    noisy = NoisyCounts.of(np.append(counts, 0) + rng.normal(0, 10, 101), records, [noise])
    truth = skewed_divergence(pi, counts / 50_000, skew=0.01, divergence=triangular)
    value, noise_sd = estimate_noisy_counts(points, noisy, score=score, rng=rng)
    assert value == pytest.approx(truth, abs=5 * noise_sd)
    limits = counts_interval(points, noisy, value, score=score)
    assert limits is not None
    low, high = limits.printed
    assert low <= truth <= high
    assert high - low < 0.2
    design = CountsDesign.of(points, noisy)
    statistic = variation_statistic(design, np.array(noisy.counts))
    assert judge_together([statistic], NoDrift.of(points, records, 1.0), false_alarm=0.01).drifted
    ratios = drifted_ratios(pi, "shuffled", 0.4, score)
    assert ratios is not None
    errors = simulated_errors(points, records, ratios, score, CountsNoise(noise))
    assert 0 < errors.mean_absolute < 0.1


def plan_for(world: World, trust: Trust, **changes: Any) -> PlannedRound:
    settings: dict[str, Any] = {
        "clients": len(world.held),
        "records": int(world.held.sum()),
        "epsilon": 1.0,
        "population": "testers",
        "trust": trust,
        "ask": ("triangular",),
    }
    return plan_round(world.reference, **settings | changes)


def one_number(plan: Plan) -> Plan:
    """The plan with its answer as a number with noise, where the aggregator is trusted."""
    how: Any = "value" if plan.trust == "aggregator" else "counts"
    return replace(plan, questions=(replace(plan.question, release=how),))


@pytest.mark.usefixtures("triangular")
@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_plan_asks_for_it_and_predicts_its_error(trust: Trust) -> None:
    world = World.make()
    planned, of_kl = (plan_for(world, trust, ask=(name,)) for name in ("triangular", "kl"))
    assert planned.plan.question.divergence == "triangular"
    assert Plan.from_dict(planned.plan.to_dict()) == planned.plan
    assert {f.kind for f in planned.forecasts} == {
        "none",
        "smooth",
        "rare",
        "heavy",
        "gone",
        "unseen",
    }
    assert planned.smallest_drift is None or 0 < planned.smallest_drift < 2
    assert planned.plan.fingerprint != of_kl.plan.fingerprint
    why = {reason.parameter: reason.why for reason in planned.reasons}
    assert "T(Pi || skew Pi + (1 - skew) P)" in why["skew"]


def test_a_plan_of_several_batches_says_that_it_corrects_nothing(triangular: Divergence) -> None:
    design, asked = Design(points=30, batches=4, exponent=1.0), Question()
    for divergence, value in ((triangular, "none"), (KL, "full")):
        reasons = design_reasons(DesignForecast(design, ()), [], divergence, asked)
        assert reasons[-1].value == value


@pytest.mark.usefixtures("triangular")
def test_a_party_that_does_not_know_it_refuses_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    document = plan_for(World.make(), "aggregator").plan.to_dict()
    monkeypatch.delitem(divergences._known, "triangular")
    with pytest.raises(InvalidInputError, match="no divergence 'triangular'"):
        Plan.from_dict(document)


@pytest.mark.usefixtures("triangular")
@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_round_releases_it(trust: Trust) -> None:
    """Without noise the release is the divergence of the counts, as defined on paper."""
    world = World.make()
    plan = one_number(plan_for(world, trust).plan)
    result = world.run(plan, source=InsecureNoNoise())
    counts = world.held.sum(axis=0)
    pi = np.append(world.reference.probabilities, 0.0)[: len(counts)]
    assert result.release.value == pytest.approx(
        by_definition(pi, counts / counts.sum(), 0.01), abs=0.02 if trust == "none" else 1e-9
    )


@pytest.mark.usefixtures("triangular")
@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_charged_release_has_interval_verdict_and_report(trust: Trust, tmp_path: Path) -> None:
    world = World.make()
    world.held[:, 0] *= 9  # drift
    plan = one_number(plan_for(world, trust).plan)
    with budgeted(tmp_path / "ledger") as ledger:
        release = Release.from_bytes(world.run(plan, ledger=ledger).release.to_bytes())
    assert release.is_signed_by(world.key.public)
    assert release.interval is not None
    low, high = release.interval
    assert 0 <= low < high <= 2
    page = release_page(release, plan, {})
    assert "T(Pi || 0.01 Pi + 0.99 P)" in html.unescape(page)
    assert "Drift found" in page
    assert "nats" not in page
    if trust == "aggregator":  # its verdict is about the value itself
        assert "times its threshold" in page


class Rising(Divergence):
    """Reverse KL, v ln v - (v - 1): f rises without end, so ratios up to 1 / min Pi matter."""

    __slots__ = ()
    name, unit, curvature = "rising", "nats", 1.0

    def f(self, v: Floats) -> Floats:
        return np.asarray(v * np.log(v) - (v - 1))

    def slope(self, v: Floats) -> Floats:
        return np.asarray(np.log(v))


def test_a_divergence_that_rises_without_end() -> None:
    """Its largest value, its sensitivity and the bound of its mean square are still right."""
    rising, pi = Rising(), np.array([0.5, 0.3, 0.2])
    corner = np.array([0.0, 0.0, 1.0])
    largest = rising.largest(0.01, 0.01 + 0.99 / 0.2)
    assert largest == pytest.approx(skewed_divergence(pi, corner, skew=0.01, divergence=rising))
    bound, rng = rising.square_ratio(0.01, 5.0), np.random.default_rng(1)
    for p in rng.dirichlet([0.3, 0.3, 0.3], 200):
        v = 0.01 + 0.99 * p / pi
        divergence = float(pi @ rising.f(v))
        assert divergence <= largest
        assert float(pi @ rising.f(v) ** 2) <= bound * divergence * (1 + 1e-6)
    points, n, score = all_points([*pi, 0.0]), np.array([6]), Score(Skew(0.01), rising)
    brute = largest_change(
        lambda h: weighted_score(BatchCounts(points, np.array(h[:-1]), n), score), 4, 6
    )
    assert brute <= score_sensitivity(points, n, score) <= brute * (1 + 1e-9)
    sizes: dict[str, Any] = {"records": 6, "noise_per_sensitivity": 1.0}
    found, *_ = search_designs(Spectrum.of(pi), points={1: 3}, score=score, **sizes)
    assert found.forecasts[0].noise_sd == pytest.approx(brute)


class Wrong(Divergence):
    """Each of the cases below spoils one thing."""

    __slots__ = ("changes",)
    name, unit, curvature = "wrong", "nats", 1.0

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def f(self, v: Floats) -> Floats:
        return np.asarray(self.changes.get("f", lambda v: -np.log(v))(v))

    def slope(self, v: Floats) -> Floats:
        return np.asarray(self.changes.get("slope", lambda v: -1 / v)(v))

    def corrected(self, v: Floats, variance: Floats) -> Floats:
        return np.asarray(self.changes.get("corrected", lambda v, _: self.f(v))(v, variance))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"f": lambda v: 1 - np.log(v)}, "must be 0"),
        ({"f": lambda v: v * np.log(v), "slope": lambda v: np.log(v) + 1}, "not above 0"),
        ({"f": lambda v: -np.sin(v - 1), "slope": lambda v: -np.cos(v - 1)}, "not convex"),
        ({"slope": lambda v: -1.2 / v}, "not its derivative"),
        ({"corrected": lambda v, variance: -np.log(v) - variance / (2 * v**2)}, "not convex in"),
    ],
)
def test_what_is_not_a_divergence_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        register(Wrong(**changes))
    with pytest.raises(InvalidInputError, match="no divergence 'wrong'"):
        divergence_named("wrong")


class Flat(KullbackLeibler):
    """KL, but constant where `register` does not look."""

    __slots__ = ()
    name, proved = "flat", False

    def f(self, v: Floats) -> Floats:
        return np.asarray(np.where(v < 5e-7, -np.log(4e-3), super().f(np.maximum(v, 5e-7))))


def test_a_score_that_is_not_convex_where_it_is_used_releases_nothing() -> None:
    """The check of `register` has an end; the noise is checked again for the very cells."""
    points = spread_points(np.full(4, 0.25), 4, batches=1, rng=np.random.default_rng(1))
    records = np.array([1000])
    assert score_sensitivity(points, records, Score(Skew(0.01), divergence=Flat())) > 0
    with pytest.raises(InvalidInputError, match="not convex in the count"):
        score_sensitivity(points, records, Score(Skew(1e-9), divergence=Flat()))
