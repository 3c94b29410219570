"""What every experiment shares: the data, the seed, the truth, and a record of all three."""

import hashlib
import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from experiments.handwriting import (
    Digits,
    load_compact,
    load_leaf,
    load_stand_in,
    synthetic_handwriting,
)
from experiments.paper.repetition import Pair, Repetition
from fedprikl.divergence import Score, Skew, Smoothing
from fedprikl.estimation import BatchCounts
from fedprikl.paper import no_privacy
from fedprikl.reference import all_points

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SEED = 20240917
REPETITIONS = 10
PAIRS: tuple[Pair, ...] = tuple((a, b) for a in range(10) for b in range(10) if a != b)
THREE_PAIRS: tuple[Pair, ...] = ((3, 8), (4, 1), (9, 0))  # the paper's closest, median, furthest
SKEW = Skew(0.01)
WORDS_AND_PICTURES = ("claim", "claims", "everything", "judge", "judge_theory", "plots")
PACKAGES = ("fedprikl", "numpy", "scipy", "dp-accounting", "opendp", "matplotlib")


@dataclass(frozen=True)
class World:
    """The digits of an experiment, and what is true of them."""

    digits: Digits
    genuine: Digits | None = None  # the real images behind a stand-in
    seed: int = SEED
    _truth: dict[tuple[Pair, Smoothing], float] = field(default_factory=dict)

    def repetition(self, number: int) -> Repetition:
        """Repetition `number` of every experiment on this world."""
        return Repetition(self.digits, seed=self.seed, number=number)

    def truth(self, pair: Pair, smoothing: Smoothing = SKEW) -> float:
        """D(P_a || P_b'), in nats, over everybody's images, P_b' the smoothed population."""
        if (pair, smoothing) not in self._truth:
            self._truth[pair, smoothing] = target(self.digits, pair, smoothing)
        return self._truth[pair, smoothing]

    def record(self) -> dict[str, Any]:
        """Where a number comes from: data, seed, versions."""
        digits = self.digits
        return {
            "data": {
                "name": digits.name,
                "real": digits.real,
                "images": len(digits),
                "writers": digits.writers,
                "codes": len(digits.codes),
                "sha256": digits.sha256,
            },
            "seed": self.seed,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in PACKAGES},
            "source_sha256": source_hash(),
        }


def target(digits: Digits, pair: Pair, smoothing: Smoothing) -> float:
    """D(P_a || P_b') through the package's own score: every cell asked, one batch, no noise."""
    counts = digits.counts(pair[1])
    points = all_points(digits.distribution(pair[0]))
    batch = BatchCounts(points, counts[points.cells], np.array([counts.sum()]))
    return no_privacy(batch, score=Score(smoothing)).value


def data_folder() -> Path:
    """Where the real data would be: FEDPRIKL_DATA, or shared/data beside the repository."""
    return Path(os.environ.get("FEDPRIKL_DATA", ROOT.parent / "shared" / "data"))


def find_world(*, made_up: bool = False) -> World:
    """The best data at hand: the full-size stand-in, a LEAF download, a subset, or made up."""
    folder = data_folder()
    subset, owners = folder / "femnist_digits.npz", folder / "nist_digit_owners.npz"
    if made_up or not folder.is_dir():
        return World(synthetic_handwriting())
    if subset.exists():
        genuine = load_compact(subset)
        return World(load_stand_in(genuine, owners) if owners.exists() else genuine, genuine)
    if any(folder.rglob("*.json")):
        leaf = load_leaf(folder)
        return World(leaf, leaf)
    return World(synthetic_handwriting())


def results_folder(*, real: bool) -> Path:
    """Where results go. Those of made-up data stay out of the way of the real ones."""
    return HERE / ("results" if real else "results-made-up")


def source_hash() -> str:
    """Of all code a number depends on: the package and these experiments, not how it is shown."""
    digest = hashlib.sha256()
    packages = ("demo", "divergence", "estimation", "paper", "privacy", "reference")
    files = [path for each in packages for path in (ROOT / "src/fedprikl" / each).rglob("*.py")]
    files += [HERE.parent / "handwriting.py"]
    files += [path for path in HERE.glob("*.py") if path.stem not in WORDS_AND_PICTURES]
    for path in sorted(files):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
