"""Reference files: what is saved comes back, and nothing else is accepted."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import FedPriKLError, InvalidInputError, Reference
from fedprikl.errors import ReferenceFileError
from fedprikl.reference import BlockCode, View, files

REFERENCES = {
    "table": Reference.fit(
        pl.DataFrame({"c": ["a", "b", "a", None], "x": [0.1, 0.25, 3.0, None]}), bins=2
    ),
    "times": Reference.fit(
        pl.DataFrame({"t": [f"2020-01-{day:02} 12:00:00.5" for day in range(1, 21)]}).select(
            pl.col("t").str.to_datetime()
        ),
        missing=["", "?"],
    ),
    "images": Reference.fit_images(np.zeros((2, 28, 28)), code=BlockCode(white=1.0)),
    "counts": Reference.from_counts([3, 0, 5], other=2),
    "categories": Reference.from_counts({"red": 1, "blue": 4}),
    "probabilities": Reference.from_probabilities([0.1, 0.2, 0.7]),
}


def table(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"records": {"kind": "table", "missing": [""], "columns": list(columns)}}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_saved_reference_comes_back(name: str, tmp_path: Path) -> None:
    reference = REFERENCES[name]
    reference.save(tmp_path / "ref.json")
    again = Reference.load(tmp_path / "ref.json")
    assert again.fingerprint == reference.fingerprint
    assert again.domain.encoder == reference.domain.encoder
    np.testing.assert_array_equal(again.probabilities, reference.probabilities)
    np.testing.assert_array_equal(again.domain.codes, reference.domain.codes)


def test_a_person_can_read_the_file(tmp_path: Path) -> None:
    REFERENCES["table"].save(tmp_path / "ref.json")
    text = (tmp_path / "ref.json").read_text(encoding="utf-8")
    assert '"categories"' in text
    assert "    [[0, 0], 1],\n" in text
    assert "Pi is mass divided by the sum" in text


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=30).filter(any),
    st.integers(0, 10),
)
def test_any_counts_survive_the_file(counts: list[int], other: int) -> None:
    reference = Reference.from_counts(counts, other=other)
    whole, _ = files.loads(files.dumps(reference.whole))
    assert whole.mass.tolist() == [*counts, other]
    assert whole.size == len(counts)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True), st.data())
def test_any_texts_survive_the_file(names: list[str], data: st.DataObject) -> None:
    counts = data.draw(
        st.lists(st.integers(1, 9), min_size=len(names), max_size=len(names)), label="counts"
    )
    reference = Reference.from_counts(dict(zip(names, counts, strict=True)))
    whole, _ = files.loads(files.dumps(reference.whole))
    assert files.fingerprint(whole) == reference.fingerprint


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_foreign_bytes_give_only_our_error(content: bytes) -> None:
    with pytest.raises(ReferenceFileError):
        files.loads(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(
    st.sampled_from(sorted(REFERENCES)),
    st.sampled_from(["version", "records", "cells", "other", "fingerprint"]),
    JSON,
)
def test_any_changed_field_gives_only_our_error(name: str, field: str, value: Any) -> None:
    document = json.loads(files.dumps(REFERENCES[name].whole))
    if document[field] == value:
        return
    document[field] = value
    with pytest.raises(ReferenceFileError):
        files.loads(json.dumps(document))


@pytest.mark.parametrize("name", REFERENCES)
def test_a_file_cut_off_anywhere_is_refused(name: str) -> None:
    text = files.dumps(REFERENCES[name].whole).rstrip()
    for end in range(0, len(text), 7):
        with pytest.raises(ReferenceFileError):
            files.loads(text[:end])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "something else"}, "not a fedprikl reference"),
        ({"format": "fedprikl reference"}, "before fedprikl 1.0.*`fedprikl reference`"),
        ({"version": 8}, "version 8"),
        ({"other": 1}, "fingerprint"),
        ({"other": -1}, "not negative"),
        ({"other": True}, "Expected a number"),
        ({"cells": [], "other": 0}, "is empty"),
        ({"cells": [[0, 1], [0, 1]]}, "distinct"),
        ({"cells": [[7, 1]]}, "in range"),
        ({"cells": [[-1, 1]]}, "whole number"),
        ({"cells": [[0]]}, "malformed"),
        ({"records": {"kind": "cell numbers", "size": 2**40}}, "how records become cells"),
        ({"records": {"kind": "images", "colour": 1}}, "malformed"),
        ({"records": {"kind": "table", "columns": []}}, "how records become cells"),
        ({"records": {"kind": "table", "missing": [1], "columns": []}}, "how records become cells"),
        (table(), "at least one column"),
        (table({"name": "a"}), "neither categories nor bins nor times"),
        (table({"name": "a", "categories": ["x", "x"]}), "distinct texts"),
        (table({"name": "a", "bins": [1, 1]}), "must increase"),
        (table({"name": "a", "times": ["2021", "2022"]}), "must increase"),
        (table({"name": "a", "times": ["2021-01-01", "2020-01-01"]}), "must increase"),
        (table({"name": "a", "times": [1]}), "must increase"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(change: dict[str, Any], words: str) -> None:
    reference = REFERENCES["counts"]
    document = json.loads(files.dumps(reference.whole))
    with pytest.raises(ReferenceFileError, match=words):
        files.loads(json.dumps(document | change))


def test_a_level_that_does_not_exist_is_refused() -> None:
    reference = REFERENCES["table"]
    document = json.loads(files.dumps(reference.whole))
    document["cells"] = [[[9, 9], 1]]
    with pytest.raises(ReferenceFileError, match="does not have"):
        files.loads(json.dumps(document))


def test_nan_in_a_file_is_refused() -> None:
    text = files.dumps(REFERENCES["counts"].whole)
    with pytest.raises(ReferenceFileError, match="not a whole JSON"):
        files.loads(text.replace('"other": 2', '"other": NaN'))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReferenceFileError, match="Cannot write"):
        REFERENCES["counts"].save(tmp_path / "no" / "folder.json")
    with pytest.raises(ReferenceFileError, match="not valid text"):
        Reference.from_counts({"\ud800": 1}).save(tmp_path / "x.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReferenceFileError, match=r"nothere\.json"):
        Reference.load(tmp_path / "nothere.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ReferenceFileError, match=r"bad\.json: This is not"):
        Reference.load(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Reference.from_counts([]), "empty"),
        (lambda: Reference.from_counts([0, 0]), "empty"),
        (lambda: Reference.from_counts({}), "at least one category"),
        (lambda: Reference.from_counts(cast(Any, {"1": 1, 1: 2})), "only once"),
        (lambda: Reference.from_counts([1, -1]), "negative"),
        (lambda: Reference.from_counts([1, 0.5]), "whole numbers"),
        (lambda: Reference.from_counts([1, float("nan")]), "nan"),
        (lambda: Reference.from_counts([1, float("inf")]), "infinity"),
        (lambda: Reference.from_counts(["a"]), "must be numbers"),
        (lambda: Reference.from_counts([[1]]), "at least 4"),
        (lambda: Reference.from_counts([[[1]]]), "one list"),
        (lambda: Reference.from_counts(cast(Any, [[1], [1, 2]])), "equally long"),
        (lambda: Reference.from_counts(cast(Any, {"a": [1], "b": [1, 2]})), "equally long"),
        (lambda: Reference.from_probabilities([0.5, 0.4]), "sum to 1"),
        (lambda: Reference.from_probabilities([1.5, -0.5]), "not negative"),
        (lambda: Reference.from_probabilities([]), "at least one"),
        (lambda: Reference.from_probabilities("x"), "must be numbers"),
        (lambda: View(REFERENCES["counts"].domain, np.ones(2)), "as many masses"),
        (lambda: View(REFERENCES["counts"].domain, np.full(4, -1.0)), "not negative"),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()
    assert issubclass(InvalidInputError, FedPriKLError)


def test_the_repr_is_short() -> None:
    assert (
        repr(REFERENCES["counts"]) == "Reference(3 cells and 'other', 3 with probability above 0)"
    )
