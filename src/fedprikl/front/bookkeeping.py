"""The ledger of a comparison: the newest one, with a budget for the very records that it counts."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedprikl.deployment.ledger_anchor import newest_head
from fedprikl.errors import InvalidInputError, LedgerDamagedError, LedgerError
from fedprikl.privacy import Head, Ledger
from fedprikl.protocol import Aggregator, Plan

__all__ = ["NO_LEDGER", "AnyLedger", "epsilon_left", "open_account", "open_ledger"]

AnyLedger = Ledger | str | Path | None
NO_LEDGER = (
    "No ledger was charged, as asked: nothing remembers this release, and nothing stops the next "
    "one. Its epsilon adds to that of everything else released about the same people."
)


@contextmanager
def open_ledger(
    ledger: AnyLedger, releases: Iterable[Path], public: str
) -> Iterator[Ledger | None]:
    """The ledger, unless a release was charged to a newer one; closed here if opened here.

    It looks for releases that this key signed in the folder of the ledger and in `releases`.
    """
    if ledger is None:
        yield None
        return
    if isinstance(ledger, Ledger):
        if newest := _newest(releases, public):
            ledger.verify(newest)
        yield ledger
        return
    if not isinstance(ledger, str | Path):
        raise InvalidInputError(
            f"A ledger is a path, a Ledger, or None for none, got {type(ledger).__name__}."
        )
    path = Path(ledger)
    with _anchored(path, _newest([path.parent, *releases], public)) as book:
        yield book


def open_account(
    aggregator: Aggregator,
    book: Ledger,
    plan: Plan,
    records: Mapping[str, str],
    *,
    at: str,
    note: Callable[[str], None],
) -> None:
    """The budget of the population and of these very records; refuses what does not fit into it.

    `records`: the place of each client's records and a digest of their content. A population
    without a budget gets one for all releases of the plan; `note` is told.
    """
    if plan.population in book.populations():
        if plan.unit == "client" and book.account(plan.population).unit == "record":
            note(
                f"The budget of {plan.population!r} is that of single records: it lets plans pass "
                "that protect records only, by which a client's loss has no bound. To keep it for "
                "whole clients: `fedprikl ledger --set-epsilon ... --unit client`."
            )
        aggregator.check_budget()
        book.bind_records(plan.population, records, at=at)
        return
    book.bind_records(plan.population, records, at=at)
    epsilon, delta = plan.budget
    book.set_budget(plan.population, epsilon=epsilon, delta=delta, at=at, unit=plan.unit)
    many = "this one release" if plan.releases == 1 else f"{plan.releases} releases"
    if plan.series is not None:
        many = f"one {plan.unit} over the whole series"
    elif plan.unit == "client":
        many = f"every whole client and {many}"
    note(
        f"{plan.population!r} had no budget; it is now epsilon {epsilon:g}, delta {delta:g}, for "
        f"{many}."
    )
    aggregator.check_budget()


def epsilon_left(book: Ledger, population: str) -> float:
    """What is left of the budget; a billionth is nothing.

    It is asked after the release was charged, which must not be lost: nan if nobody can say.
    """
    try:
        return round(book.account(population).left, 6)
    except LedgerError:
        return math.nan


def _newest(folders: Iterable[Path], public: str) -> Head | None:
    places = {folder.resolve() for folder in folders}
    heads = [head for folder in places if (head := newest_head(folder, public))]
    return max(heads, key=lambda head: head.count, default=None)


def _anchored(path: Path, newest: Head | None) -> Ledger:
    if newest is None:
        return Ledger.open(path)
    try:
        if path.exists():
            return Ledger.open(path, anchor=newest)
        found = f"There is no ledger {path}."
    except LedgerDamagedError as error:
        found = str(error)
    raise LedgerDamagedError(
        f"{found} A release that lies here was charged to a ledger with {newest.count} entries or "
        "more, signed with the same key. Bring that ledger back, or name it with --ledger (in "
        "Python: ledger). To begin anew with other people, use a new folder."
    )
