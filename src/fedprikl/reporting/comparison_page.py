"""The demo's report: the estimators side by side."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedprikl.errors import FedPriKLError, MissingExtraError
from fedprikl.estimation import ComparedEstimate
from fedprikl.reporting.page import page, paragraphs, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


BLUE, ORANGE, RED, GREY = "#1f6fb2", "#d97706", "#b91c1c", "#9ca3af"
HEAD = ("estimator", "counts", "value", "error", "typical", "claimed ε", "true ε")


def drawn(chart: Callable[[], str], *, caption: str) -> str:
    """A chart and its caption; where it cannot be drawn, a sentence that says why."""
    try:
        return f'<div class="paper">{chart()}</div>\n{paragraphs(caption, "note")}'
    except FedPriKLError as error:
        return paragraphs(f"There is no chart here. {error}", "note")


def estimates_chart(rows: Sequence[ComparedEstimate]) -> str:
    """Each method's estimate (dot) over its simulated repetitions (bars), and the truth (line)."""
    figure = _figure(0.55 * len(rows) + 1.1)
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        low, middle, high = np.quantile(row.repetitions, [0.05, 0.5, 0.95])
        axes.plot([low, high], [place, place], color=GREY, linewidth=7, solid_capstyle="butt")
        axes.plot([middle, middle], [place - 0.16, place + 0.16], color="#4b5563", linewidth=2)
        axes.plot(row.estimate.value, place, "o", color=BLUE, markersize=8)
    axes.axvline(rows[0].truth, color=RED, linestyle="--", linewidth=1.4)
    axes.annotate(
        f"truth {rows[0].truth:.3f}",
        (rows[0].truth, -0.62),
        color=RED,
        ha="center",
        va="bottom",
        annotation_clip=False,
    )
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.6)
    axes.set_xlabel(f"divergence in {rows[0].estimate.unit}")
    return _svg(figure)


def epsilon_chart(rows: Sequence[ComparedEstimate]) -> str:
    """Claimed against true epsilon of each private method, on a logarithmic axis."""
    private = [
        (row.name, row.estimate.privacy, claimed)
        for row in rows
        if (claimed := row.estimate.privacy.claimed_epsilon) is not None
    ]
    figure = _figure(0.55 * len(private) + 1.0)
    axes = figure.add_subplot()
    for place, (_, privacy, claimed) in enumerate(private):
        colour = BLUE if privacy.holds else ORANGE
        axes.barh(place, privacy.epsilon, color=colour, height=0.5)
        axes.annotate(f" {epsilon_text(privacy.epsilon)}", (privacy.epsilon, place), va="center")
        axes.plot([claimed, claimed], [place - 0.36, place + 0.36], color="black", linewidth=2)
    axes.set_xscale("log")
    axes.set_yticks(range(len(private)), [name for name, _, _ in private])
    axes.set_ylim(len(private) - 0.4, -0.6)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * 2)
    axes.set_xlabel("true epsilon (bar) and claimed epsilon (black mark), logarithmic")
    return _svg(figure)


def epsilon_text(epsilon: float) -> str:
    """Three digits for people: 0.78, 24.4, 1,410, infinite."""
    if not math.isfinite(epsilon):
        return "infinite"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:,.0f}"


def why_no_charts() -> str:
    """Why pages have no charts on this machine; empty if they have."""
    try:
        _figure(1.0)
    except MissingExtraError as error:
        return str(error)
    return ""


def _figure(height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            "Charts need matplotlib. Install it with: pip install 'fedprikl[report]'"
        ) from None
    return Figure(figsize=(8, height), layout="constrained")


def _svg(figure: "Figure") -> str:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "fedprikl"}):  # the same chart is the same text
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


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
