"""The aggregator: opens cohort sums, scores them, adds noise, and lets one release out."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedprikl.errors import InvalidInputError, ReleaseRefused, SecureSumError
from fedprikl.estimation import Estimates
from fedprikl.estimation.estimates import Judgement
from fedprikl.privacy import (
    SECURE_NOISE,
    Charge,
    Ledger,
    NoiseSource,
    PrivacyStatement,
    Reservation,
    Span,
)
from fedprikl.protocol.answer import Answer
from fedprikl.protocol.cohort_sums import OpenedSum
from fedprikl.protocol.column_answer import ColumnAnswer
from fedprikl.protocol.column_release import answer_columns
from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.never_lost import or_none
from fedprikl.protocol.outcome import Outcome, spread_of
from fedprikl.protocol.release import Release
from fedprikl.protocol.released_counts import ReleasedCounts
from fedprikl.protocol.released_period import charge_note, charged_span, in_series, released_period
from fedprikl.protocol.round import Round
from fedprikl.protocol.trust import trust_of
from fedprikl.protocol.view_sums import asked_views, view_points
from fedprikl.reference import Spread, View
from fedprikl.secure_sum import SumAggregator

__all__ = ["Aggregator"]


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
        batches = range(self._round.plan.batches)
        for t in batches:
            if t not in self._batches or self._batches[t].records == 0:
                advice = self._give_back(at)
                raise ReleaseRefused(
                    f"Batch {t} has no records left: its cohorts were dropped or hold nothing. "
                    f"Nothing was released{advice}"
                )
        self._spent = True
        estimates = self._trust.estimate(
            self._round.points,
            [view_points(view) for view in self._views],
            [self._batches[t] for t in batches],
            self._sizes,
            source=self._source,
            rng=rng,
        )
        return self._sign(estimates, at).to_bytes()

    @property
    def _views(self) -> tuple[View, ...]:
        """The views of the reference that the plan asks about."""
        return asked_views(self._round.plan, self._round.reference)

    @property
    def _spread(self) -> float | Spread:
        """How counts vary without drift: by the plan, or by the reference for who was counted."""
        outcomes = [self._outcomes[n] for n in sorted(self._outcomes)]
        return spread_of(self._round.plan, self._round.reference, outcomes)

    @property
    def _sizes(self) -> list[int]:
        """Of all cohorts: the noise of noise shares depends on them."""
        return [cohort.sums.clients for cohort in self._round.cohorts]

    def _charge(self) -> Charge:
        """What the release costs, known before any sum is."""
        return self._trust.charge(self._sizes)

    @property
    def _span(self) -> Span | None:
        """The moments of the records that the round counts; None where all count."""
        return charged_span(self._round.plan, self._round.period)

    def check_budget(self) -> None:
        """Raises `BudgetExceededError` if the release does not fit; charges nothing."""
        if self._ledger is not None:
            plan = self._round.plan
            self._ledger.check(plan.population, self._charge(), span=self._span, unit=plan.unit)

    def _reserve(self, at: str) -> None:
        """Charges the budget, once a round, before anything is opened."""
        if self._ledger is None or self._reservation is not None:
            return
        self._reservation = self._ledger.reserve(
            self._round.plan.population,
            self._charge(),
            round_id=self._round.round_id,
            at=at,
            note=charge_note(self._round.plan, self._round.period),
            span=self._span,
            unit=self._round.plan.unit,
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

    def _answers(self, estimates: Estimates, judged: Judgement | None) -> tuple[Answer, ...]:
        """One for each question of the plan."""
        unknown = (None,) * len(estimates.each)
        limits = [or_none(found.limits) for found in estimates.each]
        return tuple(
            Answer(
                divergence=question.divergence,
                value=found.value,
                interval=None if limit is None else limit.printed,
                guaranteed=None if limit is None else limit.guaranteed,
                no_drift=no_drift,
                target=found.target,
                unit=found.unit,
                mechanism=found.privacy.mechanism,
            )
            for question, found, limit, no_drift in zip(
                self._round.plan.questions,
                estimates.each,
                limits,
                unknown if judged is None else judged.no_drift,
                strict=True,
            )
        )

    def _columns(self, estimates: Estimates) -> tuple[ColumnAnswer, ...]:
        """One for each view of the plan."""
        if estimates.columns is None:
            return ()
        clients = sum(outcome.included for outcome in self._outcomes.values())
        return answer_columns(
            self._round.plan,
            self._views,
            estimates.columns,
            clients=clients,
            mechanism=estimates.columns.mechanism,
        )

    def _whom(self, estimates: Estimates) -> PrivacyStatement:
        """The privacy statement, with whom it protects."""
        plan, clients = self._round.plan, sum(each.included for each in self._outcomes.values())
        held = None if plan.unit == "client" else estimates.records / max(clients, 1)
        return replace(
            estimates.privacy,
            unit=plan.unit,
            per_client=plan.per_client,
            away=plan.empty == "away",
            held=held,
        )

    def _sign(self, estimates: Estimates, at: str) -> Release:
        plan, reserved, noisy = self._round.plan, self._reservation, estimates.noisy_counts
        judged = None
        if estimates.each and plan.series is None:  # that of a series looks at all its releases
            judged = or_none(lambda: estimates.judge(plan.false_alarm_of_each, self._spread))
        release = Release(
            round_id=self._round.round_id,
            request=self._request,
            population=plan.population,
            trust=plan.trust,
            plan=plan.fingerprint,
            reference=plan.reference,
            answers=self._answers(estimates, judged),
            columns=self._columns(estimates),
            verdict=None if judged is None else judged.verdict,
            period=released_period(plan, self._round.period, self._previous),
            privacy=in_series(self._whom(estimates), plan),
            cohorts=tuple(self._outcomes[n] for n in sorted(self._outcomes)),
            payload=estimates.payload,
            records=estimates.records,
            noisy_counts=None if noisy is None else ReleasedCounts.of(noisy),
            ledger=None if reserved is None else reserved.head,
            software=self._software,
            released_at=at,
        ).sign(self._key)
        self._keep(release.to_bytes())
        if self._ledger is not None and reserved is not None:
            self._ledger.commit(reserved, release_hash=release.fingerprint, at=at)
        return release
