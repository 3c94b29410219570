"""An ASGI app on a socket: uvicorn, with limits on how many may connect and how long they take."""

import asyncio
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedprikl.errors import InvalidInputError

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
AT_ONCE = 256  # connections; one more ends the oldest of those that wait for a request
REQUEST_SECONDS = 30.0  # from a connection, or the answer before, until an answer is read

STOPS = (signal.SIGINT, signal.SIGTERM)


class _Connection(H11Protocol):
    """Ends at its deadline whatever the other side does, or earlier to make room for others."""

    at_once = AT_ONCE
    since: float
    ends: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = cast(set[_Connection], self.connections)
        if len(others) >= self.at_once:
            min(others, key=_by_need).end()
        self.since = self.loop.time()
        self.ends = self.loop.call_later(REQUEST_SECONDS, self.end)
        super().connection_made(transport)

    def on_response_complete(self) -> None:
        self.ends.cancel()
        self.ends = self.loop.call_later(REQUEST_SECONDS, self.end)
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


def address_of(listening: socket.socket, scheme: str = "http") -> str:
    """The address to open in a browser."""
    host, port = listening.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a certificate, with those that lead to its authority, and of its key."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Says what is wrong with the files."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError(
                f"{self.certificate} and {self.key} are no certificate with its key "
                f"({error.strerror or error}). Make or copy them again."
            ) from None


def serve(app: ASGIApp, listening: socket.socket, tls: Tls | None = None, **limits: int) -> None:
    """Serves until Ctrl-C or SIGTERM, and then ends what it is doing."""
    stopped = Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in STOPS}
    try:
        with serving(app, listening, tls, **limits):
            stopped.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def serving(
    app: ASGIApp,
    listening: socket.socket | None = None,
    tls: Tls | None = None,
    *,
    at_once: int = AT_ONCE,
) -> Iterator[str]:
    """Serves while the block runs, on a free port or the given socket; yields the address."""
    if tls is not None:
        tls.check()
    config = uvicorn.Config(
        app,
        lifespan="off",
        interface="asgi3",
        ws="none",
        http=type("_Limited", (_Connection,), {"at_once": at_once}),
        access_log=False,
        log_level="warning",
        server_header=False,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)  # in a thread of its own, it leaves signals to others
    with listening or open_socket("127.0.0.1", 0) as opened:
        thread = Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield address_of(opened, "http" if tls is None else "https")
        finally:
            server.should_exit = True
            thread.join()
