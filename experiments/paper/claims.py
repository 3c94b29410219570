"""Writes RESULTS.md from the results: never typed by hand."""

import json
from pathlib import Path
from typing import Any

from experiments.paper.claim import Claim
from experiments.paper.judge import judge
from experiments.paper.world import HERE

FIGURES = {
    "fig_lambda_eps": ("Error against λ at three ε (`fig:lamdaeps`)", ("paper", "ours")),
    "fig_batch_size": ("Error against λ for two batch sizes (`fig:Ct`)", ("paper", "ours")),
    "fig_m": ("Error against m (`fig:m`)", ("paper", "ours")),
    "fig_pairs": ("Error against ε for three pairs (`fig:pair`)", ("paper", "ours")),
    "bias": ("The bias of small batches", ()),
    "theory": ("Theory against practice", ()),
}
OURS = (
    "no privacy",
    "FedPriKL",
    "FedPriKL, exact noise",
    "ours, 10 counts",
    "ours, up to 250 counts",
)


README = HERE / "README.md"
BEGIN, END = "<!-- written by `make paper` -->\n", "<!-- end -->"
WHAT = {  # result: (the paper's label or what it shows, tolerance of a rerun with another seed)
    "fig_lambda_eps": ("`fig:lamdaeps`: error against λ, ε 0.1, 0.5, 1", "sd"),
    "fig_batch_size": ("`fig:Ct`: error against λ, batches of 71 and 358", "sd"),
    "fig_m": ("`fig:m`: error against m, ε 0.1 and 1", "sd"),
    "fig_pairs": ("`fig:pair`: error against ε for (3,8), (4,1), (9,0)", "sd"),
    "bias": ("mean of the estimator against the truth as T grows", "sd"),
    "theory": ("variance and best λ, measured and proved", "10%"),
    "divergences": ("all 90 divergences by treatment of empty cells", "none: no randomness"),
    "treatments": ("the λ sweep with a floor of 3e-4 instead of a skew", "sd"),
    "tau": ("the baseline with other floors τ", "sd"),
    "costs": ("CPU time of a repetition, payload", "the machine's"),
}


def load_results(folder: Path) -> dict[str, Any]:
    """All documents of a folder, by name."""
    files = sorted(folder.glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def write_results(folder: Path) -> None:
    """RESULTS.md: beside the scripts for real data, among the results for made-up data."""
    results = load_results(folder)
    real = results["costs"]["record"]["data"]["real"]
    target = HERE / "RESULTS.md" if real else folder / "RESULTS.md"
    where = f"{folder.name}/" if real else ""
    target.write_text(results_page(results, where), encoding="utf-8")
    if real:
        text = README.read_text(encoding="utf-8")
        table = BEGIN + runtime_table(results) + END
        README.write_text(text.replace(written_table(text), table), encoding="utf-8")


def written_table(readme: str) -> str:
    """The generated part of the README as it stands, markers included."""
    return readme[readme.index(BEGIN) : readme.index(END) + len(END)]


def runtime_table(results: dict[str, Any]) -> str:
    """Figure, command, runtime and tolerance, for the README."""
    lines = ["| figure or table | command | CPU seconds | tolerance |"]
    lines.append("| --- | --- | ---: | --- |")
    for name, (shows, tolerance) in WHAT.items():
        record = results[name]["record"]
        seconds = f"{record['seconds']:.0f}"
        lines.append(f"| {shows} | `{record['command']}` | {seconds} | {tolerance} |")
    return "\n".join(lines) + "\n"


def results_page(results: dict[str, Any], where: str) -> str:
    """The whole page as Markdown."""
    data = results["costs"]["record"]["data"]
    claims = judge(results)
    held = sum(claim.holds for claim in claims)
    parts = [
        "# Results\n",
        "Written by `make paper`; do not edit.\n",
        *([] if data["real"] else ["**MADE-UP DATA: this judges nothing about the paper.**\n"]),
        f"Data: {data['name']}, {data['images']:,} images by {data['writers']:,} writers, "
        f"{data['codes']} codes. Unless a number says otherwise, empty cells are treated by a skew "
        "of 0.01 (the baseline: by its floor τ = 1e-4), and the truth is "
        "D(Π ‖ 0.01 Π + 0.99 P) over everybody's images, in nats.\n",
        "## The paper's claims\n",
        f"{held} of {len(claims)} hold. What could depend on a choice the paper does not print "
        '(m, τ, the treatment of empty cells, the code\'s threshold) is named under "why"; '
        "nothing was tuned to match.\n",
        _claims_table(claims),
        "\n## What an honest ε costs, and what our points add\n",
        _comparison(results),
        "\n## Figures\n",
        *[_figure(name, where) for name in FIGURES],
        "## Where each number comes from\n",
        _records(results, where),
    ]
    return "\n".join(parts)


def _claims_table(claims: list[Claim]) -> str:
    head = "| the paper's sentence | paper | ours | holds | rule | why | from |"
    lines = [head, "| --- | --- | --- | --- | --- | --- | --- |"]
    for claim in claims:
        cells = (
            claim.sentence,
            claim.paper,
            claim.ours,
            "**yes**" if claim.holds else "**no**",
            claim.rule,
            claim.why,
            claim.source,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _comparison(results: dict[str, Any]) -> str:
    """Mean absolute error over 90 pairs at lambda 0."""
    rows = [row for row in results["fig_lambda_eps"]["rows"] if row["x"] == 0.0]
    lines = [
        "Mean absolute error over all pairs at λ = 0 (± sd over repetitions), and the true ε:\n",
        "| estimator | ε 0.1 | ε 0.5 | ε 1 | true ε where 1 is claimed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for line in OURS:
        at = {row["panel"]: row for row in rows if row["line"] == line}
        cells = [
            f"{at[panel]['error']:.3f} ± {at[panel]['sd']:.3f}" for panel in ("0.1", "0.5", "1")
        ]
        true = at["1"]["true_epsilon"]
        lines.append(f"| {line} | {' | '.join(cells)} | {_epsilon(true)} |")
    return "\n".join(lines) + "\n"


def _epsilon(value: float | None) -> str:
    return "infinite" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def _figure(name: str, where: str) -> str:
    title, kinds = FIGURES[name]
    files = [f"{name}_{kind}" for kind in kinds] or [name]
    images = "\n".join(f"![{title}]({where}{file}.png)\n" for file in files)
    return f"### {title}\n\n{images}"


def _records(results: dict[str, Any], where: str) -> str:
    lines = [
        "| result | command | seed | data sha256 | code sha256 | versions | CPU seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, document in results.items():
        record = document["record"]
        versions = ", ".join(f"{package} {v}" for package, v in record["versions"].items())
        lines.append(
            f"| [{name}]({where}{name}.json) | `{record['command']}` | {record['seed']} | "
            f"{record['data']['sha256'][:16]} | {record['source_sha256']} | {versions} | "
            f"{record['seconds']} |"
        )
    return "\n".join(lines) + "\n"
