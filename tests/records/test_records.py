"""Records in files and frames are counted alike, none is lost, and bad files say what to do."""

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.errors import FedPriKLError, InvalidInputError, RecordsError
from fedprikl.records import CsvFormat, FrameRecords, files, fit_reference, open_records
from fedprikl.records.sources import open_source
from fedprikl.reference import Bins, Categories, Domain, Reference, Table, View
from fedprikl.reference.domain import all_codes

pytestmark = pytest.mark.slow

EDGES = (-1.5, 0.0, 0.1, 3.0)
CATEGORIES = ("red", "1", "0", "True", "1.5", "0.1", "007", "?", "", "ü'\"", "a.0", "1e+20", "-3")
BINNED = Table((Bins("x", EDGES),))
NAMED = Table((Categories("x", CATEGORIES),))
BOTH = Table((Categories("city", ("Basel", "Bern")), Bins("age", (30.0, 40.0)), NAMED.columns[0]))


def whole(table: Table) -> Reference:
    """A reference in which every combination of levels has a cell."""
    return Reference(View(Domain(table, all_codes(table.size)), np.ones(table.size + 1)))


def parquet(folder: Path, frame: pl.DataFrame, name: str = "data.parquet") -> Path:
    frame.write_parquet(folder / name)
    return folder / name


def text_file(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def assert_counted_alike(path: Path, frame: Any, reference: Reference) -> None:
    from_file = open_records(path).count(reference)
    from_frame = FrameRecords(frame).count(reference)
    assert from_file.counts.tolist() == reference.count(frame).tolist()
    assert from_frame.counts.tolist() == reference.count(frame).tolist()
    assert from_file.total == len(frame)


numbers = st.sampled_from([*EDGES, *np.nextafter(EDGES, 9), -0.0, 1e300]) | st.floats()
texts = st.sampled_from([*CATEGORIES, "1.0", "1.", "-0.0", "true", "FALSE", "nan", "NaN", "inf"])
odd_numbers = st.text("0123456789+-.eE_ \tinfatyINF", max_size=8)
any_text = texts | odd_numbers | st.text(max_size=5)
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "double": (pl.Float64, numbers),
    "single": (pl.Float32, st.sampled_from([0.1, 1.0, 1.5, -3.0]) | st.floats(width=32)),
    "long": (pl.Int64, st.integers(-3, 4) | st.integers(-(2**63), 2**63 - 1)),
    "byte": (pl.UInt8, st.integers(0, 255)),
    "truth": (pl.Boolean, st.booleans()),
    "decimal": (pl.Decimal(12, 2), st.sampled_from([Decimal("1.00"), Decimal("1.50"), Decimal(7)])),
    "text": (pl.String, any_text.filter(lambda text: text.isprintable())),
    "list": (pl.List(pl.Int64), st.just([1])),
}


@pytest.mark.parametrize("kind", COLUMNS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_parquet_file_is_counted_like_its_frame(kind: str, data: st.DataObject) -> None:
    dtype, values = COLUMNS[kind]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=30))
    frame = pl.DataFrame({"x": pl.Series(column, dtype=dtype)})
    with tempfile.TemporaryDirectory() as folder:
        path = parquet(Path(folder), frame)
        for table in (BINNED, NAMED):
            assert_counted_alike(path, frame, whole(table))
            assert (
                whole(table).count(frame.to_arrow()).tolist() == whole(table).count(frame).tolist()
            )


DAY = datetime(2020, 1, 1, tzinfo=UTC)
OTHER_TYPES = {
    "date": pa.array([DAY.date(), None]),
    "time": pa.array([DAY.time(), None]),
    "moment": pa.array([DAY.replace(tzinfo=None), None]),
    "zoned": pa.array([DAY, None]),
    "bytes": pa.array([b"\xff\x00", None]),
    "struct": pa.array([{"a": 1}, None]),
    "dictionary": pa.array(["1", None]).dictionary_encode(),
    "wide decimal": pa.array([Decimal("1.000000000000000000000000000000000"), None]),
    "nothing": pa.nulls(2),
    "beyond long": pa.array([2**64 - 1, None], pa.uint64()),
    "half": pa.array([np.float16(1), None], pa.float16()),
}


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_other_types_are_counted_like_their_frame(tmp_path: Path, kind: str) -> None:
    frame = pa.table({"x": OTHER_TYPES[kind]})
    pq.write_table(frame, tmp_path / "a.parquet")
    dated = Categories("x", (*CATEGORIES, "2020-01-01", "2020-01-01 00:00:00"))
    for table in (BINNED, Table((dated,))):
        assert_counted_alike(tmp_path / "a.parquet", frame, whole(table))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(texts | st.none(), numbers | st.none(), any_text), max_size=20))
def test_a_csv_file_is_counted_like_its_frame(rows: list[tuple[Any, Any, str]]) -> None:
    """The frame has null where the file has an empty field or NaN."""
    cleaned = [
        tuple(None if value in ("", "nan", "NaN") or value != value else value for value in row)
        for row in rows
        if not set("\0\r\n") & set(row[2])
    ]
    schema = {"city": pl.String, "age": pl.Float64, "x": pl.String}
    frame = pl.DataFrame(cleaned, schema=schema, orient="row")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.csv")
        frame.write_csv(path, quote_style="necessary")
        assert_counted_alike(path, frame, whole(BOTH))
        frame.to_pandas().to_csv(path, index=False)
        assert_counted_alike(path, frame, whole(BOTH))


def test_pandas_frames_with_gaps_are_counted_like_their_csv(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, None, 2], "b": [True, False, True], "n": [0.5, np.nan, np.inf]})
    reference = Reference.fit(frame)
    frame.to_csv(tmp_path / "a.csv", index=False)
    counted = open_records(tmp_path / "a.csv").count(reference)
    assert counted.counts.tolist() == [1, 1, 1, 0] == reference.count(frame).tolist()


def test_single_column_gaps_are_rows_too(tmp_path: Path) -> None:
    counted = open_records(text_file(tmp_path, 'x\n1\n\n""\n2\n')).count(whole(BINNED))
    assert counted.total == 4
    assert counted.counts[BINNED.size - 1] == 2  # missing


def test_a_gap_in_a_csv_is_missing_and_na_is_namibia(tmp_path: Path) -> None:
    reference = Reference.from_counts({"NA": 1, "null": 1})
    path = text_file(tmp_path, 'value,y\nNA,1\nnull,1\n,1\n"",1\nnan,1\n')
    counted = open_records(path).count(reference)
    assert counted.counts.tolist() == [1, 1, 3]  # missing has no cell here
    assert counted.unreadable == 0


def test_unknown_values_are_other(tmp_path: Path) -> None:
    frame = pl.DataFrame({"city": ["Basel", "Bern", "Basel"], "age": [20.0, 50.0, 19.0]})
    reference = Reference.fit(frame, bins=2)
    assert isinstance(reference.domain.encoder.columns[1], Bins)  # type: ignore[union-attr]
    path = text_file(tmp_path, "age,city\n20,Basel\nold,Basel\n20,Paris\nold,Paris\n50,Basel\n")
    counted = open_records(path).count(reference)
    assert (counted.total, counted.other) == (5, 4)
    assert counted.unreadable == 0
    city, age = counted.views
    assert (city[-1], age[-1]) == (2, 2)  # and one is of values that were never seen together


def test_counts_never_print(tmp_path: Path) -> None:
    counted = open_records(text_file(tmp_path, "cell\n1\n")).count(Reference.from_counts([7, 7]))
    assert "not shown" in repr(counted)
    assert "4711" not in repr(FrameRecords(pl.DataFrame({"x": [4711]})))


AWKWARD_NAMES = ["a b", "sélect", 'q"uote', "it's", "a;b", "); DROP TABLE t; --", "A", "a", "c0"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_column_names_are_taken_literally(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame({name: [i, i + 1] for i, name in enumerate(AWKWARD_NAMES)})
    path = tmp_path / f"data{suffix}"
    frame.write_csv(path) if suffix == ".csv" else frame.write_parquet(path)
    for i, name in enumerate(AWKWARD_NAMES):
        reference = Reference.fit(frame, columns=[name])
        assert reference.domain.label(0) == f"{name}={i}"
        assert open_records(path).count(reference).counts.tolist() == [1, 1, 0]


def test_nested_columns_do_not_shift_the_names(tmp_path: Path) -> None:
    frame = pa.table({"deep": [{"a": [1, 2], "b": {"c": 1}}], "n": [[[1]]], "x": ["red"]})
    pq.write_table(frame, tmp_path / "a.parquet")
    assert open_records(tmp_path / "a.parquet").count(whole(NAMED)).counts[0] == 1


@pytest.mark.parametrize(
    "name",
    ["a*.csv", "a?.csv", "a[12].csv", "it's.csv", 'q".csv', "{a,b}.csv", "$path.CSV", "é .csv"],
)
def test_file_names_are_taken_literally(tmp_path: Path, name: str) -> None:
    (tmp_path / "ab.csv").write_text("cell\n1\n1\n")
    (tmp_path / "a1.csv").write_text("cell\n1\n1\n")
    path = text_file(tmp_path, "cell\n0\n", name)
    assert open_records(path).count(Reference.from_counts([1, 1])).counts.tolist() == [1, 0, 0]


def test_folder_names_add_no_columns(tmp_path: Path) -> None:
    folder = tmp_path / "x=red"
    folder.mkdir()
    parquet(folder, pl.DataFrame({"y": [1]}))
    with pytest.raises(RecordsError, match="no column 'x'"):
        open_records(folder).count(whole(NAMED))


def test_a_folder_is_the_sum_of_its_files(tmp_path: Path) -> None:
    text_file(tmp_path, "x,y\n1,red\n2.0,red\n", "a.csv")
    parquet(tmp_path, pl.DataFrame({"y": ["red", None], "x": [1.0, None]}), "b.parquet")
    for ignored in (".hidden.csv", "_SUCCESS.csv", "README.txt"):
        text_file(tmp_path, "not,data", ignored)
    reference = Reference.fit(pl.DataFrame({"x": [1, 2], "y": ["red", "red"]}))
    counted = open_records(str(tmp_path)).count(reference)
    assert counted.counts.tolist() == [2, 1, 1]


CELLS = [0, 1, 1, 2, -1, None, 0.5, float("inf")]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_an_only_column_may_have_any_name(tmp_path: Path, suffix: str) -> None:
    path, frame = tmp_path / f"a{suffix}", pl.DataFrame({"number": [1, 0, 7, 1]})
    if suffix == ".parquet":
        frame.write_parquet(path)
    else:
        opened = gzip.open if suffix == ".csv.gz" else open
        with opened(path, "wb") as file:
            file.write(frame.write_csv().encode())
    for records in (open_records(path), open_records(frame)):
        counted = records.count(Reference.from_counts([5, 5]))
        assert counted.counts.tolist() == [1, 2, 1]


@pytest.mark.parametrize("other_columns", [{}, {"id": list(range(8))}])
def test_cell_numbers_in_a_file_or_frame(tmp_path: Path, other_columns: dict[str, Any]) -> None:
    frame = pl.DataFrame({"cell": pl.Series(CELLS, dtype=pl.Float64), **other_columns})
    reference = Reference.from_counts([5, 5])
    frame.write_csv(tmp_path / "a.csv")
    for records in (
        open_records(parquet(tmp_path, frame)),
        open_records(tmp_path / "a.csv"),
        open_records(frame),
        open_records(frame.to_pandas()),
    ):
        counted = records.count(reference)
        assert counted.counts.tolist() == [1, 2, 5]


def test_arrays_are_records_too() -> None:
    assert open_records(np.array([0, 1, 9])).count(Reference.from_counts([1, 1])).other == 1
    images = np.zeros((2, 28, 28))
    assert open_records(images).count(Reference.fit_images(images)).counts.tolist() == [2, 0]


IMAGES = Reference.fit_images(np.zeros((1, 28, 28)))
UNREADABLE = [
    ("x,y\n1,2\nSECRET\n3,4\n", "a field too few"),
    ("x,y\n1,2\nSECRET,2,3\n3,4\n", "a field too many"),
    ('x,y\n1,2\n1,"SECRET\n3,4\n', "an open quote"),
    ('x,y\n1,2\n1,"SECRET"x\n3,4\n', "text after a quote"),
    ('x,y\n1,"2"\n1,"SECRET\n3,"4"\n', "an open quote among quotes"),
    (b"x,y\n1,2\n1,SECRET\xff\n3,4\n", "an invalid byte"),
    ("x,y\n1,2\n1,SEC\0RET\n3,4\n", "a null"),
    ("x,y\n1,2\n1,SEC\rRET\n3,4\n", "a carriage return"),
    ("x,y\r\n1,2\r\n1,SEC\r\r\n3,4\r\n", "two carriage returns"),
    ("x,y\n1,2\n1," + "SECRET" * 400_000 + "\n3,4\n", "a line that is too long"),
    ('x,y\n1,2\n1,"' + "SECRET" * 40_000 + '"\n3,4\n', "a quoted field that is too long"),
]


@pytest.mark.parametrize(("content", "what"), UNREADABLE)
def test_a_record_that_cannot_be_read_is_other_and_leaves_the_rest_alone(
    tmp_path: Path, content: str | bytes, what: str
) -> None:
    counted = open_records(text_file(tmp_path, content)).count(whole(BINNED))
    assert (counted.total, counted.other, counted.unreadable) == (3, 1, 1), what
    assert counted.counts[3] == 2 == counted.counts[3:5].sum() + counted.counts[:3].sum(), what


BAD_FILES: list[tuple[str, str | bytes, str]] = [
    ("data.csv", "", "no first line"),
    ("data.csv", "\nx\n1\n", "no first line"),
    ("data.csv", b"\xff\xfex\0\n\0", "UTF-8"),
    ("data.csv", '"x', "cannot be read"),
    ("data.csv", "y,z\n1,2\n", r"data.csv has no column 'x'; it has 'y', 'z'"),
    ("data.csv", "x;y\n1;2\n", "not to be separated by ','"),
    ("data.csv", "x\r1\r2\r", "line ends"),
    ("data.csv", "x" * 2_000_000, "cannot be read"),
    ("data.csv.gz", b"\x1f\x8b\x08\0", "cannot be unpacked"),
    ("data.csv.gz", "x\n1\n", "cannot be unpacked"),
    ("data.csv", "x,y,x\n1,2,3\n", "more than one column 'x'"),
    ("data.parquet", "", "cannot be read as Parquet"),
    ("data.parquet", "x,y\n1,2\n" * 99, "cannot be read as Parquet"),
    ("data.xlsx", "PK", "no .csv, .csv.gz or .parquet"),
    ("data", "x\n1\n", "no .csv, .csv.gz or .parquet"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD_FILES)
def test_a_bad_file_says_what_to_do_and_shows_no_record(
    tmp_path: Path, name: str, content: str | bytes, words: str
) -> None:
    path = text_file(tmp_path, content, name)
    with pytest.raises(RecordsError, match=words) as caught:
        open_records(path).count(whole(BINNED))
    assert name in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, pl.DataFrame({"x": np.random.default_rng(0).normal(size=9999)}))
    content = bytearray(path.read_bytes())
    content[4:5000] = bytes(4996)
    path.write_bytes(content)
    with pytest.raises(RecordsError, match="damaged"):
        open_records(path).count(whole(BINNED))


def _two_kinds(folder: Path) -> Path:
    text_file(folder, "x,y\n1,2\n", "a.csv")
    return text_file(folder, "x,z\n1,2\n", "b.csv").parent


@pytest.mark.parametrize(
    ("source", "reference", "words"),
    [
        (lambda folder: folder / "none.csv", IMAGES, "There is no file"),
        (lambda folder: folder / ("n" * 300), IMAGES, r"no file|name too long"),
        (lambda folder: folder, IMAGES, "holds no .csv, .csv.gz or .parquet"),
        (_two_kinds, whole(BINNED), r"a.csv and .*b.csv disagree"),
        (lambda folder: text_file(folder, "x\n1\n"), IMAGES, "of images"),
        (lambda _: pl.DataFrame({"x": [1]}), IMAGES, "of images"),
        (
            lambda folder: text_file(folder, "a,b\n1,2\n"),
            Reference.from_counts([1]),
            "no column 'cell' among 'a', 'b'",
        ),
        (
            lambda _: pl.DataFrame({"a": [1], "b": [2]}),
            Reference.from_counts([1]),
            "no column 'cell' among 'a', 'b'",
        ),
    ],
)
def test_a_source_that_does_not_fit_is_refused(
    tmp_path: Path, source: Callable[[Path], Any], reference: Reference, words: str
) -> None:
    with pytest.raises(RecordsError, match=words):
        open_records(source(tmp_path)).count(reference)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = text_file(tmp_path, "x\n1\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RecordsError, match="Permission denied"):
        open_records(path).count(whole(BINNED))
    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(RecordsError, match="Permission denied"):
        open_records(path)


def test_a_file_name_that_is_no_text(tmp_path: Path) -> None:
    path = text_file(tmp_path, "x\n1\n", "a\udcff.csv")
    with pytest.raises(RecordsError, match=r"a\\udcff.csv' is not plain text"):
        open_records(path).count(whole(BINNED))


def test_an_empty_file_with_a_header_has_no_records(tmp_path: Path) -> None:
    assert open_records(text_file(tmp_path, "x\n")).count(whole(BINNED)).total == 0


MEASURE = """
import json, resource, sys
sys.modules |= dict.fromkeys(["pandas", "polars"])  # as if not installed
from pathlib import Path
from fedprikl.records import open_records
from fedprikl.reference import Reference
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
counted = open_records(Path(sys.argv[2])).count(Reference.load(sys.argv[1]))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([counted.total, counted.other, (after - before) / 1024]))
"""


def test_many_rows_stream(tmp_path: Path) -> None:
    """2 million rows with 130 MB of distinct texts, within 250 MiB and no data-frame library."""
    path = tmp_path / "many.parquet"
    duckdb.connect().sql(
        "SELECT CASE WHEN i % 3 = 0 THEN 'red' ELSE repeat(md5(i::VARCHAR), 3) END AS city, "
        "(i % 100)::DOUBLE AS age FROM range(2000000) t(i)"
    ).write_parquet(str(path))
    reference = Reference.fit(pl.DataFrame({"city": ["red"] * 100, "age": np.arange(100.0)}))
    reference.save(tmp_path / "ref.json")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "ref.json"), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    total, other, mib = json.loads(done.stdout)
    assert (total, other) == (2_000_000, 1_333_333)
    assert mib < 250


# A reference from a file


ROWS = pl.DataFrame(
    {
        "city": ["Basel", "Bern", "Basel", None, "Zug", "Bern"] * 5,
        "age": [31.0, 25.5, None, 47.0, 58.0, 0.1] * 5,
        "ward": [1, 2, 2, None, 3, 1] * 5,
        "id": list(range(30)),
        "smoker": [True, False, True, None, False, True] * 5,
    }
)


@pytest.mark.parametrize("bins", [2, 4, 10])
def test_a_reference_from_a_file_is_that_of_its_frame(tmp_path: Path, bins: int) -> None:
    expected = Reference.fit(ROWS, bins=bins, categorical=["ward"])
    ROWS.write_csv(tmp_path / "a.csv")
    for path in (parquet(tmp_path, ROWS), tmp_path / "a.csv"):
        fitted = fit_reference(path, bins=bins, categorical=["ward"])
        assert fitted.fingerprint == expected.fingerprint
        assert open_records(path).count(fitted).counts.tolist() == fitted.whole.mass.tolist()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(any_text, numbers), max_size=30), st.integers(1, 4))
def test_clients_with_the_reference_data_have_no_other(
    rows: list[tuple[str, float]], bins: int
) -> None:
    """Levels agree between a reference's reading of a CSV file and a client's."""
    rows = [row for row in rows if not set("\0\r\n") & set(row[0])] + [("a", 1.0)]
    frame = pl.DataFrame(rows, schema={"t": pl.String, "n": pl.Float64}, orient="row")
    with tempfile.TemporaryDirectory() as folder:
        for path in (Path(folder, "a.csv"), Path(folder, "a.parquet")):
            frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
            reference = fit_reference(path, bins=bins)
            assert (
                open_records(path).count(reference).counts.tolist() == reference.whole.mass.tolist()
            )


def test_007_stays_007(tmp_path: Path) -> None:
    path = text_file(tmp_path, "agent,n\n007,1\n7,2.0\n7.0,3\n007.0,4\n")
    reference = fit_reference(path, bins=2)
    agents, counts = reference.domain.encoder.columns  # type: ignore[union-attr]
    assert agents == Categories("agent", ("007", "7"))
    assert isinstance(counts, Bins)
    clients = text_file(tmp_path, "agent,n\n007,1\n7,2\n07,2\n", "client.csv")
    assert open_records(clients).count(reference).counts.tolist() == [1, 0, 1, 0, 1]


def test_a_leading_zero_makes_a_column_of_names(tmp_path: Path) -> None:
    path = text_file(tmp_path, "zip\n" + "\n".join(f"{i:04}" for i in range(995, 1010)))
    (column,) = fit_reference(path).domain.encoder.columns  # type: ignore[union-attr]
    assert isinstance(column, Categories)


@pytest.mark.parametrize("kind", [pl.String, pl.Float64, pl.Int64, pl.Boolean])
def test_a_column_of_gaps(tmp_path: Path, kind: type[pl.DataType]) -> None:
    gaps = pl.DataFrame({"x": pl.Series([None, None], dtype=kind), "y": [1, 1]})
    some = pl.DataFrame({"x": pl.Series([1, None]).cast(pl.Int64).cast(kind), "y": [1, 1]})
    reference = fit_reference(parquet(tmp_path, gaps))
    assert reference.fingerprint == Reference.fit(gaps).fingerprint
    assert open_records(parquet(tmp_path, some)).count(reference).counts.tolist() == [1, 1]


def test_single_precision_categories(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": pl.Series([0.1, None, float("nan")], dtype=pl.Float32)})
    reference = fit_reference(parquet(tmp_path, frame))
    assert [reference.domain.label(i) for i in range(2)] == ["x=0.1", "x=missing"]
    assert reference.fingerprint == Reference.fit(frame).fingerprint


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("a,b\n", {}, "no rows"),
        ("a,b\n1,2\n", {"columns": ["c"]}, "no column 'c'"),
        ("a,b\n1,2\n", {"categorical": ["c"]}, "no column 'c'"),
        ("a,b\n1,2\n", {"columns": ["a"], "categorical": ["b"]}, "not among the columns 'a'"),
        ("a,b\n1,2\n", {"columns": ["a", "a"]}, "named twice"),
        ("a,b\n1,2\n", {"columns": []}, "at least one column"),
        ("a,b\n1,2\n", {"bins": 0}, "at least 1"),
        ("a,b\n1\n", {}, "well-formed"),
    ],
)
def test_bad_reference_data(
    tmp_path: Path, content: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(FedPriKLError, match=words):
        fit_reference(text_file(tmp_path, content), **options)


def test_a_folder_makes_no_reference(tmp_path: Path) -> None:
    text_file(tmp_path, "x\n1\n")
    with pytest.raises(InvalidInputError, match="is a folder"):
        fit_reference(tmp_path)


def test_long_values_of_parquet_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """A small file may hold far more than it seems to."""
    file, length = tmp_path / "a.parquet", 100_000
    rows = pa.table({"cell": ["A" * length] * 600, "other": [1] * 600})
    pq.write_table(rows, file, compression="zstd", use_dictionary=False)
    assert file.stat().st_size < length
    sizes = [chunk.rows for chunk in open_source(file, CsvFormat()).chunks(["cell"])]
    assert sum(sizes) == 600
    assert max(sizes) * length <= files.BATCH
    assert [chunk.rows for chunk in open_source(file, CsvFormat()).chunks(["other"])] == [600]
