"""Whole clients: every client of a comparison contributes exactly k records."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedprikl import (
    InsecureSeededNoise,
    Ledger,
    Plan,
    Reference,
    ReleaseRefused,
    SigningKey,
    compare,
    plan,
)
from fedprikl.checks import Ints
from fedprikl.front import comparing
from fedprikl.protocol import Client
from tests.front.conftest import Population

K = 20


@dataclass
class Spy:
    """What the clients of comparisons were made of."""

    counts: list[Ints] = field(default_factory=list)
    views: list[tuple[Ints, ...]] = field(default_factory=list)

    def client(self, counts: Ints, *arguments: Any, **settings: Any) -> Client:
        self.counts.append(counts)
        self.views.append(settings["views"])
        return Client(counts, *arguments, **settings)

    @property
    def sums(self) -> list[set[int]]:
        """Per client, the records of the whole and of every view."""
        return [
            {int(counts.sum()), *(int(view.sum()) for view in views)}
            for counts, views in zip(self.counts, self.views, strict=True)
        ]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    monkeypatch.setattr(comparing, "Client", spy.client)
    return spy


def whole_clients(people: Population, **changes: Any) -> Plan:
    settings: dict[str, Any] = {"unit": "client", "per_client": K}
    return replace(people.planned.plan, **(settings | changes))


def test_every_client_draws_k_records(people: Population, folder: Path, spy: Spy) -> None:
    """Of frames and of files, of many records and of few."""
    clients = people.frames(pl.DataFrame)
    clients[1] = clients[1][:3]
    clients[2] = folder / "clients" / "client 3.csv"
    clients[3] = folder / "clients" / "client 4.csv"
    with clients[3].open("a") as file:
        file.write("one,two,three\n" * 30)  # lines that cannot be read are records
    clients[4] = folder / "clients 5"
    clients[4].mkdir()
    for number in range(3):
        pl.DataFrame(people.rows[4])[20 * number :][:20].write_csv(clients[4] / f"{number}.csv")
    result = people.compare(clients, plan=whole_clients(people))
    assert result.release.records == 6 * K
    assert spy.sums == [{K}] * 6
    assert not result.left_out
    people.compare(clients, plan=whole_clients(people))
    drawn = [counts.tolist() for counts in spy.counts]
    assert drawn[:6] != drawn[6:]  # afresh in every comparison


def test_without_a_trusted_party_too(people: Population, spy: Spy) -> None:
    alone = plan(people.reference, clients=6, records=360, epsilon=1.0, trust="none").plan
    result = people.compare(plan=replace(alone, unit="client", per_client=K))
    assert result.release.records == 6 * K
    assert spy.sums == [{K}] * 6


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_one_of_one_record_is_unit_record_to_the_last_digit(trust: Any) -> None:
    reference = Reference.from_counts([500, 300, 200])
    planned = plan(reference, clients=30, records=30, epsilon=2.0, trust=trust).plan
    clients = [[cell % 3] for cell in range(30)]
    found = [
        compare(
            reference,
            clients,
            one,
            ledger=None,
            key=SigningKey.generate(),
            source=InsecureSeededNoise(5),
            rng=np.random.default_rng(5),
        )
        for one in (planned, replace(planned, unit="client", per_client=1))
    ]
    first, second = (
        (each.value, each.interval, each.release.records, each.drifted) for each in found
    )
    assert first == second


def empty(people: Population, *which: int) -> list[Any]:
    clients = people.frames(pl.DataFrame)
    return [frame[:0] if number in which else frame for number, frame in enumerate(clients)]


def test_a_client_without_records_takes_part_with_the_reference(
    people: Population, spy: Spy
) -> None:
    result = people.compare(empty(people, 0, 3), plan=whole_clients(people))
    assert result.release.records == 6 * K
    assert spy.sums == [{K}] * 6
    assert not result.left_out
    seen = people.reference.mass > 0
    assert not spy.counts[0][~seen].any()


def test_the_number_of_records_shows_nowhere(people: Population) -> None:
    """But in the drawn records themselves."""
    plans = whole_clients(people)
    told = [
        (result.notes, result.absent, result.left_out, result.release.records)
        for result in (people.compare(empty(people, *which), plan=plans) for which in ((), (0, 3)))
    ]
    assert told[0] == told[1]


def test_a_client_without_records_is_left_out_with_a_note(people: Population, spy: Spy) -> None:
    clients = empty(people, 0, 3)
    result = people.compare(clients, plan=whole_clients(people, empty="away"))
    assert result.release.records == 4 * K
    assert spy.sums == [{K}] * 4
    assert "2 of 6 clients hold no records and stay away, as the plan says." in result.notes
    assert sorted(result.left_out) == ["client 1", "client 4"]
    assert not result.refusals


def test_too_few_clients_with_records_fail_clearly(people: Population, folder: Path) -> None:
    clients = {str(n): frame for n, frame in enumerate(empty(people, 0, 1, 3, 5))}
    away = whole_clients(people, empty="away")
    with pytest.raises(ReleaseRefused, match=r"4 of 6 clients hold no .* 2 are left.*need 3"):
        people.compare(clients, plan=away, ledger=folder / "ledger.db")
    with Ledger.open(folder / "ledger.db") as book:
        assert book.account("people").spent == 0
    assert people.compare(clients, plan=whole_clients(people)).release.records == 6 * K


def test_single_records_are_all_counted(people: Population, spy: Spy) -> None:
    people.compare(empty(people, 0))
    assert [counts.sum() for counts in spy.counts] == [0, 60, 60, 60, 60, 60]
