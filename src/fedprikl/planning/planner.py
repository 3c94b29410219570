"""The planner: from what a user knows to the plan with the smallest predicted error.

It reads the reference and public numbers, nothing else: no parameter can depend on private data.

One search, whatever the trust, the unit, the views and the series: candidates differ in the design
(which cells are asked of which batches), the release option, the shares of the budget, the noise
and, for whole clients, the records of each. Each is simulated (`simulated_round.py`), and the one
with the smallest errors is taken.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedprikl.checks import check_finite, check_positive_int
from fedprikl.divergence import divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import public_simulation
from fedprikl.planning.budget import (
    afforded,
    fitted,
    shared_evenly,
    shared_over_time,
    split_budget,
)
from fedprikl.planning.client_sizes import ClientSizes
from fedprikl.planning.design import EXPONENTS, DesignForecast, Spectrum, search_designs
from fedprikl.planning.explain import Reason, column_reasons, plan_reasons, search_reasons
from fedprikl.planning.known import MOST_POINTS, REPORT_BYTES, Known
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.rule import RULE, Choice, least_regret
from fedprikl.planning.simulated_round import (
    LEAST_RATE,
    TIE,
    SimulatedRound,
    least,
    typical_error,
)
from fedprikl.planning.views import whole_alone, without_hopeless_whole
from fedprikl.privacy import Calibrated, Unit
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
from fedprikl.protocol.question import WHOLE, AskedView, Columns, Question, ReleaseOption
from fedprikl.protocol.series import Once, Series
from fedprikl.protocol.servers import Servers
from fedprikl.protocol.sums import ScoredSum
from fedprikl.reference import Reference

ASK = ("kl", "tv", "js")  # about the whole, the size first
COLUMNS = "columns"  # the question about every column
SIZES = ("tv", "kl")  # of each column, read off its noisy counts
CHOICES = {
    name: get_args(kind)
    for name, kind in (("trust", Trust), ("unit", Unit), ("empty", Empty), ("control", Control))
}
MOST_CLIENTS = 10**8  # whose cohorts are listed in seconds
PAYLOAD, BESIDE = 4096, 1024  # bytes of counts of the whole: alone, and beside columns
LEAST_ROOM = 16  # bytes for the counts of the whole beside columns
ROOM = 16  # times the average number of records that one client may hold
BATCHES = (1, 2, 4, 8, 16, 32, 64)
COHORT: dict[Trust, int] = {  # clients of a secure sum
    "aggregator": 50,
    "none": 5000,  # each cohort carries its own noise: as few as possible
    "servers": MOST_CLIENTS,  # all reports are one sum
}
DRIFTED = 0.05  # nats: a drift of a column
CLOSE = 1.25  # times the least regret: fewer records of each client are as good
SAMPLES = 20  # populations without drift, for the mean of their divergence


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
    tolerate: float | Mapping[str, float] = 0.0,
    aggregator: str = "",
    servers: Servers | None = None,
    roster: str = "",
    series: Series | None = None,
    unit: Unit = "record",
    per_client: int | None = None,
    typical_records: int | None = None,
    empty: Empty = "reference",
) -> PlannedRound:
    """The plan with the smallest predicted error that sends at most `payload` bytes of counts.

    `reference` is Pi, or the path of a reference file. `payload` is for all counts of a client
    (default: 4,096 bytes for the whole; beside columns 1,024 and what these need; with three
    servers, what all cells need). `epsilon` and `delta` are for all `releases` together. `trust`
    says who may see exact sums: the "aggregator", "none", or none of three "servers", whose keys
    and addresses `servers` has (none: all are in one process). `ask` names registered divergences
    of the whole, of which the first is the size of the drift, and "columns" for a question about
    every column by itself (default: kl, tv, js and columns, as far as the reference has them).
    `control` says what the false-alarm rate over columns is about: the "family" of all of them, or
    "discovery". `skew` is the share of Pi that is mixed into P (default: what each divergence
    recommends). `most_records` is the largest number of records one client may hold (default: 16
    times the average); a client with more stays away. `design_effect` says how correlated the
    records of one client are (default: from the reference's size and, with client ids, its
    correlation). It is a rough correction, and does not replace ids. `tolerate` is a total
    variation up to which a drift does not matter, for all views, or by the name of a column ("": of
    all others). `aggregator` is the key that answers are sealed to, where a relay carries them,
    `roster` the fingerprint of the clients who may take part. With a `series`, `records` and
    `clients` are those of one release, the budget is that of one record over all releases,
    `false_alarm` is per year, and every cell is asked. `unit` says whom the budget protects: one
    "record", or one "client" with all it holds; then each client contributes `per_client` records
    (default: what is predicted best, and no more than the `typical_records` that most clients
    hold). One that holds fewer fills up with records of the reference; one without any does so or
    stays away, as `empty` says. Cost: some seconds, whatever the domain.

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
    clients, records, releases, epsilon, delta = _plain(clients, records, releases, epsilon, delta)
    payload, most_records, cohort = _plain(payload, most_records, cohort)
    per_client, typical_records = _plain(per_client, typical_records)
    skew, false_alarm, design_effect, threshold = _plain(
        skew, false_alarm, design_effect, threshold
    )
    for value, name in ((clients, "clients"), (records, "records")):
        check_positive_int(value, name)
    if payload is not None:
        check_positive_int(payload, "payload")
    if series is not None and (releases != 1 or payload is not None):
        raise InvalidInputError(
            "A series has a release per period and asks for every cell: leave out releases and "
            "payload."
        )
    for choice, name in ((trust, "trust"), (unit, "unit"), (empty, "empty"), (control, "control")):
        if choice not in CHOICES[name]:
            words = " or ".join(map(repr, CHOICES[name]))
            raise InvalidInputError(f"`{name}` is {words}, got {choice!r:.40}.")
    _check_federation(clients, cohort, threshold)
    _check_kinds(series, population=population, aggregator=aggregator, roster=roster)
    names, by_column = _asked(ask, pi)
    beside = (RULE.columns if names else 1.0) if by_column else 0.0
    views = pi.views if by_column else ()
    columns = tuple(view.columns for view in views)
    release: ReleaseOption = "value" if trust == "aggregator" else "counts"
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
        views=(
            *((AskedView(points=1),) if names else ()),
            *(AskedView(columns=view.columns, points=view.size) for view in views),
        ),
        questions=(
            *_questions(names, (WHOLE,), 1 - beside, release, skew),
            *(_questions(SIZES, columns, beside, "counts") if columns else ()),
        ),
        sums=SumRules(
            most_records=_room(records / clients) if most_records is None else most_records,
        ),
        verdict=VerdictRules(
            false_alarm=false_alarm,
            design_effect=design_effect,
            threshold=threshold,
            control=control,
            **_tolerances(tolerate),
        ),
        aggregator=aggregator,
        servers=servers or (Servers() if trust == "servers" else None),
        roster=roster,
    )
    draft.check_tolerance()
    usual = BESIDE if columns else PAYLOAD
    if trust == "servers":
        usual = MOST_POINTS * REPORT_BYTES
    spectrum = Spectrum.of(pi.probabilities)
    known = Known(pi, spectrum, clients, records, payload or usual, cohort, held=records)
    if unit == "record":
        if (per_client, typical_records, empty) != (None, None, "reference"):
            raise InvalidInputError(
                "`per_client`, `typical_records` and `empty` belong to unit='client': a plan that "
                "protects single records counts all of them."
            )
        return _best_plan(known, draft, payload, series, choose=ask is None)
    if most_records is not None:
        raise InvalidInputError(
            "Where whole clients are protected, each contributes per_client records, however many "
            "it holds: leave out most_records."
        )
    sizes = ClientSizes.of(pi, records / clients, typical_records)
    planned = [
        _best_plan(
            replace(known, records=number * clients),
            draft.changed(unit=WholeClient(number, empty), most_records=number),
            payload,
            series,
            choose=ask is None,
        )
        for number in sizes.numbers(per_client)
    ]
    best = _fewest(planned, 1.0 if sizes.known else CLOSE) if len(planned) > 1 else planned[0]
    return replace(best, reasons=(*best.reasons, sizes.reason(best.plan.contribution_bound)))


def _fewest(planned: Sequence[PlannedRound], close: float) -> PlannedRound:
    """Of plans for ever fewer records of each client, the last that is nearly as good as the best.

    By its largest regret: an error at some drift, or the smallest drift, over the best of all.
    Nearly as good is within the factor `close` of the least regret. Fewer records of each client
    leave fewer clients short, and no forecast knows how many are.
    """
    found = [_losses(each) for each in planned]
    if len({each.taken is None for each in planned}) > 1:  # they have only the drift in common
        found = [each[-1:] for each in found]
    losses = np.array(found)
    worst = (losses / losses.min(axis=0)).max(axis=1)
    return planned[int(np.flatnonzero(worst <= close * (1 + TIE) * worst.min())[-1])]


def _losses(planned: PlannedRound) -> list[float]:
    """The errors at all drifts, and the smallest drift that is found, over all kinds.

    Forecasts are of the drawn records. That these are a sample of what clients hold adds what the
    divergence of a sample is without drift. Of columns alone, the error and drift of a typical one.
    """
    about = planned.taken or planned.column
    assert about is not None  # noqa: S101  a plan asks about the whole or about columns
    drift = typical_error(list(about.rough_drifts.values()))
    if (taken := planned.taken) is None:
        return [planned.error, drift]
    counts = taken.no_drift.counts(SAMPLES, public_simulation())
    chance = float(taken.before_noise(counts, taken.score).mean())
    return [*(case.error + max(0.0, chance) for case in planned.forecasts), drift]


def _best_plan(
    known: Known, draft: Plan, payload: int | None, series: Series | None, *, choose: bool
) -> PlannedRound:
    """The plan with the least regret, for one contribution of each client.

    The draft's budget is for all releases together. `choose`: nobody insists on the whole.
    """
    hopeless: tuple[Reason, ...] = ()
    effect, correlation = draft.verdict.design_effect or 1.0, known.reference.whole.correlation
    if draft.verdict.design_effect is None and correlation is not None:
        effect = correlation.design_effect(clients=known.clients, records=known.records)
    cohort = max(3, min(known.clients, known.cohort or COHORT[draft.trust]))
    draft = draft.changed(client_effect=effect, cohort=cohort)
    if series is not None:
        planned = _plan_series(known, draft, series)
    else:
        fitting = replace(known, payload=_payload_of_whole(known, draft, payload))
        if choose:
            draft, hopeless = without_hopeless_whole(fitting, draft)
        known = replace(known, payload=_payload_of_whole(known, draft, payload))
        if not draft.points:
            shares = draft.trust == "none"
            plan = shared_evenly(draft) if shares else fitted(_split_columns(known, draft))
            planned = PlannedRound(plan=plan, known=known, reasons=plan_reasons(plan, support=0))
        elif draft.trust == "none" or _is_too_wide(known, draft):
            planned = _plan_shares(known, shared_evenly(draft))
        elif draft.columns:
            planned = _plan_beside_columns(known, draft)
        else:
            planned = _plan_sums(known, draft)
    planned.plan.check_lost()
    reasons = (*hopeless, *planned.reasons, *column_reasons(planned.plan))
    return replace(planned, reasons=reasons, hopeless=hopeless)


def _is_too_wide(known: Known, draft: Plan) -> bool:
    """Whether three servers are asked for some cells only: then they release counts alone."""
    return draft.trust == "servers" and known.points_that_fit(draft) < known.spectrum.cells


def _payload_of_whole(known: Known, draft: Plan, payload: int | None) -> int:
    """Bytes for the counts of the whole; where nobody is trusted, for all counts together.

    `payload` is for all counts; None: as many bytes as the columns need beside those of the whole.
    """
    if not draft.columns:
        return known.payload
    shares = draft.trust == "none"
    needed = known.column_bytes(shared_evenly(draft) if shares else draft)
    fewest = needed + (LEAST_ROOM if draft.points else 0)
    if payload is None:
        payload = needed + (known.payload if draft.points else 0)
    if payload < fewest:
        alone = ", or ask about the whole only (--ask kl,tv,js)" if draft.points else ""
        raise InvalidInputError(
            f"The counts of all columns need {fewest:,} bytes per client, and {payload:,} are "
            f"allowed. Allow more (--payload), or compare fewer columns or bins{alone}."
        )
    return payload if shares else payload - needed


def _plan_series(known: Known, draft: Plan, series: Series) -> PlannedRound:
    """Every release is noisy counts of all cells, so that they add up over time.

    `known` is about one release, and so is what is predicted. The budget is that of one unit.
    """
    cells = known.spectrum.cells if draft.points else 0
    if (asked := cells + draft.column_points) > MOST_POINTS:
        raise InvalidInputError(
            f"A series asks for every cell, here {asked:,}, and clients accept "
            f"{MOST_POINTS:,}. Compare fewer columns or bins, or ask for columns alone "
            "(--ask columns)."
        )
    counts = (draft.asking(cells) if cells else draft).changed(
        releases=series.exposures(draft.unit.kind),
        when=series,
        questions=tuple(replace(each, release="counts") for each in draft.questions),
    )
    plan = shared_over_time(known, counts) if draft.trust == "none" else afforded(counts)
    reasons = plan_reasons(plan, support=cells)
    periods = series.periods
    if not plan.points:
        return PlannedRound(plan=plan, known=known, reasons=reasons, periods=periods)
    once = plan.changed(when=Once(), releases=1)
    whole = whole_alone(once)
    taken = SimulatedRound.of(whole.changed(false_alarm=LEAST_RATE), known)
    richer = replace(taken, plan=taken.plan.changed(epsilon=2 * whole.budget.epsilon))
    return PlannedRound(
        plan=plan,
        known=known,
        reasons=reasons,
        taken=taken,
        options=(taken,),
        find_doublings=lambda: {"epsilon": richer.typical},
        periods=periods,
    )


def _plan_shares(known: Known, draft: Plan) -> PlannedRound:
    """Without a trusted party: one batch, and every divergence is read off the same noisy counts.

    Releases are charged one by one, so the draft has the budget of one of them.
    """
    points = known.points_that_fit(draft)
    exponents = EXPONENTS if points < known.spectrum.cells else (1.0,)
    candidates = (SimulatedRound.of(draft.asking(points, each), known) for each in exponents)
    taken = least(candidates, lambda each: each.typical)
    plan = taken.plan

    def doublings() -> dict[str, float]:
        wider = replace(known, payload=2 * known.payload)
        more = plan.asking(wider.points_that_fit(plan), plan.whole.exponent)
        richer = plan.changed(epsilon=2 * plan.budget.epsilon)
        best = taken if taken.complete else SimulatedRound.of(more, known)
        return {"payload": best.typical, "epsilon": SimulatedRound.of(richer, known).typical}

    return PlannedRound(
        plan=plan,
        known=known,
        taken=taken,
        options=(taken,),
        reasons=plan_reasons(plan, support=known.spectrum.cells),
        find_doublings=doublings,
    )


def _plan_sums(known: Known, draft: Plan) -> PlannedRound:
    """The whole, where somebody computes on sums: the best design, and its best release option."""
    total, delta = draft.budget.total
    noise = split_budget(epsilon=total, delta=delta, releases=draft.budget.releases)
    searched = _search_designs(known, draft, noise)
    best = least(searched, lambda each: each.error)
    choice = Choice(known, draft, best.design, noise)
    taken = replace(choice.taken, plan=afforded(choice.taken.plan))

    def doublings() -> dict[str, float]:
        wider, richer = replace(known, payload=2 * known.payload), taken.plan.budget
        doubled = taken.plan.changed(epsilon=2 * richer.epsilon, total_epsilon=2 * richer.total[0])
        found = {"epsilon": replace(taken, plan=doubled).typical, "payload": taken.typical}
        if not taken.complete:
            design = least(_search_designs(wider, draft, noise), lambda each: each.error).design
            found["payload"] = Choice(wider, draft, design, noise).taken.typical
        return found

    return PlannedRound(
        plan=taken.plan,
        known=known,
        taken=taken,
        options=tuple(taken if each is choice.taken else each for each in choice.all),
        reasons=(
            *plan_reasons(taken.plan, support=known.spectrum.cells),
            *search_reasons(choice, taken.plan, searched, best),
        ),
        find_doublings=doublings,
    )


def _search_designs(known: Known, draft: Plan, noise: Calibrated) -> list[DesignForecast]:
    """Forecasts of all designs that fit, for one number with additive noise."""
    points = {
        batches: known.points_that_fit(draft.changed(batches=batches))
        for batches in (BATCHES if draft.trust == "aggregator" else (1,))
        if batches == 1 or known.clients // batches >= draft.sums.cohort
    }
    return search_designs(
        known.spectrum,
        score=ScoredSum(draft).score,
        records=known.records,
        points=points,
        noise_per_sensitivity=noise.noise.standard_deviation,
        client_effect=draft.verdict.client_effect,
        contribution_bound=draft.contribution_bound,
    )


def _plan_beside_columns(known: Known, draft: Plan) -> PlannedRound:
    """The whole is planned with its part of the budget, as if there were no columns."""
    planned = _plan_sums(known, whole_alone(draft))
    part = 1 - _columns_share(draft)
    whole = tuple(replace(each, share=each.share * part) for each in planned.plan.questions)
    plan = planned.plan.changed(
        views=planned.plan.views + draft.columns,
        questions=whole + draft.about_columns,
        budget=draft.budget,
        false_alarm=draft.verdict.false_alarm,
    )
    plan = fitted(_split_columns(known, plan))
    assert planned.taken is not None  # noqa: S101  the whole is asked
    return replace(planned, plan=plan, taken=replace(planned.taken, plan=whole_alone(plan)))


def _columns_share(plan: Plan) -> float:
    return math.fsum(question.share for question in plan.about_columns)


def _split_columns(known: Known, plan: Plan) -> Plan:
    """The plan, with the columns' share split between tv and counts. Trust: not "none".

    By the same rule as the whole (`rule.py`), for a typical column. js finds no drift that tv and
    counts do not.
    """
    share, plans = _columns_share(plan), list[Plan]()
    views = tuple(view.columns for view in plan.columns)
    for tv in RULE.tv_of_columns:
        values = _questions(("tv",), views, tv * share, "value") if tv else ()
        counts = _questions(SIZES, views, (1 - tv) * share, "counts")
        plans.append(replace(plan, questions=plan.about_whole + values + counts))
    found, first = [], SimulatedRound.of_column(plans[0], known)
    for each in plans:
        column = replace(first, plan=each)
        found.append(column.rough_drifts | {"error": column.predict("smooth", DRIFTED) or 1.0})
    return plans[least_regret(found)]


def _tolerances(tolerate: float | Mapping[str, float]) -> dict[str, Any]:
    """What a plan tolerates: in every view, and by the names of columns."""
    given = dict(tolerate) if isinstance(tolerate, Mapping) else {"": tolerate}
    (every,) = _plain(given.pop("", 0.0))
    names = sorted(given)
    columns = tuple(zip(names, _plain(*(given[name] for name in names)), strict=True))
    return {"tolerate": every, "tolerate_columns": columns}


def _check_federation(clients: int, cohort: int | None, threshold: float | None) -> None:
    """Refuses what no plan can be made for."""
    if clients < 3:
        raise InvalidInputError("A secure sum needs at least 3 clients, or it hides nobody.")
    if cohort is not None and check_positive_int(cohort, "cohort") < 3:
        raise InvalidInputError("A cohort needs at least 3 clients, or a sum hides nobody.")
    if clients > MOST_CLIENTS:
        raise InvalidInputError(f"A plan is for at most {MOST_CLIENTS:,} clients.")
    if threshold is not None and check_finite(threshold, "threshold") < 0:
        raise InvalidInputError(f"threshold is a divergence: at least 0, got {threshold}.")


def _plain(*values: Any) -> Iterator[Any]:
    """Numbers of numpy, like the sum of an array, as Python's: a plan is written as JSON."""
    return (value.item() if isinstance(value, np.generic) else value for value in values)


def _check_kinds(series: Series | None, **texts: str) -> None:
    """Refuses what is easily confused with them: a key object, None, the name of a period."""
    if series is not None and not isinstance(series, Series):
        raise InvalidInputError(
            f"`series` is a `fedprikl.Series`, got {type(series).__name__}, like "
            'fk.Series(every="week", first="2027-01-04", periods=52).'
        )
    for name, value in texts.items():
        if not isinstance(value, str):
            raise InvalidInputError(f"`{name}` is a text, got {type(value).__name__}.")


def _asked(ask: Sequence[str] | None, reference: Reference) -> tuple[tuple[str, ...], bool]:
    """The divergences of the whole that are asked, and whether the columns are."""
    if ask is None:
        return (ASK if reference.joint else ()), bool(reference.views)
    if not isinstance(ask, list | tuple) or not ask:
        raise InvalidInputError(
            'Ask for one or more by name, like ask=("kl", "tv") or ask=("kl", "columns").'
        )
    names = tuple(name for name in ask if name != COLUMNS)
    for name in names:
        try:
            divergence_named(name)
        except InvalidInputError as error:
            more = f" Besides divergences, {COLUMNS!r} asks about every column."
            raise InvalidInputError(f"{error}{more}") from None
    if names and not reference.joint:
        raise InvalidInputError(
            f"The reference has columns only, so {', '.join(names)} of the whole cannot be asked. "
            "Ask for 'columns' alone, or build a reference of fewer columns."
        )
    if COLUMNS in ask and not reference.views:
        raise InvalidInputError(
            "The reference has one column or none, so there is nothing to ask column by column. "
            "Leave 'columns' out."
        )
    return names, COLUMNS in ask


def _questions(
    ask: Sequence[str],
    views: tuple[Columns, ...],
    share: float,
    release: ReleaseOption,
    skew: float | None = None,
) -> tuple[Question, ...]:
    """A question for each divergence of some views, with equal shares of the budget."""
    return tuple(
        Question(
            divergence=name,
            views=views,
            share=share / len(ask),
            skew=divergence_named(name).skew if skew is None else skew,
            release=release,
        )
        for name in ask
    )


def _room(average: float) -> int:
    """A generous number of records for one client, of the form 2^k - 1: it costs k bits."""
    return int(max(255, 2 ** math.ceil(math.log2(ROOM * average + 1)) - 1))
