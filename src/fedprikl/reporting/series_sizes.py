"""How large the difference is, over time and over longer windows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedprikl.monitoring.status import PeriodPoint, SeriesStatus, Size, WindowFacts
from fedprikl.monitoring.words import counted
from fedprikl.reporting.page import fold, paragraphs, table
from fedprikl.reporting.series_frame import Frame
from fedprikl.reporting.series_heat import relative
from fedprikl.reporting.series_timeline import Curve, timeline_chart
from fedprikl.reporting.texts import clean, decimals, escaped, number

__all__ = ["plainest_first", "size_title", "size_words", "sizes_section", "windows_section"]

TITLES = {"kl": "Kullback-Leibler divergence", "tv": "Total variation", "js": "Jensen-Shannon"}
COLUMNS = 3  # whose size is shown where the whole is not asked
TIPS = 300  # periods: beyond, only the first chart of the page can be pointed at


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
