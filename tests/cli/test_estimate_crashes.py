"""`fedprikl estimate`, killed at every moment: a release that was charged is finished, once."""

import json
import multiprocessing
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedprikl.errors import BudgetExceededError, InvalidInputError, LedgerError
from fedprikl.privacy import Ledger
from fedprikl.privacy.account import LedgerRound
from fedprikl.protocol import NoisedRound, Release
from tests.cli.estimate_children import crash, estimate, set_up, steps_of
from tests.monitoring.small_series import quick_folder

PATIENCE = 60.0  # seconds, for a slow machine
RANDOM_KILLS = 12

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.cli.estimate_children"])


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as found:
        yield set_up(found / "clean")


def killed(folder: Path, moment: str) -> None:
    child = context.Process(target=crash, args=(folder, moment))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == -signal.SIGKILL, moment


def rounds(folder: Path) -> tuple[LedgerRound, ...]:
    """All that was ever charged."""
    if not (folder / "ledger.db").exists():
        return ()
    with Ledger.open(folder / "ledger.db") as book:
        return tuple(each for account in book.accounts() for each in account.rounds)


def kept(folder: Path) -> NoisedRound | None:
    """What the ledger keeps of a round that is not over."""
    if not (folder / "ledger.db").exists():
        return None
    with Ledger.open(folder / "ledger.db") as book, book.unfinished("clients") as found:
        documents = list(found.values())
    return NoisedRound.from_bytes(documents[0]) if documents else None


def check_again(folder: Path, moment: str) -> str:
    """What became of a killed run when the same command ran again; it is charged once."""
    before, charged = kept(folder), rounds(folder)
    written = folder / "release.json"
    first = written.read_bytes() if written.exists() else None
    if charged and before is None:  # the only moments in which a charge buys nothing
        assert [each.state for each in charged] == ["open"], moment
        with pytest.raises(BudgetExceededError):
            estimate(folder)
        return "lost"
    told = estimate(folder)
    release = Release.load(written)
    (only,) = rounds(folder)
    assert (only.round_id, only.state) == (release.round_id, "committed"), moment
    assert only.release_hash == release.fingerprint
    assert "drifted" in json.loads(told[told.index("{") :])
    assert (folder / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert kept(folder) is None
    assert (
        "finished from its kept numbers: nothing was counted or" in told.replace("\n", " ")
    ) is (before is not None)
    if before is None:
        return "run again"
    assert release.noisy_counts is not None
    assert before.noised.counts[0] == release.noisy_counts.numbers
    assert before.round_id == release.round_id
    assert first in (None, written.read_bytes())  # the very same release
    return "finished"


def test_killed_at_every_step(folder: Path) -> None:
    """Before and after all that is written: a charge is lost only until the noise is kept."""
    work = folder.with_name("work")
    shutil.copytree(folder, work)
    became = {}
    for moment in steps_of(work)[:-1]:
        shutil.rmtree(work)
        shutil.copytree(folder, work)
        killed(work, moment)
        became[moment.split(" ", 1)[1]] = check_again(work, moment)
    assert {moment for moment, what in became.items() if what == "lost"} == {
        "after: reserve",
        "before: noised",
    }
    assert {moment for moment, what in became.items() if what == "finished"} == {
        "after: noised",
        "before: write release.json",
        "after: write release.json",
        "before: write report.html",
        "after: write report.html",
        "before: commit",
    }


def test_killed_again_while_it_finishes(folder: Path) -> None:
    killed(folder, "6 after: noised")
    before = kept(folder)
    killed(folder, "1 before: write release.json")
    killed(folder, "3 before: commit")
    assert kept(folder) == before
    assert check_again(folder, "third") == "finished"


@pytest.mark.parametrize("name", ["release.json", "report.html"])
def test_a_file_of_another_round_is_not_overwritten_to_finish_one(folder: Path, name: str) -> None:
    killed(folder, "6 after: noised")
    killed(folder, "1 after: write release.json")
    before = kept(folder)
    (folder / name).write_text("of another round")
    with pytest.raises(InvalidInputError, match="exists already"):
        estimate(folder)
    assert (folder / name).read_text() == "of another round"
    assert kept(folder) == before is not None


def test_killed_at_any_instant(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    """Whatever was charged is released by the next run, unless the noise was not kept yet."""
    dice, work = np.random.default_rng(25), folder.with_name("work")
    fates: list[str] = []
    takes = PATIENCE
    for number in range(-2, RANDOM_KILLS):  # the first two are left alone: to load, and to time one
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folder, work)
        child = context.Process(target=crash, args=(work, "never"))
        begun = time.monotonic()
        child.start()
        child.join(PATIENCE if number < 0 else takes * dice.uniform(0.1, 1.1))
        takes = time.monotonic() - begun if number < 0 else takes
        child.kill()
        child.join(PATIENCE)
        if [each.state for each in rounds(work)] != ["committed"]:
            fates.append(check_again(work, f"kill {number}"))
    record_property("paid releases lost", fates.count("lost"))
    assert fates.count("lost") <= 6  # of 12 that hit a tenth of a run each: less than once in 1e4


def test_a_run_under_way_is_not_taken_for_a_dead_one(folder: Path) -> None:
    """Whoever comes second waits for it; then it finishes what a dead one left."""
    killed(folder, "6 after: noised")
    (left,), at = rounds(folder), "2030-01-31T12:00:00+00:00"
    with (
        Ledger.open(folder / "ledger.db") as book,
        Ledger.open(folder / "ledger.db", timeout=0.1) as other,
    ):
        book.set_budget("clients", epsilon=9, delta=1e-6, at=at)
        live = book.reserve("clients", left.charge, round_id="live", at=at)
        with pytest.raises(LedgerError, match="in the middle of a round"):
            other.unfinished("clients").__enter__()
        book.cancel(live, reason="nothing was opened", at=at)
        with other.unfinished("clients") as found:
            assert list(found) == [left.round_id]
