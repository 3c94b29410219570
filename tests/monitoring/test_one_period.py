"""Every record belongs to one period, which no value of a record decides but its time.

Records have a cell of their own, so that a record that is counted twice shows.
"""

import contextlib
import gzip
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedprikl.checks import Ints
from fedprikl.errors import HistoryError
from fedprikl.monitoring.counted_records import CountedRegistry, records_of_period
from fedprikl.protocol import Plan, Series
from fedprikl.records import count_all
from fedprikl.reference import Reference
from tests.plans import make_plan

pytestmark = pytest.mark.slow

CELLS = 24
REFERENCE = Reference.from_counts([1] * CELLS)
FAST = settings(
    max_examples=40, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck)
)
FEWER = settings(FAST, max_examples=25)
CALENDARS = (  # each begins shortly before a clock is changed
    ("day", "2027-03-26", "Europe/Amsterdam"),
    ("week", "2027-10-25", "Europe/Amsterdam"),
    ("day", "2027-11-05", "America/New_York"),
    ("month", "2027-03-01", "America/New_York"),
    ("week", "2011-12-26", "Pacific/Apia"),  # 30 December was skipped
    ("quarter", "2027-01-01", "Asia/Kolkata"),
    ("day", "2018-11-02", "America/Sao_Paulo"),  # the clock skipped midnight
    ("day", "2006-10-27", "America/St_Johns"),  # midnight came twice
)
MOMENTS = (UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-9)))


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def plan_of(series: Series, population: str = "people") -> Plan:
    return make_plan(
        population=population,
        points=CELLS,
        release="counts",
        releases=series.window,
        series=series,
    )


@dataclass
class Site:
    """One client's folder and its registry, counted period by period."""

    series: Series
    data: Path
    marks: Path
    population: str = "people"
    rounds: list[str] = field(default_factory=list)

    def count(self, number: int) -> Ints:
        """As a round does: select, count, claim."""
        marks = CountedRegistry(self.marks)
        selected = records_of_period(self.series, number, self.data)
        counted = count_all({"client": selected}, REFERENCE)["client"]
        self.rounds.append(f"{self.population} {len(self.rounds)}")
        plan = plan_of(self.series, self.population)
        marks.claim(plan, number, self.rounds[-1], {"client": self.data})
        return counted.counts

    def forget(self) -> None:
        CountedRegistry(self.marks).forget(self.rounds[-1])


def count_by_time(series: Series, data: Path) -> list[Ints]:
    selected = {str(n): records_of_period(series, n, data) for n in range(series.periods)}
    return [found.counts for found in count_all(selected, REFERENCE).values()]


# Times


@st.composite
def written_times(draw: st.DrawFn, series: Series) -> tuple[str, int | None]:
    """A time as a file has it, and the number of its period by another way to find it."""
    first = date.fromisoformat(series.first)
    days = (series.end.date() - first).days + 4
    near = draw(st.sampled_from([timedelta(0), timedelta(seconds=-1), timedelta(hours=1)]))
    at = datetime.combine(first, datetime.min.time()) + timedelta(
        days=draw(st.integers(-2, days)), minutes=draw(st.sampled_from([0, 0, 30, 90, 1410]))
    )
    at += near
    kind = draw(st.sampled_from(["clock", "clock", "offset", "Z", " UTC", "day", "none"]))
    if kind == "none":
        return draw(st.sampled_from(["", "NA", "soon", "2027-13-01", "1803945600"])), None
    if kind == "day":
        return at.date().isoformat(), _by_date(series, at.date())
    if kind == "clock":
        return at.isoformat(sep=draw(st.sampled_from([" ", "T"]))), _by_date(series, at.date())
    if kind in ("Z", " UTC"):
        return at.isoformat() + kind, _by_instant(series, at.replace(tzinfo=UTC))
    aware = at.replace(tzinfo=draw(st.sampled_from(MOMENTS)))
    return aware.isoformat(), _by_instant(series, aware)


def _by_instant(series: Series, at: datetime) -> int | None:
    found = [n for n in range(series.periods) if series.period(n).start <= at]
    return found[-1] if found and at < series.end else None


def _by_date(series: Series, day: date) -> int | None:
    """By the calendar alone: a clock's day is in the period of that day."""
    first = date.fromisoformat(series.first)
    number = {
        "day": (day - first).days,
        "week": (day - first).days // 7,
        "month": 12 * (day.year - first.year) + day.month - first.month,
        "quarter": (12 * (day.year - first.year) + day.month - first.month) // 3,
    }[series.every]
    return number if day >= first and number < series.periods else None


@FAST
@given(st.data(), st.sampled_from(CALENDARS))
def test_each_record_counts_in_the_period_of_its_time_or_in_none(
    data: st.DataObject, calendar: tuple[Any, str, str]
) -> None:
    every, first, zone = calendar
    series = Series(every=every, first=first, periods=4, zone=zone, time_column="at")
    times = data.draw(st.lists(written_times(series), min_size=1, max_size=CELLS))
    with folder() as where:
        half = len(times) // 2
        (where / "a.csv").write_text(_lines(times[:half], 0))
        with gzip.open(where / "b.csv.gz", "wt") as packed:
            packed.write(_lines(times[half:], half))
        counts = count_by_time(series, where)
    for cell, (text, expected) in enumerate(times):
        found = [n for n, of_period in enumerate(counts) if of_period[cell]]
        # Where a day's first hour was skipped, a clock never showed it: the day before has it.
        skipped = zone == "America/Sao_Paulo" and text.startswith("2018-11-04")
        assert found == ([] if expected is None else [expected]) or skipped, text
        assert sum(int(of_period[cell]) for of_period in counts) <= 1
    assert sum(int(of_period[-1]) for of_period in counts) == 0


def _lines(times: Sequence[tuple[str, int | None]], first: int) -> str:
    return "cell,at\n" + "".join(f"{first + i},{text}\n" for i, (text, _) in enumerate(times))


@pytest.mark.parametrize(("kind", "offset"), [("TIMESTAMP", 0), ("TIMESTAMPTZ", 1)])
def test_times_of_parquet_files_are_those_of_texts(tmp_path: Path, kind: str, offset: int) -> None:
    series = Series(
        every="day", first="2027-03-27", periods=3, zone="Europe/Amsterdam", time_column="at"
    )
    at = [datetime(2027, 3, 27, 22) + timedelta(minutes=30 * i) for i in range(CELLS)]
    suffix = "+00:00" if offset else ""
    with duckdb.connect() as db:
        rows = ", ".join(f"({i}, '{each}{suffix}'::{kind})" for i, each in enumerate(at))
        found = db.sql(f'SELECT * FROM (VALUES {rows}) AS t(cell, "at")')  # noqa: S608  our own
        found.write_parquet(str(tmp_path / "a.parquet"))
    from_parquet = count_by_time(series, tmp_path)
    (tmp_path / "a.parquet").unlink()
    texts = [(each.isoformat() + suffix, None) for each in at]
    (tmp_path / "a.csv").write_text(_lines(texts, 0))
    np.testing.assert_array_equal(from_parquet, count_by_time(series, tmp_path))
    assert np.sum(from_parquet) == CELLS


def test_a_line_that_is_still_written_is_not_counted_before_it_has_its_time(tmp_path: Path) -> None:
    series = Series(every="week", first="2027-01-04", periods=2, time_column="at")
    file = tmp_path / "a.csv"
    file.write_text("cell,at\n3,2027-01-10T23:30")  # of the first week, so far
    assert count_by_time(series, tmp_path)[0].sum() == 0
    file.write_text("cell,at\n3,2027-01-10T23:30-08:00\n")
    assert [int(each[3]) for each in count_by_time(series, tmp_path)] == [0, 1]


# Claims


def small_site(tmp_path: Path, population: str = "people", **of_series: Any) -> Site:
    chosen: dict[str, Any] = {
        "every": "week",
        "first": "2027-01-04",
        "periods": 6,
        "time_column": "at",
    }
    (tmp_path / "clients").mkdir(exist_ok=True)
    (tmp_path / "clients" / "a.csv").write_text("cell,at\n0,2027-01-05\n1,2027-01-13\n")
    series = Series(**(chosen | of_series))
    return Site(series, tmp_path / "clients", tmp_path / "marks", population)


def test_a_period_is_claimed_once_and_again_only_after_it_was_taken_back(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    first = site.count(0)
    with pytest.raises(HistoryError, match="period 0 of 'people' has been counted"):
        site.count(0)
    site.rounds.pop()
    site.forget()
    np.testing.assert_array_equal(site.count(0), first)


def test_another_name_of_the_population_does_not_count_the_same_records_again(
    tmp_path: Path,
) -> None:
    small_site(tmp_path).count(1)
    other = small_site(tmp_path, "others", first="2027-01-08")  # its period 0 overlaps
    with pytest.raises(HistoryError, match="counted before, under this or another"):
        other.count(0)
    assert other.count(2).sum() == 0  # another week: other records


def test_a_series_by_time_may_not_become_one_by_name(tmp_path: Path) -> None:
    """Nor the other way round: a name need not be the time of a record."""
    for columns in (("at", ""), ("", "at")):
        here = tmp_path / f"from {columns[0]}"
        (here / "clients").mkdir(parents=True)
        first, second = (small_site(here, time_column=column) for column in columns)
        (here / "clients" / "a.csv").rename(here / "clients" / "2027-W01.csv")
        first.count(0)
        with pytest.raises(HistoryError, match="counted before"):
            second.count(1)


def test_a_window_counts_a_record_as_often_as_the_plan_says(tmp_path: Path) -> None:
    site = small_site(tmp_path, window=3)
    counts = [site.count(n) for n in range(6)]
    assert [int(each[0]) for each in counts] == [1, 1, 1, 0, 0, 0]
    assert [int(each[1]) for each in counts] == [0, 1, 1, 1, 0, 0]


def test_a_period_is_of_its_population_and_its_series(tmp_path: Path) -> None:
    """Others count theirs, of other records, also if the period has the same number."""
    week = Series(every="week", first="2027-01-04", periods=6, time_column="at")
    plan, others = plan_of(week), plan_of(week, "others")
    later = plan_of(replace(week, first="2028-01-03"))
    marks = CountedRegistry(tmp_path / "marks.db")
    for number, each in enumerate((plan, others, later)):
        marks.claim(each, 0, f"round {number}", {"client": tmp_path / f"{number}.csv"})
    with pytest.raises(HistoryError, match="period 0 of 'people' has been counted"):
        marks.claim(plan, 0, "again", {"client": tmp_path / "more.csv"})
    assert [marks.rounds(each) for each in (plan, others, later)] == [
        {f"round {number}": 0} for number in range(3)
    ]


def test_an_older_copy_of_the_registry_does_not_know_the_round(tmp_path: Path) -> None:
    """By which it is found out: the history knows it."""
    site = small_site(tmp_path)
    site.count(0)
    shutil.copy(site.marks, tmp_path / "backup")
    assert site.count(1)[:2].tolist() == [0, 1]
    shutil.copy(tmp_path / "backup", site.marks)
    plan = plan_of(site.series, site.population)
    assert CountedRegistry(site.marks).rounds(plan) == {"people 0": 0}


# Neighbours

GARBAGE = (
    b"0", b"23", b"", b"NA", b"999", b"a word", b'"', b'a "quote', b"1,2", b"\xff\xfe", b"a\0b",
    b"\r", b",,,,", b'"1', b"1\rb",
)  # fmt: skip
ORDERS = (("at", "cell"), ("cell", "at"), ("note", "at", "cell"))


@FAST
@given(st.data(), st.sampled_from(["", "at"]), st.sampled_from(ORDERS))
def test_replacing_a_record_moves_one_count_of_one_period(
    data: st.DataObject, column: str, order: tuple[str, ...]
) -> None:
    """The time and the place of the record stay: what is protected is all the rest."""
    series = Series(
        every="week",
        first="2027-01-04",
        periods=3,
        time_column=column,
    )
    weeks = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=8))  # of its file
    records = [_record(data, order) for _ in weeks]
    place = data.draw(st.integers(0, len(weeks) - 1))
    other = dict(zip(order, _record(data, order), strict=True))
    kept = dict(zip(order, records[place], strict=True))["at"]
    changed = list(records)
    changed[place] = tuple(kept if name == "at" else other[name] for name in order)
    before, after = (_all_counts(series, order, weeks, each) for each in (records, changed))
    differing = [n for n in range(3) if (before[n] != after[n]).any()]
    assert len(differing) <= 1
    for n in differing:
        change = Counter((after[n] - before[n]).tolist())
        assert (change[1], change[-1], change[0]) == (1, 1, CELLS - 1)
    assert [each.sum() for each in before] == [each.sum() for each in after]
    assert column or sum(each.sum() for each in before) == len(weeks)


def _record(data: st.DataObject, order: Sequence[str]) -> tuple[bytes, ...]:
    day = data.draw(st.integers(1, 26))
    values = {
        "at": f"2027-01-{day:02}T12:00".encode(),
        "cell": data.draw(st.sampled_from(GARBAGE)),
        "note": data.draw(st.sampled_from(GARBAGE)),
    }
    return tuple(values[name] for name in order)


def _all_counts(
    series: Series, order: Sequence[str], weeks: Sequence[int], records: Sequence[tuple[bytes, ...]]
) -> list[Ints]:
    """One file for each week: where names tell the period, that of its records."""
    with folder() as where:
        for week in range(series.periods):
            lines = [b",".join(each) for each, of in zip(records, weeks, strict=True) if of == week]
            text = b"\n".join([",".join(order).encode(), *lines, b""])
            (where / f"2027-W{week + 1:02}.csv").write_bytes(text)
        return count_by_time(series, where)
