"""The demo's report: the estimators side by side."""

from collections.abc import Mapping, Sequence

from fedprikl.estimation import ComparedEstimate
from fedprikl.reporting.charts import drawn, epsilon_chart, epsilon_text, estimates_chart
from fedprikl.reporting.page import page, paragraphs, table

__all__ = ["HEAD", "comparison_page", "comparison_row"]

HEAD = ("estimator", "counts", "value", "error", "typical", "claimed ε", "true ε")


def comparison_row(row: ComparedEstimate) -> tuple[str, ...]:
    """One line of the table, as texts."""
    privacy = row.estimate.privacy
    claimed = "none" if privacy.claimed_epsilon is None else f"{privacy.claimed_epsilon:g}"
    return (
        row.name,
        str(row.estimate.payload),
        f"{row.estimate.value:.3f}",
        f"{row.error:.3f}",
        f"{row.typical_error:.3f}",
        claimed,
        epsilon_text(privacy.epsilon),
    )


def comparison_page(
    rows: Sequence[ComparedEstimate], *, facts: Mapping[str, str], premise_epsilon: float
) -> str:
    """The whole report. The last row is the estimate that counts."""
    ours, truth = rows[-1], rows[-1].truth
    broken = [not row.estimate.privacy.holds for row in rows]
    answer = (
        f"{ours.estimate.target} is about {ours.estimate.value:.3f} {ours.estimate.unit} "
        f"(truth: {truth:.3f}), "
        f"released with epsilon {ours.estimate.privacy.claimed_epsilon:g}."
    )
    note = (
        "Counts: sent by each client. Typical: mean absolute error over simulated repetitions. "
        "The paper's noise buys "
        f"epsilon {premise_epsilon:.3g} even where every cell is counted at least twice, as the "
        "paper assumes; the table shows what it buys on these data, where many cells are rarer. "
        "The baseline is the paper's: lambda = -1, and frequencies floored at 0.0001."
    )
    return page(
        "fedprikl demo --paper",
        [
            paragraphs(answer, "answer"),
            "<h2>The estimates</h2>",
            drawn(
                lambda: estimates_chart(rows),
                caption="Dot: the estimate of this run. Bar: 90% of simulated repetitions, with "
                "their median. Distance from the dashed line is error.",
            ),
            table(HEAD, [comparison_row(row) for row in rows], broken),
            paragraphs(note, "note"),
            "<h2>The privacy they claim, and the privacy they give</h2>",
            drawn(lambda: epsilon_chart(rows), caption="Orange: the claim is false."),
            "<h2>Privacy statement of the last estimate</h2>",
            paragraphs(str(ours.estimate.privacy)),
            "<h2>What was asked, and of whom</h2>",
            table(
                ("parameter", "value"), [list(fact) for fact in facts.items()], [False] * len(facts)
            ),
        ],
    )
