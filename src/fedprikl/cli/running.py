"""What `fedprikl site`, `aggregator` and `relay` have in common: run processes until stopped."""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from fedprikl.cli.console import notes, say
from fedprikl.deployment.health import serve_health
from fedprikl.deployment.supervisor import Child, Supervisor
from fedprikl.errors import InvalidInputError, MissingExtraError

__all__ = ["check_address", "check_file", "check_flower", "run_party"]


def run_party(children: Callable[[Path], Sequence[Child]], *, health_port: int) -> None:
    """Starts the processes of a party and keeps them running; returns when it is told to stop.

    They share a folder that only this user can read, and that is gone afterwards.
    """
    with ExitStack() as stack:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedprikl-")))
        supervisor = Supervisor(children(private), lambda words: say(words, console=notes))
        if health_port:
            stack.enter_context(serve_health(health_port, lambda: supervisor.health))
            say(f"health: http://127.0.0.1:{health_port}/health", console=notes)
        supervisor.run()
        say("stopped: all processes have ended", console=notes)


def check_flower() -> None:
    """Federations need the extra."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtraError("Federations need Flower: pip install 'fedprikl[flower]'.")


def check_file(path: Path | None, what: str, advice: str) -> None:
    """Says early that a file is missing; Flower would start again and again."""
    if path is not None and not path.exists():
        raise InvalidInputError(f"There is no {what} {path}. {advice}")


def check_address(address: str) -> None:
    """A host and a port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInputError(f"{address!r} is no address. Write host:port.")
