"""A release in a notebook: a piece of HTML that stands between other pieces."""

from collections.abc import Sequence

from fedprikl.monitoring.words import counted
from fedprikl.protocol import Plan, Release
from fedprikl.reporting.column_charts import cells_chart, ranking_chart
from fedprikl.reporting.column_facts import HEAD, facts_of
from fedprikl.reporting.facts import ReleaseFacts
from fedprikl.reporting.headline import ranked
from fedprikl.reporting.page import paragraphs, table
from fedprikl.reporting.size_chart import size_chart
from fedprikl.reporting.texts import escaped

__all__ = ["release_summary"]

BOX = "border-left: 5px solid #3f83c9; padding: 0 1.1rem; max-width: 60rem"
LARGE = "font-size: 1.3em; font-weight: 600"
COLUMNS, CHARTS = 15, 3  # shown in a notebook; the report has all


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
            *([] if release.columns else _sizes(release, plan)),
            paragraphs(facts.counted),
            f"<details><summary>What is protected</summary>{paragraphs(facts.privacy)}</details>",
            "</div>",
        ]
    )


def _columns(release: Release) -> list[str]:
    order = ranked(release.columns)
    if not order:
        return []
    drifted = [column for column in order if column.drifted][:CHARTS]
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


def _sizes(release: Release, plan: Plan) -> list[str]:
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
