"""The history of a series: only ever appended to; what is changed, cut or put back is noticed."""

import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedprikl as fk
from fedprikl.documents import canonical, to_plain
from fedprikl.errors import (
    HistoryDamagedError,
    HistoryError,
    InvalidInputError,
    LedgerDamagedError,
    LedgerError,
    RecordsError,
)
from fedprikl.front.series import HistorySource, read_status
from fedprikl.monitoring.history import History
from fedprikl.privacy import Ledger
from fedprikl.protocol import ReleasedPeriod, Series, SignedPlan, SigningKey
from fedprikl.reporting.series_page import series_page
from tests.monitoring.small_series import REFERENCE, WEEKS, World, over, plan_of, quick_folder
from tests.monitoring.statuses import series as made_up

pytestmark = pytest.mark.slow

AT = over(2)


@pytest.fixture(scope="module")
def _counted() -> Iterator[World]:
    """Three weeks, all released."""
    with quick_folder() as folder:
        world = World.create(folder / "series").grow(0).grow(1).grow(2)
        world.monitor(AT)
        yield world


@pytest.fixture
def world(_counted: World, folder: Path) -> World:
    """A copy of the three weeks, to look at and to damage."""
    shutil.copytree(_counted.folder, folder / "series")
    return replace(_counted, folder=folder / "series")


def edit(path: Path, *statements: str, **values: Any) -> None:
    """What somebody can do who may write the file: the guards go, and come back."""
    with closing(sqlite3.connect(path)) as db, db:
        guards = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement, values)
        for _, sql in guards:
            db.execute(sql)


def refusal(world: World, kind: type[HistoryError] = HistoryDamagedError) -> str:
    """What reading all of it says, and what monitoring says: it does not go on."""
    before = world.ledger.read_bytes()
    with pytest.raises(kind) as refused:
        world.verify()
    with pytest.raises(kind):
        world.grow(3).monitor(over(3))
    assert world.ledger.read_bytes() == before
    return str(refused.value)


def test_it_is_for_its_owner_only_and_append_only(world: World) -> None:
    assert stat.S_IMODE(world.history.stat().st_mode) == 0o600
    for statement in ("UPDATE entries SET body = '{}'", "DELETE FROM entries"):
        with (
            closing(sqlite3.connect(world.history)) as db,
            db,
            pytest.raises(sqlite3.IntegrityError, match="a history is append-only"),
        ):
            db.execute(statement)
    assert world.verify() == 3


def test_every_release_is_signed_and_names_the_one_before(world: World) -> None:
    with History.open(world.history, create=False) as opened:
        found, releases = opened.read(), opened.releases()
    signer = SigningKey.load(world.folder / "aggregator.pem").public
    assert found.signer == signer
    assert all(release.is_signed_by(signer) for release in releases.values())
    periods = [release.period for release in releases.values()]
    assert [each.number for each in periods if each] == [0, 1, 2]
    before = ["", releases[0].fingerprint, releases[1].fingerprint]
    assert [each.previous for each in periods if each] == before


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE entries SET body = replace(body, '\"period\":1', '\"period\":2')", "was changed"),
        ("UPDATE entries SET hash = 'a' WHERE number = 3", "entry 3 or its place was changed"),
        ("DELETE FROM entries WHERE number = 4", "entry 4 is missing"),
        ("DELETE FROM entries WHERE number = 1", "entry 1 is missing"),
        ("UPDATE entries SET body = x'00ff' WHERE number = 2", "was changed"),
        ("DELETE FROM documents", "is not the one that was kept"),
        ("UPDATE documents SET body = 'x'", "is not the one that was kept"),
    ],
)
def test_what_is_edited_is_named(world: World, statement: str, words: str) -> None:
    edit(world.history, statement)
    assert words in refusal(world)


def test_guards_that_are_gone_are_noticed(world: World) -> None:
    with closing(sqlite3.connect(world.history)) as db, db:
        db.execute("DROP TRIGGER entries_are_never_updated")
    assert "guards against editing were changed" in refusal(world)


def test_exchanged_documents_are_noticed(world: World) -> None:
    """Both are genuine releases of this series, each in the place of the other."""
    with History.open(world.history, create=False) as opened:
        kept = opened.read().kept
    one, two = kept[0].document, kept[1].document
    edit(
        world.history,
        "UPDATE documents SET hash = 'x' WHERE hash = :one",
        "UPDATE documents SET hash = :one WHERE hash = :two",
        "UPDATE documents SET hash = :two WHERE hash = 'x'",
        one=one,
        two=two,
    )
    assert "release of period 0 is not the one that was kept" in refusal(world)


def rewritten(world: World, change: Any) -> None:
    """A forger who makes every hash anew: `change` gets the bodies of all entries."""
    with History.open(world.history, create=False) as opened, opened._store.reading():
        bodies = [dict(entry.body) for entry in opened._store.entries()]
        documents = opened._store.connection.execute("SELECT * FROM documents").fetchall()
    world.history.unlink()
    with History.open(world.history) as opened, opened._store.writing():
        for body in change(bodies):
            opened._store.append(body)
        opened._store.connection.executemany("INSERT INTO documents VALUES (?, ?)", documents)


def test_a_release_that_was_taken_out_of_a_rewritten_chain_is_noticed(world: World) -> None:
    """The hashes are right; the next release names the one that is gone."""
    rewritten(
        world,
        lambda bodies: [
            body for body in bodies if body.get("period") != 1 or body["event"] == "missed"
        ],
    )
    with pytest.raises(HistoryDamagedError, match="period 2 does not follow the one before it"):
        world.verify()
    with pytest.raises(HistoryError, match="charged period 1 of 'clients', and the history does"):
        world.monitor(AT)


def swapped(world: World, event: str, one: int, other: int) -> None:
    """Two entries of the same kind change places, and every hash is made anew."""

    def change(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        of = {body["period"]: n for n, body in enumerate(bodies) if body["event"] == event}
        bodies[of[one]], bodies[of[other]] = bodies[of[other]], bodies[of[one]]
        return bodies

    rewritten(world, change)


def test_releases_that_changed_places_are_noticed(world: World) -> None:
    swapped(world, "release", 0, 1)
    with pytest.raises(HistoryDamagedError, match="makes no sense"):
        world.verify()


def test_what_was_found_about_another_period_is_noticed(world: World) -> None:
    def change(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        judged = {body["period"]: body for body in bodies if body["event"] == "judged"}
        judged[0]["found"], judged[1]["found"] = judged[1]["found"], judged[0]["found"]
        return bodies

    rewritten(world, change)
    with pytest.raises(HistoryDamagedError, match="period 0 is about another release: entries"):
        world.verify()


def test_a_chain_of_another_signer_is_noticed(world: World) -> None:
    other = SigningKey.generate().public

    def change(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [bodies[0] | {"signer": other}, *bodies[1:]]

    rewritten(world, change)
    with pytest.raises(HistoryDamagedError, match=r"release of period 0 in .* is not genuine"):
        world.verify()


def test_a_rewritten_entry_that_makes_no_sense_is_damage(world: World) -> None:
    rewritten(world, lambda bodies: [*bodies, bodies[-2]])
    with pytest.raises(HistoryDamagedError, match="makes no sense"):
        world.verify()


def test_kept_laws_that_make_no_sense_are_damage(world: World) -> None:
    def change(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for body in bodies:
            if "simulated" in body.get("found", {}):
                body["found"]["simulated"] = '{"a": {"windows": {}}}'
        return bodies

    rewritten(world.grow(3), change)
    with pytest.raises(HistoryDamagedError, match="makes no sense"):
        world.monitor(over(3))


def test_rows_that_were_cut_off_are_noticed(world: World) -> None:
    """The chain is whole: only the registry of counted records knows."""
    with History.open(world.history, create=False) as opened:
        count = len(opened._store.entries())
    for last in range(count - 1, count - 4, -1):  # judged, released, begun
        edit(world.history, "DELETE FROM entries WHERE number > :last", last=last)
        if last == count - 1:
            world.monitor(AT)  # what was found is found again
            continue
        with pytest.raises(HistoryError, match="does not know it"):
            world.monitor(AT)


@pytest.mark.parametrize("name", ["history.db", "ledger.db", "counted.db"])
@pytest.mark.parametrize("gone", [False, True], ids=["older", "gone"])
def test_one_of_three_files_put_back_is_noticed(folder: Path, name: str, gone: bool) -> None:
    """As it was before the last period, or not there at all."""
    world = World.create(folder / "series").grow(0).grow(1)
    world.monitor(over(0))
    shutil.copy(world.folder / name, folder / name)
    world.monitor(over(1))
    (world.folder / name).unlink()
    if not gone:
        shutil.copy(folder / name, world.folder / name)
    before = [path.read_bytes() for path in sorted(world.folder.glob("*.db")) if path.name != name]
    world.grow(2)
    for at in (over(1), over(2)):
        with pytest.raises((HistoryError, LedgerError), match=r"older copy|There is no ledger"):
            world.monitor(at)
    others = [path for path in sorted(world.folder.glob("*.db")) if path.name != name]
    assert [path.read_bytes() for path in others] == before


@pytest.mark.parametrize("older", [False, True], ids=["gone", "older"])
@pytest.mark.parametrize("first", ["estimate", "monitor"])
def test_single_releases_and_series_know_of_each_others_ledger(
    folder: Path, first: str, older: bool
) -> None:
    """A ledger that one was charged to and that is lost is no new budget for the other."""
    world = World.create(folder / "series").grow(0)
    single = plan_of(None, total_epsilon=20.0)
    key = SigningKey.load_or_create(world.folder / "aggregator.pem")

    def release(which: str) -> None:
        if which == "monitor":
            world.monitor(over(0))
            return
        clients = world.folder / "clients"
        made = fk.compare(REFERENCE, clients, single, ledger=world.ledger, key=key)
        made.save(world.folder / "release.json")

    if older:
        with Ledger.open(world.ledger) as book:
            book.set_budget("clients", epsilon=20.0, delta=1e-5, at=AT)
        shutil.copy(world.ledger, folder / "copy.db")
    release(first)
    world.ledger.unlink()
    if older:
        shutil.copy(folder / "copy.db", world.ledger)
    before = world.ledger.read_bytes() if older else b""
    words = "older copy" if older else "There is no ledger"
    with pytest.raises(LedgerDamagedError, match=f"{words}.* in a file or a history, was charged"):
        release("estimate" if first == "monitor" else "monitor")
    assert (world.ledger.read_bytes() if older else b"") == before
    assert world.ledger.exists() == older


def test_history_and_registry_put_back_together_are_noticed_by_the_ledger(folder: Path) -> None:
    """The budget of these records is spent, whatever else is forgotten."""
    world = World.create(folder / "series").grow(0).grow(1)
    world.monitor(over(0))
    saved = {path: path.read_bytes() for path in (world.history, world.counted)}
    world.monitor(over(1))
    charged = world.charged()
    for path, data in saved.items():
        path.write_bytes(data)
    with pytest.raises(HistoryError, match=r"has charged period 1 of 'clients', and the history"):
        world.monitor(over(1))
    assert world.charged() == charged


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_second_history_beside_the_same_ledger_is_refused(folder: Path, unit: str) -> None:
    """Also where the budget has room: what was counted would be counted again."""
    whole: dict[str, Any] = {"unit": "client", "per_client": 5, "releases": 6}
    plan = plan_of(total_epsilon=20.0, **(whole if unit == "client" else {}))
    world = World.create(folder / "series", plan).grow(0).grow(1).grow(2)
    world.monitor(over(0))
    with pytest.raises(HistoryError, match=r"has charged period 0 of .* begins on 2027-01-11 or"):
        world.monitor(over(0), history=folder / "second.db")
    world.monitor(over(2))
    charged = world.charged()
    with pytest.raises(HistoryError, match=r"has charged 3 periods, 0 to 2, of 'clients'"):
        world.monitor(over(2), history=folder / "third.db", counted=folder / "third-marks.db")
    assert world.charged() == charged
    assert world.monitor(over(2)).points[2].state == "released"


def test_the_next_series_has_a_history_of_its_own(folder: Path) -> None:
    """It begins where the first one ended: what the ledger has charged is not about its periods."""
    world = World.create(folder / "series", plan_of(replace(WEEKS, periods=1))).grow(0).grow(1)
    world.monitor(over(0))
    later = replace(world, plan=plan_of(replace(WEEKS, first="2027-01-11", periods=5)))
    assert later.monitor(over(1), history=folder / "later.db").points[0].state == "released"


def test_a_history_from_the_middle_of_a_period_is_noticed(folder: Path) -> None:
    """It knows the round, but not that its release was kept: the release is not lost."""
    world = World.create(folder / "series").grow(0)
    world.monitor(over(0))
    with History.open(world.history, create=False) as opened:
        bodies = [entry.body["event"] for entry in opened._store.entries()]
    edit(world.history, "DELETE FROM entries WHERE number > :last", last=bodies.index("begin") + 1)
    with pytest.raises(HistoryError, match="says that period 0 was released, and the history"):
        world.monitor(over(0))


def test_another_plan_or_key_is_refused(world: World) -> None:
    other = replace(world, plan=plan_of(epsilon=1.0))
    with pytest.raises(HistoryError, match="is the history of another plan"):
        other.monitor(AT)
    with pytest.raises(HistoryError, match="was begun with another key"):
        world.monitor(AT, key=SigningKey.generate())
    assert world.verify() == 3


def test_a_history_in_which_nothing_happened_is_taken_over(folder: Path) -> None:
    """A mistyped plan does not block its series."""
    wrong = plan_of(replace(WEEKS, time_column="dya"))
    world = World.create(folder / "series").grow(0)
    with pytest.raises(RecordsError, match="dya"):
        replace(world, plan=wrong).monitor(over(0))
    assert world.history.exists()
    world.monitor(over(0))
    assert world.verify() == 1
    with pytest.raises(HistoryError, match="begin a new history: --history"):
        replace(world, plan=wrong).monitor(over(0))


def test_a_plan_of_one_release_has_no_history(folder: Path) -> None:
    with (
        History.open(folder / "history.db") as opened,
        pytest.raises(InvalidInputError, match="The plan is for one release"),
    ):
        opened.start(SignedPlan(plan_of(None)), signer="a", at=AT)


def forged(world: World, number: int, previous: str, key: SigningKey | None = None) -> bytes:
    """Another release for a period, signed by the aggregator itself."""
    with History.open(world.history, create=False) as opened:
        (release,) = opened.releases([2]).values()
    times = world.plan.series.period(number).times
    period = ReleasedPeriod(number=number, start=times.start, end=times.end, previous=previous)
    signer = key or SigningKey.load(world.folder / "aggregator.pem")
    other = replace(release, period=period, round_id="f" * 32, signer="", signature="")
    return other.sign(signer).to_bytes()


def test_what_does_not_follow_is_not_kept(world: World) -> None:
    with History.open(world.history, create=False) as opened:
        releases = opened.releases()
        last = releases[2].fingerprint
        for message, words in [
            (forged(world, 2, releases[1].fingerprint), "Period 2 is in the history already"),
            (forged(world, 1, releases[0].fingerprint), "Period 1 comes before one that has"),
            (forged(world, 3, releases[1].fingerprint), "does not follow the last one"),
            (forged(world, 3, ""), "does not follow the last one"),
            (forged(world, 3, last, SigningKey.generate()), "not signed by the aggregator"),
        ]:
            with pytest.raises(HistoryError, match=words):
                opened.keep(message, asked=["a"], answered=["a"], at=AT)
        assert opened.verify() == 3
        again = opened.document(opened.read().kept[2])
        opened.keep(again, asked=["a"], answered=["a"], at=AT)
        assert opened.verify() == 3
        opened.keep(forged(world, 3, last), asked=["a"], answered=["a"], at=AT)
        assert opened.verify() == 4


def test_a_release_of_another_plan_is_not_kept(world: World, folder: Path) -> None:
    other = World.create(folder / "other", plan_of(population="others")).grow(0)
    shutil.copy(world.folder / "aggregator.pem", other.folder)
    other.monitor(over(0))
    with History.open(other.history, create=False) as opened:
        message = opened.document(opened.read().kept[0])
    with (
        History.open(world.history, create=False) as opened,
        pytest.raises(HistoryError, match="about another plan"),
    ):
        opened.keep(message, asked=["a"], answered=["a"], at=AT)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"", "is not a history"), (b"not a database" * 99, "not an SQLite file")],
    ids=["empty", "text"],
)
def test_files_that_are_no_history(folder: Path, data: bytes, words: str) -> None:
    world = World.create(folder / "series").grow(0)
    world.history.write_bytes(data)
    with pytest.raises(HistoryError, match=words):
        world.monitor(over(0))
    assert world.history.read_bytes() == data
    source = HistorySource(world.history, world.ledger, world.signed)
    assert words in source.status().faults[0]
    assert "This history has faults" in series_page(source.status())


def test_a_ledger_in_the_place_of_a_history_is_not_one(folder: Path) -> None:
    with Ledger.open(folder / "ledger.db"):
        pass
    with pytest.raises(HistoryError, match="is not a history: another program wrote it"):
        History.open(folder / "ledger.db")


def test_a_history_that_is_missing_or_empty_has_no_status(folder: Path) -> None:
    with pytest.raises(HistoryError, match="There is no history at"):
        read_status(folder / "history.db")
    with History.open(folder / "history.db"):
        pass
    with pytest.raises(HistoryError, match="no series was begun"):
        read_status(folder / "history.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_folder_that_may_not_be_written(folder: Path) -> None:
    folder.chmod(0o500)
    with pytest.raises(HistoryError, match="Cannot use the lock"):
        World(folder, plan_of()).monitor(over(0))


def test_a_damaged_ledger_is_a_fault_of_the_page(world: World) -> None:
    world.ledger.write_bytes(b"")
    status = HistorySource(world.history, world.ledger, world.signed).status()
    assert "is not a ledger" in status.faults[0]


SECONDS = 1.0  # what is promised for each of the two, on a machine that has nothing else to do
BUSY = 6.0  # how much slower a machine of many jobs is


def test_a_thousand_releases_are_read_and_shown_in_a_second(folder: Path) -> None:
    series = Series(every="day", first="2027-01-04", periods=1000)
    plan, columns = plan_of(series), tuple(f"column {i}" for i in range(20))
    made = made_up(1000, columns, since=900)
    windows = canonical(to_plain(made.windows)).decode()
    path = folder / "history.db"
    with History.open(path) as opened:
        opened.start(SignedPlan(plan), signer="ab" * 32, at=AT)
        with opened._store.writing():
            for point in made.points[:1000]:
                n, name = point.number, f"{point.number:064x}"
                for body in (
                    {"event": "begin", "period": n, "round_id": name},
                    {"event": "release", "period": n, "round_id": name, "release": name,
                     "document": name, "asked": ["a", "b", "c"], "answered": ["a", "b"]},
                    {"event": "judged", "period": n,
                     "found": {"point": to_plain(point), "privacy": "words",
                               "windows": windows, "alarms": to_plain(made.alarms)}},
                ):  # fmt: skip
                    opened._store.append(body | {"at": AT})
    began = time.process_time()
    status = read_status(path, at="2031-01-01T00:00:00+00:00")
    read = time.process_time()
    page = series_page(status)
    shown = time.process_time()
    print(f"read {read - began:.2f} s, shown {shown - read:.2f} s, {path.stat().st_size:,} bytes")
    assert len(status.released) == 1000
    assert len(status.columns) == 20
    assert "column 19" in page
    assert read - began < BUSY * SECONDS
    assert shown - read < BUSY * SECONDS
