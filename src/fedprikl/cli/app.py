"""Wires the commands together.

Exit codes: 0 done, 1 it failed (the message says why), 2 usage, 130 stopped by Ctrl-C.
"""

import os
import signal
import sys
import warnings
from types import FrameType
from typing import Annotated, Any

import typer

from fedprikl.cli.commands import Commands
from fedprikl.errors import FedPriKLError

__all__ = ["app", "main"]

# Of the environment; the last two are of the experiments and of the tests.
VARIABLES = frozenset(
    f"FEDPRIKL_{name}" for name in ("HOME", "WEBHOOK_SECRET", "DATA", "VDAF_VECTORS")
)
STOPPED = "stopped. A round that was charged stays charged (see `fedprikl ledger`)."

app = typer.Typer(
    name="fedprikl",
    cls=Commands,
    help="Federated, differentially private estimation of the KL divergence D(Pi || P).",
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
        from fedprikl.deployment.settings import check_names

        check_names(unknown, VARIABLES, "in the environment")


def _show_warning(*warned: Any, **named: Any) -> None:
    from fedprikl.cli.console import show_warning_plainly

    show_warning_plainly(*warned, **named)


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
