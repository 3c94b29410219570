"""The history of a series: every release and everything that happened, in one SQLite file.

Entries are only ever appended and form a chain of hashes, as in a ledger. The releases themselves
lie beside them, each known to its entry by SHA-256; each is signed by the aggregator and names the
release before it. What was found about a period is kept with it, so that a page of many years is
read and not computed; anybody with the reference can compute it again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedprikl.errors import FedPriKLError, HistoryDamagedError, HistoryError
from fedprikl.protocol import Plan, Release, SignedPlan
from fedprikl.store import ChainFile, ChainKind, Entry

LARGEST = 2**63  # number of an alarm; there are never so many

HISTORY = ChainKind(
    name="history",
    application=0x46504B48,  # "FPKH"
    version=1,
    versions=(1,),
    genesis=hashlib.sha256(b"fedprikl history, version 1").hexdigest(),
    error=HistoryError,
    damaged=HistoryDamagedError,
    advice="The history is damaged. Restore a copy of it; nothing was counted.",
    unwritten="nothing was written",
    half_written="Try again once the disk works.",
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A release in the history."""

    period: int
    round_id: str
    release: str  # fingerprint
    document: str  # SHA-256 of its bytes
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    at: str


@dataclass(frozen=True, slots=True)
class SeriesHistory:
    """What the entries of a history say."""

    signed: SignedPlan
    signer: str  # the aggregator's public key
    kept: Mapping[int, Kept] = field(default_factory=dict)  # by period
    missed: Mapping[int, str] = field(default_factory=dict)  # by period, with the reason
    begun: Mapping[str, int] = field(default_factory=dict)  # rounds that never ended -> period
    judged: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # by period
    acknowledged: tuple[Mapping[str, Any], ...] = ()
    rebaselined: tuple[tuple[int, int], ...] = ()  # first and last period, in order
    told: frozenset[tuple[str, str]] = frozenset()  # which notice was delivered by which hook
    rounds: Mapping[str, int] = field(default_factory=dict)  # all it ever heard of -> period

    @property
    def plan(self) -> Plan:
        """Of the series."""
        return self.signed.plan

    @property
    def last(self) -> Kept | None:
        """The last release."""
        return self.kept[max(self.kept)] if self.kept else None

    def due(self, at: str) -> list[int]:
        """Periods that are over and of which nothing is known, in order."""
        known = self.kept.keys() | self.missed.keys()
        return [n for n in range(self.plan.series.last_over(at) + 1) if n not in known]


class History:
    """One history, open. No clock inside: `at` is an ISO 8601 time with an offset."""

    def __init__(self, file: ChainFile) -> None:
        self._file = file

    @classmethod
    def open(cls, path: str | Path, *, create: bool = True, timeout: float = 30.0) -> Self:
        """Opens the file; a new one is readable and writable by its owner only."""
        return cls(ChainFile(Path(path), HISTORY, create=create, timeout=timeout))

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def read(self) -> SeriesHistory:
        """What it says, if its chain is whole. Cost: all entries, but no release, is read."""
        with self._file.reading():
            return _replay(self._file.entries())

    @property
    def is_empty(self) -> bool:
        """Whether no series was begun in it."""
        with self._file.reading():
            return not self._file.entries()

    def start(self, signed: SignedPlan, *, signer: str, at: str) -> SeriesHistory:
        """Begins the series, or goes on with it; refuses another plan or another key."""
        signed.plan.series  # noqa: B018  refuses a plan for one release
        if self.is_empty:
            self._append({"event": "series", "plan": signed.to_dict(), "signer": signer, "at": at})
        found = self.read()
        if found.signed != signed:
            raise HistoryError(
                f"{self._file.path} is the history of another plan. Give the plan that it was "
                "begun with, or begin a new history."
            )
        if found.signer != signer:
            raise HistoryError(
                f"{self._file.path} was begun with another key. Its releases are a chain of one "
                "signer: give the same key, or begin a new history."
            )
        return found

    def begin(self, period: int, round_id: str, *, at: str) -> None:
        """Before anything is sent: this round counts this period."""
        self._append({"event": "begin", "period": period, "round": round_id, "at": at})

    def void(self, period: int, round_id: str, *, at: str) -> None:
        """The round ended before anything was opened: its period is due again."""
        self._append({"event": "void", "period": period, "round": round_id, "at": at})

    def keep(
        self, message: bytes, *, asked: Iterable[str], answered: Iterable[str], at: str
    ) -> Release:
        """The release of a period, if it is the next of the chain and about this plan.

        Keeping the same release again changes nothing.
        """
        release = Release.from_bytes(message)
        with self._file.writing():
            entries = self._file.entries()
            found = _replay(entries)
            _check_next(release, found)
            assert release.period is not None  # noqa: S101  just checked
            number, document = release.period.number, hashlib.sha256(message).hexdigest()
            if number in found.kept and found.kept[number].document == document:
                return release
            if number in found.kept or number in found.missed:
                raise HistoryError(f"Period {number} is in the history already.")
            self._file.keep_document(message)
            body = {
                "event": "release",
                "period": number,
                "round": release.round_id,
                "release": release.fingerprint,
                "document": document,
                "asked": sorted(asked),
                "answered": sorted(answered),
                "at": at,
            }
            self._file.append(body, after=HISTORY.head_of(entries))
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

    def tell(self, notice: str, hook: str, *, at: str) -> None:
        """A notice, by its identity, was delivered by a hook."""
        self._append({"event": "told", "notice": notice, "hook": hook, "at": at})

    def document(self, kept: Kept) -> bytes:
        """The bytes of a release, as they were kept."""
        with self._file.reading():
            body = self._file.document(kept.document)
        if body is None:
            raise HistoryDamagedError(
                f"The release of period {kept.period} is not the one that was kept in "
                f"{self._file.path}. {HISTORY.advice}"
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
                    f"The release of period {period} in {self._file.path} is not genuine. "
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
                    f"What {self._file.path} says about period {period} is about another release: "
                    f"entries were exchanged. {HISTORY.advice}"
                )
        for period, release in self.releases().items():
            if release.period is None or release.period.previous != previous:
                raise HistoryDamagedError(
                    f"The release of period {period} does not follow the one before it: releases "
                    f"are missing from {self._file.path}, or were exchanged. {HISTORY.advice}"
                )
            previous = release.fingerprint
        return len(self.read().kept)

    def _append(self, body: Mapping[str, Any]) -> None:
        with self._file.writing():
            entries = self._file.entries()
            _replay([*entries, Entry(len(entries) + 1, body, "")])
            self._file.append(body, after=HISTORY.head_of(entries))


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
    return release if release.is_signed_by(signer) and release.is_about(plan) else None


def _check_next(release: Release, found: SeriesHistory) -> None:
    """Refuses a release that is not of this series, or does not follow its last one."""
    if not release.is_signed_by(found.signer):
        raise HistoryError("The release is not signed by the aggregator of the series.")
    if release.period is None or not release.is_about(found.plan):
        raise HistoryError("The release is about another plan than the series.")
    number = release.period.number
    before = [period for period in found.kept if period < number]
    if max(found.kept, default=-1) > number:
        raise HistoryError(f"Period {number} comes before one that has been released.")
    previous = found.kept[max(before)].release if before else ""
    if release.period.previous != previous:
        raise HistoryError(
            f"The release of period {number} does not follow the last one of this history. The "
            "history may be an older copy: bring the newer one back."
        )


def _replay(entries: Sequence[Entry]) -> SeriesHistory:
    """The state after all entries; entries that make no sense are damage."""
    if not entries:
        raise HistoryError("The history is empty: no series was begun in it.")
    try:
        state = _State(entries[0].body)
        periods = state.signed.plan.series.periods
        for entry in entries[1:]:
            _check_values(entry.body, periods)
            state.apply(entry.body)
        return state.history()
    except (KeyError, TypeError, ValueError, RecursionError, FedPriKLError) as error:
        if isinstance(error, HistoryError):
            raise
        raise HistoryDamagedError(
            f"An entry of the history makes no sense, though its hash is right: it was not "
            f"written by this software. {HISTORY.advice}"
        ) from None


def _check_values(body: Mapping[str, Any], periods: int) -> None:
    """Raises a `ValueError` unless each value is of its kind, and each period one of the series."""
    for name, value in body.items():
        match name:
            case "period" | "first" | "last":
                proper = type(value) is int and 0 <= value < periods
            case "alarm":
                proper = type(value) is int and 0 <= value < LARGEST
            case "found":
                proper = isinstance(value, dict)
            case "asked" | "answered":
                proper = isinstance(value, list) and all(isinstance(each, str) for each in value)
            case "round" | "release" | "document" | "at" | "reason" | "note" | "notice" | "hook":
                proper = isinstance(value, str)
            case _:
                proper = True
        if not proper:
            raise ValueError
    if body["event"] == "acknowledge" and not {"alarm", "at", "note"} <= body.keys():
        raise ValueError


class _State:
    """Entries, one after the other."""

    def __init__(self, first: Mapping[str, Any]) -> None:
        self.signed, self.signer = SignedPlan.from_dict(first["plan"]), str(first["signer"])
        if first["event"] != "series" or not self.signed.plan.is_series:
            raise ValueError
        self.kept: dict[int, Kept] = {}
        self.missed: dict[int, str] = {}
        self.begun: dict[str, int] = {}
        self.judged: dict[int, Mapping[str, Any]] = {}
        self.acknowledged: list[Mapping[str, Any]] = []
        self.rebaselined: list[tuple[int, int]] = []
        self.told: set[tuple[str, str]] = set()
        self.rounds: dict[str, int] = {}

    def apply(self, body: Mapping[str, Any]) -> None:
        if "round" in body:
            self.rounds[str(body["round"])] = int(body["period"])
        match body["event"]:
            case "begin":
                self.begun[body["round"]] = int(body["period"])
            case "void":
                del self.begun[body["round"]]
            case "release":
                self._keep(body)
            case "missed":
                self._miss(int(body["period"]), str(body["reason"]))
            case "judged":
                self.judged[int(body["period"])] = body["found"]
            case "acknowledge":
                self.acknowledged.append(body)
            case "rebaseline":
                self.rebaselined.append((int(body["first"]), int(body["last"])))
            case "told":
                self.told.add((str(body["notice"]), str(body["hook"])))
            case _:
                raise ValueError

    def _keep(self, body: Mapping[str, Any]) -> None:
        period = int(body["period"])
        if period <= max(self.kept, default=-1) or period in self.missed:  # they come in order
            raise ValueError
        self.begun.pop(body["round"], None)
        self.kept[period] = Kept(
            period,
            str(body["round"]),
            str(body["release"]),
            str(body["document"]),
            tuple(body["asked"]),
            tuple(body["answered"]),
            str(body["at"]),
        )

    def _miss(self, period: int, reason: str) -> None:
        if period in self.kept or period in self.missed:
            raise ValueError
        self.missed[period] = reason
        self.begun = {name: of for name, of in self.begun.items() if of != period}

    def history(self) -> SeriesHistory:
        return SeriesHistory(
            self.signed,
            self.signer,
            self.kept,
            self.missed,
            self.begun,
            self.judged,
            tuple(self.acknowledged),
            tuple(self.rebaselined),
            frozenset(self.told),
            self.rounds,
        )
