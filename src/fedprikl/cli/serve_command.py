"""`fedprikl serve`: the page of a series, over the web or as files."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprikl.cli.console import notes, say
from fedprikl.cli.options import LEDGER, LedgerFile, PublicKey, check_apart, check_key
from fedprikl.errors import InvalidInputError, MissingExtraError
from fedprikl.libraries import install_words
from fedprikl.protocol import SignedPlan

if TYPE_CHECKING:
    from fedprikl.dashboard import SeriesSource


def open_series(history: Path, ledger: Path, plan: Path, key: str) -> "SeriesSource":
    """The series of a history that is there, if the key that is given signs its releases."""
    from fedprikl.front.series import HistorySource
    from fedprikl.monitoring.history import History

    signed = SignedPlan.load(plan)
    if not history.exists():
        raise InvalidInputError(
            f"There is no history {history}. Check the path; `fedprikl monitor` makes one."
        )
    if key:
        with History.open(history, create=False) as opened:
            if opened.read().signer != key:
                raise InvalidInputError(
                    f"The releases in {history} are not signed by the key that you gave."
                )
    return HistorySource(history, ledger if ledger.exists() else None, signed)


def serve_command(
    history: Annotated[Path, typer.Argument(help="The history, from `fedprikl monitor`.")],
    plan: Annotated[Path, typer.Option(help="The plan of the series.")] = Path("plan.json"),
    ledger: LedgerFile = LEDGER,
    key: PublicKey = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; if others can reach it, a note says so.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    static: Annotated[
        Path | None, typer.Option(help="Write the same as files into this folder, and end.")
    ] = None,
) -> None:
    """Serves the page of a series: drift over time, columns, reports, budget, sites. Read-only.

    It listens on this machine only, unless --host says otherwise. There is no password: whoever
    reaches the address may read, and all of it is public. `/metrics` is for Prometheus, `/health`
    for probes, `/series.json` for everything else. Ctrl-C ends it.

    Example: `fedprikl serve history.db --plan plan.json --static public`
    """
    key = check_key(key)
    if static is not None:
        from fedprikl.dashboard import site_places, write_site

        check_apart(site_places(static), (plan, ledger, history))
        written = write_site(open_series(history, ledger, plan, key), static)
        say(f"{len(written):,} files written; open {static / 'index.html'}")
        return
    if importlib.util.find_spec("uvicorn") is None:
        raise MissingExtraError(
            f"Serving needs uvicorn: {install_words('serve')}. `--static FOLDER` does not."
        )
    from fedprikl.dashboard.app import LOOPBACK, dashboard
    from fedprikl.deployment.web import address_of, open_socket, serve

    source = open_series(history, ledger, plan, key)
    local = host.lower() in LOOPBACK
    with open_socket(host, port) as listening:
        if not local:
            say(f"others can read this page: it listens on {host}", console=notes)
        say(f"serving {address_of(listening)} (Ctrl-C ends it)")
        serve(dashboard(source, hosts=LOOPBACK if local else None), listening)
