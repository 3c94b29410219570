"""fig:pair: error against epsilon for the paper's closest, median and furthest pair of digits."""

from dataclasses import replace

from experiments.paper.jobs import main
from experiments.paper.plots import pairs_figure
from experiments.paper.sweeps import LINES, Row, Sweep
from experiments.paper.world import THREE_PAIRS

EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5)

JOB = Sweep(
    name="fig_pairs",
    rows=tuple(
        Row(
            line=line,
            panel=f"{pair[0]},{pair[1]}",
            x=epsilon,
            setting=replace(setting, epsilon=epsilon),
            pairs=(pair,),
        )
        for pair in THREE_PAIRS
        for line, setting in LINES.items()
        for epsilon in EPSILONS
    ),
    picture=pairs_figure,
)

if __name__ == "__main__":
    main("fig_pairs")
