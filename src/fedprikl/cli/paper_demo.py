"""`fedprikl demo --paper`: every estimator on an embedded population with a known answer."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.cli.console import print_json, progress_bar, say, show, show_table
from fedprikl.demo import compare, drifted_population, paper_and_ours, true_divergence
from fedprikl.estimation import ComparedEstimate
from fedprikl.paper import paper_true_epsilon
from fedprikl.reporting import COMPARISON_HEAD, comparison_page, comparison_row
from fedprikl.store import write_whole

DELTA = 1e-6


def paper_demo(*, epsilon: float, seed: int, repetitions: int, report: Path, json: bool) -> None:
    """Runs all estimators on 600 made-up clients whose drift is known, and writes a report.

    Sums are real secure sums in cohorts of 12 to 20 clients, of which 5% drop out. The
    last three are whole rounds of a federation, with all its parties in this process. Release noise
    comes from the operating system, so values differ from run to run.
    """
    start = time.perf_counter()
    world = drifted_population(np.random.default_rng(seed))
    methods = paper_and_ours(epsilon=epsilon, delta=DELTA)
    rows: list[ComparedEstimate] = []
    with progress_bar() as progress:
        task = progress.add_task("estimating", total=len(methods))
        for row in compare(world, methods, repetitions=repetitions, seed=seed):
            rows.append(row)
            progress.advance(task)
    facts = {
        "clients": f"{len(world.counts):,}",
        "records": f"{world.counts.sum():,}",
        "cells of the domain": f"{world.reference.domain.size - 1:,}",
        "target": rows[-1].estimate.target,
        "paper's settings": "10 i.i.d. points for each of 20 batches of 30 clients",
        "secure sums": "cohorts of 12 to 20 clients; 5% of the clients leave at random steps",
        "our settings": "real rounds: 10 points for each of 4 batches; 250 points, one batch",
        "noise shares": "a real round in which no party is trusted: 50 points, one batch",
        "delta": f"{DELTA:g}",
    }
    premise = paper_true_epsilon(epsilon=epsilon, delta=DELTA, points=10, batches=20)
    write_whole(report, comparison_page(rows, asked=facts, premise_epsilon=premise))
    seconds = time.perf_counter() - start
    if json:
        print_json(_document(rows, true_divergence(world), seconds, report))
    else:
        _print_table(rows, true_divergence(world), report)


def _document(
    rows: list[ComparedEstimate], truth: float, seconds: float, report: Path
) -> dict[str, Any]:
    return {
        "truth": truth,
        "target": rows[-1].estimate.target,
        "seconds": round(seconds, 3),
        "report": str(report),
        "estimates": [
            {
                "name": row.name,
                "value": row.estimate.value,
                "error": row.error,
                "typical_error": row.typical_error,
                "claimed_epsilon": row.estimate.privacy.claimed_epsilon,
                "true_epsilon": row.estimate.privacy.epsilon,
                "delta": row.estimate.privacy.delta,
                "payload_counts": row.estimate.payload,
            }
            for row in rows
        ],
    }


def _print_table(rows: list[ComparedEstimate], truth: float, report: Path) -> None:
    ours = rows[-1].estimate
    show(f"truth: {ours.target} = [bold]{truth:.3f}[/bold] {ours.unit}")
    shown = []
    for row in rows:
        *cells, true_epsilon = comparison_row(row)
        colour = "green" if row.estimate.privacy.holds else "red"
        if row.estimate.privacy.claimed_epsilon is None:
            colour = "default"
        shown.append((*cells, f"[{colour}]{true_epsilon}[/{colour}]"))
    show_table(COMPARISON_HEAD, shown, right=range(1, len(COMPARISON_HEAD)), lines=True)
    show(str(rows[-1].estimate.privacy))
    say(f"\nreport: {report}")
