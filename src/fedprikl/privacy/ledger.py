"""The ledger: a privacy budget per population that cannot be overspent."""

import contextlib
import fcntl
import math
import os
import re
import shlex
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from fedprikl.checks import check_epsilon
from fedprikl.errors import BudgetExceededError, InvalidInputError, LedgerDamagedError, LedgerError
from fedprikl.privacy.account import (
    Account,
    BoundRecords,
    LedgerFile,
    LedgerRound,
    RoundState,
    Span,
    head_of,
    replay,
    worst_epsilon,
)
from fedprikl.privacy.losses import Unit, check_unit, unit_entry
from fedprikl.privacy.mechanism import Charge, charge_to_dict, check_zero_or_delta
from fedprikl.store import Entry, Head, sync_folder

POLL = 0.05  # seconds between looks at a lock
# Of a budget: ten releases of 0.1 fit into 1, whatever the order of the sum; and totals that were
# convolved by FFT differ by up to 2e-10 between processors (delta 1e-6). It is always the total
# that is compared, so this is never granted twice. Convolved totals are rounded up by more.
ROUNDING = 1e-9
TIMEOUT = 30.0  # seconds to wait for other processes
STAYS = "the round was charged before and stays charged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Permission to release one round. The budget is charged from now on."""

    population: str
    round_id: str
    head: Head  # of the ledger with this reservation; belongs into the signed release


class Ledger:
    """What has been released about each population, kept at the aggregator. One file, SQLite.

    1. `set_budget` once: the (epsilon, delta) that a population may lose in all.
    2. `reserve` before the noise is drawn: charges the budget, or refuses and charges nothing.
       (`check` asks the same without charging; `bind_records` keeps one budget per records.)
    3. `keep_noised` right after the noise: numbers that may leave now, and the release follows
       from them. If the process dies, another one finishes the release (`unfinished`).
    4. `commit` after the release has left; `cancel` only if nothing can have left.

    The process may die at any instant: a reservation that was neither committed nor cancelled
    stays charged for ever. Processes may race: the check and the charge are one transaction.
    Entries are only ever appended, each hashed together with the one before; every call verifies
    the whole chain. It cannot see that its last rows were cut off: keep a `head` elsewhere (every
    `Reservation` carries one for the signed release) and pass it to `verify`.

    No clock inside: `at` is an ISO 8601 time with an offset, like 2030-01-31T12:00:00+00:00.

    >>> import tempfile
    >>> import fedprikl as fk
    >>> folder, at = tempfile.TemporaryDirectory(), "2030-01-31T12:00:00+00:00"
    >>> ledger = Ledger.open(f"{folder.name}/ledger.db")
    >>> account = ledger.set_budget("phones", epsilon=1, delta=1e-6, at=at)
    >>> account.spent, account.left
    (0.0, 1.0)
    >>> reference = fk.Reference.from_counts([50, 50])
    >>> planned = fk.plan(reference, clients=3, records=60, epsilon=1, population="phones")
    >>> result = fk.compare(reference, [[0] * 20, [1] * 20, [0, 1] * 10], planned, ledger=ledger)
    >>> round(result.epsilon_left, 3)
    0.0
    >>> try:
    ...     fk.compare(reference, [[0] * 20, [1] * 20, [0, 1] * 10], planned, ledger=ledger)
    ... except fk.BudgetExceededError as refused:
    ...     print(f"{refused.left:.3f} is left")
    0.000 is left
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(self, file: LedgerFile, anchor: Head | None = None, timeout: float = 30.0) -> None:
        if not isinstance(file, LedgerFile):
            raise InvalidInputError("Open a ledger by its path with `Ledger.open(path)`.")
        self._file, self._timeout = file, timeout
        self._seen = anchor  # the last head this process knows of
        self._under_way: set[str] = set()  # rounds that were reserved here and have not ended
        self._alive: int | None = None  # handle of the lock that says so to other processes

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = True,
        anchor: Head | None = None,
        timeout: float = 30.0,
    ) -> Self:
        """Opens and verifies the ledger; a new file is readable and writable by its owner only.

        `timeout`: seconds to wait for other processes. `anchor`: a head known from before.
        """
        ledger = cls(LedgerFile(Path(path), create=create, timeout=timeout), anchor, timeout)
        try:
            ledger.verify()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()
        self._ended(*self._under_way)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def set_budget(
        self, population: str, *, epsilon: float, delta: float, at: str, unit: Unit | None = None
    ) -> Account:
        """Sets, raises or lowers a budget; never to less than what is already spent.

        `unit` says whose budget it is: one "record"'s, or one "client"'s with all it holds. None
        leaves it as it is ("record" at first). Setting the same budget again changes nothing and
        writes nothing.
        """
        wanted = Account(
            population=_check_name(population, "population"),
            epsilon=check_epsilon(epsilon),
            delta=check_zero_or_delta(delta),
        )
        body = {"event": "budget", "population": population, "at": _check_time(at)}
        with self._file.writing():
            entries, accounts = self._load()
            known = accounts.get(population)
            whose = _whose(population, unit, known)
            spent = worst_epsilon(known.spanned if known else [], delta=wanted.delta)
            if spent > wanted.epsilon * (1 + ROUNDING):
                raise InvalidInputError(
                    f"Population {population!r} has already spent epsilon {spent:.4g} (at delta "
                    f"{wanted.delta:g}); its budget cannot be set to {wanted.epsilon:g}. "
                    "What has been released cannot be taken back."
                )
            wanted = replace(wanted, unit=whose)
            if known is None or replace(known, rounds=()) != wanted:
                content = {"epsilon": wanted.epsilon, "delta": wanted.delta} | unit_entry(whose)
                if whose == "client":
                    self._file.upgrade()
                self._file.append(body | content, after=head_of(entries))
        return self.account(population)

    def bind_records(self, population: str, sources: Mapping[str, str], *, at: str) -> None:
        """Says which records a population's name stands for, before they are counted.

        `sources`: each client's place (a path, a table) and a digest of its content. The ledger
        keeps salted hashes only. InvalidInputError, with nothing written, if a place or a content
        was bound to another population before: the same people have one budget, whatever it is
        called. Every call writes one entry, also if all was bound before: the number of entries
        is in each signed release, and must not tell whether a record has changed.
        """
        _check_name(population, "population")
        when = _check_time(at)
        with self._file.writing():
            entries, _ = self._load()
            body = BoundRecords.of(entries).bind(population, sources)
            self._file.upgrade()
            head = self._file.append(body | {"at": when}, after=head_of(entries))
        self._seen = head

    def check(
        self,
        population: str,
        mechanism: Charge,
        *,
        span: Span | None = None,
        unit: Unit = "record",
    ) -> None:
        """Raises as `reserve` would if one more release does not fit; charges nothing.

        A later `reserve` may still be refused, as others may have reserved in between.
        """
        account = self.account(population)
        account.check_protects(unit)
        needed = _total_with(account, mechanism, span)
        if not _fits(account, needed):
            raise _exceeded(account, mechanism, needed)

    def reserve(
        self,
        population: str,
        mechanism: Charge,
        *,
        round_id: str,
        at: str,
        note: str = "",
        span: Span | None = None,
        unit: Unit = "record",
    ) -> Reservation:
        """Charges one round before anything is released; durable when this returns.

        `span`: the round counts only records of these moments, and every record has one moment.
        Rounds about disjoint spans do not add up: the budget is that of one record. `unit`: whom
        the charge protects. A client is in every period, so a charge for clients has no span.

        A round id is charged once for ever, even if cancelled. Raises BudgetExceededError, with
        nothing charged, if the total would exceed the budget.
        """
        body = {
            "event": "reserve",
            "population": _check_name(population, "population"),
            "round": _check_name(round_id, "round id"),
            "mechanism": charge_to_dict(mechanism),
            "at": _check_time(at),
            "note": _check_words(note, "note"),
        }
        body |= unit_entry(unit)
        if span is not None:
            if unit == "client":
                raise InvalidInputError("A charge for whole clients has no span: it adds up.")
            body["span"] = [span.start, span.end, span.clock]
        head: Head | None = None
        try:
            self._begun(round_id)
            with self._file.writing():
                entries, accounts = self._load()
                account = _find_account(accounts, population)
                if _find_round(accounts, round_id) is not None:
                    raise InvalidInputError(
                        f"Round {round_id!r} has already been charged, and a round is charged only "
                        "once. Nothing was charged now; use a new round id for a new release."
                    )
                account.check_protects(unit)
                needed = _total_with(account, mechanism, span)
                fits = _fits(account, needed)
                if fits and (span is not None or unit == "client"):
                    self._file.upgrade()
                head = self._file.append(body, after=head_of(entries)) if fits else None
        finally:
            if head is None:
                self._ended(round_id)
        if head is None:
            raise _exceeded(account, mechanism, needed)
        self._seen = head
        return Reservation(population=population, round_id=round_id, head=head)

    def keep_noised(self, reservation: Reservation, document: bytes, *, at: str) -> None:
        """Keeps the numbers of a round after their noise; durable when this returns.

        Once, and of a round that is charged. From now on it cannot be cancelled. `commit` drops the
        document again: by then the release is kept elsewhere.
        """
        body = {"event": "noised", "round": reservation.round_id, "at": _check_time(at)}
        with self._file.writing(f"{STAYS}, and its numbers were not kept: nothing was released"):
            entries, accounts = self._load()
            if _open_round(accounts, reservation.round_id).noised is not None:
                raise InvalidInputError(
                    f"Round {reservation.round_id!r} has its noise already: it is drawn once."
                )
            self._file.upgrade()
            body |= {"document": self._file.keep_document(document)}
            self._seen = self._file.append(body, after=head_of(entries))

    @contextmanager
    def unfinished(self, population: str) -> Iterator[dict[str, bytes]]:
        """What was kept of rounds that are charged and not committed, by round id, oldest first.

        Their processes have died: it waits while a round of this ledger is under way in another
        one, and none is reserved until this ends.
        """
        if not self._kept_of(population):
            yield {}
            return
        with self._alone():
            yield self._kept_of(population)

    def _kept_of(self, population: str) -> dict[str, bytes]:
        with self._file.reading():
            account = self._load()[1].get(population)
            rounds = () if account is None else account.open_rounds
            noised = {each.round_id: each.noised for each in rounds if each.noised is not None}
            found = {name: self._file.document(document) for name, document in noised.items()}
        return {name: body for name, body in found.items() if body is not None}

    def commit(self, reservation: Reservation, *, release_hash: str, at: str) -> Head:
        """Records that the release left, with its SHA-256; the ledger's new head."""
        if not isinstance(release_hash, str) or not re.fullmatch("[0-9a-f]{64}", release_hash):
            raise InvalidInputError(
                f"A release hash is SHA-256 in 64 lower-case digits 0-9a-f, got {release_hash!r}."
            )
        return self._close_round(reservation, "commit", at=at, release_hash=release_hash)

    def cancel(self, reservation: Reservation, *, reason: str, at: str) -> Head:
        """Gives the charge back. Only if nothing derived from the data can have left.

        Not for a crash of which nobody knows how far it came: leave that one charged.
        """
        if not reason:
            raise InvalidInputError("A cancellation needs a reason: say why nothing has left.")
        return self._close_round(
            reservation, "cancel", at=at, reason=_check_words(reason, "reason")
        )

    def reservation(self, round_id: str) -> Reservation:
        """The reservation of a round that is still open, after a restart."""
        entries, accounts = self._read()
        known = _open_round(accounts, round_id)
        (place,) = [
            i
            for i, entry in enumerate(entries, start=1)
            if entry.body["event"] == "reserve" and entry.body["round"] == round_id
        ]
        return Reservation(
            population=known.population, round_id=round_id, head=head_of(entries[:place])
        )

    def account(self, population: str) -> Account:
        """Budget, rounds, spent and left of one population."""
        return _find_account(self._read()[1], population)

    def accounts(self) -> tuple[Account, ...]:
        """Every population, by name, as of one instant."""
        found = self._read()[1]
        return tuple(found[name] for name in sorted(found))

    def populations(self) -> tuple[str, ...]:
        """Names of all populations with a budget, sorted."""
        return tuple(account.population for account in self.accounts())

    def entries(self) -> tuple[Entry, ...]:
        """Everything ever written, in order."""
        return tuple(self._read()[0])

    @property
    def head(self) -> Head:
        """Number of entries and hash of the last: fixes the whole history if kept elsewhere."""
        return head_of(self._read()[0])

    def verify(self, anchor: Head | None = None) -> Head:
        """The head, if the chain is whole and contains `anchor`; LedgerDamagedError if not."""
        return head_of(self._read(anchor)[0])

    def _close_round(self, reservation: Reservation, event: str, *, at: str, **more: str) -> Head:
        body = {"event": event, "round": reservation.round_id, "at": _check_time(at)} | more
        with self._file.writing(f"{STAYS}, and that it is over was not written"):
            entries, accounts = self._load()
            noised = _open_round(accounts, reservation.round_id).noised
            if noised is not None and event == "cancel":
                raise InvalidInputError(
                    f"Round {reservation.round_id!r} has its noised numbers: they may have left. "
                    "Its charge is never given back."
                )
            head = self._file.append(body, after=head_of(entries))
            if noised is not None:
                self._file.drop_document(noised)
        self._seen = head
        self._ended(reservation.round_id)
        return head

    def _begun(self, round_id: str) -> None:
        """Says to other processes that a round is under way here; the lock ends with the process.

        Waits while another process finishes a round that was left behind.
        """
        if self._alive is None:
            self._alive = self._open_lock()
            fcntl.flock(self._alive, fcntl.LOCK_SH)
        self._under_way.add(round_id)

    def _ended(self, *rounds: str) -> None:
        self._under_way.difference_update(rounds)
        if self._alive is not None and not self._under_way:
            os.close(self._alive)
            self._alive = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no round is under way in another process; a process that dies lets go."""
        self._ended(*self._under_way)  # those of this object: nobody is at work on them
        handle, end = self._open_lock(), time.monotonic() + self._timeout
        try:
            while not _is_locked(handle):
                if time.monotonic() > end:
                    raise LedgerError(
                        f"Another process is in the middle of a round of {self._file.path}, and "
                        "one that was charged before is not finished. Nothing was charged now; "
                        "try again when that round is over."
                    )
                time.sleep(POLL)
            yield
        finally:
            os.close(handle)

    def _open_lock(self) -> int:
        path = self._file.path.with_name(f"{self._file.path.name}.lock")
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LedgerError(f"Cannot make the lock {path}: {error.strerror}.") from None

    def _read(self, anchor: Head | None = None) -> tuple[list[Entry], dict[str, Account]]:
        with self._file.reading():
            if anchor is not None:
                self._file.entries(anchor)
            return self._load()

    def _load(self) -> tuple[list[Entry], dict[str, Account]]:
        """Inside a transaction: all entries, verified, also against what was seen before."""
        entries = self._file.entries(self._seen)
        accounts = replay(entries)
        self._seen = head_of(entries)
        return entries, accounts


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _find_account(accounts: Mapping[str, Account], population: str) -> Account:
    if population not in accounts:
        known = ", ".join(repr(name) for name in sorted(accounts)) or "none"
        raise InvalidInputError(
            f"Population {population!r} has no budget. Set one first "
            f"(`fedprikl ledger --population NAME --set-epsilon 1`). Known: {known}."
        )
    return accounts[population]


def _find_round(accounts: Mapping[str, Account], round_id: str) -> LedgerRound | None:
    rounds = (known for account in accounts.values() for known in account.rounds)
    return next((known for known in rounds if known.round_id == round_id), None)


def _open_round(accounts: Mapping[str, Account], round_id: str) -> LedgerRound:
    known = _find_round(accounts, round_id)
    if known is None:
        raise InvalidInputError(f"Round {round_id!r} was never reserved in this ledger.")
    if known.state is not RoundState.OPEN:
        raise InvalidInputError(
            f"Round {round_id!r} is already {known.state.value}; that is never changed."
        )
    return known


def _whose(population: str, unit: Unit | None, known: Account | None) -> Unit:
    """Whose budget it is to be; a promise to clients is neither made too late nor taken back."""
    if unit is None:
        return "record" if known is None else known.unit
    check_unit(unit)
    if known is not None and known.unit == "client" and unit == "record":
        raise InvalidInputError(
            f"The budget of population {population!r} protects whole clients. That is not taken "
            "back; use another population for other people."
        )
    rounds = () if known is None else known.rounds
    if unit == "client" and any(each.charged and each.unit == "record" for each in rounds):
        raise InvalidInputError(
            f"Population {population!r} has released about single records: what its clients "
            "lost by that has no bound. Its budget cannot become one of whole clients."
        )
    return unit


def _total_with(account: Account, mechanism: Charge, span: Span | None) -> float:
    """What records of these moments have lost after one more release."""
    overlapping = [
        (charge, known) for charge, known in account.spanned if span is None or span.overlaps(known)
    ]
    return worst_epsilon([*overlapping, (mechanism, span)], delta=account.delta)


def _fits(account: Account, needed: float) -> bool:
    return needed <= account.epsilon * (1 + ROUNDING)


def left_words(account: Account) -> str:
    """What is left, for people: a ten-thousandth of the budget is nothing."""
    left = account.left
    return f"{left:.4g}" if left > 1e-4 * account.epsilon else "0"


def worthwhile(fits: Mapping[str, float], account: Account) -> dict[str, float]:
    """Of what would still fit, what is worth a word: a thousandth of the budget or more."""
    return {kind: epsilon for kind, epsilon in fits.items() if epsilon > 1e-3 * account.epsilon}


def _exceeded(account: Account, mechanism: Charge, needed: float) -> BudgetExceededError:
    """Computed after the lock was let go: the search takes a second."""
    spent, fits = account.spent, account.fits()
    room = " or ".join(
        f"{epsilon:g} with {kind.capitalize()} noise"
        for kind, epsilon in worthwhile(fits, account).items()
    )
    raised = ""
    if math.isfinite(needed):
        name = shlex.quote(account.population)
        enough = f"{math.ceil(needed * 1e4 * (1 - ROUNDING)) / 1e4:.10g}"
        raised = (
            " If these people may lose more, raise their budget: `fedprikl ledger --population "
            f"{name} --set-epsilon {enough}`."
        )
    return BudgetExceededError.of(
        f"The budget of population {account.population!r} is epsilon {account.epsilon:g} at delta "
        f"{account.delta:g}; {spent:.4g} is spent, {left_words(account)} is left. With "
        f"{mechanism.per_unit()} the total would be {needed:.4g}. Nothing was charged; "
        "release nothing. "
        + (f"What would fit: epsilon {room}." if room else "No further release fits.")
        + raised,
        spent=spent,
        left=account.left,
        needed=needed,
        fits=fits,
    )


def _check_name(value: str, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"The {what} must be a name, got {value!r}.")
    return _check_words(value, what, longest=200)


def _check_words(value: str, what: str, longest: int = 1000) -> str:
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise InvalidInputError(
            f"The {what} must be one line of at most {longest} printable characters."
        )
    return value


def _check_time(value: str) -> str:
    try:
        offset = datetime.fromisoformat(value).utcoffset()
    except (TypeError, ValueError):
        offset = None
    if offset is None:
        raise InvalidInputError(
            f"A time is ISO 8601 with an offset, like 2030-01-31T12:00:00+00:00, got {value!r}."
        )
    return value


def backup_ledger(ledger: Path, copy: Path) -> Head:
    """Copies a ledger to a new file, for its owner only; the head that both have.

    Nobody can charge the ledger meanwhile. The copy is verified before it gets its name.

    >>> from fedprikl.privacy import Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger, copy = Path(folder.name, "ledger.db"), Path(folder.name, "copy.db")
    >>> with Ledger.open(ledger) as opened:
    ...     account = opened.set_budget("phones", epsilon=1, delta=1e-6, at="2030-01-31T12:00:00Z")
    >>> backup_ledger(ledger, copy) == restore_ledger(copy, ledger)
    True
    >>> folder.cleanup()
    """
    with _opened(ledger) as source, source.writing():
        head = head_of(source.entries())
        _copy(source, copy, head)
    return head


def restore_ledger(copy: Path, ledger: Path) -> Head:
    """Puts a copy where the ledger belongs; the head of what is there then.

    A ledger that is there must be whole, and the copy must contain all of it. A damaged one has to
    be moved away by hand, by somebody who knows what was released since the copy was made.
    """
    with _opened(copy) as source, source.reading():
        entries = source.entries()
        if not ledger.exists():
            _copy(source, ledger, head_of(entries))
            return head_of(entries)
        with _opened(ledger) as present, present.writing():
            _check_contained(source, head_of(present.entries()), ledger)
            _append(present, source, entries)
    return head_of(entries)


def _opened(path: Path) -> "contextlib.closing[LedgerFile]":
    return contextlib.closing(LedgerFile(path, create=False, timeout=TIMEOUT))


def _check_contained(copy: LedgerFile, present: Head, ledger: Path) -> None:
    try:
        copy.entries(anchor=present)
    except LedgerDamagedError:
        raise LedgerError(
            f"{copy.path} does not contain all {present.count} entries of {ledger}: it is older, "
            "or of another ledger. What was charged since would be forgotten. Nothing was changed."
        ) from None


def _append(present: LedgerFile, copy: LedgerFile, entries: list[Entry]) -> None:
    """The same rows give the same hashes. The file stays, so a process that has it open sees it.

    Noised numbers of rounds that are still open come along; those of closed rounds go.
    """
    head = head_of(present.entries())
    for entry in entries[head.count :]:
        head = present.append(entry.body, after=head)
    if head != head_of(entries):
        raise LedgerError("The entries of the copy cannot be written again. Nothing was changed.")
    present.upgrade()
    rounds = [each for account in replay(entries).values() for each in account.rounds]
    for noised, state in [(each.noised, each.state) for each in rounds if each.noised]:
        held = present.document(noised) or copy.document(noised)
        present.drop_document(noised)
        if held is not None and state is RoundState.OPEN:
            present.keep_document(held)


def _copy(source: LedgerFile, path: Path, head: Head) -> None:
    """Writes, syncs and verifies the copy under another name; replaces nothing.

    SQLite does not copy over the connection that holds the lock, but over one beside it.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # owner only
        try:
            with (
                _opened(source.path) as reader,
                contextlib.closing(sqlite3.connect(name)) as target,
            ):
                reader.connection.backup(target)
            os.fsync(handle)
            with _opened(Path(name)) as made, made.reading():
                if head_of(made.entries()) != head:
                    raise LedgerError(f"The copy {path} went wrong. Nothing was written.")
            os.link(name, path)
        finally:
            os.close(handle)
            os.unlink(name)
        sync_folder(path.parent)
    except FileExistsError:
        raise LedgerError(f"{path} exists. Choose a new name; nothing was written.") from None
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise LedgerError(f"Cannot write {path}: {reason}. Nothing was written.") from None
