"""What clients of a reference hold: kept exactly, read back, and how alike their records are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl import InvalidInputError, Reference
from fedprikl.checks import Floats, Ints
from fedprikl.reference import ClientCounts, Correlation, View
from fedprikl.reference.correlation import rare_discount
from tests.estimation.alike_clients import carriers, dirichlet


def kept(held: Ints) -> ClientCounts:
    client, cell = np.nonzero(held)
    return ClientCounts.sample(client, cell, held[client, cell], seed=0)


@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=9))
@settings(max_examples=60)
def test_a_text_gives_the_same_counts_back(rows: list[list[int]]) -> None:
    held = np.array([row for row in rows if sum(row)] or [[1, 0, 0, 0]])
    found = ClientCounts.read(kept(held).write())
    table = found.table(np.arange(4))[:, :-1]
    assert sorted(map(tuple, table.tolist())) == sorted(map(tuple, held.tolist()))
    assert found.write() == kept(held).write()


@pytest.mark.parametrize(
    "text", ["", " ", "a", "1*", "1*0", "2 1", "1 1", "1;;2", "1*01", "-1", "1.5"]
)
def test_damaged_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="damaged"):
        ClientCounts.read(text)


def test_a_reference_keeps_so_many_clients_and_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    held = dirichlet(np.random.default_rng(1), clients=200, records=30, icc=0.1)
    assert len(kept(held)) == 200
    monkeypatch.setattr("fedprikl.reference.client_counts.MOST_CLIENTS", 50)
    assert len(kept(held)) == 50
    monkeypatch.setattr("fedprikl.reference.client_counts.MOST_PAIRS", 100)
    assert len(kept(held)) < 15
    rows = {tuple(row) for row in held.tolist()}
    assert all(tuple(row) in rows for row in kept(held).table(np.arange(30))[:, :-1])


def test_cells_have_correlations_of_their_own() -> None:
    """Dirichlet clients have one; of clients with one carrier each, cells have large ones."""
    rng = np.random.default_rng(2)
    found = [kept(dirichlet(rng, clients=300, records=40, icc=0.1)) for _ in range(5)]
    mean = np.mean([each.correlations(np.arange(30), 0.1) for each in found], axis=0)
    assert np.all(np.abs(mean - 0.1) < 0.06)
    unrelated = rng.multinomial(40, np.full(20, 0.05), size=400)
    assert kept(unrelated).correlations(np.arange(20), 0.0).mean() < 0.004
    assert (
        kept(carriers(rng, clients=400, records=60)).correlations(np.arange(48), 0.0).mean() > 0.1
    )


def test_whole_clients_contribute_equally_many_records() -> None:
    """Its own ones, each at most once; what it lacks comes from those of all."""
    held = np.array([[5, 0, 1], [0, 2, 0], [9, 9, 9], [1, 0, 0]])
    every = ClientCounts.read("0*5 2;1*2;0*9 1*9 2*9;0")
    found = every.contributing(6, np.random.default_rng(3)).table(np.arange(3))[:, :-1]
    assert found.sum(axis=1).tolist() == [6, 6, 6, 6]
    assert found[0].tolist() == [5, 0, 1]
    assert np.all(found[[1, 3]] >= held[[1, 3]])
    assert np.all(found[2] <= held[2])


def test_it_does_not_depend_on_the_order_of_records_or_on_clients_names() -> None:
    held = carriers(np.random.default_rng(4), clients=40, records=20)
    client, cell = np.nonzero(held)
    client, cell = (np.repeat(which, held[client, cell]) for which in (client, cell))
    mixed = np.random.default_rng(5).permutation(len(cell))
    again = Correlation.estimate(client[mixed].astype(str), cell[mixed])
    assert again == Correlation.estimate(client.astype(str), cell)


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
    "text", ["0*3 500000000;1;0 1*2", "0*2000000000;1;0 1*2;0*5", "0;1;2;0*40"]
)
def test_a_view_refuses_what_its_reference_cannot_hold(text: str) -> None:
    """Cells beyond the domain, and more records than there are."""
    reference = Reference.from_counts([[9, 1], [0, 10], [8, 2], [1, 9]])
    kind = reference.whole.correlation
    assert kind is not None
    damaged = Correlation(icc=kind.icc, size_variation=0.0, clients=4, held=text)
    with pytest.raises(InvalidInputError, match="damaged"):
        View(reference.domain, reference.whole.mass, damaged)
    with pytest.raises(InvalidInputError, match="damaged"):
        View(reference.domain, reference.whole.mass, kind, (), text)


def test_texts_and_clients_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprikl.reference.client_counts.LONGEST", 1000)
    with pytest.raises(InvalidInputError, match="too long"):
        ClientCounts.read("0;" * 500 + "1")
    giant = ClientCounts.read(f"0*{2 * 10**9} 1*{10**9}").contributing(6, np.random.default_rng(1))
    assert giant.records.sum() == 6
