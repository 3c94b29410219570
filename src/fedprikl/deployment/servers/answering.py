"""The one answer of the servers to a plan and period: charged, noised, opened, signed by all.

    1. settle which reports are counted (`meeting.py`); nothing has been opened or charged
    2. charge this server's ledger, under a name that follows from plan and period; a second answer
       is refused by every ledger, whatever the set of reports. Wait until all have charged
    3. noise and answer on shares (`protocol/server_answer.py`); keep the noised numbers
    4. the first server makes the release, the others compare it with their own; all of them sign
    5. write the release, close the round in the ledger, drop the reports

A server that fails before the end of 2 gives its charge back, and the answer can be started again.
From 3 on the charge stays, and there is no second attempt: what was sent may have been opened.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any

import numpy as np

from fedprikl.deployment.hosted_round import write_release
from fedprikl.deployment.servers.home import ServerHome, Task, round_name
from fedprikl.deployment.servers.links import Links, connected
from fedprikl.deployment.servers.meeting import Memory, Settled, settle
from fedprikl.deployment.settings import now
from fedprikl.documents import parse_document
from fedprikl.errors import DeploymentError, FedPriKLError, InvalidInputError, ReleaseRefused
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.privacy.account import LedgerRound
from fedprikl.privacy.ledger import budget_command
from fedprikl.protocol import NoisedRound, Outcome, Plan, Release
from fedprikl.protocol.answering import points_of
from fedprikl.protocol.noised_round import state_of
from fedprikl.protocol.release import own_releases
from fedprikl.protocol.report_vector import report_points
from fedprikl.protocol.server_answer import ServersAnswer, answer
from fedprikl.protocol.sums import ServersSum
from fedprikl.reference import Reference
from fedprikl.secure_sum.line_runtime import LineRuntime
from fedprikl.store import Head, locked

CLOSE = 1e-6  # how far two processors' numbers may be apart, relatively
NOTHING = 1e-12  # where a difference of two numbers leaves one close to 0; far below any delta


@dataclass(frozen=True, slots=True)
class Answered:
    """The release, and how many reports each server held: for the operators."""

    release: Release
    settled: Settled | None  # None: the release was there before


def take_part(
    home: ServerHome,
    task: Task,
    period: int,
    *,
    wait: float,
    without: int | None = None,
    source: NoiseSource = SECURE_NOISE,
    clock: Callable[[], str] = now,
) -> Answered:
    """The release, after one server's part in it; waits for the others for so many seconds.

    `without`: a server that is known to be lost. Started again after it is over, it gives the same
    release.
    """
    name = round_name(task.fingerprint, period)
    with locked(home.state / "answer", timeout=0, error=DeploymentError) as alone:
        if not alone:
            raise DeploymentError("This server is answering already. Wait until it is over.")
        for release in own_releases(home.releases, home.card.signing):
            if release.round_id == name and release.is_about(task.plan):
                return Answered(release, None)
        _check_over(task.plan, period, at=clock())
        return asyncio.run(_Part(home, task, period, name, source, clock).run(wait, without))


def _check_over(plan: Plan, period: int, *, at: str) -> None:
    """A period of a series is answered when it is over."""
    if plan.when.kind == "once":
        if period != 0:
            raise InvalidInputError("The plan has no series: its only period is 0.")
        return
    end = plan.when.period(period).end.isoformat()
    if plan.when.period(period).end > datetime.fromisoformat(at):
        raise InvalidInputError(f"Period {period} ends at {end}: it is not over.")


@dataclass(frozen=True, eq=False)
class _Part:
    """One server's part in one answer."""

    home: ServerHome
    task: Task
    period: int
    name: str
    source: NoiseSource
    clock: Callable[[], str]

    async def run(self, wait: float, without: int | None) -> Answered:
        home, plan = self.home, self.task.plan
        reference = home.reference(plan)
        anchor = Memory.open(home, self.name).seen.get(str(self.task.number))
        with Ledger.open(home.ledger, anchor=Head(*anchor) if anchor else None) as ledger:
            self._check_ledger(ledger)
            async with connected(home, wait=wait, without=without) as links:
                asked = self._asked(reference, links)
                ledger.check(**self._due(asked))
                settled = await settle(
                    home,
                    self.task,
                    self.period,
                    links,
                    head=ledger.head,
                    verify=ledger.verify,
                    at=self.clock(),
                    previous=self._previous(),
                )
                reservation = await self._reserve(ledger, links, asked, settled)
                release = await self._answer(ledger, links, asked, settled, reservation, reference)
        self._forget()
        return Answered(release, settled)

    def _check_ledger(self, ledger: Ledger) -> None:
        """Refuses early what the ledger would refuse."""
        population = self.task.plan.population
        if population not in ledger.populations():
            raise InvalidInputError(
                f"The population {population!r} has no budget at this server. Set one: "
                f"`{budget_command(self.home.ledger, population, 1)}`."
            )
        if self._attempts(ledger)[1]:
            raise ReleaseRefused(
                "This server took part in an answer to this plan and period before, and charged "
                "it. It takes part in one only, whatever the reports are: two could be subtracted."
            )

    def _attempts(self, ledger: Ledger) -> tuple[int, bool]:
        """How often the answer was begun, and whether one of them stays charged."""
        rounds = ledger.account(self.task.plan.population).rounds
        mine = [each for each in rounds if each.round_id.partition("-")[0] == self.name]
        return len(mine), any(each.charged for each in mine)

    def _asked(self, reference: Reference, links: Links) -> ServersAnswer:
        whole = report_points(self.task.plan, reference, self.period)
        points = points_of(self.task.plan, reference, whole)
        return ServersAnswer(ServersSum(self.task.plan), points, lost=len(links.present) < 3)

    def _due(self, asked: ServersAnswer) -> dict[str, Any]:
        plan, trust = self.task.plan, asked.trust
        return {
            "population": plan.population,
            "mechanism": trust.composed_after_loss if asked.lost else trust.charge([]),
            "times": plan.charged_times(self._number),
            "unit": plan.unit.kind,
        }

    @property
    def _number(self) -> int | None:
        return self.period if self.task.plan.is_series else None

    def _previous(self) -> str:
        """Fingerprint of the release of the period before, if this server has it."""
        before = round_name(self.task.fingerprint, self.period - 1) if self.period else ""
        path = self.home.releases / f"{before}.json"
        return Release.load(path).fingerprint if before and path.exists() else ""

    async def _reserve(
        self, ledger: Ledger, links: Links, asked: ServersAnswer, settled: Settled
    ) -> LedgerRound:
        """Charges, and waits until all have; else gives it back."""
        begun, _ = self._attempts(ledger)
        reservation = ledger.reserve(
            **self._due(asked),
            round_id=f"{self.name}-{begun + 1}" if begun else self.name,
            at=settled.at,
            note=self.task.plan.charge_note(self._number),
        )
        Memory.open(self.home, self.name).keep_heads({self.task.number: ledger.head})
        try:
            await links.broadcast(b"charged")
        except FedPriKLError:
            ledger.cancel(reservation, reason="another server could not go on", at=settled.at)
            raise
        return reservation

    async def _answer(
        self,
        ledger: Ledger,
        links: Links,
        asked: ServersAnswer,
        settled: Settled,
        reservation: LedgerRound,
        reference: Reference,
    ) -> Release:
        """Noise, numbers, release. From here on the charge stays."""
        runtime = LineRuntime(self.task.number, links.exchange, links.present)
        noised = await answer(
            runtime, asked, settled.share, included=settled.included, source=self.source
        )
        whole = asked.points[0] if self.task.plan.about_whole else None
        kept = NoisedRound(
            round_id=self.name,
            plan=self.task.plan.fingerprint,
            period=self._number,
            previous=settled.previous,
            request="",
            points=whole,
            noised=noised,
            outcomes=(Outcome(0, settled.reports, settled.included),),
            asked=(),
            counted=(),
            simulation=state_of(np.random.default_rng(list(settled.digest))),
            software=f"fedprikl {version('fedprikl')}",
            at=settled.at,
        )
        ledger.keep_noised(reservation, kept.to_bytes(), at=settled.at)
        own = kept.release(self.task.plan, reference, key=self.home.signing(), head=None)
        release = await self._sign(links, own)
        write_release(release, self.home.releases)
        ledger.commit(reservation, release_hash=release.fingerprint, at=settled.at)
        Memory.open(self.home, self.name).keep_heads({self.task.number: ledger.head})
        return release

    async def _sign(self, links: Links, own: Release) -> Release:
        """The release of the first server, with everybody's signature, if all say the same."""
        shown = await links.broadcast(own.to_bytes()) | {self.task.number: own.to_bytes()}
        first = shown[min(links.present)]
        for number, data in sorted(shown.items()):
            if not alike(_plain(data), _plain(first)):
                raise ReleaseRefused(
                    f"The release of server {number} says something else than that of server "
                    f"{min(links.present)}. The budget stays charged; nobody signs."
                )
        release = replace(Release.from_bytes(first), signer="", signature="")
        mine = release.countersign(self.home.signing())
        found = await links.broadcast(mine.signature.encode())
        found[self.task.number] = mine.signature.encode()
        keys = self.task.servers.signing
        release = replace(
            release,
            signer=" ".join(keys[n - 1] for n in sorted(found)),
            signature=" ".join(found[n].decode("ascii", "replace") for n in sorted(found)),
        )
        if not release.is_intact:
            raise ReleaseRefused("A server did not sign the release. The budget stays charged.")
        return release

    def _forget(self) -> None:
        """Drops the reports. None moves to another period: its mask hides one challenge only."""
        for intake in self.home.intakes():
            with contextlib.closing(intake):
                intake.forget(self.task.fingerprint, self.period)


def alike(one: Any, other: Any) -> bool:
    """Whether two documents say the same, up to the last digits of real numbers.

    >>> alike({"a": [1.0, "x"]}, {"a": [1.0 + 1e-12, "x"]}), alike([1], [2]), alike(1, True)
    (True, False, False)

    A delta is a small number, and not nothing.

    >>> alike({"delta": 1e-6}, {"delta": 0.0})
    False
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=NOTHING)
    return type(one) is type(other) and bool(one == other)


def _plain(data: bytes) -> dict[str, Any]:
    """A release without who signed it, and without words that name rounded numbers."""
    document = parse_document(data, "release")
    return {name: part for name, part in document.items() if name not in ("signer", "signature")}
