"""Lazy frames are counted some rows at a time, as the same rows in memory are."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.reference import rows as rows_module
from fedprikl.reference.rows import FrameSource

ROWS = 1000


def frame(shift: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(8)
    return pl.DataFrame(
        {
            "id": [f"SECRET{n % 20}" for n in range(ROWS)],
            "age": [
                None if n == 7 else int(v) + shift for n, v in enumerate(rng.normal(40, 9, ROWS))
            ],
            "plan": rng.choice(["basic", "plus"], ROWS),
        }
    )


@cache
def reference() -> fk.Reference:
    return fk.Reference.fit(frame().drop("id"))


@cache
def planned(clients: int) -> Any:
    """Of all rows."""
    return fk.plan(reference(), clients=clients, records=ROWS, epsilon=1)


def relation(eager: pl.DataFrame) -> Any:
    return duckdb.connect().from_arrow(eager.to_arrow())


KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {"polars": pl.DataFrame.lazy, "duckdb": relation}


@pytest.fixture(params=KINDS)
def lazy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read 100 rows at a time, and never collected."""
    monkeypatch.setattr(rows_module, "LAZY_ROWS", 100)
    monkeypatch.setattr(pl.LazyFrame, "collect", None)
    return KINDS[request.param]


def test_it_is_read_in_parts(lazy: Any) -> None:
    parts = [chunk.rows for chunk in FrameSource(lazy(frame())).chunks(["age", "id"])]
    assert sum(parts) == ROWS
    assert lazy is relation or max(parts) <= 100  # DuckDB hands out vectors of 2,048 rows


def test_a_reference_is_the_same(lazy: Any) -> None:
    eager = fk.Reference.fit(frame(), client="id", pairs=[("age", "plan")])
    found = fk.Reference.fit(lazy(frame()), client="id", pairs=[("age", "plan")])
    assert found.fingerprint == eager.fingerprint
    assert found.count(lazy(frame(3))).tolist() == eager.count(frame(3)).tolist()
    assert found.count(lazy(frame()[:0])).sum() == 0


def test_one_table_is_compared_and_known_again(lazy: Any, tmp_path: Path) -> None:
    plan = planned(20)
    other = plan.plan.changed(population="others")
    ledger = tmp_path / "ledger.db"
    found = fk.compare(reference(), lazy(frame()), plan, client="id", ledger=ledger)
    assert found.release.records == ROWS
    with pytest.raises(InvalidInputError, match="A new name is no new budget"):
        fk.compare(reference(), lazy(frame()), other, client="id", ledger=ledger)
    fk.compare(reference(), lazy(frame(1)), other, client="id", ledger=ledger)


def test_each_client_may_have_one(lazy: Any) -> None:
    clients = [lazy(frame()[start::4].drop("id")) for start in range(4)]
    assert fk.compare(reference(), clients, planned(4), ledger=None).release.records == ROWS


def test_a_query_that_fails_tells_no_record() -> None:
    broken = frame().lazy().select(pl.col("id").cast(pl.Int64, strict=True))
    with pytest.raises(RecordsError, match="cannot be read") as refused:
        list(FrameSource(broken).chunks(["id"]))
    assert "SECRET" not in str(refused.value)
