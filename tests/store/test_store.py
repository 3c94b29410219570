"""The store: chained entries, documents, locks and files that are written whole."""

import stat
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from fedprikl.errors import FedPriKLError, HistoryError, InvalidInputError
from fedprikl.store import Entry, Head, Store, StoreKind, locked, replace_file


class NotesError(FedPriKLError):
    """Of the store of these tests."""


class NotesDamagedError(NotesError):
    """Of the store of these tests."""


NOTES = StoreKind(
    name="notebook",
    application=0x66706B74,
    error=NotesError,
    damaged=NotesDamagedError,
    advice="Bring back a copy.",
    unwritten="nothing was noted",
    half_written="Look again.",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "notes.db", NOTES) as made:
        yield made


def write(store: Store, *words: str) -> list[Head]:
    with store.writing():
        return [store.append({"word": word}) for word in words]


def words(store: Store) -> list[str]:
    with store.reading():
        return [entry.body["word"] for entry in store.entries()]


# Entries


def test_entries_are_appended_in_order_and_fixed_by_their_head(store: Store) -> None:
    heads = write(store, "one", "two")
    write(store, "three")
    assert words(store) == ["one", "two", "three"]
    with store.reading():
        found = store.entries(anchor=heads[1])
        assert NOTES.head_of(found[:2]) == heads[1]
        with pytest.raises(NotesDamagedError, match="3 entries, but entry 9 was seen before"):
            store.entries(anchor=Head(9, ""))
    assert NOTES.head_of([]) == Head(0, NOTES.genesis)


def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(TypeError), store.writing():
        write_half(store)
    assert words(store) == []


def write_half(store: Store) -> None:
    store.append({"word": "half"})
    store.append({"word": object()})


def test_a_new_log_takes_the_place_of_the_old_one(store: Store) -> None:
    """And is guarded as the old one was."""
    write(store, "one", "two")
    with store.writing():
        store.rewrite([{"word": "new"}])
    write(store, "more")
    assert words(store) == ["new", "more"]
    with pytest.raises(NotesDamagedError, match="a notebook is append-only"), store.writing():
        store.connection.execute("DELETE FROM entries")
    assert words(store) == ["new", "more"]


MINE, OTHERS = NotesError("mine"), HistoryError("of another kind")


@pytest.mark.parametrize("error", [KeyError(), ValueError(), RecursionError(), OTHERS, MINE])
def test_what_makes_no_sense_is_damage_and_the_kinds_own_errors_are_not(
    store: Store, error: Exception
) -> None:
    write(store, "one", "two")

    def apply(entry: Entry) -> None:
        if entry.number == 2:
            raise error

    expected = (NotesError, "mine") if error is MINE else (NotesDamagedError, "Entry 2 of the note")
    with store.reading(), pytest.raises(expected[0], match=expected[1]):
        store.replay(store.entries(), apply)


def test_documents_are_known_by_their_hash(store: Store) -> None:
    with store.writing():
        name = store.keep_document(b"noised")
        assert store.document(name) == b"noised"
        assert store.document("0" * 64) is None
        store.drop_document(name)
        assert store.document(name) is None


# Locks


def hold(path: Path, shared: bool, pipe: Connection) -> None:
    with locked(path, shared=shared) as held:
        pipe.send(held)
        pipe.recv()


@pytest.mark.parametrize("theirs", [False, True])
@pytest.mark.parametrize("ours", [False, True])
def test_a_lock_is_for_one_process_or_shared(tmp_path: Path, ours: bool, theirs: bool) -> None:
    here, there = get_context("fork").Pipe()
    child = get_context("fork").Process(target=hold, args=(tmp_path / "file", theirs, there))
    child.start()
    assert here.recv()
    with locked(tmp_path / "file", shared=ours, timeout=0.1) as held:
        assert held == (ours and theirs)
    child.kill()  # it can clean up nothing
    child.join()
    with locked(tmp_path / "file", timeout=0) as held:
        assert held
    here.close()
    there.close()


def test_a_lock_is_for_one_unless_both_share_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with locked(path, timeout=0) as first, locked(path, timeout=0) as second:
        assert (first, second) == (True, False)
    with locked(path, shared=True) as first, locked(path, timeout=0) as second:
        assert (first, second) == (True, False)
    with locked(path, shared=True) as first, locked(path, shared=True, timeout=0) as second:
        assert (first, second) == (True, True)


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"), locked(tmp_path / "file"):
        pass
    with (
        pytest.raises(InvalidInputError, match="Cannot use the lock"),
        locked(tmp_path / "nowhere" / "file", error=InvalidInputError),
    ):
        pass
    assert not (tmp_path / "precious").exists()


# Files


def test_a_file_is_replaced_with_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for mode in (0o600, 0o644):
        replace_file(path, b"content", mode=mode)
        assert stat.S_IMODE(path.stat().st_mode) == mode
    replace_file(path, b"usual")
    (tmp_path / "usual").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    (tmp_path / "usual").unlink()
    assert path.read_bytes() == b"usual"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_takes_no_others_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"first", new=True)
    with pytest.raises(FileExistsError):
        replace_file(path, b"second", new=True)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
