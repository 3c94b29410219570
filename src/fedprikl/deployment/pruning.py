"""What an aggregator and a site may forget after a while, and what they never forget.

An aggregator forgets why clients refused. Releases, ledger and cohorts stay.

A site forgets the rounds of plans that have expired: such a plan is refused, with all its rounds.
When the last of them ended is kept, so they stay refused also if the clock goes back. Counts, seen
files and serial numbers stay.
"""

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from fedprikl.deployment.site_memory import forget_expired
from fedprikl.errors import DeploymentError

__all__ = ["prune_refusals", "prune_site"]


def prune_refusals(folder: Path, *, before: datetime) -> int:
    """Removes the files of refusals that were written before a time; how many."""
    old = [path for path in folder.glob("*.json") if path.stat().st_mtime < before.timestamp()]
    for path in old:
        path.unlink()
    return len(old)


def prune_site(path: Path, *, before: datetime) -> int:
    """Removes the rounds of plans that ended before a time from a site's memory; how many."""
    removed = forget_expired(path, at=before.isoformat())
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("VACUUM")
    except sqlite3.Error as error:
        raise DeploymentError(f"Cannot make {path} smaller: {error}. Is the disk full?") from None
    return removed
