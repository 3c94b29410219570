"""Wires the commands together.

Exit codes: 0 done, 1 it failed (the message says why), 2 usage, 130 stopped by Ctrl-C.
"""

import signal
import sys
import warnings
from types import FrameType
from typing import Annotated

import typer

from fedprikl import __version__
from fedprikl.cli.aggregator_command import aggregator_command
from fedprikl.cli.audit_command import audit_command
from fedprikl.cli.console import plain, show_warning_plainly
from fedprikl.cli.demo_command import demo_command
from fedprikl.cli.estimate_command import estimate_command
from fedprikl.cli.federate_command import federate_command
from fedprikl.cli.keys_command import keys_command
from fedprikl.cli.ledger_command import ledger_command
from fedprikl.cli.monitor_command import monitor_command
from fedprikl.cli.plan_command import plan_command
from fedprikl.cli.reference_command import reference_command
from fedprikl.cli.relay_command import relay_command
from fedprikl.cli.serve_command import serve_command
from fedprikl.cli.site_command import site_command
from fedprikl.cli.verify_command import verify_command
from fedprikl.errors import FedPriKLError

__all__ = ["app", "main"]

STOPPED = "stopped. A round that was charged stays charged (see `fedprikl ledger`)."

app = typer.Typer(
    name="fedprikl",
    help="Federated, differentially private estimation of the KL divergence D(Pi || P).",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo_command)
app.command("reference")(reference_command)
app.command("audit")(audit_command)
app.command("plan")(plan_command)
app.command("estimate")(estimate_command)
app.command("keys")(keys_command)
app.command("relay")(relay_command)
app.command("aggregator")(aggregator_command)
app.command("site")(site_command)
app.command("federate")(federate_command)
app.command("verify")(verify_command)
app.command("ledger")(ledger_command)
app.command("monitor")(monitor_command)
app.command("serve")(serve_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedprikl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: errors raised on purpose, and Ctrl-C, are one line without a traceback."""
    warnings.showwarning = show_warning_plainly
    interrupts: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        app()
    except BaseException as error:
        if interrupts:  # whatever it became on its way up: duckdb makes a RuntimeError of it
            typer.echo(f"fedprikl: {STOPPED}", err=True)
            sys.exit(130)
        if not isinstance(error, FedPriKLError):
            raise
        typer.echo(plain(f"fedprikl: {error}"), err=True)
        sys.exit(1)
    finally:
        signal.signal(signal.SIGINT, before)
