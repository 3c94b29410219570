"""How clients differ, cell by cell: known covariances are found, and kept by files."""

from typing import Any

import numpy as np
import pytest

from fedprikl import InvalidInputError, Reference
from fedprikl.checks import Floats, Ints
from fedprikl.reference import Correlation, Spread
from fedprikl.reference.correlation import Factors, rare_discount
from tests.estimation.alike_clients import carriers, dirichlet, some_unusual

CARRIER = np.repeat(np.arange(8), 6)  # of each of the 48 cells of `carriers`


def estimated(held: Ints) -> Factors:
    client, cell = np.nonzero(held)
    found = Correlation.estimate(client, cell, held[client, cell]).factors
    assert found is not None
    return found


def test_dirichlet_clients_have_no_factors_and_one_correlation() -> None:
    rng = np.random.default_rng(1)
    found = [estimated(dirichlet(rng, clients=150, records=40, icc=0.1)) for _ in range(5)]
    assert sum(len(each.common) for each in found) <= 1
    own = np.mean([each.own[:-1] for each in found], axis=0)
    assert own.mean() == pytest.approx(0.1, rel=0.15)
    assert np.all(np.abs(own - 0.1) < 0.06)


def test_clients_with_one_carrier_each_have_a_factor_per_carrier_but_one() -> None:
    """The share of a carrier varies by pi (1 - pi): all cells of a carrier rise and fall as one."""
    held = carriers(np.random.default_rng(2), clients=400, records=60)
    pi = held.sum(axis=0) / held.sum()
    own, common = estimated(held).of(np.arange(48), pi)
    assert len(common) == 7
    covariance = np.sqrt(np.outer(pi, pi)) * (common.T @ common + np.diag(own))
    of_carrier = np.eye(8)[CARRIER]
    share = of_carrier.T @ pi
    expected = np.diag(share) - np.outer(share, share)
    assert of_carrier.T @ covariance @ of_carrier == pytest.approx(expected, rel=0.3, abs=0.01)
    assert own.mean() < 0.03


def test_unrelated_records_have_neither() -> None:
    rng = np.random.default_rng(3)
    pi = dirichlet(rng, clients=1, records=10**6, icc=0.001)[0] / 10**6
    found = estimated(rng.multinomial(40, pi, size=200))
    assert found.common == ()
    assert np.mean(found.own) < 0.004


def test_clients_that_differ_unequally_are_told_from_equal_ones() -> None:
    """Of every tenth client 0.0083, of others 0.0001: a kappa of 0.1 0.0083^2 / 0.0009^2 - 1."""
    rng = np.random.default_rng(2)
    equal = estimated(dirichlet(rng, clients=400, records=1000, icc=0.002))
    unequal = estimated(some_unusual(rng, clients=400, records=1000))
    assert equal.inequality < 0.5
    assert unequal.inequality == pytest.approx(7.5, rel=0.4)
    one, other = (
        Correlation(icc=0.001, size_variation=0.0, clients=400, factors=factors)
        for factors in (equal, unequal)
    )
    alike, apart = (Spread(clients=(50,), correlation=kind) for kind in (one, other))
    assert apart.freedom < 0.5 * alike.freedom


def test_it_does_not_depend_on_the_order_of_records_or_on_clients_names() -> None:
    held = carriers(np.random.default_rng(4), clients=40, records=20)
    client, cell = np.nonzero(held)
    client, cell = (np.repeat(which, held[client, cell]) for which in (client, cell))
    mixed = np.random.default_rng(5).permutation(len(cell))
    again = Correlation.estimate(client[mixed].astype(str), cell[mixed])
    assert again == Correlation.estimate(client, cell)


def test_cells_keep_their_numbers_and_rarer_ones_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprikl.reference.correlation.MOST_CELLS", 12)
    held = carriers(np.random.default_rng(6), clients=200, records=60)
    held = np.insert(held, 3, 0, axis=1)  # a cell that nobody holds
    reference = Reference.from_counts(held)
    assert reference.whole.correlation is not None
    found = reference.whole.correlation.factors
    assert found is not None
    heaviest = np.sort(np.argsort(-held.sum(axis=0), kind="stable")[:12])
    assert found.cells == tuple(heaviest.tolist())
    pi = reference.probabilities[:-1]
    rare = np.setdiff1d(np.flatnonzero(pi), heaviest)
    own, common = found.of(rare, pi[rare])
    assert own == pytest.approx(own[0])
    shared = common / np.sqrt(pi[rare])
    assert shared == pytest.approx(np.tile(shared[:, :1], len(rare)))


def test_ids_of_images_and_tables_of_counts_are_read() -> None:
    rng = np.random.default_rng(7)
    held = carriers(rng, clients=30, records=20)
    client, cell = np.nonzero(held)
    expected = Correlation.estimate(client, cell, held[client, cell])
    table = Reference.from_counts(held)
    named = Reference.from_counts({f"c{x}": held[:, x].tolist() for x in range(48)})
    assert table.whole.correlation == named.whole.correlation == expected
    assert table.whole.mass[:-1].tolist() == held.sum(axis=0).tolist()
    images = rng.integers(0, 2, (40, 28, 28)) * 255
    writers = np.repeat(np.arange(8), 5)
    read = Reference.fit_images(images, clients=writers)
    codes = read.encode(images)
    assert read.whole.correlation == Correlation.estimate(writers, codes)
    assert Reference.fit_images(images).whole.correlation is None


def test_cells_that_happened_to_be_seen_are_overrated() -> None:
    """The discount, on samples of a long tail: what cells seen once really have."""
    rng, true, said = np.random.default_rng(8), 0.0, 0.0
    pi: Floats = 1 / np.arange(1.0, 3001)
    pi = pi / pi.sum()
    for _ in range(20):
        counts = rng.multinomial(2000, pi)
        once = counts == 1
        true += pi[once].sum()
        said += (1 - rare_discount(counts)) * once.sum() / 2000
    assert said == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize(
    "change",
    [
        {"cells": (1, 0)},
        {"own": (0.1, 0.1)},
        {"inequality": -1.0},
        {"own": (0.1, 1.5, 0.0)},
        {"own": (0.1, float("nan"), 0.0)},
        {"common": ((0.1, 0.1),)},
        {"common": ((0.1, float("inf"), 0.0),)},
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    sound: dict[str, Any] = {"cells": (0, 2), "own": (0.1, 0.2, 0.0), "common": ()}
    Factors(**sound)
    with pytest.raises(InvalidInputError):
        Factors(**(sound | change))


@pytest.mark.parametrize("cells", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_few_cells_have_few_factors(cells: int, seed: int) -> None:
    """A column of two or three categories in which clients differ much."""
    rng = np.random.default_rng(seed)
    held = [rng.multinomial(150, share) for share in rng.dirichlet(np.full(cells, 8.0), 120)]
    correlation = Reference.from_counts(held).whole.correlation
    assert correlation is not None
    assert correlation.factors is not None
    assert len(correlation.factors.common) <= cells
