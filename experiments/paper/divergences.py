"""The range of divergences and the paper's three pairs, by treatment of empty cells."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.handwriting import Digits
from experiments.paper.jobs import Document, Unit, main
from experiments.paper.repetition import Pair
from experiments.paper.world import PAIRS, THREE_PAIRS, World, target
from fedprikl.divergence import Floor, Skew, skewed_divergence

FLOOR, SKEWS = Floor(3e-4), (Skew(0.05), Skew(0.01), Skew(0.005))
# The treatments for which the closest pair must be (3,8) or (8,3) and the furthest (9,0).
FITTING = ("floor 3e-4", "+1 on observed codes")


def by_treatment(digits: Digits, pair: Pair) -> dict[str, float]:
    """D(P_a || P_b), in nats, under every treatment of the cells that P_b misses."""
    a, b = (digits.counts(digit)[:-1] for digit in pair)  # without "other", which is empty
    values = {"floor 3e-4": target(digits, pair, FLOOR)}
    values["+1 on observed codes"] = _added(a, b, len(digits.codes))
    values["+1 on all 65,536 codes"] = _added(a, b, 1 << 16)
    for skew in SKEWS:
        values[f"skew {skew.gamma:g}"] = target(digits, pair, skew)
    return values


def _added(a: Any, b: Any, cells: int) -> float:
    """Both distributions with 1 added to each of `cells` codes, most of which may be unseen."""
    unseen = np.zeros(cells - len(a), np.int64)
    first, second = (np.concatenate([counts, unseen]) + 1 for counts in (a, b))
    return skewed_divergence(first / first.sum(), second / second.sum(), skew=0.0)


class Divergences:
    """A job: the 90 divergences of the genuine digits (unit 0) and of the full-size data (1)."""

    name = "divergences"

    def units(self) -> list[Unit]:
        """Which digits."""
        return [(0,), (1,)]

    def run(self, world: World, unit: Unit) -> list[dict[str, float]]:
        """Per pair, its divergence under every treatment."""
        digits = world.genuine or world.digits if unit == (0,) else world.digits
        return [by_treatment(digits, pair) for pair in PAIRS]

    def collect(self, world: World, parts: dict[Unit, Any]) -> Document:
        """Per data and treatment: closest, median and furthest pair, and the paper's three."""
        names = [(world.genuine or world.digits).name, world.digits.name]
        rows = []
        for (place,), table in parts.items():
            for treatment in table[0]:
                values = [row[treatment] for row in table]
                order = np.argsort(values)
                rows.append(
                    {"data": names[place], "full_size": place == 1, "empty_cells": treatment}
                    | {f"KL({a},{b})": values[PAIRS.index((a, b))] for a, b in THREE_PAIRS}
                    | {
                        "closest": "({},{})".format(*PAIRS[order[0]]),
                        "smallest": values[order[0]],
                        "median_pair": "({},{})".format(*PAIRS[order[44]]),
                        "median": float(np.median(values)),
                        "furthest": "({},{})".format(*PAIRS[order[-1]]),
                        "largest": values[order[-1]],
                        "rank_of_(4,1)": int(
                            np.searchsorted(np.sort(values), values[PAIRS.index((4, 1))])
                        )
                        + 1,
                    }
                )
        return {"truth": "see empty_cells", "rows": rows}

    def draw(self, document: Document, folder: Path) -> None:
        """A table needs no figure."""


JOB = Divergences()

if __name__ == "__main__":
    main("divergences")
