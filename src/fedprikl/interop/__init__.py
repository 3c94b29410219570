"""Interop: a plan in the words of other systems. Here, tasks of a DAP service.

Why, and when to use one, is in docs/decisions/0023-when-to-use-dap.md.
"""

from fedprikl.interop.aggregator_noise import AggregatorNoise
from fedprikl.interop.dap_task import DapTask, Proof, dap_task, dap_tasks
from fedprikl.interop.prio3 import Prio3, Prio3Histogram, Prio3L1BoundSum, Prio3SumVec
from fedprikl.interop.report_size import ProofSize, ReportSize, best_chunk_length
from fedprikl.interop.timing import Interval, Timing

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
