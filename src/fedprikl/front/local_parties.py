"""All parties of a round in this process: who counts, who is charged, who releases."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedprikl.errors import ReleaseRefused
from fedprikl.front.bookkeeping import open_account
from fedprikl.front.client_sources import ClientSources, Source, find_clients
from fedprikl.front.plan_checks import Progress, silent
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol import (
    Aggregator,
    Client,
    Plan,
    Policy,
    Round,
    RoundResult,
    Server,
    SignedPlan,
    SigningKey,
    draw_of,
    run_round,
)
from fedprikl.protocol.client import NO_RECORDS
from fedprikl.records import CsvFormat, Days, FileRecords, RecordCounts, count_all
from fedprikl.reference import Reference

SOFTWARE = f"fedprikl {version('fedprikl')}"
SMALLEST = 3  # clients of a secure sum


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalParties:
    """Clients, aggregator and server of the rounds of a plan, and how clients' files are read."""

    signed: SignedPlan
    reference: Reference
    policy: Policy
    signer: SigningKey | str | Path | None  # the key, or its path; None: a fresh one
    form: CsvFormat
    skip_bad_files: bool = False
    source: NoiseSource = SECURE_NOISE
    progress: Progress = silent
    note: Callable[[str], None] = lambda _: None

    @property
    def plan(self) -> Plan:
        """What all have agreed on."""
        return self.signed.plan

    @cached_property
    def key(self) -> SigningKey:
        """The key that signs; a file is made if it is missing, when it is first needed."""
        if self.signer is None:
            return SigningKey.generate()
        if isinstance(self.signer, SigningKey):
            return self.signer
        return SigningKey.load_or_create(self.signer)

    @cached_property
    def server(self) -> Server:
        """Refuses another reference than that of the plan."""
        return Server(self.signed, self.reference)

    @property
    def drawn(self) -> bool:
        """Whether clients draw their records: then whole clients are protected."""
        return self.plan.unit.kind == "client"

    def find(self, clients: Any, days: Days | None = None) -> ClientSources:
        """Whose records are counted, by what is known from headers; notes who is left out."""
        found = find_clients(
            clients,
            self.reference,
            form=self.form,
            skip_bad=self.skip_bad_files,
            drawn=self.drawn,
            days=days,
        )
        if found.bad:
            self.note(f"Left out: {found.bad_words}")
        return found

    def open_account(
        self, book: Ledger, rehearsed: Round, records: Mapping[str, str], *, at: str
    ) -> None:
        """The budget of the population and of these records, for a round like the rehearsed one."""
        aggregator = Aggregator(rehearsed, key=self.key, ledger=book, software=SOFTWARE)
        open_account(aggregator, book, self.plan, records, at=at, note=self.note)

    def count(self, sources: Mapping[str, Source | FileRecords]) -> dict[str, RecordCounts]:
        """Each client counts its own records, or those it draws; more than that stays with it."""
        done = 0

        def count_one(_: str) -> None:
            nonlocal done
            done += 1
            self.progress("counting records", done, len(sources))

        draw = draw_of(self.plan)
        return count_all(sources, self.reference, format=self.form, draw=draw, report=count_one)

    def members(
        self, counted: Mapping[str, RecordCounts], period: int | None = None
    ) -> tuple[dict[str, Client], dict[str, str]]:
        """The clients that take part, and why others stay away; none does in most plans.

        Refuses a round that too few are left for; nothing was sent or charged.
        """
        away: dict[str, str] = {}
        if self.plan.unit.kind == "client" and self.plan.unit.empty == "away":
            away = {name: NO_RECORDS for name, found in counted.items() if found.total == 0}
        left, least = len(counted) - len(away), SMALLEST * self.plan.sums.batches
        words = f"{len(away)} of {len(counted)} clients hold no records and stay away, as the plan"
        if away:
            self.note(f"{words} says.")
        if away and left < least:
            raise ReleaseRefused(
                f"{words} says. {left} are left, and the secure sums of the plan need {least}. "
                "Nothing was sent and nothing was charged. Let more clients take part, or plan "
                "with empty='reference'."
            )
        members = {
            name: Client(
                found.counts,
                self.reference,
                views=found.views,
                policy=self.policy,
                randomness=os.urandom,
                source=self.source,
                period=period,
            )
            for name, found in counted.items()
            if name not in away
        }
        return members, away

    def run(self, members: Mapping[str, Client], book: Ledger | None, **more: Any) -> RoundResult:
        """One round, charged to the ledger before anything is opened; `more` as in `run_round`."""
        return run_round(
            self.server,
            members,
            key=self.key,
            ledger=book,
            software=SOFTWARE,
            source=self.source,
            **more,
        )
