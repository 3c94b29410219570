"""What child processes do in the crash and race tests: monitor until they are killed.

All that is kept is in SQLite files, and in files that are written whole. So the moments right
before and right after every commit that changes something, and every making of a file, are all the
moments in which a crash can differ.
"""

import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tests.monitoring.small_series import World

T = TypeVar("T")

__all__ = ["crash", "each_step", "monitor_at_once", "steps_of"]


@contextlib.contextmanager
def each_step(stop: Callable[[str], None]) -> Iterator[None]:
    """Calls `stop` with the name of every moment before and after a durable step, in order."""
    done = 0

    def around(what: str, act: Callable[[], T]) -> T:
        nonlocal done
        done += 1
        stop(f"{done} before: {what}")
        result = act()
        stop(f"{done} after: {what}")
        return result

    class Watched(sqlite3.Connection):
        doing = ""

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and self.doing:
                name, self.doing = self.doing, ""
                commit = super().execute
                return around(name, lambda: commit(sql))
            if sql.startswith("INSERT INTO entries"):
                ((_, body, _),) = values
                self.doing = json.loads(body)["event"]
            return super().execute(sql, *values)

    def connect(address: str, **options: Any) -> sqlite3.Connection:
        return true_connect(address, factory=Watched, **options)

    def link(name: str, path: Path) -> None:
        around(f"new {path.name}", lambda: true_link(name, path))

    def replace(name: str, path: Path) -> None:
        around(f"write {path.name}", lambda: true_replace(name, path))

    true_connect, true_link, true_replace = sqlite3.connect, os.link, os.replace
    with (
        patch.object(sqlite3, "connect", connect),
        patch.object(os, "link", link),
        patch.object(os, "replace", replace),
    ):
        yield


def steps_of(world: World, at: str) -> list[str]:
    """The moments of one call, in order."""
    moments: list[str] = []
    with each_step(moments.append):
        world.monitor(at)
    return moments


def crash(world: World, at: str, moment: str) -> None:
    """One call that ends at this moment. SIGKILL: it can clean up nothing."""

    def stop(here: str) -> None:
        if here == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    with each_step(stop):
        world.monitor(at)


def monitor_at_once(world: World, at: str, start: Barrier, results: Any) -> None:
    """One call of several that begin together; what it said."""
    said: list[str] = []
    start.wait(60)
    world.monitor(at, note=said.append)
    results.put(said)
