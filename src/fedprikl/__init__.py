"""Federated, differentially private estimation of the KL divergence D(Pi || P).

import fedprikl as fk

reference = fk.Reference.fit(public_frame)
planned = fk.plan(reference, clients=500, records=60_000, epsilon=1.0)
points = fk.distinct_points(reference.probabilities, 250, rng=rng)
counts = fk.BatchCounts(points, summed_counts, number_of_records)
estimate = fk.trusted_aggregator(counts, epsilon=1.0)
"""

from importlib.metadata import version

from fedprikl.divergence import (
    Additive,
    Floor,
    Score,
    Skew,
    Unsmoothed,
    kl_divergence,
    skewed_divergence,
)
from fedprikl.errors import (
    BudgetExceededError,
    FedPriKLError,
    InvalidInputError,
    LedgerDamagedError,
    LedgerError,
    MissingExtraError,
    PaperCalibrationWarning,
    PolicyRefusal,
    ReferenceFileError,
    ReleaseRefused,
    UnboundedSensitivityError,
)
from fedprikl.estimation import BatchCounts, Estimate, Verdict, trusted_aggregator
from fedprikl.paper import baseline, no_privacy
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.planner import plan_round as plan
from fedprikl.privacy import InsecureSeededNoise, Ledger, PrivacyStatement, SecureNoise
from fedprikl.reference import (
    BlockCode,
    Correlation,
    QueryPoints,
    Reference,
    all_points,
    distinct_points,
    iid_points,
    spread_points,
)

__version__ = version("fedprikl")

__all__ = [
    "Additive",
    "BatchCounts",
    "BlockCode",
    "BudgetExceededError",
    "Correlation",
    "Estimate",
    "FedPriKLError",
    "Floor",
    "InsecureSeededNoise",
    "InvalidInputError",
    "Ledger",
    "LedgerDamagedError",
    "LedgerError",
    "MissingExtraError",
    "PaperCalibrationWarning",
    "PlannedRound",
    "PolicyRefusal",
    "PrivacyStatement",
    "QueryPoints",
    "Reference",
    "ReferenceFileError",
    "ReleaseRefused",
    "Score",
    "SecureNoise",
    "Skew",
    "UnboundedSensitivityError",
    "Unsmoothed",
    "Verdict",
    "__version__",
    "all_points",
    "baseline",
    "distinct_points",
    "iid_points",
    "kl_divergence",
    "no_privacy",
    "plan",
    "skewed_divergence",
    "spread_points",
    "trusted_aggregator",
]
