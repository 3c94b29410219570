"""Whom a round asks: the nodes that are there, known where there is a roster, and countable."""

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedprikl.deployment.host import Host, Network
from fedprikl.deployment.metrics import RoundMetrics
from fedprikl.deployment.progress import identity_line, waiting_line
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.documents import parse_document
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import IdentityCheck, Plan, Roster
from fedprikl.store import replace_file

IDENTITY = "identity"  # the name of the identity check in the metrics
PAUSE = 1.0  # seconds between two looks at who is there


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
        most = plan.budget.releases if period is None else 1
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
        text = json.dumps({"together": together, "counted": self.counted}, indent=1)
        replace_file(path, text.encode())

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


def load_roster(plan: Plan, home: Home) -> Roster | None:
    """The clients that the plan names; None if it names none."""
    if not plan.roster:
        return None
    roster = Roster.load(home.roster)
    if roster.fingerprint != plan.roster:
        raise InvalidInputError(
            f"The plan names another roster than {home.roster.name} of the aggregator's folder. "
            "Bring the one it was planned with, or plan again with `--roster`."
        )
    return roster


def gather(
    network: Network,
    plan: Plan,
    roster: Roster | None,
    company: Company,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
) -> dict[str, str]:
    """The nodes to ask, with who each of them is: an identity of the roster, or the node itself.

    Only those whose records may still be counted; whoever knows that there are too few says so
    before anything is sent.
    """
    needed, period = max(3, int((1 - plan.sums.dropout) * settings.clients)), settings.period
    if roster is not None:
        known = (key.hex() for key in roster.keys)
        _check_countable(company.countable(known, plan, period), needed, period)
    nodes = _wait_for_nodes(network, settings, host)
    if len(nodes) < max(3, settings.clients):
        raise DeploymentError(
            f"{len(nodes)} sites are connected after {settings.wait:g} s, "
            f"{max(3, settings.clients)} are needed. Nothing was asked. Start more, or wait longer "
            "(--wait); `flwr supernode list` shows which are registered, and which are online."
        )
    names = {node: node for node in nodes}
    if roster is not None:
        names = _identities(network, roster, nodes, plan, settings, host, metrics)
    left = company.countable(names.values(), plan, period)
    if len(left) < len(names):
        host.say(f"[fedprikl] {len(names) - len(left)} clients were counted before: not asked")
        _check_countable(left, needed, period)
    return {node: who for node, who in names.items() if who in left}


def _wait_for_nodes(network: Network, settings: RoundSettings, host: Host) -> list[str]:
    """The nodes that are connected, once there are enough or the time is over."""
    end, told = host.clock.now() + settings.wait, -1
    while True:
        nodes = network.nodes()
        if len(nodes) >= settings.clients or host.clock.now() >= end:
            return nodes
        if len(nodes) != told:
            told = len(nodes)
            host.say(waiting_line(told, settings.clients, end - host.clock.now()))
        host.clock.sleep(PAUSE)


def _check_countable(left: Collection[str], needed: int, period: int | None) -> None:
    """Says early what the sites' own memories would say."""
    if len(left) >= needed:
        return
    advice = (
        "To count the same records again, plan with more `--releases`, and let the sites raise "
        "their own `most-counts`."
        if period is None
        else f"Period {period} was counted before, and no release came of it: go on with the next."
    )
    raise DeploymentError(
        f"The records of only {len(left)} clients may still be counted under this plan, "
        f"{needed} clients are needed. Nothing was asked. {advice}"
    )


def _identities(
    network: Network,
    roster: Roster,
    nodes: Sequence[str],
    plan: Plan,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
) -> dict[str, str]:
    """The nodes that proved to be in the roster, and their public keys."""
    check = IdentityCheck(roster, nodes, challenge=os.urandom(16).hex(), dropout=plan.sums.dropout)
    start = host.clock.now()
    for reply in network.identify(check.challenge, nodes, check.can_spare_the_rest):
        check.take(reply)
        if not check.waiting:
            break
    metrics.seconds[IDENTITY] = seconds = host.clock.now() - start
    metrics.lost[IDENTITY] = check.left_out
    absent = roster.keys - set(check.identities.values())
    host.say(identity_line(check, (key.hex() for key in absent), seconds))
    needed = max(3, int((1 - plan.sums.dropout) * settings.clients))
    if len(check.identities) < needed:
        raise DeploymentError(
            f"{len(check.identities)} of {len(nodes)} sites proved an identity of the roster, "
            f"{needed} are needed. The others have none (`fedprikl keys --site`), one that the "
            "roster does not know, or did not answer. Nothing was asked."
        )
    return {node: key.hex() for node, key in check.identities.items()}
