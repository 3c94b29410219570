"""What we change in Flower 1.41 while it runs in our processes: its waits, its relay's database.

All of it is here, with the reason, and none of it changes what is checked or who is let in. Each
change is to go when Flower makes it needless; tests fail where Flower no longer has what is changed
here.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

__all__ = ["flower_superlink", "hasten", "taking_turns"]

# A message and its parts travel apart. For a part that is on its way Flower waits a second, then
# two, and so on, before it looks at the next one.
PATIENCE = {"initial_backoff": 0.1, "backoff_cap": 1.0}  # seconds
WAITING: dict[str, dict[str, float]] = {
    # For a part that a site never sent, an aggregator would wait up to two hours.
    "flwr.superlink.grid.http_grid": PATIENCE | {"max_time": 20.0},
    "flwr.supernode.start_client_internal": PATIENCE,
}


def hasten(module: str) -> None:
    """Shortens how long one of `WAITING` waits for the parts of a message."""
    found = import_module(module)
    found.pull_objects = partial(_plain(found.pull_objects), **WAITING[module])  # type: ignore[attr-defined]


def _plain(function: Any) -> Any:
    return function.func if isinstance(function, partial) else function


def taking_turns(
    session: Callable[[Any], AbstractContextManager[Any]],
) -> Callable[[Any], AbstractContextManager[Any]]:
    """Sessions of a database, one after the other.

    SQLite lets one write at a time. With fifty sites, threads of Flower's relay wait until SQLite
    gives up ("database is locked"), and an answer is lost.
    """
    turn = threading.RLock()

    @contextmanager
    def in_turn(self: Any) -> Iterator[Any]:
        with turn, session(self) as found:
            yield found

    return in_turn


def flower_superlink() -> None:
    """Flower's command of this name, with its own arguments."""
    from flwr.supercore.sql_mixin import SqlMixin
    from flwr.superlink import cli

    SqlMixin.session = taking_turns(SqlMixin.session)  # type: ignore[assignment,method-assign]
    cli.flower_superlink()
