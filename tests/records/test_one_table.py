"""One table with an id column: the same counts as one file per client."""

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records import (
    Draw,
    RecordCounts,
    TimeSlice,
    count_all,
    count_by_client,
    open_table,
    table,
)
from fedprikl.reference import Reference
from tests.false_alarm import looks_as_frequent

PUBLIC = pl.DataFrame({"age": list(range(100)), "plan": ["basic", "plus"] * 50})
TABLE = Reference.fit(PUBLIC, bins=4, pairs=[("age", "plan")])
CELLS = Reference.from_counts([1, 1, 1, 1])


def rows_of(number: int, clients: int, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    ages = rng.integers(0, 120, number).astype(float)
    plans = rng.choice(["basic", "plus", "new", ""], number)
    ids = [f"N{i}" for i in rng.integers(0, clients, number)]
    return pl.DataFrame({"age": ages, "id": ids, "plan": plans})


def plain(counts: RecordCounts) -> tuple[Any, ...]:
    return tuple(tuple(each.tolist()) for each in (counts.counts, *counts.views))


def split(frame: Any, reference: Reference = TABLE, **options: Any) -> list[tuple[Any, ...]]:
    found = count_by_client(open_table(frame), reference, "id", **options)
    return sorted(map(plain, found.values()))


def of_cells(ids: list[Any], **options: Any) -> list[list[int]]:
    """Records per client, each in a cell of its own, of ids of any kind."""
    frame = {"id": pa.array(ids) if not isinstance(ids, pa.Array) else ids}
    cells = pa.array(np.arange(len(ids)) % 4)
    source = pa.table(frame | {"cell": cells})
    return [list(each[0]) for each in split(source, CELLS, **options)]


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "folder"])
def test_a_table_has_the_counts_of_one_file_per_client(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "PENDING", 500)  # several merges
    rows = rows_of(3000, 40)
    each = count_all(dict(_by_id(rows)), TABLE)
    source: Any = rows
    if kind == "csv":
        rows.write_csv(source := tmp_path / "all.csv")
    if kind == "parquet":
        rows.write_parquet(source := tmp_path / "all.parquet")
    if kind == "folder":
        source = tmp_path
        rows[:1000].write_csv(tmp_path / "a.csv")
        rows[1000:].write_parquet(tmp_path / "b.parquet")
    assert split(source) == sorted(map(plain, each.values()))


def _by_id(rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(str(key[0]), part) for key, part in rows.group_by("id")]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_that_is_linked_into_the_table_is_refused(link: Any, tmp_path: Path) -> None:
    rows_of(30, 4).write_csv(tmp_path / "a.csv")
    link(tmp_path / "b.csv", tmp_path / "a.csv")
    with pytest.raises(RecordsError, match="count twice"):
        split(tmp_path)


@pytest.mark.parametrize(
    ("ids", "clients"),
    [
        (["1", "2", "1"], 2),
        ([2**53, 2**53 + 1, 2**63 - 1], 3),  # all digits count
        ([1.0, 2.0, 1.0], 2),
        ([b"x", b"x", b"y"], 2),
        ([Decimal("1.0"), Decimal(2), Decimal(1)], 2),
        (["007", "7", "7.0"], 3),
        (["ä", "a\u0308", "ä"], 2),
    ],
)
def test_an_id_is_known_by_its_own_value(ids: list[Any], clients: int) -> None:
    assert len(of_cells(ids)) == clients


NOBODY = [None, "", "  ", "NaN", "NA"]


def test_rows_without_an_id_are_dropped_or_clients_of_their_own_or_refused() -> None:
    ids = ["a", *NOBODY, "b", "a"]
    assert of_cells(ids, no_client="drop") == [[0, 0, 1, 0, 0], [1, 0, 0, 1, 0]]
    assert len(of_cells(ids, no_client="one-each")) == 2 + len(NOBODY)
    with pytest.raises(RecordsError, match=r"no client.*--no-client drop") as refused:
        of_cells(ids)
    assert not any(f"{name!r}" in str(refused.value) for name in "ab")
    assert len(of_cells([1.0, float("nan"), 2.0, None], no_client="drop")) == 2


def test_a_line_whose_id_cannot_be_read_has_no_client(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,cell\na,0\na,1,1\nb,2\n\xff,3\n,3,3\n")
    file = tmp_path / "a.csv"
    found = [each[0] for each in split(file, CELLS, no_client="drop")]
    assert found == [(0, 0, 1, 0, 0), (1, 0, 0, 0, 1)]
    own = [each[0] for each in split(file, CELLS, no_client="one-each")]
    assert sorted(own) == sorted([*found, (0, 0, 0, 0, 1), (0, 0, 0, 0, 1)])
    drawn = split(file, CELLS, no_client="one-each", draw=Draw(3))
    assert sorted(sum(each[0]) for each in drawn) == [3, 3, 3, 3]
    with pytest.raises(RecordsError, match="no client"):
        split(file, CELLS)


ODD = [b"\xff", b'"', b'x"y', b"\0", b"1\r2"]
LONG = b"9" * 2**20  # the end of such a line is not kept


@pytest.mark.parametrize("no_client", ["drop", "one-each", "refuse"])
@pytest.mark.parametrize(
    ("first", "value"),
    [*((first, each) for first in (True, False) for each in [*ODD, b"1,1", b",,,,"]), (True, LONG)],
    ids=lambda value: repr(value)[:9],
)
def test_a_value_that_spoils_its_line_moves_no_record(
    first: bool, value: bytes, no_client: Any, tmp_path: Path
) -> None:
    """The number of records, and of clients, is public: it must not tell whether a line is read."""

    def sizes(odd: bytes) -> tuple[list[int], int]:
        rows = [(b"a", b"0"), (b"b", odd), (b"c", b"2"), (b"b", b"3")]
        lines = [(b"id", b"cell"), *rows]
        text = b"".join(b",".join(each if first else each[::-1]) + b"\n" for each in lines)
        (tmp_path / "a.csv").write_bytes(text)
        found = split(tmp_path / "a.csv", CELLS, no_client=no_client)
        return sorted(sum(each[0]) for each in found), sum(each[0][-1] for each in found)

    assert sizes(b"1") == ([1, 1, 2], 0)
    assert sizes(value) == ([1, 1, 2], 1)


@pytest.mark.parametrize("first", [True, False], ids=["id first", "id last"])
def test_no_value_names_another_client(first: bool, tmp_path: Path) -> None:
    rows = [["id", "cell"], ["a", "0"], ["alone", "1,a" if first else "a,1"]]
    lines = [",".join(row if first else row[::-1]) for row in rows]
    (tmp_path / "a.csv").write_text("\n".join([*lines, ""]))
    found = split(tmp_path / "a.csv", CELLS)
    assert sorted(each[0] for each in found) == [(0, 0, 0, 0, 1), (1, 0, 0, 0, 0)]


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value[:9]))
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_client_with_one_line_stays_whatever_spoils_it(
    place: int, value: bytes, tmp_path: Path
) -> None:
    names, row = [b"cell", b"more"], [value, b"x"]
    names.insert(place, b"id")
    row.insert(place, b"alone")
    others = {b"id": b"a", b"cell": b"2", b"more": b"y"}
    lines = [names, row, [others[name] for name in names]]
    (tmp_path / "a.csv").write_bytes(b"".join(b",".join(line) + b"\n" for line in lines))
    found = split(tmp_path / "a.csv", CELLS)
    assert sorted(each[0] for each in found) == [(0, 0, 0, 0, 1), (0, 0, 1, 0, 0)]


def test_a_line_of_a_period_has_its_client_too(tmp_path: Path) -> None:
    rows = b'id,day,cell\na,2027-01-05,0\na,2027-01-05,"\nb,2027-01-15,1\nc,2027-01-16,"\n'
    (tmp_path / "a.csv").write_bytes(rows)
    days = datetime(2027, 1, 4, tzinfo=UTC), datetime(2027, 1, 11, tzinfo=UTC)
    times = TimeSlice("day", *days, "UTC")
    found = split(tmp_path / "a.csv", CELLS, times=times)
    assert [each[0] for each in found] == [(0,) * 5, (0,) * 5, (1, 0, 0, 0, 1)]


def test_every_client_of_a_table_gives_k_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PENDING", 500)
    rows = rows_of(3000, 400)  # some have more than 8, some fewer
    held = count_all(dict(_by_id(rows)), TABLE)
    found = split(rows, draw=Draw(8))
    assert len(found) == len(held)
    assert {sum(counts) for client in found for counts in client} == {8}
    # Of those that hold eight and no more, nothing is left to chance.
    whole = Counter(plain(each) for each in held.values() if each.total == 8)
    assert whole <= Counter(found)


def drawn_first(clients: int, draw: Draw) -> int:
    """How many clients with four records, in cells 0 to 3, draw the first of them."""
    frame = pa.table({"id": np.repeat(np.arange(clients), 4), "cell": list(range(4)) * clients})
    found = count_by_client(open_table(frame), CELLS, "id", draw=draw)
    return sum(int(each.counts[0]) for each in found.values())


def test_records_are_drawn_evenly() -> None:
    """False alarm 1e-9."""
    assert looks_as_frequent(drawn_first(2000, Draw(1)), 2000, 0.25)


def test_that_check_would_notice_a_draw_of_first_rows() -> None:
    first = Draw(1, randomness=lambda number: bytes(number))  # all keys alike
    assert not looks_as_frequent(drawn_first(2000, first), 2000, 0.25)


def test_the_id_is_no_column_of_the_reference() -> None:
    with pytest.raises(InvalidInputError, match="compares the column 'plan'"):
        count_by_client(open_table(PUBLIC), TABLE, "plan")
    with pytest.raises(InvalidInputError, match="no column 'tail'"):
        count_by_client(open_table(PUBLIC), TABLE, "tail")
    with pytest.raises(InvalidInputError, match="drop, one-each, refuse"):
        split(PUBLIC, no_client="keep")
