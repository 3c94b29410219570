"""What `fedprikl site`, `aggregator` and `relay` have in common: run processes until stopped."""

import importlib.util
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.deployment.log_lines import LogFormat, log_to
from fedprikl.deployment.settings import now
from fedprikl.deployment.supervisor import Child, Supervisor, serve_health
from fedprikl.deployment.tls import (
    WARNED,
    certificate_words,
    check_relay,
    clock_words,
    days_left,
    first_end,
)
from fedprikl.errors import DeploymentError, InvalidInputError, MissingExtraError
from fedprikl.libraries import install_words
from fedprikl.store import locked

HealthPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of /health on 127.0.0.1; 0: none.")
]
Logs = Annotated[
    LogFormat, typer.Option("--log-format", help="Of the lines on stderr: text, or JSON objects.")
]
Poll = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=60.0,
        envvar="FLWR_SUPEREXEC_TASK_POLL_INTERVAL",
        help="Seconds between two polls; up to 2 when idle.",
    ),
]


def run_party(
    name: str,
    home: Path,
    children: Callable[[Path], Sequence[Child]],
    *,
    health_port: int,
    log_format: LogFormat = "text",
    certificates: Sequence[Path | None] = (),
    trouble: Callable[[], str] = str,
    naming: Callable[[str], str] = str,
) -> None:
    """Starts the processes of a party and keeps them running; returns when it is told to stop.

    They share a folder of the home that only this user can read. It is made anew at every start, so
    what a crash leaves there is of no use to anybody. Every hour it looks when the certificates
    end, which metrics.prom tells, and warns in time. It is well only while there is no `trouble`.
    `naming` is what the log makes of each line, on this machine alone.
    """
    write = log_to(log_format)

    def log(process: str, text: str) -> None:
        for line in text.splitlines():
            write(process, naming(line))

    say_own = partial(log, "fedprikl")
    files = [path for path in certificates if path is not None]
    with ExitStack() as stack:
        private = stack.enter_context(private_folder(home, name))
        supervisor = Supervisor(
            children(private),
            say_own,
            hear=log,
            chore=lambda: watch_certificates(home / "metrics.prom", files, say_own),
            trouble=trouble,
        )
        if health_port:
            stack.enter_context(serve_health(health_port, lambda: supervisor.health))
            say_own(f"health: http://127.0.0.1:{health_port}/health")
        supervisor.run()
        say_own("stopped: all processes have ended")


def watch_certificates(metrics: Path, files: Sequence[Path], say: Callable[[str], None]) -> None:
    """Writes how many days each certificate has left, and warns before one ends. Never raises."""
    from fedprikl.deployment.round_metrics import write_certificate_days

    days = dict[str, float]()
    for path in files:
        try:
            end, at = first_end(path), now()
            days[path.name] = days_left(end, at=at)
            if days[path.name] < WARNED:
                say(f"WARNING {path}: {certificate_words(end, at=at)}")
        except DeploymentError as error:
            say(f"WARNING {error}")
    try:
        if days:
            write_certificate_days(metrics, days)
    except OSError as error:  # a party works without
        say(f"WARNING the metrics could not be written: {error.strerror}")


@contextmanager
def private_folder(home: Path, name: str) -> Iterator[Path]:
    """An empty folder of the home for one process at a time; it is gone afterwards."""
    folder = home / f"run-{name}"
    with held(home, name):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def held(home: Path, name: str) -> Iterator[None]:
    """The folder of a party for this process alone; refused while the party runs."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(home / name, timeout=0) as first:
            if not first:
                raise DeploymentError(
                    f"`fedprikl {name}` is running already with the folder {home}. Stop it first. "
                    "Every site, aggregator and relay has a folder of its own: --folder, or "
                    "FEDPRIKL_HOME."
                )
            yield
    except OSError as error:
        raise InvalidInputError(f"Cannot use the folder {home}: {error.strerror}.") from None


def check_flower() -> None:
    """Federations need the extra."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtraError(f"Federations need Flower: {install_words('flower')}.")


def note_relay(address: str, roots: Path | None, log_format: LogFormat = "text") -> None:
    """Says what is wrong with the relay or a clock. It may be mended later: nobody gives up."""
    try:
        words = clock_words(check_relay(address, roots), address)
    except DeploymentError as error:
        words = f"{error} Starting all the same: it is tried again and again."
    if words:
        log_to(log_format)("fedprikl", f"WARNING {words}")


def check_address(address: str) -> None:
    """A host and a port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port[-9:]) < 65536 or len(port) > 9:
        raise InvalidInputError(f"{address!r} is no address. Write host:port.")
