"""The options of a command in a TOML file: `--from` reads it, `--write` makes one with comments."""

import json
import textwrap
import tomllib
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fedprikl.checks import check_names
from fedprikl.cli.options import given_of
from fedprikl.errors import InvalidInputError

OWN = ("source", "write")  # options about the file itself, which it does not hold
WIDTH = 98


def _held(context: typer.Context) -> dict[str, Any]:
    """The options that a file may hold, by the names that it has for them: all but flags."""
    return {
        (each.name or "").replace("_", "-"): each
        for each in context.command.params
        if each.name not in OWN and not getattr(each, "is_flag", False)
    }


def read_options(context: typer.Context, path: Path | None) -> Path | None:
    """Takes what is in the file for what the command line leaves out."""
    if path is None:
        return None
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # of TOML, or of UTF-8
        raise InvalidInputError(f"{path} is no TOML file: {error}.") from None
    held = _held(context)
    check_names(found, held, f"in {path}")
    values: dict[str, str | list[str]] = {}
    for name, value in found.items():
        several = getattr(held[name], "multiple", False)
        if isinstance(value, dict) or (isinstance(value, list) and not several):
            raise InvalidInputError(f"{path}: {name} takes one value.")
        # As it would be typed: a number with a fraction is not cut to a whole one.
        texts = [str(each) for each in value] if isinstance(value, list) else [str(value)]
        values[str(held[name].name)] = texts if several else texts[0]
    context.default_map = {**(context.default_map or {}), **values}
    return path


def options_text(context: typer.Context) -> str:
    """All options of this call, with what they mean; those that were not given are comments."""
    given = set(given_of(context, [str(each.name) for each in context.command.params]))
    lines = [f"# Options of `fedprikl {context.command.name}`, for --from. # marks a default."]
    panel = ""
    for name, each in _held(context).items():
        title = getattr(each, "rich_help_panel", None) or ""
        if title != panel:
            lines += ["", f"# ---- {title} ----"]
            panel = title
        value = context.params[each.name]
        mark = "" if each.name in given else "# "
        lines += ["", *_comment(each.help or ""), f"{mark}{name} = {_toml(value)}".rstrip()]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> Iterator[str]:
    return (f"# {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH))


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, datetime) and value == datetime.combine(value, datetime.min.time()):
        value = value.date()
    if isinstance(value, date):
        value = value.isoformat()
    return "" if value is None else json.dumps(str(value), ensure_ascii=False)


Source = Annotated[
    Path | None,
    typer.Option(
        "--from",
        is_eager=True,
        callback=read_options,
        help="Take options from this TOML file; those of the command line come first.",
    ),
]
Write = Annotated[
    Path | None,
    typer.Option(help="Instead of planning: write these options, with comments, for --from."),
]
