"""Accounts: what the entries of a ledger say, population by population. Pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from fedprikl.checks import check_epsilon
from fedprikl.errors import InvalidInputError, LedgerDamagedError, LedgerError
from fedprikl.privacy.bound_records import EVENT, BoundRecords
from fedprikl.privacy.charges import check_zero_or_delta
from fedprikl.privacy.composition import largest_fitting_epsilon, total_epsilon
from fedprikl.privacy.ledger_file import Entry
from fedprikl.privacy.mechanism import Charge, charge_from_dict, mechanism_named
from fedprikl.privacy.spans import Span, Spanned, exposures, worst_epsilon
from fedprikl.privacy.units import Unit, check_unit
from fedprikl.shapes import to_plain

__all__ = ["Account", "LedgerRound", "RoundState", "replay"]


class RoundState(StrEnum):
    """Open and committed rounds are charged; a cancelled one is not.

    OPEN --commit--> COMMITTED, OPEN --cancel--> CANCELLED. An open round may have released
    something before its process died, so it stays charged for ever.
    """

    OPEN = "open"
    COMMITTED = "committed"
    CANCELLED = "cancelled"


FITTING_KINDS: tuple[Literal["laplace", "gaussian"], ...] = ("laplace", "gaussian")
_CLOSED = {"commit": RoundState.COMMITTED, "cancel": RoundState.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRound:
    """One reservation and what became of it."""

    round_id: str
    population: str
    charge: Charge
    at: str  # when it was reserved
    note: str = ""
    span: Span | None = None  # of the moments of its records; None: of all of them
    unit: Unit = "record"  # whom the charge protects
    state: RoundState = RoundState.OPEN
    noised: str | None = None  # the hash of its noised numbers, once they are kept
    closed_at: str | None = None
    release_hash: str | None = None
    reason: str | None = None  # of a cancellation

    @property
    def charged(self) -> bool:
        """Whether it counts against the budget."""
        return self.state is not RoundState.CANCELLED

    def to_dict(self, delta: float) -> dict[str, Any]:
        """Plain values for JSON; `epsilon` is what the round alone gives at `delta`."""
        return {
            "round": self.round_id,
            "state": self.state.value,
            "charged": self.charged,
            "epsilon": total_epsilon([self.charge], delta=delta),
            "mechanism": self.charge.to_dict(),
            "span": None if self.span is None else to_plain(self.span),
            "unit": self.unit,
            "at": self.at,
            "closed_at": self.closed_at,
            "release_hash": self.release_hash,
            "reason": self.reason,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One population: its budget, its rounds, what is spent and left.

    `unit` is whose budget it is: that of every record, or of every client with all it holds. A
    release that protects clients protects their records too; the reverse does not hold.
    """

    population: str
    epsilon: float
    delta: float
    unit: Unit = "record"
    rounds: tuple[LedgerRound, ...] = ()

    @property
    def charges(self) -> list[Charge]:
        """What counts against the budget, in order."""
        return [entry.charge for entry in self.rounds if entry.charged]

    @property
    def spanned(self) -> list[Spanned]:
        """The same, each with the moments that it is about."""
        return [(entry.charge, entry.span) for entry in self.rounds if entry.charged]

    @property
    def spent(self) -> float:
        """The most that all charged rounds together tell about one unit, at the budget's delta."""
        return worst_epsilon(self.spanned, delta=self.delta)

    @property
    def left(self) -> float:
        """Budget minus spent. One more round may cost less than its own epsilon suggests."""
        return max(self.epsilon - self.spent, 0.0)

    @property
    def open_rounds(self) -> tuple[LedgerRound, ...]:
        """Reserved, neither committed nor cancelled: charged, as something may have left."""
        return tuple(entry for entry in self.rounds if entry.state is RoundState.OPEN)

    def check_protects(self, unit: Unit) -> None:
        """Refuses a charge that would leave unprotected whom the budget protects."""
        if self.unit == "client" and check_unit(unit) == "record":
            raise InvalidInputError(
                f"The budget of population {self.population!r} is that of whole clients, and this "
                "plan protects single records only. Nothing was charged. Plan with --unit client."
            )

    def fits(self) -> dict[str, float]:
        """The largest epsilon of one more release that fits, by noise; takes about a second.

        About all records, so that those that have lost most decide.
        """
        worst = max(exposures(self.spanned), key=lambda each: total_epsilon(each, delta=self.delta))
        return {
            kind: largest_fitting_epsilon(worst, epsilon=self.epsilon, delta=self.delta, kind=kind)
            for kind in FITTING_KINDS
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        spent = self.spent
        return {
            "population": self.population,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "spent": spent,
            "left": max(self.epsilon - spent, 0.0),
            "open": len(self.open_rounds),
            "rounds": [entry.to_dict(self.delta) for entry in self.rounds],
        }


def replay(entries: Iterable[Entry]) -> dict[str, Account]:
    """The accounts by population, from all entries in order."""
    budgets: dict[str, tuple[float, float, Unit]] = {}
    rounds: dict[str, LedgerRound] = {}
    bound = BoundRecords()
    for entry in entries:
        try:
            if entry.body["event"] == EVENT:
                bound.apply(entry.body)
            else:
                _apply(entry.body, budgets, rounds)
        except (KeyError, TypeError, ValueError):
            _refuse_unknown_kind(entry)
            raise LedgerDamagedError(
                f"Entry {entry.number} of the ledger makes no sense, though its hash is right: "
                "it was not written by this software. Nothing can be reserved."
            ) from None
    found: dict[str, list[LedgerRound]] = {name: [] for name in budgets}
    for made in rounds.values():
        found[made.population].append(made)
    return {
        name: Account(
            population=name, epsilon=epsilon, delta=delta, unit=unit, rounds=tuple(found[name])
        )
        for name, (epsilon, delta, unit) in budgets.items()
    }


def _refuse_unknown_kind(entry: Entry) -> None:
    """Not damaged, but written by a process that knew one more mechanism."""
    charge = entry.body.get("mechanism")
    kind = charge.get("kind") if isinstance(charge, Mapping) else None
    if isinstance(kind, str) and mechanism_named(kind) is None:
        raise LedgerError(
            f"Entry {entry.number} of the ledger charges a mechanism of kind {kind!r:.60}, which "
            "is not known here. Import the module that registers it; nothing can be reserved."
        ) from None


def _apply(
    body: Mapping[str, Any],
    budgets: dict[str, tuple[float, float, Unit]],
    rounds: dict[str, LedgerRound],
) -> None:
    """One event. A KeyError or ValueError means that no ledger would have written it."""
    if body["event"] == "budget":
        delta = check_zero_or_delta(body["delta"])
        unit = check_unit(body.get("unit", "record"))
        budgets[body["population"]] = check_epsilon(body["epsilon"]), delta, unit
    elif body["event"] == "reserve":
        if body["population"] not in budgets or body["round"] in rounds:
            raise ValueError
        rounds[body["round"]] = LedgerRound(
            round_id=body["round"],
            population=body["population"],
            charge=charge_from_dict(body["mechanism"]),
            at=body["at"],
            note=body["note"],
            span=_span(body),
            unit=check_unit(body.get("unit", "record")),
        )
    elif body["event"] == "noised":
        known = rounds[body["round"]]
        if known.state is not RoundState.OPEN or known.noised is not None:
            raise ValueError
        rounds[body["round"]] = replace(known, noised=body["document"])
    else:
        known = rounds[body["round"]]
        if known.state is not RoundState.OPEN:
            raise ValueError
        if body["event"] == "cancel" and known.noised is not None:
            raise ValueError
        rounds[body["round"]] = replace(
            known,
            state=_CLOSED[body["event"]],
            closed_at=body["at"],
            release_hash=body.get("release_hash"),
            reason=body.get("reason"),
        )


def _span(body: Mapping[str, Any]) -> Span | None:
    """Entries about records of all moments have none."""
    if "span" not in body:
        return None
    start, end, clock = body["span"]
    return Span(start, end, clock)
