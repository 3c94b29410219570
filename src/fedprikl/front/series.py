"""The front door to a series: do what is due, and say how the series stands."""

import gc
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path

import numpy as np

from fedprikl.errors import (
    FedPriKLError,
    HistoryError,
    HookError,
    InvalidInputError,
    LedgerError,
    ReleaseRefused,
)
from fedprikl.front.bookkeeping import newest_ledger, places
from fedprikl.front.checking import AnyPlan, Progress, check_plan, now, signed_plan, silent
from fedprikl.front.local_parties import LocalParties
from fedprikl.monitoring.counted_records import (
    CountedRegistry,
    days_of_period,
    records_between,
    times_between,
)
from fedprikl.monitoring.history import History, SeriesHistory, is_begun, is_of_servers
from fedprikl.monitoring.notifications import Hook, notifications
from fedprikl.monitoring.periods import broken_status, run_due, status_of
from fedprikl.monitoring.status import SeriesStatus
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.privacy.account import LedgerRound
from fedprikl.protocol import (
    NoisedRound,
    Plan,
    Policy,
    Release,
    Round,
    RoundResult,
    Series,
    SignedPlan,
    SigningKey,
    finish_round,
)
from fedprikl.protocol.release import ReleasedPeriod
from fedprikl.records import CsvFormat, Days, NoClient, Place, RecordCounts
from fedprikl.reference import Reference
from fedprikl.store import locked

LOST = (
    "its process ended between the charge and the noise, so what it counted is lost; the budget of "
    "these records is spent"
)
UNANSWERED = "the servers had not answered it when they answered a later one"
EMPTY = "no client holds a record of it; nothing was charged"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalSeries:
    """Counts the periods of a series from one file or folder per client, or from one table."""

    parties: LocalParties
    clients: Place
    ledger: Path
    counted: Path  # the registry of counted records
    client: str | None = None  # of one table: its column with the ids of clients
    no_client: NoClient = "refuse"

    @property
    def series(self) -> Series:
        """Of the plan."""
        return self.parties.plan.series

    def recover(self, history: History, *, at: str) -> None:
        """Rounds that opened nothing are void; of others, what is kept is finished, the rest lost.

        Whether a sum was opened the ledger knows: the budget is reserved before.
        """
        found, registry = history.read(), CountedRegistry(self.counted)
        if not self.ledger.exists():
            if found.kept or found.begun:
                raise HistoryError(
                    f"There is no ledger {self.ledger}, and the history is charged to one. Bring "
                    "it back, or name it with --ledger."
                )
            return
        with newest_ledger(self.ledger, self.parties.key.public) as book:
            check_charged(book, history, self.ledger)
            rounds = {each.round_id: each.state for each in _rounds(book, found.plan)}
            for kept in found.kept.values():
                if rounds.get(kept.round_id) == "open":
                    held = book.reservation(kept.round_id)
                    book.commit(held, release_hash=kept.release, at=at)
            for round_id, period in found.begun.items():
                self._finish(book, history, period, round_id, at)
        found = history.read()
        for round_id, period in found.begun.items():
            if rounds.get(round_id) == "open":
                history.miss(period, LOST, at=at)
            else:  # not a committed one: `check_charged` refused it
                registry.forget(round_id)
                history.void(period, round_id, at=at)
        self._check_registry(history, registry)

    def _finish(self, book: Ledger, history: History, period: int, round_id: str, at: str) -> None:
        """Ends a round that has its noise: its release follows from what the ledger kept."""

        def keep(kept: NoisedRound, release: Release) -> None:
            history.keep(release.to_bytes(), asked=kept.asked, answered=kept.counted, at=at)
            self.parties.note(
                f"The release of period {period} was charged at {kept.at}, and its process ended "
                "before it was kept. It is finished from its kept numbers: nothing was charged."
            )

        finish_round(
            book,
            self.parties.plan,
            self.parties.reference,
            key=lambda: self.parties.key,
            at=at,
            period=period,
            round_id=round_id,
            keep=keep,
        )

    def _check_registry(self, history: History, registry: CountedRegistry) -> None:
        """Refuses a registry of counted records that is older than the history, or newer."""
        found = history.read()
        known = registry.rounds(self.parties.plan)
        lost = [kept.period for kept in found.kept.values() if kept.round_id not in known]
        if lost:
            raise HistoryError(
                f"The registry of counted records {self.counted} does not know that period "
                f"{lost[0]} was counted: it is an older copy, or of other clients. Records could "
                "be counted again. Bring the newer one back."
            )
        strange = sorted(set(known.values()) - found.kept.keys() - found.missed.keys())
        if strange:
            raise HistoryError(
                f"The registry of counted records {self.counted} says that period {strange[0]} "
                "was counted, and the history does not know it: the history is an older copy, or "
                "of another series of this population. Bring the newer one back."
            )

    def run(self, history: History, number: int, *, previous: str, at: str) -> None:
        """Counts one period and keeps its release.

        A period without records is not opened: N = 0 is public. It is missed if later records are
        there. If none are, it stays due: they may still arrive, or the clock is ahead.
        """
        parties, registry = self.parties, CountedRegistry(self.counted)
        check_plan(parties.signed, parties.policy, at)
        days, period = days_of_period(self.series, number), self.series.counted_by(number)
        files = self._files(days)
        counted = self._count(files, period.start, period.end)
        empty = not any(found.total for found in counted.values())
        if empty or self.series.window > 1:
            self._check_newest(files, number, at)
        if empty:
            history.miss(number, EMPTY, at=at)
            return
        try:
            members, _ = parties.members(counted, number)
        except ReleaseRefused as refused:  # final, like the release of a period; nothing is claimed
            history.miss(number, str(refused), at=at)
            return
        claims = files if self.client else {name: files[name] for name in members}
        opened: list[str] = []

        def keep(found: RoundResult) -> None:
            message = found.release.to_bytes()
            asked, answered = (files, files) if self.client else (members, found.counted)
            history.keep(message, asked=asked, answered=answered, at=at)

        def begin(current: Round) -> None:
            opened.append(current.round_id)
            history.begin(number, current.round_id, at=at)
            registry.claim(parties.plan, number, current.round_id, claims)

        with newest_ledger(self.ledger, parties.key.public) as book:
            trial = parties.server.open_round(
                sorted(members), rng=np.random.default_rng(), randomness=os.urandom, period=number
            )
            bound = {place: "" for path in files.values() for place in places(path, days)}
            parties.open_account(book, trial, bound, at=at)
            try:
                parties.run(
                    members,
                    book,
                    at=at,
                    rng=np.random.default_rng(),
                    period=number,
                    previous=previous,
                    no_client=self.no_client if self.client else "",
                    begin=begin,
                    keep=keep,
                )
            except ReleaseRefused as refused:
                self._settle(history, registry, book, number, opened[-1], str(refused), at)

    def _settle(
        self,
        history: History,
        registry: CountedRegistry,
        book: Ledger,
        number: int,
        round_id: str,
        reason: str,
        at: str,
    ) -> None:
        """After a round without a release: it is void if nothing was opened, else missed."""
        states = {each.round_id: each.state for each in _rounds(book, self.parties.plan)}
        if states.get(round_id) == "open":
            history.miss(number, reason, at=at)
            return
        registry.forget(round_id)
        history.void(number, round_id, at=at)
        raise ReleaseRefused(f"Period {number} is still due. {reason}")

    def _files(self, days: Days | None) -> dict[str, Place]:
        """Where the clients' records are; notes who is left out."""
        if self.client:
            return {"the table": self.clients}
        used = self.parties.find(self.clients, days).used
        return {name: place for name, place in used.items() if isinstance(place, Place)}

    def _count(
        self, files: Mapping[str, Place], start: datetime, end: datetime
    ) -> dict[str, RecordCounts]:
        """What the clients hold from one limit of periods up to another."""
        series, parties = self.series, self.parties
        if self.client:
            times = times_between(series, start, end)
            found = parties.split(self.clients, self.client, self.no_client, times)
            return found.counted or {}
        form, drawn = parties.form, parties.drawn
        return parties.count(
            {
                name: records_between(series, start, end, place, form, drawn=drawn)
                for name, place in files.items()
            }
        )

    def _check_newest(self, files: Mapping[str, Place], number: int, at: str) -> None:
        """Refuses a period if no client holds a record of it or of a later one."""
        begins = self.series.period(number).start
        later = self._count(files, begins, self.series.end)
        if not any(found.total for found in later.values()):
            raise ReleaseRefused(
                f"Period {number} is still due: no client holds a record from {begins:%Y-%m-%d} "
                f"on, where it begins. Either the records have not arrived yet, or the clock of "
                f"this machine is ahead: it says {at}. Nothing of period {number} was counted "
                "or charged."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSeries:
    """A series that three servers answer. Their releases lie in a folder; here is the history."""

    plan: Plan
    releases: Path

    def recover(self, history: History, *, at: str) -> None:
        """Nothing to settle here: the servers charge and release by themselves."""

    def run(self, history: History, number: int, *, previous: str, at: str) -> None:  # noqa: ARG002
        """Keeps the release of a period; notes that it is missed if only later ones were answered.

        Not if the next release names the one before it: that was made, and is not here.
        """
        found = {place.number: (place, release) for place, release in self._found()}
        if number in found:
            history.keep(found[number][1].to_bytes(), asked=(), answered=(), at=at)
            return
        after = min((each for each in found if each > number), default=None)
        is_named = after == number + 1 and bool(found[after][0].previous)
        if after is not None and not is_named:
            history.miss(number, UNANSWERED, at=at)
            return
        raise ReleaseRefused(
            f"{self.releases} has no release of period {number}. The servers make it together: "
            "`fedprikl server answer`. Then bring it into this folder, beside those before it."
        )

    def _found(self) -> Iterator[tuple[ReleasedPeriod, Release]]:
        """What the servers of the plan signed; anything else in the folder is passed over."""
        for path in sorted(self.releases.glob("*.json")):
            with suppress(FedPriKLError):
                release = Release.load(path)
                genuine = release.has_signers_of(self.plan) and release.is_about(self.plan)
                if genuine and release.period is not None:
                    yield release.period, release


def check_charged(book: Ledger, history: History, path: Path) -> None:
    """Refuses a ledger that is older than the last release, and a history that lacks a charge.

    Or that lacks a release which the ledger has closed: it is kept before.
    """
    rounds = _rounds(book, history.read().plan)
    found = history.read()  # after the ledger: a round may be under way
    if found.last is not None:
        (release,) = history.releases([found.last.period]).values()
        if release.ledger is not None:
            book.verify(release.ledger)
    kept = {each.round_id: each.release for each in found.kept.values()}
    for each in rounds:
        released = each.round_id in found.rounds and each.state == "committed"
        if released and kept.get(each.round_id) != each.release_hash:
            raise HistoryError(
                f"The ledger {path} says that period {found.rounds[each.round_id]} was released, "
                "and the history does not know it, or another release: it is an older copy, or was "
                "changed. Bring the newer one back."
            )
    unknown = [
        found.plan.charged_periods(each)
        for each in rounds
        if each.charged and each.round_id not in found.rounds
    ]
    numbers = sorted(set(chain.from_iterable(unknown)))
    if numbers:
        many = f"period {numbers[0]}"
        if numbers[1:]:
            many = f"{len(numbers)} periods, {numbers[0]} to {numbers[-1]},"
        end = found.plan.series.period(numbers[-1]).end
        raise HistoryError(
            f"The ledger {path} has charged {many} of {found.plan.population!r}, and the history "
            "does not know it: the history is an older copy, or a second one beside the same "
            "ledger. Nothing was counted. Bring the newer history back, or name it with --history. "
            f"If it is lost, plan a series that begins on {end:%Y-%m-%d} or later."
        )


def _rounds(book: Ledger, plan: Plan) -> tuple[LedgerRound, ...]:
    """Of the plan's population, whatever became of them."""
    known = plan.population in book.populations()
    return book.account(plan.population).rounds if known else ()


USUAL = Policy()


def monitor(
    reference: Reference | str | Path,
    clients: str | Place,
    plan: AnyPlan,
    *,
    history: str | Path = "history.db",
    ledger: str | Path = "ledger.db",
    counted: str | Path | None = None,
    key: SigningKey | str | Path = "aggregator.pem",
    client: str | None = None,
    no_client: NoClient = "refuse",
    csv_format: CsvFormat | None = None,
    skip_bad_files: bool = False,
    largest_epsilon: float = USUAL.largest_epsilon,
    largest_delta: float = USUAL.largest_delta,
    at: str | None = None,
    source: NoiseSource = SECURE_NOISE,
    progress: Progress = silent,
    note: Callable[[str], None] = lambda _: None,
    after: Callable[[SeriesStatus], None] | None = None,
) -> SeriesStatus:
    r"""Counts every period of a series that is over and not yet counted; how the series stands.

    It may be called at any time, again and again, after a crash, by two processes at once: what is
    done is not done again. The same as `fedprikl monitor`.

    Parameters
    ----------
    reference, plan
        Pi, and a plan with a series, as `fedprikl.plan(series=...)` makes it.
    clients
        A folder with one file or folder per client. Files may grow, and new ones be added. Where
        names tell the period, a folder of each client with files or folders named after periods,
        or folders named after periods with a file or folder of each client. With `client`: one
        table with the records of all clients, a file or a `fedprikl.records.DatabaseTable`. All
        ids of the table take part in every period.
    history, ledger, counted
        Three files that belong together: all releases and what happened; what was spent; which
        records were counted (default: `counted.db` beside the history).
    key
        The key that signs the releases, or its path (made if it is missing).
    at
        The time now, ISO 8601 with an offset; default: that of this machine.
    client, no_client, csv_format, skip_bad_files, largest_epsilon, largest_delta
        As in `fedprikl.compare`; with `client` the plan names a time column.
    source, progress, note
        As in `fedprikl.compare`.
    after
        Is told how the series stands, before the first period that is due and after each. The
        history is locked meanwhile.

    Examples
    --------
    >>> import tempfile
    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([600, 300, 100])
    >>> weeks = fk.Series(every="week", first="2027-01-04", periods=52, time_column="day")
    >>> planned = fk.plan(reference, clients=3, records=300, epsilon=1, series=weeks)
    >>> folder = tempfile.TemporaryDirectory()
    >>> clients = Path(folder.name, "clients")
    >>> clients.mkdir()
    >>> for name in ("a.csv", "b.csv", "c.csv"):
    ...     rows = 60 * ["2027-01-05,0"] + 30 * ["2027-01-06,1"] + 10 * ["2027-01-08,2"]
    ...     _ = (clients / name).write_text("\n".join(["day,cell", *rows, ""]))
    >>> status = fk.monitor(
    ...     reference,
    ...     clients,
    ...     planned,
    ...     history=f"{folder.name}/history.db",
    ...     ledger=f"{folder.name}/ledger.db",
    ...     key=fk.SigningKey.generate(),
    ...     at="2027-01-12T06:00:00+00:00",
    ... )
    >>> [(point.number, point.state, point.records) for point in status.points]
    [(0, 'released', 300), (1, 'ahead', 0)]
    >>> status.open_alarms, status.next_due
    ((), '2027-01-18T00:00:00+00:00')
    >>> folder.cleanup()

    """
    when, place = at or now(), Path(history)
    parties = LocalParties(
        signed=signed_plan(plan),
        reference=Reference.of(reference),
        policy=Policy(largest_epsilon=largest_epsilon, largest_delta=largest_delta),
        signer=key,
        form=csv_format or CsvFormat(),
        skip_bad_files=skip_bad_files,
        source=source,
        progress=progress,
        note=note,
    )
    signed = parties.signed
    signed.plan.series  # noqa: B018  refuses a plan for one release
    parties.server  # noqa: B018  refuses another reference than that of the plan
    signed.plan.validity.includes(when)  # refuses what is not a time
    if client and not signed.plan.series.time_column:
        raise InvalidInputError(
            "The plan tells periods by names of files, and one table has none. Plan with "
            "--time-column (in Python: time_column)."
        )
    if not place.exists():  # a history is bound to its plan: better none than one of a bad plan
        check_plan(signed, parties.policy, when)
    runner = LocalSeries(
        parties=parties,
        clients=Path(clients) if isinstance(clients, str) else clients,
        client=client,
        no_client=no_client,
        ledger=Path(ledger),
        counted=place.with_name("counted.db") if counted is None else Path(counted),
    )
    signer = parties.key

    def tell() -> None:
        if after is not None:
            after(read_status(place, ledger, at=when))

    run_due(
        place,
        signed,
        parties.reference,
        runner,
        signer=signer.public,
        at=when,
        note=note,
        after=tell,
    )
    if not is_begun(place):  # another process is at work on its first period
        return status_of(SeriesHistory(signed, signer.public), None, at=when)
    return read_status(place, ledger, at=when)


def read_status(
    history: str | Path, ledger: str | Path | None = None, *, at: str | None = None
) -> SeriesStatus:
    """How a series stands, from its history; nothing is counted. The budget needs the ledger."""
    with _no_collector():
        with History.open(history, create=False) as opened:
            found = opened.read()
        account = None
        if ledger is not None and Path(ledger).exists():
            with Ledger.open(ledger, create=False) as book:
                if found.plan.population in book.populations():
                    account = book.account(found.plan.population)
        return status_of(found, account, at=at or now())


def verify_history(history: Path, ledger: Path) -> str:
    """Checks a history, against the ledger too if there is one; what was found, in words.

    Releases of an aggregator name the one before, so that none is missing among them. That the last
    ones were cut off, only a ledger tells that was charged for them.
    """
    with History.open(history, create=False) as opened:
        releases, last = opened.verify(), opened.read().last
        served = is_of_servers(opened.read().plan)  # whose releases need not name the one before
        signed = "each signed by the servers" if served else "each signed, none missing"
        found = f"{releases:,} releases, {signed}: {history}"
        if ledger.exists():
            with Ledger.open(ledger, create=False) as book:
                check_charged(book, opened, ledger)
                if opened.read().plan.population in book.populations():
                    return f"{found}. The ledger {ledger} has charged no others."
    until = "" if last is None else f" up to period {last.period}"
    return (
        f"{found}{until}. Whether later ones were cut off cannot be told: there is no ledger that "
        "was charged for them. Give a copy of the aggregator's, or of a server's, with --ledger."
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    """A third less time for what makes many small objects, none of which refers to itself."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@dataclass(frozen=True, slots=True)
class HistorySource:
    """A history, as a dashboard reads it: anew whenever it is asked."""

    history: Path
    ledger: Path | None
    signed: SignedPlan

    @property
    def plan(self) -> Plan:
        """The plan of the series."""
        return self.signed.plan

    def status(self) -> SeriesStatus:
        """The series as it stands now; a history that cannot be read is a fault of it."""
        try:
            found = read_status(self.history, self.ledger)
        except (HistoryError, LedgerError) as error:
            return broken_status(self.plan, str(error), at=now())
        if found.plan != self.plan.fingerprint:
            words = f"{self.history} is the history of another plan."
            return broken_status(self.plan, words, at=now())
        return found

    def release(self, number: int) -> bytes | None:
        """The release of a period, as it was signed; None if there is none."""
        with History.open(self.history, create=False) as opened:
            kept = opened.read().kept.get(number)
            return None if kept is None else opened.document(kept)


def deliver_notifications(
    history: Path, status: SeriesStatus, hooks: Mapping[str, Hook], *, at: str
) -> dict[str, str]:
    """Delivers what each hook has not had yet; by hook, what could not be delivered, in words.

    A process that dies between delivery and the note of it delivers once more: a
    notification has an identity, by which a receiver knows it again.
    """
    if not hooks:
        return {}
    with locked(history, timeout=0, error=HistoryError) as alone:
        return deliver_locked(history, status, hooks, at=at) if alone else {}  # the other one does


def deliver_locked(
    history: Path, status: SeriesStatus, hooks: Mapping[str, Hook], *, at: str
) -> dict[str, str]:
    """The same, for a process that is alone at work on the history already."""
    failed: dict[str, str] = {}
    with History.open(history, create=False) as opened:
        delivered = opened.read().delivered
        for name, hook in hooks.items():
            for each in notifications(status):
                if (each.identity, name) in delivered:
                    continue
                try:
                    hook(each)
                except HookError as error:
                    failed[name] = str(error)
                    break  # in order: later ones wait for the next call
                opened.deliver(each.identity, name, at=at)
    return failed
