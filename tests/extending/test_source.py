"""A source in one file of its own is counted and fitted like the others."""

import json
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedprikl import Reference
from fedprikl.errors import RecordsError
from fedprikl.records import count_all, data_files, fit_reference, open_records, sources
from tests.extending.page import module

ROWS: list[dict[str, Any]] = [{"plan": "a", "age": 30}, {"plan": "b", "age": None}, {"plan": "a"}]


@pytest.fixture(autouse=True)
def _source(tmp_path: Path) -> Iterator[None]:
    before = dict(sources._OPENERS)
    module("A source", tmp_path, name="json_lines")
    yield
    sources._OPENERS.clear()
    sources._OPENERS.update(before)
    sources._installed.cache_clear()


def write(path: Path, *more: str) -> Path:
    path.write_text("\n".join([*map(json.dumps, ROWS), *more]) + "\n")
    return path


def test_it_is_fitted_and_counted_like_a_frame(tmp_path: Path) -> None:
    data = write(tmp_path / "public.jsonl")
    frame = pl.DataFrame(ROWS)
    reference = fit_reference(data)
    assert reference.fingerprint == Reference.fit(frame).fingerprint
    client = tmp_path / "client"
    client.mkdir()
    write(client / "a.jsonl", "not JSON")
    frame.write_csv(client / "b.csv")
    counted = count_all({"client": client}, reference)["client"]
    assert counted.counts[:-1].tolist() == (2 * reference.count(frame)[:-1]).tolist()
    assert (counted.total, counted.unreadable) == (7, 1)
    (tmp_path / "other.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(RecordsError, match="has no column 'plan'"):
        open_records(tmp_path / "other.jsonl").count(reference)


def test_an_installed_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del sources._OPENERS[".jsonl"]
    data = write(tmp_path / "public.jsonl")
    with pytest.raises(RecordsError, match=r"is no \.csv, \.csv\.gz or \.parquet file"):
        data_files(data)
    found = EntryPoint(".jsonl", "json_lines:JsonLines", sources.GROUP)
    monkeypatch.setattr(sources, "entry_points", lambda group: [found] * (group == sources.GROUP))
    sources._installed.cache_clear()
    assert data_files(data) == (data,)
    assert fit_reference(data).whole.mass.sum() == 3
