"""A folder with one file or folder per client: which there are, and which can be read."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedprikl.cli.console import notes, progress_bar, say
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records.data_files import CsvFormat, data_files
from fedprikl.records.sources import check_all
from fedprikl.reference import Reference

__all__ = ["ClientFiles", "content_digests", "find_clients"]


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """The file or folder of each client, by its name; and why others were left out."""

    used: dict[str, Path]
    bad: dict[str, str]


def find_clients(
    folder: Path, reference: Reference, *, form: CsvFormat, skip_bad: bool
) -> ClientFiles:
    """The clients of a folder.

    A file is bad if it cannot be opened or lacks a column: that is known from its header, so that
    whether it is left out never depends on a record.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"{folder} is not a folder with one file per client.")
    try:
        entries = sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    except OSError as error:
        raise InvalidInputError(f"Cannot read {folder}: {error.strerror}.") from None
    found = {path.name: path for path in entries}
    bad = check_all(found, reference, format=form)
    if bad and not skip_bad:
        raise RecordsError(
            f"{_listed(bad, found)}\nNothing was counted. Mend them, or leave them out with "
            "--skip-bad-files."
        )
    if bad:
        say(f"Left out: {_listed(bad, found)}", console=notes)
    used = {name: path for name, path in found.items() if name not in bad}
    if len(used) < 3:
        raise InvalidInputError(f"{folder} holds {len(used)} clients; a secure sum needs 3.")
    return ClientFiles(used, bad)


def content_digests(clients: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file of records, by its absolute place: what a ledger knows records by."""
    with progress_bar() as progress:
        return {
            str(file.resolve()): _sha256(file)
            for path in progress.track(clients.values(), description="reading files")
            for file in data_files(path)
        }


def _listed(bad: Mapping[str, str], places: Mapping[str, Path]) -> str:
    """Each fault once, with the first files that have it."""
    what = "1 file or folder" if len(bad) == 1 else f"{len(bad)} files or folders"
    alike: dict[str, list[str]] = {}
    for name, why in bad.items():
        alike.setdefault(why.replace(str(places[name]), ""), []).append(name)
    lines = [f"- {bad[names[0]]}{_others(names[1:])}" for names in alike.values()]
    return "\n".join([f"{what} of clients cannot be used.", *lines])


def _others(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f" The same is true of {', '.join(names[:2])}{more}."


def _sha256(path: Path) -> str:
    """Of the whole file; empty for a CSV file that holds no records, as many of them are alike."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".csv" and not (file.readline() and file.read(1)):
                return ""
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}.") from None
