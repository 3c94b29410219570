"""The aggregator's host: its machine and network, the run it works on, and whom a round asks.

Asked are the nodes that are there, known where there is a roster, and countable.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from fedprikl.deployment.progress import identity_line, not_counted_line, printable, waiting_line
from fedprikl.deployment.round_metrics import RoundMetrics
from fedprikl.deployment.settings import Home, RoundSettings, now
from fedprikl.documents import parse_document
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.privacy import SECURE_NOISE, NoiseSource
from fedprikl.protocol import IdentityCheck, Plan, Reply, Roster, SignedPlan, SigningKey, Transport
from fedprikl.store import replace_file

IDENTITY = "identity"  # the name of the identity check in the metrics
PAUSE = 1.0  # seconds between two looks at who is there


def print_line(line: str) -> None:
    """Into the run's log, which the relay stores and terminals show: printable characters only."""
    print(printable(line), flush=True)


@dataclass(frozen=True, slots=True)
class Host:
    """The aggregator's machine, for one round."""

    clock: Callable[[], float] = time.monotonic  # seconds
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], str] = now
    say: Callable[[str], None] = print_line
    source: NoiseSource = SECURE_NOISE


class Network(Protocol):
    """The sites of a federation, as the host reaches them. It is not trusted."""

    def nodes(self) -> list[str]:
        """The nodes that are connected now, by the network's own names, sorted."""
        ...

    def identify(
        self, challenge: str, nodes: Sequence[str], enough: Callable[[], bool]
    ) -> Iterable[Reply]:
        """Sends every node the challenge of an identity check; the replies as they come."""
        ...

    def check_run(self) -> None:
        """Raises if the run that the host works on has been stopped."""
        ...

    def transport(self, round_id: str) -> Transport:
        """What carries the messages of one round."""
        ...


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

    def countable(self, clients: Iterable[str], plan: Plan, period: int | None) -> set[str]:
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

    def counting(self, clients: Iterable[str], plan: Plan, period: int | None) -> "Company":
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a host works on: what was asked, of whom, and with which key it signs."""

    network: Network
    settings: RoundSettings
    host: Host
    signed: SignedPlan
    signer: SigningKey
    metrics: RoundMetrics

    @property
    def plan(self) -> Plan:
        """Of the round."""
        return self.signed.plan

    @property
    def home(self) -> Home:
        """The aggregator's files."""
        return self.settings.home

    def load_roster(self) -> Roster | None:
        """The clients that the plan names; None if it names none."""
        if not self.plan.roster:
            return None
        roster = Roster.load(self.home.roster)
        if roster.fingerprint != self.plan.roster:
            raise InvalidInputError(
                f"The plan names another roster ({self.plan.roster[:16]}) than "
                f"{self.home.roster.name} of the aggregator's folder ({roster.fingerprint[:16]}). "
                "Bring the one it was planned with, or plan again with `--roster`."
            )
        return roster

    def check_wanted(self) -> None:
        """Refuses to go on after the deadline: nobody would receive the release."""
        deadline = self.settings.deadline
        if deadline is not None and datetime.fromisoformat(self.host.now()) > deadline:
            raise DeploymentError(
                f"Whoever asked for this run waited until {deadline.isoformat()}, which is over by "
                "the aggregator's clock. The aggregator charged nothing; ask again."
            )

    def say_missing(
        self, roster: Roster | None, counted: Iterable[str], why: Mapping[str, str] | None = None
    ) -> None:
        """Names who of the roster is not counted; whoever has the roster knows who they are."""
        if roster is not None:
            missing = {key.hex() for key in roster.keys} - set(counted)
            self.host.say(not_counted_line(missing, why))

    def check_everybody(
        self, wanted: Iterable[str], there: Iterable[str], why: Mapping[str, str], *, after: str
    ) -> None:
        """Where all or nothing is asked, raises unless all are there. Nothing was released yet."""
        missing = set(wanted) - set(there)
        if not self.settings.everybody or not missing:
            return
        self.host.say(not_counted_line(missing, why))
        raise DeploymentError(
            "All or nothing was asked (--all), and "
            f"{_sites(len(missing), 'takes', 'take')} no part. Nothing was released. {after}"
        )


def _sites(many: int, does: str, do: str) -> str:
    return f"1 site {does}" if many == 1 else f"{many} sites {do}"


def gather(run: Run, roster: Roster | None) -> dict[str, str]:
    """The nodes to ask, with who each of them is: an identity of the roster, or the node itself.

    Only those whose records may still be counted; whoever knows that there are too few says so
    before anything is sent.
    """
    plan, settings, company = run.plan, run.settings, Company.load(run.home.cohorts)
    needed, period = max(3, int((1 - plan.sums.dropout) * settings.clients)), settings.period
    if roster is not None:
        known = (key.hex() for key in roster.keys)
        _check_countable(company.countable(known, plan, period), needed, period)
    nodes = _wait_for_nodes(run)
    if len(nodes) < max(3, settings.clients):
        raise DeploymentError(
            f"{_sites(len(nodes), 'is', 'are')} connected after {settings.wait:g} s, "
            f"{max(3, settings.clients)} are needed. Nothing was asked. Start more, wait longer "
            "(--wait), or ask fewer (--clients)."
        )
    names = {node: node for node in nodes}
    if roster is not None:
        names = _identities(run, roster, nodes, needed)
    left = company.countable(names.values(), plan, period)
    if len(left) < len(names):
        run.host.say(f"[fedprikl] {len(names) - len(left)} clients were counted before: not asked")
        _check_countable(left, needed, period)
    return {node: who for node, who in names.items() if who in left}


def _wait_for_nodes(run: Run) -> list[str]:
    """The nodes that are connected, once there are enough or the time is over."""
    host, clients = run.host, run.settings.clients
    end, told = host.clock() + run.settings.wait, -1
    while True:
        nodes = run.network.nodes()
        if len(nodes) >= clients or host.clock() >= end:
            return nodes
        if len(nodes) != told:
            told = len(nodes)
            host.say(waiting_line(told, clients, end - host.clock()))
        host.sleep(PAUSE)


def _check_countable(left: Collection[str], needed: int, period: int | None) -> None:
    """Says early what the sites' own memories would say."""
    if len(left) >= needed:
        return
    advice = (
        "To count the same records again, plan with more `--releases`, and let the sites raise "
        "`most-counts` in their policies."
        if period is None
        else f"Period {period} was counted before, and no release came of it: go on with the next."
    )
    raise DeploymentError(
        f"The records of only {len(left)} {'client' if len(left) == 1 else 'clients'} may still be "
        f"counted under this plan, {needed} clients are needed. Nothing was asked. {advice}"
    )


def _identities(run: Run, roster: Roster, nodes: Sequence[str], needed: int) -> dict[str, str]:
    """The nodes that proved to be in the roster, and their public keys."""
    challenge, start = os.urandom(16).hex(), run.host.clock()
    check = IdentityCheck(roster, nodes, challenge=challenge, dropout=run.plan.sums.dropout)
    for reply in run.network.identify(challenge, nodes, check.can_spare_the_rest):
        check.take(reply)
        if not check.waiting:
            break
    run.metrics.seconds[IDENTITY] = seconds = run.host.clock() - start
    run.metrics.lost[IDENTITY] = check.left_out
    absent = roster.keys - set(check.identities.values())
    run.host.say(identity_line(check, (key.hex() for key in absent), seconds))
    if len(check.identities) < needed:
        raise DeploymentError(
            f"{len(check.identities)} of {len(nodes)} sites proved an identity of the roster, "
            f"{needed} are needed. The others have none (`fedprikl keys --site`), one that the "
            "roster does not know, or did not answer. Nothing was asked."
        )
    return {node: key.hex() for node, key in check.identities.items()}
