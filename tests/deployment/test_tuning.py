"""What we change in Flower: the same answers and refusals, shorter waits, nothing lost."""

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from flwr.supercore.sql_mixin import SqlMixin

from fedprikl.deployment.flower.tuning import (
    WAITING,
    hasten,
    taking_turns,
)


@pytest.mark.parametrize("module", WAITING)
def test_a_lost_part_is_waited_for_in_seconds(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = import_module(module)
    monkeypatch.setattr(found, "pull_objects", found.pull_objects)  # put back afterwards
    hasten(module)
    hasten(module)  # once more changes nothing
    assert set(WAITING[module]) <= set(inspect.signature(found.pull_objects).parameters)

    def never(object_id: str) -> bytes:
        raise ObjectUnavailableError(object_id)

    start = time.monotonic()
    with pytest.raises(ObjectPullError):
        found.pull_objects(["part"], never, max_time=0.3)
    assert time.monotonic() - start < 2


def overlapping(session: Callable[[Any], AbstractContextManager[None]], seconds: float) -> bool:
    """Whether two threads were in a session at the same time."""
    both = threading.Barrier(2)
    met = []

    def enter() -> None:
        with session(None):
            try:
                both.wait(seconds)
                met.append(True)
            except threading.BrokenBarrierError:
                pass

    threads = [threading.Thread(target=enter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bool(met)


def test_sessions_of_the_database_take_turns() -> None:
    @contextmanager
    def session(_: Any) -> Iterator[None]:
        yield

    assert overlapping(session, 10.0)
    assert not overlapping(taking_turns(session), 0.2)
    with (in_turn := taking_turns(session))(None), in_turn(None):  # a session within a session
        pass


@pytest.mark.filterwarnings("ignore:No path_separator:DeprecationWarning")  # alembic's, at Flower
def test_many_writers_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's own database, written by as many threads as its relay has."""
    monkeypatch.setattr(SqlMixin, "session", taking_turns(SqlMixin.session))
    store = SqlObjectStore(str(tmp_path / "state.db"), verify=False)
    store.initialize()
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for each in range(3):
                name = f"{number * 100 + each:064x}"
                store.preregister(1, ObjectTree(object_id=name))
                store.put(name, b"content")
                assert store.get(name) == b"content"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
