"""A plan as tasks of a DAP service. Beside the package: no command of fedprikl uses it.

Why, and when to use one, is in docs/decisions/0023-when-to-use-dap.md.
"""

from contrib.dap.aggregator_noise import AggregatorNoise
from contrib.dap.dap_task import DapTask, Proof, dap_task, dap_tasks
from contrib.dap.prio3 import Prio3, Prio3Histogram, Prio3L1BoundSum, Prio3SumVec
from contrib.dap.report_size import ProofSize, ReportSize, best_chunk_length
from contrib.dap.timing import Interval, Timing

__all__ = [
    "AggregatorNoise",
    "DapTask",
    "Interval",
    "Prio3",
    "Prio3Histogram",
    "Prio3L1BoundSum",
    "Prio3SumVec",
    "Proof",
    "ProofSize",
    "ReportSize",
    "Timing",
    "best_chunk_length",
    "dap_task",
    "dap_tasks",
]
