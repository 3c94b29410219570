"""`fedprikl plan`: fix what all parties agree on, before any private data is touched."""

import math
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from fedprikl.cli.console import notes, print_json, say, show, show_table, shown
from fedprikl.cli.option_file import Source, Write, options_text
from fedprikl.cli.options import (
    Force,
    Json,
    Limits,
    check_outputs,
    grouped,
    in_panels,
    load_reference,
    passed_on,
)
from fedprikl.cli.release_output import plan_words
from fedprikl.divergence import divergence_named
from fedprikl.documents import readable
from fedprikl.errors import InvalidInputError
from fedprikl.front.checking import check_limits
from fedprikl.planning import PlannedRound, plan_round
from fedprikl.planning.cases import WORDS
from fedprikl.planning.known import SumCost
from fedprikl.planning.planned_round import ColumnForecast
from fedprikl.planning.simulated_round import LEAST_RATE
from fedprikl.protocol import Plan, Roster, Series, Servers, SignedPlan, SigningKey
from fedprikl.protocol.series import Every, series_until
from fedprikl.store import write_whole

VALID_DAYS = 90.0
AFTER_SERIES = timedelta(days=30)  # in which its last period can still be counted
TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"]


WANTED = {  # parameters of `plan_round`
    "clients": typer.Option(min=3, help="How many clients there are, about."),
    "records": typer.Option(min=1, help="How many records they hold in all, about."),
    "delta": "Used where the noise is not pure.",
    "population": "Whose budget is charged.",
    "payload": typer.Option(
        min=1,
        help="Bytes of counts a client may send. Default: 4,096; beside columns 1,024 and what "
        "these need.",
    ),
    "trust": "Who may see exact sums.",
    "releases": typer.Option(min=1, help="How many releases the budget is for."),
    "most_records": typer.Option(min=1, help="Of one client; default: 16 times the average."),
    "cohort": typer.Option(min=3, help="Clients of one secure sum, about."),
    "control": "False alarms over columns: of any (family), or their share.",
    "skew": "Share of Pi mixed into P; defines the target. Default: 0.01 for KL.",
    "false_alarm": "How often drift may be found where none is.",
    "design_effect": "How correlated one client's records are; default: as the reference's client "
    "ids show. A rough correction, which does not replace ids.",
    "threshold": "Divergence to draw into the report.",
    "unit": "Whom the budget protects: one record, or one client with all it holds.",
    "per_client": typer.Option(
        min=1,
        help="With --unit client: records that each client draws and contributes. Default: what "
        "is predicted best.",
    ),
    "typical_records": typer.Option(
        min=1,
        help="With --unit client: most clients hold at least so many records. No more are drawn of "
        "each. Default: half of the average, or fewer if the reference's client ids say so.",
    ),
    "empty": "With --unit client: a client without records draws from the reference, or stays "
    "away. One with too few always fills up from the reference.",
    "aggregator": "Public key to seal answers to, from `fedprikl keys`; for federations.",
}
PANELS = {
    "What is asked": ("ask", "tolerate", "false_alarm", "control", "skew", "threshold"),
    "Who takes part": (
        *("clients", "records", "population", "trust", "roster", "aggregator", "servers"),
    ),
    "Privacy": (
        *("epsilon", "delta", "releases", "unit", "per_client", "typical_records", "empty"),
        *("largest_epsilon", "largest_delta"),
    ),
    "When": (
        *("every", "first", "until", "time_column", "time_zone", "window"),
        *("serial", "valid_days", "valid_until"),
    ),
    "How": (
        *("payload", "most_records", "cohort", "design_effect", "source", "write", "key"),
        *("output", "force", "explain", "json"),
    ),
}
DAY = ["%Y-%m-%d"]


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A series, and how long the plan may be used."""

    every: Annotated[
        Every | None,
        typer.Option(help="A series: a release for every day, week, month or quarter."),
    ] = None
    first: Annotated[
        datetime | None,
        typer.Option(formats=DAY, help="First day of the series. Default: the next that fits."),
    ] = None
    until: Annotated[
        datetime | None, typer.Option(formats=DAY, help="Last day of the series, like 2027-12-31.")
    ] = None
    time_column: Annotated[
        str,
        typer.Option(
            help="Column with the time of a record, which says its period. Default: the name of "
            "its file or folder says it, like 2027-W01."
        ),
    ] = ""
    time_zone: Annotated[
        str, typer.Option(help="Where days of the series begin, like Europe/Amsterdam.")
    ] = "UTC"
    window: Annotated[
        int, typer.Option(min=1, help="Periods that each release counts; a record is in as many.")
    ] = 1
    serial: Annotated[
        int | None,
        typer.Option(min=0, help="A higher number replaces older plans. Default: the time."),
    ] = None
    valid_days: Annotated[
        float | None,
        typer.Option(min=0, help="How many days, from now, the plan may be used. Default: 90."),
    ] = None
    valid_until: Annotated[
        datetime | None,
        typer.Option(formats=TIMES, help="Instead: until when, in UTC, like 2030-01-31."),
    ] = None

    def series(self, now: datetime) -> Series | None:
        """The series that is asked for; None: one release about all records."""
        if self.every is None:
            odd = self.first or self.until or self.time_column or self.time_zone != "UTC"
            if odd or self.window > 1:
                raise typer.BadParameter(
                    "--first, --until, --time-column, --time-zone and --window are for a series: "
                    "say how often with --every."
                )
            return None
        if self.until is None:
            raise typer.BadParameter("A series needs an end: give its last day with --until.")
        return series_until(
            self.every,
            self.until.date(),
            first=None if self.first is None else self.first.date(),
            now=now,
            zone=self.time_zone,
            time_column=self.time_column,
            window=self.window,
        )

    def end(self, begin: datetime, series: Series | None) -> datetime:
        """When the plan expires."""
        days, until = self.valid_days, self.valid_until
        if days is not None and until is not None:
            raise typer.BadParameter("--valid-days and --valid-until exclude each other. Give one.")
        if series is not None and days is None and until is None:
            until = series.end + AFTER_SERIES
            if until <= begin:  # a past is replayed
                until, days = None, AFTER_SERIES.days
        days = VALID_DAYS if days is None else days
        try:
            end = begin + timedelta(days=days) if until is None else until.replace(tzinfo=UTC)
        except OverflowError:
            raise InvalidInputError(
                f"{days:g} days are beyond the calendar. Use fewer (--valid-days)."
            ) from None
        if end <= begin:
            advice = "Give a later --valid-days, counted from now"
            if until is not None:
                advice = "Give a later --valid-until, or the days from now: --valid-days"
            raise InvalidInputError(f"The plan would have expired already. {advice}.")
        return end.replace(microsecond=0)


@in_panels(PANELS)
@passed_on(plan_round, "wanted", WANTED)
@grouped
def plan_command(
    context: typer.Context,
    reference: Annotated[Path, typer.Argument(help="The reference, from `fedprikl reference`.")],
    wanted: dict[str, Any],
    when: When,
    limits: Limits,
    epsilon: Annotated[float, typer.Option(help="Privacy budget of all planned releases.")] = 1.0,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            help="Divergences of the whole, the size first, and `columns` for every column; "
            "repeat it or use commas, like --ask kl,columns. Default: kl, tv, js and columns."
        ),
    ] = None,
    tolerate: Annotated[
        list[str] | None,
        typer.Option(
            help="A total variation up to which a drift does not matter, like 0.05, or of one "
            "column, like age=0.1. May be repeated. Default: every drift matters."
        ),
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(help="Public keys of the sites that may take part, one per line.")
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option(
            help="With --trust servers: a JSON file with the public keys and addresses of three "
            "servers. Default: all parties are in one process."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Sign the plan with this key; made if it is missing.")
    ] = None,
    source: Source = None,  # noqa: ARG001  its callback reads it
    write: Write = None,
    explain: Annotated[bool, typer.Option("--explain", help="Why each parameter is so.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The plan.")] = Path("plan.json"),
    force: Force = False,
    json: Json = False,
) -> None:
    """Writes the plan with the smallest predicted error, and says what error to expect.

    Only the reference and public numbers go in; everything that can be chosen is. Errors are
    simulated for populations that have drifted in several ways, from not at all to by 1 nat.

    With --every and --until it plans a series: a release per period, for `fedprikl monitor`.
    Then --records are those of one release, --epsilon is what one record may lose over all of them,
    and --false-alarm is per year.

    With --unit client the budget protects each client with all the records it holds.

    Example: `fedprikl plan ref.json --clients 500 --records 60000 --epsilon 1 --explain`

    Example: `fedprikl plan ref.json --clients 3000 --records 340000 --unit client`

    Example: `fedprikl plan --from plan.toml --epsilon 0.5`

    Example: `fedprikl plan ref.json --clients 40 --records 9000 --every week --until 2027-12-31
    --time-column departed_at`
    """
    if write is not None:
        check_outputs(write, force=force, inputs=(reference, key, roster, servers))
        write_whole(write, options_text(context))
        say(f"options: {write}. Edit them, then: fedprikl plan --from {shlex.quote(str(write))}")
        return
    clients, records = wanted["clients"], wanted["records"]
    if records < clients:
        raise InvalidInputError(
            f"{records:,} records are fewer than {clients:,} clients. --records counts "
            "those of all clients together. Were the two swapped?"
        )
    check_outputs(output, force=force, inputs=(reference, key, roster, servers))
    begin = datetime.now(UTC).replace(microsecond=0)
    series = when.series(begin)
    end = when.end(begin, series)
    public = load_reference(reference)
    what = "plans" if series is None else "a series"
    with notes.status(f"simulating {what}: {public.whole.size:,} cells"):
        planned = plan_round(
            public,
            epsilon=epsilon,
            ask=_asked(ask),
            tolerate=_tolerated(tolerate),
            roster=_fingerprint(roster, clients) if roster else "",
            servers=None if servers is None else Servers.load(servers),
            series=series,
            **wanted,
        )
    check_limits(planned.plan, limits.policy)
    plan = planned.plan.changed(
        serial=int(begin.timestamp()) if when.serial is None else when.serial,
        valid_from=begin.isoformat(),
        valid_until=end.isoformat(),
    )
    planned = replace(planned, plan=plan)
    signed = SignedPlan.sign(plan, SigningKey.load_or_create(key)) if key else SignedPlan(plan)
    write_whole(output, readable(signed.to_dict()))
    with notes.status("simulating what the plan can find"):
        remarks, _, _ = planned.notes, planned.smallest_drifts, planned.columns  # kept for below
    for place, remark in enumerate(remarks):
        grave = place == 0 and not planned.can_tell
        label = "[red]Cannot tell:[/red]" if grave else "[yellow]note:[/yellow]"
        notes.print(f"{label} {shown(remark.removeprefix('Cannot tell: '))}")
    if json:
        print_json(planned.to_dict() | {"file": str(output), "signer": signed.signer})
        return
    _print_planned(planned)
    if explain:
        _print_reasons(planned)
    say(f"plan: {output}: {plan_words(signed)}")


def _asked(ask: list[str] | None) -> tuple[str, ...] | None:
    """Names given one by one or with commas."""
    names = [name.strip() for text in ask or [] for name in text.split(",")]
    return tuple(filter(None, names)) or None


def _tolerated(tolerate: list[str] | None) -> dict[str, float]:
    """Tolerances by the names of columns; "" is that of all others."""
    found: dict[str, float] = {}
    for text in tolerate or []:
        name, _, number = text.rpartition("=")
        try:
            size = float(number)
        except ValueError:
            size = math.nan
        if not 0 <= size < 1 or name in found:
            raise InvalidInputError(
                f"--tolerate takes a total variation from 0 to under 1, like 0.05 or age=0.1, for "
                f"each column once; got {text!r:.60}."
            )
        found[name] = size
    return found


def _fingerprint(roster: Path, clients: int) -> str:
    known = Roster.load(roster)
    if clients > len(known):
        raise InvalidInputError(
            f"{clients} clients are planned, but {roster} knows {len(known)}; the others could not "
            "take part. Add their keys, or plan for fewer."
        )
    return known.fingerprint


def _print_planned(planned: PlannedRound) -> None:
    plan, cost = planned.plan, planned.cost
    sent = f"{_sums(cost)}, {cost.neighbours} key agreements and {cost.sent_bytes:,} bytes sent"
    if plan.trust == "servers":
        sent = f"One report to each of three servers, {cost.sent_bytes:,} bytes sent"
    show(f"{planned.cells}: {cost.masked_bytes:,} bytes of counts per client. {sent} per client.")
    show(_whom(plan))
    if plan.is_series:
        show(_series_words(plan))
    elif planned.releases > 1:
        total, delta = plan.budget.total
        show(
            f"Each of {planned.releases} releases may spend epsilon {plan.budget.epsilon:.3g}; all "
            f"of them together spend {total:.3g} at delta {delta:g}."
        )
    else:
        show(f"The release may spend epsilon {plan.budget.epsilon:.3g} (--epsilon).")
    show(f"Asked, with shares of the budget: {planned.asked}.")
    if plan.points:
        _print_whole(planned)
    if planned.liars:
        _print_liars(planned)
    if (column := planned.columns) is not None:
        show(f"\n{_column_words(column, plan)}", markup=False)
    if words := _tolerance_words(plan):
        show(f"\n{words}", markup=False)


def _tolerance_words(plan: Plan) -> str:
    """What is no drift however surely it is found; forecasts are of what is found."""
    every = f"{plan.verdict.tolerate:g}" if plan.verdict.tolerate else ""
    columns = [f"{size:g} in {shown(name)}" for name, size in plan.verdict.tolerate_columns]
    sizes = ", but ".join(filter(None, [every, ", ".join(columns)]))
    if not sizes:
        return ""
    return (
        f"Tolerated (--tolerate): a total variation of up to {sizes}. A smaller "
        "difference is said to be there, but is no drift. The smallest drifts above do not allow "
        "for this."
    )


def _column_words(column: ColumnForecast, plan: Plan) -> str:
    """What to expect of a usual column."""
    smallest = column.smallest_drift
    found = "is never found" if smallest is None else f"is found from {smallest:.2g} nats"
    later = "" if column.error_drifted is None else f", {column.error_drifted:.2g} at 0.05"
    return (
        f"Of the columns, {shown(column.column)} has the median number of cells: a smooth drift "
        f"{found} (95% power, {_rate_over_columns(plan)}); error of its kl: {column.error:.2g} "
        f"nats without drift{later}."
    )


def _whom(plan: Plan) -> str:
    """Whom the budget protects, and what a client contributes."""
    if plan.unit.kind == "record":
        return (
            f"A client may hold up to {plan.sums.most_records:,} records (--most-records); one "
            "that holds more stays away."
        )
    empty = "does so too" if plan.unit.empty == "reference" else "stays away"
    return (
        f"Protected: one client, with all it holds. Each draws {plan.unit.records:,} of its "
        "records (--per-client); one that holds fewer fills up with records of the reference, and "
        f"one without records {empty} (--empty)."
    )


def _series_words(plan: Plan) -> str:
    """Which periods there are, which records each counts, and what that costs one record."""
    series, (epsilon, delta) = plan.series, plan.budget.total
    each = f"{plan.budget.epsilon:.3g}"
    begin, last = series.period(0).start, series.end - timedelta(days=1)
    which = f"by their {series.time_column}" if series.time_column else "of files named after it"
    said = (
        f"A series of {series.periods:,} releases, one per {series.every} from {begin:%Y-%m-%d} to "
        f"{last:%Y-%m-%d}. Each counts the records {which}; late records are left out.\n"
    )
    if plan.unit.kind == "client":
        said += (
            f"A client is in every release: each may spend epsilon {each}, and all "
            f"{series.periods:,} together spend {epsilon:g} at delta {delta:g}."
        )
    elif series.window == 1:
        said += (
            f"Each record is in one release, so epsilon {epsilon:g} is all that it loses in "
            "the whole series."
        )
    else:
        said += (
            f"Each release counts the last {series.window} periods, so a record is in "
            f"{series.window} releases: each may spend epsilon {each}, and together "
            f"they spend {epsilon:g} at delta {delta:g}. With --window 1 each "
            f"could spend {epsilon:g}."
        )
    return (
        f"{said}\nFalse alarms of the whole series: {100 * plan.verdict.false_alarm:g}% per year."
    )


def _rate_over_columns(plan: Plan) -> str:
    rate = f"{100 * plan.false_alarm_of_each:.3g}%"
    if plan.verdict.control == "discovery":
        return f"false alarms among the columns that are named: {rate}"
    return f"false alarms of all columns: {rate}"


def _print_whole(planned: PlannedRound) -> None:
    plan = planned.plan
    unit = divergence_named(plan.question.divergence).unit
    measure = f", in {unit}" if unit else ""
    show(f"\nPredicted mean error of {plan.question.divergence}{measure}:")
    show_table(
        ("if the drift is", "of size", "error"),
        [(WORDS[f.kind], _size(f.size), f"{f.error:.2g}") for f in planned.forecasts],
    )
    _print_smallest(planned, unit)


def _size(size: float) -> str:
    """A size of a drift; what rounding leaves below zero is none."""
    return f"{max(size, 0.0) + 0.0:.3g}"


def _print_smallest(planned: PlannedRound, unit: str) -> None:
    plan = planned.plan
    rows = []
    for kind, size in planned.smallest_drifts.items():
        found = "never" if size is None else f"{size:.2g} {unit}".rstrip()
        if kind == "unseen" and size is not None:
            found = f"{100 * size:.2g}% of the records"
        rows.append((WORDS[kind], found))
    given = plan.verdict.design_effect
    effect = "" if given is None else f", design effect {given:.3g}"
    rate = f"false alarms: {100 * plan.false_alarm_of_each:.3g}%"
    if plan.false_alarm_of_each < plan.verdict.false_alarm:
        rate += f" of {100 * plan.verdict.false_alarm:.3g}%, shared with the columns"
    if plan.is_series:  # several periods together find smaller ones
        rate = f"of one {plan.series.every} by itself, at {100 * LEAST_RATE:.3g}% false alarms"
    show(f"\nSmallest drift found with 95% power (a prediction; {rate}{effect}):")
    show_table(("if the drift is", "it is found from"), rows)
    if None in planned.smallest_drifts.values():
        out = ""
        if plan.columns:
            out = ". To spend all of it on columns: --ask columns, or `reference --columns-only`"
        show(
            " never: not even the largest drift of this kind is found so surely; more records or a "
            f"larger epsilon help{out}"
        )


def _print_liars(planned: PlannedRound) -> None:
    """What clients that lie can do to the result."""
    heads = ["if so many lie", "they shift", "by at most", "if nothing drifted", "breaking it"]
    rows = []
    for bound in planned.liars:
        what = f"{bound.divergence} of {bound.column}" if bound.column else bound.divergence
        share = f"{100 * bound.share:g}% ({bound.liars:,})"
        sizes = [bound.shift, bound.faked, bound.broken]
        rows.append((share, shown(what), *(f"{size:.2g}" for size in sizes)))
    show(
        "\nClients that lie about their records fake, or hide, no more than this. One that breaks "
        "the protocol spoils the sum of its cohort:"
    )
    show_table(heads, rows)


def _sums(cost: SumCost) -> str:
    if cost.cohorts == 1:
        return f"1 secure sum of {cost.clients:,} clients"
    return f"{cost.cohorts:,} secure sums of up to {cost.clients:,} clients"


def _print_reasons(planned: PlannedRound) -> None:
    show("\nWhy:")
    why = ((reason.parameter, reason.value, reason.why) for reason in planned.reasons)
    show_table(("parameter", "value", "why"), [list(map(shown, each)) for each in why])
    if not planned.forecasts:
        return
    options = planned.options
    names = [f"{each.name}{' (taken)' if each is planned.taken else ''}" for each in options]
    rows = []
    for place, case in enumerate(planned.forecasts):
        errors = [f"{each.forecasts[place].error:.2g}" for each in options]
        rows.append((WORDS[case.kind], _size(case.size), *errors))
    show(f"\nPredicted errors of {planned.plan.question.divergence}, by what is released:")
    show_table(("if the drift is", "of size", *names), rows)
    for what, error in planned.doublings.items():
        show(
            f"Twice the {what} would take the typical error from {planned.error:.3g} to "
            f"{error:.3g}."
        )
