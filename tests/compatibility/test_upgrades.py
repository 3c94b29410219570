"""How files of older versions will be read, shown with versions that never were.

Each test makes today's version one more than it is, with a step that renames a field, and writes
files as the version before would have.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedprikl as fk
from fedprikl.documents import canonical, digest
from fedprikl.errors import InvalidInputError, LedgerDamagedError, LedgerError
from fedprikl.privacy import AccountedRelease, Head, Ledger, ledger
from fedprikl.privacy.account import LEDGER
from fedprikl.protocol import Plan, plan, release
from fedprikl.store import Store
from tests.compatibility.make import AT, FOLDER, KEY

Document = dict[str, Any]


def renamed(content: Document, old: str, new: str) -> Document:
    return {new if name == old else name: value for name, value in content.items()}


def to_population(content: Document) -> Document:
    return renamed(content, "people", "population")


def before(content: Document) -> Document:
    """A document as the made-up version before wrote it."""
    return renamed(content, "population", "people")


# Documents


@pytest.fixture
def _newer(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, release):
        steps = (*module.FORMAT.steps, to_population)
        monkeypatch.setattr(module, "FORMAT", replace(module.FORMAT, steps=steps))


@pytest.mark.usefixtures("_newer")
def test_an_older_release_is_read_and_is_still_the_one_that_was_signed() -> None:
    today = fk.Release.load(FOLDER / "release-aggregator.json")
    content = before(today.to_dict()["release"])
    document = {"release": content, "signer": KEY.public, "signature": KEY.sign(canonical(content))}
    found = fk.Release.from_bytes(canonical(document))
    assert found.population == "aggregator"
    assert fk.verify(found, key=KEY.public) is found
    assert found.to_bytes() == canonical(document)
    assert found.fingerprint == digest(content)
    changed = replace(found, request="ff")
    assert not changed.is_signed_by(KEY.public)
    signed = changed.sign(KEY)  # as a release of today
    assert signed.is_signed_by(KEY.public)
    assert signed.to_dict()["release"]["version"] == release.FORMAT.version
    document["release"] = content | {"records": content["records"] + 1}
    forged = fk.Release.from_bytes(canonical(document))
    assert not forged.is_signed_by(KEY.public)


@pytest.mark.usefixtures("_newer")
def test_an_older_plan_keeps_its_fingerprint() -> None:
    today = fk.SignedPlan.load(FOLDER / "plan-aggregator.json").plan
    content = before(today.to_dict())
    found = Plan.from_dict(content)
    assert found.fingerprint == digest(content)
    assert found.to_dict() == content
    signed = fk.SignedPlan.sign(found, KEY)
    assert fk.SignedPlan.from_dict(signed.to_dict()).is_signed_by(KEY.public)
    fresh = replace(found, population="others")
    assert fresh.to_dict()["version"] == plan.FORMAT.version
    with pytest.raises(InvalidInputError, match="unknown fields: more"):
        Plan.from_dict(content | {"more": 1})


# Stores


OLD = LEDGER
NEW = replace(LEDGER, steps=(*LEDGER.steps, to_population))


def write_old(path: Path) -> tuple[Head, float]:
    """A ledger that was charged once, as the version before wrote it; its head, what was spent."""
    today = path.with_name("today.db")
    charge = AccountedRelease(proved_epsilon=0.5)
    with Ledger.open(today) as made:
        made.set_budget("phones", epsilon=9, delta=1e-6, at=AT)
        made.reserve("phones", charge, round_id="one", at=AT)
        spent = made.account("phones").spent
    with Store(today, OLD) as source, source.reading(), Store(path, OLD) as old, old.writing():
        for entry in source.entries():
            head = old.append(before(dict(entry.body)))
    return head, spent


def test_an_older_ledger_is_migrated_in_place_and_charges_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    head, spent = write_old(path)
    written = path.read_bytes()
    with pytest.raises(LedgerError):
        Ledger.open(path)  # its entries mean nothing to today's software
    monkeypatch.setattr(ledger, "LEDGER", NEW)
    with Ledger.open(path, anchor=head) as opened:  # a head that a release was signed with
        assert opened.account("phones").spent == spent
        charge = opened.reservation("one").charge
        opened.reserve("phones", charge, round_id="two", at=AT)
        assert opened.account("phones").spent > 1.5 * spent
    (copy,) = tmp_path.glob("ledger.db.version-*")
    assert copy.name == f"ledger.db.version-{OLD.version}-{head.hash[:8]}"
    assert copy.read_bytes() == written
    assert copy.stat().st_mode & 0o077 == 0
    with Ledger.open(path) as again:  # is not migrated again
        assert again.head.count == head.count + 2
    ledger.backup_ledger(path, tmp_path / "backup.db")
    path.unlink()
    ledger.restore_ledger(tmp_path / "backup.db", path)
    with Ledger.open(path, anchor=head) as restored:
        assert len(restored.account("phones").rounds) == 2
    monkeypatch.setattr(ledger, "LEDGER", OLD)
    with pytest.raises(LedgerError, match="or a newer fedprikl"):
        Ledger.open(path)


def test_a_migration_that_was_cut_off_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    head, spent = write_old(path)
    written = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Store, "append", full)
        with pytest.raises(LedgerError, match="No space left"):
            Store(path, NEW)
    assert path.read_bytes() == written
    monkeypatch.setattr(ledger, "LEDGER", NEW)
    with Ledger.open(path, anchor=head) as opened:
        assert opened.account("phones").spent == spent
    assert len(list(tmp_path.glob("ledger.db.version-*"))) == 1


def test_a_damaged_ledger_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_old(path)
    with Store(path, OLD) as store:
        store.connection.execute("DROP TRIGGER entries_are_never_updated")
    written = path.read_bytes()
    with pytest.raises(LedgerDamagedError):
        Store(path, NEW)
    assert path.read_bytes() == written
    assert not list(tmp_path.glob("ledger.db.version-*"))


@pytest.mark.parametrize("odd", [0, 7, "1", None])
def test_a_mark_of_no_version_is_damage(tmp_path: Path, odd: object) -> None:
    with Store(tmp_path / "ledger.db", NEW) as store:
        with store.writing():
            store.append({"event": "migrated", "from": odd})
        with store.reading(), pytest.raises(LedgerDamagedError, match="migrates from no version"):
            store.entries()


def test_an_empty_file_needs_no_mark(tmp_path: Path) -> None:
    Store(tmp_path / "ledger.db", OLD).close()
    with Store(tmp_path / "ledger.db", NEW) as store, store.reading():
        assert store.entries() == []


def test_a_ledger_from_before_1_0_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Store(path, LEDGER) as store:
        store.connection.execute(f"PRAGMA application_id = {int.from_bytes(b'FPKL')}")
    written = path.read_bytes()
    with pytest.raises(LedgerError, match=r"from before fedprikl 1\.0"):
        Ledger.open(path)
    assert path.read_bytes() == written
