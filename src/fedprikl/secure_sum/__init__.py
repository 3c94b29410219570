"""Secure sums: the aggregator learns the sum of a cohort's vectors and nothing else.

Start with `run_sum.py`, the whole protocol on one page, and docs/secure-sum.md.
"""

from fedprikl.secure_sum.run_sum import Leaves, secure_sum
from fedprikl.secure_sum.sum_aggregator import AggregatorStep, SumAggregator, SumResult
from fedprikl.secure_sum.sum_client import ClientRules, ClientStep, SumClient
from fedprikl.secure_sum.sum_keys import SEED_BYTES
from fedprikl.secure_sum.sum_plan import (
    DEFAULT_FAILURE,
    NONCE_BYTES,
    Degree,
    SumPlan,
    choose_degree,
    plan_sum,
)

__all__ = [
    "DEFAULT_FAILURE",
    "NONCE_BYTES",
    "SEED_BYTES",
    "AggregatorStep",
    "ClientRules",
    "ClientStep",
    "Degree",
    "Leaves",
    "SumAggregator",
    "SumClient",
    "SumPlan",
    "SumResult",
    "choose_degree",
    "plan_sum",
    "secure_sum",
]
