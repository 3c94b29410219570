"""What a plan asks about every column, beside what it asks about the whole. Public."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from fedprikl.checks import check_finite, check_open_unit, check_positive_int
from fedprikl.errors import InvalidInputError

__all__ = ["ColumnQuestions", "Control"]

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
