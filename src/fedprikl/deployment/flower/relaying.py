"""Flower's SuperLink, where a request passes through the middlewares that have to do with it.

Flower puts all nine around every request, and each costs about a millisecond of the one thread
that serves all sites. Most look at the path and step aside. Here they are asked only about the
paths they serve; those that check, translate or authenticate stay around every request.
"""

from collections.abc import Callable

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["flower_superlink", "where_needed"]

# By name: what each of them serves, and what it would step aside for by itself.
SERVES = {
    "ControlSensitiveResponseMiddleware": "/v1/control/",
    "ControlAuthenticationMiddleware": "/v1/control/",
    "ControlLicenseMiddleware": "/v1/control/",
    "ControlEventLogMiddleware": "/v1/control/",
    "RuntimeTracingMiddleware": "/v1/runtime/",
    "FleetEventLogMiddleware": "/v1/fleet/",
}


class OnlyFor:
    """A middleware around the requests whose path has a prefix; all others pass it by."""

    def __init__(self, app: ASGIApp, *, prefix: str, wrap: Callable[[ASGIApp], ASGIApp]) -> None:
        self._app, self._prefix, self._wrapped = app, prefix, wrap(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = scope["type"] != "http" or scope["path"].startswith(self._prefix)
        await (self._wrapped if served else self._app)(scope, receive, send)


def where_needed(found: list[Middleware]) -> list[Middleware]:
    """The same middlewares in the same order, each around the paths that it serves."""
    return [
        Middleware(OnlyFor, prefix=SERVES[each.cls.__name__], wrap=_wrapper(each))
        if each.cls.__name__ in SERVES
        else each
        for each in found
    ]


def _wrapper(middleware: Middleware) -> Callable[[ASGIApp], ASGIApp]:
    return lambda app: middleware.cls(app, *middleware.args, **middleware.kwargs)


def flower_superlink() -> None:
    """Flower's command of this name, with its own arguments."""
    from flwr.superlink import cli
    from flwr.superlink import main as superlink

    flowers_own = superlink._get_middleware
    superlink._get_middleware = lambda: where_needed(flowers_own())
    cli.flower_superlink()
