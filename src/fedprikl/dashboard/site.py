"""The page of a series as static files, for any web server, or for no server at all."""

import re
from collections.abc import Sequence
from pathlib import Path

from fedprikl.dashboard.source import SeriesSource, Shown, report
from fedprikl.documents import digest
from fedprikl.errors import InvalidInputError
from fedprikl.monitoring.status import PeriodPoint, SeriesStatus
from fedprikl.reporting.series_frame import file_of
from fedprikl.shapes import to_plain
from fedprikl.whole_files import write_whole

__all__ = ["write_site"]

FORMAT = 2  # rises with the reports: those of an older format are written anew
FILES = {"series.json": "json", "metrics.prom": "metrics", "index.html": "page"}  # in this order
MARK = re.compile(r"<!-- fedprikl report ([0-9a-f]{64}) -->\n")


def write_site(source: SeriesSource, folder: str | Path) -> tuple[Path, ...]:
    """Writes the page, the reports of all periods, `series.json` and `metrics.prom`.

    Each file is written whole or not at all, reports before the page that links to them, and only
    where something changed. Reports of periods that the history no longer has are removed. Returns
    the files that were written.
    """
    root, shown = Path(folder), Shown(source.status())
    try:
        (root / "periods").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"Cannot make the folder {root}: {error.strerror}.") from None
    written = [*_reports(source, shown, root)]
    written += [
        root / name for name, kind in FILES.items() if _write(root / name, shown.text(kind))
    ]
    _remove_others(shown.status, root)
    return tuple(written)


def _reports(source: SeriesSource, shown: Shown, root: Path) -> list[Path]:
    written = []
    released = shown.status.released
    for place, point in enumerate(released):
        path = root / file_of(point.number)
        mark = _mark(shown.status, released, place)
        if _mark_of(path) == mark:
            continue
        text = report(shown, source, point.number)
        if text is None:
            raise InvalidInputError(
                f"The history says that period {point.number} was released, but has no release of "
                "it. Check the history with `fedprikl monitor --status`."
            )
        write_whole(path, f"<!-- fedprikl report {mark} -->\n{text}")
        written.append(path)
    return written


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


def _remove_others(status: SeriesStatus, root: Path) -> None:
    """Removes reports that this software wrote and that belong to no release any more."""
    known = {root / file_of(point.number) for point in status.released}
    for path in (root / "periods").glob("*.html"):
        if path not in known and _mark_of(path) is not None:
            path.unlink(missing_ok=True)
