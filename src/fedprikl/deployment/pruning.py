"""What an aggregator and a site may forget after a while, and what they never forget.

An aggregator forgets why clients refused. Releases, ledger and cohorts stay.

A site forgets the rounds of plans that have expired: such a plan is refused, with all its rounds.
When the last of them ended is kept, so they stay refused also if the clock goes back. Counts, seen
files and serial numbers stay.
"""

import os
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from fedprikl.deployment.site_memory import forget_expired
from fedprikl.errors import DeploymentError


def prune_refusals(folder: Path, *, before: datetime) -> int:
    """Removes the files of refusals that were written before a time; how many.

    Folders and links are none of ours: they stay, and keep nothing else from being removed. Nor may
    `folder` be a link, not even from now on: it could lead to the releases, or to others' files.
    """
    limit, removed = before.timestamp(), 0
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for entry in list(os.scandir(handle)):
            ours = entry.name.endswith(".json") and entry.is_file(follow_symlinks=False)
            if ours and entry.stat(follow_symlinks=False).st_mtime < limit:
                os.unlink(entry.name, dir_fd=handle)
                removed += 1
    finally:
        os.close(handle)
    return removed


def prune_site(path: Path, *, before: datetime) -> int:
    """Removes the rounds of plans that ended before a time from a site's memory; how many."""
    removed = forget_expired(path, at=before.isoformat())
    make_smaller(path)
    return removed


def make_smaller(path: Path) -> None:
    """Gives the room of what was removed from a database back to the disk."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise DeploymentError(
            f"What is old was removed from {path}, but the file is not smaller: {error}. Is the "
            "disk full? Make room, and prune again."
        ) from None
