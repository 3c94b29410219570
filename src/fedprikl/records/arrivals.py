"""When each part of a client's files was first seen, so that no record counts as new twice.

A CSV file may grow at its end; other files are whole or not there. What was seen before is known
by its bytes: a file that changed in them is refused, and a copy of them under another name is not
new. Which part of which file a record stands in says nothing about the record's values.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedprikl.errors import RecordsError
from fedprikl.records.data_files import data_files

__all__ = ["Part", "Seen", "arrivals"]

BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Seen:
    """The beginning of a file, up to a byte, and the period in which it was first seen."""

    file: str  # its name in the client's folder
    end: int
    period: int
    digest: str  # SHA-256 of all bytes before the end


@dataclass(frozen=True, slots=True)
class Part:
    """Some whole lines of a file, and the period in which they were first seen."""

    path: Path
    start: int
    end: int | None  # None: to the end of the file
    period: int


def arrivals(path: Path, known: Sequence[Seen], period: int) -> tuple[list[Part], list[Seen]]:
    """All parts of a client's files, and what is new: to be kept before anything is counted.

    A line counts as there once its line break is. What stands in two files counts once, in the
    first of them. Cost: every byte is read once.
    """
    files = data_files(path)
    stops = {seen.end for seen in known} | {_finished(file) for file in files}
    parts: list[Part] = []
    new: list[Seen] = []
    covered: set[tuple[int, str]] = set()
    for file in files:
        digests = _digests(file, stops)
        before = _before(file, known, digests)
        new += [seen for seen in before if seen not in known]
        end = max(digests, default=0)
        if end > (before[-1].end if before else 0):
            before.append(Seen(file.name, end, period, digests[end]))
            new.append(before[-1])
        copied = max((stop for stop in digests if (stop, digests[stop]) in covered), default=0)
        start = 0
        for seen in before:
            if seen.end > copied:
                parts.append(Part(file, max(start, copied), seen.end, seen.period))
            start = seen.end
        covered |= digests.items()
    return parts, new


def _before(file: Path, known: Sequence[Seen], digests: dict[int, str]) -> list[Seen]:
    """What was seen of this file, or of the file it is a copy of, in order."""
    named = [seen for seen in known if seen.file == file.name]
    if any(digests.get(seen.end) != seen.digest for seen in named):
        raise RecordsError(
            f"{file} was changed after its records were counted, so nobody can tell which of them "
            "are new. Put the old lines back; write new records at its end, or into a new file."
        )
    alike = named or [seen for seen in known if digests.get(seen.end) == seen.digest]
    if alike and not named:
        longest = max(alike, key=lambda seen: seen.end)
        alike = [seen for seen in alike if seen.file == longest.file]
    found = [replace(seen, file=file.name) for seen in alike]
    return sorted(found, key=lambda seen: seen.end)


def _digests(file: Path, ends: Iterable[int]) -> dict[int, str]:
    """SHA-256 of what is before each end that is asked, and before that of the last line."""
    sha, place = hashlib.sha256(), 0
    found: dict[int, str] = {}
    last = _finished(file)
    stops = sorted({end for end in ends if 0 < end < last} | ({last} if last else set()))
    try:
        with file.open("rb") as stream:
            for stop in stops:
                while place < stop:
                    block = stream.read(min(BLOCK, stop - place))
                    if not block:
                        raise RecordsError(f"{file} became shorter while it was read. Try again.")
                    sha.update(block)
                    place += len(block)
                found[stop] = sha.hexdigest()
    except OSError as error:
        raise RecordsError(f"Cannot read {file}: {error.strerror}.") from None
    return found


def _finished(file: Path) -> int:
    """The size of a file; of a plain CSV file, up to and with its last line break."""
    try:
        size = file.stat().st_size
        if not file.name.lower().endswith(".csv"):
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
