"""The relay's database, which is Flower's own: it is made whole, and what is old is removed.

Registered sites stay, and so do the nonces by which Flower refuses a request that is sent twice.
That a site answers a round once does not depend on this file: each site remembers it itself.
"""

import contextlib
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from fedprikl.deployment.pruning import make_smaller
from fedprikl.errors import DeploymentError

# What belongs to a run, by its run or by one of its tasks; what belongs to a series of runs.
_OF_RUNS = (
    *("message", "message_ins", "message_res", "object_push_sessions", "run_connector"),
    *("run_objects", "series_runs", "task_event", "task_message", "task_usage"),
)
_OF_SERIES = ("series_context", "compacted_contexts", "run_series")
_STATEMENTS = (
    *(f"DELETE FROM {table} WHERE run_id IN (SELECT * FROM old)" for table in _OF_RUNS),  # noqa: S608
    "DELETE FROM task_logs WHERE task_id IN "
    "(SELECT task_id FROM task WHERE run_id IN (SELECT * FROM old))",
    "DELETE FROM task WHERE run_id IN (SELECT * FROM old)",
    "DELETE FROM run WHERE run_id IN (SELECT * FROM old)",
    "DELETE FROM objects WHERE object_id NOT IN (SELECT object_id FROM run_objects)",
    "DELETE FROM object_children WHERE parent_id NOT IN (SELECT object_id FROM objects)",
    "UPDATE objects SET ref_count = "
    "(SELECT count(*) FROM object_children WHERE child_id = object_id)",
    *(
        f"DELETE FROM object_push_session_{kind} WHERE session_id NOT IN "  # noqa: S608
        "(SELECT session_id FROM object_push_sessions)"
        for kind in ("pending", "roots")
    ),
    *(
        f"DELETE FROM {table} WHERE series_id NOT IN (SELECT series_id FROM series_runs) "  # noqa: S608
        "AND series_id NOT IN (SELECT series_id FROM automation)"
        for table in _OF_SERIES
    ),
    "DELETE FROM fab WHERE fab_hash NOT IN (SELECT fab_hash FROM run) AND fab_hash NOT IN "
    "(SELECT fab_hash FROM federation_app)",
)


def make_database(path: Path) -> None:
    """Makes a relay's database, whole or not at all; one that is there is left as it is.

    Flower makes its tables one by one. If that is cut off, it never starts with that file again.
    """
    if path.exists():
        return
    from flwr.supercore.object_store.sql_object_store import SqlObjectStore

    fresh = path.with_name(path.name + ".new")
    for left in path.parent.glob(fresh.name + "*"):  # by a start that was cut off
        left.unlink()
    store = SqlObjectStore(str(fresh), verify=False)
    store.initialize()
    if store._engine is not None:
        store._engine.dispose()
    os.replace(fresh, path)


def prune_relay(path: Path, *, before: datetime) -> int:
    """Removes the runs that ended before a time, with all their messages; how many.

    A run that never ended counts by when it was started. The relay must not run.
    """
    limit = before.astimezone(UTC).isoformat(sep=" ")  # as Flower writes it
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            db.execute(
                "CREATE TEMP TABLE old AS SELECT run.run_id FROM run JOIN task ON "
                "task.task_id = run.primary_task_id WHERE coalesce(finished_at, pending_at) < ?",
                (limit,),
            )
            (runs,) = db.execute("SELECT count(*) FROM old").fetchone()
            for statement in _STATEMENTS:
                db.execute(statement)
            if db.execute("PRAGMA foreign_key_check").fetchone():
                raise sqlite3.DatabaseError("something would be left without its run")
            db.execute("COMMIT")
    except sqlite3.Error as error:
        raise DeploymentError(
            f"Cannot prune the relay's database {path}: {error}. Nothing was removed. Is it of "
            "another version of Flower, or is a relay running?"
        ) from None
    make_smaller(path)
    return int(runs)
