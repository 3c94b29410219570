"""JSON schemas of plans, releases and references, from the classes that read and write them.

What a schema cannot say (a signature, words that must follow from numbers, a fingerprint) is
checked when a document is read: `SignedPlan.load`, `fk.verify`, `Reference.load`.
"""

import inspect
import json
import re
import types
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedprikl.documents import Format
from fedprikl.estimation import Verdict
from fedprikl.privacy import PrivacyStatement
from fedprikl.protocol import Plan, Release
from fedprikl.protocol.plan import FORMAT as PLAN_FORMAT
from fedprikl.protocol.release import FORMAT as RELEASE_FORMAT
from fedprikl.protocol.release import ColumnAnswer
from fedprikl.reference.files import CORRELATION
from fedprikl.reference.files import FORMAT as REFERENCE_FORMAT

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT, NUMBER, WHOLE, FLAG = (
    {"type": "string"},
    {"type": "number"},
    {"type": "integer", "minimum": 0},
    {"type": "boolean"},
)
SIMPLE: dict[Any, Schema] = {str: TEXT, float: NUMBER, int: WHOLE, bool: FLAG}
STATEMENT = TEXT | {"description": "the same in words, which must follow from the numbers"}
# What `to_dict` of a class adds to its fields or leaves out.
ADDED: dict[type, Schema] = {
    Verdict: {
        "verdict": {"enum": ["drift", "none found", "cannot tell"]},
        "drifted": {"anyOf": [FLAG, {"type": "null"}]},
        "differs": FLAG,
        "exceeding": {"type": "array", "items": TEXT, "description": "statistics above thresholds"},
        "statement": STATEMENT,
    },
    ColumnAnswer: {"drifted": {"anyOf": [FLAG, {"type": "null"}]}},
    PrivacyStatement: {
        "true_epsilon": {"anyOf": [NUMBER, {"type": "null"}], "description": "null: infinite"},
        "holds": FLAG | {"description": "whether the true epsilon is at most the claimed one"},
        "statement": STATEMENT,
    },
}
LEFT_OUT: dict[type, set[str]] = {
    PrivacyStatement: {"epsilon"},
    Plan: {"as_read"},
    Release: {"as_read", "signer", "signature"},
}


def plan_schema() -> Schema:
    """Of plan.json."""
    return _signed("plan", Plan, PLAN_FORMAT)


def release_schema() -> Schema:
    """Of release.json."""
    return _signed("release", Release, RELEASE_FORMAT)


def reference_schema() -> Schema:
    """Of ref.json. Its reader is written by hand, and so is this."""
    masses = {
        "cells": {"type": "array", "items": _pair_of({"type": ["array", "integer"]}, NUMBER)},
        "other": NUMBER | {"minimum": 0, "description": "mass of records that have no cell"},
        CORRELATION: {"type": "object", "description": "how clients differ, from client ids"},
    }
    column = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": TEXT}
        | {kind: {"type": "array", "items": each} for kind, each in _KINDS.items()},
        "minProperties": 2,
        "maxProperties": 2,
        "additionalProperties": False,
    }
    table = _closed(
        {
            "kind": {"const": "table"},
            "missing": {"type": "array", "items": TEXT},
            "columns": {"type": "array", "items": column},
        }
    )
    cells = _closed({"kind": {"const": "cell numbers"}, "size": WHOLE | {"minimum": 1}})
    images = _closed(
        {"kind": {"const": "images"}, "side": WHOLE, "blocks": WHOLE}
        | {"white": NUMBER, "threshold": NUMBER}
    )
    kind = {"type": "object", "description": "of a view of another kind: which, and its settings"}
    view = _closed(
        {"columns": {"type": "array", "items": TEXT}, "of": kind} | masses,
        optional={CORRELATION, "of"},
    )
    return {"$schema": DIALECT, "title": "fedprikl reference"} | _closed(
        {
            **_head(REFERENCE_FORMAT),
            "about": TEXT,
            "fingerprint": _HASH,
            "records": {"oneOf": [table, cells, images]},
            "views": {"type": "array", "items": view},
        }
        | masses,
        optional={CORRELATION, "views"},
    )


SCHEMAS: dict[str, Callable[[], Schema]] = {
    "plan": plan_schema,
    "release": release_schema,
    "reference": reference_schema,
}


def schema_text(name: str) -> str:
    """The schema as a folded block of a page."""
    text = json.dumps(SCHEMAS[name](), indent=1, ensure_ascii=False)
    return f"<details><summary>The schema</summary>\n\n```json\n{text}\n```\n\n</details>"


def fields_text(kind: type) -> str:
    """A table of the fields of a document, with the comments of the class that it is read by."""
    rows = [
        f"| `{name}` | {_words(each)} | {each.get('description', '')} |"
        for name, each in _dataclass(kind)["properties"].items()
    ]
    return "\n".join(["| field | is | says |", "| --- | --- | --- |", *rows])


_KINDS = {"categories": TEXT, "bins": NUMBER, "times": TEXT}
_HASH = TEXT | {"pattern": "^[0-9a-f]{64}$"}


def _signed(name: str, kind: type, form: Format) -> Schema:
    """A document with the signature of whoever answers for it."""
    content = _dataclass(kind)
    properties = _head(form) | content["properties"]
    signature = {
        "signer": TEXT | {"pattern": "^([0-9a-f]{64})?$"},
        "signature": TEXT | {"pattern": "^([0-9a-f]{128})?$"},
    }
    return {"$schema": DIALECT, "title": f"fedprikl {name}"} | _closed(
        {name: _closed(properties)} | signature
    )


def _head(form: Format) -> Schema:
    return {name: {"const": value} for name, value in form.head.items()}


def _dataclass(kind: type) -> Schema:
    comments = dict(
        re.findall(r"^    (\w+): [^#\n]*#\s*(.*)$", inspect.getsource(kind), re.MULTILINE)
    )
    hints = get_type_hints(kind)
    names = [name for name in hints if name not in LEFT_OUT.get(kind, ())]
    properties = {
        name: _of(hints[name]) | ({"description": comments[name]} if name in comments else {})
        for name in names
    }
    return _closed(properties | ADDED.get(kind, {}))


def _of(annotation: Any) -> Schema:
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is Literal:
        return {"enum": list(inner)}
    if kind is tuple:
        many = inner[-1] is Ellipsis
        return {"type": "array", "items": _of(inner[0])} if many else _pair_of(*map(_of, inner))
    if kind in (Union, types.UnionType):
        return {"anyOf": [_of(each) for each in inner]}
    if annotation is type(None):
        return {"type": "null"}
    return _dataclass(annotation) if is_dataclass(annotation) else dict(SIMPLE[annotation])


def _pair_of(*each: Schema) -> Schema:
    size = len(each)
    return {"type": "array", "prefixItems": list(each), "minItems": size, "maxItems": size}


def _closed(properties: Schema, optional: AbstractSet[str] = frozenset()) -> Schema:
    """An object with exactly these fields; those that are optional may be left out."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _words(schema: Schema) -> str:
    """The type in a word or two."""
    if "enum" in schema:
        return "one of " + ", ".join(f'`"{each}"`' for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_words(each) for each in schema["anyOf"])
    if schema.get("type") == "array" and "items" in schema:
        return f"list: {_words(schema['items'])}"
    return {"integer": "whole number", "string": "text", "array": "list"}.get(
        schema["type"], schema["type"]
    )
