"""Federation: the paper's parties and their messages. Start with `run.py`."""

from fedprikl.federation.aggregator import Aggregator, Outcome
from fedprikl.federation.client import Client
from fedprikl.federation.fitting import fit_reference
from fedprikl.federation.keys import SigningKey
from fedprikl.federation.plan import Plan, SignedPlan
from fedprikl.federation.planner import PlannedRound, plan_round
from fedprikl.federation.policy import Policy
from fedprikl.federation.records import (
    FileRecords,
    FrameRecords,
    RecordCounts,
    Records,
    open_records,
)
from fedprikl.federation.release import Release
from fedprikl.federation.round import Cohort, Invitation, Round
from fedprikl.federation.run import RoundResult, run_round
from fedprikl.federation.server import Server

__all__ = [
    "Aggregator",
    "Client",
    "Cohort",
    "FileRecords",
    "FrameRecords",
    "Invitation",
    "Outcome",
    "Plan",
    "PlannedRound",
    "Policy",
    "RecordCounts",
    "Records",
    "Release",
    "Round",
    "RoundResult",
    "Server",
    "SignedPlan",
    "SigningKey",
    "fit_reference",
    "open_records",
    "plan_round",
    "run_round",
]
