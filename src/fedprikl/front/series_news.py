"""News of a series: each notice is delivered once by each hook, and again only if that failed."""

from collections.abc import Mapping
from pathlib import Path

from fedprikl.errors import HistoryError, HookError
from fedprikl.monitoring.history import History
from fedprikl.monitoring.notifications import Hook, notices
from fedprikl.monitoring.status import SeriesStatus
from fedprikl.store import locked


def deliver_news(
    history: Path, status: SeriesStatus, hooks: Mapping[str, Hook], *, at: str
) -> dict[str, str]:
    """Tells every hook what it has not been told; by hook, what could not be delivered, in words.

    A process that dies between delivery and the note of it delivers once more: notices have an
    identity, by which a receiver knows them again.
    """
    if not hooks:
        return {}
    with locked(history, timeout=0, error=HistoryError) as alone:
        return deliver_locked(history, status, hooks, at=at) if alone else {}  # the other one tells


def deliver_locked(
    history: Path, status: SeriesStatus, hooks: Mapping[str, Hook], *, at: str
) -> dict[str, str]:
    """The same, for a process that is alone at work on the history already."""
    failed: dict[str, str] = {}
    with History.open(history, create=False) as opened:
        delivered = opened.read().delivered
        for name, hook in hooks.items():
            for notice in notices(status):
                if (notice.identity, name) in delivered:
                    continue
                try:
                    hook.deliver(notice)
                except HookError as error:
                    failed[name] = str(error)
                    break  # in order: later news waits for the next call
                opened.deliver(notice.identity, name, at=at)
    return failed
