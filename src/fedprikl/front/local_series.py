"""A series with all parties in this process: each client counts its own files, period by period."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from fedprikl.errors import HistoryError, ReleaseRefused
from fedprikl.front.bookkeeping import newest_ledger, places
from fedprikl.front.local_parties import LocalParties
from fedprikl.front.plan_checks import check_plan
from fedprikl.monitoring.counted_records import (
    CountedRegistry,
    named_days,
    records_between,
    records_of_period,
)
from fedprikl.monitoring.history import History
from fedprikl.privacy import Ledger
from fedprikl.privacy.account import LedgerRound
from fedprikl.protocol import (
    NoisedRound,
    Plan,
    Release,
    Round,
    RoundResult,
    Series,
    finish_round,
)
from fedprikl.records import FileRecords

LOST = (
    "its process ended between the charge and the noise, so what it counted is lost; the budget of "
    "these records is spent"
)
EMPTY = "no client holds a record of it; nothing was charged"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalSeries:
    """Counts the periods of a series from one file or folder per client."""

    parties: LocalParties
    clients: Path
    ledger: Path
    counted: Path  # the registry of counted records

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
        days = named_days(self.series, number)
        found = parties.find(self.clients, days)
        files = {name: path for name, path in found.used.items() if isinstance(path, Path)}
        counted = self.parties.count(self._select(files, number))
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
        claims = {name: files[name] for name in members}
        opened: list[str] = []

        def keep(found: RoundResult) -> None:
            message = found.release.to_bytes()
            history.keep(message, asked=members, answered=found.counted, at=at)

        def begin(current: Round) -> None:
            opened.append(current.round_id)
            history.begin(number, current.round_id, at=at)
            registry.claim(parties.plan, number, current.round_id, claims)

        with newest_ledger(self.ledger, parties.key.public) as book:
            trial = parties.server.open_round(
                sorted(files), rng=np.random.default_rng(), randomness=os.urandom, period=number
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

    def _select(self, files: Mapping[str, Path], number: int) -> dict[str, FileRecords]:
        form, drawn = self.parties.form, self.parties.drawn
        return {
            name: records_of_period(self.series, number, path, form, drawn=drawn)
            for name, path in files.items()
        }

    def _check_newest(self, files: Mapping[str, Path], number: int, at: str) -> None:
        """Refuses a period if no client holds a record of it or of a later one."""
        series, begins = self.series, self.series.period(number).start
        form, drawn = self.parties.form, self.parties.drawn
        later = {
            name: records_between(series, begins, series.end, path, form, drawn=drawn)
            for name, path in files.items()
        }
        if not any(found.total for found in self.parties.count(later).values()):
            raise ReleaseRefused(
                f"Period {number} is still due: no client holds a record from {begins:%Y-%m-%d} "
                f"on, where it begins. Either the records have not arrived yet, or the clock of "
                f"this machine is ahead: it says {at}. Nothing was counted and nothing was charged."
            )


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
