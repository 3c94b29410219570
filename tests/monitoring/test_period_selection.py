"""Each record of a client belongs to one period, told by its time or by the name of its file."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.errors import RecordsError
from fedprikl.monitoring.counted_records import records_of_period
from fedprikl.protocol import Series
from fedprikl.records import count_all
from fedprikl.records.sources import named_days
from fedprikl.reference import Reference

DAYS = 6
NAMES = tuple("abcdefghijklmnopqrst")  # one record each, so that each can be told
REFERENCE = Reference.from_counts(dict.fromkeys(NAMES, 1))


def series(**changes: str | int) -> Series:
    return Series(**({"every": "day", "first": "2027-03-27", "periods": DAYS} | changes))  # type: ignore[arg-type]


def count(one: Series, number: int, folder: Path) -> Counter[str]:
    """The records of a period."""
    found = records_of_period(one, number, folder)
    counts = count_all({"site": found}, REFERENCE)["site"].counts
    return Counter({name: int(n) for name, n in zip(NAMES, counts, strict=False) if n})


def write(folder: Path, lines: list[str], file: str = "a.csv") -> None:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text("value,at\n")
    with path.open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)


TIMED = series(time_column="at", zone="Europe/Amsterdam")  # its second day has 23 hours


@settings(max_examples=40, deadline=None)
@given(
    named=st.booleans(),
    batches=st.lists(
        st.tuples(st.sampled_from(["a.csv", "b.csv"]), st.integers(0, 4)), min_size=1, max_size=8
    ),
    hours=st.lists(st.integers(-10, 24 * DAYS + 10), min_size=len(NAMES), max_size=len(NAMES)),
    order=st.permutations(range(DAYS)),
    asked=st.integers(1, DAYS),
)
def test_no_record_is_counted_in_two_periods(
    named: bool,
    batches: list[tuple[str, int]],
    hours: list[int],
    order: list[int],
    asked: int,
) -> None:
    """Also if periods are asked out of order, and lines come between any two of them."""
    names, total = list(NAMES), Counter[str]()
    one = series(zone="Europe/Amsterdam") if named else TIMED
    start = one.period(0).start
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write(folder, [], "2027-03-27/a.csv" if named else "a.csv")
        for turn, number in enumerate(order[:asked]):
            for file, size in batches[turn::asked]:
                new, names = names[:size], names[size:]
                for name in new:
                    at = start + timedelta(hours=hours[NAMES.index(name)])
                    place = f"{at.date()}/{file}" if named else file
                    write(folder, [f"{name},{at.isoformat()}"], place)
            total += count(one, number, folder)
    assert max(total.values(), default=0) <= 1


@pytest.mark.parametrize("one", [TIMED, series()])
def test_late_lines_are_left_out(tmp_path: Path, one: Series) -> None:
    write(tmp_path, ["a,2027-03-27T10:00"], "2027-03-27.csv")
    assert count(one, 0, tmp_path) == {"a": 1}
    write(tmp_path, ["b,2027-03-27T11:00"], "2027-03-27.csv")
    write(tmp_path, ["c,2027-03-28T11:00"], "2027-03-28.csv")
    assert count(one, 1, tmp_path) == {"c": 1}


@pytest.mark.parametrize("one", [series(time_column="at", window=2), series(window=2)])
def test_a_window_counts_the_periods_before_it_too(tmp_path: Path, one: Series) -> None:
    for name, day in (("a", 27), ("b", 28), ("c", 29)):
        write(tmp_path, [f"{name},2027-03-{day}T10:00"], f"2027-03-{day}.csv")
    found = [sorted(count(one, number, tmp_path)) for number in range(3)]
    assert found == [["a"], ["a", "b"], ["b", "c"]]


# Names


@pytest.mark.parametrize(
    ("name", "first", "days"),
    [
        ("2027-W01", date(2027, 1, 4), 7),
        ("week=2026-W53", date(2026, 12, 28), 7),
        ("2027-02.parquet", date(2027, 2, 1), 28),
        ("month=2026-12.csv.gz", date(2026, 12, 1), 31),
        ("2027-Q4.csv", date(2027, 10, 1), 92),
        ("day=2028-02-29.CSV", date(2028, 2, 29), 1),
    ],
)
def test_names_of_periods(name: str, first: date, days: int) -> None:
    assert named_days(Path(name)) == (first, first + timedelta(days=days))


@pytest.mark.parametrize(
    "name",
    ["a.csv", "2027", "2027-W54", "2027-13", "2027-02-29", "2027-W1", "2027-Q5", "2027-W01-b.csv",
     "w2027-W01", "2027-W00", "9999-12", "2027-W01.txt"],
)  # fmt: skip
def test_names_of_no_period(name: str) -> None:
    assert named_days(Path(name)) is None


def test_files_of_days_add_up_to_weeks_and_folders_hold_many_files(tmp_path: Path) -> None:
    one = series(every="week", first="2027-03-22", periods=3)
    write(tmp_path, ["a,", "b,"], "week=2027-W12/x.csv")
    write(tmp_path, ["c,"], "week=2027-W12/y.csv")
    write(tmp_path, ["d,"], "2027-03-28.csv")
    write(tmp_path, ["e,"], "2027-03-29.csv")
    write(tmp_path, ["f,"], "2027-W14.csv")
    write(tmp_path, ["g,"], "2027-W20.csv")  # after the series
    write(tmp_path, ["h,"], ".hidden.csv")
    (tmp_path / "notes.txt").write_text("no records")
    (tmp_path / "2027-W13.csv").write_text("value,at\ni,")  # a last line needs no line break
    found = [sorted(count(one, number, tmp_path)) for number in range(3)]
    assert found == [["a", "b", "c", "d"], ["e", "i"], ["f"]]


def test_periods_may_hold_the_files_of_clients(tmp_path: Path) -> None:
    one = series(every="month", first="2027-03-01", periods=2)
    write(tmp_path, ["a,"], "2027-03/one.csv")
    write(tmp_path, ["b,"], "2027-03/two/x.csv")
    write(tmp_path, ["c,"], "2027-04/two/x.csv")
    paths = [tmp_path / "*" / name for name in ("one.csv", "two")]
    found = [[sorted(count(one, number, path)) for number in range(2)] for path in paths]
    assert found == [[["a"], []], [["b"], ["c"]]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: write(folder, [], "march.csv"), r"march\.csv says no period"),
        (lambda folder: write(folder, [], "2027-W9/a.csv"), r"2027-W9 says no period"),
        (lambda folder: write(folder, [], "2027-03.csv"), r"2027-03\.csv has records of more days"),
        (
            lambda folder: folder.rename(folder.with_name("b")).with_name("site").write_text("v\n"),
            "is one file",
        ),
        (shutil.rmtree, "No such file"),
    ],
)
def test_folders_that_do_not_tell_the_period_are_refused(
    tmp_path: Path, change: Callable[[Path], object], words: str
) -> None:
    """A misspelt name would lose its records without a word."""
    folder = tmp_path / "site"
    write(folder, ["a,"], "2027-W12.csv")
    one = series(every="week", first="2027-03-22", periods=3)
    assert count(one, 0, folder) == {"a": 1}
    change(folder)
    with pytest.raises(RecordsError, match=words):
        count(one, 0, folder)
