"""The demo's flights: two columns drift and no other, flights of one aircraft are alike."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedprikl.demo import flights
from fedprikl.demo.flights import CLIENT, DRIFTED, FlightTable, flight_table
from fedprikl.records import fit_reference
from fedprikl.reference import Reference

pytestmark = pytest.mark.slow

COLUMNS = [
    *("carrier", "origin", "weekday", "departure_hour", "departure_delay"),
    *("distance", "load", "aircraft_age"),
]


@pytest.fixture(scope="module")
def table() -> FlightTable:
    return flight_table(np.random.default_rng(0))


@pytest.fixture(scope="module")
def references(table: FlightTable) -> dict[str, Reference]:
    frame = pl.DataFrame(table.reference)
    return {name: Reference.fit(frame, columns=[name], client=CLIENT) for name in COLUMNS}


def tv(pair: tuple[np.ndarray, np.ndarray]) -> float:
    return float(np.abs(pair[0] - pair[1]).sum() / 2)


def test_drift_changes_two_columns_and_leaves_all_others_as_they_are(
    rng: np.random.Generator,
) -> None:
    _, before = flights._fly(rng, 20, 200)
    after = flights._drift(rng, before)
    assert list(after) == COLUMNS
    changed = [name for name in COLUMNS if after[name] is not before[name]]
    assert changed == list(DRIFTED)
    for name in DRIFTED:
        assert np.mean(after[name] != before[name]) > 0.1


def test_what_drifted_is_far_beyond_chance(references: dict[str, Reference]) -> None:
    """Of the same flights before and after, so that the size of the drift itself is seen."""
    _, before = flights._fly(np.random.default_rng(1), 1000, 200)
    after = flights._drift(np.random.default_rng(2), before)
    for name in DRIFTED:
        pair = [flights._shares(references[name], name, each[name]) for each in (before, after)]
        assert 0.1 < tv((pair[0], pair[1])) < 0.14


def test_other_columns_differ_by_chance_only() -> None:
    """Of 600 aircraft on both sides; ages are one number per aircraft, so they differ most."""
    many = flight_table(np.random.default_rng(3), aircraft=600, reference_aircraft=600)
    frame = pl.DataFrame(many.reference)
    usual = {"origin": 0.03, "distance": 0.03, "aircraft_age": 0.1}
    for name in set(COLUMNS):
        found = tv(many.shares(Reference.fit(frame, columns=[name]), name))
        assert (found > 0.09) if name in DRIFTED else (found < usual.get(name, 0.01))


def test_flights_of_one_aircraft_are_alike(references: dict[str, Reference]) -> None:
    alike = {
        name: kind.whole.correlation.icc
        for name, kind in references.items()
        if kind.whole.correlation is not None
    }
    assert alike["aircraft_age"] == pytest.approx(1)
    assert min(alike["carrier"], alike["origin"], alike["distance"]) > 0.04
    assert alike["weekday"] < 0.001


def test_columns_depend_on_each_other(table: FlightTable) -> None:
    frame = pl.DataFrame(table.reference)
    delay = frame.group_by(pl.col("departure_hour") > 15).agg(pl.col("departure_delay").mean())
    morning, evening = delay.sort("departure_hour")["departure_delay"]
    assert evening > morning + 2
    by_carrier = frame.group_by("carrier").agg(pl.col("departure_delay").mean())
    late = dict(by_carrier.iter_rows())
    assert late["Plover"] > late["Kestrel"] + 1


def test_the_files(table: FlightTable, tmp_path: Path) -> None:
    """One per aircraft, with gaps, and a carrier that the reference has never seen."""
    table.write(tmp_path)
    files = sorted((tmp_path / "aircraft").iterdir())
    assert [path.stem for path in files] == sorted(table.aircraft)
    assert len(files) == 120
    frame = pl.concat((pl.read_csv(path) for path in files), how="vertical_relaxed")
    assert frame.columns == COLUMNS
    assert frame.height == table.records
    assert 20_000 < table.records < 28_000
    gaps = {name: count for name, count in frame.null_count().row(0, named=True).items() if count}
    assert set(gaps) == {"departure_delay", "load"}
    public = pl.read_csv(tmp_path / "reference.csv")
    assert public.columns == [CLIENT, *COLUMNS]
    assert set(frame["carrier"]) - set(public["carrier"]) == {"Wren"}
    for name in set(COLUMNS) - set(DRIFTED):
        if frame[name].dtype == pl.String:
            assert set(frame[name]) == set(public[name])
    reference = fit_reference(tmp_path / "reference.csv", columns=["carrier"], client=CLIENT)
    _, shares = table.shares(reference, "carrier")
    assert shares[-1] == pytest.approx(0.005, abs=0.002)


def test_a_seed_gives_the_same_table(table: FlightTable) -> None:
    again = flight_table(np.random.default_rng(0))
    assert again.reference == table.reference
    assert again.aircraft == table.aircraft
    assert flight_table(np.random.default_rng(1)).aircraft != table.aircraft
