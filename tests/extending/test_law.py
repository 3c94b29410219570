"""The noise law of docs/extending.md, one file, goes wherever the built-in ones go."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError, libraries
from fedprikl.audit import audit, audit_plan
from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.errors import BudgetExceededError, LedgerError
from fedprikl.estimation import BatchCounts, trusted_aggregator
from fedprikl.estimation.interval import value_interval
from fedprikl.estimation.scoring import AskedNumber
from fedprikl.estimation.verdict import alarm_threshold
from fedprikl.privacy import (
    Calibrated,
    InsecureSeededNoise,
    LaplaceMechanism,
    Ledger,
    Mechanism,
    Numbers,
    PureLoss,
    SecureNoise,
    calibrate,
    charges,
    laws,
    register_charge,
    register_law,
    total_epsilon,
)
from fedprikl.protocol import Plan
from fedprikl.reference import spread_points
from tests.extending.page import module
from tests.false_alarm import FALSE_ALARM
from tests.protocol.worlds import World, budgeted

pytestmark = pytest.mark.slow

AT = "2030-01-31T12:00:00+00:00"
KIND = "twice_laplace"


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield module("A noise law", tmp_path_factory.mktemp("extension"), name="twice_laplace_example")
    forget()
    del sys.modules["twice_laplace_example"]


def forget() -> None:
    """As in a process that has not imported the file."""
    charges._NAMES.pop(charges._KINDS.pop(KIND, object), None)
    laws._LAWS.pop(KIND, None)


@pytest.fixture
def noise(extension: Any) -> Mechanism:
    made: Mechanism = extension.TwiceLaplaceMechanism(scale=2.0, sensitivity=1.0)
    return made


def test_it_is_charged_committed_and_read_back(noise: Mechanism, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.set_budget("people", epsilon=1.0, delta=1e-6, at=AT)
        held = ledger.reserve("people", noise, round_id="one", at=AT)
        ledger.commit(held, release_hash="0" * 64, at=AT)
    with Ledger.open(path) as ledger:
        account = ledger.account("people")
        assert [each.charge for each in account.rounds] == [noise]
        assert account.spent == pytest.approx(0.5)
        assert account.to_dict()["rounds"][0]["charge"] == {
            "kind": KIND,
            "scale": 2.0,
            "sensitivity": 1.0,
        }
        twice = type(noise)(scale=1.0, sensitivity=1.0)  # type: ignore[call-arg]
        with pytest.raises(BudgetExceededError, match="twice Laplace noise of scale 1"):
            ledger.reserve("people", twice, round_id="two", at=AT)


def test_a_process_without_the_file_says_what_it_lacks(noise: Mechanism, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.set_budget("people", epsilon=1.0, delta=1e-6, at=AT)
        ledger.reserve("people", noise, round_id="one", at=AT)
    forget()
    try:
        with pytest.raises(LedgerError, match=r"'twice_laplace'.*Import the module"):
            Ledger.open(path)
    finally:
        register_charge(KIND)(type(noise))
        register_law(KIND, on=Numbers)(type(noise))
    with Ledger.open(path) as ledger:
        assert [each.charge for each in ledger.account("people").rounds] == [noise]


def test_it_composes_with_other_kinds(noise: Mechanism) -> None:
    laplace = calibrate(Numbers(), epsilon=0.5, law="laplace")
    gaussian = calibrate(Numbers(), epsilon=0.5, delta=1e-6, law="gaussian")
    alone = total_epsilon([noise], delta=0.0)
    assert alone == noise.epsilon(0.0) == pytest.approx(0.5)
    mixed = total_epsilon([noise, laplace, gaussian], delta=1e-6)
    assert mixed == total_epsilon([gaussian, noise, laplace], delta=1e-6)
    assert max(1.0, total_epsilon([laplace, gaussian], delta=1e-6)) < mixed <= 1.5 + 0.1
    many = total_epsilon([noise] * 60, delta=1e-6)
    assert total_epsilon([laplace] * 60, delta=1e-6) < many < 60 * alone  # known only by its bound


def test_many_compose_like_randomised_response() -> None:
    """Against the exact sum over how often of n answers are true: the worst pure mechanism."""
    epsilon, n, delta = 0.3, 40, 1e-6

    @register_charge("test_pure")
    @dataclass(frozen=True)
    class Pure(Mechanism):
        @property
        def loss(self) -> PureLoss:
            return PureLoss(epsilon)

        def check(self) -> None: ...

    releases: Any = [Pure()] * n
    found = total_epsilon(releases, delta=delta)
    true = stats.binom.pmf(np.arange(n + 1), n, 1 / (1 + np.exp(-epsilon)))
    loss = epsilon * (2 * np.arange(n + 1) - n)

    def exact(at: float) -> float:
        return float(true @ np.maximum(0.0, -np.expm1(np.minimum(at - loss, 0.0))))

    assert exact(found) <= delta < exact(found * 0.995)
    charges._NAMES.pop(charges._KINDS.pop("test_pure"))


def test_its_law_is_what_it_draws(noise: Mechanism) -> None:
    drawn = noise.add_to(np.zeros(40_000), SecureNoise())
    assert fits(drawn, noise) > FALSE_ALARM
    wrong = LaplaceMechanism(scale=2.0 * math.sqrt(2), sensitivity=1.0)  # the same deviation
    assert fits(drawn, wrong) < FALSE_ALARM


def fits(drawn: Floats, noise: Mechanism) -> float:
    """The p-value of a Kolmogorov-Smirnov test: uniform, if the noise has this law."""
    return float(stats.kstest(noise.survival(drawn), "uniform").pvalue)


@pytest.mark.parametrize("error_sd", [0.1, 3.0, 40.0])
@pytest.mark.parametrize("probability", [0.3, 0.95, 0.999])
def test_its_quantiles(noise: Mechanism, error_sd: float, probability: float) -> None:
    """Of the noise plus a normal error: the noise in fine cells, the error exactly."""
    found = noise.quantile(probability, error_sd=error_sd)
    edges = np.linspace(-100, 100, 20_001)
    masses = -np.diff(noise.survival(edges))
    below = stats.norm.cdf((found - (edges[1:] + edges[:-1]) / 2) / error_sd)
    assert masses @ below == pytest.approx(probability, abs=2e-5)
    alone = noise.quantile(probability)
    assert noise.survival(np.array([alone]))[0] == pytest.approx(1 - probability)


def test_its_alarm_threshold(noise: Mechanism) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(5.0, 0.5, 40_000)
    threshold = alarm_threshold(values, noise, false_alarm=0.01)
    drawn = values + noise.add_to(np.zeros(len(values)), InsecureSeededNoise(2))
    above = int(np.count_nonzero(drawn > threshold))
    assert stats.binom.sf(above, len(values), 0.01) > FALSE_ALARM
    assert stats.binom.cdf(above, len(values), 0.008) < 1 - FALSE_ALARM
    assert threshold > alarm_threshold(
        values, LaplaceMechanism(scale=2.0, sensitivity=1.0), false_alarm=0.01
    )


def counts() -> BatchCounts:
    pi = np.full(6, 1 / 6)
    points = spread_points(pi, 6, batches=1, rng=np.random.default_rng(0))
    held = np.array([900, 1100, 1000, 950, 1050, 1000])
    return BatchCounts(points, held[points.cells], np.array([held.sum()]))


def test_its_interval_lies_between_narrower_and_wider_noise(noise: Mechanism) -> None:
    asked = counts()

    def width(scale: float) -> float:
        limits = value_interval(
            0.3,
            type(noise)(scale=scale, sensitivity=0.01),  # type: ignore[call-arg]
            AskedNumber(asked.points, asked.records, Score()),
        )
        assert limits is not None
        return limits.printed[1] - limits.printed[0]

    assert 0 < width(0.005) < width(0.01) < width(0.02)
    once = value_interval(
        0.3,
        LaplaceMechanism(scale=0.01, sensitivity=0.01),
        AskedNumber(asked.points, asked.records, Score()),
    )
    assert once is not None
    assert width(0.01) > once.printed[1] - once.printed[0]


def test_it_makes_a_release_by_its_name(noise: Mechanism) -> None:
    kind: Any = KIND
    estimate = trusted_aggregator(counts(), epsilon=1.0, noise=kind)
    assert estimate.privacy.holds
    assert estimate.privacy.delta == 0
    assert "twice Laplace noise" in str(estimate.privacy)
    assert estimate.interval is not None
    assert 0 < estimate.verdict().statistics[0].threshold < math.log(100)
    resolved = Calibrated(Numbers(), 1.0, 1e-6, KIND)
    assert type(resolved.charge) is type(noise)
    assert resolved.for_sensitivity(0.2) == calibrate(
        Numbers(0.2), epsilon=1.0, delta=1e-6, law=KIND
    )


def test_a_plan_names_it_and_clients_agree(noise: Mechanism, tmp_path: Path) -> None:
    """From the plan's text to the release: policy, draw, charge, ledger and privacy statement."""
    world = World.make()
    plan = Plan.from_dict(world.plan(noise=KIND).to_dict())
    with budgeted(tmp_path / "ledger.db") as ledger:
        found = world.run(plan, ledger=ledger)
        (charge,) = [each.charge for each in ledger.account("testers").rounds]
    assert charge == type(noise).calibrated(Numbers(), epsilon=1.0, delta=1e-6)
    assert found.release.privacy.holds
    assert "twice Laplace noise" in found.release.privacy.mechanism
    with pytest.raises(InvalidInputError, match="is not for Counts"):
        world.plan(noise=KIND, release="counts")


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_the_audit_of_a_plan_tries_it(
    noise: Mechanism, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise that is too small for what the plan says is seen; beside noise of another law."""
    world, full = World.make(), type(noise).calibrated

    def small(on: Numbers, *, epsilon: float, delta: float) -> Mechanism:
        return full(Numbers(share * on.sensitivity), epsilon=epsilon, delta=delta)

    monkeypatch.setattr(type(noise), "calibrated", small)
    plan = world.plan(noise=KIND)
    kl = replace(plan.questions[0], share=0.5)
    tv = replace(kl, divergence="tv", noise="laplace")
    plan = replace(plan, questions=(kl, tv))
    found = audit_plan(plan, world.reference, trials=2000)
    assert [result.refuted for _, result in found.questions] == [share < 1, False]


def test_a_party_without_the_file_refuses_the_plan(noise: Mechanism) -> None:
    document = World.make().plan(noise=KIND).to_dict()
    forget()
    try:
        with pytest.raises(InvalidInputError, match=r"no noise 'twice_laplace'.*install it"):
            Plan.from_dict(document)
    finally:
        register_charge(KIND)(type(noise))
        register_law(KIND, on=Numbers)(type(noise))


def test_an_installed_extension_is_found(noise: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point, when its name is met: in a plan and in a ledger."""
    written = charges.charge_to_dict(noise)

    def load() -> None:
        register_charge(KIND)(type(noise))
        register_law(KIND, on=Numbers)(type(noise))

    points = {"fedprikl.laws": [SimpleNamespace(load=load)]}
    monkeypatch.setattr(libraries, "entry_points", lambda *, group: points.get(group, []))
    for where in ("plan", "ledger"):
        forget()
        libraries.load_extensions.cache_clear()
        found: Any = (
            calibrate(Numbers(), epsilon=1.0, law=KIND)
            if where == "plan"
            else charges.charge_from_dict(written)
        )
        assert type(found) is type(noise)
    libraries.load_extensions.cache_clear()


@pytest.mark.parametrize(("claim", "refuted"), [(1.0, False), (0.25, True)])
def test_the_audit_tries_it(extension: Any, claim: float, refuted: bool) -> None:
    """On two worlds that are as far apart as the sensitivity; the truth is epsilon 1."""
    tried = extension.TwiceLaplaceMechanism(scale=1.0, sensitivity=1.0)
    result = audit(
        lambda n: tried.add_to(np.zeros(n), SecureNoise()),
        lambda n: tried.add_to(np.ones(n), SecureNoise()),
        epsilon=claim,
        delta=1e-6,
        gaussian=tried.loss.gaussian,
        trials=20_000,
        false_alarm=FALSE_ALARM,
    )
    assert result.refuted is refuted


def test_a_name_stands_for_one_class(noise: Mechanism) -> None:
    with pytest.raises(InvalidInputError, match="exists already"):
        register_charge(KIND)(LaplaceMechanism)
    with pytest.raises(InvalidInputError, match="The noise 'laplace' on Numbers exists already"):
        register_law("laplace", on=Numbers)(type(noise))
    with pytest.raises(InvalidInputError, match="frozen dataclass"):
        register_charge("new")(object)
    register_charge(KIND)(type(noise))  # the same class again, as after a reload
