"""The report of a release: one page a person understands."""

from collections.abc import Mapping
from typing import Any

from fedprikl.reporting.charts import release_chart
from fedprikl.reporting.page import page, paragraphs, table

__all__ = ["release_page", "release_sentence"]


def release_sentence(content: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    limits = content["interval"]
    between = "" if limits is None else f" (95% interval: {limits[0]:.3f} to {limits[1]:.3f})"
    return (
        f"The records of {content['population']} differ from the reference by "
        f"{content['target']} = {content['value']:.3f} nats{between}."
    )


def release_page(
    content: Mapping[str, Any], plan: Mapping[str, Any], costs: Mapping[str, str]
) -> str:
    """The whole report: answer, picture, what was asked, privacy, costs, parameters."""
    cohorts = content["cohorts"]
    invited, included = (sum(c[name] for c in cohorts) for name in ("clients", "included"))
    dropped = [c["dropped_because"] for c in cohorts if c["dropped_because"]]
    asked = {
        "clients invited": f"{invited:,}",
        "clients in the sums": f"{included:,}",
        "cohorts (secure sums)": f"{len(cohorts)}, of which {len(dropped)} were dropped",
        "counts each client sent, masked": f"{content['payload_counts']} and its number of records",
    }
    return page(
        "fedprikl report",
        [
            paragraphs(release_sentence(content), "answer"),
            *([] if content["verdict"] is None else [paragraphs(content["verdict"]["statement"])]),
            release_chart(content["value"], content["interval"], plan["threshold"]),
            paragraphs(_caption(content), "note"),
            "<h2>What was asked of the clients</h2>",
            _facts(asked),
            *(paragraphs(f"Dropped: {reason}", "note") for reason in dropped),
            "<h2>What is protected</h2>",
            paragraphs(content["privacy"]["statement"]),
            "<h2>What it cost</h2>",
            _facts(costs),
            "<h2>Parameters</h2>",
            _facts({name: "none" if value is None else str(value) for name, value in plan.items()}),
        ],
    )


def _caption(content: Mapping[str, Any]) -> str:
    bar = "" if content["interval"] is None else " Bar: its 95% interval."
    return f"Dot: the estimate.{bar} 0 means no difference; noise may take the estimate below."


def _facts(facts: Mapping[str, str]) -> str:
    return table(("", ""), [list(fact) for fact in facts.items()], [False] * len(facts))
