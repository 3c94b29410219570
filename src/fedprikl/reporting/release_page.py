"""The report of a release: one page for people who know neither privacy nor statistics."""

from collections.abc import Mapping, Sequence

from fedprikl.monitoring.words import counted
from fedprikl.protocol import Answer, Plan, Release
from fedprikl.protocol.column_answer import ColumnAnswer
from fedprikl.reporting.column_charts import cells_chart, column_story, ranking_chart
from fedprikl.reporting.column_facts import UNRELATED, takes_unrelated
from fedprikl.reporting.headline import headline, meaning, ranked
from fedprikl.reporting.page import fold, page, paragraphs
from fedprikl.reporting.privacy_words import privacy_sentences
from fedprikl.reporting.release_details import details
from fedprikl.reporting.size_chart import size_chart
from fedprikl.reporting.texts import clean, date, escaped

__all__ = ["release_page"]

RANKED = 15  # columns of the first chart
CHARTS = 6  # columns with a chart that is not folded


def release_page(
    release: Release, plan: Plan, costs: Mapping[str, str], absent: Sequence[str] = ()
) -> str:
    """The whole report: the verdict, what moved, how large it is, what is protected, and the rest.

    All of it follows from the release, the plan and why clients took no part, which are public.
    """
    return page(
        f"Drift report: {clean(release.population)}",
        [
            *_opening(release, absent),
            *_moved(release, plan),
            *_ranking(release),
            *_sizes(release, plan),
            "<h2>Privacy</h2>",
            *(paragraphs(sentence) for sentence in privacy_sentences(release)),
            "<h2>Everything else</h2>",
            *details(release, plan, costs, absent),
        ],
        headline=headline(release),
    )


def _opening(release: Release, absent: Sequence[str]) -> list[str]:
    """When, whose, how many; what the verdict means; what to know besides."""
    included = sum(cohort.included for cohort in release.cohorts)
    invited = sum(cohort.clients for cohort in release.cohorts)
    facts = {
        "Date": date(release.released_at),
        "Population": release.population,
        "Clients": f"{included:,}" if included == invited else f"{included:,} of {invited:,}",
        "Records": f"{release.records:,}",
    }
    shown = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>"
        for name, value in facts.items()
    )
    return [
        f'<dl class="facts">{shown}</dl>',
        paragraphs(meaning(release)),
        paragraphs("\n".join(absent), "note"),
    ]


def _moved(release: Release, plan: Plan) -> list[str]:
    """A chart for each column that has drifted."""
    drifted = [column for column in ranked(release.columns) if column.drifted]
    if not drifted:
        return []
    cards = [_card(column, release.records) for column in drifted]
    first, more = cards[:CHARTS], cards[CHARTS:]
    folded = (
        [fold(f"Charts of {counted(len(more), 'more column')}", [_cards(more)])] if more else []
    )
    return ["<h2>What has moved</h2>", paragraphs(_marked(plan), "note"), _cards(first), *folded]


def _marked(plan: Plan) -> str:
    asked = plan.columns
    rate = "few marks"
    if asked is not None:
        rate = f"at most {100 * asked.false_discovery:.3g}% of all marks"
    return (
        "Each bar is a share of all records. Categories with an arrow have clearly changed "
        f"({rate} are expected to be there by chance). Without an arrow, a change cannot be told "
        "from chance and noise."
    )


def _cards(cards: Sequence[str]) -> str:
    return "\n".join(['<div class="cards">', *cards, "</div>"])


def _card(column: ColumnAnswer, records: int) -> str:
    """One column: its name, what moved, and the chart with its key."""
    key = {"reference": "reference", "now": "now", "moved": "now, moved", "whisker": "95% interval"}
    if not any(cell.moved for cell in column.cells):
        del key["moved"]
    return "\n".join(
        [
            f'<section class="card"><h3>{escaped(column.name)}</h3>',
            paragraphs(column_story(column)),
            _key(key),
            cells_chart(column, records),
            "</section>",
        ]
    )


def _ranking(release: Release) -> list[str]:
    """All columns, those that have drifted first."""
    columns = ranked(release.columns)
    if not columns:
        return []
    key = {"moved": "moved", "now": "not moved", "whisker": "95% interval"}
    if not any(column.drifted for column in columns):
        del key["moved"]
    more = columns[RANKED:]
    return [
        "<h2>All columns</h2>",
        paragraphs(
            "How far each column is from the reference: the share of all records that would have "
            "to change to look like it (total variation; 0 is none, 1 is all). Chance and noise "
            "keep it above 0 without any drift. The verdicts rest on other numbers: see “The "
            "verdict in numbers” below.",
            "note",
        ),
        *([paragraphs(UNRELATED, "note")] if any(map(takes_unrelated, columns)) else []),
        f'<div class="card">{_key(key)}\n{ranking_chart(columns[:RANKED])}</div>',
        *([fold(counted(len(more), "more column"), [ranking_chart(more)])] if more else []),
    ]


def _sizes(release: Release, plan: Plan) -> list[str]:
    """How large the drift of the whole is, on scales with a meaning."""
    if not release.answers:
        return []
    marks = [plan.threshold] + [None] * (len(release.answers) - 1)  # a plan has one
    cards = []
    asked = sorted(zip(release.answers, marks, strict=True), key=lambda pair: _plainness(pair[0]))
    for answer, mark in asked:
        witness = None if release.verdict is None else release.verdict.witness(answer.divergence)
        chart = size_chart(answer, records=release.records, witness=witness, mark=mark)
        cards.append(
            f'<section class="card"><h3>{escaped(_title(answer.divergence))}</h3>\n'
            f"{chart}</section>"
        )
    note = "All columns together." if release.columns else "All that is compared, together."
    return [
        "<h2>How large the difference is</h2>",
        paragraphs(
            f"{note} Each scale measures the same difference in its own way: 0 is no difference. "
            "Compare the first bar with the others. The whisker is its 95% interval.",
            "note",
        ),
        _cards(cards),
    ]


def _plainness(answer: Answer) -> bool:
    """Total variation comes first: it is a share of all records."""
    return answer.divergence != "tv"


def _title(divergence: str) -> str:
    return TITLES.get(divergence, divergence)


TITLES = {
    "kl": "Kullback-Leibler divergence (kl)",
    "reverse_kl": "Reverse Kullback-Leibler divergence (reverse_kl)",
    "js": "Jensen-Shannon divergence (js)",
    "psi": "Population stability index (psi)",
    "tv": "Total variation (tv)",
    "hellinger": "Hellinger distance, squared (hellinger)",
}


def _key(names: Mapping[str, str]) -> str:
    """What the colours and lines of a chart mean."""
    items = "".join(f'<li class="{style}">{escaped(name)}</li>' for style, name in names.items())
    return f'<ul class="key">{items}</ul>'
