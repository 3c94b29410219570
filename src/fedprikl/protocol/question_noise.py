"""The noise of a trusted aggregator: which mechanism answers which questions, and its budget."""

import math
from dataclasses import dataclass

from fedprikl.privacy import (
    Calibrated,
    Charge,
    InverseSensitivityMechanism,
    NoiseKind,
    VectorCalibrated,
    calibrate_integer,
    share_out,
)
from fedprikl.privacy.integer_noise import IntegerGaussianMechanism, IntegerLaplaceMechanism
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question

VALUES = ("tv", "js")  # divergences of each view that are released as numbers


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


@dataclass(frozen=True, eq=False)
class ColumnsNoise:
    """Noise on a vector of one divergence per view, and integer noise on all counts of views."""

    values: tuple[tuple[str, VectorCalibrated], ...]  # tv and js, where they have a share
    counts: IntegerLaplaceMechanism | IntegerGaussianMechanism
    epsilon: float  # of the counts
    delta: float

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What the ledger reserves."""
        return (*(noise.charge for _, noise in self.values), self.counts)


def noises_of(plan: Plan) -> tuple[tuple[QuestionNoise, ...], ColumnsNoise | None]:
    """One mechanism for each question, and one for all that are read off noisy counts; and those
    of the columns.

    Each has its share of the plan's epsilon and delta; together they never exceed the whole.
    """
    alone = [(question,) for question in plan.questions if question.release != "counts"]
    counted = tuple(question for question in plan.questions if question.release == "counts")
    groups = [*alone, counted] if counted else alone
    shares = [math.fsum(question.share for question in group) for group in groups]
    asked = plan.columns
    names = [] if asked is None else [name for name in VALUES if getattr(asked, name) > 0]
    if asked is not None:
        shares += [*(getattr(asked, name) for name in names), asked.counts]
    parts = list(zip(share_out(plan.epsilon, shares), share_out(plan.delta, shares), strict=True))
    of_questions = tuple(
        _noise(group, *part, plan.noise, plan.moved)
        for group, part in zip(groups, parts[: len(groups)], strict=True)
    )
    if asked is None:
        return of_questions, None
    *values, (epsilon, delta) = parts[len(groups) :]
    views = len(asked.views)  # a record moves every one of them
    return of_questions, ColumnsNoise(
        values=tuple(
            (name, VectorCalibrated(*part, coordinates=views))
            for name, part in zip(names, values, strict=True)
        ),
        counts=calibrate_integer(
            epsilon=epsilon, delta=delta, coordinates=2 * views, moved=plan.moved
        ),
        epsilon=epsilon,
        delta=delta,
    )


def _noise(
    group: tuple[Question, ...], epsilon: float, delta: float, kind: NoiseKind, moved: int
) -> QuestionNoise:
    match group[0].release:
        case "value":
            return ValueNoise(group, Calibrated(epsilon, delta, kind))
        case "adaptive":
            return AdaptiveNoise(group, InverseSensitivityMechanism(epsilon=epsilon))
        case "counts":
            mechanism = calibrate_integer(epsilon=epsilon, delta=delta, kind=kind, moved=moved)
            return CountsNoise(group, mechanism, epsilon, delta)
