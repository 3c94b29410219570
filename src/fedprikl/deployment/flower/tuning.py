"""What we change in Flower 1.41 while it runs in our processes: its waits, and its relay's queues.

All of it is here, with the reason, and none of it changes what is checked or who is let in. Each
change is to go when Flower makes it needless; tests fail where Flower no longer has what is changed
here.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Flower's own dependency: not there without the extra `flower`
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["flower_superlink", "hasten", "name_of", "taking_turns", "where_needed"]

# A message and its parts travel apart. For a part that is on its way Flower waits a second, then
# two, and so on, before it looks at the next one.
PATIENCE = {"initial_backoff": 0.1, "backoff_cap": 1.0}  # seconds
WAITING: dict[str, dict[str, float]] = {
    # For a part that a site never sent, an aggregator would wait up to two hours.
    "flwr.superlink.grid.http_grid": PATIENCE | {"max_time": 20.0},
    "flwr.supernode.start_client_internal": PATIENCE,
}

# Flower puts nine middlewares around every request, all in the one thread that serves all sites: a
# round of 50 sites took 280 s with them and 213 s without those that step aside (once each, on a
# shared machine), and the relay 178 and 126 s of CPU. These step aside for all paths but
SERVES = {
    "ControlSensitiveResponseMiddleware": "/v1/control/",
    "ControlAuthenticationMiddleware": "/v1/control/",
    "ControlLicenseMiddleware": "/v1/control/",
    "ControlEventLogMiddleware": "/v1/control/",
    "RuntimeTracingMiddleware": "/v1/runtime/",
    "FleetEventLogMiddleware": "/v1/fleet/",
}


def hasten(module: str) -> None:
    """Shortens how long one of `WAITING` waits for the parts of a message."""
    found = import_module(module)
    found.pull_objects = partial(_plain(found.pull_objects), **WAITING[module])  # type: ignore[attr-defined]


def _plain(function: Any) -> Any:
    return function.func if isinstance(function, partial) else function


class OnlyFor:
    """A middleware around the requests whose path has a prefix; all others pass it by."""

    def __init__(
        self, app: "ASGIApp", *, prefix: str, wrap: "Callable[[ASGIApp], ASGIApp]"
    ) -> None:
        self._app, self._prefix, self._wrapped = app, prefix, wrap(app)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        served = scope["type"] != "http" or scope["path"].startswith(self._prefix)
        await (self._wrapped if served else self._app)(scope, receive, send)


def where_needed(found: "list[Middleware]") -> "list[Middleware]":
    """The same middlewares in the same order, each around the paths that it serves."""
    from starlette.middleware import Middleware

    return [
        Middleware(OnlyFor, prefix=SERVES[name_of(each)], wrap=_wrapper(each))
        if name_of(each) in SERVES
        else each
        for each in found
    ]


def name_of(middleware: "Middleware") -> str:
    """Of its class."""
    return str(getattr(middleware.cls, "__name__", ""))


def _wrapper(middleware: "Middleware") -> "Callable[[ASGIApp], ASGIApp]":
    return lambda app: middleware.cls(app, *middleware.args, **middleware.kwargs)


def taking_turns(
    session: Callable[[Any], AbstractContextManager[Any]],
) -> Callable[[Any], AbstractContextManager[Any]]:
    """Sessions of a database, one after the other.

    SQLite lets one write at a time. With fifty sites, threads of Flower's relay wait until SQLite
    gives up ("database is locked"), and an answer is lost.
    """
    turn = threading.RLock()

    @contextmanager
    def in_turn(self: Any) -> Iterator[Any]:
        with turn, session(self) as found:
            yield found

    return in_turn


def flower_superlink() -> None:
    """Flower's command of this name, with its own arguments."""
    from flwr.supercore.sql_mixin import SqlMixin
    from flwr.superlink import cli
    from flwr.superlink import main as superlink

    flowers_own = superlink._get_middleware
    superlink._get_middleware = lambda: where_needed(flowers_own())
    SqlMixin.session = taking_turns(SqlMixin.session)  # type: ignore[assignment,method-assign]
    cli.flower_superlink()
