"""The report of a release: one page a person understands."""

from collections.abc import Mapping, Sequence

from fedprikl.protocol import Answer, Plan, Release
from fedprikl.reporting.charts import answer_chart, drawn
from fedprikl.reporting.facts import ReleaseFacts
from fedprikl.reporting.page import page, paragraphs, table

__all__ = ["release_page"]


def release_page(
    release: Release, plan: Plan, costs: Mapping[str, str], absent: Sequence[str] = ()
) -> str:
    """The whole report: verdict, answers, pictures, what was asked, privacy, costs, parameters.

    All of it follows from the release, the plan and why clients took no part, which are public.
    """
    facts = ReleaseFacts.of(release, absent)
    thresholds = [plan.threshold] + [None] * (len(release.answers) - 1)  # a plan has one
    return page(
        "fedprikl report",
        [
            paragraphs(facts.drift, "answer"),
            *(
                part
                for said, answer, threshold in zip(
                    facts.answers, release.answers, thresholds, strict=True
                )
                for part in (paragraphs(said), _picture(answer, threshold))
            ),
            paragraphs(facts.counted),
            "<h2>What was asked of the clients</h2>",
            _facts(_asked(release)),
            "<h2>What is protected</h2>",
            paragraphs(facts.privacy),
            *(["<h2>What it cost</h2>", _facts(costs)] if costs else []),
            "<h2>Parameters</h2>",
            _facts(_parameters(plan)),
        ],
    )


def _picture(answer: Answer, threshold: float | None) -> str:
    unit = f", in {answer.unit}" if answer.unit else ""
    bar = "" if answer.interval is None else " Bar: its 95% interval."
    caption = (
        f"Dot: the estimate{unit}.{bar} 0 means no difference; noise may take the estimate below."
    )
    return drawn(lambda: answer_chart(answer, threshold), caption=caption)


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
    for number, question in enumerate(fields.pop("questions"), start=1):
        which = "question" if len(plan.questions) == 1 else f"question {number}"
        fields |= {f"{which}: {name}": value for name, value in question.items()}
    return {name: _shown(value) for name, value in fields.items()}


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "all"
    return "none" if value is None else str(value)


def _facts(facts: Mapping[str, str]) -> str:
    return table(("", ""), [list(fact) for fact in facts.items()], [False] * len(facts))
