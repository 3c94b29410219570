"""What a verdict says: statistics beside their thresholds, and the words that follow. Public."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.statistic import COUNTS, LARGEST_CELL, OUT_OF_DOMAIN

VerdictOutcome = Literal["drift", "none found", "cannot tell"]
WORDS = {
    COUNTS: "the variation of the noisy counts",
    LARGEST_CELL: "the largest deviation of a cell",
    OUT_OF_DOMAIN: "the records with unseen values",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStatistic:
    """A statistic beside the threshold that populations without drift rarely exceed."""

    name: str  # of the divergence, or one of `WORDS`, which are none
    value: float  # within the possible range; noise may have thrown it out of that
    threshold: float  # below the largest possible value
    unit: str  # of both

    @property
    def exceeds(self) -> bool:
        """Whether the statistic is above its threshold."""
        return self.value > self.threshold

    @property
    def ratio(self) -> float:
        """How many times its threshold it is; a threshold of 0 or below is reached or is not."""
        if self.threshold > 0:
            return max(self.value, 0.0) / self.threshold
        return math.inf if self.exceeds else 0.0

    @property
    def times(self) -> str:
        """The ratio with two digits, or with as many as show that it is not 1."""
        digits = 2
        while digits < 17 and float(f"{self.ratio:.{digits}g}") == 1 and self.ratio != 1:
            digits += 1
        return f"{self.ratio:.{digits}g}" if self.ratio < 100 else f"{self.ratio:,.0f}"

    @property
    def words(self) -> str:
        """What is tested, and how many times its threshold it is.

        >>> print(JudgedStatistic(name="tv", value=0.031, threshold=0.022, unit="").words)
        tv (1.4 times its threshold)
        """
        return f"{WORDS.get(self.name, self.name)} ({self.times} times its threshold)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """A total variation that does not matter, and whether there is more (`tolerance.py`).

    >>> Tolerance(tolerated=0.05, value=0.09, threshold=0.07).beyond
    True
    """

    tolerated: float
    value: float  # of the counted records, with what noise and sampling add to it
    threshold: float  # the tolerance, and what noise and sampling rarely exceed

    def __post_init__(self) -> None:
        if not 0 < self.tolerated < 1:
            raise InvalidInputError("What is tolerated is a total variation between 0 and 1.")

    @property
    def beyond(self) -> bool:
        """Whether the drift is larger than what is tolerated."""
        return self.value > self.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether any statistic exceeds what populations without drift reach.

        drifted  if any  statistic_i > threshold_i,   P(any | no drift) <= false_alarm

    With a tolerance, drift is what is larger than that. A verdict that finds nothing, and could not
    have found even large drifts, cannot tell.
    Statistics whose thresholds lie beyond their largest possible values are left out.

    >>> tv = JudgedStatistic(name="tv", value=0.031, threshold=0.022, unit="")
    >>> kl = JudgedStatistic(name="kl", value=0.2, threshold=0.25, unit="nats")
    >>> verdict = Verdict(statistics=(kl, tv), false_alarm=0.01, design_effect=1.0)
    >>> verdict.drifted, verdict.exceeding, verdict.outcome
    (True, ('tv',), 'drift')
    >>> print(verdict)  # doctest: +NORMALIZE_WHITESPACE
    Drift found: tv (1.4 times its threshold); populations without drift exceed any threshold at
    most 1% of the time
    """

    statistics: tuple[JudgedStatistic, ...]
    false_alarm: float  # how often, at most, a population without drift exceeds any threshold
    design_effect: float | None  # None: not known, records of one client are taken as unrelated
    can_tell: bool = True  # whether large drifts would have been found more often than not
    findable: float | None = None  # the least total variation of a drift that half of the time is
    # found; None: none is, or it is not known
    tolerance: Tolerance | None = None  # None: everything matters

    def __post_init__(self) -> None:
        names = [statistic.name for statistic in self.statistics]
        if len(set(names)) < len(names) or (self.can_tell and not names):
            raise InvalidInputError("A verdict has one or more statistics, each of its own name.")

    @property
    def exceeding(self) -> tuple[str, ...]:
        """The names of the statistics that found drift."""
        return tuple(statistic.name for statistic in self.statistics if statistic.exceeds)

    @property
    def differs(self) -> bool:
        """Whether the population differs from the reference, by however little."""
        return any(statistic.exceeds for statistic in self.statistics)

    @property
    def drifted(self) -> bool:
        """Whether drift was found: where something is tolerated, more than that."""
        return self.differs and (self.tolerance is None or self.tolerance.beyond)

    @property
    def outcome(self) -> VerdictOutcome:
        """What was found. Drift that was found is drift, however little could be found."""
        if self.drifted:
            return "drift"
        return "none found" if self.can_tell else "cannot tell"

    def statistic(self, name: str) -> JudgedStatistic | None:
        """The statistic of this name, if there is one."""
        return next((each for each in self.statistics if each.name == name), None)

    def __str__(self) -> str:
        if self.outcome == "cannot tell":
            least = "no drift"
            if self.findable is not None:
                least = f"only drifts above {self.findable:.2g} (total variation)"
            return f"Cannot tell: with so few records and this epsilon {least} could be found"
        related = ""
        if self.design_effect is None:
            related = ", if records of one client are unrelated (no client ids show it),"
        elif self.design_effect != 1:
            related = f" (design effect {self.design_effect:.3g})"
        found = "Drift found: " + _listed([each.words for each in self.statistics if each.exceeds])
        if self.tolerance is not None and self.differs:
            most = f"a total variation of {self.tolerance.tolerated:g}"
            size = f"Drift found, by more than {most}"
            if not self.drifted:
                size = f"Differs, by less than you said matters ({most})"
            found = found.replace("Drift found", size)
        elif not self.differs:
            closest = max(self.statistics, key=lambda each: each.ratio)
            found = f"No drift found: closest is {closest.words}"
        any_of = "any" if len(self.statistics) > 1 else "the"
        return (
            f"{found}; populations without drift{related} exceed {any_of} threshold "
            f"at most {100 * self.false_alarm:.3g}% of the time"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "verdict": self.outcome,
            "drifted": None if self.outcome == "cannot tell" else self.drifted,
            "exceeding": list(self.exceeding),
            "statistics": to_plain(self.statistics),
            "false_alarm": self.false_alarm,
            "design_effect": self.design_effect,
            "can_tell": self.can_tell,
            "findable": self.findable,
            "differs": self.differs,
            "tolerance": to_plain(self.tolerance),
            "statement": f"{self}.",
        }


def joint_outcome(outcomes: Iterable[VerdictOutcome]) -> VerdictOutcome | None:
    """Of several verdicts: drift if any is, and none found if any could tell; None of none."""
    found = set(outcomes)
    ordered: tuple[VerdictOutcome, ...] = ("drift", "none found", "cannot tell")
    return next((each for each in ordered if each in found), None)


def _listed(words: Sequence[str]) -> str:
    """Several things in one phrase."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
