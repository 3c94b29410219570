"""Who was in a cohort with whom, and who was counted under which plan. All of it is public.

Two sums of different company, subtracted, are the counts of those who are in one of them only. So
where the same people are asked again they stay together, whatever the population is called, and the
aggregator keeps this file:

    {"together": [["1", "2", "3"], ...], "counted": {"<plan>": {"1": 1, ...}}}

by identity where the plan names a roster, by the relay's node number otherwise. Sites have their
own memory of how often they were counted; `counted` only spares everybody a round in vain. Of a
series it knows the newest period only, as "<plan>/<period>": who was counted in one may be counted
in the next.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedprikl.documents import parse_document
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import Plan

__all__ = ["Company"]


@dataclass(frozen=True, slots=True)
class Company:
    """What is known of the clients before a round, and after it."""

    together: tuple[frozenset[str], ...] = ()
    counted: Mapping[str, Mapping[str, int]] = field(
        default_factory=dict
    )  # plan -> client -> times

    def groups(self, names: Mapping[str, str]) -> list[list[str]]:
        """Who was together, as nodes of this round, given who each node is."""
        groups = [sorted(node for node, who in names.items() if who in g) for g in self.together]
        return [group for group in groups if group]

    def countable(self, clients: Iterable[str], plan: Plan, period: int | None = None) -> set[str]:
        """Those who may be counted once more under a plan; of a series, in a period."""
        counted = self.counted.get(_name(plan, period), {})
        most = plan.releases if period is None else 1
        return {who for who in clients if counted.get(who, 0) < most}

    def counted_in(self, plan: Plan, period: int | None) -> set[str]:
        """Who was counted under a plan, in a period; nobody if that is not known any more."""
        return set(self.counted.get(_name(plan, period), {}))

    def after(self, cohorts: Iterable[Iterable[str]]) -> "Company":
        """After these cohorts were asked; in their order, as they are dealt again."""
        groups = list(self.together)
        for cohort in map(frozenset, cohorts):
            met = [group for group in groups if group & cohort]
            groups = [group for group in groups if group not in met] + [cohort.union(*met)]
        return replace(self, together=tuple(groups))

    def counting(self, clients: Iterable[str], plan: Plan, period: int | None = None) -> "Company":
        """After these were counted once more under a plan; of a series, in a period."""
        name = _name(plan, period)
        times = Counter(self.counted.get(name, {})) + Counter(clients)
        others = {n: c for n, c in self.counted.items() if n.split("/")[0] != plan.fingerprint}
        return replace(self, counted={**others, name: times})

    def save(self, path: Path) -> None:
        """Replaces the file at once, so that it is never half written."""
        together = [sorted(group) for group in self.together]
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(
            json.dumps({"together": together, "counted": self.counted}, indent=1), encoding="utf-8"
        )
        os.replace(fresh, path)

    @classmethod
    def load(cls, path: Path) -> "Company":
        """What the file knows; nothing if there is none yet."""
        if not path.exists():
            return cls()
        try:
            return cls(*_parse(parse_document(path.read_bytes(), "file of cohorts")))
        except (InvalidInputError, ValueError, TypeError, AttributeError, KeyError):
            raise DeploymentError(
                f"The file {path} is damaged: who was in a cohort with whom is not known. Restore "
                "a copy. Remove it only if nobody will be counted a second time."
            ) from None


def _name(plan: Plan, period: int | None) -> str:
    return plan.fingerprint if period is None else f"{plan.fingerprint}/{period}"


def _parse(document: Any) -> tuple[tuple[frozenset[str], ...], dict[str, dict[str, int]]]:
    together, counted = document["together"], document["counted"]
    if not all(isinstance(who, str) for group in together for who in group):
        raise TypeError
    if not all(isinstance(group, list) for group in together):  # a text would be its letters
        raise TypeError
    if not all(type(n) is int and n >= 0 for known in counted.values() for n in known.values()):
        raise TypeError
    return tuple(map(frozenset, together)), counted
