"""Processes that are killed at every step, and processes that race. All of them are real."""

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedprikl.errors import BudgetExceededError
from fedprikl.privacy import AccountedRelease, Ledger, RoundState
from tests.privacy import ledger_children as children

pytestmark = pytest.mark.slow

AT = children.AT
PATIENCE = 60.0  # seconds, for a slow machine

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.privacy.ledger_children"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def budget(path: Path) -> Path:
    with Ledger.open(path) as ledger:
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT)
    return path


def killed_after_word(
    target: Callable[..., None], *arguments: Any, words: int = 1, pause: float = 0.0
) -> None:
    """Starts a child, waits for its words, and kills it (SIGKILL: it can clean up nothing)."""
    ours, theirs = context.Pipe()
    *first, last = arguments
    child = context.Process(target=target, args=(*first, theirs, last))
    child.start()
    for _ in range(words):
        assert ours.poll(PATIENCE), "the child never came to its stop"
        ours.recv()
    time.sleep(pause)
    child.kill()
    child.join(PATIENCE)
    assert child.exitcode == -signal.SIGKILL
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("point", "left_the_house", "state"),
    [
        ("opened", False, None),
        ("inside reserve", False, None),
        ("reserved", False, "open"),
        ("noise drawn", False, "open"),
        ("released", True, "open"),
        ("inside commit", True, "open"),
        ("committed", True, "committed"),
    ],
)
def test_killed_between_any_two_steps(
    budget: Path, tmp_path: Path, point: str, left_the_house: bool, state: RoundState | None
) -> None:
    """The table of docs/ledger.md."""
    world = tmp_path / "world"
    killed_after_word(children.one_round, budget, world, point)
    assert world.exists() == left_the_house
    with Ledger.open(budget) as ledger:
        account = ledger.account("phones")
        assert [known.state for known in account.rounds] == ([state] if state else [])
        assert account.spent == (0.75 if state else 0.0)
        assert not (left_the_house and account.spent == 0)
        if state:
            with pytest.raises(BudgetExceededError):
                ledger.reserve("phones", children.COST, round_id="two", at=AT)
            rest = AccountedRelease(proved_epsilon=0.25)
            ledger.reserve("phones", rest, round_id="rest", at=AT)
        else:
            ledger.reserve("phones", children.COST, round_id="one", at=AT)


def test_killed_at_any_instant(budget: Path, tmp_path: Path) -> None:
    """Ten lives, each ended at a random time after two rounds: all that left is charged, and the
    chain is whole.
    """
    world, rng = tmp_path / "world", random.Random(20300131)  # noqa: S311  when to kill
    for life in range(10):
        pause = rng.uniform(0.0, 0.05)
        killed_after_word(children.many_rounds, budget, world, life, words=2, pause=pause)
        left = world.read_text(encoding="utf-8").split("\n")[:-1] if world.exists() else []
        with Ledger.open(budget) as ledger:
            rounds = ledger.account("phones").rounds
        assert set(left) <= {known.round_id for known in rounds}
        committed = {r.round_id for r in rounds if r.state == "committed"}
        assert committed <= set(left)
        assert len(rounds) - len(committed) <= life + 1  # at most one open per life
    assert len(committed) >= 20


def run_together(target: Callable[..., None], path: Path, number: int, *more: Any) -> list[int]:
    start, results = context.Barrier(number), context.Queue()
    crowd = [
        context.Process(target=target, args=(path, start, results, name, *more))
        for name in range(number)
    ]
    for child in crowd:
        child.start()
    outcomes = [results.get(timeout=PATIENCE) for _ in crowd]
    for child in crowd:
        child.join(PATIENCE)
        assert child.exitcode == 0
    results.close()
    results.join_thread()
    return outcomes


def test_racing_processes_cannot_overspend(path: Path) -> None:
    """They even race to create the file. Eight of 24 tries fit, whoever makes them."""
    won = run_together(children.reserve_as_much_as_possible, path, 4, 6)
    with Ledger.open(path) as ledger:
        account = ledger.account("phones")
        assert sum(won) == len(account.rounds) == 8
        assert account.spent == 1.0
        assert ledger.head.count == 9  # one budget, not four
    found = {entry.name for entry in path.parent.iterdir()}
    assert found == {path.name, f"{path.name}.lock"}


def test_that_race_overspends_if_the_check_is_outside_the_transaction(budget: Path) -> None:
    won = run_together(children.check_and_then_charge, budget, 2)
    with Ledger.open(budget) as ledger:
        assert sum(won) == 2
        assert ledger.account("phones").spent == 1.5 > ledger.account("phones").epsilon
