"""The cell of a record depends on that record alone.

A substitution of one record by anything lowers at most one cell by one and raises at most one by
one, however the library that holds the records changes the type of their column.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fedprikl.records import CsvFormat, FrameRecords, count_all, open_records
from fedprikl.records.files import read_block, read_line
from fedprikl.reference import Bins, Categories, Domain, Reference, Table, Times
from fedprikl.reference.domain import all_codes
from fedprikl.reference.values import level_text
from fedprikl.reference.views import View

pytestmark = pytest.mark.slow

BIG = 2**53
DAY = datetime(2020, 2, 29)
BASES: dict[str, list[Any]] = {
    "small numbers": [0, 1, 2, -3],
    "64-bit codes": [BIG, BIG + 1, BIG + 3, 10**16, 2**63 - 1],
    "beyond 64 bits": [2**64 - 1, 2**70, 7],
    "fractions": [0.1, 0.5, 1.0, 1e16, 1e-7, float("inf")],
    "singles": [np.float32(0.1), np.float32(1.5), np.float32(1e-7)],
    "truth": [True, False],
    "texts": ["red", "007", "1.0", "1e16", "2020-02-29", "True"],
    "dates": [DAY.date(), date(1969, 12, 31)],
    "times": [DAY, DAY + timedelta(microseconds=1), DAY.replace(hour=12)],
    "zoned": [DAY.replace(tzinfo=UTC), DAY.replace(tzinfo=timezone(timedelta(hours=2)))],
    "decimals": [Decimal("1.50"), Decimal("2.25"), Decimal(3)],
}
ODD = [
    None, float("nan"), float("inf"), -0.0, 0.1, 1.5, 1e300, 7, BIG + 1, 2**64, 10**400, -(10**400),
    True, "", "NA", "nan", "many", "1_000", " 1 ", "inf", "1e400", "007", "\u0661", "1.50",
    Decimal("1.23456"), Decimal("NaN"), Decimal("1e400"), DAY, DAY.date(), DAY.replace(tzinfo=UTC),
    pd.NaT, pd.NA, pd.Timestamp(1, unit="ns"), np.datetime64(10**7, "D"), np.float32(0.1), b"\xff",
    timedelta(days=1),
]  # fmt: skip
NESTED: list[Any] = [[1], {"a": 1}, (), object()]
SEEN = {text for base in BASES.values() for value in base if (text := level_text(value))}
COLUMNS = [
    Categories("x", tuple(sorted(SEEN))),
    Bins("x", (-1.0, 0.25, 1.0, 1.4, 9e15, 1e17)),
    Times("x", (0, 1_582_934_400_000_000, 1_582_934_400_000_001)),
]


def whole(column: Any) -> Reference:
    table = Table((column,))
    return Reference(View(Domain(table, all_codes(table.size)), np.ones(table.size + 1)))


REFERENCES = [whole(column) for column in COLUMNS]


def with_views(column: Any) -> Reference:
    """The same column in a table of three, with joint cells and without."""
    beside = tuple(replace(column, name=name) for name in ("x", "y", "z"))
    table = Table(beside)
    mass = np.ones(column.size + 1)
    views = [
        View(Domain(Table((one,)), all_codes(column.size)), mass, None, (one.name,))
        for one in beside
    ]
    # Of the pair, every other combination has a cell.
    codes = all_codes(column.size**2)[::2].copy()
    held = np.append(np.ones(len(codes)), 0.0) * mass.sum() / len(codes)
    pair = ("z", "x")
    views.append(View(Domain(table.part(pair), codes), held, None, pair))
    empty = np.zeros(0, dtype=np.int64)
    return Reference(View(Domain(table, empty), np.array([mass.sum()])), tuple(views))


VIEWED = [with_views(column) for column in COLUMNS]


def arrow(values: list[Any]) -> Any:
    return pa.table({"x": pa.array(values, from_pandas=True)})


def typed_arrow(values: list[Any]) -> Any:
    return pa.table({"x": pa.array(values, from_pandas=True).dictionary_encode()})


def pandas(values: list[Any]) -> Any:
    return pd.DataFrame({"x": values})


FRAMES: dict[str, Callable[[list[Any]], Any]] = {
    "pandas": pandas,
    "pandas objects": lambda values: pd.DataFrame({"x": pd.Series(values, dtype=object)}),
    "pandas nullable": lambda values: pandas(values).convert_dtypes(),
    "pandas on arrow": lambda values: pandas(values).convert_dtypes(dtype_backend="pyarrow"),
    "pandas categories": lambda values: pandas(values).astype("category"),
    "pandas dates in seconds": lambda values: pandas(values).astype("datetime64[s]"),
    "polars": lambda values: pl.DataFrame({"x": pl.Series(values, strict=False)}),
    "arrow": arrow,
    "arrow dictionary": typed_arrow,
}


def moved(before: Any, after: Any) -> tuple[int, int]:
    change = np.asarray(after) - np.asarray(before)
    return int(-change[change < 0].sum()), int(change[change > 0].sum())


def sort_of(value: Any) -> str:
    match value:
        case None | str() | bytes():
            return "text"
        case bool() | timedelta() | list() | dict() | tuple():
            return type(value).__name__
        case datetime() | np.datetime64():
            return "time"
        case date():
            return "date"
        case Decimal():
            return "decimal"
    return "number"


def changed_by_the_library(kind: str, base: Any, odd: Any) -> bool:
    """What libraries do to the other values of a mixed column; see docs/data-files.md."""
    if kind in ("pandas", "pandas objects", "pandas nullable"):
        return False
    if kind == "pandas categories":  # equal values are one category: False is 0, True is 1
        return bool in (type(base), type(odd)) and type(base) is not type(odd)
    if kind == "pandas dates in seconds":
        return sort_of(base) not in ("date", "time")
    if isinstance(odd, np.float32 | np.datetime64) and not isinstance(base, np.float32):
        return True  # a numpy scalar at the top decides how polars reads all others
    sorts = {sort_of(base), sort_of(odd)}
    return len(sorts) == 2 and ("text" not in sorts or sorts & {"decimal", "list", "dict"} != set())


def neighbours(data: st.DataObject, kind: str, base: str) -> tuple[list[Any], list[Any]]:
    values = data.draw(st.lists(st.sampled_from([*BASES[base], None]), min_size=2, max_size=6))
    row = data.draw(st.integers(0, len(values) - 1))
    odd = data.draw(st.sampled_from([*ODD, *NESTED, *(v for b in BASES.values() for v in b)]))
    assume(not changed_by_the_library(kind, BASES[base][0], odd))
    return values, [*values[:row], odd, *values[row + 1 :]]


def made(make: Callable[[], Any]) -> Any:
    """What a library makes; where it refuses, there are no records to count."""
    try:
        return make()
    except BaseException as error:  # polars panics
        if isinstance(error, KeyboardInterrupt):
            raise
        assume(False)


quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
quicker = settings(quick, max_examples=25)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FRAMES)
@quick
@given(data=st.data(), base=st.sampled_from(sorted(BASES)))
def test_in_a_frame(kind: str, data: st.DataObject, base: str) -> None:
    values, others = neighbours(data, kind, base)
    one, two = made(lambda: FRAMES[kind](values)), made(lambda: FRAMES[kind](others))
    for reference in REFERENCES:
        before, after = reference.count(one), reference.count(two)
        assert before.sum() == after.sum() == len(values)
        lowered, raised = moved(before, after)
        assert lowered <= 1
        assert raised <= 1


@pytest.mark.filterwarnings("ignore")
@quick
@given(data=st.data(), base=st.sampled_from(sorted(BASES)))
def test_in_every_view_of_a_frame(data: st.DataObject, base: str) -> None:
    """A record is all of its values: one row changes in every column at once."""
    values, others = neighbours(data, "pandas", base)
    changed = [one is not two for one, two in zip(values, others, strict=True)]
    gaps = [None if new else value for value, new in zip(values, changed, strict=True)]
    appears = [value if new else None for value, new in zip(others, changed, strict=True)]
    one = made(lambda: pd.DataFrame({"x": values, "y": values, "z": [None] * len(values)}))
    two = made(lambda: pd.DataFrame({"x": others, "y": gaps, "z": appears}))
    for reference in VIEWED:
        before, after = (FrameRecords(frame).count(reference) for frame in (one, two))
        assert before.counts.tolist() == after.counts.tolist() == [len(values)]
        for of_one, of_two in zip(before.views, after.views, strict=True):
            assert of_one.sum() == of_two.sum() == len(values)
            lowered, raised = moved(of_one, of_two)
            assert lowered <= 1
            assert raised <= 1


def write_arrow(frame: Any, path: Path) -> None:
    pq.write_table(frame, path)


FILES: dict[str, tuple[str, str, Callable[[Any, Path], Any]]] = {
    "pandas csv": ("pandas", ".csv", lambda frame, path: frame.to_csv(path, index=False)),
    "pandas csv with id": ("pandas", ".csv", lambda frame, path: frame.to_csv(path)),
    "polars csv": ("polars", ".csv", lambda frame, path: frame.write_csv(path)),
    "pandas parquet": ("pandas", ".parquet", lambda frame, path: frame.to_parquet(path)),
    "polars parquet": ("polars", ".parquet", lambda frame, path: frame.write_parquet(path)),
    "arrow parquet": ("arrow", ".parquet", write_arrow),
    "arrow dictionary parquet": ("arrow dictionary", ".parquet", write_arrow),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FILES)
@quicker
@given(data=st.data(), base=st.sampled_from(sorted(BASES)))
def test_in_a_file(kind: str, data: st.DataObject, base: str) -> None:
    library, suffix, write = FILES[kind]
    values, others = neighbours(data, "arrow" if suffix == ".parquet" else library, base)
    # polars writes every decimal of a column with the digits of the longest, and whole numbers
    # beyond 64 bits to Parquet as bytes.
    huge = any(isinstance(value, int) and abs(value) >= 2**63 for value in [*values, *others])
    assume((kind, base) != ("polars csv", "decimals"))
    assume(kind != "polars parquet" or not huge)
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, f"one{suffix}"), Path(folder, f"two{suffix}")
        made(lambda: write(FRAMES[library](values), one))
        made(lambda: write(FRAMES[library](others), two))
        for reference in REFERENCES:
            counted = count_all({"one": one, "two": two}, reference)
            before, after = counted["one"], counted["two"]
            assert before.total == after.total == len(values)
            lowered, raised = moved(before.counts, after.counts)
            assert lowered <= 1
            assert raised <= 1


def test_the_check_would_notice_a_level_that_depends_on_the_type() -> None:
    """As it was: the text of a number followed the type of its column."""
    codes = [BIG + 1] * 5
    one, two = pandas(codes), pandas([*codes[:-1], None])
    texts = [[str(value) for value in frame["x"].to_list()] for frame in (one, two)]
    counts = [[sum(text == str(BIG + 1) for text in column)] for column in texts]
    assert moved(*counts) == (5, 0)


lines = st.lists(
    st.binary(max_size=8).map(lambda line: line.replace(b"\n", b""))
    | st.sampled_from([b"", b"\r", b"1,2", b'1,"2"', b'"1",2', b'1,"', b'"', b"1", b"1,2,3"])
    | st.text('",\r1a', max_size=6).map(str.encode),
    max_size=6,
)  # fmt: skip
FORMATS = [CsvFormat(), CsvFormat(separator=";"), CsvFormat(encoding="latin-1"), CsvFormat("\t")]


@settings(max_examples=300, deadline=None)
@given(lines, st.sampled_from(FORMATS), st.integers(1, 3))
def test_lines_are_read_alike_together_and_alone(
    lines: list[bytes], form: CsvFormat, width: int
) -> None:
    columns, bad = read_block(b"\n".join(lines), form, width)
    alone = [read_line(line, form, width) for line in lines or [b""]]
    assert list(zip(*columns, strict=True)) == [tuple(row) for row in alone if row]
    assert list(bad) == [i for i, row in enumerate(alone) if row is None]


LINES = Reference.fit(pd.DataFrame({"x": [1, 1, 3], "y": ["2", "1", None]}), pairs=[("y", "x")])


@quick
@given(st.data(), lines.filter(bool), st.binary(max_size=12))
def test_a_line_of_any_bytes(data: st.DataObject, lines: list[bytes], odd: bytes) -> None:
    row = data.draw(st.integers(0, len(lines) - 1))
    others = [*lines[:row], odd.replace(b"\n", b""), *lines[row + 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        path, counts = Path(folder, "a.csv"), []
        for some in (lines, others):
            path.write_bytes(b"x,y\n" + b"\n".join(some) + b"\n")
            counts.append(open_records(path).count(LINES))
    before, after = ((found.counts, *found.views) for found in counts)
    for of_one, of_two in zip(before, after, strict=True):
        assert of_one.sum() == counts[0].total  # an unreadable line is "other" in every view
        lowered, raised = moved(of_one, of_two)
        assert lowered <= 1
        assert raised <= 1
