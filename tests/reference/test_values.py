"""One rule per value: the same value has the same level, however it is stored."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl.reference.values import (
    MISSING_TEXTS,
    NO_INSTANT,
    Instant,
    Odd,
    instant,
    instants,
    level_text,
    number,
    plain_numbers,
    simple,
)

BIG = 2**53
LEAP = datetime(2020, 2, 29)
SAME: list[tuple[str, list[Any]]] = [
    ("1", [1, 1.0, "1", "1.0", "1.", "1.000", np.int8(1), np.float16(1), Decimal("1.00"), b"1"]),
    ("0", [0, -0.0, "-0", "-0.0", Decimal("-0.00"), np.float32(-0.0)]),
    (str(BIG), [BIG, BIG + 1, float(BIG), str(BIG), str(BIG + 1), f"{BIG}.0", Decimal(BIG + 1)]),
    ("10000000000000000", [10**16, 1e16, "1e16", "1e+16", "10000000000000000", Decimal("1e16")]),
    ("18446744073709551616", [2**64 - 1, np.uint64(2**64 - 1), 2.0**64, str(2**64 - 1)]),
    ("0.1", [0.1, np.float32(0.1), float(np.float32(0.1)), "0.1", "0.10000000149011612"]),
    ("1e-07", [1e-7, np.float32(1e-7), "1e-7", "1e-07", float(np.float32(1e-7))]),
    ("1.5", [1.5, np.float16(1.5), "1.5", Decimal("1.50"), Decimal("1.5")]),
    ("inf", [float("inf"), np.float32("inf"), 10**400, Decimal("1e400"), "inf", "9" * 400]),
    ("-inf", [float("-inf"), -(10**400), "-inf"]),
    ("True", [True, np.bool_(True), "True", "true", "TRUE"]),
    ("red", ["red", b"red", np.str_("red"), bytearray(b"red")]),
    ("007", ["007", "007.0", b"007"]),
    (
        "2020-02-29",
        [
            LEAP, LEAP.date(), LEAP.replace(tzinfo=UTC), pd.Timestamp(LEAP),
            pd.Timestamp(LEAP).as_unit("s"), np.datetime64("2020-02-29"),
            np.datetime64("2020-02-29T00:00", "ns"), "2020-02-29", "2020-02-29 00:00:00",
            "2020-02-29T00:00:00.000000", "2020-02-29T00:00Z", "2020-02-29 00:00:00 UTC",
            "2020-02-29T02:00:00+02:00",
            datetime(2020, 2, 29, 2, tzinfo=timezone(timedelta(hours=2))),
        ],
    ),
    (
        "2020-02-29 12:00:00.5",
        [
            LEAP.replace(hour=12, microsecond=500_000), "2020-02-29T12:00:00.500",
            np.datetime64("2020-02-29T12:00:00.5", "ms"), "2020-02-29 12:00:00.5000009",
            pd.Timestamp("2020-02-29 12:00:00.500000999"),
        ],
    ),
    ("86400", [timedelta(days=1), pd.Timedelta(days=1), np.timedelta64(1, "D"), 86400]),
    ("13:45:00", [time(13, 45), "13:45:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "values"), SAME)
def test_one_value_has_one_text_however_it_is_stored(text: str, values: list[Any]) -> None:
    assert {level_text(value) for value in values} == {text}
    assert level_text(text) == text


MISSING = [
    None, float("nan"), np.float32("nan"), np.float16("nan"), Decimal("NaN"), Decimal("sNaN"),
    pd.NA, pd.NaT, np.datetime64("NaT", "s"), np.timedelta64("NaT", "s"),
]  # fmt: skip


@pytest.mark.parametrize("value", MISSING)
def test_every_kind_of_missing_value(value: Any) -> None:
    assert simple(value) is None


class Silent:
    def __str__(self) -> str:
        raise RuntimeError


NO_LEVEL = [
    [1], (1,), {"a": 1}, {1}, np.zeros(2), Silent(), 1j, np.datetime64(10**8, "D"),
    np.timedelta64(1, "M"),
    np.datetime64(2**62, "ms"), pd.Timestamp(2**40, unit="s"),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
]  # fmt: skip


@pytest.mark.parametrize("value", NO_LEVEL)
def test_what_cannot_be_compared_has_no_text_and_does_not_raise(value: Any) -> None:
    assert simple(value) is Odd.VALUE
    assert level_text(value) is None


@pytest.mark.parametrize(
    "text",
    [
        "1.50",
        "+1",
        ".5",
        "1e400",
        "1E5",
        "1e-400",
        "v1.0",
        "0x10",
        "1_000",
        " 1",
        "--1.0",
        "",
        "t",
        "2020-02-30",
        "2020-1-1",
        "24:00",
        "2020-01-01T24:00",
        "\u0661.0",
        "0.1000000000000000055511",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert level_text(text) == text


@given(st.floats() | st.integers() | st.floats(width=32) | st.decimals() | st.integers(0, 10**30))
def test_a_number_and_its_text_are_one_level(value: Any) -> None:
    text = level_text(value)
    if text is not None:
        assert level_text(text) == text
        if not isinstance(value, Decimal):
            assert level_text(repr(value)) == text
            assert level_text(np.float64(number(simple(value)))) == text  # as beside a gap


@given(st.text() | st.binary() | st.datetimes() | st.dates() | st.times() | st.timedeltas())
def test_a_text_is_its_own_level(value: Any) -> None:
    text = level_text(value)
    assert text is not None
    assert level_text(text) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" 1 ", 1.0),
        ("1e400", float("inf")),
        ("inf", float("inf")),
        ("nan", None),
        ("1_000", None),
        ("\u0661", None),
        ("true", 1.0),
        (True, 1.0),
        (Decimal("0.1"), 0.1),
        (10**400, float("inf")),
        ("007", 7.0),
        ("", None),
        (LEAP, None),
        (b"2", 2.0),
        (BIG + 1, float(BIG)),
    ],
)
def test_numbers(value: Any, expected: float | None) -> None:
    assert number(simple(value)) == expected


number_texts = st.sampled_from(["1", "", "-2.5", "1e3", "nan", " 1", "1_0", "x", "+", "1e400", "."])


@given(st.lists(number_texts | st.text("0123456789.eE+-_ na\n", max_size=4), max_size=5))
def test_numbers_are_read_alike_together_and_alone(texts: list[str]) -> None:
    together = plain_numbers(texts, frozenset(MISSING_TEXTS))
    if together is not None:
        alone = [np.nan if text in MISSING_TEXTS else number(text) for text in texts]
        np.testing.assert_array_equal(together, np.array(alone, dtype=np.float64))


@given(
    st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from(["D", "h", "m", "s", "ms", "us", "ns"])
)
def test_moments_of_an_array(ticks: int, unit: Any) -> None:
    moment = np.datetime64(ticks, unit)
    (found,) = instants(np.array([moment])).tolist()
    alone = simple(moment)
    assert alone == (Odd.VALUE if found == NO_INSTANT else Instant(found))
    text = str(moment)[:26]
    try:
        calendar = datetime.fromisoformat(text if text[4] == "-" else "")  # a year of four digits
    except ValueError:
        assert found == NO_INSTANT
    else:
        assert found == instant(simple(calendar))


def test_the_last_and_first_moment() -> None:
    for text in ("0001-01-01", "9999-12-31 23:59:59.999999"):
        assert level_text(np.datetime64(text)) == text
        assert level_text(datetime.fromisoformat(text)) == text
    assert level_text(date.max) == "9999-12-31"
