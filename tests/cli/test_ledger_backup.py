"""`fedprikl ledger --backup` and `--restore`: nothing that was charged is ever forgotten."""

import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.errors import LedgerDamagedError, LedgerError
from fedprikl.privacy import AccountedRelease, Ledger
from fedprikl.privacy import ledger as backups
from fedprikl.privacy.ledger import backup_ledger, restore_ledger

AT = "2030-01-31T12:00:00+00:00"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as opened:
        opened.set_budget("phones", epsilon=1.0, delta=1e-6, at=AT)
    spend(path, "w1")
    return path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def spend(path: Path, round_id: str) -> None:
    with Ledger.open(path) as opened:
        charge = AccountedRelease(proved_epsilon=0.25)
        opened.reserve("phones", charge, round_id=round_id, at=AT)


def spent(path: Path) -> float:
    with Ledger.open(path, create=False) as opened:
        return opened.account("phones").spent


def invoke(*line: object) -> Result:
    return CliRunner().invoke(app, ["ledger", *map(str, line)])


def test_a_copy_is_whole_and_private(ledger: Path, copy: Path) -> None:
    done = invoke("--ledger", ledger, "--backup", copy)
    assert done.exit_code == 0, done.output
    assert "3 entries" not in done.output
    assert "2 entries, chain whole, head " in " ".join(done.output.split())
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with Ledger.open(ledger) as first, Ledger.open(copy) as second:
        assert first.entries() == second.entries()
    files = {path.name for path in copy.parent.iterdir()} - {"ledger.db.lock"}
    assert files == {"copy.db", "ledger.db"}


def test_a_lost_ledger_is_restored(ledger: Path, copy: Path) -> None:
    head = backup_ledger(ledger, copy)
    ledger.unlink()
    document: dict[str, Any] = json.loads(
        invoke("--ledger", ledger, "--restore", copy, "--json").stdout
    )
    assert document["head"] == {"count": head.count, "hash": head.hash}
    assert spent(ledger) == pytest.approx(0.25)
    assert stat.S_IMODE(ledger.stat().st_mode) == 0o600


def test_an_older_copy_is_refused(ledger: Path, copy: Path) -> None:
    backup_ledger(ledger, copy)
    spend(ledger, "w2")
    refused = invoke("--ledger", ledger, "--restore", copy)
    assert isinstance(refused.exception, LedgerError)
    assert "would be forgotten" in str(refused.exception)
    assert spent(ledger) == pytest.approx(0.5)


def test_a_copy_of_another_ledger_is_refused(ledger: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with Ledger.open(other) as opened:
        for number in range(3):
            opened.set_budget(f"cars{number}", epsilon=1.0, delta=1e-6, at=AT)
    with pytest.raises(LedgerError, match="of another ledger"):
        restore_ledger(other, ledger)
    assert spent(ledger) == pytest.approx(0.25)


def test_a_newer_copy_adds_what_is_missing_where_others_see_it(ledger: Path, copy: Path) -> None:
    """The file stays: a process that has it open would go on to charge one that is unlinked."""
    backup_ledger(ledger, copy)
    spend(copy, "w2")
    with Ledger.open(ledger) as running:
        before = ledger.stat().st_ino
        assert restore_ledger(copy, ledger) == running.head
        assert running.account("phones").spent == pytest.approx(0.5)
    assert ledger.stat().st_ino == before


def test_noised_numbers_come_along_and_go_with_their_commit(ledger: Path, copy: Path) -> None:
    """A release that was paid for can still be finished; one that left is not kept twice."""
    charge = AccountedRelease(proved_epsilon=0.25)
    newer = copy.with_name("newer.db")
    backup_ledger(ledger, copy)
    with Ledger.open(copy) as opened:
        held = opened.reserve("phones", charge, round_id="w2", at=AT)
        opened.keep_noised(held, b"noised numbers", at=AT)
    backup_ledger(copy, newer)
    with Ledger.open(newer) as opened:
        opened.commit(opened.reservation("w2"), release_hash="ab" * 32, at=AT)
    restore_ledger(copy, ledger)
    with Ledger.open(ledger) as opened, opened.unfinished("phones") as found:
        assert found == {"w2": b"noised numbers"}
    restore_ledger(newer, ledger)
    assert b"noised numbers" not in _documents(ledger)


def _documents(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as db:
        return [body for (body,) in db.execute("SELECT body FROM documents")]


@pytest.mark.parametrize("damage", ["edited", "cut", "foreign"])
def test_a_damaged_copy_is_refused(ledger: Path, copy: Path, damage: str) -> None:
    backup_ledger(ledger, copy)
    if damage == "edited":
        with closing(sqlite3.connect(copy, isolation_level=None)) as db:
            (guard,) = db.execute(
                "SELECT sql FROM sqlite_master WHERE name = 'entries_are_never_updated'"
            ).fetchone()
            db.execute("DROP TRIGGER entries_are_never_updated")
            db.execute("UPDATE entries SET body = replace(body, '0.25', '0.05')")
            db.execute(guard)
    elif damage == "cut":
        copy.write_bytes(copy.read_bytes()[:5000])
    else:
        copy.write_text("phones, 0.25\n")
    before = ledger.read_bytes()
    with pytest.raises(LedgerError) as refused:
        restore_ledger(copy, ledger)
    assert str(copy) in str(refused.value)
    assert ledger.read_bytes() == before
    ledger.unlink()
    with pytest.raises(LedgerError):
        restore_ledger(copy, ledger)
    assert not ledger.exists()


def test_a_damaged_ledger_is_neither_copied_nor_overwritten(ledger: Path, copy: Path) -> None:
    backup_ledger(ledger, copy)
    with closing(sqlite3.connect(ledger, isolation_level=None)) as db:
        db.execute("DROP TRIGGER entries_are_never_deleted")
    with pytest.raises(LedgerDamagedError, match=r"ledger\.db"):
        backup_ledger(ledger, copy.with_name("second.db"))
    with pytest.raises(LedgerDamagedError, match=r"ledger\.db"):
        restore_ledger(copy, ledger)
    assert not copy.with_name("second.db").exists()


def test_nothing_is_overwritten_by_a_copy(ledger: Path, copy: Path, tmp_path: Path) -> None:
    copy.write_text("mine")
    with pytest.raises(LedgerError, match="exists"):
        backup_ledger(ledger, copy)
    assert copy.read_text() == "mine"
    with pytest.raises(LedgerError, match="Cannot write"):
        backup_ledger(ledger, tmp_path / "nowhere" / "copy.db")
    with pytest.raises(LedgerError, match="There is no ledger"):
        backup_ledger(tmp_path / "none.db", tmp_path / "copy2.db")


def test_the_ledgers_lock_is_respected(
    ledger: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a round is being charged nobody copies, and nobody restores."""
    backup_ledger(ledger, copy)
    monkeypatch.setattr(backups, "TIMEOUT", 0.05)
    with closing(sqlite3.connect(ledger, isolation_level=None)) as charging:
        charging.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="was locked by another process"):
            restore_ledger(copy, ledger)
        with pytest.raises(LedgerError, match="was locked by another process"):
            backup_ledger(ledger, copy.with_name("second.db"))


@pytest.mark.parametrize("line", [("--backup", "a", "--restore", "b"), ("--population", "phones")])
def test_options_that_do_not_go_together(ledger: Path, line: tuple[str, ...]) -> None:
    done = invoke("--ledger", ledger, "--backup", "c", *line)
    assert done.exit_code == 2
    assert "stand alone" in done.output
