"""Sweeps: the error of several estimators along one parameter, over pairs and repetitions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments.paper.jobs import Document, Unit
from experiments.paper.repetition import BASELINE_FLOOR, Pair, Setting
from experiments.paper.world import PAIRS, REPETITIONS, SKEW, World
from fedprikl.divergence import Score, Smoothing
from fedprikl.paper import paper_true_epsilon

# The paper's three estimators: the first lines of every figure.
PAPER_LINES = {
    "no privacy": Setting(method="no privacy"),
    "baseline": Setting(method="baseline", control=-1.0, smoothing=BASELINE_FLOOR),
    "FedPriKL": Setting(method="trusted aggregator"),
}
# What our calibration adds: the same points with noise for their exact sensitivity, then our
# points (distinct, dealt to as many batches as they suffice for, at most 10).
OUR_LINES = {
    "baseline, exact noise": replace(PAPER_LINES["baseline"], calibration="exact"),
    "FedPriKL, exact noise": replace(PAPER_LINES["FedPriKL"], calibration="exact"),
    "ours, 10 counts": Setting(
        method="trusted aggregator",
        calibration="exact",
        design="distinct",
        batches=10,
        corrected=True,
    ),
    "ours, up to 250 counts": Setting(
        method="trusted aggregator",
        calibration="exact",
        design="distinct",
        points=250,
        batches=10,
        corrected=True,
    ),
}
LINES = PAPER_LINES | OUR_LINES


@dataclass(frozen=True, kw_only=True)
class Row:
    """One point of a figure: which line, which panel, where on the axis, and how it is found."""

    line: str
    panel: str
    x: float
    setting: Setting
    pairs: tuple[Pair, ...] = PAIRS


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A job: every row's error on each of its pairs, in each repetition.

    `truth` names the treatment of empty cells in the ground truth, the same for all rows.
    """

    name: str
    rows: tuple[Row, ...]
    truth: Smoothing = SKEW
    picture: Callable[[Document, Path], None] = lambda _document, _folder: None

    def units(self) -> list[Unit]:
        """(repetition, reference digit)."""
        digits = sorted({pair[0] for row in self.rows for pair in row.pairs})
        return [(number, digit) for number in range(REPETITIONS) for digit in digits]

    def run(self, world: World, unit: Unit) -> list[list[tuple[float, float]]]:
        """Per row and pair: (estimate - truth, true epsilon)."""
        number, digit = unit
        repetition = world.repetition(number)
        results = []
        for row in self.rows:
            found = []
            for pair in row.pairs:
                if pair[0] == digit:
                    estimate = repetition.estimate(pair, row.setting)
                    error = estimate.value - world.truth(pair, self.truth)
                    found.append((error, estimate.privacy.epsilon))
            results.append(found)
        return results

    def collect(self, world: World, parts: dict[Unit, Any]) -> Document:
        """Mean absolute error per repetition (over pairs), and the true epsilon."""
        rows = []
        for index, row in enumerate(self.rows):
            errors, epsilons = [], []
            for number in range(REPETITIONS):
                found = [
                    f for unit, part in parts.items() if unit[0] == number for f in part[index]
                ]
                errors.append(np.array([error for error, _ in found]))
                epsilons += [epsilon for _, epsilon in found]
            sizes = [world.truth(pair, self.truth) for pair in row.pairs]
            rows.append(describe(row) | summarise(np.array(errors), epsilons, sizes))
        pairs = dict.fromkeys(pair for row in self.rows for pair in row.pairs)
        truths = {f"{a},{b}": world.truth((a, b), self.truth) for a, b in pairs}
        return {"truth": str(self.truth), "truths": truths, "rows": rows}

    def draw(self, document: Document, folder: Path) -> None:
        """The figures."""
        self.picture(document, folder)


def describe(row: Row) -> Document:
    """The settings of a row as plain values."""
    setting = row.setting
    private = setting.method != "no privacy"
    printed = setting.method == "trusted aggregator" and setting.calibration == "paper"
    return {
        "line": row.line,
        "panel": row.panel,
        "x": row.x,
        "pairs": len(row.pairs),
        "design": setting.design,
        "m": setting.points,
        "T": setting.batches,
        "epsilon": setting.epsilon if private else None,
        "lambda": setting.control,
        "empty_cells": Score(setting.smoothing).target,
        "true_epsilon_on_the_papers_premises": paper_true_epsilon(
            epsilon=setting.epsilon,
            delta=setting.delta,
            points=setting.points,
            batches=setting.batches,
        )
        if printed
        else None,
    }


def summarise(errors: Any, epsilons: list[float], truths: list[float]) -> Document:
    """Means over pairs and repetitions; `errors` is (repetitions, pairs).

    `rank_correlation` (Spearman) says whether larger divergences come with larger errors.
    """
    per_repetition, per_pair = np.abs(errors).mean(axis=1), np.abs(errors).mean(axis=0)
    several = len(truths) > 2
    return {
        "error": float(per_repetition.mean()),
        "sd": float(per_repetition.std(ddof=1)),
        "bias": float(errors.mean()),
        "rank_correlation": float(stats.spearmanr(truths, per_pair)[0]) if several else None,
        "true_epsilon": float(np.median(epsilons)),
        "error_per_repetition": per_repetition.tolist(),
    }
