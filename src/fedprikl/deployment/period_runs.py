"""A period of a series at the aggregator's host: one run at a time, and one release for ever.

Whoever lost the answer asks again and gets the very same release: nothing is asked of the sites,
nothing is charged.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fedprikl.deployment.settings import RoundSettings
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import Plan, Release

__all__ = ["alone", "check_period", "find_release"]


def check_period(plan: Plan, settings: RoundSettings, *, at: str) -> None:
    """Refuses a run of a series without a period that is over, and a period without a series."""
    series, number = plan.series, settings.period
    if series is None:
        if number is not None or settings.previous:
            raise InvalidInputError(
                "The plan has no series, so it has no periods. Leave `period` and `previous` out "
                "of the run config."
            )
        return
    if number is None:
        raise InvalidInputError(
            "The plan is for a series, with a release for every period. Run what is due with "
            "`fedprikl monitor --federation`."
        )
    end = series.period(number).end
    if end > datetime.fromisoformat(at):
        raise DeploymentError(
            f"Period {number} ends at {end.isoformat()}: it is not over by the aggregator's clock. "
            "Nothing was asked; ask again when it is."
        )


def find_release(folder: Path, plan: Plan, number: int | None, *, public: str) -> Release | None:
    """The release of a period that is there already, if this key signed it.

    Whatever else lies in the folder is passed over.
    """
    if number is None:
        return None
    fingerprint = plan.fingerprint.encode()
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(Exception):  # anybody may have put anything there
            content = path.read_bytes()
            if fingerprint not in content:
                continue
            release = Release.from_bytes(content)
            period = release.period if release.is_about(plan) else None
            if period is not None and period.number == number and release.is_signed_by(public):
                return release
    return None


@contextlib.contextmanager
def alone(path: Path, number: int | None) -> Iterator[None]:
    """Lets one run of a series in at a time; a run that dies lets go.

    Two at once would count some sites in one release, and the others in a second.
    """
    if number is None:
        yield
        return
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
                raise DeploymentError(f"Cannot use the file {path}: {error}.") from None
            raise DeploymentError(
                "Another run of a series is under way at the aggregator. Nothing was asked; ask "
                "again when it is over."
            ) from None
        yield
