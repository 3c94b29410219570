"""A release as a matplotlib figure: how far each column is from the reference, and what shifted."""

from typing import TYPE_CHECKING, Any

from fedprikl.documents import clean
from fedprikl.libraries import matplotlib_pyplot
from fedprikl.protocol import Answer, Release
from fedprikl.protocol.release import ColumnAnswer
from fedprikl.reporting import facts
from fedprikl.reporting.values import ColumnValues, Quality

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS, CHARTS, CELLS = 15, 3, 10  # that are drawn
NAME = 28  # letters
COLOURS = {"drift": "#b4510a", "cannot tell": "#7b4fa6"}
NOW, REFERENCE, INK = "#2468b0", "#858f9c", "#1b2530"
WIDE, ROW, MARGIN = 7.0, 0.34, 1.1  # inches
PAIR = 1.3  # rows that the two bars of a cell take


def release_figure(release: Release, values: ColumnValues | None = None) -> "Figure":
    """The columns by how far they are from the reference; and the cells of those that drifted most,
    with their new values, which only `values` knows.

    A bar is an estimate with its 95% interval, orange where drift was found; the black tick is what
    to expect without drift.
    Without columns, each divergence of the whole has a bar. Needs the extra `report`.
    """
    pyplot = matplotlib_pyplot()  # a notebook shows figures once it is imported
    order = facts.ranked(release.columns)[:COLUMNS]
    every = [column for column in facts.ranked(release.columns) if column.drifted]
    drifted, others = every[:CHARTS], every[CHARTS:]
    new = [
        None if values is None or not facts.shows_new(c, release.records) else values.new(c)
        for c in drifted
    ]
    cells = [
        PAIR * (min(len(c.cells), CELLS) + (n is not None))
        for c, n in zip(drifted, new, strict=True)
    ]
    rows = [len(order) or len(release.answers), *cells]
    # A figure of its own: pyplot would keep it, and show it once more.
    figure: Figure = pyplot.matplotlib.figure.Figure(
        figsize=(WIDE, sum(ROW * max(n, 2) + MARGIN for n in rows)), layout="constrained"
    )
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=[max(n, 2) for n in rows])
    first, *below = axes[:, 0]
    _ranking(first, release, order)
    for each, column, found in zip(below, drifted, new, strict=True):
        _cells(each, column, found)
    if others:
        names = facts.listed([_text(column.name) for column in others])
        figure.supxlabel(f"Also drifted, without a chart: {names}", fontsize=9)
    figure.suptitle("\n".join(facts.wrapped(facts.release_headline(release), 80, 3)), fontsize=11)
    return figure


def _ranking(axes: Any, release: Release, columns: list[ColumnAnswer]) -> None:
    known: list[tuple[str, Answer | None, str]] = [
        (c.name, c.answer("tv"), COLOURS.get(c.outcome or "", NOW)) for c in columns
    ]
    if not known:
        colour = COLOURS.get(release.outcome or "", NOW)
        known = [(answer.divergence, answer, colour) for answer in release.answers]
    for place, (_, answer, colour) in enumerate(known):
        if answer is not None:
            axes.barh(place, answer.value, color=colour, height=0.55)
            _whisker(axes, place, answer.interval)
            if answer.no_drift is not None:
                axes.plot([answer.no_drift] * 2, [place - 0.4, place + 0.4], color=INK, lw=2)
    _labels(axes, [name for name, _, _ in known])
    label = "total variation; orange: drifted; tick: expected without drift"
    axes.set_xlabel(label if columns else "divergence")


def _cells(axes: Any, column: ColumnAnswer, new: Quality | None) -> None:
    furthest = sorted(column.cells, key=facts.difference, reverse=True)[:CELLS]
    shown: list[tuple[str, float, float, tuple[float, float], str]] = [
        (cell.label, cell.reference, cell.share, cell.interval, cell.shifted)
        for cell in column.cells
        if cell in furthest
    ]
    if new is not None:
        shown.append((new.what, new.before, new.now, new.interval, new.change))
    for place, (_, before, now, interval, shifted) in enumerate(shown):
        axes.barh(place - 0.2, before, color=REFERENCE, height=0.36)
        axes.barh(place + 0.2, now, color=COLOURS["drift"] if shifted else NOW, height=0.36)
        _whisker(axes, place + 0.2, interval)
    _labels(axes, [label for label, *_ in shown])
    axes.set_title(_text(column.name), fontsize=10, loc="left")
    axes.set_xlabel("share of all records: reference (grey) and now (orange: shifted)")


def _whisker(axes: Any, place: float, interval: tuple[float, float] | None) -> None:
    if interval is not None:
        axes.plot(interval, [place, place], color=INK, lw=1.2, marker="|", markersize=6)


def _labels(axes: Any, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [_text(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlim(left=0)


def _text(name: str) -> str:
    """As it is: a dollar sign would begin a formula."""
    return facts.shortened(clean(name), NAME).replace("$", r"\$")
