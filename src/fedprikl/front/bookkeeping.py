"""The ledger of a comparison: the newest one, with a budget for the very records that it counts."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.errors import (
    FedPriKLError,
    InvalidInputError,
    LedgerDamagedError,
    LedgerError,
    RecordsError,
)
from fedprikl.front.checking import Progress
from fedprikl.libraries import narwhals as nw
from fedprikl.monitoring.history import History
from fedprikl.monitoring.status import BudgetFacts
from fedprikl.privacy import Head, Ledger
from fedprikl.protocol import Aggregator, Plan
from fedprikl.protocol.release import newest_head
from fedprikl.records import DatabaseTable, Days, FrameRecords, Place, data_files
from fedprikl.reference.columns import Values
from fedprikl.reference.rows import FrameSource, column_values
from fedprikl.reference.values import simple

AnyLedger = Ledger | str | Path | None
ClientRecords = Place | FrameRecords  # the records of a client
NO_LEDGER = (
    "No ledger was charged, as asked: nothing remembers this release, and nothing stops the next "
    "one. Its epsilon adds to that of everything else released about the same people."
)


@contextmanager
def open_ledger(
    ledger: AnyLedger, releases: Iterable[Path], public: str
) -> Iterator[Ledger | None]:
    """The ledger, unless a release was charged to a newer one; closed here if opened here.

    It looks for releases that this key signed, single ones and those in histories, in the folder
    of the ledger and in `releases`.
    """
    if ledger is None:
        yield None
        return
    if isinstance(ledger, Ledger):
        if newest := _newest(releases, public):
            ledger.verify(newest)
        yield ledger
        return
    if not isinstance(ledger, str | Path):
        raise InvalidInputError(
            f"A ledger is a path, a Ledger, or None for none, got {type(ledger).__name__}."
        )
    with newest_ledger(Path(ledger), public, releases) as book:
        yield book


def newest_ledger(path: Path, public: str, releases: Iterable[Path] = ()) -> Ledger:
    """The same of a path; the ledger is made if there is none and no release was charged."""
    return _anchored(path, _newest([path.parent, *releases], public))


def open_account(
    aggregator: Aggregator,
    book: Ledger,
    plan: Plan,
    records: Mapping[str, str],
    *,
    at: str,
    note: Callable[[str], None],
) -> None:
    """The budget of the population and of these very records; refuses what does not fit into it.

    `records`: the place of each client's records and a digest of their content. A population
    without a budget gets one for all releases of the plan; `note` is told.
    """
    if plan.population in book.populations():
        if plan.unit.kind == "client" and book.account(plan.population).unit == "record":
            note(
                f"The budget of {plan.population!r} is that of single records: it lets plans pass "
                "that protect records only, by which a client's loss has no bound. To keep it for "
                "whole clients: `fedprikl ledger --set-epsilon ... --unit client`."
            )
        aggregator.check_budget()
        book.bind_records(plan.population, records, at=at)
        return
    book.bind_records(plan.population, records, at=at)
    epsilon, delta = plan.budget.total
    book.set_budget(plan.population, epsilon=epsilon, delta=delta, at=at, unit=plan.unit.kind)
    many = "this one release" if plan.budget.releases == 1 else f"{plan.budget.releases} releases"
    if plan.is_series:
        many = f"one {plan.unit.kind} over the whole series"
    elif plan.unit.kind == "client":
        many = f"every whole client and {many}"
    note(
        f"{plan.population!r} had no budget; it is now epsilon {epsilon:g}, delta {delta:g}, for "
        f"{many}."
    )
    aggregator.check_budget()


def spending(book: Ledger, population: str, round_id: str) -> tuple[BudgetFacts, float]:
    """The budget after a round, and what was spent without it; a billionth is nothing.

    It is asked after the release was charged, which must not be lost: nan if nobody can say.
    """
    try:
        account = book.account(population)
    except LedgerError:
        unknown = math.nan
        return BudgetFacts(epsilon=unknown, delta=unknown, spent=unknown, left=unknown), unknown
    others = tuple(each for each in account.rounds if each.round_id != round_id)
    found = BudgetFacts.of(account)
    return replace(found, left=round(found.left, 6)), replace(account, rounds=others).spent


def _newest(folders: Iterable[Path], public: str) -> Head | None:
    places = {folder.resolve() for folder in folders}
    heads = [newest_head(folder, public) for folder in places]
    heads += [_last_head(path, public) for folder in places for path in folder.glob("*.db")]
    return max(filter(None, heads), key=lambda head: head.count, default=None)


def _last_head(path: Path, public: str) -> Head | None:
    """Of the last release in a history of this key; None for whatever else lies there."""
    try:
        with History.open(path, create=False) as opened:
            found = opened.read()
            if found.last is None or found.signer != public:
                return None
            return opened.releases([found.last.period])[found.last.period].ledger
    except FedPriKLError:
        return None


def _anchored(path: Path, newest: Head | None) -> Ledger:
    if newest is None:
        return Ledger.open(path)
    try:
        if path.exists():
            return Ledger.open(path, anchor=newest)
        found = f"There is no ledger {path}."
    except LedgerDamagedError as error:
        found = str(error)
    raise LedgerDamagedError(
        f"{found} A release that lies here, in a file or a history, was charged to a ledger with "
        f"{newest.count} entries or more, signed with the same key. Bring that ledger back, or "
        "name it with --ledger (in Python: ledger). To begin anew with other people, use a new "
        "folder."
    )


def content_digests(
    clients: Mapping[str, ClientRecords], population: str, progress: Progress
) -> dict[str, str]:
    """The place of each client's records, and SHA-256 of what they hold; empty if they hold none.

    Files are known by their absolute path, that of their folder if it is the client's, and their
    bytes. Frames and arrays have no place of
    their own (their name belongs to the population) and are known by their values.
    """
    found: dict[str, str] = {}
    for done, (name, source) in enumerate(clients.items(), start=1):
        if isinstance(source, DatabaseTable):
            found |= dict.fromkeys(source.places, "")
        elif isinstance(source, Path):
            files = _paths(source, None)
            place = {each: str(each.resolve()) for each in {source, *files}}  # which takes long
            found |= dict.fromkeys(place.values(), "")
            found |= {place[file]: _of_file(file) for file in files}
        else:
            found[f"in memory: {population}: {name}"] = _of_records(source)
        progress("reading records", done, len(clients))
    return found


def places(path: Place, days: Days | None = None) -> set[str]:
    """Of a client's file or folder: its own place, and those of the files in it, of some days."""
    if isinstance(path, DatabaseTable):
        return set(path.places)
    return {str(each.resolve()) for each in {path, *_paths(path, days)}}


def _paths(path: Path, days: Days | None) -> list[Path]:
    found = data_files(path, blank=True, days=days)
    return [each for each in found if isinstance(each, Path)]


def _of_file(path: Path) -> str:
    """Of the whole file; empty for a CSV file that holds no records, as many of them are alike."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".csv" and not (file.readline() and file.read(1)):
                return ""
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}.") from None


def _of_records(source: FrameRecords) -> str:
    """Of the values; nothing in them may raise, and none of them is shown."""
    records = source.records
    frame = nw.from_native(records, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        return _of_rows(FrameSource(records))
    if not len(records):
        return ""
    sha = hashlib.sha256()
    if isinstance(frame, nw.DataFrame):
        for name in sorted(frame.columns):
            _add(sha, [name])
            _add(sha, column_values(frame[name]))
    else:
        _add(sha, records)
    return sha.hexdigest()


def _of_rows(source: FrameSource) -> str:
    """The same where rows come some at a time; however they are divided, the digest is one."""
    names, found = sorted(source.names), hashlib.sha256()
    columns, rows = {name: hashlib.sha256(name.encode()) for name in names}, 0
    for chunk in source.chunks(names):
        rows += chunk.rows
        for name, sha in columns.items():
            _add(sha, list(map(_simple, chunk.columns[name])))
    for sha in columns.values():
        found.update(sha.digest())
    return found.hexdigest() if rows else ""


def _simple(value: Any) -> Any:
    try:
        return simple(value)
    except Exception:  # an object of whatever kind must not stop the other records
        return type(value).__name__


def _add(sha: Any, values: Values) -> None:
    if _is_plain(values):
        sha.update(_text(values))
        return
    for value in values:
        text = _text(value)
        sha.update(len(text).to_bytes(8) + text)


def _is_plain(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iufbM"


def _text(value: Any) -> bytes:
    try:
        if _is_plain(value):
            return bytes(value.dtype.str.encode() + np.ascontiguousarray(value).tobytes())
        return repr(value).encode(errors="surrogatepass")
    except Exception:  # an object of whatever kind must not stop the other records
        return type(value).__name__.encode()
