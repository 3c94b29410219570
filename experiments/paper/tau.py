"""How much the baseline depends on tau, the floor of noisy frequencies, which is not printed.

At epsilon 1 for every lambda over all pairs, and for the paper's three pairs at lambda = -1.
"""

from dataclasses import replace

from experiments.paper.fig_lambda_eps import CONTROLS
from experiments.paper.jobs import main
from experiments.paper.sweeps import PAPER_LINES, Row, Sweep
from experiments.paper.world import THREE_PAIRS
from fedprikl.divergence import Floor

TAUS = (1e-6, 1e-5, 1e-4, 1e-3)
EPSILONS = (0.5, 1.0, 1.5)
BASELINE = PAPER_LINES["baseline"]

JOB = Sweep(
    name="tau",
    rows=(
        *(
            Row(
                line=f"{tau:g}",
                panel="all",
                x=control,
                setting=replace(BASELINE, control=control, smoothing=Floor(tau)),
            )
            for tau in TAUS
            for control in CONTROLS
        ),
        *(
            Row(
                line=f"{tau:g}",
                panel=f"{pair[0]},{pair[1]}",
                x=epsilon,
                setting=replace(BASELINE, epsilon=epsilon, smoothing=Floor(tau)),
                pairs=(pair,),
            )
            for tau in TAUS
            for pair in THREE_PAIRS
            for epsilon in EPSILONS
        ),
    ),
)

if __name__ == "__main__":
    main("tau")
