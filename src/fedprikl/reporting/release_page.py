"""The report of a release, and its summary in a notebook; the report of the paper's demo.

They are for people who know neither privacy nor statistics.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedprikl.divergence import divergence_named, skewed_divergence
from fedprikl.documents import clean
from fedprikl.errors import FedPriKLError
from fedprikl.estimation import ComparedEstimate, JudgedStatistic, Verdict
from fedprikl.estimation.outcome import WORDS
from fedprikl.monitoring.status import counted
from fedprikl.protocol import Answer, Plan, Release
from fedprikl.protocol.release import CellAnswer, ColumnAnswer
from fedprikl.reference import Reference
from fedprikl.reporting import facts, html
from fedprikl.reporting.charts import Bar, Kind, Scale, bar_chart, largest
from fedprikl.reporting.facts import percent
from fedprikl.reporting.html import Html
from fedprikl.reporting.values import (
    QUALITY,
    QUALITY_HEAD,
    TYPICAL,
    TYPICAL_HEAD,
    ColumnValues,
    Quality,
)

CELL_HEAD = ("category", "reference", "now", "95% interval", "count, with noise", "shifted")
STATISTIC_HEAD = ("about", "statistic", "times its threshold", "above it")
RANKED = 15  # columns of the first chart
CHARTS = 6  # columns with a chart that is not folded
CELLS = 10  # in one chart
KEY = {
    "reference": "reference",
    "now": "now",
    "drifted": "now, shifted",
    "whisker": "95% interval",
}
UNCHANGED = "None of these shares has clearly changed."
OUTSIDE = "new: not in the reference"
UNTOLD = "Which categories shifted cannot be told from noise."
ARROWS = {"up": " ▲ more", "down": " ▼ fewer", "": ""}
SHIFTS = {"up": "more", "down": "fewer", "": "cannot be told"}
CHANGES = {  # total variation is a share of all records
    share / 100: f"example: {counted(share, 'record')} in a hundred would have to change"
    for share in (1, 3, 10, 30, 50, 100)
}
HALVES = (0.51, 0.55, 0.6, 0.75, 0.9, 0.99)  # what one of two equally common categories grows to
BOX = "border-left: 5px solid {}; padding: 0 1.1rem; max-width: 60rem"
BORDERS = {"drift": "#cc6f1f", "none found": "#2e8b57", "cannot tell": "#8a5fb0", None: "#87909c"}
TONES = {"drift": "drift", "none found": "calm", "cannot tell": "untold", None: ""}
TOLERATED = "what does not matter, as the plan says"
KINDS: dict[str | None, Kind] = {"drift": "drifted", "cannot tell": "untold"}
SAYS = {"drift": " drifted", "cannot tell": " cannot tell", None: " not judged"}
LARGE = "font-size: 1.3em; font-weight: 600"
COLUMNS, SUMMARY_CHARTS = 15, 3  # shown in a notebook; the report has all


def release_page(
    release: Release,
    plan: Plan,
    costs: Mapping[str, str],
    absent: Sequence[str] = (),
    reference: Reference | None = None,
) -> str:
    """The whole report: the verdict, what drifted, how large it is, what is protected.

    All of it follows from the release, the plan, the reference and why clients took no part, which
    are public. Without the reference it has neither typical values nor the quality of the data.
    """
    values = ColumnValues(release, plan, reference)
    clients, asked = facts.included(release), facts.invited(release)
    first = {
        "Date": facts.date(release.released_at),
        "Population": release.population,
        "Clients": f"{clients:,}" if clients == asked else f"{clients:,} of {asked:,}",
        "Records": f"{release.records:,}",
    }
    order = facts.ranked(release.columns)
    drifted = [column for column in order if column.drifted]
    return html.page(
        f"Drift report: {release.population}",
        html.fact_list(first),
        html.paragraphs(facts.meaning(release)),
        html.note("\n".join(absent)),
        column_cards(drifted, release.records, intro=facts.marks_words(plan), values=values),
        _ranking(order),
        _typical(values, order),
        _quality(values),
        _sizes(release, plan),
        privacy_section(release, costs.get("budget", ""), plan),
        html.section("Everything else", *details(release, plan, costs, absent, values=values)),
        headline=facts.release_headline(release),
        tone=TONES[release.outcome],
    )


def privacy_section(release: Release, budget: str = "", plan: Plan | None = None) -> Html:
    """What is hidden, from whom, what is not, and what is spent."""
    spent = [f"Budget: {budget}."] if budget else []
    words = "\n".join([*facts.privacy_sentences(release, plan), *spent])
    return html.section("Privacy", html.paragraphs(words))


def _typical(values: ColumnValues, columns: Sequence[ColumnAnswer]) -> Html:
    """The medians of columns of numbers and times, of the reference and now."""
    rows = values.typical_rows(columns)
    shown = _some_rows(TYPICAL_HEAD, rows, min(len(rows), RANKED), "column")
    return html.section("Typical values", *shown, intro=TYPICAL)


def _quality(values: ColumnValues) -> Html:
    """Missing and new values, and those in outermost bins, of the reference and now."""
    rows = [each.row for each in values.quality]
    changed = sum(1 for each in values.quality if each.change)
    shown = _some_rows(QUALITY_HEAD, rows, min(changed, RANKED), "share")
    calm = html.paragraphs(UNCHANGED) if rows and not changed else ""
    return html.section("Data quality", calm, *shown, intro=QUALITY)


def _some_rows(
    head: Sequence[str], rows: Sequence[Sequence[str]], most: int, what: str
) -> tuple[Html, ...]:
    """A table of the first rows, and the others folded."""
    if not rows:
        return ()
    first, others = (html.table(head, part, look="stacked") for part in (rows[:most], rows[most:]))
    words = counted(len(rows) - most, f"more {what}")
    return html.card(first) if most else Html(), html.fold(words, others if rows[most:] else "")


def column_cards(
    columns: Sequence[ColumnAnswer],
    records: int,
    intro: str = "",
    values: ColumnValues | None = None,
) -> Html:
    """A chart for each of these columns; beyond `CHARTS` they are folded."""
    boxes = [_column_card(column, records, values) for column in columns]
    more = f"Charts of {counted(len(boxes) - CHARTS, 'more column')}"
    parts = (html.cards(boxes[:CHARTS]), html.fold(more, html.cards(boxes[CHARTS:])))
    return html.section("What has drifted", *parts, intro=intro)


def _column_card(column: ColumnAnswer, records: int, values: ColumnValues | None) -> Html:
    """One column: its name, which cells shifted, and the chart with its key."""
    shifted = any(cell.shifted for cell in column.cells)
    names = KEY if shifted else {style: name for style, name in KEY.items() if style != "drifted"}
    typical = "" if values is None else values.story(column)
    story = html.paragraphs(f"{column_story(column)} {typical}".strip())
    parts = (story, html.key(names), cells_chart(column, records, values))
    return html.card(*parts, title=column.name)


def column_story(column: ColumnAnswer) -> str:
    """What a chart of its cells shows, in a sentence or two."""
    found = facts.shifts(column)
    first = f"There are now {found}." if found else UNTOLD
    left = len(column.cells) - CELLS
    if left <= 0:
        return first
    more = f"{left:,} more {'is' if left == 1 else 'are'} in the table below"
    return f"{first} The {CELLS} that differ most are shown; {more}."


def cells_chart(column: ColumnAnswer, records: int, values: ColumnValues | None = None) -> Html:
    """The reference beside the population, cell by cell; of many cells, those that differ most."""
    order = sorted(column.cells, key=lambda cell: (not cell.shifted, -facts.difference(cell)))
    shown = order[:CELLS]
    rows = [_cell_row(cell) for cell in column.cells if cell in shown]
    if facts.shows_new(column, records):
        before, now = facts.outside(column, records)
        found, says = None if values is None else values.new(column), f"about {percent(now)}"
        bar = Bar(value=now, says=says) if found is None else _new_bar(found)
        rows.append((OUTSIDE if found is None else found.what, [_before(before), bar]))
    title = f"{column.name}: shares of all records, in the reference and now"
    return bar_chart(rows, title=title, shares=True)


def _new_bar(found: Quality) -> Bar:
    kind: Kind = "drifted" if found.change else "now"
    says = f"{percent(found.now)}{ARROWS[found.change]}"
    return Bar(value=found.now, says=says, kind=kind, interval=found.interval)


def _cell_row(cell: CellAnswer) -> tuple[str, list[Bar]]:
    now = Bar(
        value=cell.share,
        says=f"{percent(cell.share)}{ARROWS[cell.shifted]}",
        kind="drifted" if cell.shifted else "now",
        interval=cell.interval,
    )
    return clean(cell.label), [_before(cell.reference), now]


def _before(share: float) -> Bar:
    return Bar(value=share, says=percent(share), kind="reference")


def _ranking(columns: Sequence[ColumnAnswer]) -> Html:
    """All columns, those that have drifted first."""
    if not columns:
        return Html()
    said = {column.outcome for column in columns}
    names = {"drifted": "drifted"} if "drift" in said else {}
    names |= {"untold": "cannot tell"} if "cannot tell" in said else {}
    names |= {"now": "not drifted"} if said - KINDS.keys() else {}
    names |= {"whisker": "95% interval", "chance": "expected without drift"}
    names |= {"mark": "threshold of the thin bar"} if any(c.statistics for c in columns) else {}
    little = any(_tolerated(column.verdict) for column in columns)
    names |= {"tolerated": TOLERATED} if little else {}
    more = columns[RANKED:]
    return html.section(
        "All columns",
        html.card(html.key(names), ranking_chart(columns[:RANKED])),
        html.fold(counted(len(more), "more column"), ranking_chart(more) if more else ""),
        intro="\n".join([facts.RANKING, *facts.unrelated(columns)]),
    )


def _tolerated(verdict: Verdict | None) -> float | None:
    """The total variation that does not matter, where the plan says one."""
    return None if verdict is None or verdict.tolerance is None else verdict.tolerance.tolerated


def ranking_chart(columns: Sequence[ColumnAnswer]) -> Html:
    """How far each column is from the reference in total variation, and how clear that is."""
    rows = []
    for column, (name, value, *_) in zip(columns, facts.column_rows(columns), strict=True):
        size, little = column.answer("tv"), facts.is_tolerated(column.verdict)
        bar = Bar(
            value=0.0 if size is None else size.value,
            says=value + (" tolerated" if little else SAYS.get(column.outcome, "")),
            kind=KINDS.get(column.outcome, "now"),
            interval=None if size is None else size.interval,
            chance=None if size is None else size.no_drift,
            tolerated=_tolerated(column.verdict),
        )
        rows.append((name, bar))
    scale = Scale(0.0, largest([bar for _, bar in rows]))
    drawn = [
        (name, [bar, *_evidence(column, bar.kind, scale.high)])
        for column, (name, bar) in zip(columns, rows, strict=True)
    ]
    return bar_chart(drawn, title="How far each column is from the reference", scale=scale)


def _evidence(column: ColumnAnswer, kind: Kind, width: float) -> Iterator[Bar]:
    """The clearest statistic in proportion to its threshold, which is in the middle."""
    if column.statistics:
        clearest = max(column.statistics, key=lambda each: each.ratio)
        yield Bar(
            value=width * min(max(clearest.ratio, 0.0) / 2, 1.0),
            says=f"{clearest.times}x threshold",
            kind=kind,
            mark=width / 2,
            thin=True,
            broken=clearest.ratio > 2,
        )


def _sizes(release: Release, plan: Plan) -> Html:
    """How large the drift of the whole is, on scales with a meaning."""
    what = "All columns together." if release.columns else "All that is compared, together."
    boxes = [
        html.card(_size(each, release, plan), title=facts.divergence_title(each.divergence))
        for each in facts.plainest_first(release.answers)
    ]
    blind = release.verdict is not None and release.verdict.outcome == "cannot tell"
    intro = f"{what} {facts.NOISY if blind else ''} {facts.SCALES}".replace("  ", " ")
    return html.section("How large the difference is", html.cards(boxes), intro=intro)


def _size(answer: Answer, release: Release, plan: Plan) -> Html:
    mark = plan.verdict.threshold if answer is release.answers[0] else None  # a plan has one
    verdict, tested = release.verdict, facts.statistic_of(answer, release)
    kind = KINDS.get(None if verdict is None else verdict.outcome, "now")
    if tested is not None and not tested.exceeds:  # another divergence found the drift
        kind = "now"
    little = _tolerated(verdict) if answer.divergence == "tv" else None
    return size_chart(answer, release.records, tested, mark, kind, little)


def size_chart(
    answer: Answer,
    records: int,
    statistic: JudgedStatistic | None = None,
    mark: float | None = None,
    kind: Kind = "now",
    tolerated: float | None = None,
) -> Html:
    """The value among numbers that give it a meaning. `mark` is a threshold the user set."""
    threshold = None if statistic is None else statistic.threshold
    found = Bar(
        value=answer.value,
        says=facts.in_unit(answer.value, answer),
        kind=kind,
        interval=answer.interval,
        mark=threshold,
        chance=answer.no_drift,
        tolerated=tolerated,
    )
    numbers = {
        "threshold, which chance rarely exceeds": threshold,
        "your own threshold, from the plan": mark,
        TOLERATED: tolerated,
        f"expected without drift, {records:,} records": answer.no_drift,
    }
    rows = [("found in this population", [found])]
    for label, value in numbers.items():
        if value is not None:
            bar = Bar(value=value, says=facts.in_unit(value, answer), kind="reference")
            rows.append((label, [bar]))
    for value, label in _examples(answer):
        says = f"{value:.2g} {answer.unit}".rstrip()
        rows.append((label, [Bar(value=value, says=says, kind="example")]))
    return bar_chart(rows, title=f"The size of the drift, {answer.divergence}")


def _examples(answer: Answer) -> list[tuple[float, str]]:
    """The known changes just below and just above the value."""
    known = sorted(_known(answer.divergence).items())
    below = [each for each in known if each[0] <= answer.value]
    above = [each for each in known if each[0] > answer.value]
    return [*below[-1:], *above[:1]]


def _known(name: str) -> dict[float, str]:
    """Divergences of changes that everybody can picture."""
    if name == "tv":
        return CHANGES
    try:
        divergence = divergence_named(name)
    except FedPriKLError:  # of somebody else's, not registered here
        return {}
    return {
        skewed_divergence([0.5, 0.5], [half, 1 - half], skew=0.0, divergence=divergence): (
            f"example: a 50:50 split becomes {100 * half:.0f}:{100 - 100 * half:.0f}"
        )
        for half in HALVES
    }


def details(
    release: Release,
    plan: Plan,
    costs: Mapping[str, str],
    absent: Sequence[str],
    *,
    judged: bool = True,
    values: ColumnValues | None = None,
) -> Iterator[Html]:
    """One fold after the other. `judged`: by itself, and not as one of a series."""
    order = facts.ranked(release.columns)
    if judged:
        words = html.paragraphs(facts.verdict_in_numbers(release))
        yield html.fold("The verdict in numbers", words, _statistics(release, order))
    if judged and order:
        columns = html.table(facts.HEAD, facts.column_rows(order), look="stacked last")
        yield html.fold("Columns in numbers", columns, html.note(facts.NOTE))
    categories = (_cells(column, values) for column in order)
    yield html.fold("Every category of every column", *categories, printed=False)
    counted_in = html.paragraphs(facts.counted_words(release, absent))
    dropped = sum(1 for cohort in release.cohorts if cohort.reason)
    asked = {
        "cohorts (secure sums)": f"{len(release.cohorts)}, of which {dropped} were dropped",
        "counts each client sent, masked": f"{release.payload} and its number of records",
    }
    yield html.fold("Who was counted", counted_in, html.fact_table(asked))
    yield html.fold("What is protected, in full", html.paragraphs(str(release.privacy)))
    yield html.fold("What it cost", html.fact_table(costs) if costs else "")
    parameters = html.fact_table(dict(_parameters(plan.to_dict())))
    yield html.fold("Parameters of the plan", parameters, printed=False)
    yield html.fold("Signature", html.fact_table(_signature(release)), printed=False)


def _statistics(release: Release, columns: Sequence[ColumnAnswer]) -> Html:
    """Every statistic that a verdict rests on; its value and threshold are in the release.

    They are not shown: the page has one number for each divergence, the best estimate of it.
    """
    whole = () if release.verdict is None else release.verdict.statistics
    rows = [
        (
            about,
            WORDS.get(each.name, each.name),
            each.times,
            "yes" if each.exceeds else "no",
        )
        for about, found in (("the whole", whole), *((c.name, c.statistics) for c in columns))
        for each in found
    ]
    if not rows:
        return Html()
    return html.table(STATISTIC_HEAD, rows, caption="Statistics beside their thresholds")


def _cells(column: ColumnAnswer, values: ColumnValues | None) -> Html:
    """All cells of a column and its new values, and how far it is in every divergence."""
    rows: list[tuple[str, ...]] = [
        (
            clean(cell.label),
            percent(cell.reference),
            percent(cell.share),
            " to ".join(map(percent, cell.interval)),
            _count(count),
            SHIFTS[cell.shifted],
        )
        for cell, count in zip(column.cells, column.counts.counts, strict=True)
    ]
    (outside,) = column.counts.out_of_domain
    new = None if values is None else values.new(column)
    if new is None:
        before, _ = facts.outside(column, 1)
        rows.append((OUTSIDE, percent(before), "", "", _count(outside), ""))
    else:
        _, what, *shares, change = new.row
        rows.append((what, *shares, _count(outside), change))
    sizes = "".join(
        f" {each.target} = {facts.in_unit(each.value, each)}." for each in column.answers
    )
    return html.table(CELL_HEAD, rows, caption=f"{column.name}.{sizes}")


def _count(count: float) -> str:
    """A noisy count: noise is of whole numbers or of any."""
    return f"{count:,.{0 if count == round(count) else 1}f}" if abs(count) < 1e9 else f"{count:.6g}"


def _parameters(fields: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Each field of a plan, with the name of the part that it belongs to."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _parameters(value, f"{within}{name}: ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for place, each in enumerate(value, start=1):
                yield from _parameters(each, f"{within}{name} {place}: ")
        else:
            yield f"{within}{name}", _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        parts = (
            (" and ".join(map(str, v)) or "the whole") if isinstance(v, list | tuple) else str(v)
            for v in value
        )
        return ", ".join(parts) or "the whole"
    return "none" if value is None else str(value)


def _signature(release: Release) -> dict[str, str]:
    return {
        "released": release.released_at,
        "software": release.software,
        "round": release.round_id,
        "plan (fingerprint)": release.plan,
        "reference (fingerprint)": release.reference,
        "signer (public key)": release.signer or "not signed",
        "signature": release.signature or "not signed",
    }


def release_summary(
    release: Release,
    plan: Plan,
    more: Sequence[str] = (),
    reference: Reference | None = None,
) -> str:
    """For a notebook: verdict, columns, charts, answers, who was counted, what is protected.

    No script, no style sheet, nothing from outside. `more` are further lines for people, such as
    why clients took no part.
    """
    values = ColumnValues(release, plan, reference)
    charts = [] if release.columns else [_size(each, release, plan) for each in release.answers]
    privacy = html.paragraphs(str(release.privacy))
    parts = (
        html.tag("p", facts.release_headline(release), style=LARGE),
        *(_summary_columns(release, values) if release.columns else ()),
        _summary_values(values, facts.ranked(release.columns)),
        html.paragraphs(facts.verdict_in_numbers(release)),
        *map(_narrow, charts),
        html.paragraphs(facts.counted_words(release, more)),
        html.tag("details", html.tag("summary", "What is protected"), privacy),
    )
    box = BOX.format(BORDERS[release.outcome])
    return html.tag("div", html.joined(*parts, between="\n"), style=box)


def _summary_columns(release: Release, values: ColumnValues) -> Iterator[Html]:
    order = facts.ranked(release.columns)
    shown = order[:COLUMNS]
    yield html.table(facts.HEAD, facts.column_rows(shown))
    if left := len(order) - len(shown):
        yield html.paragraphs(f"The report has {counted(left, 'more column')}.")
    yield html.paragraphs(
        "tv of each column, with its 95% interval; the solid line is what to expect without drift. "
        "Thin: the verdict's statistic, beside its threshold (dashed)"
    )
    yield _narrow(ranking_chart(shown))
    for column in [each for each in order if each.drifted][:SUMMARY_CHARTS]:
        beside = ": the reference (grey) and now, with 95% intervals"
        yield html.tag("p", html.tag("strong", column.name), beside)
        yield _narrow(cells_chart(column, release.records, values))


def _summary_values(values: ColumnValues, columns: Sequence[ColumnAnswer]) -> Html:
    """Typical values, and the quality of the data, on request."""
    tables = (
        (TYPICAL_HEAD, values.typical_rows(columns)),
        (QUALITY_HEAD, [each.row for each in values.quality]),
    )
    shown = [html.table(head, rows[:COLUMNS]) for head, rows in tables if rows]
    if not shown:
        return Html()
    name = html.tag("summary", "Typical values and data quality")
    return html.tag("details", html.joined(name, *shown, between="\n"))


def _narrow(chart: Html) -> Html:
    return html.tag("div", chart, style="max-width: 36rem")


COMPARISON_HEAD = ("estimator", "counts", "value", "error", "typical", "claimed ε", "true ε")


def comparison_row(row: ComparedEstimate) -> tuple[str, ...]:
    """One line of the table of estimators, as texts."""
    privacy = row.estimate.privacy
    return (
        row.name,
        str(row.estimate.payload),
        f"{row.estimate.value:.3f}",
        f"{row.error:.3f}",
        f"{row.typical_error:.3f}",
        "none" if privacy.claimed_epsilon is None else f"{privacy.claimed_epsilon:g}",
        _epsilon(privacy.epsilon),
    )


def _epsilon(epsilon: float) -> str:
    """Three digits for people: 0.78, 24.4, 1,410, infinite."""
    if not math.isfinite(epsilon):
        return "infinite"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:,.0f}"


def comparison_page(
    rows: Sequence[ComparedEstimate], *, asked: Mapping[str, str], premise_epsilon: float
) -> str:
    """The report of `fedprikl demo --paper`. The last row is the estimate that counts."""
    ours = rows[-1].estimate
    answer = (
        f"{ours.target} is about {ours.value:.3f} {ours.unit} (truth: {rows[-1].truth:.3f}), "
        f"released with epsilon {ours.privacy.claimed_epsilon:g}."
    )
    lines = []
    for row in rows:
        *cells, true_epsilon = comparison_row(row)
        lines.append((*cells, html.marked(true_epsilon, not row.estimate.privacy.holds)))
    estimates = html.key({"now": "this run", "whisker": "90% of repetitions", "mark": "truth"})
    epsilons = html.key({"now": "true", "drifted": "true: the claim is false", "mark": "claimed"})
    return html.page(
        "fedprikl demo --paper",
        html.paragraphs(answer, "answer"),
        html.section(
            "The estimates",
            html.card(estimates, _estimates_chart(rows)),
            html.table(COMPARISON_HEAD, lines),
            html.note(
                "Counts: sent by each client. Typical: mean absolute error over simulated "
                f"repetitions. The paper's noise buys epsilon {premise_epsilon:.3g} even where "
                "every cell is counted at least twice, as the paper assumes; the table shows what "
                "it buys on these data, where many cells are rarer. The baseline is the paper's: "
                "lambda = -1, and frequencies floored at 0.0001."
            ),
        ),
        html.section(
            "The privacy they claim, and the privacy they give",
            html.card(epsilons, _epsilon_chart(rows), title="Epsilon, on a logarithmic axis"),
        ),
        html.section("Privacy statement of the last estimate", html.paragraphs(str(ours.privacy))),
        html.section("What was asked, and of whom", html.fact_table(asked)),
    )


def _estimates_chart(rows: Sequence[ComparedEstimate]) -> Html:
    """Each estimate, beside the truth and what simulated repetitions give."""
    bars, drawn = [], [0.0]
    for row in rows:
        low, middle, high = map(float, np.quantile(row.repetitions, [0.05, 0.5, 0.95]))
        value, ends = row.estimate.value, (low, high)
        bar = Bar(value=value, says=f"{value:.3f}", interval=ends, mark=row.truth)
        bars.append((f"{row.name}; median {middle:.3f}", [bar]))
        drawn += [*ends, value, row.truth]
    title = f"Estimates of the divergence, in {rows[0].estimate.unit}"
    return bar_chart(bars, title=title, scale=Scale(min(drawn), max(drawn)))


def _epsilon_chart(rows: Sequence[ComparedEstimate]) -> Html:
    """The true epsilon of each private method, beside the claimed one."""
    bars, drawn = [], []
    for row in rows:
        privacy = row.estimate.privacy
        if privacy.claimed_epsilon is not None:
            kind: Kind = "now" if privacy.holds else "drifted"
            value, mark = privacy.epsilon, privacy.claimed_epsilon
            bars.append((row.name, [Bar(value=value, says=_epsilon(value), kind=kind, mark=mark)]))
            drawn += [value, mark]
    finite = [value for value in drawn if 0 < value < math.inf]
    scale = Scale(min(finite) / 2, 2 * max(finite), "log")
    return bar_chart(bars, title="True epsilon, beside the claimed one", scale=scale)
