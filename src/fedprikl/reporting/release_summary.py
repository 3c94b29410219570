"""A release in a notebook: a piece of HTML that stands between other pieces."""

from collections.abc import Sequence

from fedprikl.protocol import Plan, Release
from fedprikl.reporting.charts import drawn, release_chart
from fedprikl.reporting.facts import ReleaseFacts
from fedprikl.reporting.page import paragraphs

__all__ = ["release_summary"]

BOX = "border-left: 5px solid #1f6fb2; padding: 0 1.1rem; max-width: 60rem"


def release_summary(release: Release, plan: Plan, more: Sequence[str] = ()) -> str:
    """Answer, verdict, chart, who was counted, what is protected; no script, nothing from outside.

    `more` are further lines for people, such as why clients took no part.
    """
    facts = ReleaseFacts.of(release)
    parts = [
        f'<div style="{BOX}">',
        f"<strong>{paragraphs(facts.sentence)}</strong>",
        paragraphs(facts.verdict),
        drawn(
            lambda: release_chart(facts.value, facts.interval, plan.threshold),
            caption="Dot: the estimate. Bar: its 95% interval.",
        ),
        paragraphs("\n".join([facts.counted, *more])),
        f"<details><summary>What is protected</summary>{paragraphs(facts.statement)}</details>",
        "</div>",
    ]
    return "\n".join(parts)
