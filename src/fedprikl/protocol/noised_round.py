"""A round after its noise: final noised numbers, and the release that follows from them.

The aggregator keeps the numbers in the ledger as soon as they have their noise. All that is
computed afterwards (intervals, verdict, words, signature) takes seconds, sees no exact sum, and
comes out the same whenever it is computed. So a process that dies then loses nothing:
`finish_round` goes on where it ended.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from fedprikl.checks import Ints
from fedprikl.documents import Format, canonical, parse_document, read_fields, to_plain
from fedprikl.errors import FedPriKLError
from fedprikl.estimation import (
    Answer,
    CountedView,
    Estimates,
    NoisyViews,
    Verdict,
    answers_from_counts,
    cell_shares,
    judge_columns,
    shifted_cells,
)
from fedprikl.estimation.estimate import clamped
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.statistic import Statistic
from fedprikl.estimation.tolerance import TV, counted_variation, judge_tolerance
from fedprikl.privacy import Head, Ledger, PrivacyStatement, total_epsilon
from fedprikl.protocol.answering import Noised, counted_by_batch, explain, law_outside, points_of
from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.release import CellAnswer, ColumnAnswer, Release, ReleasedPeriod
from fedprikl.protocol.round import Outcome
from fedprikl.protocol.sums import asked_views, trust_of
from fedprikl.reference import QueryPoints, Reference, View

Found = TypeVar("Found")

# The version rises with the fields, and whenever the noise of a plan is calibrated in another way:
# a release states the noise that was drawn.
FORMAT = Format("noised-round", advice="Finish the round with the software that ran it.")


def or_none(compute: Callable[[], Found | None]) -> Found | None:
    """The result; None if it fails.

    >>> or_none(lambda: 1), or_none(lambda: 1 // 0)
    (1, None)
    """
    try:
        return compute()
    except (FedPriKLError, ValueError, ArithmeticError, LookupError, RuntimeError):
        return None


DIRECTIONS: dict[int, Literal["up", "down", ""]] = {1: "up", -1: "down", 0: ""}


def answer_columns(
    plan: Plan, views: Sequence[View], released: NoisyViews, *, clients: int
) -> tuple[ColumnAnswer, ...]:
    """An answer about each view. `clients` are those whose counts are in the sums.

    Cells are called shifted in columns that drifted only, and in none where there is no verdict.
    """
    counted = [
        CountedView(view.points(), noisy, plan.spread(view, [clients]))
        for view, noisy in zip(views, released.counts, strict=True)
    ]
    verdicts: Sequence[Verdict | None] | None = None
    shifted: Sequence[Ints] | None = None
    if not plan.is_series:  # the verdict of a series looks at all its releases
        verdicts = or_none(lambda: _judge(plan, views, released, counted, clients))
        shifted = or_none(lambda: _shifted(plan, views, counted))
    asked = [each for each in plan.about_columns if each.release == "counts"]
    scores, mechanism = [trust_of(plan).score_of(each) for each in asked], released.mechanism
    found = []
    for i, (view, held) in enumerate(zip(views, counted, strict=True)):
        verdict = verdicts[i] if verdicts else None
        values = released.values_of(i)
        read = partial(answers_from_counts, held, scores, mechanism=mechanism, values=values)
        answers = or_none(read)
        marks = shifted[i] if shifted and verdict and verdict.drifted else np.zeros(view.size, int)
        found.append(
            ColumnAnswer(
                columns=view.columns,
                verdict=verdict,
                answers=answers or (),
                cells=_cells(view, held, marks),
                counts=held.noisy,
            )
        )
    return tuple(found)


def _judge(
    plan: Plan,
    views: Sequence[View],
    released: NoisyViews,
    counted: Sequence[CountedView],
    clients: int,
) -> tuple[Verdict, ...]:
    """On all views together."""
    columns = []
    for i, (view, held) in enumerate(zip(views, counted, strict=True)):
        (records,) = held.noisy.records
        law = law_outside(plan, view, held.points, clients=clients, records=records)
        columns.append((held.model, released.statistics(i, held.points, law)))
    rate, control = plan.false_alarm_of_each, plan.verdict.control
    verdicts = judge_columns(columns, false_alarm=rate, control=control)
    return tuple(
        tolerant(
            plan, verdict, view, held.model, released.values_of(i), held.noisy, rate / len(views)
        )
        for i, (verdict, view, held) in enumerate(zip(verdicts, views, counted, strict=True))
    )


def tolerant(
    plan: Plan,
    verdict: Verdict,
    view: View,
    model: NoDrift,
    values: Sequence[Statistic],
    noisy: NoisyCounts | None,
    level: float,
) -> Verdict:
    """The verdict on a view, with what the plan tolerates; at this level."""
    tolerated = plan.verdict.tolerance(view.name)
    variations = [each for each in values if each.name == TV]
    points = view.points()
    if noisy is not None and len(noisy.records) == 1 and len(points) == len(noisy.counts):
        variations.append(counted_variation(points, noisy))
    return replace(
        verdict,
        tolerance=judge_tolerance(variations, model, tolerated=tolerated, level=level),
    )


def _shifted(plan: Plan, views: Sequence[View], counted: Sequence[CountedView]) -> list[Ints]:
    """Of single columns together, and of pairs together: a pair repeats what its columns say."""
    rate = plan.verdict.false_discovery
    found: dict[int, Ints] = {}
    for pairs in (False, True):
        places = [i for i, view in enumerate(views) if (len(view.columns) > 1) is pairs]
        marks = shifted_cells([counted[i] for i in places], false_discovery=rate)
        found |= zip(places, marks, strict=True)
    return [found[i] for i in range(len(views))]


def _cells(view: View, held: CountedView, shifted: Ints) -> tuple[CellAnswer, ...]:
    found = or_none(lambda: cell_shares(held))
    if found is None:  # intervals could not be computed: all shares are possible
        shares = np.clip(np.array(held.noisy.counts) / held.noisy.records[0], 0.0, 1.0)
        found = shares, np.zeros_like(shares), np.ones_like(shares)
    shares, low, high = found
    return tuple(
        CellAnswer(
            label=label,
            reference=float(view.probabilities[i]),
            share=float(shares[i]),
            interval=(float(low[i]), float(high[i])),
            shifted=DIRECTIONS[int(shifted[i])],
        )
        for i, label in enumerate(view.labels)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisedRound:
    """Final noised numbers of a round, and public facts: its release follows from them. Public.

    `counted` and `asked` are names of clients: for the aggregator's own people.
    """

    round_id: str
    plan: str  # fingerprint
    period: int | None
    previous: str
    request: str
    points: QueryPoints | None  # of the whole
    noised: Noised
    outcomes: tuple[Outcome, ...]  # of all cohorts
    asked: tuple[str, ...]
    counted: tuple[str, ...]
    simulation: str  # the state of the generator that debiases noisy counts; it makes no noise
    software: str
    at: str
    no_client: str = ""  # of the privacy statement

    def to_bytes(self) -> bytes:
        """As the ledger keeps it."""
        return canonical(FORMAT.head | to_plain(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "NoisedRound":
        """What a ledger has kept."""
        return read_fields(cls, FORMAT.current(parse_document(data, "noised round")))

    def release(
        self, plan: Plan, reference: Reference, *, key: SigningKey, head: Head | None
    ) -> Release:
        """The signed release: the same whenever it is computed. Takes seconds.

        `head` is that of the ledger with the reservation of the round.
        """
        views, outside = asked_views(plan, reference), None
        clients = sum(each.included for each in self.outcomes)
        if self.points is not None:
            records = sum(self.noised.records)
            outside = law_outside(
                plan, reference.whole, self.points, clients=clients, records=records
            )
        estimates = explain(
            trust_of(plan),
            points_of(plan, reference, self.points),
            self.noised,
            [outcome.clients for outcome in self.outcomes],
            rng=_generator(self.simulation),
            outside=outside,
        )
        verdict: Verdict | None = None
        no_drift: tuple[float | None, ...] = (None,) * len(estimates.each)
        if estimates.each and not plan.is_series:  # that of a series looks at all its releases
            spread = plan.spread(reference.whole, counted_by_batch(plan, self.outcomes))
            judged = or_none(lambda: estimates.judge(plan.false_alarm_of_each, spread))
            verdict, no_drift = judged or (verdict, no_drift)
            if verdict is not None and plan.verdict.tolerance(""):
                values, rate = estimates.statistics, plan.false_alarm_of_each
                model = NoDrift.of(values[0].points, values[0].records, spread)
                noisy = estimates.noisy_counts
                verdict = tolerant(plan, verdict, reference.whole, model, values, noisy, rate)
        columns = estimates.columns
        return Release(
            round_id=self.round_id,
            request=self.request,
            population=plan.population,
            trust=plan.trust,
            plan=plan.fingerprint,
            reference=plan.reference,
            answers=_answers(plan, estimates, no_drift),
            columns=answer_columns(plan, views, columns, clients=clients) if columns else (),
            verdict=verdict,
            period=ReleasedPeriod.of(plan, self.period, self.previous),
            privacy=self._stated(plan, estimates.privacy, estimates.records / max(clients, 1)),
            cohorts=self.outcomes,
            payload=estimates.payload,
            records=estimates.records,
            noisy_counts=estimates.noisy_counts,
            ledger=head,
            software=self.software,
            released_at=self.at,
        ).sign(key)

    def _stated(self, plan: Plan, privacy: PrivacyStatement, held: float) -> PrivacyStatement:
        """The privacy statement, with whom it protects, and what the releases of a series do."""
        unit, per_client, away = plan.stated_unit
        whom = replace(
            privacy, unit=unit, per_client=per_client, away=away, no_client=self.no_client
        )
        if unit == "record":
            whom = replace(whom, held=held)
        if not plan.is_series:
            return whom
        (epsilon, delta), counted = plan.budget.total, plan.budget.releases
        if counted > 1:  # a plan may claim less than its releases cost together
            charge = trust_of(plan).charge([outcome.clients for outcome in self.outcomes])
            epsilon = max(epsilon, total_epsilon([charge] * counted, delta=delta))
        return replace(whom, counted=counted, series_epsilon=epsilon, series_delta=delta)


def finish_round(
    ledger: Ledger,
    plan: Plan,
    reference: Reference,
    *,
    key: Callable[[], SigningKey],
    at: str,
    period: int | None = None,
    round_id: str | None = None,
    request: str | None = None,
    keep: Callable[[NoisedRound, Release], None],
) -> Release | None:
    """The release of a round of this plan and period whose process died after the noise, if any.

    Nothing is counted, drawn or charged: the release follows from what the ledger kept. `keep` is
    given the release before the ledger closes the round, as in `run_round`. With a `request`, it is
    the release of that request, made now.
    """
    with ledger.unfinished(plan.population) as found:
        for name, document in found.items():
            kept = or_none(partial(NoisedRound.from_bytes, document))
            if kept is None or (kept.plan, kept.period) != (plan.fingerprint, period):
                continue
            if kept.round_id != name or round_id not in (None, name):
                continue
            if request is not None:
                kept = replace(kept, request=request, at=at)
            reservation = ledger.reservation(name)
            release = kept.release(plan, reference, key=key(), head=reservation.head)
            keep(kept, release)
            ledger.commit(reservation, release_hash=release.fingerprint, at=at)
            return release
    return None


def _answers(
    plan: Plan, estimates: Estimates, no_drift: Sequence[float | None]
) -> tuple[Answer, ...]:
    """One for each question about the whole."""
    limits = [or_none(found.limits) for found in estimates.each]
    return tuple(
        Answer(
            divergence=question.divergence,
            value=clamped(found.value, found.possible, None if limit is None else limit.printed),
            interval=None if limit is None else limit.printed,
            guaranteed=None if limit is None else limit.guaranteed,
            no_drift=typical,
            target=found.target,
            unit=found.unit,
            mechanism=found.mechanism or found.privacy.mechanism,
        )
        for question, found, limit, typical in zip(
            plan.about_whole, estimates.each, limits, no_drift, strict=True
        )
    )


def state_of(rng: np.random.Generator) -> str:
    """The state of a generator as text; of another kind than the usual one, that of its child."""
    if not isinstance(rng.bit_generator, np.random.PCG64):
        rng = np.random.default_rng(int(rng.integers(2**63)))
    return json.dumps(rng.bit_generator.state)


def _generator(state: str) -> np.random.Generator:
    bits = np.random.PCG64()
    bits.state = json.loads(state)
    return np.random.Generator(bits)
