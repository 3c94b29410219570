"""A release in a notebook: a piece of HTML that stands between other pieces."""

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest

from fedprikl.protocol import Plan, Release
from fedprikl.reporting.charts import answer_chart, drawn
from fedprikl.reporting.facts import ReleaseFacts
from fedprikl.reporting.page import paragraphs

__all__ = ["release_summary"]

BOX = "border-left: 5px solid #1f6fb2; padding: 0 1.1rem; max-width: 60rem"
CAPTION = "Dot: the estimate. Bar: its 95% interval."


def release_summary(release: Release, plan: Plan, more: Sequence[str] = ()) -> str:
    """Answer, verdict, chart, who was counted, what is protected; no script, nothing from outside.

    `more` are further lines for people, such as why clients took no part.
    """
    facts = ReleaseFacts.of(release, more)
    parts = [
        f'<div style="{BOX}">',
        f'<div style="font-weight: bold">{paragraphs(facts.drift)}</div>',
        paragraphs("\n".join(facts.answers)),
        *(
            drawn(partial(answer_chart, answer, threshold), caption=CAPTION)
            for answer, threshold in zip_longest(release.answers, (plan.threshold,))
        ),
        paragraphs(facts.counted),
        f"<details><summary>What is protected</summary>{paragraphs(facts.privacy)}</details>",
        "</div>",
    ]
    return "\n".join(parts)
