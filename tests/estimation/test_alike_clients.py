"""Populations without drift whose clients' records are alike: they are not called drifted."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from experiments.handwriting import load_compact
from experiments.paper.world import data_folder
from scipy import stats

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    CountsDesign,
    Verdict,
    judge_together,
)
from fedprikl.estimation.no_drift import NoDrift, gamma_like
from fedprikl.estimation.statistic import variation, variation_statistic
from fedprikl.paper import no_privacy
from fedprikl.reference import Correlation, QueryPoints, Spread, all_points
from fedprikl.reference.correlation import Factors
from tests.estimation.alike_clients import carriers, dirichlet, some_unusual

pytestmark = pytest.mark.slow

DIGITS = data_folder() / "femnist_digits.npz"
NOISE = 5.0  # on every count, without a trusted party
STATED = 0.01


def spread_of(*, own: float, common: Floats, clients: int, counted: int = 0) -> Spread:
    """Of as many cells as the factor has, estimated from so many clients that it is exact."""
    factors = Factors(
        cells=tuple(range(len(common))),
        own=(own,) * (len(common) + 1),
        common=((*common.tolist(), 0.0),),
    )
    kind = Correlation(icc=0.1, size_variation=0.5, clients=10**6, factors=factors)
    return Spread(clients=(clients,), correlation=kind, counted=counted)


def test_simulated_counts_have_the_covariance_of_the_model() -> None:
    """Cov(h) = N (diag - Pi Pi') + (sum n_c^2 - N) Cov(p_c), Cov(p_c) made to sum to 0."""
    pi = np.array([0.4, 0.3, 0.2, 0.1])
    common = np.sqrt(pi) * np.array([0.6, -0.4, -0.6, 0.0])
    common = common - np.sqrt(pi) * (np.sqrt(pi) @ common)
    spread = spread_of(own=0.05, common=common, clients=400)
    records, draws = 8000, 20_000
    model = NoDrift(
        pi=pi,
        records=np.array([records]),
        batch=np.zeros(4, np.int64),
        term=np.arange(4),
        spread=spread,
        cells=np.arange(4),
    )
    counts = model.counts(draws, np.random.default_rng(1))
    assert counts.sum(axis=1).tolist() == [records] * draws
    between = np.sqrt(np.outer(pi, pi)) * (np.outer(common, common) + 0.05 * np.eye(4))
    centre = np.eye(4) - np.outer(pi, np.ones(4))
    pairs = records * (1.5 * records / 400 - 1)
    expected = records * (np.diag(pi) - np.outer(pi, pi)) + pairs * centre @ between @ centre.T
    assert np.cov(counts.T) == pytest.approx(expected, rel=0.05, abs=0.02 * expected.max())
    stated = model.design_effects * records * pi * (1 - pi)
    assert stated == pytest.approx(np.diag(expected), rel=0.25)


def test_a_counted_reference_adds_its_own_error() -> None:
    pi = np.full(5, 0.2)
    model = NoDrift(
        pi=pi,
        records=np.array([2000]),
        batch=np.zeros(5, np.int64),
        term=np.arange(5),
        spread=Spread(clients=(2000,), counted=1000),
        cells=np.arange(5),
    )
    variance = model.counts(20_000, np.random.default_rng(2)).var(axis=0)
    assert variance == pytest.approx(2000 * 0.2 * 0.8 * (1 + 2), rel=0.06)
    assert model.design_effects == pytest.approx(3.0)


@pytest.mark.parametrize("variance", [0.01, 0.3, 1.0])
def test_ratios_are_nearly_gamma_variables(variance: float) -> None:
    error = np.random.default_rng(3).standard_normal(200_000) * np.sqrt(variance)
    ratios = gamma_like(error, np.full(1, variance))
    assert ratios.min() >= 0
    assert ratios.mean() == pytest.approx(1, abs=0.01)
    assert ratios.var() == pytest.approx(variance, rel=0.05)
    law = stats.gamma(1 / variance, scale=variance)
    for level in (0.05, 0.5, 0.95):
        assert np.mean(ratios < law.ppf(level)) == pytest.approx(level, abs=0.012)


def test_many_more_records_than_planned_are_judged_as_they_are() -> None:
    """What clients differ in does not average out with more records of the same clients."""
    held = dirichlet(np.random.default_rng(4), clients=200, records=50, icc=0.1)
    spread = Reference.from_counts(held).whole.spread(clients=[100])
    points = all_points(held.sum(axis=0) / held.sum())
    few, many = (NoDrift.of(points, np.array([n]), spread).design_effects for n in (1000, 100_000))
    assert np.all(many > 30 * few)


def kl_alarm(reference: Reference, counts: Ints, spread: float | Spread) -> bool:
    points = all_points(reference.probabilities)
    found = no_privacy(BatchCounts(points, counts[points.cells], np.array([counts.sum()])))
    return found.verdict(spread=spread).drifted


def noisy_alarm(model: NoDrift, threshold: float, noisy: Floats) -> bool:
    return bool(variation(noisy, model, np.full(len(noisy), NOISE)) > threshold)


def judge_counts(points: QueryPoints, counts: Floats, model: NoDrift) -> Verdict:
    design = CountsDesign(points, model.records, (CountNoise(sd=NOISE),))
    return judge_together([variation_statistic(design, counts)], model, false_alarm=STATED)


@cache
def noisy_alarms(ids: bool) -> int:
    """Of 150 populations of clients with one carrier each, 15 for each of 10 references."""
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(10):
        held = carriers(rng, clients=200, records=40)
        reference = Reference.from_counts(held)
        spread: float | Spread = reference.whole.spread(clients=[200])
        if not ids:
            spread = reference.whole.design_effect(clients=200, records=8000)
        points = all_points(reference.probabilities)
        model = NoDrift.of(points, np.array([8000]), spread)
        limit = judge_counts(points, 8000 * points.pi, model).statistics[0].threshold
        for _ in range(15):
            counts = carriers(rng, clients=200, records=40).sum(axis=0)[points.cells]
            noisy = counts + rng.normal(0, NOISE, len(counts))
            alarms += noisy_alarm(model, limit, noisy)
    return alarms


def test_clients_with_one_carrier_each_raise_no_alarm() -> None:
    """A rate of 2% shows as more than 12 of 150 with a probability of 1e-5."""
    assert noisy_alarms(ids=True) <= 12


def test_that_check_would_catch_one_correlation_for_all_cells() -> None:
    """A rate of 2% reaches 18 of 150 with a probability of 1e-9."""
    assert noisy_alarms(ids=False) > 18


def test_some_unusual_clients_make_all_cells_vary_together() -> None:
    """The deviation of U over populations, over the simulated one; with teeth without `unlike`."""
    rng, clients, records = np.random.default_rng(11), 50, 1000
    aware: list[float] = []
    unaware: list[float] = []
    for _ in range(6):
        reference = Reference.from_counts(some_unusual(rng, clients=400, records=records))
        spread = reference.whole.spread(clients=[clients])
        points = all_points(reference.probabilities)
        held = [some_unusual(rng, clients=clients, records=records).sum(0) for _ in range(150)]
        sd = np.full(len(points), NOISE)
        noise = rng.normal(0, NOISE, (150, len(points)))
        for found, kind in ((aware, spread.correlation), (unaware, equally(spread.correlation))):
            model = NoDrift.of(
                points, np.array([clients * records]), replace(spread, correlation=kind)
            )
            null = model.counts(1000, rng) + rng.normal(0, NOISE, (1000, len(points)))
            seen = variation(np.array(held)[:, points.cells] + noise, model, sd)
            found.append(seen.std() / variation(null, model, sd).std())
    assert 0.85 < np.mean(aware) < 1.2
    assert np.mean(unaware) > 1.3


def equally(kind: Correlation | None) -> Correlation:
    """The same clients, as if they all differed by as much."""
    assert kind is not None
    assert kind.factors is not None
    return replace(kind, factors=replace(kind.factors, inequality=0.0))


def test_a_verdict_says_that_it_takes_records_as_unrelated() -> None:
    """Without client ids, and unless every client holds about one record."""
    reference, counts = Reference.from_counts([500, 300, 200]), np.array([50, 30, 20])
    points = all_points(reference.probabilities)
    found = no_privacy(BatchCounts(points, counts, np.array([100])))
    several = found.verdict(spread=reference.whole.spread(clients=[20]))
    assert "are unrelated" in str(several)
    assert several.to_dict()["design_effect"] is None
    single = found.verdict(spread=reference.whole.spread(clients=[98]))
    assert "unrelated" not in str(single)
    assert single.design_effect == pytest.approx(1.1)
    assert several.statistics == single.statistics


@pytest.mark.validation
@pytest.mark.skipif(not DIGITS.exists(), reason="needs the FEMNIST digits, which are not at hand")
@pytest.mark.parametrize("digit", [5, None])
def test_the_other_half_of_the_writers_has_not_drifted(digit: int | None) -> None:
    """Pi from one half of the writers, the population is the other half; with and without noise.

    At a rate of 2%, 3 alarms of 5 have a probability of 8e-5.
    """
    digits = load_compact(DIGITS)
    mine = np.full(len(digits.label), True) if digit is None else digits.label == digit
    _, writer = np.unique(digits.writer[mine], return_inverse=True)
    _, cell = np.unique(digits.code[mine], return_inverse=True)
    held = np.zeros((writer.max() + 1, cell.max() + 1), np.int64)
    np.add.at(held, (writer, cell), 1)
    rng, exact, noisy = np.random.default_rng(6), 0, 0
    for _ in range(5):
        half = rng.permutation(np.arange(len(held)) % 2).astype(bool)
        reference, counts = Reference.from_counts(held[half]), held[~half].sum(axis=0)
        spread = reference.whole.spread(clients=[int(np.count_nonzero(~half))])
        exact += kl_alarm(reference, counts, spread)
        points = all_points(reference.probabilities)
        model = NoDrift.of(points, np.array([counts.sum()]), spread)
        seen = counts[points.cells] + rng.normal(0, NOISE, len(points))
        noisy += judge_counts(points, seen, model).drifted
    assert max(exact, noisy) <= 2
