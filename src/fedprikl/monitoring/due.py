"""What is due in a series, done once: by one process at a time, and after any crash."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fedprikl.errors import HistoryError
from fedprikl.monitoring.findings import keep_findings
from fedprikl.monitoring.history import History, SeriesHistory
from fedprikl.protocol import SignedPlan
from fedprikl.reference import Reference
from fedprikl.store import locked


class PeriodRunner(Protocol):
    """Counts one period, wherever the clients are."""

    def recover(self, history: History, *, at: str) -> None:
        """Settles rounds that were begun and never ended."""
        ...

    def run(self, history: History, number: int, *, previous: str, at: str) -> None:
        """Counts a period and keeps its release, or the reason why there will never be one.

        An error means that it is still due, and that nothing was lost.
        """
        ...


def run_due(
    path: Path,
    signed: SignedPlan,
    reference: Reference,
    runner: PeriodRunner,
    *,
    signer: str,
    at: str,
    note: Callable[[str], None],
    after: Callable[[], None] = lambda: None,
) -> tuple[int, ...]:
    """Counts every period that is over and not yet in the history; the numbers of those.

    Where something is due, `after` is called before the first period and after each: what is known
    by then can be told, whatever becomes of the others.
    """
    with locked(path, timeout=0, error=HistoryError) as alone:
        if not alone:
            note("Another process is at work on this series; nothing was done here.")
            return ()
        with History.open(path) as history:
            history.start(signed, signer=signer, at=at)
            runner.recover(history, at=at)
            keep_findings(history, reference, at=at)
            due = history.read().due(at)
            if due:  # before anything is charged
                history.check_documents()
                after()
            for number in due:
                runner.run(history, number, previous=_previous(history.read()), at=at)
                keep_findings(history, reference, at=at)
                after()
            return tuple(due)


def _previous(found: SeriesHistory) -> str:
    return "" if found.last is None else found.last.release
