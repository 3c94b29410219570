"""How right the demo is: what a release says of each column, beside the truth."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedprikl.divergence import divergence_named, skewed_divergence
from fedprikl.protocol import Release
from fedprikl.protocol.column_answer import ColumnAnswer
from fedprikl.reference import Reference
from fedprikl.simulation.demo_table import DRIFTED, FlightTable

__all__ = ["OUTCOMES", "JudgedColumn", "Outcome", "judge"]

Outcome = Literal["found", "missed", "falsely called", "left alone"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
SIZES = ("tv", "kl")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedColumn:
    """One column: whether it was made to drift, how far its records are, and what was released."""

    answer: ColumnAnswer
    made_to_drift: bool
    truth: Mapping[str, float]  # divergence -> that of all records counted, without noise

    @property
    def outcome(self) -> Outcome:
        """How right the verdict is."""
        if self.answer.drifted:
            return "found" if self.made_to_drift else "falsely called"
        return "missed" if self.made_to_drift else "left alone"

    def covered(self, divergence: str) -> bool | None:
        """Whether the interval holds the true size; None without one."""
        found = self.answer.answer(divergence)
        if found is None or found.interval is None:
            return None
        return found.interval[0] <= self.truth[divergence] <= found.interval[1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        sizes = {
            found.divergence: {
                "value": found.value,
                "interval": found.interval and list(found.interval),
                "no_drift": found.no_drift,
                "truth": self.truth[found.divergence],
                "covered": self.covered(found.divergence),
            }
            for found in self.answer.answers
            if found.divergence in SIZES
        }
        return {
            "column": self.answer.name,
            "made_to_drift": self.made_to_drift,
            "drifted": self.answer.drifted,
            "outcome": self.outcome,
            **sizes,
        }


def judge(
    table: FlightTable, reference: Reference, release: Release, *, vanished: Collection[str]
) -> tuple[JudgedColumn, ...]:
    """Every column of the release beside the truth about those who had not `vanished`."""
    judged = []
    for column in release.columns:
        pi, p = table.shares(reference, column.name, without=vanished)
        truth = {
            name: skewed_divergence(pi, p, skew=kind.skew, divergence=kind)
            for name in SIZES
            if (kind := divergence_named(name))
        }
        drifted = column.name in DRIFTED
        judged.append(JudgedColumn(answer=column, made_to_drift=drifted, truth=truth))
    return tuple(judged)
