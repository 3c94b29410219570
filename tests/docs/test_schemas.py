"""The schemas of docs/reference/formats.md accept real documents, and reject broken ones."""

import ast
import inspect
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

import fedprikl as fk
from fedprikl.deployment import site_log, site_memory
from fedprikl.monitoring import counted_records, history
from fedprikl.privacy import account
from tests.docs.pages import site_parts, text_of

pytestmark = pytest.mark.slow

Document = dict[str, Any]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Document]]:
    """Real documents of each kind, as unlike as they get."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "public.csv").write_text("plan,age\n" + 30 * "basic,31\n" + 20 * "plus,54\nNA,42\n")
    table = fk.fit_reference(folder / "public.csv", bins=3)
    cells = fk.Reference.from_counts([50, 30, 20])
    references = [table, cells, fk.Reference.from_counts([[9, 1], [2, 8], [5, 5], [4, 6]])]
    plans, releases = [], []
    weeks = fk.Series(every="week", first="2027-01-04", periods=9, time_column="day")
    named = replace(weeks, time_column="")
    choices: list[dict[str, Any]] = [
        {}, {"trust": "none"}, {"unit": "client"}, {"series": weeks}, {"series": named},
    ]  # fmt: skip
    for known in choices:
        planned = fk.plan(cells, clients=6, records=600, epsilon=1, ask=["tv"], **known)
        plans.append(planned)
        if not known.get("series"):
            clients = [[0] * 40 + [1] * 30 + [2] * 30 for _ in range(6)]
            releases.append(fk.compare(cells, clients, planned, ledger=None).release)
    signed = fk.SignedPlan.sign(plans[0].plan, fk.SigningKey.generate())
    found = {"plan": [signed.to_dict(), *map(_saved(folder), plans)]}
    found["release"] = [json.loads(each.to_bytes()) for each in releases]
    found["reference"] = [*map(_saved(folder), references)]
    return found


def _saved(folder: Path) -> Any:
    def saved(thing: Any) -> Document:
        thing.save(folder / "saved.json")
        document: Document = json.loads((folder / "saved.json").read_text())
        (folder / "saved.json").unlink()
        return document

    return saved


@cache
def schema(kind: str) -> Document:
    found: Document = site_parts("site_parts.schemas").SCHEMAS[kind]()
    return found


@cache
def validator(kind: str) -> Any:
    return jsonschema.Draft202012Validator(schema(kind))


def accepts(kind: str, document: Document) -> bool:
    return bool(validator(kind).is_valid(document))


KINDS = ("plan", "release", "reference")


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_one(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    assert f"<!-- built: {kind}_schema -->" in text_of("reference/formats.md")


@pytest.mark.parametrize("kind", KINDS)
def test_real_documents_are_accepted(kind: str, documents: dict[str, list[Document]]) -> None:
    for document in documents[kind]:
        validator(kind).validate(document)


def broken(document: Any) -> Iterator[Any]:
    """The document with one field fewer, one more, or one of another kind, at every place."""
    if isinstance(document, list):
        for index, each in enumerate(document[:2]):
            for other in broken(each):
                yield [*document[:index], other, *document[index + 1 :]]
    if not isinstance(document, dict):
        return
    yield document | {"more": 1}
    for name, value in document.items():
        yield {key: each for key, each in document.items() if key != name}
        yield document | {name: {"another": "kind"}}
        for other in broken(value):
            yield document | {name: other}


@pytest.mark.parametrize("kind", ["plan", "release"])
def test_broken_documents_are_rejected(kind: str, documents: dict[str, list[Document]]) -> None:
    seen = 0
    for wrong in broken(documents[kind][0]):
        assert not accepts(kind, wrong)
        seen += 1
    assert seen > 50


def test_broken_references_are_rejected(documents: dict[str, list[Document]]) -> None:
    document = documents["reference"][0]
    for name in set(document) - {"views"}:
        assert not accepts("reference", {k: v for k, v in document.items() if k != name}), name
    for name in document:
        assert not accepts("reference", document | {name: {"another": "kind"}}), name
    assert not accepts("reference", document | {"more": 1})
    assert not accepts("reference", document | {"cells": [[[0, 0]]]})


@pytest.mark.parametrize("kind", KINDS)
def test_another_version_is_rejected(kind: str, documents: dict[str, list[Document]]) -> None:
    document = documents[kind][0]
    inside = document if kind == "reference" else document[kind]
    other = inside | {"version": inside["version"] + 1}
    assert not accepts(kind, other if kind == "reference" else document | {kind: other})


@pytest.mark.parametrize("module", [account, history, counted_records, site_memory, site_log])
def test_every_event_of_a_store_is_on_the_page(module: ModuleType) -> None:
    tree, page = ast.parse(inspect.getsource(module)), text_of("reference/formats.md")
    cases = {
        each.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Match) and ast.unparse(node.subject) == "body['event']"
        for case in node.cases
        for each in ast.walk(case.pattern)
        if isinstance(each, ast.Constant)
    }
    assert len(cases) > 1
    for event in {*cases, *getattr(module, "_CLOSED", ())}:
        assert f"| `{event}` |" in page


def test_every_format_is_of_the_version_that_the_page_says() -> None:
    table = site_parts("site_parts.formats").format_versions()
    assert table.count("\n") > 10
    assert {row.split("|")[3].strip() for row in table.splitlines()[2:]} == {"1"}
