"""Many clients' files are counted with shared resources, and bad ones are named together."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records import CsvFormat, count_all, fit_reference, open_records
from fedprikl.reference import Bins, Categories, Domain, Reference, Table, Times, View
from fedprikl.reference.domain import all_codes

REFERENCE = Reference.from_counts({"red": 1, "blue": 1})


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_every_client_is_counted_and_every_refusal_is_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"value": ["red", "green"]})
    frame.write_parquet(tmp_path / "b.parquet")
    (tmp_path / "folder").mkdir()
    sources = {
        "a": write(tmp_path, "a.csv", "value\nred\nblue\n"),
        "b": tmp_path / "b.parquet",
        "c": write(tmp_path, "c.csv", "colour\nred\n"),
        "d": tmp_path / "none.csv",
        "e": tmp_path / "folder",
        "f": write(tmp_path, "f.parquet", "SECRET"),
        "g": write(tmp_path, "g.csv.gz", gzip.compress(b"value\nred\n")),
    }
    done: list[str] = []
    with pytest.raises(RecordsError, match=r"^4 of 7 clients") as caught:
        count_all(sources, REFERENCE, report=done.append)
    assert done == list(sources)
    for words in ("c: .*no column 'value'", "d: There is no file", "e: The folder", "f: .*Parquet"):
        assert caught.match(words)
    assert "SECRET" not in str(caught.value)
    good = {name: sources[name] for name in "abg"}
    found = count_all(good, REFERENCE)
    assert {name: held.counts.tolist() for name, held in found.items()} == {
        "a": [1, 1, 0],
        "b": [1, 0, 1],
        "g": [1, 0, 0],
    }


def test_the_benchmark_runs() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "files.py"
    done = subprocess.run(
        [sys.executable, str(script), "--files", "20", "--rows", "5", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert (found["files"], found["rows"]) == (20, 5)
    assert found["cpu_seconds"] < 10  # a blow-up; some 0.02 s are usual
    assert found["peak_mib"] > 0


def test_the_format_of_a_csv_file(tmp_path: Path) -> None:
    form = CsvFormat(separator=";", encoding="cp1252")
    reference = Reference.from_counts({"blau": 1, "grün": 1})
    path = write(tmp_path, "a.csv", "n;value\n1;grün\n2;blau\n3;\n4;\x81\n".encode("latin-1"))
    counted = open_records(path, format=form).count(reference)
    assert counted.counts.tolist() == [1, 1, 2]
    assert counted.unreadable == 1  # 0x81 means nothing in this encoding
    assert count_all({"a": path}, reference, format=form)["a"].total == 4
    with pytest.raises(RecordsError, match=r"first line|no column"):
        open_records(path).count(reference)


@pytest.mark.parametrize("separator", ["", ";;", '"', "\n", "\r", "\0"])
def test_a_separator_is_one_character(separator: str) -> None:
    with pytest.raises(InvalidInputError, match="one character"):
        CsvFormat(separator=separator)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-7", "iso-2022-jp", "hz", "cp037", "nosuch", "rot13"])  # fmt: skip  # noqa: E501
def test_an_encoding_must_keep_lines_apart(encoding: str) -> None:
    with pytest.raises(InvalidInputError, match="line by line"):
        CsvFormat(encoding=encoding)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", b"\xef\xbb\xbfvalue\nred\n\xef\xbb\xbfred\n")
    for form in (CsvFormat(), CsvFormat(encoding="utf-8-sig")):
        assert open_records(path, format=form).count(REFERENCE).counts.tolist() == [1, 0, 1]


@pytest.mark.parametrize(("header", "records"), [("value", 4), ("value,x", 2)])
def test_a_blank_line_is_a_record_only_in_a_file_of_one_column(
    tmp_path: Path, header: str, records: int
) -> None:
    row = "red" + ",1" * header.count(",")
    path = write(tmp_path, "a.csv", f"{header}\n{row}\n\n{row}\n\n")
    assert open_records(path).count(REFERENCE).total == records


def test_rows_without_a_client_are_counted_as_rows(tmp_path: Path) -> None:
    rows = [f"{'' if i % 3 else i % 7},{i % 2}" for i in range(3000)]
    path = write(tmp_path, "a.csv", "\n".join(["user,x", *rows]))
    with pytest.raises(InvalidInputError, match=r"^2,000 rows of column 'user' name no client"):
        fit_reference(path, client="user")


MOMENTS = [f"2020-01-{day:02}T{hour:02}:00:00" for day in range(1, 29) for hour in (0, 12)]


def test_dates_and_times_are_cut_at_their_quantiles(tmp_path: Path) -> None:
    texts = pl.DataFrame({"t": MOMENTS})
    times = texts.select(pl.col("t").str.to_datetime())
    zoned = times.select(pl.col("t").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"))
    expected = Reference.fit(times, bins=4)
    (column,) = expected.domain.encoder.columns  # type: ignore[union-attr]
    assert isinstance(column, Times)
    assert [column.label(level) for level in (0, 3)] == ["up to 2020-01-07 12:00:00", "over 2020-01-21 12:00:00"]  # fmt: skip  # noqa: E501
    paths = []
    for name, frame in {"texts": texts, "times": times, "zoned": zoned}.items():
        for unit in ("ms", "us", "ns"):
            cast = frame if name == "texts" else frame.select(pl.col("t").dt.cast_time_unit(unit))
            cast.write_csv(tmp_path / f"{name}{unit}.csv")
            cast.write_parquet(tmp_path / f"{name}{unit}.parquet")
            paths += [tmp_path / f"{name}{unit}.csv", tmp_path / f"{name}{unit}.parquet"]
            for same in (cast, cast.to_pandas(), cast.to_arrow()):
                assert expected.count(same).tolist() == expected.whole.mass.tolist()
    for path in paths:
        assert open_records(path).count(expected).counts.tolist() == expected.whole.mass.tolist()
        if "texts" not in path.name or path.suffix == ".csv":
            assert fit_reference(path, bins=4).fingerprint == expected.fingerprint
    days = Reference.fit(texts.select(pl.col("t").str.slice(0, 10).str.to_date()), bins=4)
    assert isinstance(days.domain.encoder.columns[0], Times)  # type: ignore[union-attr]
    odd = pl.DataFrame(
        {"t": ["2020-01-01", "2020-02-30", "soon", "12", "", "2020-01-02T01:00+02:00"]}
    )
    assert expected.count(odd).tolist() == [2, 0, 0, 0, 4]  # nothing was missing in the reference


TICKS = [0, None, -1, -1500, 1999, 2**62, 2**63 - 1, -(2**63) + 1]


@pytest.mark.parametrize("kind", ["s", "ms", "us", "ns", "us, UTC", "ns, UTC", "date"])
def test_a_moment_in_a_parquet_file_is_that_of_its_frame(tmp_path: Path, kind: str) -> None:
    """Also before 1970, between two microseconds, and beyond all calendars."""
    unit, _, zone = kind.partition(", ")
    ticks = [0, None, -1, 18_000, 2**31 - 1, -(2**31)] if kind == "date" else TICKS
    if unit == "s":  # which become milliseconds in a file
        ticks = [tick for tick in ticks if tick is None or abs(tick) < 10**15]
    stored = pa.array(ticks, pa.int32() if kind == "date" else pa.int64())
    target = pa.date32() if kind == "date" else pa.timestamp(unit, zone or None)
    frame = pa.table({"t": stored.cast(target)})
    pq.write_table(frame, tmp_path / "a.parquet")
    known = ("1970-01-01", "1969-12-31", "1969-12-31 23:59:59.999998", "1970-01-01 00:00:00.000001")
    for column in (Categories("t", known), Times("t", (-2, -1, 0, 1, 2))):
        table = Table((column,))
        reference = Reference(View(Domain(table, all_codes(table.size)), np.ones(table.size + 1)))
        counted = open_records(tmp_path / "a.parquet").count(reference)
        assert counted.counts.tolist() == reference.count(frame).tolist()
        assert counted.counts[table.size - 1] == 1  # missing


def test_few_dates_are_categories_and_numbers_are_not_times() -> None:
    few = Reference.fit(pl.DataFrame({"t": ["2020-01-01"]}).select(pl.col("t").str.to_date()))
    assert few.domain.encoder.columns == (Categories("t", ("2020-01-01",)),)  # type: ignore[union-attr]
    numbers = Reference.fit(pl.DataFrame({"t": list(range(50))}))
    assert isinstance(numbers.domain.encoder.columns[0], Bins)  # type: ignore[union-attr]
    texts = pl.DataFrame({"t": ["2020-01-01"] * 3})
    assert numbers.count(texts).tolist()[-1] == 3
