"""Federated, differentially private drift estimation: D(Pi || P) without collecting records.

>>> import fedprikl as fk
>>> reference = fk.Reference.from_counts([50, 30, 20])  # public; see Reference.fit for frames
>>> planned = fk.plan(reference, clients=3, records=60, epsilon=1)
>>> clients = [[0, 1, 2, 2] * 5 for _ in range(3)]  # private: frames, files or arrays
>>> result = fk.compare(reference, clients, planned, ledger=None)
>>> result.drifted in (True, False)
True
>>> fk.verify(result.release).value == result.value
True

The rest is imported from its package: `fedprikl.estimation`, `fedprikl.privacy`,
`fedprikl.protocol`, `fedprikl.paper` and so on (docs/architecture.md).
"""

TYPE_CHECKING = False  # as type checkers know it, without the cost of importing `typing`

if TYPE_CHECKING:
    from fedprikl.deployment.reporter import report
    from fedprikl.errors import (
        BudgetExceededError,
        FedPriKLError,
        InvalidInputError,
        LedgerError,
        RecordsError,
        ReleaseRefused,
    )
    from fedprikl.front import Comparison, compare, divergence_of, monitor, verify
    from fedprikl.planning.planned_round import PlannedRound
    from fedprikl.planning.planner import plan_round as plan
    from fedprikl.privacy import InsecureSeededNoise, Ledger, PrivacyStatement
    from fedprikl.protocol import Plan, Release, Series, SignedPlan, SigningKey
    from fedprikl.records import CsvFormat, fit_reference
    from fedprikl.reference import Reference

    __version__: str

__all__ = [
    "BudgetExceededError",
    "Comparison",
    "CsvFormat",
    "FedPriKLError",
    "InsecureSeededNoise",
    "InvalidInputError",
    "Ledger",
    "LedgerError",
    "Plan",
    "PlannedRound",
    "PrivacyStatement",
    "RecordsError",
    "Reference",
    "Release",
    "ReleaseRefused",
    "Series",
    "SignedPlan",
    "SigningKey",
    "__version__",
    "compare",
    "divergence_of",
    "fit_reference",
    "monitor",
    "plan",
    "report",
    "verify",
]

# Imported when first asked for: numpy and scipy take seconds, and `fedprikl --help` needs neither.
_HOMES = {
    "BudgetExceededError": "errors",
    "Comparison": "front",
    "CsvFormat": "records",
    "FedPriKLError": "errors",
    "InsecureSeededNoise": "privacy",
    "InvalidInputError": "errors",
    "Ledger": "privacy",
    "LedgerError": "errors",
    "Plan": "protocol",
    "PlannedRound": "planning.planned_round",
    "PrivacyStatement": "privacy",
    "RecordsError": "errors",
    "Reference": "reference",
    "Release": "protocol",
    "ReleaseRefused": "errors",
    "Series": "protocol",
    "SignedPlan": "protocol",
    "SigningKey": "protocol",
    "compare": "front",
    "divergence_of": "front",
    "fit_reference": "records",
    "monitor": "front",
    "plan": "planning.planner:plan_round",
    "report": "deployment.reporter",
    "verify": "front",
}


if not TYPE_CHECKING:  # so that type checkers refuse names that are not listed above

    def __getattr__(name: str) -> object:
        from importlib import import_module, metadata

        if name == "__version__":
            found = metadata.version("fedprikl")
        elif name in _HOMES:
            room, _, inside = _HOMES[name].partition(":")
            found = getattr(import_module(f"fedprikl.{room}"), inside or name)
        else:
            raise AttributeError(f"module 'fedprikl' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
