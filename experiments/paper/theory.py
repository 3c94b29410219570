"""Theory against practice: th:gen_estimator_variance and th:opt_lambda_noise on the same digits.

The theory wants P on Pi's support and one P for all batches. So records outside the support are
left out here, and the variance is measured twice: with every batch holding the whole population's
frequencies (the theorem's world), and with disjoint batches of clients (the protocol's).
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper.jobs import Document, Unit, main
from experiments.paper.plots import add_legend, save
from experiments.paper.repetition import Pair
from experiments.paper.variance import (
    estimator_variance,
    optimal_control,
    optimal_control_with_noise,
    variance_bound,
)
from experiments.paper.world import SKEW, THREE_PAIRS, World
from experiments.population import Population, ask, deal_clients
from fedprikl import InsecureSeededNoise
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.paper import paper_noise_gain, paper_term_sensitivity, printed_aggregator
from fedprikl.reference import iid_points

EPSILONS = (0.1, 1.0)
CONTROLS = (-0.5, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
POINTS, BATCHES, DELTA = 10, 20, 1e-6
TRIALS, CHUNKS = 200, 10
WORLDS = ("one P for all batches", "disjoint batches")
STREAM = 4  # of the seed


def on_support(world: World, pair: Pair) -> tuple[Floats, Population]:
    """Pi, and the population without the records Pi does not know."""
    pi = world.digits.distribution(pair[0])
    held = world.digits.population(pair[1])
    known = pi[held.cell] > 0
    return pi, Population(held.client[known], held.cell[known], held.cells, held.clients)


def one_for_all(population: Population, batches: int) -> Ints:
    """Every batch holds the whole population, as the theorems assume."""
    whole = population.histograms(np.zeros(population.clients, np.int64), 1)
    return np.tile(whole, (batches, 1))


class Theory:
    """A job: values of the trusted aggregator over many trials, by epsilon and lambda."""

    name = "theory"

    def units(self) -> list[Unit]:
        """(pair, chunk of trials)."""
        return [(pair, chunk) for pair in range(len(THREE_PAIRS)) for chunk in range(CHUNKS)]

    def run(self, world: World, unit: Unit) -> list[list[list[list[float]]]]:
        """Values by world, epsilon, lambda and trial."""
        place, chunk = unit
        pi, population = on_support(world, THREE_PAIRS[place])
        whole = one_for_all(population, BATCHES)
        warnings.simplefilter("ignore", PaperCalibrationWarning)  # theory needs no true epsilon
        values = np.zeros((2, len(EPSILONS), len(CONTROLS), TRIALS // CHUNKS))
        for trial in range(TRIALS // CHUNKS):
            key = (STREAM, place, chunk, trial)
            rng = np.random.default_rng(np.random.SeedSequence(world.seed, spawn_key=key))
            points = iid_points(pi, POINTS, batches=BATCHES, rng=rng)
            batch = deal_clients(population.clients, BATCHES, rng)
            noise = int(rng.integers(2**62))
            for w, sums in enumerate((whole, population.histograms(batch, BATCHES))):
                counts = ask(sums, points)
                for e, epsilon in enumerate(EPSILONS):
                    for c, control in enumerate(CONTROLS):
                        values[w, e, c, trial] = printed_aggregator(
                            counts,
                            epsilon=epsilon,
                            delta=DELTA,
                            score=Score(SKEW, control=control),
                            released="mean",
                            source=InsecureSeededNoise(noise),
                        ).value
        nested: list[list[list[list[float]]]] = values.tolist()
        return nested

    def collect(self, world: World, parts: dict[Unit, Any]) -> Document:
        """Measured variance, the exact formula and the bound; best lambda, measured and proved."""
        rows, best = [], []
        for place, pair in enumerate(THREE_PAIRS):
            chunks = [np.array(parts[place, chunk]) for chunk in range(CHUNKS)]
            measured = np.concatenate(chunks, axis=3).var(axis=3, ddof=1)
            for w, name in enumerate(WORLDS):
                for e, epsilon in enumerate(EPSILONS):
                    head = {"pair": "({},{})".format(*pair), "batches": name, "epsilon": epsilon}
                    lines = self._rows(world, pair, w, epsilon, measured[w, e])
                    rows += [head | line for line in lines]
                    best.append(head | self._best(world, pair, w, epsilon, measured[w, e]))
        return {"truth": str(SKEW), "trials": TRIALS, "rows": rows, "best_lambda": best}

    def _rows(
        self, world: World, pair: Pair, w: int, epsilon: float, measured: Floats
    ) -> list[Document]:
        pi, p, records = self._theory(world, pair, w)
        gain = paper_noise_gain(epsilon=epsilon, delta=DELTA, batches=BATCHES)
        rows = []
        for c, control in enumerate(CONTROLS):
            kappa = paper_term_sensitivity(
                control=control, records=records, pi_min=float(pi[pi > 0].min())
            )
            noise, draws = gain * kappa**2, POINTS * BATCHES
            exact = estimator_variance(pi, p, control=control, draws=draws, noise_variance=noise)
            bound = variance_bound(pi, p, control=control, draws=draws, noise_variance=noise)
            rows.append(
                {"lambda": control, "measured": float(measured[c]), "exact": exact, "bound": bound}
            )
        return rows

    def _best(self, world: World, pair: Pair, w: int, epsilon: float, measured: Floats) -> Document:
        pi, p, records = self._theory(world, pair, w)
        gain = paper_noise_gain(epsilon=epsilon, delta=DELTA, batches=BATCHES)
        proved = optimal_control_with_noise(pi, p, noise_gain=gain, records=records)
        nearest = int(np.argmin(np.abs(np.array(CONTROLS) - proved)))
        return {
            "measured": CONTROLS[int(np.argmin(measured))],
            "proved": proved,
            "proved_without_noise": optimal_control(pi, p),
            # the variance is flat near its minimum, so this says more than a distance in lambda
            "variance_at_proved_over_least": float(measured[nearest] / measured.min()),
        }

    @staticmethod
    def _theory(world: World, pair: Pair, w: int) -> tuple[Floats, Floats, int]:
        """Pi, the effective P and N of a batch."""
        pi, population = on_support(world, pair)
        p = SKEW.gamma * pi + (1 - SKEW.gamma) * population.distribution
        return pi, p, population.records if w == 0 else population.records // BATCHES

    def draw(self, document: Document, folder: Path) -> None:
        """Variance against lambda: measured, exact, bound, and the best lambda of the theorem."""
        figure = Figure(figsize=(12.5, 7.2), layout="constrained")
        figure.suptitle("Variance of FedPriKL with the paper's noise: measured and proved")
        panels = figure.subplots(len(EPSILONS), len(THREE_PAIRS), sharex=True, sharey=True)
        for e, epsilon in enumerate(EPSILONS):
            for k, pair in enumerate(THREE_PAIRS):
                axes, name = panels[e, k], "({},{})".format(*pair)
                for batches, colour, marker in zip(
                    WORLDS, ("#1f6fb2", "#b91c1c"), ("o", "^"), strict=True
                ):
                    self._panel(axes, document, (name, batches, epsilon), colour, marker)
                axes.set_yscale("log")
                axes.set_title(f"pair {name}, claimed ε = {epsilon:g}", fontsize=10)
                axes.grid(alpha=0.25)
                axes.spines[["top", "right"]].set_visible(False)
            panels[e, 0].set_ylabel("variance, nats²")
        for axes in panels[-1]:
            axes.set_xlabel("λ")
        add_legend(figure, document, bands=f"{document['trials']} trials.")
        save(figure, folder / "theory")

    @staticmethod
    def _panel(
        axes: Any, document: Document, key: tuple[str, str, float], colour: str, marker: str
    ) -> None:
        def mine(rows: list[Document]) -> list[Document]:
            return [r for r in rows if (r["pair"], r["batches"], r["epsilon"]) == key]

        rows, (best,) = mine(document["rows"]), mine(document["best_lambda"])
        x = [row["lambda"] for row in rows]
        y = {name: [row[name] for row in rows] for name in ("measured", "exact", "bound")}
        axes.plot(x, y["bound"], "--", color=colour, alpha=0.5, label=f"bound, {key[1]}")
        axes.plot(x, y["exact"], "-", color=colour, alpha=0.7, label=f"exact formula, {key[1]}")
        axes.plot(x, y["measured"], marker, color=colour, label=f"measured, {key[1]}")
        axes.axvline(best["proved"], color=colour, linewidth=0.9, linestyle=":")


JOB = Theory()

if __name__ == "__main__":
    main("theory")
