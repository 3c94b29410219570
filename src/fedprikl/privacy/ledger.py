"""The ledger: a privacy budget per population that cannot be overspent."""

import contextlib
import math
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from fedprikl.checks import check_epsilon, check_instant
from fedprikl.errors import BudgetExceededError, InvalidInputError, LedgerDamagedError, LedgerError
from fedprikl.privacy.account import (
    LEDGER,
    Account,
    Accounts,
    LedgerRound,
    TimeInterval,
    worst_epsilon,
)
from fedprikl.privacy.charges import (
    Charge,
    Unit,
    charge_to_dict,
    check_zero_or_delta,
    unit_entry,
)
from fedprikl.store import TIMEOUT, Entry, Head, Store, locked, sync_folder

# Of a budget: ten releases of 0.1 fit into 1, whatever the order of the sum; and totals that were
# convolved by FFT differ by up to 2e-10 between processors (delta 1e-6). It is always the total
# that is compared, so this is never granted twice. Convolved totals are rounded up by more.
ROUNDING = 1e-9
NOTHING = 1e-4  # of a budget
STAYS = "the round was charged before and stays charged"


class Ledger(AbstractContextManager["Ledger"]):
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
    reservation carries one for the signed release) and pass it to `verify`.

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

    def __init__(self, store: Store, anchor: Head | None = None, timeout: float = TIMEOUT) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("Open a ledger by its path with `Ledger.open(path)`.")
        self._store, self._timeout = store, timeout
        self._seen = anchor  # the last head this process knows of
        self._under_way: set[str] = set()  # rounds that were reserved here and have not ended
        self._alive = ExitStack()  # the lock that says so to other processes

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = True,
        anchor: Head | None = None,
        timeout: float = TIMEOUT,
    ) -> Self:
        """Opens and verifies the ledger; a new file is readable and writable by its owner only.

        `timeout`: seconds to wait for other processes. `anchor`: a head known from before.
        """
        store = Store(Path(path), LEDGER, create=create, timeout=timeout)
        ledger = cls(store, anchor, timeout)
        try:
            ledger.verify()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Lets go of the file."""
        self._store.close()
        self._ended(*self._under_way)

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_budget(
        self, population: str, *, epsilon: float, delta: float, at: str, unit: Unit | None = None
    ) -> Account:
        """Sets, raises or lowers a budget; never to less than what is already spent.

        `unit` says whose budget it is: one "record"'s, or one "client"'s with all it holds. None
        leaves it as it is ("record" at first). Setting the same budget again changes nothing and
        writes nothing.
        """
        _check_name(population, "population")
        epsilon, delta = check_epsilon(epsilon), check_zero_or_delta(delta)
        check_instant(at)
        with self._store.writing():
            accounts = self._load()[1]
            known = accounts.account(population) if population in accounts.budgets else None
            whose = _whose(population, unit, known)
            spent = worst_epsilon(known.timed if known else [], delta=delta)
            if spent > epsilon * (1 + ROUNDING):
                raise InvalidInputError(
                    f"Population {population!r} has already spent epsilon {spent:.4g} (at delta "
                    f"{delta:g}); its budget cannot be set to {epsilon:g}. "
                    "What has been released cannot be taken back."
                )
            wanted = Account(population=population, epsilon=epsilon, delta=delta, unit=whose)
            if accounts.budgets.get(population) != wanted:
                body = {"event": "budget", "population": population, "at": at}
                self._store.append(body | {"epsilon": epsilon, "delta": delta} | unit_entry(whose))
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
        check_instant(at)
        with self._store.writing():
            body = self._load()[1].bound.bind(population, sources)
            head = self._store.append(body | {"at": at})
        self._seen = head

    def check(
        self,
        population: str,
        mechanism: Charge,
        *,
        times: TimeInterval | None = None,
        unit: Unit = "record",
        budget: tuple[float, float] | None = None,
    ) -> None:
        """Raises as `reserve` would if one more release does not fit; charges nothing.

        A later `reserve` may still be refused, as others may have reserved in between. `budget`: as
        if this epsilon and delta were set, also for a population that has none yet.
        """
        if budget is not None and population not in self.populations():
            account = Account(population=population, epsilon=0.0, delta=0.0, unit=unit)
        else:
            account = self.account(population)
        if budget is not None:
            account = replace(account, epsilon=budget[0], delta=budget[1])
        account.check_protects(unit)
        needed = _total_with(account, mechanism, times)
        if not _fits(account, needed):
            raise _exceeded(account, mechanism, needed, self._store.path)

    def reserve(
        self,
        population: str,
        mechanism: Charge,
        *,
        round_id: str,
        at: str,
        note: str = "",
        times: TimeInterval | None = None,
        unit: Unit = "record",
    ) -> LedgerRound:
        """Charges one round before anything is released; durable when this returns.

        `times`: the round counts only records of these times, and every record has one time.
        Rounds about disjoint times do not add up: the budget is that of one record. `unit`: whom
        the charge protects. A client is in every period, so its charge has no time interval.

        A round id is charged once for ever, even if cancelled. Raises BudgetExceededError, with
        nothing charged, if the total would exceed the budget.
        """
        check_instant(at)
        body = {
            "event": "reserve",
            "population": _check_name(population, "population"),
            "round": _check_name(round_id, "round id"),
            "mechanism": charge_to_dict(mechanism),
            "at": at,
            "note": _check_words(note, "note"),
        }
        body |= unit_entry(unit)
        if times is not None:
            if unit == "client":
                raise InvalidInputError(
                    "A charge for whole clients has no time interval: it adds up."
                )
            body["span"] = [times.start, times.end, times.clock]
        made: LedgerRound | None = None
        try:
            self._begun(round_id)
            with self._store.writing():
                accounts = self._load()[1]
                account = accounts.account(population)
                if round_id in accounts.rounds:
                    raise InvalidInputError(
                        f"Round {round_id!r} has already been charged, and a round is charged only "
                        "once. Nothing was charged now; use a new round id for a new release."
                    )
                account.check_protects(unit)
                needed = _total_with(account, mechanism, times)
                if _fits(account, needed):
                    head = self._store.append(body)
                    accounts.apply(Entry(head.count, body, head.hash))
                    made = accounts.rounds[round_id]
        finally:
            if made is None:
                self._ended(round_id)
        if made is None:
            raise _exceeded(account, mechanism, needed, self._store.path)
        self._seen = made.head
        return made

    def keep_noised(self, reservation: LedgerRound, document: bytes, *, at: str) -> None:
        """Keeps the numbers of a round after their noise; durable when this returns.

        Once, and of a round that is charged. From now on it cannot be cancelled. `commit` drops the
        document again: by then the release is kept elsewhere.
        """
        check_instant(at)
        body = {"event": "noised", "round": reservation.round_id, "at": at}
        with self._store.writing(f"{STAYS}, and its numbers were not kept: nothing was released"):
            if self._load()[1].open_round(reservation.round_id).noised is not None:
                raise InvalidInputError(
                    f"Round {reservation.round_id!r} has its noise already: it is drawn once."
                )
            body |= {"document": self._store.keep_document(document)}
            head = self._store.append(body)
        self._seen = head

    @contextlib.contextmanager
    def unfinished(self, population: str) -> Iterator[dict[str, bytes]]:
        """What was kept of rounds that are charged and not committed, by round id, oldest first.

        Their processes have died: it waits while a round of this ledger is under way in another
        one, and none is reserved until this ends.
        """
        if not self._kept_of(population):
            yield {}
            return
        self._ended(*self._under_way)  # those of this object: nobody is at work on them
        path = self._store.path
        with locked(path, timeout=self._timeout, error=LedgerError) as alone:
            if not alone:
                raise LedgerError(
                    f"Another process is in the middle of a round of {path}, and one that was "
                    "charged before is not finished. Nothing was charged now; try again when that "
                    "round is over."
                )
            yield self._kept_of(population)

    def _kept_of(self, population: str) -> dict[str, bytes]:
        with self._store.reading():
            kept = {
                each.round_id: self._store.document(each.noised)
                for each in self._load()[1].rounds.values()
                if each.population == population and each.is_open and each.noised is not None
            }
        return {name: body for name, body in kept.items() if body is not None}

    def commit(self, reservation: LedgerRound, *, release_hash: str, at: str) -> Head:
        """Records that the release left, with its SHA-256; the ledger's new head."""
        if not isinstance(release_hash, str) or not re.fullmatch("[0-9a-f]{64}", release_hash):
            raise InvalidInputError(
                f"A release hash is SHA-256 in 64 lower-case digits 0-9a-f, got {release_hash!r}."
            )
        return self._close_round(reservation, "commit", at=at, release_hash=release_hash)

    def cancel(self, reservation: LedgerRound, *, reason: str, at: str) -> Head:
        """Gives the charge back. Only if nothing derived from the data can have left.

        Not for a crash of which nobody knows how far it came: leave that one charged.
        """
        if not reason:
            raise InvalidInputError("A cancellation needs a reason: say why nothing has left.")
        return self._close_round(
            reservation, "cancel", at=at, reason=_check_words(reason, "reason")
        )

    def _close_round(self, reservation: LedgerRound, event: str, *, at: str, **more: str) -> Head:
        check_instant(at)
        body = {"event": event, "round": reservation.round_id, "at": at} | more
        with self._store.writing(f"{STAYS}, and that it is over was not written"):
            noised = self._load()[1].open_round(reservation.round_id).noised
            if noised is not None and event == "cancel":
                raise InvalidInputError(
                    f"Round {reservation.round_id!r} has its noised numbers: they may have left. "
                    "Its charge is never given back."
                )
            head = self._store.append(body)
            if noised is not None:
                self._store.drop_document(noised)
        self._seen = head
        self._ended(reservation.round_id)
        return head

    def reservation(self, round_id: str) -> LedgerRound:
        """The reservation of a round that is still open, after a restart."""
        return self._read()[1].open_round(round_id)

    def account(self, population: str) -> Account:
        """Budget, rounds, spent and left of one population."""
        return self._read()[1].account(population)

    def accounts(self) -> tuple[Account, ...]:
        """Every population, by name, as of one instant."""
        found = self._read()[1]
        return tuple(map(found.account, sorted(found.budgets)))

    def populations(self) -> tuple[str, ...]:
        """Names of all populations with a budget, sorted."""
        return tuple(sorted(self._read()[1].budgets))

    def entries(self) -> tuple[Entry, ...]:
        """Everything ever written, in order."""
        return tuple(self._read()[0])

    @property
    def head(self) -> Head:
        """Number of entries and hash of the last: fixes the whole history if kept elsewhere."""
        return self.verify()

    def verify(self, anchor: Head | None = None) -> Head:
        """The head, if the chain is whole and contains `anchor`; LedgerDamagedError if not."""
        return LEDGER.head_of(self._read(anchor)[0])

    def _read(self, anchor: Head | None = None) -> tuple[list[Entry], Accounts]:
        with self._store.reading():
            if anchor is not None:
                self._store.entries(anchor)
            return self._load()

    def _load(self) -> tuple[list[Entry], Accounts]:
        """Inside a transaction: all entries, verified, also against what was seen before."""
        entries, accounts = self._store.entries(self._seen), Accounts()
        self._store.replay(entries, accounts.apply)
        self._seen = LEDGER.head_of(entries)
        return entries, accounts

    def _begun(self, round_id: str) -> None:
        """Says to other processes that a round is under way here; the lock ends with the process.

        Waits while another process finishes a round that was left behind.
        """
        if not self._under_way:
            self._alive.enter_context(locked(self._store.path, shared=True, error=LedgerError))
        self._under_way.add(round_id)

    def _ended(self, *rounds: str) -> None:
        self._under_way.difference_update(rounds)
        if not self._under_way:
            self._alive.close()


def _whose(population: str, unit: Unit | None, known: Account | None) -> Unit:
    """Whose budget it is to be; a promise to clients is neither made too late nor taken back."""
    if unit is None:
        return "record" if known is None else known.unit
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


def _total_with(account: Account, mechanism: Charge, times: TimeInterval | None) -> float:
    """What records of these times have lost after one more release."""
    overlapping = [
        (charge, known) for charge, known in account.timed if times is None or times.overlaps(known)
    ]
    return worst_epsilon([*overlapping, (mechanism, times)], delta=account.delta)


def _fits(account: Account, needed: float) -> bool:
    return needed <= account.epsilon * (1 + ROUNDING)


def left_words(account: Account) -> str:
    """What is left, for people: a ten-thousandth of the budget is nothing."""
    left = account.left
    return f"{left:.4g}" if left > NOTHING * account.epsilon else "0"


def worthwhile(fits: Mapping[str, float], account: Account) -> dict[str, float]:
    """Of what would still fit, what is worth a word: a thousandth of the budget or more.

    Where nothing is left, a hundredth: no more would be told beside that.
    """
    least = (1e-3 if account.left > NOTHING * account.epsilon else 1e-2) * account.epsilon
    return {kind: epsilon for kind, epsilon in fits.items() if epsilon > least}


def budget_command(path: Path, population: str, epsilon: float | str) -> str:
    """The command that sets a budget in this very ledger.

    >>> budget_command(Path("aggregator/ledger.db"), "my sites", 3)
    "fedprikl ledger --ledger aggregator/ledger.db --population 'my sites' --set-epsilon 3"
    """
    file, name = shlex.quote(str(path)), shlex.quote(population)
    return f"fedprikl ledger --ledger {file} --population {name} --set-epsilon {epsilon}"


def _exceeded(
    account: Account, mechanism: Charge, needed: float, path: Path
) -> BudgetExceededError:
    """Computed after the lock was let go: the search takes a second."""
    spent, fits = account.spent, account.fits()
    room = " or ".join(
        f"{epsilon:g} with {kind.capitalize()} noise"
        for kind, epsilon in worthwhile(fits, account).items()
    )
    raised = ""
    if math.isfinite(needed):
        enough = f"{math.ceil(needed * 1e4 * (1 - ROUNDING)) / 1e4:.10g}"
        raised = (
            " If these people may lose more, raise their budget: "
            f"`{budget_command(path, account.population, enough)}`."
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
    if not _check_words(value, what, longest=200).strip():
        raise InvalidInputError(f"The {what} must be a name, got {value!r}.")
    return value


def _check_words(value: str, what: str, longest: int = 1000) -> str:
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise InvalidInputError(
            f"The {what} must be one line of at most {longest} printable characters."
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
    with Store(ledger, LEDGER, create=False, timeout=TIMEOUT) as source, source.writing():
        return _copy(source, copy)


def restore_ledger(copy: Path, ledger: Path) -> Head:
    """Puts a copy where the ledger belongs; the head of what is there then.

    A ledger that is there must be whole, and the copy must contain all of it. A damaged one has to
    be moved away by hand, by somebody who knows what was released since the copy was made.
    """
    with Store(copy, LEDGER, create=False) as source, source.reading():
        if not ledger.exists():
            return _copy(source, ledger)
        with Store(ledger, LEDGER, create=False, timeout=TIMEOUT) as present, present.writing():
            return _transfer(source, present)


def _transfer(source: Store, target: Store) -> Head:
    """Appends what is missing, so that a process that has the target open sees it.

    Noised numbers of rounds that are still open come along; those of closed rounds go.
    """
    entries, present = source.entries(), LEDGER.head_of(target.entries())
    try:
        source.entries(anchor=present)
    except LedgerDamagedError:
        raise LedgerError(
            f"{source.path} does not contain all {present.count} entries of {target.path}: it is "
            "older, or of another ledger. What was charged since would be forgotten. Nothing was "
            "changed."
        ) from None
    for entry in entries[present.count :]:
        target.append(entry.body)
    accounts = Accounts()
    target.replay(target.entries(LEDGER.head_of(entries)), accounts.apply)
    for each in accounts.rounds.values():
        if each.noised is not None:
            held = target.document(each.noised) or source.document(each.noised)
            target.drop_document(each.noised)
            if held is not None and each.is_open:
                target.keep_document(held)
    return LEDGER.head_of(entries)


def _copy(source: Store, path: Path) -> Head:
    """Writes and verifies the copy under another name; replaces nothing."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            made = Path(folder, path.name)
            with Store(made, LEDGER) as target, target.writing():
                head = _transfer(source, target)
            os.link(made, path)
        sync_folder(path.parent)
    except FileExistsError:
        raise LedgerError(f"{path} exists. Choose a new name; nothing was written.") from None
    except OSError as error:
        raise LedgerError(f"Cannot write {path}: {error.strerror}. Nothing was written.") from None
    return head
