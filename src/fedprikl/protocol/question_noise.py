"""The noise of a trusted aggregator: which mechanism answers which questions, and its budget."""

import math
from dataclasses import dataclass

from fedprikl.privacy import (
    Calibrated,
    Charge,
    Counts,
    InverseSensitivityMechanism,
    Mechanism,
    Numbers,
    calibrate,
    share_out,
)
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question


@dataclass(frozen=True, eq=False)
class ValueNoise:
    """Laplace or Gaussian noise on the answer to one question."""

    questions: tuple[Question, ...]
    calibrated: Calibrated

    @property
    def charge(self) -> Charge:
        """What the ledger reserves."""
        charge: Charge = self.calibrated.charge
        return charge


@dataclass(frozen=True, eq=False)
class AdaptiveNoise:
    """The inverse sensitivity mechanism on the answer to one question."""

    questions: tuple[Question, ...]
    charge: InverseSensitivityMechanism


@dataclass(frozen=True, eq=False)
class CountsNoise:
    """Integer noise on every count, from which all these questions are answered."""

    questions: tuple[Question, ...]
    charge: Mechanism
    epsilon: float
    delta: float


QuestionNoise = ValueNoise | AdaptiveNoise | CountsNoise


@dataclass(frozen=True, eq=False)
class ColumnsNoise:
    """Noise on a vector of one divergence per view, and integer noise on all counts of views."""

    values: tuple[tuple[str, Calibrated], ...]  # tv and js, where they have a share
    counts: Mechanism
    epsilon: float  # of the counts
    delta: float

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What the ledger reserves."""
        return (*(noise.charge for _, noise in self.values), self.counts)


def noises_of(plan: Plan) -> tuple[tuple[QuestionNoise, ...], ColumnsNoise | None]:
    """One mechanism for each group of questions: of the whole, and of the columns.

    Each has its share of the plan's epsilon and delta; together they never exceed the whole.
    """
    shares = [math.fsum(question.share for question in group) for group in plan.groups]
    budget = plan.budget
    epsilons, deltas = share_out(budget.epsilon, shares), share_out(budget.delta, shares)
    whole: list[QuestionNoise] = []
    values: list[tuple[str, Calibrated]] = []
    columns = None
    for group, epsilon, delta in zip(plan.groups, epsilons, deltas, strict=True):
        first, views = group[0], len(group[0].views)  # a record is in a cell of every view
        if first.of_whole:
            whole.append(_noise(group, epsilon, delta, plan.contribution_bound))
        elif first.release == "value":
            noise = Calibrated(Numbers(coordinates=views), epsilon, delta)
            values.append((first.divergence, noise))
        else:
            on = Counts(2 * views, plan.contribution_bound)
            counts = calibrate(on, epsilon=epsilon, delta=delta, law=first.noise)
            columns = ColumnsNoise(tuple(values), counts, epsilon, delta)
    return tuple(whole), columns


def _noise(
    group: tuple[Question, ...], epsilon: float, delta: float, contribution: int
) -> QuestionNoise:
    law = group[0].noise
    match group[0].release:
        case "value":
            return ValueNoise(group, Calibrated(Numbers(), epsilon, delta, law))
        case "adaptive":
            return AdaptiveNoise(group, InverseSensitivityMechanism(epsilon=epsilon))
        case "counts":
            on = Counts(contribution=contribution)
            mechanism = calibrate(on, epsilon=epsilon, delta=delta, law=law)
            return CountsNoise(group, mechanism, epsilon, delta)
