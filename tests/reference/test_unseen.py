"""What a finite reference has missed."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedprikl import InvalidInputError, Reference
from fedprikl.reference import Correlation, OutOfDomain
from fedprikl.reference.correlation import missed_share
from tests.false_alarm import looks_as_frequent, looks_centred


def test_the_share_is_what_leaving_a_client_out_misses(rng: np.random.Generator) -> None:
    """Of all clients together, by records: exactly. Its error is that of the next client."""
    held = rng.multinomial(20, rng.dirichlet(np.full(60, 0.05), 30))
    client, cell = np.nonzero(held)
    share, error = missed_share(cell, held[client, cell].astype(float))
    left_out = [
        held[c, np.delete(held, c, axis=0).sum(axis=0) == 0].sum() for c in range(len(held))
    ]
    assert share == pytest.approx(sum(left_out) / held.sum())
    assert 0 < error < 1


def test_good_turing_is_right_on_average(rng: np.random.Generator) -> None:
    """Unrelated records of a long tail: the share beside the mass that was missed."""
    pi = 1 / np.arange(1.0, 400.0)
    pi = pi / pi.sum()
    off, errors = [], []
    for _ in range(400):
        mass = rng.multinomial(1000, pi)
        cell = np.repeat(np.arange(len(pi)), mass)
        share, error = missed_share(cell, np.ones(len(cell)))
        off.append(share - pi[mass == 0].sum())
        errors.append(error)
    assert looks_centred(np.array(off), 0.0)
    assert not looks_centred(np.array(off), 0.005)
    assert np.mean(errors) == pytest.approx(np.std(off), rel=0.2)


def test_one_cell_that_no_record_showed_is_tested_exactly(rng: np.random.Generator) -> None:
    """R >= r with probability (N / (N + N_reference))^r."""
    law = Reference.from_counts([3000]).whole.out_of_domain(clients=10, records=1000)
    drawn = law.draw(1000, 40_000, rng)
    for r in (1, 2, 3):
        at_least = int(np.count_nonzero(drawn >= r))
        assert looks_as_frequent(at_least, 40_000, 0.25**r)
        assert not looks_as_frequent(at_least, 40_000, 1.5 * 0.25**r)


def test_alike_clients_have_missed_more_and_hold_it_together() -> None:
    kind = Correlation(icc=0.1, size_variation=0.0, clients=50)  # of 100 records
    view = replace(Reference.from_counts([3000, 2000]).whole, correlation=kind)
    law = view.out_of_domain(clients=20, records=1000)
    assert (law.shape, law.known) == (1.0, 0.0)
    assert [law.scale, law.effect] == pytest.approx([10.9 / 5000, 5.9])
    assert view.out_of_domain(clients=20, records=1000, design_effect=2.0) == OutOfDomain(
        shape=1.0, scale=2 / 5000, effect=2.0
    )
    exact = replace(view, mass=np.array([0.6, 0.3, 0.1]), correlation=None)
    law = exact.out_of_domain(clients=20, records=1000)
    assert law.scale == 0
    assert law.known == pytest.approx(0.1)


def test_a_fitted_reference_keeps_it() -> None:
    """A ward of one clinic, and one of two, beside wards of all."""
    rows = [(c, ward) for c in range(6) for ward in ("a", "b", "b")]
    rows += [(0, "own"), (0, "own"), (1, "pair"), (2, "pair")]
    frame = pl.DataFrame(rows, schema=["clinic", "ward"], orient="row").with_columns(x=pl.lit(1))
    view = Reference.fit(frame, client="clinic").views[0]
    assert view.correlation is not None
    assert view.correlation.missed == pytest.approx(2 / 22)
    assert view.correlation.missed_error == pytest.approx((4 + 2) ** 0.5 / 22)
    alone = Reference.fit(frame.drop("clinic")).views[0].out_of_domain(clients=6, records=22)
    mean, variance = 1 / 22, (4 + 1) / 22**2
    assert alone.shape == 1
    assert alone.scale == pytest.approx(variance**0.5)
    assert mean**2 < variance


def test_a_number_beyond_the_references_range_has_a_bin() -> None:
    """So it is no unseen value: the last bin grows. Text and gaps are unseen where none was."""
    frame = pl.DataFrame({"x": np.arange(100.0), "y": np.arange(100) % 3})
    reference = Reference.fit(frame, bins=4)
    new = pl.DataFrame({"x": [-9.0, 1e9, None], "y": [0, 7, 1]})
    assert [counts.tolist() for counts in reference.count_views(new)] == [
        [1, 0, 0, 1, 1],
        [1, 1, 0, 1],
    ]


def test_shares_are_shares() -> None:
    kind = Correlation(icc=0.0, size_variation=0.0, clients=5)
    with pytest.raises(InvalidInputError, match="lie in 0"):
        replace(kind, missed=1.5)
    with pytest.raises(InvalidInputError, match="lie in 0"):
        replace(kind, missed_error=-0.1)
