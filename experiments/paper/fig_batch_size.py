"""fig:Ct: error against lambda at epsilon 0.5, batches of 71 (2%) and 358 (10%) of the clients."""

from dataclasses import replace

from experiments.paper.fig_lambda_eps import CONTROLS
from experiments.paper.jobs import main
from experiments.paper.plots import lambda_figure
from experiments.paper.sweeps import LINES, OUR_LINES, Row, Sweep

BATCHES = {71: 50, 358: 10}  # |C_t| of 3,579 clients: T
OWN_BATCHES = ("ours, 10 counts", "ours, up to 250 counts")  # chosen by us, whatever |C_t|

JOB = Sweep(
    name="fig_batch_size",
    rows=tuple(
        Row(
            line=line,
            panel=str(clients),
            x=control,
            setting=replace(
                setting,
                epsilon=0.5,
                control=control,
                batches=OUR_LINES[line].batches if line in OWN_BATCHES else batches,
            ),
        )
        for clients, batches in BATCHES.items()
        for line, setting in LINES.items()
        for control in CONTROLS
    ),
    picture=lambda_figure("|C_t| = {}, ", "m = 10 points"),
)

if __name__ == "__main__":
    main("fig_batch_size")
