"""Which counts may share a record: told from the plans alone."""

import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.monitoring.counted_records import CountedRecords
from fedprikl.protocol import Plan, Question, Series

TIMES = {"time_column": "at"}


def counted(
    period: int | None, *, population: str = "sites", organiser: str = "a", **series: str | int
) -> CountedRecords:
    if period is None:
        one = None
    else:
        one = Series(**({"every": "day", "first": "2027-03-27", "periods": 9} | series))  # type: ignore[arg-type]
    plan = Plan(
        population=population,
        reference="0" * 64,
        epsilon=1.0,
        questions=(Question(points=4, release="counts"),),
        releases=1 if one is None else one.window,
        series=one,
    )
    return CountedRecords.of(plan, period, organiser=organiser)


ALL = counted(None)
LEAVE, NEXT, ARRIVAL = (
    TIMES,
    {**TIMES, "late": "next"},
    {"time_column": ""},
)


@pytest.mark.parametrize(
    ("asked", "before", "share"),
    [
        (ALL, ALL, True),
        (ALL, counted(3, **LEAVE), True),
        (counted(3, **LEAVE), ALL, True),
        (counted(3, **ARRIVAL), ALL, True),
        (counted(3, **LEAVE), counted(2, **LEAVE), False),
        (counted(3, **LEAVE), counted(2, population="others", **LEAVE), False),
        (counted(3, **LEAVE), counted(2, time_column="left_at"), True),
        (counted(3, **LEAVE), counted(2, zone="Asia/Tokyo", **LEAVE), True),
        (counted(3, window=2, **LEAVE), counted(2, window=2, **LEAVE), True),
        (counted(4, window=2, **LEAVE), counted(2, window=2, **LEAVE), False),
        (counted(3, **NEXT), counted(2, **NEXT), False),
        (counted(2, **NEXT), counted(3, **NEXT), False),  # out of order: what was seen is known
        (counted(3, **NEXT), counted(2, population="others", **NEXT), True),
        (counted(3, **NEXT), counted(2, organiser="b", **NEXT), True),
        (counted(3, **NEXT), counted(2, **LEAVE), True),  # it may come late
        (counted(3, first="2027-04-01", **NEXT), counted(4, **LEAVE), False),  # before it began
        (counted(3, **LEAVE), counted(2, **NEXT), False),
        (counted(2, **LEAVE), counted(3, **NEXT), True),  # the later one took what was late
        (counted(3, **ARRIVAL), counted(2, **ARRIVAL), False),
        (counted(3, **ARRIVAL), counted(3, first="2027-03-28", **ARRIVAL), False),
        (counted(3, **ARRIVAL), counted(2, **LEAVE), True),
        (counted(3, **ARRIVAL), counted(2, **NEXT), False),  # only what nobody has seen
        (counted(3, **NEXT), counted(2, **ARRIVAL), True),  # parts that were seen count by time
        (counted(3, first="2027-03-28", **NEXT), counted(3, **NEXT), False),
        (counted(3, first="2027-03-28", **NEXT), counted(4, **NEXT), True),
    ],
)
def test_what_may_be_counted_twice(
    asked: CountedRecords, before: CountedRecords, share: bool
) -> None:
    assert asked.may_share(before) is share


def test_a_period_is_known_by_its_end_in_whatever_plan_of_the_population() -> None:
    one = counted(3, window=2, **LEAVE)
    assert one.is_period_of(counted(3, organiser="b", **ARRIVAL))
    assert one.is_period_of(counted(2, first="2027-03-28", **NEXT))
    assert not one.is_period_of(counted(2, window=2, **LEAVE))
    assert not one.is_period_of(counted(3, population="others", **LEAVE))
    assert not ALL.is_period_of(ALL)


def test_a_round_of_a_series_needs_a_period() -> None:
    series = Series(every="day", first="2027-03-27", periods=9)
    plan = Plan(
        population="sites",
        reference="0" * 64,
        epsilon=1.0,
        questions=(Question(points=4, release="counts"),),
        series=series,
    )
    with pytest.raises(InvalidInputError, match="one period"):
        CountedRecords.of(plan, None, organiser="a")
