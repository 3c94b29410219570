"""Writes the tables of docs/divergences.md, in `make tables`."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy

from fedprikl.divergence import Divergence, Score, Skew, divergence_named, skewed_divergence
from fedprikl.estimation import score_sensitivity
from fedprikl.reference import all_points

PAGE = Path(__file__).parent / "divergences.md"
NAMES = ("kl", "reverse_kl", "psi", "js", "hellinger", "tv")
CELLS, RECORDS, DRIFT, DRAWS = 250, 40_000, 0.003, 400


def reference() -> np.ndarray:
    """Pi: 250 lognormal cells, heaviest 5%, lightest 1 in 10,757."""
    mass = np.exp(1.1 * scipy.special.ndtri((np.arange(CELLS) + 0.5) / CELLS))
    return mass / mass.sum()


def populations(pi: np.ndarray) -> dict[str, np.ndarray]:
    """P of three kinds of drift, each of `DRIFT` nats of KL."""
    shapes: dict[str, Callable[[float], np.ndarray]] = {
        "smooth": lambda t: pi * np.exp(t * np.cos(7 * np.arange(CELLS))),
        "rare cells": lambda t: pi * np.where(np.arange(CELLS) < CELLS // 2, 1 - t, 1.0),
        "a heavy cell": lambda t: pi * np.where(np.arange(CELLS) == CELLS - 1, 1 - t, 1.0),
    }

    def of(shape: Callable[[float], np.ndarray], t: float) -> np.ndarray:
        return shape(t) / shape(t).sum()

    def size(shape: Callable[[float], np.ndarray]) -> float:
        return scipy.optimize.brentq(
            lambda t: skewed_divergence(pi, of(shape, t), skew=0.0) - DRIFT, 0.0, 1 - 1e-9
        )

    return {name: of(shape, size(shape)) for name, shape in shapes.items()}


def sensitivity(divergence: Divergence, skew: float) -> float:
    """Delta, infinite for an infinite score."""
    score = Score(Skew(skew), divergence)
    if not score.finite:
        return math.inf
    return score_sensitivity(all_points(reference()), np.array([RECORDS]), score)


def noise_table() -> str:
    """Names, ranges and how far one record can move each."""
    lines = [
        "| name | target | unit | largest | skew | Δ N | Δ N without a skew | bias corrected |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in NAMES:
        of = divergence_named(name)
        largest = of.largest(of.skew, 1 / reference().min())
        changes = [RECORDS * sensitivity(of, skew) for skew in (of.skew, 0.0)]
        numbers = [f"{x:.3g}" if x < math.inf else "∞" for x in (largest, of.skew, *changes)]
        target = of.target(str(Skew(of.skew))).replace("||", "‖")
        row = [f"`{name}`", target, of.unit or "none", *numbers, "yes" if of.corrects else "no"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def distances(name: str, epsilon: float) -> list[float]:
    """For each drift: how many standard deviations (records and noise) above no drift."""
    of, pi, rng = divergence_named(name), reference(), np.random.default_rng(1)
    score, points = Score(Skew(of.skew), of), all_points(pi)

    def drawn(p: np.ndarray) -> np.ndarray:
        counts = rng.multinomial(RECORDS, p, DRAWS)
        return score(counts, pi, np.array([RECORDS])) @ points.weights

    none = drawn(pi)
    noise = math.sqrt(2) * sensitivity(of, of.skew) / epsilon if epsilon < math.inf else 0.0
    spread = math.hypot(float(none.std()), noise)
    return [float(drawn(p).mean() - none.mean()) / spread for p in populations(pi).values()]


def power_table() -> str:
    """How well each drift stands out, without privacy and with it."""
    kinds = list(populations(reference()))
    columns = [f"{kind}, ε {epsilon}" for epsilon in ("∞", "1", "0.1") for kind in kinds]
    lines = ["| name | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for name in NAMES:
        found = [x for epsilon in (math.inf, 1.0, 0.1) for x in distances(name, epsilon)]
        lines.append(f"| `{name}` | " + " | ".join(f"{x:.1f}" for x in found) + " |")
    return "\n".join(lines) + "\n"


TABLES = {"noise": noise_table, "power": power_table}


def begin(name: str) -> str:
    """The line above a table."""
    return f"<!-- {name} table: written by `make tables` -->\n"


def table_in(page: str, name: str) -> str:
    """The table that stands in the page now."""
    start = page.index(begin(name)) + len(begin(name))
    return page[start : page.index("<!-- end of table -->", start)]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        text = text.replace(begin(name) + table_in(text, name), begin(name) + make())
    PAGE.write_text(text, encoding="utf-8")
