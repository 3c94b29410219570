"""All experiments, figures and RESULTS.md: what `make paper` runs."""

from experiments.paper.claims import write_results
from experiments.paper.jobs import main

JOBS = (
    "divergences",
    "costs",
    "fig_lambda_eps",
    "fig_batch_size",
    "fig_m",
    "fig_pairs",
    "treatments",
    "tau",
    "bias",
    "theory",
)

if __name__ == "__main__":
    write_results(main(*JOBS))
