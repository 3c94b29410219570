"""Whom a run asks: the SuperNodes that are there, known where there is a roster, and countable."""

import os
from collections.abc import Collection, Sequence

from flwr.serverapp import Grid

from fedprikl.deployment.company import Company
from fedprikl.deployment.flower.envelope import IDENTITY
from fedprikl.deployment.flower.exchange import check_identities, wait_for_nodes
from fedprikl.deployment.host import Host
from fedprikl.deployment.metrics import RoundMetrics
from fedprikl.deployment.progress import identity_line
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import IdentityCheck, Plan, Roster

__all__ = ["gather", "load_roster"]


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
    grid: Grid,
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
    needed = max(3, int((1 - plan.dropout) * settings.clients))
    if roster is not None:
        _check_countable(company.countable((key.hex() for key in roster.keys), plan), needed)
    nodes = wait_for_nodes(grid, least=settings.clients, seconds=settings.wait, clock=host.clock)
    if len(nodes) < max(3, settings.clients):
        raise DeploymentError(
            f"{len(nodes)} SuperNodes are connected after {settings.wait:g} s, "
            f"{max(3, settings.clients)} are needed. Start more of them, or wait longer."
        )
    names = {node: node for node in nodes}
    if roster is not None:
        names = _identities(grid, roster, nodes, plan, settings, host, metrics)
    left = company.countable(names.values(), plan)
    if len(left) < len(names):
        host.say(f"[fedprikl] {len(names) - len(left)} clients were counted before: not asked")
        _check_countable(left, needed)
    return {node: who for node, who in names.items() if who in left}


def _check_countable(left: Collection[str], needed: int) -> None:
    """Says early what the sites' own memories would say."""
    if len(left) < needed:
        raise DeploymentError(
            f"The records of only {len(left)} clients may still be counted under this plan, "
            f"{needed} clients are needed. Nothing was asked. To count the same records again, "
            "plan with more `--releases`, and let the sites raise their own `most-counts`."
        )


def _identities(
    grid: Grid,
    roster: Roster,
    nodes: Sequence[str],
    plan: Plan,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
) -> dict[str, str]:
    """The nodes that proved to be in the roster, and their public keys."""
    roll = IdentityCheck(roster, nodes, question=os.urandom(16).hex(), dropout=plan.dropout)
    start = host.clock.now()
    check_identities(grid, roll, patience=settings.patience, clock=host.clock)
    metrics.seconds[IDENTITY] = seconds = host.clock.now() - start
    metrics.lost[IDENTITY] = roll.left_out
    host.say(identity_line(roll, seconds))
    needed = max(3, int((1 - plan.dropout) * settings.clients))
    if len(roll.identities) < needed:
        raise DeploymentError(
            f"{len(roll.identities)} of {len(nodes)} SuperNodes proved an identity of the roster, "
            f"{needed} are needed. The others have none (`fedprikl keys --site`), one that the "
            "roster does not know, or did not answer. Nothing was asked."
        )
    return {node: key.hex() for node, key in roll.identities.items()}
