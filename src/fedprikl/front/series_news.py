"""Notifications of a series: each is delivered once by each hook, and again only if that failed."""

from collections.abc import Mapping
from pathlib import Path

from fedprikl.errors import HistoryError, HookError
from fedprikl.monitoring.history import History
from fedprikl.monitoring.notifications import Hook, notifications
from fedprikl.monitoring.status import SeriesStatus
from fedprikl.store import locked


def deliver_news(
    history: Path, status: SeriesStatus, hooks: Mapping[str, Hook], *, at: str
) -> dict[str, str]:
    """Delivers what each hook has not had yet; by hook, what could not be delivered, in words.

    A process that dies between delivery and the note of it delivers once more: a
    notification has an identity, by which a receiver knows it again.
    """
    if not hooks:
        return {}
    with locked(history, timeout=0, error=HistoryError) as alone:
        return deliver_locked(history, status, hooks, at=at) if alone else {}  # the other one does


def deliver_locked(
    history: Path, status: SeriesStatus, hooks: Mapping[str, Hook], *, at: str
) -> dict[str, str]:
    """The same, for a process that is alone at work on the history already."""
    failed: dict[str, str] = {}
    with History.open(history, create=False) as opened:
        delivered = opened.read().delivered
        for name, hook in hooks.items():
            for each in notifications(status):
                if (each.identity, name) in delivered:
                    continue
                try:
                    hook.deliver(each)
                except HookError as error:
                    failed[name] = str(error)
                    break  # in order: later ones wait for the next call
                opened.deliver(each.identity, name, at=at)
    return failed
