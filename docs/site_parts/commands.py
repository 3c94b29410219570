"""The commands and their options, from the declarations that `--help` prints."""

import re
from typing import Any

import typer.main

from fedprikl.cli.app import app

EXAMPLE = re.compile(r"Example: `([^`]*)`")


def commands() -> str:
    """A heading, what it does, and a table of options for each command."""
    group: Any = typer.main.get_command(app)
    every: dict[str, Any] = {}
    for name in group.list_commands(None):
        every[name] = group.get_command(None, name)
        inner = getattr(every[name], "commands", {})
        every |= {f"{name} {verb}": each for verb, each in inner.items()}
    return "\n\n".join(_command(name, each) for name, each in every.items())


def _command(name: str, command: Any) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    usage = " ".join(["fedprikl", name, *(_argument(each) for each in arguments), "[OPTIONS]"])
    rows = [_row(each.name.upper(), each) for each in arguments]
    panel = None
    for each in options:
        if (title := getattr(each, "rich_help_panel", None)) not in (None, panel):
            rows.append(f"| **{title}** | | |")
            panel = title
        if each.name != "help":
            rows.append(_row(", ".join(each.opts), each))
    table = "\n".join(["| | says | default |", "| --- | --- | --- |", *rows]) if rows else ""
    return "\n\n".join([f"## fedprikl {name}", f"```text\n{usage}\n```", _help(command), table])


def _argument(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _row(name: str, param: Any) -> str:
    says = " ".join((param.help or "").split()).replace("|", "\\|")
    return f"| `{name}` | {says} | {_default(param)} |"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    value = param.default() if callable(param.default) else param.default
    return "" if value in (None, "", False, (), []) else f"`{value}`"


def _help(command: Any) -> str:
    """Its docstring, with its examples as a block; option names are code."""
    text = (command.help or "").replace("\b", "")
    examples = [" ".join(each.split()) for each in EXAMPLE.findall(text)]
    words = re.sub(r"(?<![`\w-])--[a-z][\w-]*", r"`\g<0>`", EXAMPLE.sub("", text)).strip()
    return "\n".join([words, "", "```text", *examples, "```"]) if examples else words
