"""The page of a series: whether there is drift and since when, where, how large, and who answers.

It shows a `SeriesStatus` and nothing else. Every period links to its own report.
"""

from collections.abc import Iterator, Mapping

from fedprikl.monitoring.status import SeriesStatus
from fedprikl.monitoring.words import counted, day, headline, period_name
from fedprikl.reporting.page import fact_table, fold, page, paragraphs
from fedprikl.reporting.series_drift import drift_section
from fedprikl.reporting.series_heat import heat_map
from fedprikl.reporting.series_sizes import sizes_section, windows_section
from fedprikl.reporting.series_style import SERIES_STYLE
from fedprikl.reporting.series_tables import budget_section, periods_section, sites_section
from fedprikl.reporting.texts import clean, date, escaped

__all__ = ["fact_list", "series_page", "top_links"]

SECTIONS = {
    "drift": "Drift",
    "columns": "Columns",
    "size": "Size",
    "windows": "Windows",
    "periods": "Reports",
    "sites": "Sites",
    "privacy": "Privacy",
}


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
