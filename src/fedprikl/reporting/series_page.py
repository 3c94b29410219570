"""The page of a series, and the report of each of its periods.

Whether there is drift and since when, where, how large, and who answers. The page shows a
`SeriesStatus` and nothing else, and links to the reports.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedprikl.monitoring.alarms import JudgedView
from fedprikl.monitoring.status import (
    NO_REASON,
    PeriodPoint,
    SeriesStatus,
    WindowFacts,
    alarm_words,
    counted,
    day,
    headline,
    period_name,
)
from fedprikl.protocol import Plan, Release
from fedprikl.reporting import charts, facts, html
from fedprikl.reporting.charts import Frame
from fedprikl.reporting.html import Html
from fedprikl.reporting.release_page import (
    TOLERATED,
    TONES,
    column_cards,
    details,
    privacy_section,
    size_chart,
)

NAMED = 8  # missed periods of one reason that are named
COLUMNS = 3  # whose size is shown where the whole is not asked
TIPS = 300  # periods: beyond, only the first charts of the page can be pointed at
SHOWN = 20  # columns of a heat map that are not folded
LATEST = 6  # periods that are not folded
SITES = 8  # likewise
SITE_HEAD = ("site", "answered", "share", "last answered")
STATISTIC_HEAD = ("column", "alone", "together", "window", "size", "verdict")
VERDICTS = {True: "above", False: "below", None: "not judged"}
TOGETHER = "above, together with earlier ones"
NOT_YET = "over, not counted yet"
TOO = ", if the difference is also larger than what the plan tolerates"
COMMAND = html.tag("code", "fedprikl monitor run")


def series_page(status: SeriesStatus) -> str:
    """The whole page, as HTML without scripts."""
    outline = [
        ("Next", "What happens next", [*_next(status)]),
        ("Drift", "Is there drift?", [*_drift(status)]),
        ("Columns", "Columns over time", [*_columns(status)]),
        ("Size", "How large is the difference?", [*_sizes(status)]),
        ("Windows", "Longer windows", [*_windows(status)]),
        ("Reports", f"Reports of each {status.every}", [*_reports(status)]),
        ("Sites", "Sites", [*_sites(status)]),
        ("Privacy", "Privacy", [*_privacy(status)]),
    ]
    due = facts.due_words(status)
    identity = {
        "population": status.population,
        "trusted": status.trust,
        "plan (fingerprint)": status.plan,
        "reference (fingerprint)": status.reference,
        "signer (public key)": status.signer or "not signed",
    }
    signs = html.fold("Who signs, and what is compared", html.fact_table(identity))
    return html.page(
        f"Drift of {status.population}",
        _faults(status),
        html.fact_list(facts.series_facts(status)),
        html.paragraphs(f"{facts.UNTOLD} {facts.HELPS}" if status.outcome == "cannot tell" else ""),
        html.tag("p", f"{due} ", COMMAND, " counts what is due.") if due else Html(),
        *(html.section(heading, *parts, name=name.lower()) for name, heading, parts in outline),
        html.section("Everything else", signs),
        headline=headline(status),
        tone=TONES[status.outcome],
        links={f"#{name.lower()}": name for name, _, parts in outline if parts},
    )


def _faults(status: SeriesStatus) -> Html:
    if not status.faults:
        return Html()
    follows = "What follows is what the history says, right or wrong. " if status.points else ""
    return html.tag(
        "div",
        html.paragraphs("What is wrong", "bad"),
        html.tag("ul", *(html.tag("li", fault) for fault in status.faults)),
        html.tag("p", follows, "Restore it from a backup, or ask the aggregator for its own."),
        class_="fault",
        role="alert",
    )


def _next(status: SeriesStatus) -> Iterator[Html]:
    """What will happen when, before the first release; a history without periods is unreadable."""
    if status.released or not status.points:
        return
    missed = facts.in_state(status, "missed")
    ahead = next((point for point in status.points if point.state == "ahead"), None)
    if ahead is not None:
        name = period_name(ahead.number, status.every).capitalize()
        yield html.tag(
            "p",
            f"{name} begins on {day(ahead.start)} and ends on {day(ahead.end)}. After that, ",
            COMMAND,
            " counts it and makes the first release. This page will then show whether there is "
            "drift, where, and since when.",
        )
    elif len(missed) == len(status.points):
        yield html.paragraphs("The series is over, and nothing was released.")
    if missed:
        yield html.paragraphs(f"{counted(len(missed), status.every)} missed so far.")


def _drift(status: SeriesStatus) -> Iterator[Html]:
    """Two charts, of each period alone and of periods together; alarms; missed periods."""
    if not status.released:
        return
    frame, every = Frame.of(status), status.every
    what = "the whole or of a column" if status.columns else "the whole"
    yield html.note(
        f"How far the population is from the reference, in standard deviations from no "
        f"drift: the largest statistic of {what}. An alarm is raised above the dashed line"
        f"{TOO if status.tolerate or status.tolerate_columns else ''}. It "
        f"lies so high that the whole series raises a false alarm in at most "
        f"{100 * status.false_alarm:.3g}% of all years. {facts.ordinary_words(status)} "
        f"{facts.findable_words(status)}".rstrip()
    )
    names = {"now": "largest statistic", "limit": "threshold"}
    if any(point.exceeds for point in frame.points):
        names["dot"] = "above the threshold"
    if status.alarms:
        names |= {"flag": "alarm raised, with its number", "drift": "drift, as the alarm dates it"}
    if any(alarm.acknowledged_at for alarm in status.alarms):
        names["known"] = "acknowledged"
    if facts.in_state(status, "missed"):
        names["gap"] = "missed"
    yield html.key(names)
    yield html.card(_drift_chart(status, frame), title=f"Each {every} alone")
    longer = html.note(
        f"A small drift that stays shows in the sum of many {every}s: the largest of all windows "
        "that end here."
    )
    together = _drift_chart(status, frame, cumulative=True)
    yield html.card(longer, together, title=f"Several {every}s together")
    yield from _alarms(status)
    yield from _missed(status)


def _drift_chart(status: SeriesStatus, frame: Frame, *, cumulative: bool = False) -> Html:
    found = [facts.largest(point, cumulative=cumulative) for point in frame.points]
    limits = [p.cumulative_threshold if cumulative else p.threshold for p in frame.points]
    raised = {alarm.raised: f"; alarm {alarm.number} was raised" for alarm in status.alarms}
    tips = [
        f"{frame.name(point)}: {facts.point_words(point, pair, limit)}"
        f"{raised.get(point.number, '')}"
        for point, pair, limit in zip(frame.points, found, limits, strict=True)
    ]
    which = f"several {status.every}s together" if cumulative else f"each {status.every} alone"
    return charts.timeline_chart(
        frame,
        [None if pair is None else pair[0] for pair in found],
        tips,
        title=f"Statistic over time, {which}",
        threshold=limits,
        alarms=status.alarms,
    )


def _alarms(status: SeriesStatus) -> Iterator[Html]:
    """All alarms, the last first."""
    if status.alarms:
        yield html.tag("h3", "Alarms", id="alarms")
    for alarm in reversed(status.alarms):
        also = f" Also {facts.listed(alarm.columns[1:])}." if alarm.columns[1:] else ""
        words = f"Alarm {alarm.number}: {alarm_words(alarm, status)}{also}"
        style = "bad" if alarm.state == "open" else ""
        state = html.tag("span", facts.alarm_state(alarm, status.every), class_=style)
        raised = html.tag("p", f"{facts.alarm_raised(alarm, status.every)} ", state)
        yield html.card(html.tag("p", html.tag("strong", words)), raised)


def _missed(status: SeriesStatus) -> Iterator[Html]:
    """Periods without a release, by reason."""
    reasons: dict[str, list[str]] = {}
    for point in status.points:
        if point.state == "missed":
            reasons.setdefault(point.reason or NO_REASON, []).append(str(point.number))
    if reasons:
        yield html.tag("h3", "Missed", id="missed")
        lines = (
            f"{counted(len(them), status.every)} ({facts.listed(them, NAMED)}): {reason}"
            for reason, them in reasons.items()
        )
        yield html.tag("ul", *(html.tag("li", line) for line in lines))


def _columns(status: SeriesStatus) -> Iterator[Html]:
    """The heat map with its key, a sentence, and all of its numbers in a table."""
    if not status.columns:
        return
    frame, every = Frame.of(status), status.every
    judged = {name: _judged(frame, name) for name in status.columns}
    order = sorted(judged, key=lambda name: [c[:2] for c in judged[name][-1:]], reverse=True)
    rows = {name: frame.cells(judged[name]) for name in order}
    little = dict.fromkeys((c.name for c in status.judged[-1].columns if c.tolerated), "tolerated")
    untold = dict.fromkeys(status.findable.untold if status.findable else (), "cannot tell")
    other = untold | little
    says = {name: facts.above_words(judged[name], every) or other.get(name, "") for name in order}
    periods = max(map(len, frame.groups))
    each = f"Each cell is a {every}"
    if periods > 1:
        each = f"Each cell stands for {periods} {every}s, with the largest value of them"
    more = {name: rows[name] for name in order[SHOWN:]}
    hidden = charts.heat_map(frame, more, says) if more else ""
    yield html.card(
        html.note(
            f"{each}. Its colour is how large the column's statistic is beside its threshold: of "
            f"the {every} alone or of a window that ends there, whichever is larger. Columns that "
            "stand out now come first."
        ),
        html.key(charts.LEVELS),
        charts.heat_map(frame, {name: rows[name] for name in order[:SHOWN]}, says),
        html.fold(counted(len(more), "more column"), hidden),
    )
    lines = [
        [frame.name(group[0]), *("no release" if c is None else _times(*c) for c in cells)]
        for group, *cells in zip(frame.groups, *rows.values(), strict=True)
    ]
    caption = "Statistics as multiples of their thresholds: 1 is the threshold"
    numbers = html.table([f"{every} (first of a cell)", *order], lines, caption=caption)
    yield html.fold("The same in numbers", numbers, printed=False)


def _judged(frame: Frame, name: str) -> list[tuple[bool, float, int]]:
    """A column in each period in which it was judged: whether and how far it is above."""
    return [
        (column.exceeds, found, point.number)
        for point in frame.points
        for column in point.columns
        if column.name == name and (found := facts.relative(point, column)) is not None
    ]


def _times(above: bool, relative: float, _: int) -> str:
    return f"{relative:.2f}{' above' if above else ''}"


def _sizes(status: SeriesStatus) -> Iterator[Html]:
    """A chart for each divergence of the whole; without it, of the columns that stand out."""
    if not status.judged:
        return
    frame, last = Frame.of(status), status.judged[-1]
    order = sorted(last.columns, key=lambda c: -(facts.relative(last, c) or 0.0))[:COLUMNS]
    shown = [("", size.divergence) for size in facts.plainest_first(last.sizes)]
    boxes = [
        _size_card(status, frame, *each)
        for each in shown or [(column.name, "tv") for column in order]
    ]
    if not any(boxes):
        return
    left = [] if shown else [column.name for column in last.columns if column not in order]
    others = (
        f" Shown are the {len(order)} columns that stand out most now; {facts.listed(left)} "
        f"{'is' if len(left) == 1 else 'are'} in the report of each {status.every}."
    )
    yield html.note(
        f"Of each {status.every} alone, with its 95% interval. 0 is no difference, but chance "
        "and noise keep the value above 0 without any drift: see the dotted line. Total variation "
        "is the share of all records that would have to change to look like the reference."
        f"{others if left else ''}"
    )
    names = {"now": "value", "band": "95% interval", "below": "expected without drift"}
    if status.tolerate or status.tolerate_columns:
        names["limit"] = TOLERATED
    yield html.key(names)
    yield html.cards(boxes)


def _size_card(status: SeriesStatus, frame: Frame, name: str, divergence: str) -> Html:
    """How far one view is from the reference, over time; an empty name is the whole."""
    sizes = [
        next((view.sizes for view in point.views if view.name == name), ())
        for point in frame.points
    ]
    found = [facts.named(each, divergence) for each in sizes]
    if not any(found):
        return Html()
    words = ["no value" if size is None else facts.size_words(size) for size in found]
    title = f"{name}: {facts.divergence_title(divergence)}".removeprefix(": ")
    little = divergence == "tv" and status.tolerance(name) > 0
    chart = charts.timeline_chart(
        frame,
        [None if size is None else size.value for size in found],
        [f"{frame.name(p)}: {said}" for p, said in zip(frame.points, words, strict=True)],
        title=f"{title} over time",
        band=[None if size is None else size.interval for size in found],
        below=[None if size is None else size.no_drift for size in found],
        threshold=[status.tolerance(name)] * len(found) if little else (),
        pointed=len(frame) <= TIPS,
    )
    last = next(said for said, size in zip(words[::-1], found[::-1], strict=True) if size)
    return html.card(html.note(f"Last: {last}"), chart, title=title)


def _windows(status: SeriesStatus) -> Iterator[Html]:
    """Sums over the last periods: the whole in sight, columns folded."""
    if not status.windows:
        return
    yield html.note(
        f"The noisy counts of several {status.every}s added up: one longer period, at no further "
        "cost in privacy, with a narrower 95% interval."
    )
    by_name: dict[str, list[WindowFacts]] = {}
    for window in status.windows:
        by_name.setdefault(window.name, []).append(window)
    tables = {name: _window_table(name, found, status.every) for name, found in by_name.items()}
    yield tables.pop("", Html())
    yield html.fold("Longer windows of each column", *tables.values())


def _window_table(name: str, windows: Sequence[WindowFacts], every: str) -> Html:
    """A row for each window, a column for each divergence."""
    kinds = facts.plainest_first(windows[0].sizes)
    rows = []
    for window in windows:
        sizes = [facts.named(window.sizes, kind.divergence) for kind in kinds]
        words = [facts.size_words(replace(s, unit="")) if s else facts.UNKNOWN for s in sizes]
        periods = f"{window.first} to {window.last}"
        length = f"last {counted(window.length, every)}"
        rows.append((length, *words, periods, f"{window.records:,}"))
    heads = [f"{kind.divergence}, {kind.unit}".removesuffix(", ") for kind in kinds]
    return html.table(
        ["window", *heads, f"{every}s", "records"], rows, caption=name, look="stacked"
    )


def _reports(status: SeriesStatus) -> Iterator[Html]:
    """The latest periods, and all of them folded; each with a release links to its report."""
    every = status.every
    head = (every, "verdict", "begins", "alone", "together", "size", "records", "clients")
    over = [point for point in reversed(status.points) if point.state != "ahead"]
    rows = [_report_row(every, point) for point in over]
    if rows:
        others = (row for row, point in zip(rows, over, strict=True) if point.state != "due")
        latest = [*_due_rows(status), *others]
        yield html.table(head, latest[:LATEST], look="stacked")
    if len(rows) > LATEST:
        yield html.fold(f"All {len(rows):,} {every}s", html.table(head, rows))


def _due_rows(status: SeriesStatus) -> Iterator[tuple[str, ...]]:
    """One row for all that is over and not counted: many would hide the latest reports."""
    due = [point for point in status.points if point.state == "due"]
    if due:
        name, *others = _report_row(status.every, due[0])
        yield name + (f" to {due[-1].number}" if due[1:] else ""), *others


def _report_row(every: str, point: PeriodPoint) -> tuple[str, ...]:
    name, begins = period_name(point.number, every), day(point.start, "%b %Y")
    if point.state != "released":
        why = point.reason if point.state == "missed" else NOT_YET
        return name, point.state, begins, html.tag("td", why, class_="why", colspan=5)
    alone, together = (facts.largest(point, cumulative=which) for which in (False, True))
    sizes = [f"{s.divergence} {facts.size_words(s)}" for s in facts.plainest_first(point.sizes)]
    return (
        html.tag("a", name, href=charts.file_of(point.number)),
        html.marked(_said(point), point.exceeds),
        begins,
        facts.beside(alone and alone[0], point.threshold),
        facts.beside(together and together[0], point.cumulative_threshold),
        *(sizes[:1] or [""]),
        f"{point.records:,}",
        f"{point.clients:,}",
    )


def _said(point: PeriodPoint) -> str:
    """Whether anything is above its threshold, and by more than is tolerated."""
    if not point.exceeds and any(view.tolerated for view in point.views):
        return "tolerated"
    alone, limit = facts.largest(point, cumulative=False), point.threshold
    if point.exceeds and alone is not None and limit is not None and alone[0] <= limit:
        return TOGETHER
    return VERDICTS[point.exceeds]


def _privacy(status: SeriesStatus) -> Iterator[Html]:
    """What is protected, and what one record or client has lost of what it may lose."""
    if not status.points:
        return
    yield html.paragraphs(status.privacy)
    budget = status.budget
    if budget is None:
        yield html.note("No ledger is kept: how much of the budget is spent is not known.")
        return
    bar = charts.Bar(
        value=budget.spent,
        says=f"{budget.spent:.3g} of {budget.epsilon:.3g}",
        mark=budget.epsilon,
        kind="drifted" if budget.left <= 0 else "now",
    )
    label = f"spent, by the {budget.unit} that lost most"
    yield html.card(
        html.paragraphs(facts.budget_words(budget)),
        html.note(facts.COUNTED[budget.unit].format(status.every)),
        charts.bar_chart([(label, [bar])], title="Privacy budget"),
        title=f"Budget of one {budget.unit}",
    )


def _sites(status: SeriesStatus) -> Iterator[Html]:
    """Who answered how often; those that answered least come first."""
    if not status.sites:
        return
    shares = {site: site.answered / site.asked if site.asked else 1.0 for site in status.sites}
    always = sum(1 for site in status.sites if site.answered == site.asked)
    yield html.note(
        f"{always:,} of {len(shares):,} sites answered each time they were asked. Who takes part "
        "is public; those that answered least come first."
    )
    rows = [
        (
            site.name,
            f"{site.answered:,} of {site.asked:,}",
            f"{100 * shares[site]:.0f}%",
            "never" if site.last is None else period_name(site.last, status.every),
        )
        for site in sorted(shares, key=lambda site: (shares[site], site.name))
    ]
    yield html.table(SITE_HEAD, rows[:SITES])
    if more := rows[SITES:]:
        yield html.fold(counted(len(more), "more site"), html.table(SITE_HEAD, more))


def period_page(status: SeriesStatus, point: PeriodPoint, release: Release, plan: Plan) -> str:
    """The report of a period: what it says beside the others, and its own release.

    The verdict is the series': thresholds allow for all of its periods.
    """
    name = period_name(point.number, status.every).capitalize()
    order = sorted(
        point.columns, key=lambda c: (c.exceeds, facts.relative(point, c) or 0.0), reverse=True
    )
    known = {column.name: column for column in release.columns}
    above = [known[column.name] for column in order if column.exceeds and column.name in known]
    first = {
        "From": day(point.start),
        "Up to": f"before {day(point.end)}",
        "Released": facts.date(release.released_at),
        "Clients": f"{facts.included(release):,}",
        "Records": f"{release.records:,}",
    }
    raised = [
        f"Alarm {alarm.number} was raised here. {alarm_words(alarm, status)}"
        for alarm in status.alarms
        if alarm.raised == point.number
    ]
    return html.page(
        f"{name} of {status.population}",
        html.fact_list(first),
        *(html.paragraphs(words, "answer") for words in raised),
        html.paragraphs("" if status.outcome != "cannot tell" else headline(status), "answer"),
        _statistics(point, order, status.every),
        html.section("How large the difference is", html.cards([*_period_sizes(point, release)])),
        column_cards(above, release.records),
        privacy_section(release, plan=plan),
        html.section("Everything else", *details(release, plan, {}, (), judged=False)),
        headline=f"{name}: {facts.period_verdict(point, order)}",
        links=_neighbours(status, point),
    )


def _neighbours(status: SeriesStatus, point: PeriodPoint) -> dict[str, str]:
    """All periods, the one before and the one after that have a report."""
    numbers = [each.number for each in status.released]
    place = numbers.index(point.number)
    links = {"../index.html": f"All {status.every}s"}
    for before in numbers[:place][-1:]:
        links[f"{before:04d}.html"] = f"← {period_name(before, status.every)}"
    for after in numbers[place + 1 :][:1]:
        links[f"{after:04d}.html"] = f"{period_name(after, status.every)} →"
    return links


def _statistics(point: PeriodPoint, order: Sequence[JudgedView], every: str) -> Html:
    """Every statistic of the period beside its threshold, and how large the difference is."""
    rows = []
    for view in order if point.whole is None else [point.whole, *order]:
        tv = facts.named(view.sizes, "tv")
        rows.append(
            (
                view.name or "the whole",
                facts.beside(view.statistic, point.threshold),
                facts.beside(view.cumulative, point.cumulative_threshold),
                counted(view.window, every) if view.window else facts.UNKNOWN,
                f"tv {facts.size_words(tv)}" if tv else facts.UNKNOWN,
                html.marked(
                    "above" if view.exceeds else "tolerated" if view.tolerated else "below",
                    view.exceeds,
                ),
            )
        )
    intro = (
        f"In standard deviations from no drift: of this {every} alone, and of the window that ends "
        "here and stands out most. The thresholds allow for every column, every window and every "
        f"{every} of the series."
    )
    shown = html.table(STATISTIC_HEAD, rows, look="stacked") if rows else ""
    return html.section("Statistics beside their thresholds", shown, intro=intro)


def _period_sizes(point: PeriodPoint, release: Release) -> Iterator[Html]:
    """How large the difference of the whole is, beside what no drift gives."""
    for size in facts.plainest_first(point.sizes):
        words, chart = html.note(facts.size_words(size)), size_chart(size, release.records)
        yield html.card(words, chart, title=facts.divergence_title(size.divergence))
