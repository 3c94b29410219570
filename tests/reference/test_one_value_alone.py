"""Values that once changed how others are read: found by an attacker, kept as tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl.checks import Ints
from fedprikl.records import open_records
from fedprikl.reference import Bins, BlockCode, Reference, fit
from fedprikl.reference.columns import Reader
from fedprikl.reference.domain import Table

CELLS = Reference.from_counts([5, 5, 5])


def moved_like_one_record(before: Ints, after: Ints) -> bool:
    """At most one cell is lower by one, and at most one higher by one."""
    change = after - before
    return bool(change[change > 0].sum() <= 1 and -change[change < 0].sum() <= 1)


# A missing text that is a number


@pytest.fixture
def with_999(tmp_path: Path) -> Reference:
    frame = pd.DataFrame({"x": [*map(str, range(40)), "-999", ""]})
    frame.to_csv(tmp_path / "public.csv", index=False)
    table = fit.fit_table(
        ["x"],
        lambda: [{"x": frame["x"].tolist()}],
        bins=4,
        categorical=(),
        missing=("", "-999"),
        texts=True,
    )
    assert isinstance(table.columns[0], Bins)
    return Reference(*fit.fit_views(table, [{"x": frame["x"].tolist()}], None))


@pytest.mark.parametrize("other", ["abc", "", "-999", "1e3", "é", "-999.0"])
def test_a_missing_number_is_missing_beside_any_other_line(
    with_999: Reference, tmp_path: Path, other: str
) -> None:
    counts = []
    for last in ("30", other):
        (tmp_path / "c.csv").write_text("x\n1\n" + "-999\n" * 6 + f"{last}\n")
        counts.append(open_records(tmp_path / "c.csv").count(with_999).counts)
    assert moved_like_one_record(*counts)
    assert counts[0][with_999.encode(pd.DataFrame({"x": [None]}))[0]] == 6


def test_a_missing_number_is_missing_as_a_number_too(with_999: Reference) -> None:
    gap = with_999.encode(pd.DataFrame({"x": [None]}))[0]
    frames: list[Any] = [
        pd.DataFrame({"x": [-999, 1]}),
        pd.DataFrame({"x": [-999.0, None]}),
        pd.DataFrame({"x": ["-999.0", "a"]}),
        pl.DataFrame({"x": [-999, 1]}),
        pl.DataFrame({"x": ["-9.99E2", "b"]}),
    ]
    assert [int(with_999.encode(frame)[0]) for frame in frames] == [gap] * len(frames)


@given(
    st.lists(st.sampled_from(["1", "-999", "-999.0", "", "7e0", "-9.99e2", "0"]), min_size=1),
    st.sets(st.sampled_from(["-999", "7", "0.0", "NA"])),
)
def test_many_at_once_are_as_one_by_one(texts: list[str], missing: set[str]) -> None:
    reader = Reader(Bins("x", (0.5, 5.0)), {"", *missing})
    one_by_one = [int(reader([text, "no number"])[0]) for text in texts]
    assert reader(texts).tolist() == one_by_one


# Lists of cell numbers and of images never become one array


@pytest.mark.parametrize(
    "odd",
    [
        np.timedelta64(1, "ms"),
        np.datetime64("2020-01-01"),
        1 + 1j,
        "x",
        "1\0",
        [1],
        [1, 2],
        None,
        10**400,
        b"\xff",
        np.float32(0.1),
        object(),
        np.zeros((3, 3)),
    ],
    ids=lambda odd: f"{type(odd).__name__} {odd!s:.9}" if type(odd) is not object else "object",
)
@pytest.mark.parametrize("held", [[0, 1, 1, 1], ["0", "1", "1", "1\0"], [[1], [1], [1], 0]])
def test_one_odd_cell_number_leaves_the_others(held: list[Any], odd: Any) -> None:
    assert moved_like_one_record(CELLS.count([*held, 2]), CELLS.count([*held, odd]))


def test_a_long_text_costs_its_own_length_only(tmp_path: Path) -> None:
    """As one array of texts, a hundred thousand lines would take as long a text each."""
    (tmp_path / "c.csv").write_text("cell\n" + "1\n" * 100_000 + "x" * 400_000 + "\n")
    assert open_records(tmp_path / "c.csv").count(CELLS).counts.tolist() == [0, 100_000, 0, 1]


@pytest.mark.parametrize(
    "odd",
    [
        np.full((28, 28), np.timedelta64(1, "ms")),
        np.full((28, 28), "x" * 10_000),
        np.full((28, 28), np.nan),
        [["a"] * 28] * 28,
        np.zeros((27, 28)),
        "image",
        None,
    ],
    ids=["durations", "texts", "nan", "lists", "another shape", "a word", "nothing"],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
def test_one_odd_image_leaves_the_others(kind: type, odd: Any) -> None:
    code = BlockCode(white=1.0, threshold=0.9 - 1e-9)
    good: list[Any] = [np.full((28, 28), 0.1).astype(kind)] * 5
    together = code.encode([*good, good[0]])
    assert code.encode([*good, odd])[:5].tolist() == together[:5].tolist()
    assert code.encode(np.stack(good)).tolist() == together[:5].tolist()


# Kinds of numbers that a library makes of a whole column


@pytest.mark.parametrize("fitted", [{"bins": 4}, {"categorical": ["x"]}])
def test_a_complex_number_leaves_the_gaps_of_its_column(fitted: dict[str, Any]) -> None:
    public = pd.DataFrame({"x": [*np.arange(40.0), *[None] * 5]})
    reference = Reference.fit(public, **fitted)
    held = [1.0, np.nan, np.nan, np.nan]
    plain = reference.count(pd.DataFrame({"x": [*held, 30.0]}))
    assert moved_like_one_record(plain, reference.count(pd.DataFrame({"x": [*held, 1 + 1j]})))
    assert moved_like_one_record(plain, reference.count(pd.DataFrame({"x": [*held, 3 + 0j]})))


def test_an_interval_is_known_by_its_ends() -> None:
    whole = [pd.Interval(0, 1), pd.Interval(1, 2), pd.Interval(0, 1)]
    reference = Reference.fit(pd.DataFrame({"x": whole}))
    other = [*whole[:2], pd.Interval(0.5, 1)]
    assert moved_like_one_record(
        reference.count(pd.DataFrame({"x": whole})), reference.count(pd.DataFrame({"x": other}))
    )


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_that_check_would_notice_a_gap_that_becomes_a_number(make: Callable[..., Any]) -> None:
    table = Table((Bins("x", (0.5,)),), missing=("",))
    reference = Reference.fit(make({"x": list(range(20))}), bins=2)
    assert table.size == 3
    before = reference.count(make({"x": [None, None, 1.0]}))
    after = reference.count(make({"x": [0.0, 0.0, 1.0]}))
    assert not moved_like_one_record(before, after)
