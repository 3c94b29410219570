"""The page of a series as a small, read-only ASGI app.

| address            | is                                          |
| ------------------ | ------------------------------------------- |
| /                  | the page                                    |
| /periods/0023.html | the report of a period; also /periods/23    |
| /series.json       | all of the status                           |
| /metrics           | for Prometheus, in its text or OpenMetrics  |
| /health            | 200 if the history can be read, without faults; else 503 |
"""

import asyncio
import logging
import re
import signal
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from types import FrameType
from typing import cast
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedprikl.dashboard import Kept, SeriesSource
from fedprikl.errors import InvalidInputError
from fedprikl.reporting.html import page, paragraphs

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
METHODS = ("GET", "HEAD")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
SECONDS = 5.0  # a status is kept
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
AT_ONCE = 256  # connections; one more ends the oldest of those that wait for a request
REQUEST_SECONDS = 30.0  # from a connection, or the answer before, until an answer is read


class Guard:
    """Refuses everything but reading, and names of this machine that are not its own.

    A page of somebody else's may make a browser take the dashboard for a part of itself: it gives
    its own name the address 127.0.0.1. The browser then asks with that name, which is refused.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = hosts  # None: any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or lets the app answer, with the headers of every answer."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        app = self._refused(scope) or self._app
        await app(scope, receive, with_headers)

    def _refused(self, scope: Scope) -> ASGIApp | None:
        names = [value for name, value in scope["headers"] if name == b"host"]
        if self._hosts is not None and (len(names) != 1 or _host(names[0]) not in self._hosts):
            return error_page(
                421, "Wrong address.", "This machine does not know itself by the name you used."
            )
        if scope["method"] not in METHODS:
            refused = error_page(405, "Reading only.", "This page can be read and nothing else.")
            refused.headers["Allow"] = ", ".join(METHODS)
            return refused
        return None


def _host(value: bytes) -> str | None:
    """The name of a Host header, without its port."""
    try:
        return urlsplit(f"//{value.decode('ascii')}").hostname
    except ValueError:
        return None


def error_page(status: int, headline: str, words: str) -> HTMLResponse:
    """An error as a page that leads back."""
    links = {"/": "The series"}
    body = page(f"Error {status}", paragraphs(words), headline=headline, links=links)
    return HTMLResponse(body, status_code=status)


NUMBER = re.compile(r"([0-9]{1,9})(?:\.html)?")

log = logging.getLogger("fedprikl.dashboard")


def dashboard(
    source: SeriesSource,
    *,
    hosts: Collection[str] | None = LOOPBACK,
    seconds: float = SECONDS,
) -> ASGIApp:
    """The app. `hosts` are the names it may be asked by; None: any, for a server behind others."""
    kept = Kept(source, seconds=seconds)

    async def page(_: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(kept.text, "page"))

    async def period(request: Request) -> Response:
        found = NUMBER.fullmatch(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        text = await run_in_threadpool(kept.report, int(found[1]))
        if text is None:
            raise HTTPException(404)
        return HTMLResponse(text)

    async def series(_: Request) -> Response:
        text = await run_in_threadpool(kept.text, "json")
        return Response(text, media_type="application/json")

    async def metrics(request: Request) -> Response:
        text = await run_in_threadpool(kept.text, "metrics")
        wanted = request.headers.get("accept", "")
        kind = OPENMETRICS if "application/openmetrics-text" in wanted else PROMETHEUS
        return Response(text, headers={"Content-Type": kind})

    async def health(_: Request) -> Response:
        try:
            status = await run_in_threadpool(kept.status)
        except Exception:
            log.exception("The history cannot be read.")
            return PlainTextResponse("the history cannot be read\n", status_code=503)
        if status.faults:
            return PlainTextResponse("the history has faults\n", status_code=503)
        return PlainTextResponse("ok\n")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/index.html", page),
            Route("/periods/{name}", period),
            Route("/series.json", series),
            Route("/metrics", metrics),
            Route("/health", health),
        ],
        exception_handlers={404: _missing, Exception: _failed},
    )
    return Guard(app, hosts=hosts)


async def _missing(_: Request, __: Exception) -> Response:
    return error_page(404, "There is no such page.", "There is no report or page at this address.")


async def _failed(_: Request, __: Exception) -> Response:
    """The server's log has the reason: it may name files of the machine."""
    words = "The history cannot be read now. The log of the server says why."
    return error_page(500, "This page cannot be shown.", words)


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
