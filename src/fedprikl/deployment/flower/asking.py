"""The organiser asks a federation for the release of one period of a series."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from fedprikl.deployment.answers import check_genuine, check_of_period
from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.flower.following import RunConfig, follow_round
from fedprikl.protocol import Plan, Release

__all__ = ["ask_for_period"]


def ask_for_period(
    superlink: str,
    plan: Plan,
    *,
    name: str,
    period: int,
    previous: str,
    key: str,
    config: RunConfig | None = None,
    app: Path = APP_FOLDER,
    federation: Sequence[str] = (),
    verbose: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Release:
    """The release of a period, verified: of this key, plan, period and place in the chain.

    `name` is the plan's file in the aggregator's folder, `previous` the fingerprint of the newest
    release in the organiser's history, `config` what `fedprikl federate` also passes: `clients`,
    `wait`, `step-timeout`, `grace`. Safe to ask again after any crash: an aggregator that has
    released the period tells the same release.
    """
    asked: RunConfig = {
        **(config or {}),
        "plan": name,
        "period": period,
        "previous": previous,
        "request": os.urandom(16).hex(),
    }
    release, _ = follow_round(app, superlink, asked, federation, verbose=verbose, tell=tell)
    check_genuine(release, plan, key=key)
    check_of_period(release, period=period, previous=previous)
    return release
