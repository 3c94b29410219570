"""fig:m: error against the number of points m, at epsilon 0.1 and 1.0."""

from dataclasses import replace

from experiments.paper.jobs import main
from experiments.paper.plots import points_figure
from experiments.paper.sweeps import LINES, Row, Sweep

EPSILONS = (0.1, 1.0)
POINTS = (1, 2, 5, 10, 20, 50, 100)
# Ours is one line here: its payload is the axis.
SHOWN = {
    ("ours" if line == "ours, 10 counts" else line): setting
    for line, setting in LINES.items()
    if line != "ours, up to 250 counts"
}

JOB = Sweep(
    name="fig_m",
    rows=tuple(
        Row(
            line=line,
            panel=f"{epsilon:g}",
            x=points,
            setting=replace(setting, epsilon=epsilon, points=points),
        )
        for epsilon in EPSILONS
        for line, setting in SHOWN.items()
        for points in POINTS
    ),
    picture=points_figure,
)

if __name__ == "__main__":
    main("fig_m")
