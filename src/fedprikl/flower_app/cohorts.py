"""Who was in a cohort with whom, and how often each was counted. All of it is public.

Two sums of different company, subtracted, are the counts of those who are in one of them only. So
where the same people are asked again they stay together, and the aggregator keeps this file:

    {"sites": {"together": [["1", "2", "3"], ...], "counted": {"1": 1, ...}}}

by identity where the plan names a roster, by the relay's node number otherwise. Sites have their
own memory of how often they were counted; this one only spares everybody a round in vain.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedprikl.errors import DeploymentError

__all__ = ["CohortFile", "Company"]


@dataclass(frozen=True, slots=True)
class Company:
    """What is known of a population."""

    together: tuple[frozenset[str], ...] = ()
    counted: Counter[str] = field(default_factory=Counter)

    def among(self, names: dict[str, str]) -> list[list[str]]:
        """The groups as clients of this round, given who each client is."""
        groups = [sorted(name for name, who in names.items() if who in g) for g in self.together]
        return [group for group in groups if group]

    def countable(self, clients: Iterable[str], releases: int) -> list[str]:
        """Those who may be counted once more under a plan of so many releases."""
        return [who for who in clients if self.counted[who] < releases]

    def after(self, cohorts: Iterable[Iterable[str]]) -> "Company":
        """After these cohorts were asked."""
        groups = list(self.together)
        for cohort in map(frozenset, cohorts):
            met = [group for group in groups if group & cohort]
            groups = [g for g in groups if g not in met] + [cohort.union(*met)]
        return Company(tuple(groups), self.counted)

    def counting(self, clients: Iterable[str]) -> "Company":
        """After these were counted once more."""
        return Company(self.together, self.counted + Counter(clients))


class CohortFile:
    """The file; replaced at once, never half written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, population: str) -> Company:
        """What is known of a population; nothing if it was never asked."""
        return self._load().get(population, Company())

    def save(self, population: str, company: Company) -> None:
        """Keeps it for the next round."""
        known = self._load() | {population: company}
        document = {
            name: {"together": [sorted(g) for g in each.together], "counted": each.counted}
            for name, each in known.items()
        }
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_text(json.dumps(document, indent=1, sort_keys=True), encoding="utf-8")
        os.replace(fresh, self._path)

    def _load(self) -> dict[str, Company]:
        if not self._path.exists():
            return {}
        try:
            document = json.loads(self._path.read_bytes())
            return {name: _company(**each) for name, each in document.items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise DeploymentError(
                f"The file {self._path} is damaged: who was in a cohort with whom is not known. "
                "Restore a copy. Remove it only if no client was counted before."
            ) from None


def _company(together: Sequence[Sequence[str]], counted: dict[str, int]) -> Company:
    groups = tuple(frozenset(group) for group in together)
    if not all(isinstance(who, str) for group in groups for who in group):
        raise TypeError
    return Company(groups, Counter({who: int(times) for who, times in counted.items()}))
