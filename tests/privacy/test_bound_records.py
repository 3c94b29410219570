"""The records behind a population's name: a new name is no new budget."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedprikl.errors import InvalidInputError, LedgerDamagedError, LedgerError
from fedprikl.privacy import AccountedRelease, Ledger
from fedprikl.privacy.account import BoundRecords

AT = "2030-01-31T12:00:00+00:00"
PHONES = {"/data/a.csv": "d1gest-a", "/data/b.csv": "d1gest-b"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        opened.bind_records("phones", PHONES, at=AT)
        yield opened


@pytest.mark.parametrize(
    "sources",
    [
        PHONES,
        {"/data/a.csv": "new content", "/data/c.csv": "c"},  # the same place
        {"/copy/a.csv": "d1gest-a"},  # the same content
        {"/data/b.csv": ""},
    ],
    ids=["both", "place", "content", "an empty place"],
)
def test_the_same_records_under_another_name_are_refused(
    ledger: Ledger, sources: dict[str, str]
) -> None:
    before = ledger.entries()
    with pytest.raises(InvalidInputError, match=r"'phones'.*Plan with `--population phones`"):
        ledger.bind_records("tablets", sources, at=AT)
    assert ledger.entries() == before


def test_other_records_have_a_budget_of_their_own(ledger: Ledger) -> None:
    ledger.bind_records("tablets", {"/other/a.csv": "x", "/other/b.csv": ""}, at=AT)
    ledger.bind_records("watches", {"/third/a.csv": ""}, at=AT)  # no records are not the same
    with pytest.raises(InvalidInputError, match="'phones', 'tablets'"):
        ledger.bind_records("all", PHONES | {"/other/b.csv": "y"}, at=AT)


def test_binding_again_writes_one_entry_with_what_is_new(ledger: Ledger) -> None:
    """Always one: releases carry the number of entries, which must not depend on a record."""
    ledger.bind_records("phones", {"/data/a.csv": "d1gest-a"}, at=AT)
    ledger.bind_records("phones", PHONES | {"/data/c.csv": "c"}, at=AT)
    marks = [len(entry.body["marks"]) for entry in ledger.entries()]
    assert marks == [4, 0, 2]
    ledger.bind_records("phones", {"/data/a.csv": "a week later"}, at=AT)
    with pytest.raises(InvalidInputError, match="'phones'"):
        ledger.bind_records("tablets", {"/new/place": "a week later"}, at=AT)


def test_it_is_remembered_and_neither_places_nor_contents_are_kept(
    path: Path, ledger: Ledger
) -> None:
    ledger.close()
    written = path.read_bytes()
    assert b"a.csv" not in written
    assert b"d1gest" not in written
    with Ledger.open(path) as again, pytest.raises(InvalidInputError, match="'phones'"):
        again.bind_records("tablets", PHONES, at=AT)


def test_any_name_of_a_file_can_be_bound(ledger: Ledger) -> None:
    for place in ("/data/caf\xe9", "/data/\udcff", "/data/\ud800"):  # not all of them are UTF-8
        ledger.bind_records("odd", {place: "x" + repr(place)}, at=AT)
        with pytest.raises(InvalidInputError, match="'odd'"):
            ledger.bind_records("tablets", {place: ""}, at=AT)


def test_each_ledger_has_a_salt_of_its_own(ledger: Ledger, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "other.db") as other:
        other.bind_records("phones", PHONES, at=AT)
        (theirs,) = other.entries()
    (ours,) = ledger.entries()
    assert not set(ours.body["marks"]) & set(theirs.body["marks"])
    ledger.bind_records("tablets", {"/x": "y"}, at=AT)
    assert {entry.body["salt"] for entry in ledger.entries()} == {ours.body["salt"]}


def test_a_name_needs_no_budget_yet_and_none_is_made(ledger: Ledger) -> None:
    assert ledger.accounts() == ()
    ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT)
    charge = AccountedRelease(proved_epsilon=0.5)
    ledger.reserve("phones", charge, round_id="one", at=AT)
    ledger.bind_records("phones", {"/data/d.csv": "d"}, at=AT)
    assert ledger.account("phones").spent == 0.5


@pytest.mark.parametrize("version", [0, 9])
def test_a_ledger_of_another_version_is_refused(path: Path, version: int) -> None:
    """It may hold what this software does not know: nothing is charged by guessing."""
    Ledger.open(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerError, match=f"version {version}, this software reads versions 1 to"):
        Ledger.open(path)


def test_two_names_cannot_race_for_the_same_records(path: Path) -> None:
    with Ledger.open(path) as one, Ledger.open(path) as other:
        _ = one.head, other.head
        one.bind_records("phones", PHONES, at=AT)
        with pytest.raises(InvalidInputError, match="'phones'"):
            other.bind_records("tablets", PHONES, at=AT)


def test_marks_that_are_bound_twice_are_damage(ledger: Ledger) -> None:
    (entry,) = ledger.entries()
    bound = BoundRecords()
    bound.apply(entry.body)
    other_salt = dict(entry.body) | {"salt": "0" * 64, "marks": ["0" * 32]}
    for odd in (dict(entry.body) | {"population": "tablets"}, other_salt):
        with pytest.raises(ValueError, match="not an entry"):
            bound.apply(odd)
    with pytest.raises(LedgerDamagedError, match=r"Entry 2 .*makes no sense"):
        forge(ledger, json.dumps(other_salt))


def forge(ledger: Ledger, body: str) -> None:
    """An entry with a right hash that no ledger would write."""
    with ledger._store.writing():
        ledger._store.append(json.loads(body))
    _ = ledger.head


@pytest.mark.parametrize(
    ("population", "sources", "at", "words"),
    [
        (" ", PHONES, AT, "must be a name"),
        ("phones", {"a": b"bytes"}, AT, "bound by texts"),
        ("phones", {1: "a"}, AT, "bound by texts"),
        ("phones", PHONES, "today", "ISO 8601"),
    ],
)
def test_bad_input_says_what_to_do(
    ledger: Ledger, population: str, sources: Any, at: str, words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        ledger.bind_records(population, sources, at=at)
