"""A site's memory of a series: no record is counted twice, whatever is asked in whichever order."""

import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.deployment import site_memory
from fedprikl.deployment.site_memory import SiteMemory
from fedprikl.errors import PolicyRefusal
from fedprikl.monitoring.counted_records import records_of_period
from fedprikl.protocol import Question, Series, SignedPlan, SigningKey, Step
from fedprikl.records import count_all, open_records
from fedprikl.reference import Reference
from tests.deployment.test_site_memory import AT, KEY, memory, refused, signed

pytestmark = pytest.mark.slow

OTHER = SigningKey.generate()
NAMES = tuple("abcdefghijklmnop")  # one record each, so that each can be told
REFERENCE = Reference.from_counts(dict.fromkeys(NAMES, 1))
QUESTIONS = (Question(release="counts"),)


def plan(key: SigningKey = KEY, *, population: str = "sites", **series: str | int) -> SignedPlan:
    one = Series(**({"every": "day", "first": "2030-01-05", "periods": 6} | series))  # type: ignore[arg-type]
    return signed(key, population=population, questions=QUESTIONS, series=one, releases=one.window)


LEAVE = plan(time_column="at")
NAMED = plan()
PLANS = (
    signed(),
    LEAVE,
    NAMED,
    plan(time_column="at", population="renamed"),
    plan(time_column="at", first="2030-01-07"),
    plan(first="2030-01-06"),
    plan(every="week", first="2030-01-07"),
    plan(OTHER, time_column="at"),
    plan(time_column="left"),
    plan(time_column="at", zone="Asia/Tokyo"),
)


def count(
    this: SiteMemory, name: str, one: SignedPlan, period: int | None, folder: Path, most: int = 1
) -> Counter[str]:
    """As a site does it, up to the step in which its counts leave."""
    this.begin(name, one, most_counts=most, at=AT, period=period)
    if not one.plan.is_series or period is None:
        counts = open_records(folder).count(REFERENCE).counts
    else:
        found = records_of_period(one.plan.series, period, folder)
        counts = count_all({"": found}, REFERENCE)[""].counts
    this.count(name, one, most_counts=most, at=AT, period=period)
    return Counter({n: int(c) for n, c in zip(NAMES, counts, strict=False) if c})


def write(folder: Path, lines: list[str], file: str = "a.csv") -> None:
    folder.mkdir(exist_ok=True)
    with (folder / file).open("a") as stream:
        if stream.tell() == 0:
            stream.write("value,at,left\n")
        stream.writelines(f"{line}\n" for line in lines)


@settings(max_examples=60, deadline=None)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from(PLANS), st.integers(0, 5), st.integers(0, 4)),
        min_size=2,
        max_size=9,
    ),
    hours=st.lists(
        st.tuples(st.integers(-30, 150), st.integers(0, 40)),
        min_size=len(NAMES),
        max_size=len(NAMES),
    ),
)
def test_no_record_is_counted_twice_by_any_plans(
    asked: list[tuple[SignedPlan, int, int]], hours: list[tuple[int, int]]
) -> None:
    """All plans allow one count of a record, under whatever name, series, clock or signer."""
    names, total = list(NAMES), Counter[str]()
    start = LEAVE.plan.series.period(0).start
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write(folder / "data", [], "2030-01-05.csv")
        for turn, (one, period, size) in enumerate(asked):
            new, names = names[:size], names[size:]
            for name in new:
                at, stay = hours[NAMES.index(name)]
                times = [start + timedelta(hours=at), start + timedelta(hours=at + stay)]
                line = ",".join([name, *(f"{each:%Y-%m-%dT%H:%M}" for each in times)])
                write(folder / "data", [line], file=f"2030-01-{5 + (at % 100) // 24:02}.csv")
            try:
                this = memory(folder, "data")
                which = None if not one.plan.is_series else period
                total += count(this, f"r{turn}", one, which, folder / "data")
            except PolicyRefusal:
                continue
    assert max(total.values(), default=0) <= 1


def test_another_period_is_counted_and_the_same_never_again(tmp_path: Path) -> None:
    write(tmp_path / "data", ["a,2030-01-05T10:00,", "b,2030-01-06T10:00,"])
    this = memory(tmp_path, "data")
    assert count(this, "r0", LEAVE, 0, tmp_path / "data") == {"a": 1}
    assert count(this, "r1", LEAVE, 1, tmp_path / "data") == {"b": 1}
    for again in (LEAVE, NAMED, plan(time_column="at", window=3)):
        refused("of this period", count, this, "r2", again, 1, tmp_path / "data", most=9)
    assert count(this, "r3", LEAVE, 2, tmp_path / "data") == {}


def test_a_window_needs_the_sites_consent(tmp_path: Path) -> None:
    write(tmp_path / "data", ["a,2030-01-05T10:00,", "b,2030-01-06T10:00,"])
    this, one = memory(tmp_path, "data"), plan(time_column="at", window=2)
    assert count(this, "r0", one, 0, tmp_path / "data", most=2) == {"a": 1}
    refused("as often as the plan", count, this, "r1", one, 1, tmp_path / "data", most=1)
    assert count(this, "r2", one, 1, tmp_path / "data", most=2) == {"a": 1, "b": 1}


def test_a_long_series_may_have_more_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_memory, "MOST_ROUNDS", 3)
    this = memory(tmp_path)
    for number in range(24):
        this.begin(f"r{number}", LEAVE, most_counts=1, at=AT, period=0)
    with pytest.raises(PolicyRefusal, match="used for 24 rounds"):
        this.begin("more", LEAVE, most_counts=1, at=AT, period=0)


# Files of version 1


def write_first_version(path: Path, records: str) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            f"""
            CREATE TABLE rounds (records TEXT, round TEXT, plan TEXT, ends REAL,
                step INTEGER NOT NULL, PRIMARY KEY (records, round)) WITHOUT ROWID;
            CREATE TABLE counts (records TEXT, round TEXT, population TEXT, at TEXT);
            CREATE TABLE plans (organiser TEXT, population TEXT, serial INTEGER NOT NULL,
                PRIMARY KEY (organiser, population)) WITHOUT ROWID;
            CREATE TABLE forgotten (until REAL NOT NULL);
            INSERT INTO forgotten VALUES (0);
            INSERT INTO counts VALUES ('{records}', 'old', 'sites', '2029-01-01T00:00:00+00:00');
            INSERT INTO rounds VALUES ('{records}', 'old', 'p', NULL, 4);
            PRAGMA application_id = {0x46504B53};
            PRAGMA user_version = 1;
            """  # noqa: S608
        )


def test_a_file_of_the_first_version_goes_on(tmp_path: Path) -> None:
    """What it has counted was of all records, so it overlaps with every period."""
    this = memory(tmp_path, "data")
    write(tmp_path / "data", ["a,2030-01-05T10:00,"])
    write_first_version(tmp_path / "home" / "site.db", this._records)
    for one in (LEAVE, NAMED, signed()):
        period = None if not one.plan.is_series else 0
        refused("as often as the plan", count, this, "new", one, period, tmp_path / "data")
    refused("round has been answered", count, this, "old", signed(), None, tmp_path / "data")
    twice = signed(releases=2, population="others")
    assert count(this, "new", twice, None, tmp_path / "data", most=2) == {"a": 1}
    window = plan(time_column="at", window=3)
    assert count(this, "more", window, 0, tmp_path / "data", most=3) == {"a": 1}
    with closing(sqlite3.connect(tmp_path / "home" / "site.db")) as db, db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("SELECT round FROM counts").fetchall() == [("old",), ("new",), ("more",)]


def test_an_upgraded_file_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    old, new = memory(tmp_path / "old"), memory(tmp_path / "new")
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    write_first_version(tmp_path / "old" / "home" / "site.db", old._records)
    for this in (old, new):
        this.begin("aa", plan(time_column="at", window=2), most_counts=2, at=AT, period=0)
        this.go_on("aa", Step.SHARE)
    columns = []
    for folder in ("old", "new"):
        with closing(sqlite3.connect(tmp_path / folder / "home" / "site.db")) as db, db:
            tables = [t for (t,) in db.execute("SELECT name FROM sqlite_master ORDER BY name")]
            columns.append({t: db.execute(f"PRAGMA table_info({t})").fetchall() for t in tables})
    assert columns[0] == columns[1]
