"""When each part of a client's files was first seen, so that no record counts as new twice.

A plain CSV file may grow at its end; other files are whole or not there. A file is known by its
name, or, if it was renamed and not written since, by its place on the disk. (If it was written
since, it is refused: a new file may have got the place of one that was removed.) It is never known
by its content: two files about different people may hold the same lines, and whether they do would
show in the number of records. So which part of which file a record stands in says nothing about
the record's values. The content is only compared with what the same file held before: a file that
changed in it is refused.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedprikl.errors import RecordsError
from fedprikl.records.data_files import data_files

__all__ = ["Part", "Seen", "arrivals", "can_grow", "finished"]

BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Seen:
    """The beginning of a file, up to a byte, and the period in which it was first seen."""

    file: str  # its name in the client's folder
    end: int
    period: int
    digest: str  # SHA-256 of all bytes before the end
    place: str  # on the disk, and when it was last written


@dataclass(frozen=True, slots=True)
class Part:
    """Some whole lines of a file, and the period in which they were first seen."""

    path: Path
    start: int
    end: int | None  # None: to the end of the file
    period: int


def arrivals(
    path: Path, known: Sequence[Seen], period: int, *, drawn: bool = False
) -> tuple[list[Part], list[Seen]]:
    """All parts of a client's files, and what is new: to be kept before anything is counted.

    A line of a plain CSV file counts as there once its line break is. A file with two names counts
    once. Where records are `drawn`, there may be no file. Cost: every byte is read once.
    """
    names = {seen.file for seen in known}
    parts: list[Part] = []
    new: list[Seen] = []
    looked: dict[str, list[Seen]] = {}  # by place
    for file in sorted(data_files(path, blank=drawn), key=lambda each: each.name not in names):
        place = _place(file)
        if place in looked and file.name not in names:
            new += [replace(seen, file=file.name) for seen in looked[place]]
            continue
        seen = _before(file, place, known)
        new += [each for each in seen if each not in known]
        end, digests = _checked(file, seen)
        if end > (seen[-1].end if seen else 0):
            seen.append(Seen(file.name, end, period, digests[end], place))
            new.append(seen[-1])
        elif seen and place not in {each.place for each in known if each.file == file.name}:
            new.append(replace(seen[-1], place=place))
        if place not in looked:
            parts += _parts(file, seen)
        looked.setdefault(place, seen)
    return parts, new


def finished(file: Path) -> int:
    """The size of a file; of a plain CSV file, up to and with its last line break."""
    try:
        size = file.stat().st_size
        if not can_grow(file):
            return size
        with file.open("rb") as stream:
            end = size
            while end > 0:
                start = max(end - BLOCK, 0)
                stream.seek(start)
                place = stream.read(end - start).rfind(b"\n")
                if place >= 0:
                    return start + place + 1
                end = start
            return 0
    except OSError as error:
        raise RecordsError(f"Cannot read {file}: {error.strerror}.") from None


def _before(file: Path, place: str, known: Sequence[Seen]) -> list[Seen]:
    """What was seen of this file, under this name or the one it had, in order."""
    names = {seen.file for seen in known}
    name = file.name
    if name not in names:
        name = next((seen.file for seen in known if seen.place == place), name)
    if name not in names:
        _refuse_moved(file, place, known)
    found = {seen.end: replace(seen, file=file.name) for seen in known if seen.file == name}
    return [found[end] for end in sorted(found)]


def _refuse_moved(file: Path, place: str, known: Sequence[Seen]) -> None:
    """A file that was renamed and then written looks like one that took the place of another."""
    inode = place.rpartition(":")[0]
    before = {seen.file for seen in known if seen.place.rpartition(":")[0] == inode}
    gone = sorted(name for name in before if not file.with_name(name).exists())
    if gone:
        raise RecordsError(
            f"{file} lies where {gone[0]} lay on the disk, which was counted and is gone. If it is "
            "the same file, give it its old name back. If its records are new, copy it to another "
            "name, and remove it."
        )


def _checked(file: Path, seen: Sequence[Seen]) -> tuple[int, dict[int, str]]:
    """Where the file ends, and its digests; refuses one that changed in what was seen of it."""
    end = finished(file)
    digests = _digests(file, {each.end for each in seen if each.end < end} | {end})
    grown = bool(seen) and end > seen[-1].end and not can_grow(file)
    if grown or any(digests.get(each.end) != each.digest for each in seen):
        raise RecordsError(
            f"{file} was changed after its records were counted, so nobody can tell which of them "
            "are new. Put the old lines back; write new records at its end, or into a new file."
        )
    return end, digests


def _parts(file: Path, seen: Sequence[Seen]) -> list[Part]:
    """A packed file is one part: its bytes are not those of its lines."""
    if not can_grow(file):
        return [Part(file, 0, None, each.period) for each in seen]
    starts = [0, *(each.end for each in seen)]
    return [
        Part(file, start, each.end, each.period) for start, each in zip(starts, seen, strict=False)
    ]


def can_grow(file: Path) -> bool:
    """Whether its bytes are lines, to which others may be added."""
    return file.name.lower().endswith(".csv")


def _place(file: Path) -> str:
    """Stays when a file is renamed; a file that takes the place of a removed one is newer."""
    try:
        found = file.stat()
    except OSError as error:
        raise RecordsError(f"Cannot read {file}: {error.strerror}.") from None
    return f"{found.st_dev}:{found.st_ino}:{found.st_mtime_ns}"


def _digests(file: Path, ends: Iterable[int]) -> dict[int, str]:
    """SHA-256 of what is before each end."""
    sha, place = hashlib.sha256(), 0
    found: dict[int, str] = {}
    try:
        with file.open("rb") as stream:
            for end in sorted(ends):
                while place < end:
                    block = stream.read(min(BLOCK, end - place))
                    if not block:
                        raise RecordsError(f"{file} became shorter while it was read. Try again.")
                    sha.update(block)
                    place += len(block)
                found[end] = sha.hexdigest()
    except OSError as error:
        raise RecordsError(f"Cannot read {file}: {error.strerror}.") from None
    return found
