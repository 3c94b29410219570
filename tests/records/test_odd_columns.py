"""No value of any column, compared or not, decides whether a file or a frame is read."""

import gzip
from datetime import UTC, date, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedprikl as fk
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records import FrameRecords, check_all, count_all, open_records

LEAST, MOST = -(2**63), 2**63 - 1
UNITS, ZONES = ("ms", "us", "ns"), (None, "UTC", "Europe/Berlin", "+14:00")
BAD_TEXTS = (b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"", b"a" * 70 + b"\xff" * 300, b"z" * 2**21)
WAYS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "write_page_index": True},
    {"version": "1.0", "use_deprecated_int96_timestamps": True},
]
CLIENTS = [f"client{i}" for i in range(4)]


def raw(kind: pa.DataType, *values: bytes) -> pa.Array:
    """Values of a type by their bytes, whether or not they are possible."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(b"".join(values))])


def ticks(kind: pa.DataType, value: int) -> pa.Array:
    """The first of them is 0."""
    size = kind.bit_width // 8
    return raw(kind, bytes(size), value.to_bytes(size, "little", signed=True))


def texts(kind: pa.DataType, *values: bytes) -> pa.Array:
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def odd_columns() -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    for unit, zone in product(UNITS, ZONES):
        for value in (LEAST, LEAST + 1, MOST, MOST - 1, 2**62, -(2**62), 10**17):
            found[f"time {unit} {zone} {value}"] = ticks(pa.timestamp(unit, zone), value)
    for unit, value in product(UNITS, (LEAST, MOST)):
        found[f"duration {unit} {value}"] = ticks(pa.duration(unit), value)
    for value in (LEAST, -1, MOST, 86_400_000_000_001):
        found |= {f"clock {u} {value}": ticks(pa.time64(u), value) for u in ("us", "ns")}
        found[f"whole {value}"] = ticks(pa.int64(), value)
    for value in (-(2**31), -1, 86_400_001, 2**31 - 1):
        found[f"clock ms {value}"] = ticks(pa.time32("ms"), value)
        found[f"date {value}"] = ticks(pa.date32(), value)
    for number in (float("nan"), float("inf"), -0.0, 5e-324):
        found[f"number {number}"] = pa.array([1.0, number])
    for (digits, scale), end in product([(38, 0), (38, 38), (9, 9), (76, 76)], (0x7F, 0x80, 0xFF)):
        kind = pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)
        size = kind.bit_width // 8
        last = bytes([255 * (end != 0x80)]) * (size - 1) + bytes([end])
        found[f"decimal {digits} {scale} {end}"] = raw(kind, bytes(size), last)
    for text in BAD_TEXTS:
        found[f"text {text[:9]!r}"] = texts(pa.string(), b"x", text)
        found[f"bytes {text[:9]!r}"] = texts(pa.binary(), b"x", text)
    bad, never = texts(pa.string(), b"x", b"\xff"), ticks(pa.timestamp("us"), LEAST)
    found["category"] = pa.DictionaryArray.from_arrays(pa.array([0, 1]), bad)
    found["record in a record"] = pa.StructArray.from_arrays([bad, never], ["a", "b"])
    found["list"] = pa.ListArray.from_arrays([0, 1, 2], bad)
    found["map"] = pa.MapArray.from_arrays([0, 1, 2], bad, never)
    found["nothing"] = pa.nulls(2)
    return found


ODD = odd_columns()
BESIDE = fk.Reference.fit(pd.DataFrame({"x": ["a", "b"] * 5}))
COMPARED = [
    fk.Reference.fit(pd.DataFrame({"odd": values}))
    for values in (["x", "y"] * 5, np.arange(50.0), pd.date_range("1970-01-01", periods=50))
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_in_a_parquet_file(tmp_path: Path, way: int) -> None:
    """Compared, it takes part as one record like any other; beside what is compared, not at all."""
    files = {}
    for number, (name, odd) in enumerate(ODD.items()):
        table = pa.table({"x": ["a", "b"], "odd": odd})
        files[name] = tmp_path / f"{number}.parquet"
        pq.write_table(table, files[name], **WAYS[way])
    assert check_all(files, BESIDE) == {}
    for name, counted in count_all(files, BESIDE).items():
        assert counted.counts.tolist() == [1, 1, 0], name
    for reference in COMPARED:
        for name, counted in count_all(files, reference).items():
            assert counted.total == 2, name
            alone = pa.table({"odd": ODD[name][:1]})
            pq.write_table(alone, tmp_path / "alone.parquet", **WAYS[way])
            (first,) = count_all({name: tmp_path / "alone.parquet"}, reference).values()
            assert (counted.counts >= first.counts).all(), name  # the other record stays


def test_in_a_frame() -> None:
    for name, odd in ODD.items():
        records = FrameRecords(pa.table({"x": ["a", "b"], "odd": odd}))
        for reference in (BESIDE, *COMPARED):
            assert check_all({name: records}, reference) == {}
            assert records.count(reference).total == 2, name


@pytest.mark.parametrize("odd", [object(), 1j, pd.NA], ids=["object", "complex", "NA"])
def test_one_value_that_makes_objects_of_a_polars_column_removes_nobody(odd: Any) -> None:
    """polars gives the type Object to a whole column for its first value: others stay theirs."""
    values = [odd, "b", "c", "a"]
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Object)})
    assert frame["x"].dtype == pl.Object
    reference = fk.Reference.fit(pl.DataFrame({"x": ["a", "b", "c"] * 40}))
    for records in (FrameRecords(frame), FrameRecords(frame.with_columns(y=1))):
        assert check_all({"a": records}, reference) == {}
        counted = records.count(reference)
        assert (counted.total, counted.counts[:3].tolist()) == (4, [1, 1, 1])
    with pytest.raises(InvalidInputError, match="type Object"):  # public data may be refused
        fk.Reference.fit(frame, columns=["x"])


def test_libraries_change_values_as_the_documentation_says() -> None:
    """docs/data-files.md: what polars and pyarrow do without a word, and what polars refuses."""
    assert pl.Series([1, True]).to_list() == [1, 1]
    with pytest.raises(TypeError):
        pl.Series([True, 1])
    noon = datetime(2020, 1, 1, 12)
    assert pa.array([1.5, True]).to_pylist() == [1.5, 1.0]
    assert pa.array([noon.date(), noon]).to_pylist() == [noon.date()] * 2
    assert pa.array([noon.date(), 1]).to_pylist() == [noon.date(), date(1970, 1, 2)]
    assert pa.array([noon, noon.replace(tzinfo=UTC)]).to_pylist() == [noon, noon]
    assert pl.Series([True, noon.date()], strict=False).dtype == pl.Object


def test_in_a_csv_file(tmp_path: Path) -> None:
    written = [str(10**400), "-1e999", "9999-99-99T99:99", "\U0010ffff", "[1, 2]", "{", '""']
    values = [*BAD_TEXTS[:5], *(text.encode() for text in written)]
    files = {f"{i}": tmp_path / f"{i}.csv" for i in range(len(values))}
    for path, value in zip(files.values(), values, strict=True):
        path.write_bytes(b"x,odd\na,x\nb," + value + b"\n")
    for reference in (BESIDE, *COMPARED):
        assert check_all(files, reference) == {}
        assert {found.total for found in count_all(files, reference).values()} == {2}


def test_a_text_longer_than_a_description_may_be(tmp_path: Path) -> None:
    """polars writes the largest text whole into the statistics of the column and of its pages."""
    path = tmp_path / "a.parquet"
    frame = pl.DataFrame({"x": ["a", "b"], "odd": ["x", "z" * (101 * 2**20)]})
    frame.write_parquet(path, statistics="full")
    for reference in (BESIDE, COMPARED[0]):
        assert count_all({"a": path}, reference)["a"].total == 2


@pytest.mark.parametrize("column", ["seen", "plan"])
def test_in_a_comparison_all_clients_take_part(tmp_path: Path, column: str) -> None:
    """`seen` is not compared; the last record of one client is not possible in it, or in `plan`."""
    reference = fk.Reference.fit(pd.DataFrame({"plan": ["a", "b"] * 50}))
    planned = fk.plan(reference, clients=4, records=400, epsilon=1)
    (tmp_path / "clients").mkdir()
    for number, name in enumerate(CLIENTS):
        plan, seen = ["a", "b"] * 50, np.arange(100) + number
        table = pa.table({"plan": plan, "seen": pa.array(seen).cast(pa.timestamp("us"))})
        if number == 2 and column == "seen":
            odd = pa.py_buffer(np.append(seen[:-1], LEAST).tobytes())
            times = pa.Array.from_buffers(pa.timestamp("us"), len(seen), [None, odd])
            table = table.set_column(1, "seen", times)
        if number == 2 and column == "plan":
            table = table.set_column(
                0, "plan", texts(pa.string(), *(each.encode() for each in plan[:-1]), b"\xff")
            )
        pq.write_table(table, tmp_path / "clients" / f"{name}.parquet")
    found = fk.compare(reference, tmp_path / "clients", planned, ledger=tmp_path / "ledger.db")
    assert found.left_out == {}
    assert found.release.cohorts[0].included == 4


def test_a_damaged_packed_file_is_refused_in_words_where_records_are_drawn(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"x\na\nb\n" * 2000))
    packed[10:30] = b"\xff" * 20
    path = tmp_path / "z.csv.gz"
    path.write_bytes(packed)
    reference = fk.Reference.fit(pl.DataFrame({"x": ["a", "b"] * 40}))
    with pytest.raises(RecordsError):
        open_records(path, drawn=True).count(reference)
