"""Serving an app with uvicorn: until a signal comes, or while a block of code runs."""

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from types import FrameType
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedprikl.errors import InvalidInputError

__all__ = ["address_of", "open_socket", "serve", "serving"]

AT_ONCE = 256  # connections; one more ends the oldest of those that wait for a request
SECONDS = 30.0  # from a connection or the answer before, until a request is answered and read
STOPS = (signal.SIGINT, signal.SIGTERM)


class _Connection(H11Protocol):
    """Ends at its deadline whatever the other side does, or earlier to make room for others."""

    since: float
    ends: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = cast(set[_Connection], self.connections)
        if len(others) >= AT_ONCE:
            min(others, key=_by_need).end()
        self.since = self.loop.time()
        self.ends = self.loop.call_later(SECONDS, self.end)
        super().connection_made(transport)

    def on_response_complete(self) -> None:
        self.ends.cancel()
        self.ends = self.loop.call_later(SECONDS, self.end)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.cancel()
        super().connection_lost(exc)

    def end(self) -> None:
        """At once, also if something that was answered is not read."""
        self.connections.discard(self)
        self.transport.abort()


def _by_need(connection: _Connection) -> tuple[bool, float]:
    """First those that nothing is being answered to; the oldest of them first."""
    cycle = connection.cycle
    return cycle is not None and not cycle.response_complete, connection.since


class _Server(uvicorn.Server):
    """Leaves signals to its caller."""

    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
        return nullcontext()


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(AT_ONCE)
    except (OSError, OverflowError, UnicodeError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or "not an address or port of this machine"
        raise InvalidInputError(
            f"Cannot listen on {host}, port {port}: {reason}. Choose others with --host and --port."
        ) from None
    return listening


def address_of(listening: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serves until Ctrl-C or SIGTERM, and then ends what it is doing."""
    server = _server(app)

    def stop(_: int, __: FrameType | None) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in STOPS}
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def serving(app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serves while the block runs; yields the address."""
    listening = open_socket(host, port)
    server = _server(app)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield address_of(listening)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _server(app: ASGIApp) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        lifespan="off",
        interface="asgi3",
        ws="none",
        http=_Connection,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
    )
    return _Server(config)
