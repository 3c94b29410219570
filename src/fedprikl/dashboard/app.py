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
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from fedprikl.dashboard import CachedSeries, SeriesSource
from fedprikl.deployment.web import ASGIApp
from fedprikl.reporting.html import page, paragraphs

Answer = tuple[int, str, str]  # status, content type, text
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
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
    "Allow": "GET, HEAD",
}
SECONDS = 5.0  # a status is kept
HTML = "text/html; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXTS = {
    "/": ("page", HTML),
    "/index.html": ("page", HTML),
    "/series.json": ("json", "application/json"),
    "/metrics": ("metrics", PROMETHEUS),
}
PERIOD = re.compile(r"/periods/([0-9]{1,9})(?:\.html)?")
ERRORS = {
    404: ("There is no such page.", "There is no report or page at this address."),
    405: ("Reading only.", "This page can be read and nothing else."),
    421: ("Wrong address.", "This machine does not know itself by the name you used."),
    500: (
        "This page cannot be shown.",
        "The history cannot be read now. The log of the server says why.",  # it may name files
    ),
}

log = logging.getLogger("fedprikl.dashboard")


def dashboard(
    source: SeriesSource,
    *,
    hosts: Collection[str] | None = LOOPBACK,
    seconds: float = SECONDS,
) -> ASGIApp:
    """The app. `hosts` are the names it may be asked by; None: any, for a server behind others.

    A page of somebody else's may make a browser take the dashboard for a part of itself: it gives
    its own name the address 127.0.0.1. The browser then asks with that name, which is refused.
    """
    kept = CachedSeries(source, seconds=seconds)

    async def app(scope: Any, _: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        asked = [value for name, value in scope["headers"] if name == b"host"]
        if hosts is not None and (len(asked) != 1 or _host(asked[0]) not in hosts):
            status, kind, text = _error(421)
        elif scope["method"] not in ("GET", "HEAD"):
            status, kind, text = _error(405)
        else:
            accepted = dict(scope["headers"]).get(b"accept", b"")
            status, kind, text = await asyncio.to_thread(_answer, kept, scope["path"], accepted)
        body = text.encode()
        headers = HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}
        sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": body})

    return app


def _host(value: bytes) -> str | None:
    """The name of a Host header, without its port."""
    try:
        return urlsplit(f"//{value.decode('ascii')}").hostname
    except ValueError:
        return None


def _answer(kept: CachedSeries, path: str, accepted: bytes) -> Answer:
    try:
        if path == "/health":
            faults = kept.status().faults
            return (503, PLAIN, "the history has faults\n") if faults else (200, PLAIN, "ok\n")
        if path in TEXTS:
            kind, content_type = TEXTS[path]
            if kind == "metrics" and b"application/openmetrics-text" in accepted:
                content_type = OPENMETRICS
            return 200, content_type, kept.text(kind)
        found = PERIOD.fullmatch(path)
        report = None if found is None else kept.report(int(found[1]))
        return _error(404) if report is None else (200, HTML, report)
    except Exception:
        log.exception("The history cannot be read.")
        if path == "/health":
            return 503, PLAIN, "the history cannot be read\n"
        return _error(500)


def _error(status: int) -> Answer:
    """An error as a page that leads back."""
    headline, words = ERRORS[status]
    links = {"/": "The series"}
    text = page(f"Error {status}", paragraphs(words), headline=headline, links=links)
    return status, HTML, text
