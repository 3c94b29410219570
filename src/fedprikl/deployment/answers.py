"""What an organiser checks of a release that came over a relay, before it is believed."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedprikl.deployment.progress import printable, short_name
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Plan, Release, Roster

WHERE_IT_LIES = (
    "If the aggregator has charged the round, its release lies in releases/ of the aggregator's "
    "$FEDPRIKL_HOME: `fedprikl verify` checks it."
)
CLOCKS = timedelta(minutes=5)  # how far the aggregator's clock may be from this one


def check_genuine(release: Release, plan: Plan, *, key: str) -> None:
    """Refuses a release that another key signed, or about another plan."""
    if not release.is_signed_by(key):
        raise InvalidInputError(
            "The release is NOT genuine: another key signed it than the one you gave. Do not use "
            f"it. {WHERE_IT_LIES}"
        )
    if not release.is_about(plan):
        raise InvalidInputError(
            "The aggregator has another plan than yours under this name. The release is about its "
            f"plan, not yours; nothing was written. {WHERE_IT_LIES}"
        )


def check_fresh(release: Release, *, request: str, started: datetime) -> None:
    """Refuses a release that does not answer this very request: a relay may have kept others."""
    try:
        released = datetime.fromisoformat(release.released_at)
        in_time = started - CLOCKS <= released <= datetime.now(UTC) + CLOCKS
    except (TypeError, ValueError):  # no time, or one without an offset
        in_time = False
    if release.request != request:
        raise InvalidInputError(
            "An old or foreign release was offered: it does not answer this request. Nothing was "
            f"written. The relay may have replayed it. {WHERE_IT_LIES}"
        )
    if not in_time:
        raise InvalidInputError(
            "An old or foreign release was offered: it was not made while this command ran, or "
            f"the clocks differ by more than {CLOCKS.seconds // 60} minutes. Nothing was written. "
            "The round was charged. Its release lies in releases/ of the aggregator's "
            "$FEDPRIKL_HOME: check it with `fedprikl verify`, and set the clocks."
        )


def check_of_period(release: Release, *, period: int, previous: str) -> None:
    """Refuses a release of another period, or with another one before it.

    It may be of an earlier run: a period has one release for ever, so an old one is no replay.
    """
    found = release.period
    if found is None or found.number != period:
        raise InvalidInputError(
            f"A release of another period than {period} was offered. Nothing was written. The "
            "relay may have replayed it."
        )
    if found.previous != previous:
        raise InvalidInputError(
            f"The release of period {period} follows another release than the newest of this "
            "history, so the history is not the one that it was asked with. Nothing was written; "
            "bring that history back."
        )


def roster_names(path: Path, plan: Plan, *, clients: int) -> dict[str, str]:
    """The name of each member by the first digits of its key, which are the name of one without.

    Refuses a roster that the plan does not name, and one with fewer clients than are waited for.
    """
    roster = Roster.load(path)
    if roster.fingerprint != plan.roster:
        raise InvalidInputError(
            f"The plan names another roster than {path}, or none. Bring the one it was planned "
            "with, or leave --roster out. Nothing was asked."
        )
    if len(roster) < clients:
        raise InvalidInputError(
            f"The roster has {len(roster)} clients, and --clients waits for {clients}: they would "
            "never come. Nothing was asked; wait for fewer."
        )
    lines = (line.split("#")[0].split() for line in path.read_text("utf-8-sig").split("\n"))
    found = {short_name(key): printable(" ".join(name)) for key, *name in filter(None, lines)}
    often = Counter(found.values())
    return {
        key: name if often[name] == 1 and name else f"{name} {key}".strip()
        for key, name in found.items()
    }
