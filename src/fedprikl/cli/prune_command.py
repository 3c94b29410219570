"""`fedprikl prune`: makes the folder of a relay, an aggregator or a site smaller."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.checks import check_finite
from fedprikl.cli.console import print_json, say
from fedprikl.cli.options import Json
from fedprikl.cli.running import held
from fedprikl.deployment.flower.privates import prune_relay
from fedprikl.deployment.hosted_round import prune_refusals
from fedprikl.deployment.site_memory import forget_expired
from fedprikl.errors import InvalidInputError
from fedprikl.store import shrink

Prune = Callable[..., int]


def prune_site(path: Path, *, before: datetime) -> int:
    """Removes the rounds of plans that ended before a time from a site's memory; how many.

    Such a plan is refused, with all its rounds, also if the clock goes back.
    """
    removed = forget_expired(path, at=before.isoformat())
    shrink(path)
    return removed


# Of each party: the file that grows, what is removed from it, and by whom.
PARTIES: dict[str, tuple[str, str, Prune]] = {
    "relay": ("state.db", "runs with their messages and logs", prune_relay),
    "aggregator": ("refusals", "files of refusals", prune_refusals),
    "site": ("site.db", "rounds of plans that have expired", prune_site),
}


def prune_command(
    folder: Annotated[
        Path, typer.Argument(help="A relay's folder, or $FEDPRIKL_HOME of another party.")
    ],
    days: Annotated[
        float, typer.Option(min=0, max=36500, help="Keep what is at most this many days old.")
    ] = 90.0,
    json: Json = False,
) -> None:
    """Removes what a relay, an aggregator or a site no longer needs from its folder.

    Stop the party first. What keeps people safe stays: registered sites, budgets, releases,
    cohorts, which rounds a site answered and what it counted. A round that was answered stays
    refused.

    Example: `fedprikl prune /srv/fedprikl-relay --days 90`
    """
    check_finite(days, "--days")
    found = {party: folder / file for party, (file, _, _) in PARTIES.items()}
    try:
        found = {party: path for party, path in found.items() if path.exists()}
    except OSError as error:  # of another user, mostly
        raise InvalidInputError(f"Cannot use the folder {folder}: {error.strerror}.") from None
    if not found:
        raise InvalidInputError(
            f"{folder} has nothing to prune: neither state.db of a relay, nor site.db of a site, "
            "nor refusals/ of an aggregator. Check the path."
        )
    for path in found.values():
        if path.is_symlink():
            raise InvalidInputError(
                f"{path} is a link, which may lead to files of others. Nothing was removed. Put "
                "what it leads to in its place, and prune again."
            )
    before = datetime.now(UTC) - timedelta(days=days)
    told = []
    for party, path in found.items():
        _, what, prune = PARTIES[party]
        with held(folder, party):
            size = _size(path)
            removed = prune(path, before=before)
            told.append({"party": party, "removed": removed, "before": size, "after": _size(path)})
        if not json:
            say(f"{party}: {removed} {what} removed; {size:,} bytes before, {_size(path):,} after")
    if json:
        print_json({"folder": str(folder), "before": before.isoformat(), "pruned": told})


def _size(path: Path) -> int:
    """Bytes of a folder's files, or of a database with its log."""
    files = path.iterdir() if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_size for file in files if file.is_file())
