"""A question: what is asked about which views, and what of the answer is released. Public."""

import math
from dataclasses import dataclass
from typing import Literal

from fedprikl.checks import check_finite, check_open_unit, check_positive_int
from fedprikl.divergence import Score, Skew, check_skew, divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import Counts, Numbers, check_law

ReleaseOption = Literal["value", "adaptive", "looked", "counts"]
ADAPTIVE = ("kl",)  # divergences with adaptive noise
OWN_NOISE = ("adaptive", "looked")  # release options of these divergences only
LARGEST_STEP = 1e6  # beyond, a clipped score overflows
Columns = tuple[str, ...]  # of a view: none of them for the whole joint domain
WHOLE: Columns = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedView:
    """A view that a plan asks about: how many of its cells each client counts.

    The whole joint domain is the view without columns. Of the whole, a cell x is asked of a share
    of the batches in proportion to Pi(x)^exponent; of all other views every cell is asked.

    >>> AskedView(points=100), AskedView(columns=("age",), points=10).name
    (AskedView(columns=(), points=100, exponent=1.0), 'age')
    """

    columns: Columns = WHOLE  # none, one, or a pair
    points: int  # m   counts each client reports of it
    exponent: float = 1.0

    def __post_init__(self) -> None:
        if len(self.columns) > 2 or len(set(self.columns)) < len(self.columns):
            raise InvalidInputError(
                "A view is the whole, a column, or a pair of different columns."
            )
        if not all(self.columns):
            raise InvalidInputError("A column of a view has a name.")
        check_positive_int(self.points, "points")
        if not 0 <= check_finite(self.exponent, "exponent") <= 1:
            raise InvalidInputError("The exponent of the points lies between 0 and 1.")
        if self.columns and self.exponent != 1:
            raise InvalidInputError(
                "Every cell of a column is asked, so its exponent stays 1: leave it out."
            )

    @property
    def name(self) -> str:
        """The column's name; of a pair, both."""
        return " and ".join(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A rough number that is released first, and from where on additive noise follows it."""

    share: float  # of the question's epsilon
    switch: float  # in the unit of the divergence

    def __post_init__(self) -> None:
        check_open_unit(self.share, "share of a look", "Use 0.12 for an eighth of the budget.")
        check_finite(self.switch, "switch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a release says about each of some views, with one number per view.

        D_f(Pi || skew Pi + (1 - skew) P)

    over the cells of a view. `release` says what leaves the aggregator: a "value" with Laplace or
    Gaussian noise, a value with "adaptive" noise, a value whose noise a `look` has chosen
    ("looked"), or noisy "counts", from which the answer is read off. Questions about the same views
    that are read off noisy counts share them. `share` is the question's part of epsilon and delta.
    `maximum_step` limits how far one record may lower a value, so that less noise is needed.

    >>> from fedprikl.protocol import Question
    >>> question = Question(skew=0.02)
    >>> question.divergence, question.views, question.target
    ('kl', ((),), 'D(Pi || 0.02 Pi + 0.98 P)')
    """

    divergence: str = "kl"
    views: tuple[Columns, ...] = (WHOLE,)  # as the plan names them
    share: float = 1.0  # of the plan's budget
    skew: float = 0.01  # gamma, share of Pi mixed into P so that the divergence stays finite
    maximum_step: float | None = None  # c, in the unit of the divergence; None: no limit
    release: ReleaseOption = "value"
    noise: str = "auto"  # law of the noise; "auto": whichever is smaller
    look: Look | None = None  # where the release option is "looked"

    def __post_init__(self) -> None:
        divergence = divergence_named(self.divergence)
        check_law(self.noise, on=Counts if self.release == "counts" else Numbers)
        if not 0 < check_finite(self.share, "share") <= 1:
            raise InvalidInputError("A question's share of the budget is above 0 and at most 1.")
        if divergence.empty(check_skew(self.skew)) == math.inf:
            raise InvalidInputError(
                f"The divergence {self.divergence!r} is infinite where a cell vanishes, so its "
                "skew must be above 0; try 0.01."
            )
        if self.maximum_step is not None and not (
            0 < check_finite(self.maximum_step, "maximum_step") <= LARGEST_STEP
        ):
            raise InvalidInputError(f"The maximum step is above 0 and at most {LARGEST_STEP:g}.")
        if (self.release == "looked") is (self.look is None):
            raise InvalidInputError("A question has a look if, and only if, release='looked'.")
        if self.release in OWN_NOISE and self.divergence not in ADAPTIVE:
            raise InvalidInputError(
                f"There is adaptive noise for {' and '.join(ADAPTIVE)} only, not for "
                f"{self.divergence!r:.40}; use release='value'."
            )
        if not self.of_whole and (self.release in OWN_NOISE or self.maximum_step is not None):
            raise InvalidInputError(
                "Adaptive noise and a maximum step are for questions about the whole: ask about "
                "columns with release='value' or 'counts'."
            )

    @property
    def of_whole(self) -> bool:
        """Whether it is about the whole joint domain."""
        return self.views == (WHOLE,)

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


def view_score(divergence: str) -> Score:
    """Of counts that everybody was asked, with the recommended skew: nothing is corrected."""
    skew = divergence_named(divergence).skew
    return Question(divergence=divergence, skew=skew).score(correction=0.0, limited=False)
