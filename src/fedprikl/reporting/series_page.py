"""The page of a series: whether there is drift and since when, where, how large, and who answers.

It shows a `SeriesStatus` and nothing else. Every period links to its own report.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fedprikl.monitoring.alarms import QUIET
from fedprikl.monitoring.status import (
    AlarmFacts,
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
from fedprikl.reporting.bar_chart import Bar, Row, bar_chart
from fedprikl.reporting.page import (
    clean,
    date,
    decimals,
    escaped,
    fact_table,
    fold,
    listed,
    number,
    page,
    paragraphs,
    table,
)
from fedprikl.reporting.series_charts import (
    Curve,
    Frame,
    file_of,
    heat_map,
    relative,
    timeline_chart,
)

NAMED = 8  # missed periods of one reason that are named
STATES = {
    "open": "Open.",
    "rebaselined": "Ended by a new baseline.",
    "ended": "Ended by itself: no new evidence of it in {} {}s.",
}
TESTS = {"period": "one {} alone", "cumulative": "several {}s together"}
TITLES = {"kl": "Kullback-Leibler divergence", "tv": "Total variation", "js": "Jensen-Shannon"}
COLUMNS = 3  # whose size is shown where the whole is not asked
TIPS = 300  # periods: beyond, only the first chart of the page can be pointed at
# From far below the threshold to far above it. Lightness alone tells them apart, so that the order
# is the same for everybody; blue and orange are told apart by nearly everybody.
HEAT_LIGHT = ("#e9eef5", "#bcd2ea", "#86aedb", "#d0620c", "#6b2d00")
HEAT_DARK = ("#232c37", "#2f4a68", "#437aae", "#f0913a", "#ffe0b8")
LATEST = 6  # periods that are not folded
SITES = 8  # likewise
COUNTED = {
    "record": "What is spent does not grow with each {}, as long as each record is counted in only "
    "one.",
    "client": "What is spent grows with each {}, because every client is counted in it.",
}
VERDICTS = {
    True: '<td class="bad">above</td>',
    False: "<td>no drift</td>",
    None: "<td>not judged</td>",
}
SITE_HEAD = ("site", "answered", "share", "last answered")
SECTIONS = {
    "drift": "Drift",
    "columns": "Columns",
    "size": "Size",
    "windows": "Windows",
    "periods": "Reports",
    "sites": "Sites",
    "privacy": "Privacy",
}


def largest(point: PeriodPoint, *, cumulative: bool) -> tuple[float, str] | None:
    """The largest statistic of a period, and whose it is; an empty name is the whole."""
    whole = point.cumulative if cumulative else point.statistic
    found = [(whole, "")] + [
        (column.cumulative if cumulative else column.statistic, column.name)
        for column in point.columns
    ]
    return max(((value, name) for value, name in found if value is not None), default=None)


def drift_section(status: SeriesStatus) -> list[str]:
    """Two charts, of each period alone and of periods together, with alarms and what to know."""
    frame = Frame.of(status)
    every = status.every
    what = "the whole or of a column" if status.columns else "the whole"
    return [
        "<h2 id=drift>Is there drift?</h2>",
        paragraphs(
            f"How far {status.population} is from the reference, in standard deviations from no "
            f"drift: the largest statistic of {what}. An alarm is raised above the dashed line. It "
            f"lies so high that the whole series raises a false alarm in at most "
            f"{100 * status.false_alarm:.3g}% of all years.",
            "note",
        ),
        _key(status, frame),
        f'<section class="card"><h3>Each {every} alone</h3>',
        _chart(status, frame, cumulative=False),
        "</section>",
        f'<section class="card"><h3>Several {every}s together</h3>',
        paragraphs(
            f"A small drift that stays shows in the sum of many {every}s: the largest of all "
            "windows that end here.",
            "note",
        ),
        _chart(status, frame, cumulative=True),
        "</section>",
        *_alarms(status),
        *_missed(status),
    ]


def _chart(status: SeriesStatus, frame: Frame, *, cumulative: bool) -> str:
    found = [largest(point, cumulative=cumulative) for point in frame.points]
    limits = [p.cumulative_threshold if cumulative else p.threshold for p in frame.points]
    spoken = frozenset(
        place
        for place, (pair, limit) in enumerate(zip(found, limits, strict=True))
        if pair is not None and limit is not None and pair[0] > limit
    )
    raised = {alarm.raised: f"; alarm {alarm.number} was raised" for alarm in status.alarms}
    tips = [
        _tip(frame, point, pair, limit) + raised.get(point.number, "")
        for point, pair, limit in zip(frame.points, found, limits, strict=True)
    ]
    which = f"several {status.every}s together" if cumulative else f"each {status.every} alone"
    last = next((tip for tip, pair in zip(tips[::-1], found[::-1], strict=True) if pair), "none")
    return timeline_chart(
        frame,
        Curve(values=[None if pair is None else pair[0] for pair in found], spoken=spoken),
        title=f"Statistic over time, {which}",
        says=f"{counted(len(spoken), status.every)} above the threshold. The last: {last}.",
        tips=tips,
        threshold=limits,
        alarms=status.alarms,
        acknowledged=_acknowledged(status, frame),
    )


def _tip(
    frame: Frame, point: PeriodPoint, pair: tuple[float, str] | None, limit: float | None
) -> str:
    name = frame.name(point)
    if point.state == "missed":
        return f"{name}: missed, {clean(point.reason) or 'no reason is known'}"
    if pair is None:
        return f"{name}: {'not counted yet' if point.state == 'due' else 'not judged'}"
    value, column = pair
    where = f" ({clean(column)})" if column else ""
    beside = "" if limit is None else f", threshold {limit:.2f}"
    return f"{name}: {value:.2f}{where}{beside}"


def _key(status: SeriesStatus, frame: Frame) -> str:
    items = {"now": "largest statistic", "limit": "threshold"}
    if any(point.speaks for point in frame.points):
        items["dot"] = "above the threshold"
    if status.alarms:
        items |= {"flag": "alarm raised, with its number", "drift": "drift, as the alarm dates it"}
    if any(alarm.acknowledged_at for alarm in status.alarms):
        items["known"] = "acknowledged"
    if any(point.state == "missed" for point in frame.points):
        items["gap"] = "missed"
    shown = "".join(f'<li class="{style}">{escaped(words)}</li>' for style, words in items.items())
    return f'<ul class="key">{shown}</ul>'


def _acknowledged(status: SeriesStatus, frame: Frame) -> list[int]:
    """The places of the periods in which alarms were acknowledged."""
    starts = [datetime.fromisoformat(point.start) for point in frame.points]
    at = [datetime.fromisoformat(a.acknowledged_at) for a in status.alarms if a.acknowledged_at]
    return [max(sum(start <= when for start in starts) - 1, 0) for when in at]


def _alarms(status: SeriesStatus) -> Iterator[str]:
    """All alarms, the last first."""
    if not status.alarms:
        return
    yield "<h3 id=alarms>Alarms</h3>"
    for alarm in reversed(status.alarms):
        raised = period_name(alarm.raised, status.every)
        words = f"{alarm_words(alarm, status)} {_more(alarm.columns)}".strip()
        how = f"Raised in {raised} by {TESTS[alarm.test].format(status.every)}."
        state = ' class="bad"' if alarm.state == "open" else ""
        yield (
            f'<section class="card"><p><strong>Alarm {alarm.number}: {escaped(words)}</strong></p>'
            f"<p>{escaped(how)} <span{state}>"
            f"{escaped(_state(alarm, status.every))}</span></p></section>"
        )


def _more(columns: tuple[str, ...]) -> str:
    return f"Also {listed([clean(name) for name in columns[1:]])}." if columns[1:] else ""


def _state(alarm: AlarmFacts, every: str) -> str:
    """How it stands, and what people said about it."""
    stands = "" if alarm.state == "acknowledged" else STATES[alarm.state].format(QUIET, every)
    if not alarm.acknowledged_at:
        return stands
    said = f": {alarm.note}" if alarm.note else "."
    return f"{stands} Acknowledged on {day(alarm.acknowledged_at)}{said}".strip()


def _missed(status: SeriesStatus) -> Iterator[str]:
    """Periods without a release, by reason."""
    reasons: dict[str, list[int]] = {}
    for point in status.points:
        if point.state == "missed":
            reasons.setdefault(point.reason or "no reason is known", []).append(point.number)
    if not reasons:
        return
    yield "<h3 id=missed>Missed</h3><ul>"
    for reason, numbers in reasons.items():
        which = listed([str(number) for number in numbers], NAMED)
        yield (
            f"<li>{escaped(counted(len(numbers), status.every))} ({escaped(which)}): "
            f"{escaped(reason)}</li>"
        )
    yield "</ul>"


def size_words(size: Size) -> str:
    """A value with its interval and unit."""
    digits = _digits(size)
    value = f"{number(size.value, digits)} {clean(size.unit)}".rstrip()
    return f"{value} ({_interval(size)})" if size.interval else value


def plainest_first(sizes: Sequence[Size]) -> list[Size]:
    """Total variation comes first: it is a share of all records."""
    return sorted(sizes, key=lambda size: size.divergence != "tv")


def _digits(size: Size) -> int:
    return decimals(0.0 if size.interval is None else size.interval[1] - size.interval[0])


def _interval(size: Size) -> str:
    if size.interval is None:
        return "-"
    return " to ".join(number(end, _digits(size)) for end in size.interval)


def sizes_section(status: SeriesStatus) -> list[str]:
    """A chart for each divergence of the whole; without it, of the columns that stand out."""
    frame, judged = Frame.of(status), status.judged
    if not judged:
        return []
    charts: list[str] = []
    if judged[-1].sizes:
        for size in plainest_first(judged[-1].sizes):
            found = [_named(point.sizes, size.divergence) for point in frame.points]
            charts.append(_card(frame, size_title(size.divergence), found))
    else:
        for name in _leading(judged[-1]):
            found = [_named(_sizes_of(point, name), "tv") for point in frame.points]
            charts.append(_card(frame, f"{clean(name)}: total variation (tv)", found))
    if not charts:
        return []
    return [
        "<h2 id=size>How large is the difference?</h2>",
        paragraphs(
            f"Of each {status.every} alone, with its 95% interval. 0 is no difference, but chance "
            "and noise keep the value above 0 without any drift: see the dotted line. Total "
            "variation is the share of all records that would have to change to look like the "
            "reference.",
            "note",
        ),
        '<ul class="key"><li class="now">value</li><li class="band">95% interval</li>'
        '<li class="below">expected without drift</li></ul>',
        '<div class="cards">',
        *charts,
        "</div>",
    ]


def size_title(divergence: str) -> str:
    """What people call a divergence."""
    return f"{TITLES.get(divergence, 'Divergence')} ({clean(divergence)})"


def _leading(point: PeriodPoint) -> list[str]:
    order = sorted(point.columns, key=lambda c: -(relative(point, c) or 0.0))
    return [column.name for column in order[:COLUMNS]]


def _sizes_of(point: PeriodPoint, name: str) -> tuple[Size, ...]:
    return next((column.sizes for column in point.columns if column.name == name), ())


def _named(sizes: Sequence[Size], divergence: str) -> Size | None:
    return next((size for size in sizes if size.divergence == divergence), None)


def _card(frame: Frame, title: str, found: Sequence[Size | None]) -> str:
    known = [(p, size) for p, size in zip(frame.points, found, strict=True) if size is not None]
    if not known:
        return ""
    tips = [
        f"{frame.name(point)}: {size_words(size) if size is not None else 'no value'}"
        for point, size in zip(frame.points, found, strict=True)
    ]
    point, last = known[-1]
    chart = timeline_chart(
        frame,
        Curve(
            values=[None if size is None else size.value for size in found],
            band=[None if size is None else size.interval for size in found],
        ),
        title=f"{title} over time",
        says=f"The last value, {frame.name(point)}: {size_words(last)}.",
        tips=tips if len(frame) <= TIPS else (),
        below=[None if size is None else size.no_drift for size in found],
    )
    return (
        f'<section class="card"><h3>{escaped(title)}</h3>'
        f"{paragraphs(f'Last: {size_words(last)}', 'note')}{chart}</section>"
    )


def windows_section(status: SeriesStatus) -> Iterator[str]:
    """Sums over the last periods: the whole in sight, columns folded."""
    if not status.windows:
        return
    yield "<h2 id=windows>Longer windows</h2>"
    yield paragraphs(
        f"The noisy counts of several {status.every}s added up: one longer period, at no further "
        "cost in privacy, with a narrower 95% interval.",
        "note",
    )
    whole = [window for window in status.windows if not window.name]
    columns = [window for window in status.windows if window.name]
    if whole:
        yield _table(whole, status.every)
    if columns:
        by_name: dict[str, list[WindowFacts]] = {}
        for window in columns:
            by_name.setdefault(window.name, []).append(window)
        tables = [_table(windows, status.every, name) for name, windows in by_name.items()]
        yield fold("Longer windows of each column", tables)


def _table(windows: Sequence[WindowFacts], every: str, name: str = "") -> str:
    """A row for each window, a column for each divergence."""
    kinds = plainest_first(windows[0].sizes)
    rows = []
    for window in windows:
        sizes = [_named(window.sizes, kind.divergence) for kind in kinds]
        rows.append(
            [
                f"last {counted(window.length, every)}",
                *("-" if size is None else size_words(replace(size, unit="")) for size in sizes),
                f"{window.first} to {window.last}",
                f"{window.records:,}",
            ]
        )
    heads = [", ".join(filter(None, (clean(k.divergence), clean(k.unit)))) for k in kinds]
    return table(["window", *heads, f"{every}s", "records"], rows, caption=clean(name))


def _variables(colours: tuple[str, ...]) -> str:
    return " ".join(f"--heat{n}: {colour};" for n, colour in enumerate(colours))


SERIES_STYLE = (
    f"""
:root {{ {_variables(HEAT_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(HEAT_DARK)} }} }}
@media print {{ :root {{ {_variables(HEAT_LIGHT)} }} }}
"""
    + """
a { color: var(--now); text-underline-offset: .15em; }
:focus-visible { outline: 3px solid var(--now); outline-offset: 2px; border-radius: 3px; }
main:focus { outline: none; }
.skip { position: absolute; left: -999rem; top: 0; background: var(--card); padding: .6rem 1rem;
        z-index: 1; }
.skip:focus { left: .5rem; top: .5rem; }
.top { border-bottom: 1px solid var(--lines); background: var(--card); }
.top ul { max-width: 62rem; margin: 0 auto; padding: .45rem 1rem; list-style: none; display: flex;
          flex-wrap: wrap; gap: 0 1.2rem; }
.top a { display: inline-block; padding: .2rem 0; }
.fault { border: 2px solid var(--bad); border-radius: 10px; background: var(--card);
         padding: .8rem 1.1rem; margin: 0 0 1.2rem; }
.fault ul { margin: .3rem 0; padding-left: 1.2rem; }
.plot { padding-left: 2.6rem; } .plot svg { overflow: visible; }
.c-grid { stroke: var(--lines); stroke-opacity: .6; }
.c-tick { fill: var(--muted); font-size: 12px; }
.c-now, .c-reference, .c-limit, .c-below { fill: none; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; stroke-linecap: round; }
.c-now { stroke: var(--now); stroke-width: 2; }
.c-reference { stroke: var(--reference); stroke-width: 1.5; }
.c-limit { stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: 6 4; stroke-linecap: butt; }
.c-below { stroke: var(--reference); stroke-width: 1.6; stroke-dasharray: 2 4; }
.c-band { fill: var(--now); fill-opacity: .2; }
.c-gap { fill: var(--reference); fill-opacity: .35; }
.c-drift { fill: var(--moved); fill-opacity: .12; }
.c-dot { fill: var(--now); pointer-events: none; }
.c-above { fill: var(--moved); stroke: var(--card); pointer-events: none; }
.c-flag { stroke: var(--moved); stroke-width: 2; }
.c-known { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 1 3; stroke-linecap: round; }
.c-alarm { fill: var(--ink); font-size: 12px; font-weight: 600; }
.c-flag, .c-known, .c-alarm { pointer-events: none; }
.c-hit { fill: transparent; } a:hover .c-hit, .c-hit:hover { fill: var(--ink); fill-opacity: .1; }
.key .limit::before { width: 1.6em; height: 0; border-top: 2px dashed var(--ink);
                      border-radius: 0; vertical-align: .3em; }
.key .below::before { width: 1.6em; height: 0; border-top: 2px dotted var(--reference);
                      border-radius: 0; vertical-align: .3em; }
.key .gap::before { background: var(--reference); opacity: .5; width: .9em; height: .9em;
                    vertical-align: -.1em; }
.key .drift::before { background: var(--moved); opacity: .3; width: .9em; height: .9em;
                      vertical-align: -.1em; }
.key .band::before { background: var(--now); opacity: .3; }
.key .dot::before { background: var(--moved); width: .6em; height: .6em; border-radius: 50%; }
.key .flag::before { width: 0; height: 1em; border-left: 2px solid var(--moved); border-radius: 0;
                     vertical-align: -.15em; }
.key .known::before { width: 0; height: 1em; border-left: 2px dotted var(--ink); border-radius: 0;
                      vertical-align: -.15em; }
.h0 { fill: var(--heat0); } .h1 { fill: var(--heat1); } .h2 { fill: var(--heat2); }
.h3 { fill: var(--heat3); } .h4 { fill: var(--heat4); } .hm { fill: var(--reference); }
.key .k0::before { background: var(--heat0); } .key .k1::before { background: var(--heat1); }
.key .k2::before { background: var(--heat2); } .key .k3::before { background: var(--heat3); }
.key .k4::before { background: var(--heat4); }
.key .k0::before, .key .k1::before, .key .k2::before, .key .k3::before, .key .k4::before {
  outline: 1px solid var(--lines); }
.wide .why { text-align: left; white-space: normal; min-width: 14rem; }
.heat { display: grid; grid-template-columns: 1fr; gap: 0; }
.heat .name { font-size: .88rem; margin-top: .45rem; line-height: 1.3; }
.heat .says { color: var(--muted); }
.heat svg { height: 15px; } .heat a:hover { opacity: .7; }
.heat .dates { height: 22px; overflow: visible; }
@media (min-width: 48rem) {
  .heat { grid-template-columns: 13rem 1fr; gap: .3rem .9rem; align-items: center; }
  .heat .name { margin: 0; text-align: right; } .heat .says { display: block; }
  .heat .dates { grid-column: 2; }
}
@media print { .top, .skip { display: none; } }
"""
)


def periods_section(status: SeriesStatus) -> Iterator[str]:
    """The latest periods, and all of them folded; each with a release links to its report."""
    points = [point for point in reversed(status.points) if point.state != "ahead"]
    if not points:
        return
    yield f"<h2 id=periods>Reports of each {status.every}</h2>"
    yield _periods(status, points[:LATEST])
    if len(points) > LATEST:
        yield fold(f"All {len(points):,} {status.every}s", [_periods(status, points)])


def _periods(status: SeriesStatus, points: Sequence[PeriodPoint]) -> str:
    head = (status.every, "verdict", "begins", "alone", "together", "size", "records", "clients")
    cells = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in head)
    lines = [f'<div class="wide" tabindex="0"><table><thead><tr>{cells}</tr></thead><tbody>']
    lines += [_row(status.every, point) for point in points]
    return "\n".join([*lines, "</tbody></table></div>"])


def _row(every: str, point: PeriodPoint) -> str:
    name = escaped(period_name(point.number, every))
    if point.state != "released":
        why = point.reason if point.state == "missed" else "over, not counted yet"
        return (
            f'<tr><th scope="row">{name}</th><td>{escaped(point.state)}</td>'
            f"<td>{escaped(short_day(point.start))}</td>"
            f'<td class="why" colspan="5">{escaped(why)}</td></tr>'
        )
    size = next(iter(plainest_first(point.sizes)), None)
    cells = (
        short_day(point.start),
        _beside(largest(point, cumulative=False), point.threshold),
        _beside(largest(point, cumulative=True), point.cumulative_threshold),
        "" if size is None else f"{clean(size.divergence)} {size_words(size)}",
        f"{point.records:,}",
        f"{point.clients:,}",
    )
    middle = "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
    said = VERDICTS[point.speaks]
    link = f'<a href="{file_of(point.number)}">{name}</a>'
    return f'<tr><th scope="row">{link}</th>{said}{middle}</tr>'


def _beside(found: tuple[float, str] | None, limit: float | None) -> str:
    if found is None:
        return "-"
    return f"{found[0]:.2f}" if limit is None else f"{found[0]:.2f} / {limit:.2f}"


def budget_section(status: SeriesStatus) -> Iterator[str]:
    """What is protected, and what one record or client has lost of what it may lose."""
    yield "<h2 id=privacy>Privacy</h2>"
    if status.privacy:
        yield paragraphs(status.privacy)
    budget = status.budget
    if budget is None:
        yield paragraphs("No ledger is kept: how much of the budget is spent is not known.", "note")
        return
    rows = [
        Row(
            label=f"spent, by the {budget.unit} that lost most",
            bars=(
                Bar(
                    value=budget.spent,
                    says=f"{budget.spent:.3g} of {budget.epsilon:.3g}",
                    mark=budget.epsilon,
                    kind="moved" if budget.left <= 0 else "now",
                ),
            ),
        )
    ]
    left = "nothing" if budget.left < budget.epsilon / 1000 else f"{budget.left:.3g}"
    says = f"Epsilon {budget.spent:.3g} of {budget.epsilon:.3g} is spent, {left} is left"
    delta = f", at delta {budget.delta:.3g}" if budget.delta else ""
    yield (
        f'<div class="card"><h3>Budget of one {budget.unit}</h3>{paragraphs(f"{says}{delta}.")}'
        f"{paragraphs(COUNTED[budget.unit].format(status.every), 'note')}"
        f"{bar_chart(rows, title='Privacy budget', says=f'{says}.')}</div>"
    )


def sites_section(status: SeriesStatus) -> Iterator[str]:
    """Who answered how often; those that answered least come first."""
    if not status.sites:
        return
    order = sorted(status.sites, key=lambda site: (_share(site), site.name))
    yield "<h2 id=sites>Sites</h2>"
    whole = sum(1 for site in order if site.answered == site.asked)
    yield paragraphs(
        f"{whole:,} of {len(order):,} sites answered each time they were asked. Who takes part is "
        "public; those that answered least come first.",
        "note",
    )
    yield table(SITE_HEAD, [_site(site, status.every) for site in order[:SITES]])
    if more := order[SITES:]:
        rows = [_site(site, status.every) for site in more]
        yield fold(counted(len(more), "more site"), [table(SITE_HEAD, rows)])


def _share(site: SiteHealth) -> float:
    return site.answered / site.asked if site.asked else 1.0


def _site(site: SiteHealth, every: str) -> tuple[str, ...]:
    return (
        clean(site.name),
        f"{site.answered:,} of {site.asked:,}",
        f"{100 * _share(site):.0f}%",
        "never" if site.last is None else period_name(site.last, every),
    )


def series_page(status: SeriesStatus) -> str:
    """The whole page, as HTML without scripts."""
    body = [
        *_faults(status),
        fact_list(_facts(status)),
        *(_released(status) if status.released else _empty(status)),
        *(budget_section(status) if status.points else ()),
        "<h2>Everything else</h2>",
        fold("Who signs, and what is compared", [fact_table(_identity(status))]),
    ]
    text = "\n".join(body)
    known = {f"#{name}": words for name, words in SECTIONS.items() if f"<h2 id={name}>" in text}
    return page(
        f"Drift of {clean(status.population)}",
        [text],
        headline=headline(status),
        top=top_links(known),
        style=SERIES_STYLE,
    )


def top_links(links: Mapping[str, str]) -> str:
    """A link that skips the others, and the others."""
    items = "".join(f'<li><a href="{escaped(to)}">{escaped(n)}</a></li>' for to, n in links.items())
    nav = f'<nav class="top" aria-label="Sections"><ul>{items}</ul></nav>\n' if items else ""
    return f'<a class="skip" href="#main">Skip to the content</a>\n{nav}'


def fact_list(facts: Mapping[str, str]) -> str:
    """Names and values side by side."""
    shown = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="facts">{shown}</dl>'


def _released(status: SeriesStatus) -> Iterator[str]:
    yield from _due(status)
    yield from drift_section(status)
    yield from heat_map(status)
    yield from sizes_section(status)
    yield from windows_section(status)
    yield from periods_section(status)
    yield from sites_section(status)


def _facts(status: SeriesStatus) -> dict[str, str]:
    missed = sum(1 for point in status.points if point.state == "missed")
    released = counted(len(status.released), status.every)
    if not status.points:
        return {"Population": status.population, "As of": date(status.at)}
    return {
        "Population": status.population,
        "Released": released + (f", {missed:,} missed" if missed else ""),
        "Last release": date(status.last_success) if status.last_success else "none yet",
        "Next": _next(status),
        "False alarms": f"at most {100 * status.false_alarm:.3g}% per year",
        "As of": date(status.at),
    }


def _next(status: SeriesStatus) -> str:
    due = sum(1 for point in status.points if point.state == "due")
    if due:
        return f"{counted(due, status.every)} due now"
    return f"after {date(status.next_due)}" if status.next_due else "the series is over"


def _faults(status: SeriesStatus) -> Iterator[str]:
    if not status.faults:
        return
    items = "".join(f"<li>{escaped(fault)}</li>" for fault in status.faults)
    follows = "What follows is what the history says, right or wrong. " if status.points else ""
    yield (
        '<div class="fault" role="alert"><p class="bad">What is wrong</p>'
        f"<ul>{items}</ul><p>{follows}Restore it from a backup, or ask the aggregator for its "
        "own.</p></div>"
    )


def _due(status: SeriesStatus) -> Iterator[str]:
    due = [point.number for point in status.points if point.state == "due"]
    if due:
        verb = "is" if len(due) == 1 else "are"
        words = (
            f"{counted(len(due), status.every)} {verb} over and not counted yet, from "
            f"{period_name(due[0], status.every)} on."
        )
        yield f"<p>{escaped(words)} <code>fedprikl monitor</code> counts what is due.</p>"


def _empty(status: SeriesStatus) -> Iterator[str]:
    """What will happen when; nothing is known of a history that cannot be read."""
    if not status.points:
        return
    yield "<h2>What happens next</h2>"
    yield from _due(status)
    ahead = next((point for point in status.points if point.state == "ahead"), None)
    if ahead is not None:
        name = period_name(ahead.number, status.every).capitalize()
        words = f"{name} begins on {day(ahead.start)} and ends on {day(ahead.end)}."
        yield (
            f"<p>{escaped(words)} After that, <code>fedprikl monitor</code> counts it and makes "
            "the first release. This page will then show whether there is drift, where, and since "
            "when.</p>"
        )
    elif all(point.state == "missed" for point in status.points):
        yield paragraphs("The series is over, and nothing was released.")
    missed = [point for point in status.points if point.state == "missed"]
    if missed:
        yield paragraphs(f"{counted(len(missed), status.every)} missed so far.")
        yield from periods_section(status)


def _identity(status: SeriesStatus) -> dict[str, str]:
    return {
        "population": status.population,
        "trusted": status.trust,
        "plan (fingerprint)": status.plan,
        "reference (fingerprint)": status.reference,
        "signer (public key)": status.signer or "not signed",
    }
