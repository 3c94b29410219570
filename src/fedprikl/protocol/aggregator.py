"""The aggregator: opens cohort sums, scores them, adds noise, and lets one release out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedprikl.errors import InvalidInputError, ReleaseRefused, SecureSumError
from fedprikl.libraries import opendp
from fedprikl.privacy import (
    SECURE_NOISE,
    Ledger,
    LedgerRound,
    NoiseSource,
)
from fedprikl.protocol.answering import noise_sums, points_of
from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.noised_round import NoisedRound, state_of
from fedprikl.protocol.round import Outcome, Round
from fedprikl.protocol.sums import OpenedSum, trust_of
from fedprikl.secure_sum import SumAggregator


class Aggregator:
    """One round, seen from the aggregator. It learns cohort sums, never a client's counts.

    1. `sums[i]` is the `SumAggregator` of cohort i; the transport feeds it
    2. `close(i)` reserves the budget, opens the sum and adds it to its batch, or drops the cohort
       and says why; that depends on who answered, never on the sum
    3. `release` adds the noise, keeps the noised numbers in the ledger, and signs what follows from
       them; the object is then spent

    Holds: cohort sums. Sends: one noised, signed release. What it holds never prints.
    """

    def __init__(
        self,
        current: Round,
        *,
        key: SigningKey,
        ledger: Ledger | None,
        software: str,
        source: NoiseSource = SECURE_NOISE,
        request: str = "",
        previous: str = "",
        keep: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._round, self._key, self._ledger = current, key, ledger
        self._trust = trust_of(current.plan)
        self._software, self._source, self._request = software, source, request
        self._keep = keep  # takes the signed release before the ledger closes the round
        self._previous = previous  # fingerprint of the release before this one, in a series
        self.sums = tuple(SumAggregator(cohort.sums) for cohort in current.cohorts)
        self._outcomes: dict[int, Outcome] = {}
        self._batches: dict[int, OpenedSum] = {}  # SECRET: of batches with an opened sum
        self._reservation: LedgerRound | None = None
        self._counted: set[str] = set()  # clients whose counts are in the sums
        self._opened = False  # whether any sum was opened
        self._spent = False

    def __repr__(self) -> str:
        return f"<Aggregator of round {self._round.round_id[:8]}, {len(self.sums)} cohorts>"

    def close(self, number: int, *, at: str) -> Outcome:
        """Ends a cohort: its sum joins the batch, or the cohort is dropped with a reason.

        The budget is reserved before the first sum is opened. Once one is open it stays charged.
        """
        if number in self._outcomes:
            raise InvalidInputError(f"Cohort {number} is closed already.")
        cohort = self._round.cohorts[number]
        self._reserve(at)
        try:
            result = self.sums[number].unmask()
        except SecureSumError as error:
            return self.drop(number, str(error))
        self._opened = True
        self._counted |= {cohort.members[index] for index in result.included}
        included = len(result.included)
        opened = self._trust.open(result.total, clients=cohort.sums.clients, included=included)
        before = self._batches.get(cohort.batch)
        self._batches[cohort.batch] = opened if before is None else before + opened
        outcome = Outcome(cohort.batch, len(cohort.members), included)
        self._outcomes[number] = outcome
        return outcome

    def drop(self, number: int, reason: str) -> Outcome:
        """Goes on without a cohort."""
        if number in self._outcomes:
            raise InvalidInputError(f"Cohort {number} is closed already.")
        cohort = self._round.cohorts[number]
        self._outcomes[number] = Outcome(cohort.batch, len(cohort.members), 0, reason)
        return self._outcomes[number]

    def release(self, *, at: str, rng: np.random.Generator) -> bytes:
        """The signed release; refuses if a batch is empty.

        `rng` serves the server's debiasing of noisy counts only; it never makes release noise.
        """
        if self._spent:
            raise ReleaseRefused("This round has released already. Start a new one.")
        missing = [n for n in range(len(self.sums)) if n not in self._outcomes]
        if missing:
            raise ReleaseRefused(f"Cohort {missing[0]} is still open; close or drop it first.")
        batches = range(self._round.plan.sums.batches)
        for t in batches:
            if t not in self._batches or self._batches[t].records == 0:
                advice = self._give_back(at)
                raise ReleaseRefused(
                    f"Batch {t} has no records left: its cohorts were dropped or hold nothing. "
                    f"Nothing was released{advice}"
                )
        self._spent = True
        noised = self._noise([self._batches[t] for t in batches], at, rng)
        head = None
        if self._ledger is not None and self._reservation is not None:
            self._ledger.keep_noised(self._reservation, noised.to_bytes(), at=at)
            head = self._reservation.head
        release = noised.release(self._round.plan, self._round.reference, key=self._key, head=head)
        self._keep(release.to_bytes())
        if self._ledger is not None and self._reservation is not None:
            self._ledger.commit(self._reservation, release_hash=release.fingerprint, at=at)
        return release.to_bytes()

    def _noise(self, sums: list[OpenedSum], at: str, rng: np.random.Generator) -> NoisedRound:
        """Draws the noise: exact sums go no further than here."""
        current = self._round
        points = points_of(current.plan, current.reference, current.points)
        return NoisedRound(
            round_id=current.round_id,
            plan=current.plan.fingerprint,
            period=current.period,
            previous=self._previous,
            request=self._request,
            points=current.points,
            noised=noise_sums(self._trust, points, sums, source=self._source),
            outcomes=tuple(self._outcomes[n] for n in sorted(self._outcomes)),
            asked=tuple(sorted(name for cohort in current.cohorts for name in cohort.members)),
            counted=tuple(sorted(self._counted)),
            simulation=state_of(rng),
            software=self._software,
            at=at,
        )

    @property
    def _due(self) -> dict[str, Any]:
        """What the release costs, known before any sum is, and of which records."""
        plan, sizes = self._round.plan, [cohort.sums.clients for cohort in self._round.cohorts]
        return {
            "population": plan.population,
            "mechanism": self._trust.charge(sizes),
            "times": plan.charged_times(self._round.period),
            "unit": plan.unit.kind,
        }

    def check_budget(self) -> None:
        """Raises `BudgetExceededError` if the release does not fit; charges nothing."""
        if self._ledger is not None:
            self._ledger.check(**self._due)

    def _reserve(self, at: str) -> None:
        """Charges the budget, once a round, before anything is opened."""
        if self._ledger is None or self._reservation is not None:
            return
        if not self._trust.shares_noise and not self._source.insecure:
            opendp()  # may be missing, and takes longer to load than the noise to draw
        current = self._round
        note = current.plan.charge_note(current.period)
        self._reservation = self._ledger.reserve(
            **self._due, round_id=current.round_id, at=at, note=note
        )

    def _give_back(self, at: str) -> str:
        """Cancels the reservation of a round in which no sum was ever opened; says what to do."""
        if self._ledger is not None and self._reservation is not None:
            if self._opened:
                return (
                    ", but the budget stays charged, because sums were opened. Check the clients' "
                    "files; another round needs more budget."
                )
            self._ledger.cancel(self._reservation, reason="no sum was opened", at=at)
        return ". Start another round when more clients can take part."
