"""What we change in Flower 1.41 while it runs in our processes: waits, queues of the relay, clocks.

All of it is here, with the reason. What is checked and who is let in stays, but for clocks that are
a little ahead. Each change is to go when Flower makes it needless; tests fail where Flower no
longer has what is changed here.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprikl.deployment.flower.relay_database import make_database

if TYPE_CHECKING:  # Flower's own dependency: not there without the extra `flower`
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Receive, Scope, Send


# Requests are signed with the time. Flower's relay accepts what was signed up to 305 s ago, and up
# to 5 s from now; a site whose clock is 8 s ahead would never connect.
CLOCKS = 300  # seconds that a clock may be ahead of the relay's, or behind
CHECKS_OF_TIME = ("flwr.superlink.routers.fleet.node_auth", "flwr.supercore.auth.superexec")

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
        """Through the middleware, or past it."""
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


def tolerate_clocks() -> None:
    """Lets a relay accept clocks that are ahead as far as Flower lets them be behind.

    A request to take a task is refused if it comes twice: Flower keeps its nonce for as long as
    the request could pass. One of a site has no nonce, so whoever breaks TLS can repeat it for
    10 minutes instead of 5.
    """
    sites, tasks = map(import_module, CHECKS_OF_TIME)
    sites.SYSTEM_TIME_TOLERANCE, sites.TIMESTAMP_TOLERANCE = CLOCKS, 5  # type: ignore[attr-defined]
    tasks.MIN_TIMESTAMP_DIFF_SECONDS = -CLOCKS  # type: ignore[attr-defined]


def flower_superlink() -> None:
    """Flower's command of this name, with its own arguments."""
    from flwr.supercore.sql_mixin import SqlMixin
    from flwr.superlink import cli
    from flwr.superlink import main as superlink

    flowers_own = superlink._get_middleware
    superlink._get_middleware = lambda: where_needed(flowers_own())
    SqlMixin.session = taking_turns(SqlMixin.session)  # type: ignore[assignment,method-assign]
    tolerate_clocks()
    make_database(Path(sys.argv[sys.argv.index("--database") + 1]))
    cli.flower_superlink()
