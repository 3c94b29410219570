"""The demo's table: made-up flights of several columns, of which exactly two have drifted.

Every column depends on others, and the flights of one aircraft are alike. Drift is made last and
touches two columns only, so that nothing is passed on: the other columns have the same distribution
in the reference and in the population, by construction.
"""

import csv
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.reference import Reference, Table
from fedprikl.reference.columns import OUT_OF_DOMAIN, Reader

Flights = dict[str, list[Any]]  # column -> a value per flight; None is a gap

CLIENT = "aircraft"  # the column with the client ids
DRIFTED = ("carrier", "departure_delay")
CARRIERS = ("Kestrel", "Heron", "Osprey", "Swift", "Tern", "Plover")
CARRIER_SHARES = np.array([0.30, 0.22, 0.18, 0.14, 0.10, 0.06])
NEW_CARRIER = "Wren"  # the reference has never seen it
CITIES = (
    *("Lyon", "Porto", "Turin", "Ghent", "Malmo", "Graz"),
    *("Bilbao", "Leeds", "Split", "Tartu", "Cork", "Aalborg"),
)
CITY_SHARES = np.array([0.17, 0.14, 0.12, 0.10, 0.09, 0.08, 0.07, 0.07, 0.05, 0.04, 0.04, 0.03])
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_SHARES = np.array([0.155, 0.145, 0.145, 0.15, 0.165, 0.11, 0.13])
HOURS = np.arange(5, 24)
OWN = 0.3  # share of flights for an aircraft's own carrier, and from its own base, beside chance
CANCELLED, NOT_RECORDED = 0.015, 0.03  # shares of gaps in the delay, and in the load


@dataclass(frozen=True, slots=True, eq=False)
class FlightTable:
    """Public earlier flights with the aircraft's id, and the private flights of each aircraft."""

    reference: Flights
    aircraft: dict[str, Flights]

    @property
    def records(self) -> int:
        """Flights of all aircraft."""
        return sum(len(flights["carrier"]) for flights in self.aircraft.values())

    def write(self, folder: Path) -> None:
        """Writes reference.csv, and aircraft/NAME.csv for each client."""
        _write_csv(folder / "reference.csv", self.reference)
        (folder / "aircraft").mkdir()
        for name, flights in self.aircraft.items():
            _write_csv(folder / "aircraft" / f"{name}.csv", flights)

    def shares(
        self, reference: Reference, column: str, *, without: Collection[str] = ()
    ) -> tuple[Floats, Floats]:
        """Pi and P of one column, level by level: the truth that nobody in a round ever sees.

        P is that of all aircraft, `without` those named.
        """
        held = (flights for name, flights in self.aircraft.items() if name not in without)
        values = [each for flights in held for each in flights[column]]
        pi, p = (_shares(reference, column, each) for each in (self.reference[column], values))
        return pi, p


def flight_table(
    rng: np.random.Generator,
    *,
    aircraft: int = 120,
    flights: int = 200,
    reference_aircraft: int = 300,
    reference_flights: int = 150,
) -> FlightTable:
    """A reference and a population in which two columns have drifted (`DRIFTED`).

    Since the reference, flights that leave after 16:00 are late more often, and a carrier has
    taken over flights of another. Aircraft hold about so many `flights` each.

    >>> table = flight_table(np.random.default_rng(0), aircraft=3, flights=20)
    >>> sorted(table.aircraft), len(table.reference["carrier"]) > 40_000
    (['D-001', 'D-002', 'D-003'], True)
    """
    client, earlier = _fly(rng, reference_aircraft, reference_flights)
    ids = [f"E-{number + 1:03}" for number in client.tolist()]
    reference: Flights = {CLIENT: ids} | {name: _plain(each) for name, each in earlier.items()}
    client, current = _fly(rng, aircraft, flights)
    values = {name: _plain(each) for name, each in _drift(rng, current).items()}
    ends = np.cumsum(np.bincount(client, minlength=aircraft)).tolist()
    held = {
        f"D-{number + 1:03}": {name: each[start:end] for name, each in values.items()}
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
    }
    return FlightTable(reference, held)


def _fly(
    rng: np.random.Generator, aircraft: int, flights: int
) -> tuple[Ints, dict[str, np.ndarray[Any, Any]]]:
    """The aircraft of each flight, and the flights column by column, before any drift."""
    held = 1 + rng.negative_binomial(25, 25 / (25 + flights - 1), aircraft)
    client = np.repeat(np.arange(aircraft), held)
    size = len(client)
    own_carrier = rng.choice(len(CARRIERS), aircraft, p=CARRIER_SHARES)
    own_city = (2 * own_carrier + rng.choice(6, aircraft, p=CITY_SHARES[:6] / 0.7)) % len(CITIES)
    age = np.round(np.clip(rng.gamma(4, 3.2, aircraft), 0.5, 32), 1)
    reach = rng.normal(6.6, 0.3, aircraft) - 0.01 * age  # log of the usual kilometres

    own = rng.random((2, size)) < OWN
    carrier = rng.choice(len(CARRIERS), size, p=CARRIER_SHARES)
    carrier = np.where(own[0], own_carrier[client], carrier)
    city = np.where(own[1], own_city[client], rng.choice(len(CITIES), size, p=CITY_SHARES))
    day = rng.choice(len(DAYS), size, p=DAY_SHARES)
    peaks = 1 + 1.6 * np.exp(-((HOURS - 8) ** 2) / 6) + 1.4 * np.exp(-((HOURS - 18) ** 2) / 8)
    hour = rng.choice(HOURS, size, p=peaks / peaks.sum())
    late = rng.random(size) < 0.12 + 0.012 * (hour - 5) + 0.03 * carrier
    delay = np.round(rng.normal(-3, 4, size) + late * rng.exponential(10 + 1.2 * (hour - 5), size))
    delay[rng.random(size) < CANCELLED] = np.nan
    busy = 6.0 * np.isin(day, (0, 4, 6)) + 5.0 * (np.abs(hour - 18) <= 2)
    load = np.round(np.clip(rng.normal(70 + busy, 13), 8, 100))
    load[rng.random(size) < NOT_RECORDED] = np.nan
    return client, {
        "carrier": np.array(CARRIERS)[carrier],
        "origin": np.array(CITIES)[city],
        "weekday": np.array(DAYS)[day],
        "departure_hour": hour,
        "departure_delay": delay,
        "distance": 10 * np.round(np.exp(rng.normal(reach[client], 0.35)) / 10),
        "load": load,
        "aircraft_age": age[client],
    }


def _drift(
    rng: np.random.Generator, flights: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """The same flights, with two columns changed."""
    size = len(flights["carrier"])
    carrier, delay = flights["carrier"].copy(), flights["departure_delay"].copy()
    chance = rng.random(size)
    carrier[(carrier == "Kestrel") & (chance < 0.4)] = "Heron"
    carrier[chance > 0.995] = NEW_CARRIER
    held_up = (flights["departure_hour"] >= 16) & (rng.random(size) < 0.5)
    delay[held_up] += np.round(rng.exponential(18, np.count_nonzero(held_up)))
    return {**flights, "carrier": carrier, "departure_delay": delay}


def _plain(values: np.ndarray[Any, Any]) -> list[Any]:
    """Values as a file shows them: whole numbers without a point, gaps as None."""
    if values.dtype.kind != "f":
        return list(values.tolist())
    return [
        None if value != value else int(value) if value.is_integer() else value
        for value in values.tolist()
    ]


def _shares(reference: Reference, column: str, values: Any) -> Floats:
    """The share of each level of a column, "missing" and then out of the domain last."""
    table = reference.domain.encoder
    assert isinstance(table, Table)  # noqa: S101  fitted to records with columns
    kind = next(each for each in table.columns if each.name == column)
    levels = Reader(kind, table.missing)(values)
    levels = np.where(levels == OUT_OF_DOMAIN, kind.size, levels)
    counts = np.bincount(levels, minlength=kind.size + 1)
    return np.asarray(counts / counts.sum())


def _write_csv(path: Path, flights: Flights) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(flights)
        writer.writerows(zip(*flights.values(), strict=True))
