"""What is public, as text: `make record` writes public.txt, and a test compares.

    python -m tests.compatibility.public

A difference is a decision: what is gone or renamed breaks somebody's program, and docs/stability.md
says how that is done.
"""

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main

import fedprikl as fk
from fedprikl.cli.app import app

RECORDED = Path(__file__).with_name("public.txt")
# What docs/extending.md builds on: classes to derive from, and functions that take them in.
EXTENSIONS = (
    "fedprikl.divergence:Divergence",
    "fedprikl.divergence:register",
    "fedprikl.privacy:Mechanism",
    "fedprikl.privacy:register_charge",
    "fedprikl.privacy:register_law",
    "fedprikl.protocol.round:Transport",
    "fedprikl.records:register_source",
    "fedprikl.reference.rows:Source",
    "fedprikl.reference:ViewKind",
)


def public() -> str:
    """Names with signatures, extension points, and commands with options, a line each."""
    names = (f"fk.{name}" for name in fk.__all__ if name != "__version__")
    found = [line for name in names for line in _described(name, getattr(fk, name[3:]))]
    for name in EXTENSIONS:
        module, _, inside = name.partition(":")
        found += _described(name, getattr(import_module(module), inside))
    return "\n".join([*found, *_commands(), ""])


def _described(name: str, found: Any) -> Iterator[str]:
    if not inspect.isclass(found):
        yield f"{name}{_signature(found)}"
        return
    if issubclass(found, Exception):
        yield f"{name} is {', '.join(base.__name__ for base in found.__bases__)}"
    else:
        yield f"{name}{_signature(found)}"
    written = [each.name for each in fields(found) if each.init] if is_dataclass(found) else []
    for inside in sorted({inside for each in found.__mro__ for inside in vars(each)}):
        home = next(each for each in found.__mro__ if inside in vars(each))
        if (
            inside.startswith("_")
            or inside in written
            or not home.__module__.startswith("fedprikl")
        ):
            continue
        part = inspect.getattr_static(found, inside)
        if isinstance(part, property | cached_property):
            yield f"{name}.{inside}"
        elif inspect.isfunction(part) or isinstance(part, classmethod | staticmethod):
            yield f"{name}.{inside}{_signature(getattr(found, inside))}"


def _signature(found: Any) -> str:
    """Names, kinds, and whether there is a default; how types are written depends on Python."""
    signature = inspect.signature(found)
    parameters = [
        each.replace(
            annotation=each.empty, default=each.empty if each.default is each.empty else ...
        )
        for each in signature.parameters.values()
    ]
    plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return str(plain).replace("Ellipsis", "...")


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield from _command(name, command)
        for verb, each in getattr(command, "commands", {}).items():
            yield from _command(f"{name} {verb}", each)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"fedprikl {name}"
    for each in command.params:
        if getattr(each, "hidden", False):
            continue
        shown = (
            each.name.upper()
            if each.param_type_name == "argument"
            else " ".join([*each.opts, *each.secondary_opts])
        )
        choices = "|".join(map(str, getattr(each.type, "choices", ())))
        kind = "" if getattr(each, "is_flag", False) else choices or each.type.name
        many = " ..." if each.nargs != 1 or getattr(each, "multiple", False) else ""
        needed = " (required)" if each.required else ""
        yield f"fedprikl {name} {shown} {kind}{many}{needed}".rstrip()


if __name__ == "__main__":
    RECORDED.write_text(public())
