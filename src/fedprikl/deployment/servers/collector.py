"""The web address that clients send reports to: a plain ASGI app.

| request                       | answer                                                       |
| ----------------------------- | ------------------------------------------------------------ |
| POST /v1/reports              | 200 {"accepted": true}: it is on disk, now or since before;  |
|                               | 403 nobody of the roster; 404 no such plan or period here;   |
|                               | 408 too slow; 409 another report of this id or identity was  |
|                               | first; 410 late; 411, 413 no length, or too long; 422 no     |
|                               | report for this server; 503 with Retry-After: come again     |
| GET /v1/releases/PLAN/PERIOD  | the release with all signatures, or 404                      |
| GET /health                   | 503 if reports cannot be kept, or the certificate has ended  |
| GET /metrics                  | for Prometheus                                               |

A report is opened before it is kept, so what is kept can be added up. It is on disk before its
sender is told. Reports that wait for the disk together are written together.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any

from fedprikl.deployment.servers.home import Task
from fedprikl.deployment.servers.intake import Intake, Kept, Received
from fedprikl.deployment.settings import now
from fedprikl.errors import FedPriKLError, IntakeError, MessageDecodeError
from fedprikl.monitoring.metrics import sample_name, samples_text
from fedprikl.protocol.report import ReportHeader, message_bytes, open_report, read_header

WAITING = 2048  # reports that may wait for the disk; more are told to come again
UPLOAD_SECONDS = 20.0  # from the head of a request to the end of its body
RETRY = 2  # seconds
RELOAD = 1.0  # seconds between two looks for new plans, when one is unknown
AT_ONCE = 1024  # connections
PREFIX = "fedprikl_server_"
METRICS = {
    f"{PREFIX}reports_total": ("counter", "Reports since the start, by what became of them."),
    f"{PREFIX}reports_held": ("gauge", "Reports that are kept, by plan and period."),
    f"{PREFIX}waiting": ("gauge", "Reports that wait for the disk."),
    f"{PREFIX}lag_seconds": ("gauge", "How long the reports of the last commit waited for it."),
    f"{PREFIX}certificate_days": ("gauge", "Days until the certificate of the web address ends."),
}
REFUSALS = {  # what became of a report: status and words
    Kept.OTHER: (409, "another report of this id or identity was first"),
    Kept.LATE: (410, "late: this period takes no more reports"),
}
REPORTS = "/v1/reports"
RELEASE = re.compile("/v1/releases/([0-9a-f]{64})/([0-9]{1,9})")
CORS = [(b"access-control-allow-origin", b"*")]  # web pages may send reports: none has a cookie
PREFLIGHT = [
    *CORS,
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"content-type"),
    (b"access-control-max-age", b"86400"),
]


class Refused(Exception):  # noqa: N818  it is an answer, not a failure
    """A request that is answered with an error."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Collector:
    """The app. `tasks` gives the accepted plans, and is asked again when a plan is unknown.

    `release` gives the release of a plan and period, if there is one.
    """

    def __init__(
        self,
        tasks: Callable[[], Iterable[Task]],
        intake: Intake,
        *,
        ends: Callable[[], datetime],
        release: Callable[[str, int], str | None] = lambda _, __: None,
        clock: Callable[[], str] = now,
        waiting: int = WAITING,
        seconds: float = UPLOAD_SECONDS,
    ) -> None:
        self._load, self._intake, self._ends, self._clock = tasks, intake, ends, clock
        self._most, self._seconds, self._release = waiting, seconds, release
        self._tasks = {task.fingerprint: task for task in tasks()}
        self._loaded = time.monotonic()
        self._waiting: list[tuple[Received, asyncio.Future[Kept], float]] = []
        self._writer: asyncio.Task[None] | None = None
        self._broken = False  # whether the last commit failed
        self._lag = 0.0
        self.counts: Counter[str] = Counter()
        self._held: Counter[tuple[bytes, int]] = Counter(intake.held())

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers = list(CORS)
        try:
            status, words = await self._answer(scope, receive)
            if scope["method"] == "OPTIONS":
                headers = list(PREFLIGHT)
        except Refused as refused:
            status, words = refused.status, json.dumps({"error": refused.words})
            if (scope["method"], scope["path"]) == ("POST", REPORTS):
                self.counts[str(status)] += 1
        if status == 503:
            headers.append((b"retry-after", str(RETRY).encode()))
        if status in (408, 413):
            headers.append((b"connection", b"close"))
        kind = "application/json" if words.startswith("{") else "text/plain; charset=utf-8"
        body = words.encode() + b"\n" * (not words.endswith("\n"))
        headers += [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        headers += [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Callable[[], Awaitable[Any]]) -> tuple[int, str]:
        method, path = scope["method"], scope["path"]
        if path == REPORTS:
            if method == "POST":
                return await self._report(scope, receive)
            if method == "OPTIONS":
                return 200, "reports are posted here"
            raise Refused(405, "reports are posted here")
        if method not in ("GET", "HEAD"):
            raise Refused(405, "this is for reading")
        if path == "/health":
            return self._health()
        if path == "/metrics":
            return 200, self.metrics()
        found = RELEASE.fullmatch(path)
        release = None if found is None else self._release(found[1], int(found[2]))
        if release is None:
            raise Refused(404, "there is no such page, or no such release yet")
        return 200, release

    async def _report(self, scope: Any, receive: Callable[[], Awaitable[Any]]) -> tuple[int, str]:
        if len(self._waiting) >= self._most:
            raise Refused(503, "too many reports wait for the disk: come again")
        try:
            async with asyncio.timeout(self._seconds):
                message = await self._body(scope, receive)
        except TimeoutError:
            raise Refused(408, "the report came too slowly: send it again") from None
        kept = await self._keep(self._open(message))
        if kept in REFUSALS:
            raise Refused(*REFUSALS[kept])
        self.counts[kept.value] += 1
        return 200, '{"accepted": true}'

    async def _body(self, scope: Any, receive: Callable[[], Awaitable[Any]]) -> bytes:
        """As much as a report may have, and no more; its length is told before."""
        told = dict(scope["headers"]).get(b"content-length", b"")
        if not told.isdigit():
            raise Refused(411, "say how long the report is (Content-Length)")
        if len(told) > 9 or int(told) > self._most_bytes:
            fresh = self._reload()  # a plan that was accepted meanwhile may have longer reports
            if len(told) > 9 or int(told) > self._most_bytes:
                if not fresh or not self._tasks:
                    raise Refused(503, "this server may not know the plan yet: come again")
                raise Refused(413, f"a report for this server has at most {self._most_bytes} bytes")
        most = self._most_bytes
        parts, size = [], 0
        while True:
            event = await receive()
            if event["type"] != "http.request":
                raise Refused(422, "the report was cut off")
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise Refused(413, f"a report for this server has at most {most} bytes")
            if not event.get("more_body", False):
                return b"".join(parts)

    @property
    def _most_bytes(self) -> int:
        longest = (
            message_bytes(task.entries, server=task.number, suite=task.servers.suite, signed=True)
            for task in self._tasks.values()
        )
        return max(longest, default=0)

    def _open(self, message: bytes) -> Received:
        """The report, if it opens and belongs here."""
        try:
            header = read_header(message)
            task = self._task(header)
            open_report(
                message,
                task.key,
                plan=task.fingerprint,
                period=header.period,
                server=task.number,
                entries=task.entries,
            )
        except MessageDecodeError as error:
            raise Refused(422, str(error)) from None
        return Received(task.fingerprint, header.period, header.report_id, header.identity, message)

    def _task(self, header: ReportHeader) -> Task:
        """The plan of a report, if this server takes reports of it now, and from this client."""
        if header.plan not in self._tasks:
            self._reload()
        task = self._tasks.get(header.plan)
        if task is None or not task.is_open(header.period, at=self._clock()):
            raise Refused(404, "this server takes no reports of this plan and period now")
        if header.suite != task.servers.suite:
            raise Refused(422, "the plan names another suite")
        if task.roster is None:
            if header.identity is not None:
                raise Refused(422, "the plan has no roster, so reports are not signed")
        elif header.identity is None or not task.roster.holds([header.identity]):
            raise Refused(403, "this report is signed by nobody of the roster")
        return task

    def _reload(self) -> bool:
        """Looks for plans that were accepted since, and says whether it did.

        It does not at every stranger's request.
        """
        if time.monotonic() - self._loaded < RELOAD:
            return False
        self._loaded = time.monotonic()
        try:
            self._tasks = {task.fingerprint: task for task in self._load()}
        except FedPriKLError:
            self._broken = True
        return True

    async def _keep(self, report: Received) -> Kept:
        """What became of the report; it is on disk when this returns."""
        future: asyncio.Future[Kept] = asyncio.get_running_loop().create_future()
        self._waiting.append((report, future, time.monotonic()))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return await asyncio.shield(future)

    async def _write(self) -> None:
        """Commits what waits, all of it together, until nothing waits."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                found = await asyncio.to_thread(self._intake.add, [each[0] for each in batch])
            except IntakeError:
                self._broken = True
                for _, future, _ in batch:
                    if not future.done():
                        future.set_exception(Refused(503, "reports cannot be kept now"))
                        future.exception()  # its sender may have gone
                continue
            self._broken, self._lag = False, time.monotonic() - batch[0][2]
            for (report, future, _), kept in zip(batch, found, strict=True):
                self._held[report.plan, report.period] += kept is Kept.NEW
                if not future.done():
                    future.set_result(kept)

    def _health(self) -> tuple[int, str]:
        if self._broken:
            return 503, "reports cannot be kept, or a plan cannot be read"
        if self._days() <= 0:
            return 503, "the certificate has ended"
        return 200, "ok"

    def _days(self) -> float:
        left = self._ends() - datetime.fromisoformat(self._clock())
        return left.total_seconds() / 86400

    def metrics(self) -> str:
        """What Prometheus reads."""
        found: dict[str, float] = {}
        for outcome in (Kept.NEW.value, Kept.AGAIN.value, *sorted(set(self.counts))):
            name = sample_name(f"{PREFIX}reports_total", {"outcome": outcome})
            found[name] = self.counts[outcome]
        for (plan, period), held in sorted(self._held.items()):
            labels = {"plan": plan.hex()[:16], "period": str(period)}
            found[sample_name(f"{PREFIX}reports_held", labels)] = held
        found[f"{PREFIX}waiting"] = len(self._waiting)
        found[f"{PREFIX}lag_seconds"] = round(self._lag, 6)
        found[f"{PREFIX}certificate_days"] = round(self._days(), 2)
        return samples_text(found, METRICS)
