"""Several processes at once on one series: one works, the others say so and do nothing."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from fedprikl.monitoring.counted_records import CountedRegistry
from fedprikl.monitoring.history import History
from fedprikl.store import locked
from tests.monitoring.monitor_children import monitor_at_once
from tests.monitoring.small_series import World, over

pytestmark = pytest.mark.slow

PATIENCE = 60.0  # seconds, for a slow machine
BUSY = "Another process is at work on this series; nothing was done here."

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["tests.monitoring.monitor_children", "tests.monitoring.warm_series"]
)


def run_together(world: World, at: str, number: int) -> list[list[str]]:
    start, results = context.Barrier(number), context.Queue()
    crowd: list[Any] = [
        context.Process(target=monitor_at_once, args=(world, at, start, results))
        for _ in range(number)
    ]
    for child in crowd:
        child.start()
    said = [results.get(timeout=PATIENCE) for _ in crowd]
    for child in crowd:
        child.join(PATIENCE)
        assert child.exitcode == 0
    results.close()
    results.join_thread()
    return said


@pytest.mark.parametrize("number", [2, 4])
def test_a_period_is_released_once(folder: Path, number: int) -> None:
    """They even race to make the files, and count two periods."""
    world = World.create(folder / "series").grow(0).grow(1)
    said = run_together(world, over(1), number)
    assert all(set(words) <= {BUSY} or "had no budget" in words[0] for words in said)
    assert sum("had no budget" in " ".join(words) for words in said) == 1
    with History.open(world.history, create=False) as opened:
        found = opened.read()
        assert opened.verify() == 2
    assert sorted(found.kept) == [0, 1]
    assert not found.missed
    assert list(world.charged().values()) == ["committed"] * 2
    assert sorted(CountedRegistry(world.counted).rounds(world.plan).values()) == [0, 1]


def test_the_others_say_so_and_do_nothing(folder: Path) -> None:
    world = World.create(folder / "series").grow(0)
    world.monitor(over(0))
    before = world.history.read_bytes()
    with locked(world.history, timeout=0) as first:
        assert first
        (said,) = run_together(world.grow(1), over(1), 1)
    assert said == [BUSY]
    assert world.history.read_bytes() == before
    (said,) = run_together(world, over(1), 1)
    assert said == []
    assert world.verify() == 2


def test_who_comes_before_there_is_a_history_is_told_so(folder: Path) -> None:
    """The first call is at work, and has not made the file yet."""
    world = World.create(folder / "series").grow(0)
    said: list[str] = []
    with locked(world.history):
        status = world.monitor(over(0), note=said.append)
    assert said == [BUSY]
    assert [point.state for point in status.points] == ["due", "ahead"]
    assert not world.history.exists()
