"""Gaps: which values of a record are missing. One rule for clients and for the reference."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedprikl.reference.values import Simple, number

__all__ = ["Gaps"]


@dataclass(frozen=True, slots=True)
class Gaps:
    """The texts that stand for a missing value, and the numbers among them.

    Where a text is a number, like -999, that number stands for a gap too, however it is written:
    whether a column holds texts or numbers is not for one record to decide.
    """

    texts: frozenset[str]
    numbers: frozenset[float]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Gaps":
        """From the texts alone."""
        known = frozenset(texts)
        found = (number(text) for text in known)
        return cls(known, frozenset(value for value in found if value is not None))

    def hold(self, value: Simple) -> bool:
        """Whether the value is missing."""
        if value is None or (isinstance(value, str) and value in self.texts):
            return True
        return bool(self.numbers) and number(value) in self.numbers
