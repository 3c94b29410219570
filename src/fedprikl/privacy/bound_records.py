"""Which records stand behind a population's name: the same records have one budget.

A ledger keeps no paths and no contents, only hashes of them under a salt of its own, 128 bits each.
"""

import hashlib
import hmac
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedprikl.errors import InvalidInputError
from fedprikl.privacy.ledger_file import Entry

__all__ = ["EVENT", "BoundRecords"]

EVENT = "records"
_SALT = re.compile("[0-9a-f]{64}")
_MARK = re.compile("[0-9a-f]{32}")


@dataclass(slots=True)
class BoundRecords:
    """Marks of all places and contents that were ever bound, and to which population."""

    salt: str = field(default_factory=lambda: secrets.token_hex(32))
    owners: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "BoundRecords":
        """From all entries of a ledger; a new salt if nothing was bound yet."""
        found = cls()
        for entry in entries:
            if entry.body.get("event") == EVENT:
                found.apply(entry.body)
        return found

    def apply(self, body: Mapping[str, Any]) -> None:
        """One entry. A KeyError, TypeError or ValueError: no ledger would have written it."""
        population, salt, marks = body["population"], body["salt"], body["marks"]
        sane = (
            isinstance(population, str)
            and _SALT.fullmatch(salt)
            and (not self.owners or salt == self.salt)
            and isinstance(marks, list)
            and all(_MARK.fullmatch(mark) and mark not in self.owners for mark in marks)
        )
        if not sane:
            raise ValueError("not an entry that binds records")
        self.salt = salt
        self.owners |= dict.fromkeys(marks, population)

    def bind(self, population: str, sources: Mapping[str, str]) -> dict[str, Any]:
        """The entry that binds the sources to a population; without marks if all are already."""
        marks = self._marks(sources)
        others = {self.owners[mark] for mark in marks if mark in self.owners} - {population}
        if others:
            raise _bound_elsewhere(population, sorted(others))
        new = sorted(marks - self.owners.keys())
        return {"event": EVENT, "population": population, "salt": self.salt, "marks": new}

    def _marks(self, sources: Mapping[str, str]) -> set[str]:
        marks = set()
        for place, content in sources.items():
            if not isinstance(place, str) or not isinstance(content, str):
                raise InvalidInputError(
                    "Records are bound by texts: the place of each client and a digest of its "
                    "content (empty if it holds no records)."
                )
            marks.add(self._mark("place", place))
            if content:
                marks.add(self._mark("content", content))
        return marks

    def _mark(self, kind: str, text: str) -> str:
        message = f"{kind}\n{text}".encode(errors="surrogatepass")
        return hmac.new(bytes.fromhex(self.salt), message, hashlib.sha256).hexdigest()[:32]


def _bound_elsewhere(population: str, others: list[str]) -> InvalidInputError:
    names, first = ", ".join(repr(name) for name in others), shlex.quote(others[0])
    return InvalidInputError(
        "Some of these records (the same place or the same content) were bound to the population "
        f"{names} before, now they are called {population!r}. A new name is no new budget. Plan "
        f"with `--population {first}`, so that everything released about the same people is "
        "charged together. Nothing was charged."
    )
