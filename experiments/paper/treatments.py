"""What another treatment of empty cells would change: the floor of 3e-4 that fits the paper best.

The paper does not print how it treats cells without records. The figures mix in 1% of the
reference; here the estimators and the truth all floor P at 3e-4 instead, at epsilon 1.
"""

from dataclasses import replace

from experiments.paper.fig_lambda_eps import CONTROLS
from experiments.paper.jobs import main
from experiments.paper.sweeps import PAPER_LINES, Row, Sweep
from fedprikl.divergence import Floor

FLOOR = Floor(3e-4)

JOB = Sweep(
    name="treatments",
    rows=tuple(
        Row(
            line=line,
            panel="1",
            x=control,
            setting=replace(setting, control=control, smoothing=FLOOR),
        )
        for line, setting in PAPER_LINES.items()
        for control in CONTROLS
    ),
    truth=FLOOR,
)

if __name__ == "__main__":
    main("treatments")
