"""The report of one period of a series: what it says beside the others, and its own release."""

from collections.abc import Iterator, Sequence

from fedprikl.monitoring.status import (
    ColumnPoint,
    PeriodPoint,
    SeriesStatus,
    Size,
    alarm_words,
    counted,
    day,
    period_name,
)
from fedprikl.protocol import Plan, Release
from fedprikl.protocol.answer import ColumnAnswer
from fedprikl.reporting.bar_chart import Bar, Row, bar_chart, cells_chart, column_story
from fedprikl.reporting.facts import privacy_sentences
from fedprikl.reporting.page import (
    clean,
    date,
    escaped,
    fold,
    listed,
    number,
    page,
    paragraphs,
    table,
)
from fedprikl.reporting.release_page import details
from fedprikl.reporting.series_charts import relative
from fedprikl.reporting.series_page import (
    SERIES_STYLE,
    fact_list,
    plainest_first,
    size_title,
    size_words,
    top_links,
)

CHARTS = 6  # columns with a chart that is not folded
HEAD = ("column", "alone", "together", "window", "size", "verdict")
KEY = (
    '<ul class="key"><li class="reference">reference</li><li class="now">now</li>{}'
    '<li class="whisker">95% interval</li></ul>'
)
MOVED = '<li class="moved">now, moved</li>'


def period_page(status: SeriesStatus, point: PeriodPoint, release: Release, plan: Plan) -> str:
    """The whole report. The verdict is the series': thresholds allow for all of its periods."""
    name = period_name(point.number, status.every)
    order = sorted(point.columns, key=lambda c: (c.speaks, relative(point, c) or 0.0), reverse=True)
    return page(
        f"{name.capitalize()} of {clean(status.population)}",
        [
            fact_list(_facts(point, release)),
            *_alarms(status, point),
            *_statistics(status, point, order),
            *_sizes(plainest_first(point.sizes)),
            *_cells(release, [column.name for column in order if column.speaks]),
            "<h2>Privacy</h2>",
            *(paragraphs(sentence) for sentence in privacy_sentences(release)),
            "<h2>Everything else</h2>",
            *details(release, plan, {}, (), judged=False),
        ],
        headline=f"{name.capitalize()}: {_verdict(point, order)}",
        top=top_links(_links(status, point)),
        style=SERIES_STYLE,
    )


def _links(status: SeriesStatus, point: PeriodPoint) -> dict[str, str]:
    """All periods, the one before and the one after that have a report."""
    numbers = [each.number for each in status.released]
    place = numbers.index(point.number)
    links = {"../index.html": f"All {status.every}s"}
    if place:
        before = numbers[place - 1]
        links[f"{before:04d}.html"] = f"← {period_name(before, status.every)}"
    if place + 1 < len(numbers):
        after = numbers[place + 1]
        links[f"{after:04d}.html"] = f"{period_name(after, status.every)} →"
    return links


def _verdict(point: PeriodPoint, order: Sequence[ColumnPoint]) -> str:
    if point.speaks is None:
        return "not judged."
    if not point.speaks:
        return "nothing is above its threshold."
    names = [clean(column.name) for column in order if column.speaks]
    if not names:
        return "the whole is above its threshold."
    verb = "is above its threshold" if len(names) == 1 else "are above their thresholds"
    return f"{listed(names)} {verb}."


def _facts(point: PeriodPoint, release: Release) -> dict[str, str]:
    return {
        "From": day(point.start),
        "Up to": f"before {day(point.end)}",
        "Released": date(release.released_at),
        "Clients": f"{sum(cohort.included for cohort in release.cohorts):,}",
        "Records": f"{release.records:,}",
    }


def _alarms(status: SeriesStatus, point: PeriodPoint) -> Iterator[str]:
    for alarm in status.alarms:
        if alarm.raised == point.number:
            words = alarm_words(alarm, status)
            yield f'<p class="answer">Alarm {alarm.number} was raised here. {escaped(words)}</p>'


def _statistics(
    status: SeriesStatus, point: PeriodPoint, order: Sequence[ColumnPoint]
) -> Iterator[str]:
    rows, marked = [], []
    if point.statistic is not None or point.cumulative is not None:
        spoke = _over(point.statistic, point.threshold) or _over(
            point.cumulative, point.cumulative_threshold
        )
        whole = _figures(point, point.statistic, point.cumulative, point.window, status.every)
        rows.append(("the whole", *whole, _size(point.sizes), _said(spoke)))
        marked.append(spoke)
    for column in order:
        found = _figures(point, column.statistic, column.cumulative, column.window, status.every)
        rows.append((clean(column.name), *found, _size(column.sizes), _said(column.speaks)))
        marked.append(column.speaks)
    if not rows:
        return
    yield "<h2>Statistics beside their thresholds</h2>"
    yield paragraphs(
        f"In standard deviations from no drift: of this {status.every} alone, and of the window "
        "that ends here and stands out most. The thresholds allow for every column, every window "
        f"and every {status.every} of the series.",
        "note",
    )
    yield table(HEAD, rows, marked)


def _figures(
    point: PeriodPoint, alone: float | None, together: float | None, window: int, every: str
) -> tuple[str, str, str]:
    return (
        _beside(alone, point.threshold),
        _beside(together, point.cumulative_threshold),
        f"{window} {every}{'' if window == 1 else 's'}" if window else "-",
    )


def _over(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit


def _beside(value: float | None, limit: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if limit is None else f"{value:.2f} / {limit:.2f}"


def _said(speaks: bool) -> str:
    return "above" if speaks else "below"


def _size(sizes: Sequence[Size]) -> str:
    found = next((size for size in sizes if size.divergence == "tv"), None)
    return "-" if found is None else f"tv {size_words(found)}"


def _sizes(sizes: Sequence[Size]) -> Iterator[str]:
    """How large the difference of the whole is, beside what no drift gives."""
    if not sizes:
        return
    yield "<h2>How large the difference is</h2>"
    yield '<div class="cards">'
    for size in sizes:
        rows = [
            Row(
                label="found in this population",
                bars=(
                    Bar(value=size.value, says=_short(size.value, size), interval=size.interval),
                ),
                strong=True,
            )
        ]
        if size.no_drift is not None:
            says = _short(size.no_drift, size)
            bar = Bar(value=size.no_drift, says=says, kind="reference")
            rows.append(Row(label="expected without drift", bars=(bar,)))
        chart = bar_chart(
            rows, title=f"Size, {clean(size.divergence)}", says=f"{size_words(size)}."
        )
        yield (
            f'<section class="card"><h3>{escaped(size_title(size.divergence))}</h3>'
            f"{paragraphs(size_words(size), 'note')}{chart}</section>"
        )
    yield "</div>"


def _short(value: float, size: Size) -> str:
    return f"{number(value, 4)} {clean(size.unit)}".rstrip()


def _cells(release: Release, spoken: Sequence[str]) -> Iterator[str]:
    """The cells of the columns that stand out; without any, nothing is shown unfolded."""
    known = {column.name: column for column in release.columns}
    found = [known[name] for name in spoken if name in known]
    if not found:
        return
    yield "<h2>What has moved</h2>"
    cards = [_card(column, release.records) for column in found]
    yield "\n".join(['<div class="cards">', *cards[:CHARTS], "</div>"])
    if more := cards[CHARTS:]:
        inner = "\n".join(['<div class="cards">', *more, "</div>"])
        yield fold(f"Charts of {counted(len(more), 'more column')}", [inner])


def _card(column: ColumnAnswer, records: int) -> str:
    moved = any(cell.moved for cell in column.cells)
    story = paragraphs(column_story(column)) if moved else ""
    return (
        f'<section class="card"><h3>{escaped(column.name)}</h3>{story}'
        f"{KEY.format(MOVED if moved else '')}"
        f"{cells_chart(column, records)}</section>"
    )
