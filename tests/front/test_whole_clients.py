"""Whole clients: every client of a comparison contributes exactly k records."""

import gzip
from dataclasses import dataclass, field, replace
from functools import cache
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
from fedprikl.errors import RecordsError
from fedprikl.front import local_parties
from fedprikl.protocol import (
    Client,
    OneRecord,
    WholeClient,
)
from tests.front.conftest import Population

pytestmark = pytest.mark.slow

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
    monkeypatch.setattr(local_parties, "Client", spy.client)
    return spy


def whole_clients(people: Population, **changes: Any) -> Plan:
    return people.planned.plan.changed(**{"unit": WholeClient(K)} | changes)


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
    result = people.compare(plan=replace(alone, unit=WholeClient(K)))
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
        for one in (planned, replace(planned, unit=WholeClient(1)))
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
    seen = people.reference.whole.mass > 0
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
    result = people.compare(clients, plan=whole_clients(people, unit=WholeClient(K, "away")))
    assert result.release.records == 4 * K
    assert spy.sums == [{K}] * 4
    assert "2 of 6 clients hold no records and stay away, as the plan says." in result.notes
    assert sorted(result.left_out) == ["client 1", "client 4"]
    assert not result.refusals


def test_too_few_clients_with_records_fail_clearly(people: Population, folder: Path) -> None:
    clients = {str(n): frame for n, frame in enumerate(empty(people, 0, 1, 3, 5))}
    away = whole_clients(people, unit=WholeClient(K, "away"))
    with pytest.raises(ReleaseRefused, match=r"4 of 6 clients hold no .* 2 are left.*need 3"):
        people.compare(clients, plan=away, ledger=folder / "ledger.db")
    with Ledger.open(folder / "ledger.db") as book:
        assert book.account("people").spent == 0
    assert people.compare(clients, plan=whole_clients(people)).release.records == 6 * K


def test_single_records_are_all_counted(people: Population, spy: Spy) -> None:
    people.compare(empty(people, 0))
    assert [counts.sum() for counts in spy.counts] == [0, 60, 60, 60, 60, 60]


ROWS = pl.DataFrame({"plan": ["basic"] * 30 + ["plus"] * 10, "age": list(range(40))})


@cache  # planned once for all tests
def five_clients() -> tuple[Reference, Plan]:
    reference = Reference.fit(ROWS)
    made = plan(reference, clients=5, records=200, epsilon=1.0, unit="client", per_client=5)
    return reference, made.plan


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Reference, Path, Plan]:
    """Five clients with a folder each."""
    for number in range(5):
        place = tmp_path / "clients" / f"c{number}"
        place.mkdir(parents=True)
        ROWS.write_csv(place / "a.csv")
    reference, made = five_clients()
    return reference, tmp_path / "clients", made


@pytest.mark.parametrize("nothing", ["no file", "blank", "packed", "parquet", "header"])
def test_a_client_that_holds_nothing_at_all_does_not_show(
    folders: tuple[Reference, Path, Plan], nothing: str
) -> None:
    """Whatever it does not hold: records, names of columns, files."""
    reference, clients, made = folders
    file = clients / "c3" / "a.csv"
    header = file.read_text().splitlines()[0]
    file.unlink()
    match nothing:
        case "blank":
            file.write_bytes(b"")
        case "packed":
            file.with_name("a.csv.gz").write_bytes(gzip.compress(b""))
        case "parquet":
            file.with_name("a.parquet").write_bytes(b"")
        case "header":
            file.write_text(f"{header}\n")
    result = compare(reference, clients, made, ledger=None, skip_bad_files=True)
    assert result.release.records == 25
    assert not result.left_out
    assert sum(cohort.included for cohort in result.release.cohorts) == 5


def test_where_records_are_protected_a_missing_file_is_a_mistake(
    folders: tuple[Reference, Path, Plan],
) -> None:
    reference, clients, made = folders
    (clients / "c3" / "a.csv").unlink()
    record = made.changed(unit=OneRecord(), most_records=255)
    with pytest.raises(RecordsError, match="holds no"):
        compare(reference, clients, record, ledger=None)


def test_frames_without_columns_hold_nothing(folders: tuple[Reference, Path, Plan]) -> None:
    reference, _, made = folders
    rows = pl.DataFrame({"plan": ["basic"] * 9, "age": [30] * 9})
    clients = {"a": rows, "b": rows.clone(), "c": rows.head(5), "d": pl.DataFrame()}
    assert compare(reference, clients, made, ledger=None).release.records == 20


def test_several_clients_may_hold_nothing() -> None:
    """There is only one empty tuple in Python: it is not the same records twice."""
    reference = Reference.from_counts([5, 5])
    made = plan(reference, clients=4, records=40, epsilon=1.0, unit="client", per_client=2)
    result = compare(reference, [[0, 1], [1], (), ()], made, ledger=None)
    assert result.release.records == 8


def test_the_release_says_if_clients_without_records_are_seen() -> None:
    reference = Reference.from_counts([5, 5])
    options: Any = {"clients": 4, "records": 40, "epsilon": 1.0, "unit": "client", "per_client": 2}
    away = plan(reference, **options, empty="away")
    assert any("whether a client has any is not protected" in note for note in away.notes)
    release = compare(reference, [[0, 1], [1], [0], ()], away, ledger=None).release
    assert release.records == 6
    said = str(release.privacy)
    assert "by any others (but not by none)" in said
    assert "whether a client has any records" in said
    assert "tells nothing about any client" not in said
    drawn = compare(reference, [[0, 1], [1], [0], ()], plan(reference, **options), ledger=None)
    assert drawn.release.records == 8
    assert "the number of records tells nothing about any client" in str(drawn.release.privacy)
    assert not replace(release, privacy=drawn.release.privacy).is_about(away.plan)


def test_a_budget_of_records_that_pays_for_clients_is_pointed_out(tmp_path: Path) -> None:
    reference = Reference.from_counts([5, 5])
    options: Any = {"clients": 3, "records": 30, "epsilon": 0.1, "population": "phones"}
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("phones", epsilon=1.0, delta=1e-6, at="2030-01-31T12:00:00+00:00")
        clients = plan(reference, **options, unit="client", per_client=2)
        noted = compare(reference, [[0], [1], [0, 1]], clients, ledger=ledger).notes
        assert any("is that of single records" in note for note in noted)
        records = plan(reference, **options)
        noted = compare(reference, [[0], [1], [0, 1]], records, ledger=ledger).notes
        assert not any("is that of single records" in note for note in noted)
