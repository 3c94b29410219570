"""Writes the README's table of the paper's estimators, in `make tables`.

It is that of `fedprikl demo --paper`. Only what the seed determines is in it; the values of a
single run are not.
"""

import re
import warnings
from pathlib import Path

import numpy as np

from fedprikl.demo import compare, drifted_population, paper_and_ours
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import ComparedEstimate
from fedprikl.reporting import COMPARISON_HEAD, comparison_row

README = Path(__file__).parent.parent / "README.md"
TABLE = re.compile(r"(<!-- demo table: .* -->\n)(.*?)(?=<!-- end of demo table -->)", re.DOTALL)
SHOWN = ("estimator", "counts", "typical", "claimed ε", "true ε")


def demo_rows() -> list[ComparedEstimate]:
    """The same run as `fedprikl demo --paper` with its defaults."""
    world = drifted_population(np.random.default_rng(0))
    methods = paper_and_ours(epsilon=1.0, delta=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PaperCalibrationWarning)
        return list(compare(world, methods, repetitions=100, seed=0))


def demo_table(compared: list[ComparedEstimate]) -> str:
    """The table as Markdown."""
    rows = [dict(zip(COMPARISON_HEAD, comparison_row(row), strict=True)) for row in compared]
    lines = [
        f"Truth: {compared[0].truth:.3f} nats.\n",
        "| " + " | ".join(SHOWN) + " |",
        "| --- |" + " ---: |" * (len(SHOWN) - 1),
    ]
    lines += ["| " + " | ".join(row[name] for name in SHOWN) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def table_in(readme: str) -> str:
    """The table that stands in the README now."""
    (found,) = TABLE.finditer(readme)
    return found[2]


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    fresh = demo_table(demo_rows())
    README.write_text(TABLE.sub(lambda old: old[1] + fresh, text), encoding="utf-8")
