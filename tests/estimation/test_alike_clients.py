"""Populations without drift whose clients' records are alike: they are not called drifted."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from experiments.handwriting import load_compact
from experiments.paper.world import data_folder

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    CountsDesign,
    Verdict,
    judge_together,
)
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import variation, variation_statistic
from fedprikl.estimation.worlds import dirichlet as dirichlet_shares
from fedprikl.paper import no_privacy
from fedprikl.reference import QueryPoints, Spread, all_points
from tests.estimation.alike_clients import carriers, dirichlet, some_unusual

pytestmark = pytest.mark.slow

DIGITS = data_folder() / "femnist_digits.npz"
NOISE = 5.0  # on every count, without a trusted party
STATED = 0.01


def test_populations_have_the_covariance_of_the_clients() -> None:
    """Cov(h) = N (diag - Pi Pi') + n k (k - 1) Cov(p_c), by clients of the reference."""
    held = carriers(np.random.default_rng(1), clients=1500, records=40)
    reference = Reference.from_counts(held)
    points, clients = all_points(reference.probabilities), 60
    model = NoDrift.of(points, np.array([40 * clients]), reference.whole.spread(clients=[clients]))
    counts = model.counts(8000, np.random.default_rng(2))
    assert np.all(counts.sum(axis=1) <= 40 * clients)
    expected = clients * (1 + clients / 1440) * np.cov(held.T)[np.ix_(points.cells, points.cells)]
    assert np.cov(counts.T) == pytest.approx(expected, rel=0.2, abs=0.06 * expected.max())
    stated = model.design_effects * 40 * clients * points.pi * (1 - points.pi)
    heavy = points.pi > 0.02
    assert stated[heavy] == pytest.approx(np.diag(expected)[heavy], rel=0.35)


def test_whole_blocks_of_cells_vanish_together() -> None:
    """A carrier of 5% has no client among 20 with probability 0.36, and then no record."""
    held = carriers(np.random.default_rng(1), clients=1500, records=40)
    reference = Reference.from_counts(held)
    points = all_points(reference.probabilities)
    model = NoDrift.of(points, np.array([800]), reference.whole.spread(clients=[20]))
    counts = model.counts(4000, np.random.default_rng(2))
    last = counts[:, points.cells >= 42].sum(axis=1)  # of the carrier with 5%
    share = float(np.mean(held[:, 42:].sum(axis=1) > 0))
    assert np.mean(last == 0) == pytest.approx((1 - share) ** 20, abs=0.04)


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


@pytest.mark.parametrize("variance", [0.01, 0.3])
def test_dirichlet_clients_vary_as_stated(variance: float) -> None:
    mean = np.tile([0.5, 0.3, 0.2], (100_000, 1))
    found = dirichlet_shares(mean, variance, np.random.default_rng(3))
    assert found.sum(axis=1) == pytest.approx(1.0)
    assert found.mean(axis=0) == pytest.approx(mean[0], abs=0.01)
    assert found.var(axis=0) == pytest.approx(variance * mean[0] * (1 - mean[0]), rel=0.03)


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
    """The deviation of U over populations, over the simulated one; by one correlation, teeth."""
    rng, clients, records = np.random.default_rng(11), 50, 1000
    aware: list[float] = []
    unaware: list[float] = []
    for _ in range(6):
        reference = Reference.from_counts(some_unusual(rng, clients=400, records=records))
        spread = reference.whole.spread(clients=[clients])
        assert spread.correlation is not None
        points = all_points(reference.probabilities)
        held = [some_unusual(rng, clients=clients, records=records).sum(0) for _ in range(150)]
        sd = np.full(len(points), NOISE)
        noise = rng.normal(0, NOISE, (150, len(points)))
        for found, text in ((aware, spread.correlation.held), (unaware, "")):
            kind = replace(spread.correlation, held=text)
            model = NoDrift.of(
                points, np.array([clients * records]), replace(spread, correlation=kind)
            )
            null = model.counts(1000, rng) + rng.normal(0, NOISE, (1000, len(points)))
            seen = variation(np.array(held)[:, points.cells] + noise, model, sd)
            found.append(seen.std() / variation(null, model, sd).std())
    assert 0.75 < np.mean(aware) < 1.2
    assert np.mean(unaware) > 1.2


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
