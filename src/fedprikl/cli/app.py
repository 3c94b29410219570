"""Wires the commands together.

Exit codes: 0 done, 1 it failed (the message says why), 2 usage, 130 stopped by Ctrl-C.
"""

import ast
import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fedprikl.cli import importing
from fedprikl.errors import FedPriKLError

if TYPE_CHECKING:  # newer versions of typer bring their own
    import click


SECTIONS = {  # of `--help`, each in the order of use
    "One round": ("demo", "reference", "plan", "audit", "estimate", "verify", "ledger"),
    "Over time": ("monitor", "serve"),
    "Between machines": ("federation", "keys", "relay", "aggregator", "site", "federate", "prune"),
    "Three servers": ("server", "report"),
}
COMMANDS = tuple(name for names in SECTIONS.values() for name in names)
STOPPED = "stopped. A round that was charged stays charged (see `fedprikl ledger`)."


class Commands(TyperGroup):
    """A group that imports a command when it is called, or asked for its own help."""

    def list_commands(self, ctx: "click.Context") -> list[str]:  # noqa: ARG002  as click calls it
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: "click.Context", cmd_name: str) -> "click.Command | None":  # noqa: ARG002
        """The command of this name; None if there is none."""
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: "click.Context", args: list[str]
    ) -> "tuple[str | None, click.Command | None, list[str]]":
        """The command of a line; one that is misspelt is told what is near."""
        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: "click.Context", formatter: "click.HelpFormatter") -> None:  # noqa: ARG002
        """Names and lines of the table."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary_of(name)) for name in names])

    def invoke(self, ctx: "click.Context") -> Any:
        """Runs a command; its errors name options as they are typed."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if (words := in_plain_words(error.message)) == error.message:
                raise
            hint = error.param_hint
            raise typer.BadParameter(words, error.ctx, error.param, hint) from None
        except FedPriKLError as error:
            called = self.get_command(ctx, ctx.invoked_subcommand or "")
            every = [called, *getattr(called, "commands", {}).values()]
            names = {
                param.name: param.opts[0] for one in every for param in getattr(one, "params", ())
            }
            error.args = (as_typed(str(error), names),)
            raise


def in_plain_words(text: str) -> str:
    """What click says of a value, without the names of its types.

    >>> in_plain_words("'x' is not a valid integer range.")
    "'x' is not a whole number."
    >>> in_plain_words("'x' does not match the format '%Y-%m-%d'.")
    "'x' is not a date like 2027-12-31."
    """
    text = re.sub(r"is not a valid integer( range)?", "is not a whole number", text)
    text = re.sub(r"is not a valid float( range)?", "is not a number", text)
    date = "is not a date like 2027-12-31."
    return re.sub(r"does not match the formats? '%Y-%m-%d'.*", date, text)


def as_typed(text: str, options: Mapping[str | None, str]) -> str:
    """The text with options, by the names of Python's parameters, in place of the parameters.

    A parameter is known by its underscore, by backquotes, or by standing before "must" or "=". What
    is said for Python stays.

    >>> as_typed("`trust` (in Python: a_b), a_b too", {"trust": "--trust", "a_b": "--a-b"})
    '--trust (in Python: a_b), --a-b too'
    """
    parts = re.split(r"(in Python: [^)]*)", text)
    return "".join(part if place % 2 else _typed(part, options) for place, part in enumerate(parts))


def _typed(text: str, options: Mapping[str | None, str]) -> str:
    for name, option in options.items():
        if name is not None and option.startswith("--"):
            text = re.sub(f"`{name}`|\\b(?:The )?{name}(?= must )", option, text)
            text = re.sub(f"\\b{name}='(\\w+)'", rf"{option} \1", text)
            if "_" in name:
                text = re.sub(rf"(?<![\w'\"/.-]){name}(?![\w'\"/-]|\.\w)", option, text)
    return text


def summary_of(name: str) -> str:
    """The first line of a command's docstring, read from its file: nothing is imported for it."""
    file = Path(__file__).with_name(f"{name}_command.py")
    said = [
        ast.get_docstring(each)
        for each in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(each, ast.FunctionDef) and each.name == f"{name}_command"
    ]
    return (said[0] or "").partition("\n")[0]


@cache
def _command(name: str) -> "click.Command":
    function = f"{name}_command"
    with importing():
        module = import_module(f"fedprikl.cli.{function}")
    if hasattr(module, "commands"):
        group = typer.main.get_command(module.commands)
        for each in getattr(group, "commands", {}).values():
            _restore_help(each)
        return group
    alone = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    alone.command(name)(getattr(module, function))
    return _restore_help(typer.main.get_command(alone))


def _restore_help(command: "click.Command") -> "click.Command":
    """The command, with the help of its arguments: click 8.5 drops what typer 0.20 gives it."""
    assert command.callback is not None  # noqa: S101  it is a function of ours
    declared = inspect.signature(command.callback).parameters
    for param in command.params:
        if param.name in declared and getattr(param, "help", "") is None:
            param.help = declared[param.name].annotation.__metadata__[0].help
    return command


# Of the environment; the last two are of the experiments and of the tests.
VARIABLES = frozenset(
    f"FEDPRIKL_{name}" for name in ("HOME", "WEBHOOK_SECRET", "DATA", "VDAF_VECTORS")
)

app = typer.Typer(
    name="fedprikl",
    cls=Commands,
    help=(
        "Has the population drifted from the data our model was trained on, and in which columns? "
        "Find out without collecting anybody's data.\n\n"
        "fedprikl adds up what all clients hold, and compares the sum with a public reference, "
        "under differential privacy."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,  # rich takes as long to load as all else that --help needs
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from fedprikl import __version__

        typer.echo(f"fedprikl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001  its callback reads it
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    unknown = {name for name in os.environ if name.startswith("FEDPRIKL_")} - VARIABLES
    if unknown:
        from fedprikl.checks import check_names

        check_names(unknown, VARIABLES, "in the environment")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    from fedprikl.cli.console import show_warning

    show_warning(message)


def main() -> None:
    """Entry point: errors raised on purpose, and Ctrl-C, are one line without a traceback."""
    warnings.showwarning = _show_warning
    interrupts: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        app()
    except BaseException as error:
        if interrupts:  # whatever it became on its way up: libraries make another error of it
            typer.echo(f"fedprikl: {STOPPED}", err=True)
            sys.exit(130)
        if not isinstance(error, FedPriKLError):
            raise
        from fedprikl.cli.console import plain

        typer.echo(plain(f"fedprikl: {error}"), err=True)
        sys.exit(1)
    finally:
        signal.signal(signal.SIGINT, before)
