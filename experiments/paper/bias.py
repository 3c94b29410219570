"""The bias of small batches: the estimator's mean against the truth as T grows (no noise).

The mean over the drawn points is computed exactly, by asking every batch every cell of Pi with
weight Pi(x)/T; the mean over the dealing of clients is that of the repetitions.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper.jobs import Document, Unit, main
from experiments.paper.plots import add_legend, save
from experiments.paper.repetition import Pair, Setting
from experiments.paper.world import PAIRS, REPETITIONS, SKEW, THREE_PAIRS, World
from experiments.population import ask
from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.paper import no_privacy
from fedprikl.reference import QueryPoints

BATCHES = (1, 2, 5, 10, 20, 50, 100)


def every_point(pi: Floats, batches: int) -> QueryPoints:
    """All cells of Pi in all batches, weighted as the mean of i.i.d. draws."""
    cells = np.flatnonzero(pi)
    return QueryPoints.build(
        pi,
        cells=np.tile(cells, batches),
        batch=np.repeat(np.arange(batches), len(cells)),
        weights=np.tile(pi[cells], batches) / batches,
        batches=batches,
    )


def predicted(world: World, pair: Pair, batches: int) -> float:
    """The leading term of the bias, in nats: half the variance of v over v^2, averaged over Pi.

    v = gamma + (1-gamma) h/(N Pi), and h is a share 1/T of the population's count, drawn without
    replacement, so Var(h/N) = P (1-P) (1 - 1/T) / N with N = N_t.
    """
    pi, p = (world.digits.distribution(digit) for digit in pair)
    on, keep = pi > 0, 1 - SKEW.gamma
    v = SKEW.gamma + keep * p[on] / pi[on]
    records = world.digits.counts(pair[1]).sum() / batches
    variance = keep**2 * p[on] * (1 - p[on]) * (1 - 1 / batches) / (records * pi[on] ** 2)
    return float(np.sum(pi[on] * variance / (2 * v**2)))


class Bias:
    """A job: per repetition and T, how far the mean over points lies from the truth."""

    name = "bias"

    def units(self) -> list[Unit]:
        """(repetition, T)."""
        return [(number, batches) for number in range(REPETITIONS) for batches in BATCHES]

    def run(self, world: World, unit: Unit) -> list[tuple[float, float, float, float]]:
        """Per pair: error plain and corrected, sd of the paper's noise at epsilon 1, prediction."""
        number, batches = unit
        repetition = world.repetition(number)
        results = []
        for pair in PAIRS:
            points = every_point(repetition.distribution(pair[0]), batches)
            counts = ask(repetition.sums(pair[1], batches), points)
            plain = no_privacy(counts, score=Score(SKEW)).value
            corrected = no_privacy(counts, score=Score(SKEW, correction=1.0)).value
            noise, formula = 0.0, 0.0
            if number == 0:  # the same in every repetition, but for batch sizes
                noised = Setting(method="trusted aggregator", batches=batches)
                noise = repetition.estimate(pair, noised).noise_sd or 0.0
                formula = predicted(world, pair, batches)
            truth = world.truth(pair)
            results.append((plain - truth, corrected - truth, noise, formula))
        return results

    def collect(self, world: World, parts: dict[Unit, Any]) -> Document:
        """Per pair of the paper and over all pairs, by T."""
        rows = []
        for pairs in (*((pair,) for pair in THREE_PAIRS), PAIRS):
            where = [PAIRS.index(pair) for pair in pairs]
            truth = float(np.mean([world.truth(pair) for pair in pairs]))
            for batches in BATCHES:
                found = np.array([parts[number, batches] for number in range(REPETITIONS)])
                means = found[:, where].mean(axis=1)  # (repetitions, 4)
                rows.append(
                    {
                        "pairs": "all 90" if len(pairs) > 1 else "({},{})".format(*pairs[0]),
                        "T": batches,
                        "truth": truth,
                        "mean": truth + float(means[:, 0].mean()),
                        "bias": float(means[:, 0].mean()),
                        "sd": float(means[:, 0].std(ddof=1)),
                        "predicted_bias": float(means[0, 3]),
                        "bias_corrected": float(means[:, 1].mean()),
                        "sd_of_papers_noise": float(means[0, 2]),
                    }
                )
        return {"truth": str(SKEW), "rows": rows}

    def draw(self, document: Document, folder: Path) -> None:
        """Mean against T: plain, corrected, predicted; the paper's noise at epsilon 1 beside it."""
        names = list(dict.fromkeys(row["pairs"] for row in document["rows"]))
        figure = Figure(figsize=(3.4 * len(names), 4.2), layout="constrained")
        figure.suptitle("Estimator without noise: its mean against the truth as T grows")
        for axes, name in zip(figure.subplots(1, len(names)), names, strict=True):
            rows = [row for row in document["rows"] if row["pairs"] == name]
            column = {
                key: np.array([row[key] for row in rows]) for key in rows[0] if key != "pairs"
            }
            t, truth = column["T"], column["truth"]
            axes.plot(t, truth, "--", color="#111827", label="truth")
            axes.fill_between(
                t,
                truth - column["sd_of_papers_noise"],
                truth + column["sd_of_papers_noise"],
                color="#b91c1c",
                alpha=0.25,
                label="± sd of the paper's noise on the mean, ε = 1",
            )
            axes.plot(t, column["mean"], "o-", color="#4b5563", markersize=4, label="mean")
            axes.plot(
                t,
                truth + column["predicted_bias"],
                ":",
                color="#d97706",
                label="mean, by the formula",
            )
            corrected = truth + column["bias_corrected"]
            axes.plot(t, corrected, "D-", color="#1f6fb2", markersize=4, label="mean, corrected")
            axes.set_ylim(truth[0] - 0.15, max(column["mean"]) + 0.05)
            axes.axvline(20, color="#9ca3af", linewidth=0.8)
            axes.set_xscale("log")
            axes.set_xticks(t, [str(x) for x in t])
            axes.minorticks_off()
            axes.set_xlabel("T, number of batches")
            axes.set_title(f"pair {name}" if name.startswith("(") else f"mean of {name} pairs")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        figure.axes[0].set_ylabel("nats")
        add_legend(figure, document, bands="")
        save(figure, folder / "bias")


JOB = Bias()

if __name__ == "__main__":
    main("bias")
