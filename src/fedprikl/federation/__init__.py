"""Federation: the paper's parties and their messages. Start with `run.py`."""

from fedprikl.federation.aggregator import Aggregator, Outcome
from fedprikl.federation.client import Client
from fedprikl.federation.conductor import Conductor, StepCount, seal_answer, seal_refusal
from fedprikl.federation.csv_files import CsvFormat
from fedprikl.federation.fitting import fit_reference
from fedprikl.federation.keys import SigningKey
from fedprikl.federation.plan import Plan, SignedPlan
from fedprikl.federation.planned_round import PlannedRound
from fedprikl.federation.planner import plan_round
from fedprikl.federation.policy import Policy, check_roster, check_validity
from fedprikl.federation.records import (
    CountedClients,
    FileRecords,
    FrameRecords,
    RecordCounts,
    Records,
    count_all,
    open_records,
)
from fedprikl.federation.release import Release
from fedprikl.federation.roll_call import RollCall, introduce
from fedprikl.federation.roster import Roster
from fedprikl.federation.round import Cohort, Invitation, Round, smallest_cohort
from fedprikl.federation.run import RoundResult, run_round
from fedprikl.federation.sealing import Address, SealingKey
from fedprikl.federation.seat import Seat, Step
from fedprikl.federation.server import Server

__all__ = [
    "Address",
    "Aggregator",
    "Client",
    "Cohort",
    "Conductor",
    "CountedClients",
    "CsvFormat",
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
    "RollCall",
    "Roster",
    "Round",
    "RoundResult",
    "SealingKey",
    "Seat",
    "Server",
    "SignedPlan",
    "SigningKey",
    "Step",
    "StepCount",
    "check_roster",
    "check_validity",
    "count_all",
    "fit_reference",
    "introduce",
    "open_records",
    "plan_round",
    "run_round",
    "seal_answer",
    "seal_refusal",
    "smallest_cohort",
]
