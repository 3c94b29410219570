"""Spans of time: what a record has lost is what counted its moment."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedprikl.errors import BudgetExceededError, InvalidInputError
from fedprikl.privacy import Charge, Ledger, Numbers, TimeInterval, calibrate, total_epsilon
from fedprikl.privacy.account import Account, Accounts, TimedCharge, exposures, worst_epsilon

pytestmark = pytest.mark.slow

AT = "2030-01-31T12:00:00+00:00"
MONDAY = datetime(2027, 1, 4, tzinfo=UTC)
DELTA = 1e-6
CHARGES = tuple(calibrate(Numbers(), epsilon=each, law="laplace") for each in (0.25, 0.5))
DAYS = 8
FAST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def days(first: int, last: int, hours: int = 0) -> TimeInterval:
    """From a day up to another; `hours` is the offset in which they are written."""
    at = [(MONDAY + timedelta(days=day)) for day in (first, last)]
    shown = [(each + timedelta(hours=hours)).replace(tzinfo=None).isoformat() for each in at]
    return TimeInterval(*(f"{each}{hours:+03}:00" for each in shown))


SPANS = st.none() | st.tuples(
    st.integers(0, DAYS - 1), st.integers(1, DAYS), st.sampled_from([0, 5, -8])
).filter(lambda each: each[0] < each[1])
SPANNED = st.lists(st.tuples(st.sampled_from(CHARGES), SPANS), max_size=7)
Drawn = Sequence[tuple[Charge, tuple[int, int, int] | None]]


def as_intervals(drawn: Drawn) -> list[TimedCharge]:
    return [(charge, None if each is None else days(*each)) for charge, each in drawn]


def by_day(drawn: Drawn) -> list[list[Charge]]:
    """What a record of each day was charged, and one before and after all of them."""
    return [
        [charge for charge, each in drawn if each is None or each[0] <= day < each[1]]
        for day in range(-1, DAYS + 1)
    ]


def counted(each: Sequence[Charge]) -> Counter[str]:
    return Counter(map(repr, each))


def sum_of(each: Sequence[Charge]) -> float:
    return total_epsilon(each, delta=DELTA)


@contextlib.contextmanager
def phones(path: Path | None = None, *, epsilon: float = 1.0) -> Iterator[Ledger]:
    """A ledger; what else would fit, which takes a second, is not looked for."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Account, "fits", lambda _: {})
        with Ledger.open(path or Path(folder) / "ledger.db") as ledger:
            ledger.set_budget("phones", epsilon=epsilon, delta=DELTA, at=AT)
            yield ledger


@FAST
@given(st.data(), SPANNED)
def test_exposures_are_the_largest_of_all_moments(data: st.DataObject, drawn: Drawn) -> None:
    found, moments = exposures(as_intervals(drawn)), by_day(drawn)
    for each in moments:
        assert any(counted(each) <= counted(other) for other in found)
    for other in found:
        assert any(counted(other) <= counted(each) for each in moments)
    worst = max(map(sum_of, moments))
    shuffled = as_intervals(data.draw(st.permutations(drawn)))
    assert worst_epsilon(shuffled, delta=DELTA) == pytest.approx(worst, rel=1e-9)


@settings(FAST, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(CHARGES), SPANS), min_size=3, max_size=9))
def test_a_ledger_refuses_exactly_when_a_moment_would_lose_too_much(drawn: Drawn) -> None:
    accepted: list[tuple[Charge, tuple[int, int, int] | None]] = []
    with phones() as ledger:
        for number, one in enumerate(drawn):
            (charge, times), name = as_intervals([one])[0], f"r{number}"
            if max(map(sum_of, by_day([*accepted, one]))) <= 1 + 1e-9:
                ledger.check("phones", charge, times=times)
                ledger.reserve("phones", charge, round_id=name, at=AT, times=times)
                accepted.append(one)
                continue
            with pytest.raises(BudgetExceededError):
                ledger.check("phones", charge, times=times)
            with pytest.raises(BudgetExceededError):
                ledger.reserve("phones", charge, round_id=name, at=AT, times=times)
        worst = max(map(sum_of, by_day(accepted)))
        assert ledger.account("phones").spent == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize(
    "charge",
    [
        calibrate(Numbers(), epsilon=1.0, law="laplace"),
        calibrate(Numbers(), epsilon=1.0, delta=DELTA, law="gaussian"),
    ],
    ids=["laplace", "gaussian"],
)
def test_a_year_of_weeks_spends_what_one_of_them_does(charge: Charge) -> None:
    with phones() as ledger:
        for week in range(52):
            times = days(7 * week, 7 * week + 7, hours=week % 3)
            ledger.reserve("phones", charge, round_id=f"w{week}", at=AT, times=times)
        assert ledger.account("phones").spent == sum_of([charge])
        again = days(7 * 30 + 6, 7 * 31)  # a day that was counted
        with pytest.raises(BudgetExceededError):
            ledger.reserve("phones", charge, round_id="again", at=AT, times=again)
        with pytest.raises(BudgetExceededError):  # about all records
            ledger.reserve("phones", charge, round_id="all", at=AT)


def test_overlapping_windows_compose_like_releases() -> None:
    charge = calibrate(Numbers(), epsilon=0.2, delta=DELTA / 10, law="gaussian")
    with phones(epsilon=5.0) as ledger:
        for week in range(12):
            window = days(7 * max(week - 3, 0), 7 * week + 7)
            ledger.reserve("phones", charge, round_id=f"w{week}", at=AT, times=window)
        assert ledger.account("phones").spent == sum_of([charge] * 4) < 4 * sum_of([charge])


def test_a_cancelled_round_gives_its_moments_back() -> None:
    with phones() as ledger:
        charge = calibrate(Numbers(), epsilon=1.0, law="laplace")
        held = ledger.reserve("phones", charge, round_id="a", at=AT, times=days(0, 7))
        ledger.cancel(held, reason="nothing was opened", at=AT)
        ledger.reserve("phones", charge, round_id="b", at=AT, times=days(3, 5))
        assert ledger.account("phones").spent == sum_of([charge])


@pytest.mark.parametrize(
    "ends",
    [
        ("2027-01-04T00:00:00+00:00", "2027-01-04T01:00:00+01:00"),  # the same instant
        ("2027-01-05T00:00:00+00:00", "2027-01-04T00:00:00+00:00"),
        ("2027-01-04T00:00:00", "2027-01-05T00:00:00"),
        ("2027-01-04T00:00:00+00:00", "2027-01-07T00:00:00"),
        ("2027-01-04T00:00:00", "2027-01-07T00:00:00+00:00"),
        ("2027-01-04", "monday"),
        (1, 2),
    ],
)
def test_an_interval_has_two_ends_with_offsets_in_order(ends: tuple[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=r"interval|ISO 8601"):
        TimeInterval(*ends)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ((0, 2), (2, 4), False),
        ((2, 4), (0, 2), False),
        ((0, 3), (2, 4), True),
        ((1, 2), (0, 9), True),
    ],
)
def test_intervals_that_only_touch_share_no_record(
    one: tuple[int, int], other: tuple[int, int], both: bool
) -> None:
    assert days(*one).overlaps(days(*other)) is both
    assert days(*one).overlaps(None)


def test_what_fits_is_what_fits_those_who_lost_most() -> None:
    with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.db") as ledger:
        ledger.set_budget("a", epsilon=1, delta=0, at=AT)
        little, much = CHARGES
        ledger.reserve("a", little, round_id="little", at=AT, times=days(0, 1))
        ledger.reserve("a", much, round_id="much", at=AT, times=days(1, 2))
        fits = ledger.account("a").fits()["laplace"]
    assert fits == pytest.approx(0.5, rel=1e-3)


def test_a_charge_to_a_population_without_a_budget_is_forged() -> None:
    with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.db") as ledger:
        ledger.set_budget("a", epsilon=1, delta=0, at=AT)
        ledger.reserve("a", CHARGES[0], round_id="one", at=AT)
        with ledger._store.reading():
            entries = ledger._store.entries()
    accounts = Accounts()
    with pytest.raises(ValueError):  # noqa: PT011
        accounts.apply(entries[1])
    for entry in entries:
        accounts.apply(entry)
    with pytest.raises(ValueError):  # noqa: PT011  a round is charged once
        accounts.apply(entries[1])
