"""The history of a series: every release and everything that happened, in one SQLite file.

Entries are only ever appended and form a chain of hashes, as in a ledger. The releases themselves
lie beside them, each known to its entry by SHA-256; each is signed by the aggregator and names the
release before it. What was found about a period is kept with it, so that a page of many years is
read and not computed; anybody with the reference can compute it again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from fedprikl.documents import read_fields, to_plain
from fedprikl.errors import HistoryDamagedError, HistoryError
from fedprikl.monitoring.alarms import Acknowledgement
from fedprikl.protocol import Plan, Release, SignedPlan
from fedprikl.store import TIMEOUT, Entry, Store, StoreKind

HISTORY = StoreKind(
    name="history",
    application=0x66706B68,  # "fpkh"
    error=HistoryError,
    damaged=HistoryDamagedError,
    advice="The history is damaged. Restore a copy of it; nothing was counted.",
    unwritten="nothing was written",
    half_written="Try again once the disk works.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRelease:
    """A release in the history."""

    period: int
    round_id: str
    release: str  # fingerprint
    document: str  # SHA-256 of its bytes
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    at: str


@dataclass(slots=True)
class SeriesHistory:
    """What the entries of a history say, one after the other."""

    signed: SignedPlan
    signer: str  # the aggregator's public key
    kept: dict[int, KeptRelease] = field(default_factory=dict)  # by period
    missed: dict[int, str] = field(default_factory=dict)  # by period, with the reason
    begun: dict[str, int] = field(default_factory=dict)  # rounds that never ended -> period
    judged: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by period
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    rebaselined: list[tuple[int, int]] = field(default_factory=list)  # first and last period
    delivered: set[tuple[str, str]] = field(default_factory=set)  # notifications, and by which hook
    rounds: dict[str, int] = field(default_factory=dict)  # all it ever heard of -> period

    @property
    def plan(self) -> Plan:
        """Of the series."""
        return self.signed.plan

    @property
    def last(self) -> KeptRelease | None:
        """The last release."""
        return self.kept[max(self.kept)] if self.kept else None

    def due(self, at: str) -> list[int]:
        """Periods that are over and of which nothing is known, in order."""
        known = self.kept.keys() | self.missed.keys()
        return [n for n in range(self.plan.series.last_over(at) + 1) if n not in known]

    def apply(self, entry: Entry) -> None:
        """One entry after the first; an error if this software would never have written it."""
        body = entry.body
        if "round_id" in body:
            self.rounds[_checked(body["round_id"], str)] = self._period(body["period"])
        match body["event"]:
            case "begin":
                self.begun[body["round_id"]] = body["period"]
            case "void":
                del self.begun[body["round_id"]]
            case "release":
                self._keep(read_fields(KeptRelease, dict(body)))
            case "missed":
                self._miss(self._period(body["period"]), _checked(body["reason"], str))
            case "judged":
                self.judged[self._period(body["period"])] = _checked(body["found"], dict)
            case "acknowledge":
                self.acknowledged.append(read_fields(Acknowledgement, dict(body)))
            case "rebaseline":
                self.rebaselined.append((self._period(body["first"]), self._period(body["last"])))
            case "delivered":
                self.delivered.add(
                    (_checked(body["notification"], str), _checked(body["hook"], str))
                )
            case _:
                raise ValueError

    def _period(self, number: Any) -> int:
        if type(number) is not int or not 0 <= number < self.plan.series.periods:
            raise ValueError
        return number

    def _keep(self, kept: KeptRelease) -> None:
        if kept.period <= max(self.kept, default=-1) or kept.period in self.missed:  # in order
            raise ValueError
        self.begun.pop(kept.round_id, None)
        self.kept[kept.period] = kept

    def _miss(self, period: int, reason: str) -> None:
        if period in self.kept or period in self.missed:
            raise ValueError
        self.missed[period] = reason
        self.begun = {name: of for name, of in self.begun.items() if of != period}


Kind = TypeVar("Kind")


def _checked(value: Any, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise TypeError
    return value


class History(AbstractContextManager["History"]):
    """One history, open. No clock inside: `at` is an ISO 8601 time with an offset."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def open(cls, path: str | Path, *, create: bool = True, timeout: float = TIMEOUT) -> Self:
        """Opens the file; a new one is readable and writable by its owner only."""
        return cls(Store(Path(path), HISTORY, create=create, timeout=timeout))

    def close(self) -> None:
        """Lets go of the file."""
        self._store.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> SeriesHistory:
        """What it says, if its chain is whole. Cost: all entries, but no release, is read."""
        with self._store.reading():
            return self._replay(self._store.entries())

    def _replay(self, entries: Sequence[Entry]) -> SeriesHistory:
        if not entries:
            raise HistoryError("The history is empty: no series was begun in it.")
        found: list[SeriesHistory] = []

        def begin(first: Entry) -> None:
            if first.body["event"] != "series":
                raise ValueError
            signed, signer = SignedPlan.from_dict(first.body["plan"]), first.body["signer"]
            signed.plan.series  # noqa: B018  refuses a plan for one release
            found.append(SeriesHistory(signed, _checked(signer, str)))

        self._store.replay(entries[:1], begin)
        self._store.replay(entries[1:], found[0].apply)
        return found[0]

    @property
    def is_empty(self) -> bool:
        """Whether no series was begun in it."""
        with self._store.reading():
            return not self._store.entries()

    def start(self, signed: SignedPlan, *, signer: str, at: str) -> SeriesHistory:
        """Begins the series, or goes on with it; refuses another plan or another key.

        A history in which nothing has happened is taken over: its plan may have been mistyped.
        """
        signed.plan.series  # noqa: B018  refuses a plan for one release
        with self._store.writing():
            entries = self._store.entries()
            if entries:
                found = self._replay(entries)
            if not entries or (
                entries[1:] == [] and (found.signed, found.signer) != (signed, signer)
            ):
                body = {"event": "series", "plan": signed.to_dict(), "signer": signer, "at": at}
                self._store.rewrite([body])
        found = self.read()
        if found.signed != signed:
            raise HistoryError(
                f"{self._store.path} is the history of another plan. Give the plan that it was "
                "begun with, or begin a new history: --history."
            )
        if found.signer != signer:
            raise HistoryError(
                f"{self._store.path} was begun with another key. Its releases are a chain of one "
                "signer: give the same key, or begin a new history: --history."
            )
        return found

    def begin(self, period: int, round_id: str, *, at: str) -> None:
        """Before anything is sent: this round counts this period."""
        self._append({"event": "begin", "period": period, "round_id": round_id, "at": at})

    def void(self, period: int, round_id: str, *, at: str) -> None:
        """The round ended before anything was opened: its period is due again."""
        self._append({"event": "void", "period": period, "round_id": round_id, "at": at})

    def keep(
        self, message: bytes, *, asked: Iterable[str], answered: Iterable[str], at: str
    ) -> Release:
        """The release of a period, if it is the next of the chain and about this plan.

        Keeping the same release again changes nothing.
        """
        release = Release.from_bytes(message)
        with self._store.writing():
            found = self._replay(self._store.entries())
            number, document = _next_period(release, found), hashlib.sha256(message).hexdigest()
            if number in found.kept and found.kept[number].document == document:
                return release
            if number in found.kept or number in found.missed:
                raise HistoryError(f"Period {number} is in the history already.")
            kept = KeptRelease(
                period=number,
                round_id=release.round_id,
                release=release.fingerprint,
                document=self._store.keep_document(message),
                asked=tuple(sorted(asked)),
                answered=tuple(sorted(answered)),
                at=at,
            )
            self._store.append({"event": "release"} | to_plain(kept))
        return release

    def miss(self, period: int, reason: str, *, at: str) -> None:
        """A period that cannot be counted any more, and why."""
        self._append({"event": "missed", "period": period, "reason": reason, "at": at})

    def judge(self, period: int, found: Mapping[str, Any], *, at: str) -> None:
        """What was found about a period, and about the series as it then stood."""
        self._append({"event": "judged", "period": period, "found": dict(found), "at": at})

    def acknowledge(self, alarm: int, note: str, *, at: str) -> None:
        """Somebody has seen an alarm."""
        self._append({"event": "acknowledge", "alarm": alarm, "note": note, "at": at})

    def rebaseline(self, first: int, last: int, *, at: str) -> None:
        """From the period after `last` on, what these periods were like is the normal."""
        self._append({"event": "rebaseline", "first": first, "last": last, "at": at})

    def deliver(self, notification: str, hook: str, *, at: str) -> None:
        """A notification, by its identity, was delivered by a hook."""
        body = {"event": "delivered", "notification": notification, "hook": hook, "at": at}
        self._append(body)

    def document(self, kept: KeptRelease) -> bytes:
        """The bytes of a release, as they were kept."""
        with self._store.reading():
            body = self._store.document(kept.document)
        if body is None:
            raise HistoryDamagedError(
                f"The release of period {kept.period} is not the one that was kept in "
                f"{self._store.path}. {HISTORY.advice}"
            )
        return body

    def check_documents(self) -> None:
        """That every release is the one that was kept, by its bytes alone: a fraction of a second.

        `verify` also checks what they say and who signed it.
        """
        for kept in self.read().kept.values():
            self.document(kept)

    def releases(self, periods: Sequence[int] | None = None) -> dict[int, Release]:
        """The releases of some periods (default: all), each verified: its bytes, its signature."""
        found = self.read()
        wanted = sorted(found.kept) if periods is None else periods
        releases = {}
        for period in wanted:
            release = _genuine(self.document(found.kept[period]), found.signer, found.plan)
            if release is None:
                raise HistoryDamagedError(
                    f"The release of period {period} in {self._store.path} is not genuine. "
                    f"{HISTORY.advice}"
                )
            releases[period] = release
        return releases

    def verify(self) -> int:
        """Checks all of it: chain, signatures, and that each release names the one before.

        Also that what was found about a period is about its release. The number of releases;
        `HistoryDamagedError` says what is wrong.
        """
        found, previous = self.read(), ""
        for period, judged in found.judged.items():
            point, kept = judged.get("point"), found.kept.get(period)
            about = (point.get("number"), point.get("release")) if isinstance(point, dict) else None
            if kept is None or about != (period, kept.release):
                raise HistoryDamagedError(
                    f"What {self._store.path} says about period {period} is about another release: "
                    f"entries were exchanged. {HISTORY.advice}"
                )
        for period, release in self.releases().items():
            if not _follows(release, previous, found.plan):
                raise HistoryDamagedError(
                    f"The release of period {period} does not follow the one before it: releases "
                    f"are missing from {self._store.path}, or were exchanged. {HISTORY.advice}"
                )
            previous = release.fingerprint
        return len(found.kept)

    def _append(self, body: Mapping[str, Any]) -> None:
        with self._store.writing():
            entries = self._store.entries()
            self._replay([*entries, Entry(len(entries) + 1, body, "")])
            self._store.append(body)


def is_begun(path: Path) -> bool:
    """Whether there is a history, and a series in it."""
    if not path.exists():
        return False
    with History.open(path, create=False) as opened:
        return not opened.is_empty


@lru_cache(maxsize=2048)
def _genuine(message: bytes, signer: str, plan: Plan) -> Release | None:
    """The release in a message, if this key signed it and it is about this plan; read once."""
    release = Release.from_bytes(message)
    return release if _is_signed(release, signer, plan) and release.is_about(plan) else None


def is_of_servers(plan: Plan) -> bool:
    """Whether three servers sign the releases of a plan, each with a key that it names."""
    return plan.servers is not None and bool(plan.servers.signing)


def _is_signed(release: Release, signer: str, plan: Plan) -> bool:
    """By the aggregator's key, or by those of the servers: two, if the plan lets one be lost."""
    if is_of_servers(plan):
        return release.has_signers_of(plan)
    return release.is_signed_by(signer)


def _follows(release: Release, previous: str, plan: Plan) -> bool:
    """Whether a release names the last one before it.

    Servers name the release of the period before, or none: they may have answered that one later,
    or never. One that is named and is not in the history is missing there.
    """
    if release.period is None:
        return False
    unnamed = is_of_servers(plan) and not release.period.previous
    return release.period.previous == previous or unnamed


def _next_period(release: Release, found: SeriesHistory) -> int:
    """The period of a release, if it is of this series and follows its last one."""
    if not _is_signed(release, found.signer, found.plan):
        raise HistoryError("The release is not signed by the aggregator or servers of the series.")
    if release.period is None or not release.is_about(found.plan):
        raise HistoryError("The release is about another plan than the series.")
    number = release.period.number
    before = [period for period in found.kept if period < number]
    if max(found.kept, default=-1) > number:
        raise HistoryError(f"Period {number} comes before one that has been released.")
    previous = found.kept[max(before)].release if before else ""
    if not _follows(release, previous, found.plan):
        raise HistoryError(
            f"The release of period {number} does not follow the last one of this history. The "
            "history may be an older copy: bring the newer one back."
        )
    return number
