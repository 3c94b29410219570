"""The report of a release: one page a person understands."""

from collections.abc import Mapping, Sequence

from fedprikl.protocol import Plan, Release
from fedprikl.reporting.charts import drawn, release_chart
from fedprikl.reporting.facts import ReleaseFacts
from fedprikl.reporting.page import page, paragraphs, table

__all__ = ["release_page"]


def release_page(
    release: Release, plan: Plan, costs: Mapping[str, str], absent: Sequence[str] = ()
) -> str:
    """The whole report: answer, picture, what was asked, privacy, costs, parameters.

    All of it follows from the release, the plan and why clients took no part, which are public.
    """
    facts = ReleaseFacts.of(release)
    asked = {
        "clients invited": f"{facts.clients:,}",
        "clients in the sums": f"{facts.included:,}",
        "cohorts (secure sums)": f"{facts.cohorts}, of which {len(facts.dropped)} were dropped",
        "counts each client sent, masked": f"{facts.payload} and its number of records",
    }
    return page(
        "fedprikl report",
        [
            paragraphs(facts.sentence, "answer"),
            paragraphs(facts.verdict),
            paragraphs("\n".join([facts.counted, *absent])),
            drawn(
                lambda: release_chart(facts.value, facts.interval, plan.threshold),
                caption=_caption(facts),
            ),
            "<h2>What was asked of the clients</h2>",
            _facts(asked),
            "<h2>What is protected</h2>",
            paragraphs(facts.statement),
            *(["<h2>What it cost</h2>", _facts(costs)] if costs else []),
            "<h2>Parameters</h2>",
            _facts({n: "none" if v is None else str(v) for n, v in plan.to_dict().items()}),
        ],
    )


def _caption(facts: ReleaseFacts) -> str:
    bar = "" if facts.interval is None else " Bar: its 95% interval."
    return f"Dot: the estimate.{bar} 0 means no difference; noise may take the estimate below."


def _facts(facts: Mapping[str, str]) -> str:
    return table(("", ""), [list(fact) for fact in facts.items()], [False] * len(facts))
