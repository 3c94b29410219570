"""A kind of view in one file of its own goes through everything that a column goes through."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl import InvalidInputError, Reference
from fedprikl.errors import ReferenceFileError
from fedprikl.records import open_records
from fedprikl.reference import ViewKind, domain, files
from tests.extending.page import blocks, module

FRUIT = {"apple": "fruit", "pear": "fruit", "leek": "vegetable"}


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[ModuleType]:
    yield module("A kind of view", tmp_path, name="groups_of_cells")
    ViewKind.known.pop("groups")
    del sys.modules["groups_of_cells"]


def table(rows: int, seed: int, names: list[str]) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame({"food": rng.choice(names, rows), "x": rng.integers(0, 4, rows)})


def fit(groups: ModuleType) -> Reference:
    public = table(900, 1, ["apple", "pear", "leek", "salt"])
    return Reference.fit(public, views=[lambda table: groups.grouped(table, "food", FRUIT)])


def test_the_page_runs(groups: ModuleType) -> None:
    exec(blocks("A kind of view")[1], vars(groups))


def test_it_is_counted_beside_the_others(groups: ModuleType, tmp_path: Path) -> None:
    reference = fit(groups)
    *_, view = reference.views
    assert (view.name, view.labels) == ("food in groups", ("fruit", "vegetable", "others"))
    food = reference.views[0]
    mass = dict(zip(food.labels, food.mass.tolist(), strict=False))
    assert view.mass.tolist() == [mass["apple"] + mass["pear"], mass["leek"], mass["salt"], 0.0]
    reference.save(tmp_path / "reference.json")
    again = Reference.load(tmp_path / "reference.json")
    assert again.fingerprint == reference.fingerprint
    private = table(200, 2, ["apple", "leek", "stone"])
    private.write_csv(tmp_path / "private.csv")
    for source in (private, tmp_path / "private.csv"):
        found = open_records(source).count(again).views[-1]
        counts = dict(private["food"].value_counts().iter_rows())
        assert found.tolist() == [counts["apple"], counts["leek"], 0, counts["stone"]]
        assert again.count_views(private)[-1].tolist() == found.tolist()


def test_a_plan_asks_about_it_and_a_release_answers(groups: ModuleType) -> None:
    reference = fit(groups)
    planned = fk.plan(reference, clients=6, records=600, epsilon=2, ask=("columns",))
    clients = [table(100, 10 + i, ["apple", "leek"]) for i in range(6)]
    found = fk.compare(reference, clients, planned, ledger=None).columns
    assert found is not None
    frame: Any = found.to_frame()
    assert frame["column"].to_list() == ["food", "x", "food in groups"]


def test_an_installed_one_is_found(groups: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = fit(groups)
    text = files.dumps(reference.whole, reference.views)
    ViewKind.known.pop("groups")
    with pytest.raises(ReferenceFileError, match="install what has them"):
        files.loads(text)

    def installed(group: str, name: str) -> list[EntryPoint]:
        assert (group, name) == ("fedprikl.views", "groups")
        ViewKind.known["groups"] = groups.Groups  # as its import does
        return [EntryPoint(name, "groups_of_cells:Groups", group)]

    monkeypatch.setattr(domain, "entry_points", installed)
    assert files.fingerprint(*files.loads(text)) == reference.fingerprint


def test_groups_of_another_table_are_refused(groups: ModuleType) -> None:
    reference = fit(groups)
    other = Reference.fit(table(50, 3, ["tea"]))
    *_, view = reference.views
    with pytest.raises(InvalidInputError, match="the reference's columns"):
        Reference(replace(other.whole, mass=other.whole.mass * 18), (view,))
    document = json.loads(files.dumps(reference.whole, reference.views))
    document["views"][-1]["of"]["group"][0] = 2
    with pytest.raises(ReferenceFileError, match="fingerprint"):
        files.loads(json.dumps(document))
