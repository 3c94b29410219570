"""Which counts may share a record: told from the plans alone."""

import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.monitoring.counted_records import CountedRecords
from fedprikl.protocol import Series
from tests.plans import make_plan

TIMES = {"time_column": "at"}


def counted(
    period: int | None, *, population: str = "sites", organiser: str = "a", **series: str | int
) -> CountedRecords:
    if period is None:
        one = None
    else:
        one = Series(**({"every": "day", "first": "2027-03-27", "periods": 9} | series))  # type: ignore[arg-type]
    plan = make_plan(
        population=population,
        release="counts",
        releases=1 if one is None else one.window,
        series=one,
    )
    return CountedRecords.of(plan, period, organiser=organiser)


ALL = counted(None)
NAMES = {"time_column": ""}


@pytest.mark.parametrize(
    ("asked", "before", "share"),
    [
        (ALL, ALL, True),
        (ALL, counted(3, **TIMES), True),
        (counted(3, **TIMES), ALL, True),
        (counted(3, **NAMES), ALL, True),
        (counted(3, **TIMES), counted(2, **TIMES), False),
        (counted(3, **TIMES), counted(2, population="others", **TIMES), False),
        (counted(3, **TIMES), counted(2, time_column="left_at"), True),
        (counted(3, **TIMES), counted(2, zone="Asia/Tokyo", **TIMES), True),
        (counted(3, window=2, **TIMES), counted(2, window=2, **TIMES), True),
        (counted(4, window=2, **TIMES), counted(2, window=2, **TIMES), False),
        (counted(3, **NAMES), counted(2, **NAMES), False),
        (counted(3, **NAMES), counted(3, first="2027-03-28", **NAMES), False),
        (counted(3, **NAMES), counted(2, first="2027-03-28", **NAMES), True),
        (counted(0, every="month", first="2027-03-01", **NAMES), counted(2, **NAMES), True),
        (counted(3, **NAMES), counted(2, **TIMES), True),
        (counted(3, **TIMES), counted(2, **NAMES), True),
    ],
)
def test_what_may_be_counted_twice(
    asked: CountedRecords, before: CountedRecords, share: bool
) -> None:
    assert asked.may_share(before) is share


def test_a_period_is_known_by_its_end_in_whatever_plan_of_the_population() -> None:
    one = counted(3, window=2, **TIMES)
    assert one.is_period_of(counted(3, organiser="b", **NAMES))
    assert one.is_period_of(counted(2, first="2027-03-28", **TIMES))
    assert not one.is_period_of(counted(2, window=2, **TIMES))
    assert not one.is_period_of(counted(3, population="others", **TIMES))
    assert not ALL.is_period_of(ALL)


def test_a_round_of_a_series_needs_a_period() -> None:
    series = Series(every="day", first="2027-03-27", periods=9)
    plan = make_plan(population="sites", release="counts", series=series)
    with pytest.raises(InvalidInputError, match="one period"):
        CountedRecords.of(plan, None, organiser="a")
