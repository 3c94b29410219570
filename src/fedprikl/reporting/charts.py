"""The charts of the comparison, drawn by matplotlib as SVG text, ready to stand inside a page."""

import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedprikl.errors import FedPriKLError, MissingExtraError
from fedprikl.estimation import ComparedEstimate
from fedprikl.reporting.page import paragraphs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "drawn",
    "epsilon_chart",
    "epsilon_text",
    "estimates_chart",
    "why_no_charts",
]

BLUE, ORANGE, RED, GREY = "#1f6fb2", "#d97706", "#b91c1c", "#9ca3af"


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
