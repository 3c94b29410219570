"""The aggregator: opens cohort sums, scores them, adds noise, and lets one release out."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import FedPriKLError, InvalidInputError, ReleaseRefused, SecureSumError
from fedprikl.estimation import (
    BatchCounts,
    Estimate,
    NoisyCounts,
    estimate_noisy_counts,
    estimate_scored_sum,
    judge_noisy_release,
    noisy_interval,
)
from fedprikl.paper import no_privacy, printed_aggregator
from fedprikl.privacy import (
    SECURE_NOISE,
    Calibrated,
    Charge,
    Ledger,
    NoiseSource,
    PrivacyStatement,
    Reservation,
    SharedMechanism,
)
from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.possible_counts import possible_counts
from fedprikl.protocol.release import Release
from fedprikl.protocol.round import Cohort, Round, noise_share
from fedprikl.secure_sum import SumAggregator

__all__ = ["Aggregator", "Outcome"]

NOBODY = "nobody: every client adds its share of the noise inside the secure sum."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cohort ended. Public."""

    batch: int
    clients: int
    included: int  # clients whose counts are in the sum; 0 if the cohort was dropped
    reason: str = ""  # why it was dropped

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "batch": self.batch,
            "clients": self.clients,
            "included": self.included,
            "dropped_because": self.reason,
        }


@dataclass(slots=True, eq=False)
class _BatchSum:
    """SECRET: the running sum of one batch."""

    counts: Ints = field(repr=False)
    records: int = field(default=0, repr=False)
    included: int = 0
    noise_variance: float = 0.0


class Aggregator:
    """One round, seen from the aggregator. It learns cohort sums, never a client's counts.

    1. `sums[i]` is the `SumAggregator` of cohort i; the transport feeds it
    2. `close(i)` reserves the budget, opens the sum and adds it to its batch, or drops the cohort
       and says why; that depends on who answered, never on the sum
    3. `release` adds the noise and signs; the object is then spent

    Holds: cohort sums. Sends: one noised, signed release. What it holds never prints.
    """

    def __init__(
        self,
        this: Round,
        *,
        key: SigningKey,
        ledger: Ledger | None,
        software: str,
        source: NoiseSource = SECURE_NOISE,
        request: str = "",
    ) -> None:
        if ledger is not None and this.plan.estimator in ("no privacy", "paper"):
            raise InvalidInputError(
                "A release without privacy, or with the paper's noise, cannot be charged to a "
                "budget. Run it without a ledger, on data that need no protection."
            )
        self._round, self._key, self._ledger = this, key, ledger
        self._software, self._source, self._request = software, source, request
        self._insecure = source.insecure  # or any client's noise, once its cohort is in
        self.sums = tuple(SumAggregator(cohort.sums) for cohort in this.cohorts)
        self._outcomes: dict[int, Outcome] = {}
        sizes = np.bincount(this.points.batch, minlength=this.plan.batches)
        rest = 1 if this.plan.estimator == "baseline" else 0
        self._batches = [_BatchSum(np.zeros(size + rest, np.int64)) for size in sizes]
        self._reservation: Reservation | None = None
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
        self._add(cohort, result.total, len(result.included))
        outcome = Outcome(cohort.batch, len(cohort.members), len(result.included))
        self._outcomes[number] = outcome
        return outcome

    def drop(self, number: int, reason: str) -> Outcome:
        """Goes on without a cohort."""
        cohort = self._round.cohorts[number]
        self._outcomes[number] = Outcome(cohort.batch, len(cohort.members), 0, reason)
        return self._outcomes[number]

    def _add(self, cohort: Cohort, total: Ints, included: int) -> None:
        """Adds a cohort's sum to its batch. A sum that cannot be right is made possible."""
        plan, batch = self._round.plan, self._batches[cohort.batch]
        top = plan.most_records * included
        share = noise_share(plan, clients=cohort.sums.clients, minimum=cohort.sums.minimum)
        if share is None:
            records = min(int(total[-1]), top)
            counts = possible_counts(total[:-1], top=top, records=records)
        else:
            records = min(int(total[-2]), top)
            counts = total[:-2] - included * share.reach
            batch.noise_variance += included * share.share_variance
            self._insecure = self._insecure or bool(total[-1])
        batch.counts = batch.counts + counts
        batch.records += records
        batch.included += included

    def release(self, *, at: str, rng: np.random.Generator) -> bytes:
        """The signed release; refuses if a batch is empty.

        `rng` serves the server's debiasing of noisy counts only; it never makes release noise.
        """
        if self._spent:
            raise ReleaseRefused("This round has released already. Start a new one.")
        missing = [n for n in range(len(self.sums)) if n not in self._outcomes]
        if missing:
            raise ReleaseRefused(f"Cohort {missing[0]} is still open; close or drop it first.")
        for t, batch in enumerate(self._batches):
            if batch.records == 0:
                charged = self._give_back(at)
                raise ReleaseRefused(
                    f"Batch {t} has no records left: its cohorts were dropped or hold nothing. "
                    f"Nothing was released{charged}; start the round again."
                )
        self._spent = True
        plan = self._round.plan
        noisy = self._noisy_counts() if plan.estimator == "baseline" else None
        estimate = self._estimate() if noisy is None else self._noisy_estimate(noisy, rng)
        return self._sign(estimate, noisy, at).to_bytes()

    def _estimate(self) -> Estimate:
        plan = self._round.plan
        records = np.array([batch.records for batch in self._batches])
        counts = BatchCounts(
            self._round.points, np.concatenate([b.counts for b in self._batches]), records
        )
        if plan.estimator == "no privacy":
            return no_privacy(counts, score=plan.score)
        if plan.estimator == "paper":
            return printed_aggregator(
                counts,
                epsilon=plan.epsilon,
                delta=plan.delta,
                score=plan.score,
                source=self._source,
            )
        return estimate_scored_sum(
            counts,
            noise=self._noise,
            score=plan.score,
            client_effect=plan.client_effect,
            source=self._source,
        )

    def _noisy_counts(self) -> NoisyCounts:
        worst = self._worst_share()  # all shares of a round have one kind and one scale
        return NoisyCounts(
            points=self._round.points,
            counts=np.concatenate([b.counts[:-1] for b in self._batches]).astype(np.float64),
            rest=np.array([b.counts[-1] for b in self._batches], dtype=np.float64),
            records=np.array([b.records for b in self._batches]),
            noise_sd=np.sqrt([b.noise_variance for b in self._batches]),
            laplace_scale=worst.laplace_scale,
        )

    def _noisy_estimate(self, noisy: NoisyCounts, rng: np.random.Generator) -> Estimate:
        plan = self._round.plan
        worst = self._worst_share()
        proved = worst.charge(plan.delta)
        found = estimate_noisy_counts(noisy, score=plan.score, rng=rng)
        return Estimate(
            method="noisy counts, no trusted party",
            value=found.value,
            target=str(plan.score.smoothing),
            payload=self._round.points.payload + 1,
            noise_sd=found.noise_sd,
            limits=partial(noisy_interval, noisy, found.value, score=plan.score),
            judge=partial(judge_noisy_release, noisy),
            privacy=PrivacyStatement(
                epsilon=proved.proved_epsilon,
                delta=proved.proved_delta,
                claimed_epsilon=plan.epsilon,
                mechanism=str(worst),
                released=f"the noisy counts of {len(self._round.points)} cells",
                trust=NOBODY,
                sensitivity=worst.sensitivity,
                insecure=self._insecure,
            ),
        )

    def _verdict(self, estimate: Estimate) -> dict[str, Any] | None:
        """Drifted or not, from public quantities; None where the law without drift is unknown."""
        if estimate.judge is None:
            return None
        plan = self._round.plan
        return estimate.judge(plan.false_alarm, plan.design_effect).to_dict()

    def _worst_share(self) -> SharedMechanism:
        """The noise of the least protected cohort: a record is in one cohort only."""
        plan = self._round.plan
        found = [
            noise_share(plan, clients=cohort.sums.clients, minimum=cohort.sums.minimum)
            for cohort in self._round.cohorts
        ]
        shares = [share for share in found if share is not None]
        return max(shares, key=lambda share: share.epsilon(plan.delta))

    def _charge(self) -> Charge:
        """What the release costs, known before any sum is: noise is scaled to the sensitivity, so
        the noise for a sensitivity of 1 costs the same.
        """
        plan = self._round.plan
        if plan.estimator == "baseline":
            return self._worst_share().charge(plan.delta)
        return self._noise.charge

    @cached_property
    def _noise(self) -> Calibrated:
        """What is charged is what draws."""
        plan = self._round.plan
        return Calibrated(plan.epsilon, plan.delta, plan.noise)

    def check_budget(self) -> None:
        """Raises `BudgetExceededError` if the release does not fit; charges nothing."""
        if self._ledger is not None:
            self._ledger.check(self._round.plan.population, self._charge())

    def _reserve(self, at: str) -> None:
        """Charges the budget, once a round, before anything is opened."""
        if self._ledger is None or self._reservation is not None:
            return
        self._reservation = self._ledger.reserve(
            self._round.plan.population, self._charge(), round_id=self._round.round_id, at=at
        )

    def _give_back(self, at: str) -> str:
        """Cancels the reservation of a round in which no sum was ever opened; says if it stays."""
        if self._ledger is None or self._reservation is None:
            return ""
        if self._opened:
            return ", but the budget stays charged, because sums were opened"
        self._ledger.cancel(self._reservation, reason="no sum was opened", at=at)
        return ""

    def _sign(self, estimate: Estimate, noisy: NoisyCounts | None, at: str) -> Release:
        plan, held = self._round.plan, self._reservation
        release = Release.sign(
            {
                "round": self._round.round_id,
                "request": self._request,
                "population": plan.population,
                "estimator": plan.estimator,
                "value": estimate.value,
                "interval": _or_none(lambda: estimate.interval),
                "verdict": _or_none(lambda: self._verdict(estimate)),
                "target": estimate.target,
                "plan": plan.fingerprint,
                "reference": plan.reference,
                "privacy": estimate.privacy.to_dict(),
                "cohorts": [self._outcomes[n].to_dict() for n in sorted(self._outcomes)],
                "payload_counts": estimate.payload,
                "noisy_counts": None if noisy is None else _noisy_dict(noisy),
                "ledger": None if held is None else asdict(held.head),
                "software": self._software,
                "released_at": at,
            },
            self._key,
        )
        if self._ledger is not None and held is not None:
            self._ledger.commit(held, release_hash=release.fingerprint, at=at)
        return release


def _or_none(compute: Callable[[], Any]) -> Any:
    """What is computed after the budget was charged must not lose the release: None if it fails."""
    try:
        found = compute()
    except (FedPriKLError, ValueError, ArithmeticError):
        return None
    return list(found) if isinstance(found, tuple) else found


def _noisy_dict(noisy: NoisyCounts) -> dict[str, Any]:
    """The noisy counts, from which anybody may compute any other divergence."""
    return {
        "batch": noisy.points.batch.tolist(),
        "cells": noisy.points.cells.tolist(),
        "counts": noisy.counts.tolist(),
        "rest": noisy.rest.tolist(),
        "records": noisy.records.tolist(),
        "noise_sd": noisy.noise_sd.tolist(),
        "noise": noisy.noise_to_dict(),
    }
