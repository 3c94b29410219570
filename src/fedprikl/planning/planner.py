"""The planner: from what a user knows to the plan with the smallest predicted error.

It reads the reference and public numbers, nothing else: no parameter can depend on private data.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from fedprikl.checks import check_finite, check_positive_int
from fedprikl.divergence import divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.planning.column_plan import WHOLE, ask_columns, column_questions, plan_columns
from fedprikl.planning.drift_cases import least
from fedprikl.planning.known import Known, Spectrum
from fedprikl.planning.liars import liar_bounds
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.series_plan import plan_series
from fedprikl.planning.trusted_plan import plan_trusted
from fedprikl.planning.untrusted_plan import plan_untrusted
from fedprikl.privacy import Unit
from fedprikl.protocol.plan import (
    Budget,
    Control,
    Empty,
    Plan,
    SumRules,
    Trust,
    VerdictRules,
    WholeClient,
)
from fedprikl.protocol.question import AskedView, Question
from fedprikl.protocol.series import Series
from fedprikl.reference import Reference

TRIED = 3  # numbers of records a client, each half of the one before
MOST = 1024  # of one client: more than these hardly differ
ASK = ("kl", "tv", "js")  # about the whole, the size first
COLUMNS = "columns"  # the question about every column
PAYLOAD = 1024  # bytes of counts of the whole
ROOM = 16  # times the average number of records that one client may hold


def numbers_per_client(average: float) -> tuple[int, ...]:
    """Numbers worth trying if a client holds so many records on average.

    At most half of the average: a client that holds fewer repeats its records, which adds nothing.

    >>> numbers_per_client(112), numbers_per_client(3), numbers_per_client(1)
    ((56, 28, 14), (1,), (1,))
    """
    largest = min(MOST, int(average / 2))
    return tuple(sorted({max(1, largest >> i) for i in range(TRIED)}, reverse=True))


def check_per_client(number: int, average: float) -> int:
    """Refuses more records than a client holds on average, before a plan with them takes minutes.

    >>> check_per_client(20, 60.0)
    20
    """
    if check_positive_int(number, "per_client") > (most := max(1, math.ceil(average))):
        raise InvalidInputError(
            f"Every client would contribute {number:,} records, and holds {most:,} on average: "
            "repeating them adds noise and tells nothing more. Use at most "
            f"{most:,} (--per-client; in Python: per_client), or leave it out for the best number."
        )
    return number


def best_per_client(plan_with: Callable[[int], PlannedRound], average: float) -> PlannedRound:
    """The plan with the least predicted error; of plans that are nearly as good, the first."""
    planned = [plan_with(number) for number in numbers_per_client(average)]
    return least(planned, lambda each: each.error)


PLANNERS: dict[str, Callable[[Known, Plan], PlannedRound]] = {
    "aggregator": plan_trusted,
    "none": plan_untrusted,
}


def plan_round(
    reference: Reference | str | Path,
    *,
    clients: int,
    records: int,
    epsilon: float,
    delta: float = 1e-6,
    payload: int | None = None,
    trust: Trust = "aggregator",
    releases: int = 1,
    population: str = "clients",
    ask: Sequence[str] | None = None,
    control: Control = "family",
    skew: float | None = None,
    most_records: int | None = None,
    cohort: int | None = None,
    false_alarm: float = 0.01,
    design_effect: float | None = None,
    threshold: float | None = None,
    aggregator: str = "",
    roster: str = "",
    series: Series | None = None,
    unit: Unit = "record",
    per_client: int | None = None,
    empty: Empty = "reference",
) -> PlannedRound:
    """The plan with the smallest predicted error that sends at most `payload` bytes of counts.

    `reference` is Pi, or the path of a reference file. `payload` is for all counts of a client
    (default: 1,024 bytes for the whole, and what the columns need). `epsilon` and `delta` are for
    all `releases` together. `trust` says who may see exact sums: the "aggregator", or "none". `ask`
    names registered divergences of the whole, of which the first is the size of the drift, and
    "columns" for a question about every column by itself (default: kl, tv, js and columns, as far
    as the reference has them). `control` says what the false-alarm rate over columns is about: the
    "family" of all of them, or "discovery". `skew` is the share of Pi that is mixed into P
    (default: what each divergence recommends). `most_records` is the largest number of records one
    client may hold (default: 16 times the average); a client with more stays away. `design_effect`
    says how correlated the records of one client are (default: from the reference's size and, with
    client ids, its correlation). `aggregator` is the key that answers are sealed to, where a relay
    carries them, `roster` the fingerprint of the clients who may take part. With a `series`,
    `records` and `clients` are those of one release, the budget is that of one record over all
    releases, `false_alarm` is per year, and every cell is asked. `unit` says whom the budget
    protects: one "record", or one "client" with all it holds; then each client contributes
    `per_client` records (default: what is predicted best), and one without records draws them from
    the reference or stays away, as `empty` says. Cost: some seconds, whatever the domain.

    Examples
    --------
    >>> from fedprikl import Reference
    >>> from fedprikl.planning import plan_round
    >>> reference = Reference.from_counts([30, 20, 15, 12, 9, 6, 4, 3, 1])
    >>> planned = plan_round(reference, clients=40, records=4000, epsilon=1.0)
    >>> planned.plan.points, [each.divergence for each in planned.plan.about_whole]
    (9, ['kl', 'tv', 'js'])
    >>> 0 < planned.smallest_drift < 1
    True

    """
    pi = Reference.of(reference)
    for value, name in ((clients, "clients"), (records, "records")):
        check_positive_int(value, name)
    if payload is not None:
        check_positive_int(payload, "payload")
    if series is not None and (releases != 1 or payload is not None):
        raise InvalidInputError(
            "A series has a release per period and asks for every cell: leave out releases and "
            "payload."
        )
    _check_federation(trust, clients, cohort, threshold)
    names, by_column = _asked(ask, pi)
    beside = (WHOLE if names else 1.0) if by_column else 0.0
    columns = ask_columns(pi) if by_column else ()
    room = _room(records / clients) if most_records is None else most_records
    draft = Plan(
        population=population,
        reference=pi.fingerprint,
        trust=trust,
        budget=Budget(
            epsilon=epsilon,
            delta=delta,
            releases=releases,
            total_epsilon=epsilon,
            total_delta=delta,
        ),
        views=(*((AskedView(points=1),) if names else ()), *columns),
        questions=(
            *_questions(names, skew, trust, 1 - beside),
            *(column_questions(columns, counts=beside) if columns else ()),
        ),
        sums=SumRules(most_records=room),
        verdict=VerdictRules(
            false_alarm=false_alarm,
            design_effect=design_effect,
            threshold=threshold,
            control=control,
        ),
        aggregator=aggregator,
        roster=roster,
    )
    known = Known(pi, Spectrum.of(pi.probabilities), clients, records, payload or PAYLOAD, cohort)
    if unit == "record":
        if per_client is not None or empty != "reference":
            raise InvalidInputError(
                "`per_client` and `empty` belong to unit='client': a plan that protects single "
                "records counts all of them."
            )
        return _plan(known, draft, payload, series)

    def plan_with(number: int) -> PlannedRound:
        drawn = draft.changed(unit=WholeClient(number, empty), most_records=number)
        return _plan(replace(known, records=number * clients), drawn, payload, series)

    if most_records is not None:
        raise InvalidInputError(
            "Where whole clients are protected, each contributes per_client records, however many "
            "it holds: leave out most_records."
        )
    if per_client is not None:
        return plan_with(check_per_client(per_client, records / clients))
    return best_per_client(plan_with, records / clients)


def _plan(known: Known, draft: Plan, payload: int | None, series: Series | None) -> PlannedRound:
    """The plan for what is known, with the design effect of clients whose records are alike."""
    effect, correlation = draft.verdict.design_effect or 1.0, known.reference.whole.correlation
    if draft.verdict.design_effect is None and correlation is not None:
        effect = correlation.design_effect(clients=known.clients, records=known.records)
    plan = draft.changed(client_effect=effect)
    if series is not None:
        planned = plan_series(known, plan, series)
    elif plan.columns:
        planned = plan_columns(known, plan, payload)
    else:
        planned = PLANNERS[plan.trust](known, plan)
    return replace(planned, find_liars=cache(lambda: liar_bounds(known, planned.plan)))


def _check_federation(
    trust: str, clients: int, cohort: int | None, threshold: float | None
) -> None:
    """Refuses what no plan can be made for."""
    if trust not in PLANNERS:
        raise InvalidInputError(f"Trust is 'aggregator' or 'none', got {trust!r}.")
    if clients < 3:
        raise InvalidInputError("A secure sum needs at least 3 clients, or it hides nobody.")
    if cohort is not None and check_positive_int(cohort, "cohort") < 3:
        raise InvalidInputError("A cohort needs at least 3 clients, or a sum hides nobody.")
    if threshold is not None and check_finite(threshold, "threshold") < 0:
        raise InvalidInputError(f"threshold is a divergence: at least 0, got {threshold}.")


def _asked(ask: Sequence[str] | None, reference: Reference) -> tuple[tuple[str, ...], bool]:
    """The divergences of the whole that are asked, and whether the columns are."""
    if ask is None:
        return (ASK if reference.joint else ()), bool(reference.views)
    if isinstance(ask, str) or not ask:
        raise InvalidInputError(
            'Ask for one or more by name, like ask=("kl", "tv") or ask=("kl", "columns").'
        )
    names = tuple(name for name in ask if name != COLUMNS)
    if names and not reference.joint:
        raise InvalidInputError(
            f"The reference has columns only, so {', '.join(names)} of the whole cannot be asked. "
            "Ask for columns alone, or build a reference of fewer columns."
        )
    if COLUMNS in ask and not reference.views:
        raise InvalidInputError(
            "The reference has one column or none, so there is nothing to ask column by column. "
            "Leave 'columns' out."
        )
    return names, COLUMNS in ask


def _questions(
    ask: Sequence[str], skew: float | None, trust: Trust, share: float
) -> tuple[Question, ...]:
    """A question for each divergence, before a design and the shares are chosen."""
    return tuple(
        Question(
            divergence=name,
            share=share / len(ask),
            skew=divergence_named(name).skew if skew is None else skew,
            release="counts" if trust == "none" else "value",
        )
        for name in ask
    )


def _room(average: float) -> int:
    """A generous number of records for one client, of the form 2^k - 1: it costs k bits."""
    return int(max(255, 2 ** math.ceil(math.log2(ROOM * average + 1)) - 1))
