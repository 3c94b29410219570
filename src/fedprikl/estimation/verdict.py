"""The verdict: drifted or not, at a stated false-alarm rate (docs/verdict.md: where it holds)."""

from dataclasses import dataclass
from typing import Any

from fedprikl.errors import InvalidInputError
from fedprikl.shapes import to_plain

__all__ = ["COUNTS", "UNSEEN", "Verdict", "Witness"]

COUNTS = "counts"  # the witness that is no divergence: how much noisy counts vary
UNSEEN = "unseen"  # another: the share of records in cells that the reference never saw


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A statistic beside the threshold that populations without drift rarely exceed."""

    name: str  # of the divergence, or "counts" or "unseen", which are none
    statistic: float
    threshold: float
    unit: str  # of both

    @property
    def speaks(self) -> bool:
        """Whether the statistic is above its threshold."""
        return self.statistic > self.threshold

    @property
    def words(self) -> tuple[str, str]:
        """What was seen, and beside which threshold."""
        statistic, threshold = _told_apart(self.statistic, self.threshold)
        seen = f"{statistic} {self.unit}".rstrip()
        if self.name == COUNTS:
            seen = f"the excess variation of the noisy counts, {statistic},"
        return seen, f"{'above' if self.speaks else 'below'} {threshold}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether any statistic exceeds what populations without drift reach.

        drifted  if any  statistic_i > threshold_i,   P(any | no drift) <= false_alarm

    >>> tv = Witness(name="tv", statistic=0.031, threshold=0.022, unit="")
    >>> kl = Witness(name="kl", statistic=0.2, threshold=0.25, unit="nats")
    >>> verdict = Verdict(witnesses=(kl, tv), false_alarm=0.01, design_effect=1.0)
    >>> verdict.drifted, verdict.spoke
    (True, ('tv',))
    >>> print(verdict)  # doctest: +NORMALIZE_WHITESPACE
    Drift found: tv 0.031 is above 0.022 and kl 0.2 nats is below 0.25; populations without drift
    exceed any of these thresholds at most 1% of the time
    """

    witnesses: tuple[Witness, ...]
    false_alarm: float  # how often, at most, a population without drift exceeds any threshold
    design_effect: float | None  # None: not known, records of one client are taken as unrelated

    def __post_init__(self) -> None:
        names = [witness.name for witness in self.witnesses]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError("A verdict has one or more witnesses, each of its own name.")

    @property
    def spoke(self) -> tuple[str, ...]:
        """The names of the witnesses that found drift."""
        return tuple(witness.name for witness in self.witnesses if witness.speaks)

    @property
    def drifted(self) -> bool:
        """Whether drift was found."""
        return any(witness.speaks for witness in self.witnesses)

    def witness(self, name: str) -> Witness | None:
        """The witness of this name, if there is one."""
        return next((each for each in self.witnesses if each.name == name), None)

    def __str__(self) -> str:
        found = "Drift found" if self.drifted else "No drift found"
        related = ""
        if self.design_effect is None:
            related = ", if records of one client are unrelated (no client ids show it),"
        elif self.design_effect != 1:
            related = f" (design effect {self.design_effect:.3g})"
        often = f"at most {100 * self.false_alarm:.3g}% of the time"
        if len(self.witnesses) == 1:
            seen, place = self.witnesses[0].words
            return (
                f"{found}: {seen} is {place}, which populations without drift{related} exceed "
                f"{often}"
            )
        ordered = sorted(self.witnesses, key=lambda witness: not witness.speaks)
        *first, last = (_clause(witness) for witness in ordered)
        return (
            f"{found}: {', '.join(first)} and {last}; populations without drift{related} exceed "
            f"any of these thresholds {often}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "drifted": self.drifted,
            "spoke": list(self.spoke),
            "witnesses": to_plain(self.witnesses),
            "false_alarm": self.false_alarm,
            "design_effect": self.design_effect,
            "statement": f"{self}.",
        }


def _clause(witness: Witness) -> str:
    seen, place = witness.words
    name = "" if witness.name == COUNTS else f"{witness.name} "
    return f"{name}{seen} is {place}"


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with four digits, or with as many as show that they differ."""
    digits = 4
    while digits < 17 and f"{one:.{digits}g}" == f"{other:.{digits}g}" and one != other:
        digits += 1
    return f"{one:.{digits}g}", f"{other:.{digits}g}"
