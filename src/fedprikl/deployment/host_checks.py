"""What a host checks before anybody is asked: what is known to fail costs nobody a round."""

import os
from datetime import datetime

import numpy as np

from fedprikl.deployment.settings import RoundSettings
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.privacy import Ledger
from fedprikl.protocol import Plan, Roster, Round, Server, SignedPlan, trust_of

__all__ = ["check_account", "check_cohorts", "check_time", "check_wanted", "load_plan", "rehearse"]


def load_plan(settings: RoundSettings) -> SignedPlan:
    """The plan that the round is about, if clients would take it at any time."""
    folder = settings.home.folder
    if not folder.is_dir():
        raise DeploymentError(
            f"There is no folder {folder} on the aggregator's host. Make it with "
            "`fedprikl keys`, or set FEDPRIKL_HOME for the process that runs the ServerApp."
        )
    signed = SignedPlan.load(settings.plan)
    if not signed.is_signed_by(signed.signer):
        raise InvalidInputError(
            f"The plan {settings.plan.name} is not signed as it stands, so every client would "
            "refuse it. Sign it with `fedprikl plan --key`."
        )
    _check_trust(signed.plan)
    return signed


def _check_trust(plan: Plan) -> None:
    """Refuses noise in shares among strangers: whoever poses as clients would know their shares.

    Flower's node keys are registered at the relay, so they do not tell clients from the relay.
    """
    if trust_of(plan).shares_noise and not plan.roster:
        raise InvalidInputError(
            "Over Flower, a plan without a trusted aggregator (`plan --trust none`) needs a roster "
            "of clients: a relay that poses as clients would leave too little noise. Plan again "
            "with `--roster`, or with a trusted aggregator."
        )


def check_time(plan: Plan, *, at: str) -> None:
    """Refuses a plan that every client would refuse at this time."""
    if not plan.is_valid(at):
        raise InvalidInputError(
            "The plan has expired, or is not valid yet, so every client would refuse it. Nothing "
            "was asked; plan again with `fedprikl plan`."
        )


def check_wanted(settings: RoundSettings, *, at: str) -> None:
    """Refuses to go on with a run whose deadline is over: nobody would receive the release."""
    if settings.deadline is not None and datetime.fromisoformat(at) > settings.deadline:
        raise DeploymentError(
            f"Whoever asked for this run waited until {settings.deadline.isoformat()}, which is "
            "over by the aggregator's clock. Nothing was charged; ask again."
        )


def check_account(ledger: Ledger, plan: Plan) -> None:
    """Refuses a population that has no budget here."""
    if plan.population not in ledger.populations():
        raise InvalidInputError(
            f"The population {plan.population!r} has no budget at this aggregator. Set "
            f"one: `fedprikl ledger --population {plan.population} --set-epsilon 1`."
        )


def rehearse(
    server: Server, roster: Roster | None, settings: RoundSettings, rng: np.random.Generator
) -> Round:
    """A round as it would be if all took part. It is never run: its budget is known before."""
    clients = max(settings.clients, 3 * server.plan.batches)
    keys = [] if roster is None else sorted(roster.keys)
    names = [key.hex() for key in keys] or [str(n) for n in range(clients)]
    return server.open_round(
        names,
        rng=rng,
        randomness=os.urandom,
        identities=dict(zip(names, keys, strict=False)),
        period=settings.period,
    )


def check_cohorts(current: Round, roster: Roster | None) -> None:
    """Says early what every client would refuse."""
    smallest = min(len(cohort.members) for cohort in current.cohorts)
    needed = 0 if roster is None else trust_of(current.plan).smallest_cohort(len(roster))
    if smallest < needed:
        raise DeploymentError(
            f"A cohort has {smallest} clients; without a trusted aggregator it needs {needed} of "
            "the roster. Wait for more SuperNodes, or plan one cohort for all (`plan --cohort`)."
        )
