"""Dashboard: the page of a series and its reports, kept for a web server or as static files.

All of it is read-only. `app` serves it over the web, which needs the extra `serve`.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol

from fedprikl.documents import digest, to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.monitoring.metrics import metrics_text
from fedprikl.monitoring.status import PeriodPoint, SeriesStatus
from fedprikl.protocol import Plan, Release
from fedprikl.reporting.charts import file_of
from fedprikl.reporting.series_page import period_page, series_page
from fedprikl.store import write_whole

FORMAT = 4  # rises with the reports: those of an older format are written anew
FILES = {"series.json": "json", "metrics.prom": "metrics", "index.html": "page"}  # in this order


class SeriesSource(Protocol):
    """What a dashboard shows. All of it is public."""

    @property
    def plan(self) -> Plan:
        """The plan of the series."""
        ...

    def status(self) -> SeriesStatus:
        """The series as it stands now."""
        ...

    def release(self, number: int) -> bytes | None:
        """The release of a period, as it was signed; None if there is none."""
        ...


class CachedSeries:
    """The status of a source and what is made of it, read anew after some seconds.

    Who comes meanwhile waits for it. Page, JSON and metrics are made once, when asked for.
    """

    def __init__(
        self,
        source: SeriesSource,
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._seconds, self._clock = source, seconds, clock
        self._lock = Lock()
        self._kept: tuple[SeriesStatus, dict[str, str]] | None = None  # and the texts made of it
        self._until = 0.0

    def _now(self) -> tuple[SeriesStatus, dict[str, str]]:
        """What was read last, or what is read now. An error is not kept."""
        with self._lock:
            if self._kept is None or self._clock() >= self._until:
                self._kept = None
                self._kept = self._source.status(), {}
                self._until = self._clock() + self._seconds
            return self._kept

    def status(self) -> SeriesStatus:
        """The series as it stood a moment ago, at most."""
        return self._now()[0]

    def text(self, kind: str) -> str:
        """`page`, `json` or `metrics`."""
        status, texts = self._now()
        if kind not in texts:
            texts[kind] = TEXTS[kind](status)
        return texts[kind]

    def report(self, number: int) -> str | None:
        """The report of a period; None if it has no release."""
        status = self.status()
        point = next((p for p in status.released if p.number == number), None)
        data = None if point is None else self._source.release(number)
        if point is None or data is None:
            return None
        return period_page(status, point, Release.from_bytes(data), self._source.plan)


TEXTS: dict[str, Callable[[SeriesStatus], str]] = {
    "page": series_page,
    "json": lambda status: json.dumps(to_plain(status), allow_nan=False) + "\n",
    "metrics": lambda status: metrics_text([status]),
}


MARK = re.compile(r"<!-- fedprikl report ([0-9a-f]{64}) -->\n")


def site_places(folder: Path) -> list[Path]:
    """What `write_site` writes into a folder."""
    return [folder / name for name in (*FILES, "periods")]


def write_site(source: SeriesSource, folder: str | Path) -> tuple[Path, ...]:
    """Writes the page, the reports of all periods, `series.json` and `metrics.prom`.

    Each file is written whole or not at all, reports before the page that links to them, and only
    where something changed. Reports of periods that the history no longer has are removed. Returns
    the files that were written.
    """
    root, kept = Path(folder), CachedSeries(source, seconds=math.inf)
    status = kept.status()
    try:
        (root / "periods").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"Cannot make the folder {root}: {error.strerror}.") from None
    written = [*_reports(kept, root)]
    written += [root / name for name, kind in FILES.items() if _write(root / name, kept.text(kind))]
    known = {root / file_of(point.number) for point in status.released}
    for path in (root / "periods").glob("*.html"):
        if path not in known and _mark_of(path) is not None:  # this software wrote it
            path.unlink(missing_ok=True)
    return tuple(written)


def _reports(kept: CachedSeries, root: Path) -> Iterator[Path]:
    """Writes the reports that are missing or show something else."""
    status = kept.status()
    for place, point in enumerate(status.released):
        path = root / file_of(point.number)
        mark = _mark(status, status.released, place)
        if _mark_of(path) == mark:
            continue
        text = kept.report(point.number)
        if text is None:
            raise InvalidInputError(
                f"The history says that period {point.number} was released, but has no release of "
                "it. Check the history with `fedprikl monitor verify`."
            )
        write_whole(path, f"<!-- fedprikl report {mark} -->\n{text}")
        yield path


def _mark(status: SeriesStatus, released: Sequence[PeriodPoint], place: int) -> str:
    """A digest of all that a report shows: the release by its fingerprint, links to neighbours."""
    point = released[place]
    near = [each.number for each in released[max(place - 1, 0) : place + 2]]
    raised = [alarm for alarm in status.alarms if alarm.raised == point.number]
    return digest(
        [FORMAT, status.population, status.every, near, to_plain(tuple(raised)), to_plain(point)]
    )


def _mark_of(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8") as file:
            found = MARK.fullmatch(file.readline(100))
    except (OSError, UnicodeDecodeError):
        return None
    return None if found is None else found[1]


def _write(path: Path, text: str) -> bool:
    try:
        if path.read_bytes() == text.encode():
            return False
    except (OSError, UnicodeEncodeError):
        pass
    write_whole(path, text)
    return True
