"""How results are drawn: the paper's estimators alone, and once more with ours over them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper.jobs import Document

STYLE: dict[str, dict[str, Any]] = {
    "no privacy": {"color": "#4b5563", "marker": "o"},
    "baseline": {"color": "#d97706", "marker": "s"},
    "FedPriKL": {"color": "#b91c1c", "marker": "^"},
    "baseline, exact noise": {"color": "#d97706", "marker": "s", "linestyle": ":"},
    "FedPriKL, exact noise": {"color": "#b91c1c", "marker": "^", "linestyle": ":"},
    "ours, 10 counts": {"color": "#1f6fb2", "marker": "D"},
    "ours": {"color": "#1f6fb2", "marker": "D"},
    "ours, up to 250 counts": {"color": "#0f766e", "marker": "v"},
}
PAPER = ("no privacy", "baseline", "FedPriKL")
NAMES = {"baseline": "baseline, paper's noise", "FedPriKL": "FedPriKL, paper's noise"}
RED = "#b91c1c"
CEILING = 1.6  # nats; larger errors leave the paper's figures at the top
mpl.rcParams["svg.hashsalt"] = "fedprikl"  # the same numbers give the same file
mpl.rcParams["svg.fonttype"] = "none"


def lambda_figure(panel_name: str, subtitle: str) -> Callable[[Document, Path], None]:
    """Error against lambda, a panel per epsilon or batch size."""

    def draw(document: Document, folder: Path) -> None:
        for ours in (False, True):
            figure, panels = new_figure(document, f"Absolute error against λ; {subtitle}", ours)
            for axes, (panel, rows) in panels:
                draw_lines(axes, rows, ours)
                axes.set_xlabel("λ")
                axes.set_title(
                    panel_name.format(panel) * ("C_t" in panel_name) + truth_of(rows, 0.0)
                )
            finish(figure, document, folder, ours)

    return draw


def points_figure(document: Document, folder: Path) -> None:
    """Error against m, a panel per epsilon."""
    for ours in (False, True):
        figure, panels = new_figure(document, "Absolute error against m; T = 20 batches", ours)
        for axes, (_, rows) in panels:
            draw_lines(axes, rows, ours)
            axes.set_xscale("log")
            ticks = sorted({row["x"] for row in rows})
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
            axes.set_xlabel("m, points per batch = counts per client")
            axes.set_title(truth_of(rows, 10))
        finish(figure, document, folder, ours)


def pairs_figure(document: Document, folder: Path) -> None:
    """Error against epsilon, a panel per pair; the upper axis shows FedPriKL's true epsilon."""
    for ours in (False, True):
        title = "Absolute error against ε; T = 20 batches, m = 10 points"
        figure, panels = new_figure(document, title, ours)
        for axes, (panel, rows) in panels:
            draw_lines(axes, rows, ours)
            axes.set_xlabel("claimed ε (true for exact noise)")
            axes.set_title(f"KL({panel}) = {document['truths'][panel]:.3f}", pad=46)
            ticks = [0.1, 0.5, 1.0, 1.5]
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            at = {row["x"]: row for row in rows if row["line"] == "FedPriKL"}
            true = {x: row["true_epsilon_on_the_papers_premises"] for x, row in at.items()}
            top = axes.secondary_xaxis("top")
            top.set_xticks(ticks, [f"{true[t]:.3g}\n({at[t]['true_epsilon']:,.0f})" for t in ticks])
            top.tick_params(colors=RED, labelsize=8)
            top.set_xlabel("FedPriKL's true ε (without the paper's premise)", color=RED, fontsize=8)
        finish(figure, document, folder, ours)


def new_figure(
    document: Document, title: str, ours: bool
) -> tuple[Figure, list[tuple[Axes, tuple[str, list[Document]]]]]:
    """An empty panel for each value of `panel`, left to right, sharing the error axis."""
    groups: dict[str, list[Document]] = {}
    for row in document["rows"]:
        groups.setdefault(row["panel"], []).append(row)
    figure = Figure(figsize=(4.1 * len(groups) + 0.4, 4.6 if ours else 4.4), layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    axes[0].set_ylabel("mean absolute error, nats")
    figure.suptitle(title + (": our calibration overlaid" if ours else ": the paper's calibration"))
    return figure, list(zip(axes, groups.items(), strict=True))


def draw_lines(axes: Axes, rows: list[Document], ours: bool) -> None:
    """Mean over repetitions, with a band of one standard deviation over them."""
    for line, style in STYLE.items():
        points = [row for row in rows if row["line"] == line]
        if not points or (line not in PAPER and not ours):
            continue
        x, y, sd = ([row[name] for row in points] for name in ("x", "error", "sd"))
        faint = 0.45 if ours and line in PAPER else 1.0
        axes.plot(x, y, label=NAMES.get(line, line), markersize=3.5, alpha=faint, **style)
        if ours and line in PAPER:
            continue  # their bands are in the other figure
        low, high = ([v + sign * s for v, s in zip(y, sd, strict=True)] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=style["color"], alpha=0.13, linewidth=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def truth_of(rows: list[Document], x: float) -> str:
    """What the paper's noise claims and what it gives, for a panel's title."""
    at = {row["line"]: row for row in rows if row["x"] == x}
    kl, base = at["FedPriKL"], at["baseline"]
    premises = kl["true_epsilon_on_the_papers_premises"]
    return (
        f"claimed ε = {kl['epsilon']:g}\n"
        f"true ε: FedPriKL {premises:.3g} on the paper's premises,\n"
        f"{kl['true_epsilon']:,.0f} without them; baseline {base['true_epsilon']:.2g}"
    )


def finish(figure: Figure, document: Document, folder: Path, ours: bool) -> None:
    """Legend, data source and both files."""
    for axes in figure.axes:
        axes.title.set_fontsize(9)
    if ours:
        figure.axes[0].set_yscale("log")
        errors = [row["error"] for row in document["rows"]]
        figure.axes[0].set_ylim(min(errors) / 2, max(errors) * 2)
    else:
        figure.axes[0].set_ylim(0, CEILING)
    add_legend(figure, document)
    save(figure, folder / f"{document['name']}_{'ours' if ours else 'paper'}")


def add_legend(
    figure: Figure, document: Document, bands: str = "Bands: one sd over repetitions."
) -> None:
    """Lines, and which data and truth a figure shows; made-up data cannot be overlooked."""
    data = document["record"]["data"]
    text = f"{data['name']}: {data['images']:,} images, {data['writers']:,} writers. "
    text += f"Truth: {document['truth'].replace('Pi', 'Π')}. {bands}"
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
        title=text if data["real"] else f"MADE-UP DATA. {text}",
        title_fontsize=8,
    )
    legend.get_title().set_color("#6b7280" if data["real"] else RED)


def save(figure: Figure, path: Path) -> None:
    """As PNG and SVG."""
    figure.savefig(path.with_suffix(".png"), dpi=110, metadata={"Software": None})
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
