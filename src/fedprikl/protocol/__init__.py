"""Protocol: the parties, their messages and one round. Start with `run.py`.

What the server and the aggregator need beside the rest is imported when it is first asked for: a
client loads no estimation.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fedprikl.protocol.client import Client, ClientSession, Policy, draw_of
from fedprikl.protocol.keys import Roster, SealingKey, SigningKey
from fedprikl.protocol.plan import (
    Budget,
    OneRecord,
    Plan,
    SignedPlan,
    SumRules,
    Validity,
    VerdictRules,
    WholeClient,
)
from fedprikl.protocol.question import AskedView, Look, Question
from fedprikl.protocol.round import (
    IdentityCheck,
    Invitation,
    Outcome,
    Reply,
    Round,
    Step,
    Transport,
)
from fedprikl.protocol.series import Once, Series
from fedprikl.protocol.servers import Servers
from fedprikl.protocol.sums import trust_of

if TYPE_CHECKING:
    from fedprikl.estimation import Answer
    from fedprikl.protocol.aggregator import Aggregator, RoundDriver, StepCount
    from fedprikl.protocol.noised_round import NoisedRound, finish_round
    from fedprikl.protocol.release import ColumnAnswer, Release, ReleasedPeriod
    from fedprikl.protocol.run import InMemoryTransport, RoundResult, Server, run_round

__all__ = [
    "Aggregator",
    "Answer",
    "AskedView",
    "Budget",
    "Client",
    "ClientSession",
    "ColumnAnswer",
    "IdentityCheck",
    "InMemoryTransport",
    "Invitation",
    "Look",
    "NoisedRound",
    "Once",
    "OneRecord",
    "Outcome",
    "Plan",
    "Policy",
    "Question",
    "Release",
    "ReleasedPeriod",
    "Reply",
    "Roster",
    "Round",
    "RoundDriver",
    "RoundResult",
    "SealingKey",
    "Series",
    "Server",
    "Servers",
    "SignedPlan",
    "SigningKey",
    "Step",
    "StepCount",
    "SumRules",
    "Transport",
    "Validity",
    "VerdictRules",
    "WholeClient",
    "draw_of",
    "finish_round",
    "run_round",
    "trust_of",
]

_LATER = {
    "aggregator": ("Aggregator", "RoundDriver", "StepCount"),
    "noised_round": ("NoisedRound", "finish_round"),
    "release": ("Answer", "ColumnAnswer", "Release", "ReleasedPeriod"),
    "run": ("InMemoryTransport", "RoundResult", "Server", "run_round"),
}

if not TYPE_CHECKING:  # so that type checkers refuse names that are not listed above

    def __getattr__(name: str) -> object:
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"fedprikl.protocol.{module}"), name)
        raise AttributeError(f"module 'fedprikl.protocol' has no attribute {name!r}")
