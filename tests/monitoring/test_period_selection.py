"""Each record of a client belongs to one period, whenever its lines arrive."""

import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.monitoring.period_selection import records_of_period, takes_arrivals
from fedprikl.protocol import Series
from fedprikl.records import Seen, count_parts
from fedprikl.reference import Reference

DAYS = 6
NAMES = tuple("abcdefghijklmnopqrst")  # one record each, so that each can be told
REFERENCE = Reference.from_counts(dict.fromkeys(NAMES, 1))


def series(**changes: str | int) -> Series:
    return Series(**({"every": "day", "first": "2027-03-27", "periods": DAYS} | changes))  # type: ignore[arg-type]


def count(one: Series, number: int, folder: Path, known: list[Seen]) -> Counter[str]:
    """The records of a period, and what was seen is kept."""
    found = records_of_period(one, number, folder, known)
    known += found.new
    counts = count_parts({"site": found}, REFERENCE)["site"].counts
    return Counter({name: int(n) for name, n in zip(NAMES, counts, strict=False) if n})


def write(folder: Path, lines: list[str], file: str = "a.csv") -> None:
    path = folder / file
    if not path.exists():
        path.write_text("value,at\n")
    with path.open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)


LEAVE = series(time_column="at", zone="Europe/Amsterdam")  # its second day has 23 hours
NEXT = series(time_column="at", zone="Europe/Amsterdam", late="next")
ARRIVAL = series()


def test_arrivals_matter_only_where_the_plan_says_so() -> None:
    assert [takes_arrivals(one) for one in (LEAVE, NEXT, ARRIVAL)] == [False, True, True]


@settings(max_examples=60, deadline=None)
@given(
    one=st.sampled_from([LEAVE, NEXT, ARRIVAL]),
    batches=st.lists(
        st.tuples(st.sampled_from(["a.csv", "b.csv"]), st.integers(0, 4)), min_size=1, max_size=8
    ),
    hours=st.lists(st.integers(-10, 24 * DAYS + 10), min_size=len(NAMES), max_size=len(NAMES)),
    order=st.permutations(range(DAYS)),
    asked=st.integers(1, DAYS),
)
def test_no_record_is_counted_in_two_periods(
    one: Series,
    batches: list[tuple[str, int]],
    hours: list[int],
    order: list[int],
    asked: int,
) -> None:
    """Also if periods are asked out of order, and lines come between any two of them."""
    names, known, total = list(NAMES), list[Seen](), Counter[str]()
    start = one.period(0).start
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write(folder, [])
        for turn, number in enumerate(order[:asked]):
            for file, size in batches[turn::asked]:
                new, names = names[:size], names[size:]
                times = [start + timedelta(hours=hours[NAMES.index(name)]) for name in new]
                write(
                    folder, [f"{n},{t.isoformat()}" for n, t in zip(new, times, strict=True)], file
                )
            total += count(one, number, folder, known)
    assert max(total.values(), default=0) <= 1


@pytest.mark.parametrize(("one", "late"), [(LEAVE, 0), (NEXT, 1), (ARRIVAL, 1)])
def test_late_lines_count_in_the_next_period_or_never(
    tmp_path: Path, one: Series, late: int
) -> None:
    known: list[Seen] = []
    write(tmp_path, ["a,2027-03-27T10:00"])
    assert count(one, 0, tmp_path, known) == {"a": 1}
    write(tmp_path, ["b,2027-03-27T11:00", "c,2027-03-28T11:00"])
    found = count(one, 1, tmp_path, known)
    assert (found["a"], found["b"], found["c"]) == (0, late, 1)


def test_lines_that_came_early_wait_for_their_own_period(tmp_path: Path) -> None:
    known: list[Seen] = []
    write(tmp_path, ["a,2027-03-27T10:00", "b,2027-03-29T11:00"])
    found = [count(NEXT, number, tmp_path, known) for number in range(3)]
    assert found == [{"a": 1}, {}, {"b": 1}]


def test_a_window_counts_the_periods_before_it_too(tmp_path: Path) -> None:
    write(tmp_path, ["a,2027-03-27T10:00", "b,2027-03-28T10:00", "c,2027-03-29T10:00"])
    one = series(time_column="at", window=2)
    found = [sorted(count(one, number, tmp_path, [])) for number in range(3)]
    assert found == [["a"], ["a", "b"], ["b", "c"]]
