"""Tables of a series: its periods with links to their reports, its budget, its sites."""

from collections.abc import Iterator, Sequence

from fedprikl.monitoring.status import PeriodPoint, SeriesStatus, SiteHealth
from fedprikl.monitoring.words import counted, period_name, short_day
from fedprikl.reporting.bar_chart import Bar, Row, bar_chart
from fedprikl.reporting.page import fold, paragraphs, table
from fedprikl.reporting.series_drift import largest
from fedprikl.reporting.series_frame import file_of
from fedprikl.reporting.series_sizes import plainest_first, size_words
from fedprikl.reporting.texts import clean, escaped

__all__ = ["budget_section", "periods_section", "sites_section"]

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
