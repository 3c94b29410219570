"""The front door to a series: do what is due, and say how the series stands."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedprikl.errors import HistoryError, HookError, LedgerError
from fedprikl.front.local_parties import LocalParties
from fedprikl.front.local_series import LocalSeries, check_charged
from fedprikl.front.plan_checks import AnyPlan, Progress, check_plan, now, signed_plan, silent
from fedprikl.monitoring.history import History, SeriesHistory, is_begun
from fedprikl.monitoring.notifications import Hook, notifications
from fedprikl.monitoring.periods import broken_status, run_due, status_of
from fedprikl.monitoring.status import SeriesStatus
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol import Plan, Policy, SignedPlan, SigningKey
from fedprikl.records import CsvFormat
from fedprikl.reference import Reference
from fedprikl.store import locked

USUAL = Policy()


def monitor(
    reference: Reference | str | Path,
    clients: str | Path,
    plan: AnyPlan,
    *,
    history: str | Path = "history.db",
    ledger: str | Path = "ledger.db",
    counted: str | Path | None = None,
    key: SigningKey | str | Path = "aggregator.pem",
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
        or folders named after periods with a file or folder of each client.
    history, ledger, counted
        Three files that belong together: all releases and what happened; what was spent; which
        records were counted (default: `counted.db` beside the history).
    key
        The key that signs the releases, or its path (made if it is missing).
    at
        The time now, ISO 8601 with an offset; default: that of this machine.
    csv_format, skip_bad_files, largest_epsilon, largest_delta, source, progress, note
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
    if not place.exists():  # a history is bound to its plan: better none than one of a bad plan
        check_plan(signed, parties.policy, when)
    runner = LocalSeries(
        parties=parties,
        clients=Path(clients),
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

    Releases name the one before, so that none is missing among them. That the last ones were cut
    off, only a ledger tells that was charged for them.
    """
    with History.open(history, create=False) as opened:
        releases, last = opened.verify(), opened.read().last
        found = f"{releases:,} releases, each signed, none missing: {history}"
        if ledger.exists():
            with Ledger.open(ledger, create=False) as book:
                check_charged(book, opened, ledger)
                if opened.read().plan.population in book.populations():
                    return f"{found}. The ledger {ledger} has charged no others."
    until = "" if last is None else f" up to period {last.period}"
    return (
        f"{found}{until}. Whether later ones were cut off cannot be told: there is no ledger that "
        "was charged for them. Give a copy of the aggregator's with --ledger."
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
