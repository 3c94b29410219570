"""A question: which divergence of the whole is estimated, and from how many counts. Public."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from fedprikl.checks import check_finite, check_open_unit, check_positive_int
from fedprikl.divergence import Score, Skew, check_skew, divergence_named
from fedprikl.errors import InvalidInputError

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


Control = Literal["family", "discovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnQuestions:
    """A question about each view: one column, or a pair of columns.

    Every view has all its cells counted. Of the plan's epsilon and delta, a trusted aggregator
    spends the shares `tv` and `js` on a vector of these divergences, one number per view, for the
    verdicts, and the share `counts` on noisy counts, for sizes and cells. Where nobody is trusted
    everything is read off the noisy counts.

    `control` says what the plan's false-alarm rate is about: the "family" of all columns (the
    probability that any column without drift is called drifted), or "discovery" (the expected
    share of such columns among those called drifted).

    >>> views = (("age",), ("plan",))
    >>> asked = ColumnQuestions(views=views, sizes=(10, 3), tv=0.1, js=0.1, counts=0.3)
    >>> round(asked.share, 6), asked.counted
    (0.5, 13)
    >>> ColumnQuestions.from_dict(asked.to_dict()) == asked
    True
    """

    views: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]  # counts each client reports, of each view
    tv: float = 0.0  # share of the plan's budget
    js: float = 0.0
    counts: float
    control: Control = "family"
    false_discovery: float = 0.1  # share of cells called moved that have not

    def __post_init__(self) -> None:
        self._check_views()
        for name in ("tv", "js", "counts"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float):
                raise InvalidInputError(f"{name} of a plan must be a number, got {share!r:.40}.")
            if not 0 <= check_finite(share, name) <= 1:
                raise InvalidInputError(f"The share {name!r} of the columns lies in 0 .. 1.")
        if self.counts <= 0:
            raise InvalidInputError("The columns' noisy counts need a share of the budget.")
        if self.control not in get_args(Control):
            raise InvalidInputError(
                f"False alarms are controlled over the 'family' or by 'discovery', got "
                f"{self.control!r:.40}."
            )
        check_open_unit(self.false_discovery, "false_discovery", "Use 0.1 for one cell in ten.")

    def _check_views(self) -> None:
        for view in self.views:
            named = isinstance(view, tuple) and all(isinstance(c, str) and c for c in view)
            if not named or not 1 <= len(view) <= 2 or len(set(view)) < len(view):
                raise InvalidInputError("A view is a column, or a pair of different columns.")
        if not self.views or len(set(self.views)) < len(self.views):
            raise InvalidInputError("Questions about columns name at least one, each once.")
        if not isinstance(self.sizes, tuple) or len(self.sizes) != len(self.views):
            raise InvalidInputError("Questions about columns need the number of counts of each.")
        for size in self.sizes:
            check_positive_int(size, "sizes")

    @property
    def share(self) -> float:
        """Of the plan's budget."""
        return math.fsum((self.tv, self.js, self.counts))

    @property
    def counted(self) -> int:
        """Counts each client reports, for all views."""
        return sum(self.sizes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return content | {"views": [list(view) for view in self.views], "sizes": list(self.sizes)}

    @classmethod
    def from_dict(cls, document: Any) -> "ColumnQuestions":
        """The questions of a document; unknown or missing fields are refused."""
        names = {field.name for field in fields(cls)}
        if not isinstance(document, dict) or set(document) != names:
            raise InvalidInputError("The questions about columns have missing or unknown fields.")
        views, sizes = document["views"], document["sizes"]
        if not isinstance(sizes, list) or not (
            isinstance(views, list) and all(isinstance(view, list) for view in views)
        ):
            raise InvalidInputError("The views and sizes of a plan are lists.")
        read = {"views": tuple(tuple(view) for view in views), "sizes": tuple(sizes)}
        return cls(**document | read)
