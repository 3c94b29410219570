"""The page of a series, and the report of each of its periods.

Whether there is drift and since when, where, how large, and who answers. The page shows a
`SeriesStatus` and nothing else, and links to the reports.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedprikl.monitoring.status import (
    ColumnPoint,
    PeriodPoint,
    SeriesStatus,
    SiteHealth,
    Size,
    WindowFacts,
    alarm_words,
    counted,
    day,
    headline,
    period_name,
    short_day,
)
from fedprikl.protocol import Plan, Release
from fedprikl.reporting.charts import (
    LEVELS,
    Bar,
    Cell,
    Frame,
    bar_chart,
    file_of,
    heat_map,
    timeline_chart,
)
from fedprikl.reporting.facts import (
    COUNTED,
    NO_REASON,
    UNKNOWN,
    alarm_raised,
    alarm_state,
    beside,
    budget_words,
    divergence_title,
    due_words,
    in_state,
    included,
    largest,
    named,
    next_words,
    period_verdict,
    plainest_first,
    relative,
    size_words,
)
from fedprikl.reporting.page import (
    Html,
    card,
    cards,
    date,
    fact_list,
    fact_table,
    fold,
    key,
    listed,
    marked,
    note,
    page,
    paragraphs,
    section,
    table,
    tag,
)
from fedprikl.reporting.release_page import column_cards, details, privacy_section, size_chart

NAMED = 8  # missed periods of one reason that are named
COLUMNS = 3  # whose size is shown where the whole is not asked
TIPS = 300  # periods: beyond, only the first charts of the page can be pointed at
CELLS = 160  # across a heat map; more periods than that share cells
SHOWN = 20  # columns of a heat map that are not folded
LATEST = 6  # periods that are not folded
SITES = 8  # likewise
SITE_HEAD = ("site", "answered", "share", "last answered")
STATISTIC_HEAD = ("column", "alone", "together", "window", "size", "verdict")
VERDICTS = {True: "above", False: "no drift", None: "not judged"}


def series_page(status: SeriesStatus) -> str:
    """The whole page, as HTML without scripts."""
    every = status.every
    outline = [
        ("Next", "What happens next", [*_next(status)]),
        ("Drift", "Is there drift?", [*_drift(status)]),
        ("Columns", "Columns over time", [*_columns(status)]),
        ("Size", "How large is the difference?", [*_sizes(status)]),
        ("Windows", "Longer windows", [*_windows(status)]),
        ("Reports", f"Reports of each {every}", [*_reports(status)]),
        ("Sites", "Sites", [*_sites(status)]),
        ("Privacy", "Privacy", [*_privacy(status)]),
    ]
    signs = fold("Who signs, and what is compared", fact_table(_identity(status)))
    return page(
        f"Drift of {status.population}",
        _faults(status),
        fact_list(_facts(status)),
        _due(status),
        *(section(heading, *parts, name=name.lower()) for name, heading, parts in outline),
        section("Everything else", signs),
        headline=headline(status),
        links={f"#{name.lower()}": name for name, _, parts in outline if parts},
    )


def _faults(status: SeriesStatus) -> Html:
    if not status.faults:
        return Html()
    follows = "What follows is what the history says, right or wrong. " if status.points else ""
    return tag(
        "div",
        paragraphs("What is wrong", "bad"),
        tag("ul", *(tag("li", fault) for fault in status.faults)),
        tag("p", follows, "Restore it from a backup, or ask the aggregator for its own."),
        class_="fault",
        role="alert",
    )


def _facts(status: SeriesStatus) -> dict[str, str]:
    if not status.points:
        return {"Population": status.population, "As of": date(status.at)}
    missed = len(in_state(status, "missed"))
    released = counted(len(status.released), status.every)
    return {
        "Population": status.population,
        "Released": released + (f", {missed:,} missed" if missed else ""),
        "Last release": date(status.last_success) if status.last_success else "none yet",
        "Next": next_words(status),
        "False alarms": f"at most {100 * status.false_alarm:.3g}% per year",
        "As of": date(status.at),
    }


def _identity(status: SeriesStatus) -> dict[str, str]:
    return {
        "population": status.population,
        "trusted": status.trust,
        "plan (fingerprint)": status.plan,
        "reference (fingerprint)": status.reference,
        "signer (public key)": status.signer or "not signed",
    }


def _due(status: SeriesStatus) -> Html:
    words = due_words(status)
    command = tag("code", "fedprikl monitor")
    return tag("p", words, " ", command, " counts what is due.") if words else Html()


def _next(status: SeriesStatus) -> Iterator[Html]:
    """What will happen when, before the first release; a history that cannot be read says none."""
    if status.released or not status.points:
        return
    missed = in_state(status, "missed")
    ahead = next((point for point in status.points if point.state == "ahead"), None)
    if ahead is not None:
        name = period_name(ahead.number, status.every).capitalize()
        yield tag(
            "p",
            f"{name} begins on {day(ahead.start)} and ends on {day(ahead.end)}. After that, ",
            tag("code", "fedprikl monitor"),
            " counts it and makes the first release. This page will then show whether there is "
            "drift, where, and since when.",
        )
    elif len(missed) == len(status.points):
        yield paragraphs("The series is over, and nothing was released.")
    if missed:
        yield paragraphs(f"{counted(len(missed), status.every)} missed so far.")


def _drift(status: SeriesStatus) -> Iterator[Html]:
    """Two charts, of each period alone and of periods together, with alarms and what to know."""
    if not status.released:
        return
    frame, every = Frame.of(status), status.every
    what = "the whole or of a column" if status.columns else "the whole"
    yield note(
        f"How far {status.population} is from the reference, in standard deviations from no "
        f"drift: the largest statistic of {what}. An alarm is raised above the dashed line. It "
        f"lies so high that the whole series raises a false alarm in at most "
        f"{100 * status.false_alarm:.3g}% of all years."
    )
    yield key(_drift_key(status, frame))
    yield card(_drift_chart(status, frame, cumulative=False), title=f"Each {every} alone")
    yield card(
        note(
            f"A small drift that stays shows in the sum of many {every}s: the largest of all "
            "windows that end here."
        ),
        _drift_chart(status, frame, cumulative=True),
        title=f"Several {every}s together",
    )
    yield from _alarms(status)
    yield from _missed(status)


def _drift_key(status: SeriesStatus, frame: Frame) -> dict[str, str]:
    items = {"now": "largest statistic", "limit": "threshold"}
    if any(point.speaks for point in frame.points):
        items["dot"] = "above the threshold"
    if status.alarms:
        items |= {"flag": "alarm raised, with its number", "drift": "drift, as the alarm dates it"}
    if any(alarm.acknowledged_at for alarm in status.alarms):
        items["known"] = "acknowledged"
    if any(point.state == "missed" for point in frame.points):
        items["gap"] = "missed"
    return items


def _drift_chart(status: SeriesStatus, frame: Frame, *, cumulative: bool) -> Html:
    found = [largest(point, cumulative=cumulative) for point in frame.points]
    limits = [p.cumulative_threshold if cumulative else p.threshold for p in frame.points]
    raised = {alarm.raised: f"; alarm {alarm.number} was raised" for alarm in status.alarms}
    tips = [
        f"{frame.name(point)}: {_tip(point, pair, limit)}{raised.get(point.number, '')}"
        for point, pair, limit in zip(frame.points, found, limits, strict=True)
    ]
    which = f"several {status.every}s together" if cumulative else f"each {status.every} alone"
    return timeline_chart(
        frame,
        [None if pair is None else pair[0] for pair in found],
        tips,
        title=f"Statistic over time, {which}",
        threshold=limits,
        alarms=status.alarms,
    )


def _tip(point: PeriodPoint, found: tuple[float, str] | None, limit: float | None) -> str:
    if point.state == "missed":
        return f"missed, {point.reason or NO_REASON}"
    if found is None:
        return "not counted yet" if point.state == "due" else "not judged"
    value, column = found
    where = f" ({column})" if column else ""
    return f"{value:.2f}{where}" + ("" if limit is None else f", threshold {limit:.2f}")


def _alarms(status: SeriesStatus) -> Iterator[Html]:
    """All alarms, the last first."""
    if status.alarms:
        yield tag("h3", "Alarms", id="alarms")
    for alarm in reversed(status.alarms):
        also = f" Also {listed(alarm.columns[1:])}." if alarm.columns[1:] else ""
        state = tag(
            "span", alarm_state(alarm, status.every), class_="bad" if alarm.state == "open" else ""
        )
        words = f"Alarm {alarm.number}: {alarm_words(alarm, status)}{also}"
        yield card(
            tag("p", tag("strong", words)), tag("p", alarm_raised(alarm, status.every), " ", state)
        )


def _missed(status: SeriesStatus) -> Iterator[Html]:
    """Periods without a release, by reason."""
    reasons: dict[str, list[str]] = {}
    for point in status.points:
        if point.state == "missed":
            reasons.setdefault(point.reason or NO_REASON, []).append(str(point.number))
    if reasons:
        yield tag("h3", "Missed", id="missed")
        yield tag(
            "ul",
            *(
                tag("li", f"{counted(len(them), status.every)} ({listed(them, NAMED)}): {reason}")
                for reason, them in reasons.items()
            ),
        )


def _columns(status: SeriesStatus) -> Iterator[Html]:
    """The heat map with its key, a sentence, and all of its numbers in a table."""
    frame, every = Frame.of(status), status.every
    if not status.columns:
        return
    step = -(-len(frame) // CELLS)
    groups = [frame.points[n : n + step] for n in range(0, len(frame), step)]
    judged = {name: _judged(frame, name) for name in status.columns}
    rows = {name: [_cell(group, judged[name]) for group in groups] for name in status.columns}
    says = {name: _says(list(cells.values()), every) for name, cells in judged.items()}
    order = sorted(rows, key=lambda name: _urgency(rows[name]), reverse=True)
    each = f"Each cell is a {every}"
    if step > 1:
        each = f"Each cell stands for {step} {every}s, with the largest value of them"
    first, more = ({name: rows[name] for name in part} for part in (order[:SHOWN], order[SHOWN:]))
    yield card(
        note(
            f"{each}. Its colour is how large the column's statistic is beside its threshold: of "
            f"the {every} alone or of a window that ends there, whichever is larger. Columns that "
            "stand out now come first."
        ),
        key(LEVELS),
        heat_map(frame, first, says),
        fold(counted(len(more), "more column"), heat_map(frame, more, says)) if more else "",
    )
    lines = [
        [frame.name(group[0]), *(_cell_words(rows[name][place]) for name in order)]
        for place, group in enumerate(groups)
    ]
    caption = "Statistics as multiples of their thresholds: 1 is the threshold"
    numbers = table([f"{every} (first of a cell)", *order], lines, caption=caption)
    yield fold("The same in numbers", numbers, printed=False)


Judged = tuple[bool, float, int]


def _judged(frame: Frame, name: str) -> dict[int, Judged]:
    """A column in each period in which it was judged."""
    return {
        point.number: (column.speaks, found, point.number)
        for point in frame.points
        for column in point.columns
        if column.name == name and (found := relative(point, column)) is not None
    }


def _cell(group: Sequence[PeriodPoint], judged: dict[int, Judged]) -> Cell:
    return max((judged[p.number] for p in group if p.number in judged), default=None)


def _cell_words(cell: Cell) -> str:
    if cell is None:
        return "no release"
    above, found, _ = cell
    return f"{found:.2f}{' above' if above else ''}"


def _urgency(cells: Sequence[Cell]) -> tuple[bool, float]:
    """Columns that stand out in the last release are the most urgent ones."""
    return next((cell[:2] for cell in reversed(cells) if cell is not None), (False, 0.0))


def _says(judged: Sequence[Judged], every: str) -> str:
    """Whether a column stands out, in words: colours alone say nothing to some."""
    since = None
    for above, _, number in judged:
        since = (number if since is None else since) if above else None
    if since is not None:
        return f"above since {period_name(since, every)}"
    last = next((number for above, _, number in reversed(judged) if above), None)
    return "" if last is None else f"last above in {period_name(last, every)}"


def _sizes(status: SeriesStatus) -> Iterator[Html]:
    """A chart for each divergence of the whole; without it, of the columns that stand out."""
    frame, judged = Frame.of(status), status.judged
    if not judged:
        return
    last = judged[-1]
    if last.sizes:
        boxes = [
            _size_card(
                frame,
                divergence_title(size.divergence),
                [named(point.sizes, size.divergence) for point in frame.points],
            )
            for size in plainest_first(last.sizes)
        ]
    else:
        order = sorted(last.columns, key=lambda c: -(relative(last, c) or 0.0))[:COLUMNS]
        boxes = [
            _size_card(
                frame,
                f"{column.name}: total variation (tv)",
                [_tv_of(point, column.name) for point in frame.points],
            )
            for column in order
        ]
    if not any(boxes):
        return
    yield note(
        f"Of each {status.every} alone, with its 95% interval. 0 is no difference, but chance "
        "and noise keep the value above 0 without any drift: see the dotted line. Total variation "
        "is the share of all records that would have to change to look like the reference."
    )
    yield key({"now": "value", "band": "95% interval", "below": "expected without drift"})
    yield cards(boxes)


def _tv_of(point: PeriodPoint, name: str) -> Size | None:
    sizes = next((column.sizes for column in point.columns if column.name == name), ())
    return named(sizes, "tv")


def _size_card(frame: Frame, title: str, found: Sequence[Size | None]) -> Html:
    said = ["no value" if size is None else size_words(size) for size in found]
    last = next((n for n in reversed(range(len(found))) if found[n] is not None), None)
    if last is None:
        return Html()
    chart = timeline_chart(
        frame,
        [None if size is None else size.value for size in found],
        [f"{frame.name(point)}: {words}" for point, words in zip(frame.points, said, strict=True)],
        title=f"{title} over time",
        band=[None if size is None else size.interval for size in found],
        below=[None if size is None else size.no_drift for size in found],
        pointed=len(frame) <= TIPS,
    )
    return card(note(f"Last: {said[last]}"), chart, title=title)


def _windows(status: SeriesStatus) -> Iterator[Html]:
    """Sums over the last periods: the whole in sight, columns folded."""
    if not (status.released and status.windows):
        return
    yield note(
        f"The noisy counts of several {status.every}s added up: one longer period, at no further "
        "cost in privacy, with a narrower 95% interval."
    )
    by_name: dict[str, list[WindowFacts]] = {}
    for window in status.windows:
        by_name.setdefault(window.name, []).append(window)
    if whole := by_name.pop("", None):
        yield _window_table("", whole, status.every)
    if by_name:
        tables = (_window_table(name, found, status.every) for name, found in by_name.items())
        yield fold("Longer windows of each column", *tables)


def _window_table(name: str, windows: Sequence[WindowFacts], every: str) -> Html:
    """A row for each window, a column for each divergence."""
    kinds = plainest_first(windows[0].sizes)
    rows = []
    for window in windows:
        sizes = [named(window.sizes, kind.divergence) for kind in kinds]
        rows.append(
            [
                f"last {counted(window.length, every)}",
                *(UNKNOWN if s is None else size_words(replace(s, unit="")) for s in sizes),
                f"{window.first} to {window.last}",
                f"{window.records:,}",
            ]
        )
    heads = [", ".join(filter(None, (kind.divergence, kind.unit))) for kind in kinds]
    return table(["window", *heads, f"{every}s", "records"], rows, caption=name)


def _reports(status: SeriesStatus) -> Iterator[Html]:
    """The latest periods, and all of them folded; each with a release links to its report."""
    if not (status.released or in_state(status, "missed")):
        return
    every = status.every
    points = [point for point in reversed(status.points) if point.state != "ahead"]
    head = (every, "verdict", "begins", "alone", "together", "size", "records", "clients")
    rows = [_report_row(every, point) for point in points]
    yield table(head, rows[:LATEST])
    if len(rows) > LATEST:
        yield fold(f"All {len(rows):,} {every}s", table(head, rows))


def _report_row(every: str, point: PeriodPoint) -> tuple[str, ...]:
    name = period_name(point.number, every)
    if point.state != "released":
        why = point.reason if point.state == "missed" else "over, not counted yet"
        reason = tag("td", why, class_="why", colspan=5)
        return name, point.state, short_day(point.start), reason
    size = next(iter(plainest_first(point.sizes)), None)
    alone, together = (largest(point, cumulative=which) for which in (False, True))
    return (
        tag("a", name, href=file_of(point.number)),
        marked(VERDICTS[point.speaks], point.speaks),
        short_day(point.start),
        beside(alone and alone[0], point.threshold),
        beside(together and together[0], point.cumulative_threshold),
        "" if size is None else f"{size.divergence} {size_words(size)}",
        f"{point.records:,}",
        f"{point.clients:,}",
    )


def _privacy(status: SeriesStatus) -> Iterator[Html]:
    """What is protected, and what one record or client has lost of what it may lose."""
    if not status.points:
        return
    yield paragraphs(status.privacy)
    budget = status.budget
    if budget is None:
        yield note("No ledger is kept: how much of the budget is spent is not known.")
        return
    bar = Bar(
        value=budget.spent,
        says=f"{budget.spent:.3g} of {budget.epsilon:.3g}",
        mark=budget.epsilon,
        kind="drifted" if budget.left <= 0 else "now",
    )
    yield card(
        paragraphs(budget_words(budget)),
        note(COUNTED[budget.unit].format(status.every)),
        bar_chart([(f"spent, by the {budget.unit} that lost most", [bar])], title="Privacy budget"),
        title=f"Budget of one {budget.unit}",
    )


def _sites(status: SeriesStatus) -> Iterator[Html]:
    """Who answered how often; those that answered least come first."""
    if not (status.released and status.sites):
        return
    order = sorted(status.sites, key=lambda site: (_share(site), site.name))
    always = sum(1 for site in order if site.answered == site.asked)
    yield note(
        f"{always:,} of {len(order):,} sites answered each time they were asked. Who takes part is "
        "public; those that answered least come first."
    )
    rows = [
        (
            site.name,
            f"{site.answered:,} of {site.asked:,}",
            f"{100 * _share(site):.0f}%",
            "never" if site.last is None else period_name(site.last, status.every),
        )
        for site in order
    ]
    yield table(SITE_HEAD, rows[:SITES])
    if more := rows[SITES:]:
        yield fold(counted(len(more), "more site"), table(SITE_HEAD, more))


def _share(site: SiteHealth) -> float:
    return site.answered / site.asked if site.asked else 1.0


def period_page(status: SeriesStatus, point: PeriodPoint, release: Release, plan: Plan) -> str:
    """The report of a period: what it says beside the others, and its own release.

    The verdict is the series': thresholds allow for all of its periods.
    """
    name = period_name(point.number, status.every).capitalize()
    order = sorted(point.columns, key=lambda c: (c.speaks, relative(point, c) or 0.0), reverse=True)
    known = {column.name: column for column in release.columns}
    above = [known[column.name] for column in order if column.speaks and column.name in known]
    facts = {
        "From": day(point.start),
        "Up to": f"before {day(point.end)}",
        "Released": date(release.released_at),
        "Clients": f"{included(release):,}",
        "Records": f"{release.records:,}",
    }
    raised = [
        f"Alarm {alarm.number} was raised here. {alarm_words(alarm, status)}"
        for alarm in status.alarms
        if alarm.raised == point.number
    ]
    return page(
        f"{name} of {status.population}",
        fact_list(facts),
        *(paragraphs(words, "answer") for words in raised),
        _statistics(point, order, status.every),
        _period_sizes(point, release.records),
        column_cards(above, release.records),
        privacy_section(release),
        section("Everything else", *details(release, plan, {}, (), judged=False)),
        headline=f"{name}: {period_verdict(point, order)}",
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


def _statistics(point: PeriodPoint, order: Sequence[ColumnPoint], every: str) -> Html:
    """Every statistic of the period beside its threshold, and how large the difference is."""
    rows = []
    if point.statistic is not None or point.cumulative is not None:
        limits = (point.threshold, point.cumulative_threshold)
        found = zip((point.statistic, point.cumulative), limits, strict=True)
        above = any(value is not None and limit and value > limit for value, limit in found)
        rows.append(_statistic_row("the whole", point, point, every, above=above))
    rows += [_statistic_row(c.name, c, point, every, above=c.speaks) for c in order]
    if not rows:
        return Html()
    return section(
        "Statistics beside their thresholds",
        note(
            f"In standard deviations from no drift: of this {every} alone, and of the window "
            "that ends here and stands out most. The thresholds allow for every column, every "
            f"window and every {every} of the series."
        ),
        table(STATISTIC_HEAD, rows),
    )


def _statistic_row(
    name: str, found: PeriodPoint | ColumnPoint, point: PeriodPoint, every: str, *, above: bool
) -> tuple[str, ...]:
    tv = named(found.sizes, "tv")
    return (
        name,
        beside(found.statistic, point.threshold),
        beside(found.cumulative, point.cumulative_threshold),
        counted(found.window, every) if found.window else UNKNOWN,
        UNKNOWN if tv is None else f"tv {size_words(tv)}",
        marked("above" if above else "below", above),
    )


def _period_sizes(point: PeriodPoint, records: int) -> Html:
    """How large the difference of the whole is, beside what no drift gives."""
    boxes = [
        card(
            note(size_words(size)),
            size_chart(size, records=records),
            title=divergence_title(size.divergence),
        )
        for size in plainest_first(point.sizes)
    ]
    return section("How large the difference is", cards(boxes))
