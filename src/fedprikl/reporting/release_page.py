"""The report of a release: one page for people who know neither privacy nor statistics."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedprikl.monitoring.status import counted
from fedprikl.protocol import Answer, Plan, Release
from fedprikl.protocol.answer import ColumnAnswer
from fedprikl.reporting.bar_chart import cells_chart, column_story, ranking_chart, size_chart
from fedprikl.reporting.facts import (
    HEAD,
    NOTE,
    UNRELATED,
    ReleaseFacts,
    facts_of,
    headline,
    meaning,
    privacy_sentences,
    ranked,
    takes_unrelated,
)
from fedprikl.reporting.page import (
    clean,
    date,
    escaped,
    fact_table,
    fold,
    page,
    paragraphs,
    percent,
    table,
)

CELL_HEAD = ("category", "reference", "now", "95% interval", "count, with noise", "moved")
WITNESS_HEAD = ("about", "statistic", "value", "threshold", "above it")
RANKED = 15  # columns of the first chart
CHARTS = 6  # columns with a chart that is not folded
TITLES = {
    "kl": "Kullback-Leibler divergence (kl)",
    "reverse_kl": "Reverse Kullback-Leibler divergence (reverse_kl)",
    "js": "Jensen-Shannon divergence (js)",
    "psi": "Population stability index (psi)",
    "tv": "Total variation (tv)",
    "hellinger": "Hellinger distance, squared (hellinger)",
}
BOX = "border-left: 5px solid #3f83c9; padding: 0 1.1rem; max-width: 60rem"
LARGE = "font-size: 1.3em; font-weight: 600"
COLUMNS, SUMMARY_CHARTS = 15, 3  # shown in a notebook; the report has all


def details(
    release: Release,
    plan: Plan,
    costs: Mapping[str, str],
    absent: Sequence[str],
    *,
    judged: bool = True,
) -> Iterator[str]:
    """One fold after the other. `judged`: by itself, and not as one of a series."""
    facts = ReleaseFacts.of(release, absent)
    order = ranked(release.columns)
    if judged:
        words = (facts.drift, *facts.answers)
        yield fold("The verdict in numbers", [*map(paragraphs, words), _witnesses(release)])
    if judged and order:
        rows = [each.row for each in facts_of(order)]
        yield fold("Columns in numbers", [table(HEAD, rows, look="last"), paragraphs(NOTE, "note")])
    if order:
        yield fold("Every category of every column", [*map(_cells, order)], printed=False)
    yield fold("Who was counted", [paragraphs(facts.counted), fact_table(_asked(release))])
    yield fold("What is protected, in full", [paragraphs(facts.privacy)])
    if costs:
        yield fold("What it cost", [fact_table(costs)])
    yield fold("Parameters of the plan", [fact_table(_parameters(plan))], printed=False)
    yield fold("Signature", [fact_table(_signature(release))], printed=False)


def _witnesses(release: Release) -> str:
    """Every statistic that a verdict rests on."""
    spoken = (
        [] if release.verdict is None else [("the whole", w) for w in release.verdict.witnesses]
    )
    spoken += [(column.name, w) for column in ranked(release.columns) for w in column.witnesses]
    if not spoken:
        return ""
    rows = [
        (
            about,
            w.name,
            f"{w.statistic:.4g} {w.unit}",
            f"{w.threshold:.4g} {w.unit}",
            _yes(w.speaks),
        )
        for about, w in spoken
    ]
    return table(WITNESS_HEAD, rows, caption="Statistics beside their thresholds")


def _yes(speaks: bool) -> str:
    return "yes" if speaks else "no"


def _cells(column: ColumnAnswer) -> str:
    """All cells of a column, and how far it is from the reference in every divergence."""
    rows = [
        (
            cell.label,
            percent(cell.reference),
            percent(cell.share),
            " to ".join(map(percent, cell.interval)),
            _count(cell.count),
            {"up": "more", "down": "fewer", "": "cannot be told"}[cell.moved],
        )
        for cell in column.cells
    ]
    before = percent(max(0.0, 1 - sum(cell.reference for cell in column.cells)))
    rows.append(("in no category above", before, "", "", _count(column.rest), ""))
    sizes = "".join(
        f" {clean(each.target)} = {each.value:.4g} {clean(each.unit)}".rstrip() + "."
        for each in column.answers
    )
    return table(CELL_HEAD, rows, caption=f"{clean(column.name)}.{sizes}")


def _count(count: float) -> str:
    """A noisy count: noise is of whole numbers or of any."""
    return f"{count:,.{0 if count == round(count) else 1}f}" if abs(count) < 1e9 else f"{count:.6g}"


def _asked(release: Release) -> dict[str, str]:
    cohorts = release.cohorts
    dropped = sum(1 for cohort in cohorts if cohort.reason)
    return {
        "clients invited": f"{sum(cohort.clients for cohort in cohorts):,}",
        "clients in the sums": f"{sum(cohort.included for cohort in cohorts):,}",
        "cohorts (secure sums)": f"{len(cohorts)}, of which {dropped} were dropped",
        "counts each client sent, masked": f"{release.payload} and its number of records",
        "records of these clients": f"{release.records:,}",
    }


def _parameters(plan: Plan) -> dict[str, str]:
    """Each field of the plan and of its questions."""
    fields = plan.to_dict()
    for place, question in enumerate(fields.pop("questions"), start=1):
        which = "question" if len(plan.questions) == 1 else f"question {place}"
        fields |= {f"{which}: {name}": value for name, value in question.items()}
    for name, value in (fields.pop("columns", None) or {}).items():
        fields[f"columns: {name}"] = value
    return {name: _shown(value) for name, value in fields.items()}


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return (
            ", ".join(" and ".join(v) if isinstance(v, list | tuple) else str(v) for v in value)
            or "all"
        )
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


def _key(names: Mapping[str, str]) -> str:
    """What the colours and lines of a chart mean."""
    items = "".join(f'<li class="{style}">{escaped(name)}</li>' for style, name in names.items())
    return f'<ul class="key">{items}</ul>'


def release_summary(release: Release, plan: Plan, more: Sequence[str] = ()) -> str:
    """Verdict, columns, charts, answers, who was counted, what is protected.

    No script, no style sheet, nothing from outside. `more` are further lines for people, such as
    why clients took no part.
    """
    facts = ReleaseFacts.of(release, more)
    return "\n".join(
        [
            f'<div style="{BOX}">',
            f'<p style="{LARGE}">{escaped(facts.headline)}</p>',
            *_columns(release),
            *(paragraphs(said) for said in (facts.drift, *facts.answers)),
            *([] if release.columns else _summary_sizes(release, plan)),
            paragraphs(facts.counted),
            f"<details><summary>What is protected</summary>{paragraphs(facts.privacy)}</details>",
            "</div>",
        ]
    )


def _columns(release: Release) -> list[str]:
    order = ranked(release.columns)
    if not order:
        return []
    drifted = [column for column in order if column.drifted][:SUMMARY_CHARTS]
    left = len(order) - COLUMNS
    return [
        table(HEAD, [each.row for each in facts_of(order[:COLUMNS])]),
        *([paragraphs(f"The report has {counted(left, 'more column')}.")] if left > 0 else []),
        paragraphs("tv of each column, with 95% intervals"),
        _chart(ranking_chart(order[:COLUMNS])),
        *(
            f"<p><strong>{escaped(column.name)}</strong>: the reference (grey) and now, with 95% "
            f"intervals</p>{_chart(cells_chart(column, release.records))}"
            for column in drifted
        ),
    ]


def _summary_sizes(release: Release, plan: Plan) -> list[str]:
    marks = [plan.threshold] + [None] * (len(release.answers) - 1)  # a plan has one
    verdict = release.verdict
    return [
        _chart(
            size_chart(
                answer,
                records=release.records,
                witness=None if verdict is None else verdict.witness(answer.divergence),
                mark=mark,
            )
        )
        for answer, mark in zip(release.answers, marks, strict=True)
    ]


def _chart(chart: str) -> str:
    return f'<div style="max-width: 36rem">{chart}</div>'
