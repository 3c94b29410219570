"""A question: which divergence of the whole is estimated, and from how many counts. Public."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from fedprikl.checks import check_finite, check_positive_int
from fedprikl.divergence import Score, Skew, check_skew, divergence_named
from fedprikl.errors import InvalidInputError

__all__ = ["HowReleased", "Question"]

HowReleased = Literal["value", "adaptive", "counts"]
ADAPTIVE = ("kl",)  # divergences with adaptive noise

LARGEST_STEP = 1e6  # beyond, a clipped score overflows
NUMBERS = ("share", "exponent", "skew", "maximum_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a release answers with one number.

        D_f(Pi || skew Pi + (1 - skew) P)

    over the cells of the domain, from the counts of `points` cells that are asked of each client.
    A cell x is asked of a share of the batches in proportion to Pi(x)^exponent. `maximum_step`
    limits how far one record may lower the estimate, so that less noise is needed. `release` says
    what leaves the aggregator: a "value" with Laplace or Gaussian noise, a value with "adaptive"
    noise, or noisy "counts", from which the answer is read off. `share` is the question's part of
    epsilon and delta.

    Examples
    --------
    >>> from fedprikl.protocol import Question
    >>> question = Question(points=100, skew=0.02)
    >>> question.divergence, question.exponent
    ('kl', 1.0)
    >>> Question.from_dict(question.to_dict()) == question
    True

    """

    divergence: str = "kl"
    share: float = 1.0  # of the plan's budget
    points: int  # m   counts each client reports
    exponent: float = 1.0
    skew: float = 0.01  # gamma, share of Pi mixed into P so that the divergence stays finite
    maximum_step: float | None = None  # c, in the unit of the divergence; None: no limit
    release: HowReleased = "value"

    def __post_init__(self) -> None:
        for name in NUMBERS:  # a text would be signed as a text and used as a number
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise InvalidInputError(f"{name} of a plan must be a number, got {value!r:.40}.")
        divergence = divergence_named(self.divergence)
        if not 0 < check_finite(self.share, "share") <= 1:
            raise InvalidInputError("A question's share of the budget is above 0 and at most 1.")
        check_positive_int(self.points, "points")
        if not 0 <= check_finite(self.exponent, "exponent") <= 1:
            raise InvalidInputError("The exponent of the points lies between 0 and 1.")
        if divergence.empty(check_skew(self.skew)) == math.inf:
            raise InvalidInputError(
                f"The divergence {self.divergence!r} is infinite where a cell vanishes, so its "
                "skew must be above 0; try 0.01."
            )
        if self.maximum_step is not None and not (
            0 < check_finite(self.maximum_step, "maximum_step") <= LARGEST_STEP
        ):
            raise InvalidInputError(f"The maximum step is above 0 and at most {LARGEST_STEP:g}.")
        if self.release not in get_args(HowReleased):
            raise InvalidInputError(
                f"An answer is released as 'value', 'adaptive' or 'counts', got "
                f"{self.release!r:.40}."
            )
        if self.release == "adaptive" and self.divergence not in ADAPTIVE:
            raise InvalidInputError(
                f"There is adaptive noise for {' and '.join(ADAPTIVE)} only, not for "
                f"{self.divergence!r:.40}; use release='value'."
            )

    def score(self, *, correction: float, limited: bool) -> Score:
        """The score of a count: the plan's one formula, which depends on trust in two places.

        `correction` is 0 where counts are noisy, else the design effect of clients; `limited` says
        whether the maximum step holds, which noisy counts do not need.
        """
        step = self.maximum_step if limited else None
        return Score(
            Skew(self.skew),
            divergence_named(self.divergence),
            correction=correction,
            maximum_step=math.inf if step is None else step,
        )

    @property
    def target(self) -> str:
        """What is estimated, as a formula."""
        return self.score(correction=0.0, limited=False).target

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, document: Any) -> "Question":
        """The question of a document; unknown or missing fields are refused."""
        if not isinstance(document, dict):
            raise InvalidInputError("A question of the plan is not an object with fields.")
        names = {field.name for field in fields(cls)}
        if set(document) != names:
            odd = ", ".join(sorted(map(str, set(document) ^ names)))
            raise InvalidInputError(f"A question has missing or unknown fields: {odd}.")
        return cls(**document)
