"""The page of a series as a small, read-only ASGI app.

| address            | is                                          |
| ------------------ | ------------------------------------------- |
| /                  | the page                                    |
| /periods/0023.html | the report of a period; also /periods/23    |
| /series.json       | all of the status                           |
| /metrics           | for Prometheus, in its text or OpenMetrics  |
| /health            | 200 if the history can be read, without faults; else 503 |
"""

import logging
import re
from collections.abc import Collection

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fedprikl.dashboard.guard import LOOPBACK, Guard, error_page
from fedprikl.dashboard.source import Kept, SeriesSource, report

__all__ = ["SeriesSource", "dashboard"]

SECONDS = 5.0  # a status is kept
NUMBER = re.compile(r"([0-9]{1,9})(?:\.html)?")
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

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
        return HTMLResponse(await run_in_threadpool(lambda: kept().text("page")))

    async def period(request: Request) -> Response:
        found = NUMBER.fullmatch(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        text = await run_in_threadpool(lambda: report(kept(), source, int(found[1])))
        if text is None:
            raise HTTPException(404)
        return HTMLResponse(text)

    async def series(_: Request) -> Response:
        text = await run_in_threadpool(lambda: kept().text("json"))
        return Response(text, media_type="application/json")

    async def metrics(request: Request) -> Response:
        text = await run_in_threadpool(lambda: kept().text("metrics"))
        wanted = request.headers.get("accept", "")
        kind = OPENMETRICS if "application/openmetrics-text" in wanted else PROMETHEUS
        return Response(text, headers={"Content-Type": kind})

    async def health(_: Request) -> Response:
        try:
            shown = await run_in_threadpool(kept)
        except Exception:
            log.exception("The history cannot be read.")
            return PlainTextResponse("the history cannot be read\n", status_code=503)
        if shown.status.faults:
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
