"""A process that is killed at every moment of a period: nothing is counted twice, nothing lost."""

import multiprocessing
import shutil
import signal
from pathlib import Path

import pytest

from fedprikl.monitoring.counted_records import CountedRegistry
from fedprikl.monitoring.history import History, SeriesHistory
from fedprikl.privacy import Ledger
from tests.monitoring.monitor_children import crash, steps_of
from tests.monitoring.small_series import NAMED, WEEKS, World, over, plan_of

pytestmark = pytest.mark.slow

PATIENCE = 60.0  # seconds, for a slow machine

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["tests.monitoring.monitor_children", "tests.monitoring.warm_series"]
)


def put_back(world: World, saved: Path) -> None:
    """The folder as it was saved, in its own place."""
    shutil.rmtree(world.folder)
    shutil.copytree(saved, world.folder)


def killed(world: World, at: str, moment: str) -> None:
    child = context.Process(target=crash, args=(world, at, moment))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == -signal.SIGKILL, moment


def read(world: World) -> SeriesHistory | None:
    """What the history says; None if there is none, or nothing in it."""
    if not world.history.exists():
        return None
    with History.open(world.history, create=False) as opened:
        return None if opened.is_empty else opened.read()


def fate(world: World, number: int) -> str:
    """What must become of a period, from what the crash left behind."""
    found = read(world)
    if found is not None and number in found.kept:
        return "kept"
    if not world.ledger.exists() or "open" not in world.charged().values():
        return "due"
    with Ledger.open(world.ledger) as book, book.unfinished("clients") as unfinished:
        return "finished" if unfinished else "missed"


def check_recovery(world: World, number: int, moment: str) -> str:
    """The next call ends the period, once; the one after it does nothing; the next period works."""
    before, expected = read(world), fate(world, number)
    status = world.monitor(over(number))
    assert status.points[number].state == ("missed" if expected == "missed" else "released"), moment
    after = read(world)
    assert after is not None
    if expected == "kept":
        assert before is not None
        assert after.kept[number] == before.kept[number], moment
    if expected == "missed":
        assert "the budget of these records is spent" in after.missed[number]
    check_books(world, number, moment)
    saved = [path.read_bytes() for path in (world.history, world.ledger, world.counted)]
    world.monitor(over(number))
    assert saved == [path.read_bytes() for path in (world.history, world.ledger, world.counted)]
    status = world.grow(number + 1).monitor(over(number + 1))
    assert status.points[number + 1].state == "released", moment
    check_books(world, number + 1, moment)
    return expected


def check_books(world: World, last: int, moment: str) -> None:
    """History, ledger and registry agree, and each period is charged and claimed once."""
    found = read(world)
    assert found is not None
    assert not found.begun, moment
    assert sorted([*found.kept, *found.missed]) == list(range(last + 1)), moment
    assert found.judged.keys() == found.kept.keys()
    assert world.verify() == len(found.kept)
    states = [s for s in world.charged().values() if s != "cancelled"]
    assert len(states) == last + 1, moment
    assert states.count("committed") == len(found.kept), moment
    claimed = CountedRegistry(world.counted).rounds(world.plan)
    assert sorted(claimed.values()) == list(range(last + 1)), moment
    assert claimed.keys() >= {kept.round_id for kept in found.kept.values()}


def crash_everywhere(
    world: World, number: int, *, wreck: str = "", steps: int | None = None
) -> dict[str, str]:
    """Each moment of the call that counts a period, and what became of the period after a crash.

    `wreck`: a moment in which another process was killed before; `steps`: the first ones only.
    """
    start = world.folder.with_name("start")
    if wreck:
        killed(world, over(number), wreck)
    shutil.copytree(world.folder, start)
    moments = steps_of(world, over(number))
    became = {}
    for moment in moments[: None if steps is None else 2 * steps]:
        put_back(world, start)
        killed(world, over(number), moment)
        became[moment] = check_recovery(world, number, moment)
    return became


def fates(became: dict[str, str]) -> list[tuple[str, str, str]]:
    """Of every step: what became of the period after a crash before and after it."""
    steps: dict[str, list[str]] = {}
    for moment, what in became.items():
        number, _, name = moment.split(" ", 2)
        steps.setdefault(f"{number} {name}", []).append(what)
    return [(name.split(" ", 1)[1], before, after) for name, (before, after) in steps.items()]


def test_the_first_period(folder: Path) -> None:
    """Also the files are made in it, and the budget is set."""
    world = World.create(folder / "series", plan_of(WEEKS)).grow(0)
    assert fates(crash_everywhere(world, 0)) == [
        ("new aggregator.pem", "due", "due"),
        ("new history.db", "due", "due"),
        ("series", "due", "due"),
        ("new ledger.db", "due", "due"),
        ("records", "due", "due"),
        ("budget", "due", "due"),
        ("begin", "due", "due"),
        ("new counted.db", "due", "due"),
        ("claim", "due", "due"),
        ("reserve", "due", "missed"),
        ("noised", "missed", "finished"),
        ("release", "finished", "kept"),
        ("commit", "kept", "kept"),
        ("judged", "kept", "kept"),
    ]


def test_a_later_period_told_by_names(folder: Path) -> None:
    world = World.create(folder / "series", plan_of(NAMED)).grow(0)
    world.monitor(over(0))
    assert fates(crash_everywhere(world.grow(1), 1)) == [
        ("records", "due", "due"),
        ("begin", "due", "due"),
        ("claim", "due", "due"),
        ("reserve", "due", "missed"),
        ("noised", "missed", "finished"),
        ("release", "finished", "kept"),
        ("commit", "kept", "kept"),
        ("judged", "kept", "kept"),
    ]


@pytest.mark.parametrize(
    ("wreck", "expected"),
    [
        (
            "9 after: claim",
            [("forget", "due", "due"), ("void", "due", "due"), ("records", "due", "due")],
        ),
        ("10 after: reserve", [("missed", "missed", "missed")]),
        (
            "11 after: noised",
            [("release", "finished", "kept"), ("commit", "kept", "kept")],
        ),
        ("12 after: release", [("commit", "kept", "kept"), ("judged", "kept", "kept")]),
    ],
)
def test_a_crash_while_a_crash_is_settled(
    wreck: str, expected: list[tuple[str, str, str]], folder: Path
) -> None:
    world = World.create(folder / "series", plan_of(WEEKS)).grow(0)
    assert fates(crash_everywhere(world, 0, wreck=wreck, steps=len(expected))) == expected
