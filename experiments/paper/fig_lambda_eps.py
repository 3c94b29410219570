"""fig:lamdaeps: error against lambda at epsilon 0.1, 0.5 and 1.0, batches of 5% of the clients."""

from dataclasses import replace

from experiments.paper.jobs import main
from experiments.paper.plots import lambda_figure
from experiments.paper.sweeps import LINES, Row, Sweep

EPSILONS = (0.1, 0.5, 1.0)
CONTROLS = (-2.0, -1.5, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0)

JOB = Sweep(
    name="fig_lambda_eps",
    rows=tuple(
        Row(
            line=line,
            panel=f"{epsilon:g}",
            x=control,
            setting=replace(setting, epsilon=epsilon, control=control),
        )
        for epsilon in EPSILONS
        for line, setting in LINES.items()
        for control in CONTROLS
    ),
    picture=lambda_figure("{}", "T = 20 batches, m = 10 points"),
)

if __name__ == "__main__":
    main("fig_lambda_eps")
