"""What the planner hands over: a plan, what it is predicted to achieve, what it costs, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprikl.divergence import divergence_named
from fedprikl.documents import readable
from fedprikl.estimation import Forecast, mean_error
from fedprikl.planning.explain import Reason
from fedprikl.protocol.plan import Plan, SignedPlan
from fedprikl.secure_sum import SumPlan
from fedprikl.whole_files import write_whole

__all__ = ["PlannedRound", "SumCost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumCost:
    """What the secure sums cost. Bytes are exact up to some fixed headers."""

    cohorts: int
    clients: int  # of the largest cohort
    neighbours: int  # key agreements of each client
    masked_bytes: int  # the counts themselves
    sent_bytes: int  # by one client in all
    received_bytes: int

    @classmethod
    def of(cls, sums: SumPlan, cohorts: int) -> "SumCost":
        """Per neighbour: 92 bytes of sealed shares, 20 of a tag, 40 of revealed shares sent, and
        164 of keys, 92 and 20 received (docs/secure-sum.md).
        """
        packed = sums.ring().packed_bytes
        return cls(
            cohorts=cohorts,
            clients=sums.clients,
            neighbours=sums.neighbours,
            masked_bytes=packed,
            sent_bytes=152 * sums.neighbours + packed,
            received_bytes=276 * sums.neighbours,
        )

    def to_dict(self) -> dict[str, int]:
        """Plain values for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class PlannedRound:
    """A plan, what it is predicted to achieve, what it costs and why it is as it is.

    `error` is the root mean square over the assumed drifts of the predicted error

        E (estimate - D)^2 = bias^2 + sampling variance + noise variance

    `fedprikl.plan` makes it, and `fedprikl.compare` takes it.

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([500, 300, 200])
    >>> planned = fk.plan(reference, clients=100, records=10_000, epsilon=1)
    >>> planned.plan.epsilon
    1
    >>> planned  # doctest: +ELLIPSIS
    <PlannedRound of 'clients': 3 cells, epsilon 1, predicted error ...>
    >>> planned.cost.masked_bytes <= 1024
    True
    >>> 0 < planned.smallest_drift < 0.1
    True
    """

    plan: Plan
    releases: int
    forecasts: tuple[Forecast, ...]  # one per assumed drift
    cost: SumCost
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...] = ()  # what its promises rest on and nobody has said
    find_smallest: Callable[[], float | None]
    find_doublings: Callable[[], dict[str, float]]

    @property
    def error(self) -> float:
        """Root mean square of the predicted errors over the assumed drifts."""
        return mean_error(self.forecasts)

    @property
    def smallest_drift(self) -> float | None:
        """The least drift that the verdict finds with 95% power; None if none is.

        Computed when asked for, like `doublings` (tenths of a second).
        """
        return self.find_smallest()

    @property
    def doublings(self) -> dict[str, float]:
        """The predicted error with twice the payload, and with twice the epsilon."""
        return self.find_doublings()

    def save(self, path: str | Path) -> None:
        """Writes the plan, unsigned; `fedprikl.compare` and `fedprikl estimate` read it."""
        write_whole(Path(path), readable(SignedPlan(self.plan).to_dict()))

    def __str__(self) -> str:
        plan = self.plan
        groups = "" if plan.batches == 1 else f" of each of {plan.batches} batches of clients"
        each = f"Each of {self.releases} releases" if self.releases > 1 else "The release"
        unit = divergence_named(plan.question.divergence).unit
        error = f"{self.error:.3g} {unit}".rstrip()
        return (
            f"{plan.question.points:,} cells are asked{groups}: {self.cost.masked_bytes:,} bytes "
            f"of counts per client.\n{each} spends epsilon {plan.epsilon:.3g} of the budget of "
            f"{plan.population!r}.\nPredicted error: {error}."
        )

    def __repr__(self) -> str:
        return (
            f"<PlannedRound of {self.plan.population!r}: {self.plan.question.points:,} cells, "
            f"epsilon {self.plan.epsilon:.3g}, predicted error {self.error:.3g}>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "plan": self.plan.to_dict(),
            "releases": self.releases,
            "predicted_error": self.error,
            "forecasts": [forecast.to_dict() for forecast in self.forecasts],
            "smallest_drift": self.smallest_drift,
            "payload_bytes": self.cost.masked_bytes,
            "secure_sums": self.cost.to_dict(),
            "error_with_twice_the": self.doublings,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "notes": list(self.notes),
        }
