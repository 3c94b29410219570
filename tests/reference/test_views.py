"""Views: every column by itself, and pairs of columns; tables too wide for joint cells."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl import InvalidInputError, Reference
from fedprikl.errors import ReferenceFileError
from fedprikl.records import fit_reference, open_records
from fedprikl.reference import Correlation, files, fit
from fedprikl.reference.fit import fit_table
from fedprikl.reference.values import MISSING_TEXTS

pytestmark = pytest.mark.slow

PUBLIC = pl.DataFrame(
    {
        "plan": ["basic", "basic", "plus", "plus", None, "basic"],
        "age": [31.0, 52.0, 33.0, 34.0, 35.0, None],
        "city": ["Bern", "Bern", "Bern", "Zug", "Zug", "Zug"],
    }
)
PAIRS = [("age", "plan"), ("plan", "city")]


def wide(columns: int, rows: int = 300, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    users = rng.integers(0, 30, rows)
    shift = rng.normal(size=(30, columns))[users]
    values = rng.normal(size=(rows, columns)) + shift
    return pl.DataFrame({"user": users} | {f"c{i}": values[:, i].round(2) for i in range(columns)})


def same(one: Reference, two: Reference) -> None:
    assert one.fingerprint == two.fingerprint
    for left, right in zip(one.views, two.views, strict=True):
        assert (left.columns, left.labels) == (right.columns, right.labels)
        assert left.mass.tolist() == right.mass.tolist()
        assert left.correlation == right.correlation


def test_one_view_per_column_then_the_pairs() -> None:
    reference = Reference.fit(PUBLIC, bins=2, pairs=PAIRS)
    assert [view.columns for view in reference.views] == [("plan",), ("age",), ("city",), *PAIRS]
    plan, age, city, both, _ = reference.views
    assert plan.labels == ("basic", "plus", "missing")
    assert plan.mass.tolist() == [3.0, 2.0, 1.0, 0.0]
    assert age.labels == ("up to 34", "over 34", "missing")
    assert city.labels == ("Bern", "Zug")  # nothing is missing there
    assert both.labels == (
        "age=up to 34, plan=basic",
        "age=up to 34, plan=plus",
        "age=over 34, plan=basic",
        "age=over 34, plan=missing",
        "age=missing, plan=basic",
    )
    assert both.mass.tolist() == [1.0, 2.0, 1.0, 1.0, 1.0, 0.0]
    assert reference.joint


def test_no_views_without_several_columns() -> None:
    assert Reference.fit(PUBLIC, columns=["plan"]).views == ()
    assert Reference.from_counts({"red": 1, "blue": 2}).views == ()
    assert Reference.from_counts([1, 2]).count_views([0, 1]) == ()
    assert Reference.fit_images(np.zeros((2, 28, 28))).views == ()


values = st.sampled_from(["a", "b", "c", None])
rows = st.lists(st.tuples(values, values, values), min_size=1, max_size=12)


def frame(some: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(some, schema=dict.fromkeys("xyz", pl.String), orient="row")


@settings(deadline=None, max_examples=60)
@given(rows, rows)
def test_views_are_sums_of_the_joint(
    public: list[tuple[Any, ...]], private: list[tuple[Any, ...]]
) -> None:
    reference = Reference.fit(frame(public), pairs=[("z", "x")])
    names = [reference.domain.label(cell) for cell in range(reference.domain.size - 1)]
    known = frame(public)
    for records, joint in ((known, reference.whole.mass), (known, reference.count(known))):
        for view, counts in zip(reference.views, reference.count_views(records), strict=True):
            expected = [0.0] * view.size
            for name, held in zip(names, joint.tolist(), strict=False):
                fields = dict(field.split("=") for field in name.split(", "))
                single = fields[view.columns[0]]
                pair = ", ".join(f"{column}={fields[column]}" for column in view.columns)
                expected[view.labels.index(single if len(view.columns) == 1 else pair)] += held
            assert counts.tolist() == [*expected, 0]
            assert view.mass.tolist() == [*expected, 0]
    # Of other records, the view of a column counts what the column alone says.
    for view, counts in zip(reference.views, reference.count_views(frame(private)), strict=True):
        assert counts.sum() == len(private)
        places = ["xyz".index(name) for name in view.columns]
        seen = {tuple(row[i] for i in places) for row in public}
        assert counts[-1] == sum(tuple(row[i] for i in places) not in seen for row in private)


@pytest.mark.parametrize("columns", [20, 200])
def test_a_wide_table_has_views_only(columns: int, tmp_path: Path) -> None:
    data = wide(columns)
    reference = Reference.fit(data, client="user", pairs=[("c3", "c1")])
    assert not reference.joint
    assert reference.domain.codes.size == 0
    assert reference.whole.mass.tolist() == [300.0]
    assert reference.whole.correlation is None
    assert len(reference.views) == columns + 1
    assert repr(reference) == f"Reference({columns + 1} views of columns, no joint cells)"
    assert all(view.mass.sum() == 300 for view in reference.views)
    assert all(view.correlation is not None for view in reference.views)
    data.write_csv(tmp_path / "public.csv")
    same(reference, fit_reference(tmp_path / "public.csv", client="user", pairs=[("c3", "c1")]))
    reference.save(tmp_path / "ref.json")
    again = Reference.load(tmp_path / "ref.json")
    same(reference, again)
    private = wide(columns, rows=50, seed=1)
    private.write_csv(tmp_path / "client.csv")
    for source in (private, tmp_path / "client.csv"):
        counted = open_records(source).count(again)
        assert counted.counts.tolist() == [50]
        assert (counted.total, counted.unreadable) == (50, 0)
        for mine, expected in zip(counted.views, reference.count_views(private), strict=True):
            assert mine.tolist() == expected.tolist()
    with pytest.raises(InvalidInputError, match="count_views"):
        reference.count(private)
    with pytest.raises(InvalidInputError, match="count_views"):
        reference.encode(private)


def test_very_many_columns_do_not_overflow() -> None:
    data = pl.DataFrame({f"c{i}": ["a", "b"] for i in range(800)})
    assert not Reference.fit(data).joint
    with pytest.raises(InvalidInputError, match=r"about 10\^382 combinations"):
        Reference.fit(data, joint=True)


def test_crowded_combinations_are_no_cells() -> None:
    number = np.arange(9000)
    data = pl.DataFrame({"a": number // 100, "b": number % 100})
    crowded = {"categorical": ["a", "b"]}
    assert not Reference.fit(data, **crowded).joint  # type: ignore[arg-type]
    forced = Reference.fit(data, joint=True, **crowded)  # type: ignore[arg-type]
    assert (forced.joint, forced.domain.size) == (True, 9001)
    few = data.head(4096)
    assert Reference.fit(few, **crowded).joint  # type: ignore[arg-type]
    assert Reference.fit(pl.concat([data, data]), **crowded).joint  # type: ignore[arg-type]
    assert Reference.fit(data.select(a=number), categorical=["a"]).joint  # it is all there is


def test_joint_cells_can_be_left_out() -> None:
    bare = Reference.fit(PUBLIC, bins=2, joint=False)
    assert not bare.joint
    assert bare.whole.mass.tolist() == [6.0]
    with pytest.raises(InvalidInputError, match="one column"):
        Reference.fit(PUBLIC, columns=["age"], joint=False)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["ab"], "two different columns"),
        ([("plan",)], "two different columns"),
        ([("plan", "plan")], "two different columns"),
        ([("plan", "zip")], "among 'plan', 'age', 'city', .*'zip'"),
        ([("plan", "age"), ("age", "plan")], "named twice"),
    ],
)
def test_bad_pairs_say_what_to_do(pairs: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Reference.fit(PUBLIC, pairs=pairs)


def test_every_view_knows_how_alike_a_clients_records_are() -> None:
    data = wide(3, rows=400).with_columns(constant=pl.lit("x"))
    reference = Reference.fit(data, client="user", pairs=[("c0", "c2")], bins=4)
    for view in reference.views:
        columns = list(view.columns)
        alone = Reference.fit(data.select("user", *columns), client="user", bins=4)
        assert view.correlation == alone.whole.correlation
        assert view.spread(clients=[10]) == alone.whole.spread(clients=[10])
    iccs = [view.correlation.icc for view in reference.views if view.correlation]
    assert min(iccs[:3]) > 0.1
    assert iccs[3] == 0


@pytest.mark.parametrize("at_once", [1, 2**16])
def test_chunks_give_the_same_as_all_rows(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit._Pairs, "AT_ONCE", at_once)
    data = wide(3, rows=200)
    names = ["c0", "c1", "c2"]

    def chunks(rows: int) -> Callable[[], list[dict[str, Any]]]:
        return lambda: [
            {name: some[name].to_list() for name in some.columns} for some in data.iter_slices(rows)
        ]

    found = []
    for rows in (7, 200):
        table = fit_table(names, chunks(rows), bins=5, categorical=(), missing=MISSING_TEXTS)
        found.append(fit.fit_views(table, chunks(rows)(), "user", pairs=[("c0", "c2")]))
    for one, two in zip(*([whole, *views] for whole, views in found), strict=True):
        assert one.labels == two.labels
        assert one.mass.tolist() == two.mass.tolist()
        assert one.correlation == two.correlation


def test_sparse_pairs_of_clients_and_levels_are_grouped_alike() -> None:
    keys = np.array([5, 10**15, 5, 0, 10**15, 5])
    distinct, place = fit._distinct(keys)
    assert distinct.tolist() == [0, 5, 10**15]
    assert distinct[place].tolist() == keys.tolist()
    dense, place = fit._distinct(keys % 100)
    assert dense[place].tolist() == (keys % 100).tolist()
    assert dense.tolist() == [0, 5]


# Files


def document(reference: Reference) -> Any:
    return json.loads(files.dumps(reference.whole, reference.views))


def test_a_file_has_views_only_if_the_reference_has() -> None:
    assert "views" not in document(Reference.from_counts([1, 2]))
    assert "views" not in document(Reference.fit(PUBLIC, columns=["plan"]))
    (plan, *_) = document(Reference.fit(PUBLIC))["views"]
    assert plan == {"columns": ["plan"], "cells": [[[0], 3], [[1], 2], [[2], 1]], "other": 0}


def test_the_fingerprint_covers_the_views() -> None:
    one, two = Reference.fit(PUBLIC), Reference.fit(PUBLIC, pairs=PAIRS)
    assert one.fingerprint != two.fingerprint
    whole = document(two)
    changed: list[Any] = [whole["views"][:-1], whole["views"][::-1], []]
    for views in changed:
        with pytest.raises(ReferenceFileError, match="fingerprint"):
            files.loads(json.dumps(whole | {"views": views}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cells": [[[0], 3], [[1], 2]]}, "hold all records"),
        ({"cells": [[[0], 4], [[1], 2], [[2], 0]]}, "hold all records"),
        ({"cells": [[[0], 7], [[1], -1]]}, "not negative"),
        ({"cells": [[[1], 2], [[0], 4]]}, "sorted"),
        ({"cells": [[[0], 3], [[0], 3]]}, "distinct"),
        ({"cells": [[[0], 3], [[3], 3]]}, "does not have"),
        ({"cells": [[[0, 0], 6]]}, "malformed"),
        ({"cells": [[[0]]]}, "malformed"),
        ({"cells": [[[-1], 6]]}, "whole number"),
        ({"cells": [], "other": 6}, "some in each"),
        ({"other": True}, "Expected a number"),
        ({"columns": ["zip"]}, "not one of its columns"),
        ({"columns": [["plan"]]}, "malformed"),
        ({"columns": []}, "at least one column"),
        ({"columns": ["age"]}, "each view of its columns once|does not have|hold all"),
        ({"correlation": {"icc": 1}}, "size_variation"),
        ({"colour": 1}, "fingerprint"),
    ],
)
def test_a_damaged_view_says_what_is_wrong(change: dict[str, Any], words: str) -> None:
    damaged = document(Reference.fit(PUBLIC))
    damaged["views"][0] |= change
    with pytest.raises(ReferenceFileError, match=words):
        files.loads(json.dumps(damaged))


@pytest.mark.parametrize("views", [None, {}, 1, [1], [[]], "x", [None]])
def test_views_of_another_kind_are_refused(views: Any) -> None:
    for reference in (Reference.fit(PUBLIC), Reference.from_counts([1, 2])):
        with pytest.raises(ReferenceFileError):
            files.loads(json.dumps(document(reference) | {"views": views}))


def test_views_of_other_references_are_refused() -> None:
    reference = Reference.fit(PUBLIC)
    counts = Reference.from_counts([1, 2])
    with pytest.raises(InvalidInputError, match="Only a reference of a table"):
        Reference(counts.whole, reference.views)
    with pytest.raises(InvalidInputError, match="hold all records"):
        Reference(replace(reference.whole, mass=reference.whole.mass * 2), reference.views)
    part = Reference.fit(PUBLIC, columns=["plan", "city"])
    with pytest.raises(InvalidInputError, match="the reference's columns"):
        Reference(part.whole, reference.views)


def test_a_wide_file_with_cells_is_refused() -> None:
    damaged = document(Reference.fit(wide(30).drop("user")))
    damaged["cells"] = [[[0] * 30, 1]]
    with pytest.raises(ReferenceFileError, match="combinations"):
        files.loads(json.dumps(damaged))


def test_too_few_clients_are_named_for_wide_tables_too() -> None:
    data = wide(30).with_columns(user=pl.lit("one"))
    with pytest.raises(InvalidInputError, match="at least 4"):
        Reference.fit(data, client="user")
    assert isinstance(Reference.fit(wide(30), client="user").views[0].correlation, Correlation)
