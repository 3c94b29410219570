"""The noise of a trusted aggregator: which mechanism answers which questions, and its budget."""

import math
from dataclasses import dataclass

from fedprikl.privacy import (
    Calibrated,
    Charge,
    InverseSensitivityMechanism,
    NoiseKind,
    calibrate_integer,
    share_out,
)
from fedprikl.privacy.integer_gaussian import IntegerGaussianMechanism
from fedprikl.privacy.integer_laplace import IntegerLaplaceMechanism
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question

__all__ = ["AdaptiveNoise", "CountsNoise", "QuestionNoise", "ValueNoise", "noises_of"]


@dataclass(frozen=True, eq=False)
class ValueNoise:
    """Laplace or Gaussian noise on the answer to one question."""

    questions: tuple[Question, ...]
    calibrated: Calibrated

    @property
    def charge(self) -> Charge:
        """What the ledger reserves."""
        return self.calibrated.charge


@dataclass(frozen=True, eq=False)
class AdaptiveNoise:
    """The inverse sensitivity mechanism on the answer to one question."""

    questions: tuple[Question, ...]
    charge: InverseSensitivityMechanism


@dataclass(frozen=True, eq=False)
class CountsNoise:
    """Integer noise on every count, from which all these questions are answered."""

    questions: tuple[Question, ...]
    charge: IntegerLaplaceMechanism | IntegerGaussianMechanism
    epsilon: float
    delta: float


QuestionNoise = ValueNoise | AdaptiveNoise | CountsNoise


def noises_of(plan: Plan) -> tuple[QuestionNoise, ...]:
    """One mechanism for each question, and one for all that are read off noisy counts.

    Each has its share of the plan's epsilon and delta; together they never exceed the whole.
    """
    alone = [(question,) for question in plan.questions if question.release != "counts"]
    counted = tuple(question for question in plan.questions if question.release == "counts")
    groups = [*alone, counted] if counted else alone
    shares = [math.fsum(question.share for question in group) for group in groups]
    epsilons, deltas = share_out(plan.epsilon, shares), share_out(plan.delta, shares)
    return tuple(
        _noise(group, epsilon, delta, plan.noise)
        for group, epsilon, delta in zip(groups, epsilons, deltas, strict=True)
    )


def _noise(
    group: tuple[Question, ...], epsilon: float, delta: float, kind: NoiseKind
) -> QuestionNoise:
    match group[0].release:
        case "value":
            return ValueNoise(group, Calibrated(epsilon, delta, kind))
        case "adaptive":
            return AdaptiveNoise(group, InverseSensitivityMechanism(epsilon=epsilon))
        case "counts":
            mechanism = calibrate_integer(epsilon=epsilon, delta=delta, kind=kind)
            return CountsNoise(group, mechanism, epsilon, delta)
