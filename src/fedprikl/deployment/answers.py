"""What an organiser checks of a release that came over a relay, before it is believed."""

from datetime import UTC, datetime, timedelta

from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Plan, Release

__all__ = ["check_fresh", "check_genuine", "check_of_period"]

CLOCKS = timedelta(minutes=5)  # how far the aggregator's clock may be from this one


def check_genuine(release: Release, plan: Plan, *, key: str) -> None:
    """Refuses a release that another key signed, or about another plan."""
    if not release.is_signed_by(key):
        raise InvalidInputError("The release is NOT genuine: another key signed it. Do not use it.")
    if not release.is_about(plan):
        raise InvalidInputError(
            "The aggregator has another plan than yours under this name. The release is about its "
            "plan, not yours; nothing was written."
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
            "written. The relay may have replayed it; ask the aggregator what its ledger says."
        )
    if not in_time:
        raise InvalidInputError(
            "An old or foreign release was offered: it was not made while this command ran, or "
            f"the clocks differ by more than {CLOCKS.seconds // 60} minutes. Nothing was written."
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
