"""A site's memory of a series: no record is counted twice, whatever is asked in whichever order."""

import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.deployment import site_memory
from fedprikl.errors import PolicyRefusal
from fedprikl.monitoring.counted_records import records_of_period
from fedprikl.protocol import Question, Series, SignedPlan, SigningKey
from fedprikl.records import count_all, open_records
from fedprikl.reference import Reference
from tests.deployment.test_site_memory import AT, KEY, Site, memory, refused, signed

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
    this: Site, name: str, one: SignedPlan, period: int | None, folder: Path, most: int = 1
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
    refused("as often as its own policy", count, this, "r1", one, 1, tmp_path / "data", most=1)
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
