"""What every answer of the dashboard has in common: who may ask, how, and what a browser may do."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedprikl.reporting.page import page, paragraphs
from fedprikl.reporting.series_page import top_links
from fedprikl.reporting.series_style import SERIES_STYLE

__all__ = ["LOOPBACK", "Guard", "error_page"]

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
    body = page(
        f"Error {status}",
        [paragraphs(words)],
        headline=headline,
        top=top_links({"/": "The series"}),
        style=SERIES_STYLE,
    )
    return HTMLResponse(body, status_code=status)
