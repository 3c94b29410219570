"""Accounts: what the entries of a ledger say, population by population. Pure functions."""

import hashlib
import hmac
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any, Literal

from fedprikl.checks import check_epsilon, check_instant
from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError, LedgerDamagedError, LedgerError
from fedprikl.privacy.charges import (
    Charge,
    Unit,
    charge_from_dict,
    charge_named,
    charge_to_dict,
    check_unit,
    check_zero_or_delta,
)
from fedprikl.privacy.composition import largest_fitting_epsilon, total_epsilon
from fedprikl.privacy.laws import AUTOMATIC
from fedprikl.store import Entry, Head, StoreKind

LEDGER = StoreKind(
    name="ledger",
    application=0x66706B6C,  # "fpkl"
    error=LedgerError,
    damaged=LedgerDamagedError,
    advice="The ledger is damaged and nothing can be reserved from it. Restore a copy, and charge "
    "by hand what was released since.",
    unwritten="nothing was charged",
    half_written="Release nothing; whether the round was charged, `fedprikl ledger` will tell once "
    "the disk works.",
)
EVENT = "records"

_SALT = re.compile("[0-9a-f]{64}")
_MARK = re.compile("[0-9a-f]{32}")


@dataclass(slots=True)
class BoundRecords:
    """Marks of all places and contents that were ever bound, and to which population."""

    salt: str = field(default_factory=lambda: secrets.token_hex(32))
    owners: dict[str, str] = field(default_factory=dict)

    def apply(self, body: Mapping[str, Any]) -> None:
        """One entry. A KeyError, TypeError or ValueError: no ledger would have written it."""
        population, salt, marks = body["population"], body["salt"], body["marks"]
        sane = (
            isinstance(population, str)
            and _SALT.fullmatch(salt)
            and (not self.owners or salt == self.salt)
            and isinstance(marks, list)
            and all(_MARK.fullmatch(mark) and mark not in self.owners for mark in marks)
        )
        if not sane:
            raise ValueError("not an entry that binds records")
        self.salt = salt
        self.owners |= dict.fromkeys(marks, population)

    def bind(self, population: str, sources: Mapping[str, str]) -> dict[str, Any]:
        """The entry that binds the sources to a population; without marks if all are already."""
        marks = self._marks(sources)
        others = {self.owners[mark] for mark in marks if mark in self.owners} - {population}
        if others:
            raise _bound_elsewhere(population, sorted(others))
        new = sorted(marks - self.owners.keys())
        return {"event": EVENT, "population": population, "salt": self.salt, "marks": new}

    def _marks(self, sources: Mapping[str, str]) -> set[str]:
        marks = set()
        for place, content in sources.items():
            if not isinstance(place, str) or not isinstance(content, str):
                raise InvalidInputError(
                    "Records are bound by texts: the place of each client and a digest of its "
                    "content (empty if it holds no records)."
                )
            marks.add(self._mark("place", place))
            if content:
                marks.add(self._mark("content", content))
        return marks

    def _mark(self, kind: str, text: str) -> str:
        message = f"{kind}\n{text}".encode(errors="surrogatepass")
        return hmac.new(bytes.fromhex(self.salt), message, hashlib.sha256).hexdigest()[:32]


def _bound_elsewhere(population: str, others: list[str]) -> InvalidInputError:
    names, first = ", ".join(repr(name) for name in others), shlex.quote(others[0])
    return InvalidInputError(
        "Some of these records (the same place or the same content) were bound to the population "
        f"{names} before, now they are called {population!r}. A new name is no new budget. Plan "
        f"with `--population {first}`, so that everything released about the same people is "
        "charged together. Nothing was charged."
    )


@dataclass(frozen=True, slots=True)
class TimeInterval:
    """From `start` up to, and without, `end`: ISO 8601 with an offset.

    `clock` is what tells the time of a record. Intervals of different clocks may share records.
    """

    start: str
    end: str
    clock: str = ""

    def __post_init__(self) -> None:
        start, end = self.instants
        if not start < end:
            raise InvalidInputError("A time interval ends after it begins.")

    @property
    def instants(self) -> tuple[float, float]:
        """In seconds since 1970."""
        return check_instant(self.start).timestamp(), check_instant(self.end).timestamp()

    def overlaps(self, other: "TimeInterval | None") -> bool:
        """Whether a record may be in both; None is all of them."""
        if other is None or other.clock != self.clock:
            return True
        (start, end), (first, last) = self.instants, other.instants
        return start < last and first < end


TimedCharge = tuple[Charge, TimeInterval | None]  # None: whatever the time of a record


def exposures(charges: Iterable[TimedCharge]) -> tuple[tuple[Charge, ...], ...]:
    """What records of different times were charged: equal charges once.

    Cost: the number of intervals times how many of them overlap; of several clocks, the product.

    >>> from fedprikl.privacy import Numbers, calibrate
    >>> one, two = (calibrate(Numbers(), epsilon=each, law="laplace") for each in (0.5, 1.0))
    >>> monday = TimeInterval("2027-01-04T00:00:00+00:00", "2027-01-05T00:00:00+00:00")
    >>> tuesday = TimeInterval("2027-01-05T00:00:00+00:00", "2027-01-06T00:00:00+00:00")
    >>> sorted(map(len, exposures([(one, monday), (two, tuesday)])))
    [0, 1, 1]
    """
    always: list[Charge] = []
    by_clock: dict[str, list[tuple[Charge, TimeInterval]]] = {}
    for charge, times in charges:
        if times is None:
            always.append(charge)
        else:
            by_clock.setdefault(times.clock, []).append((charge, times))
    # A record has a time by every clock, and nobody knows which times go together.
    found = product(*map(_of_clock, by_clock.values()))
    return tuple((*always, *chain.from_iterable(parts)) for parts in found)


def _of_clock(charges: Sequence[tuple[Charge, TimeInterval]]) -> list[tuple[Charge, ...]]:
    """What records of different times were charged, by one clock; some were charged nothing."""
    events: list[tuple[float, int, int]] = []
    for number, (_, times) in enumerate(charges):
        start, end = times.instants
        events += [(start, 1, number), (end, 0, number)]  # what ends goes before what begins
    found: dict[str, tuple[Charge, ...]] = {"": ()}
    active = set[int]()
    for _, begins, number in sorted(events):
        if begins:
            active.add(number)
            now = tuple(charges[each][0] for each in sorted(active))
            found[repr(now)] = now
        else:
            active.discard(number)
    return list(found.values())


def worst_epsilon(charges: Iterable[TimedCharge], *, delta: float) -> float:
    """The most that all charges together tell about one record, whatever its time."""
    return max(total_epsilon(each, delta=delta) for each in exposures(charges))


# Open and committed rounds are charged; a cancelled one is not.
#     open --commit--> committed, open --cancel--> cancelled
# An open round may have released something before its process died, so it stays charged for ever.
RoundState = Literal["open", "committed", "cancelled"]
_CLOSED: dict[str, RoundState] = {"commit": "committed", "cancel": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRound:
    """One reservation, which permits to release a round, and what became of it."""

    round_id: str
    population: str
    charge: Charge
    at: str  # when it was reserved
    head: Head  # of the ledger with this reservation; belongs into the signed release
    note: str = ""
    times: TimeInterval | None = None  # of its records; None: of all of them
    unit: Unit = "record"  # whom the charge protects
    state: RoundState = "open"
    noised: str | None = None  # the hash of its noised numbers, once they are kept
    closed_at: str | None = None
    release_hash: str | None = None
    reason: str | None = None  # of a cancellation

    @property
    def charged(self) -> bool:
        """Whether it counts against the budget."""
        return self.state != "cancelled"

    @property
    def is_open(self) -> bool:
        """Reserved, neither committed nor cancelled: charged, as something may have left."""
        return self.state == "open"


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
    def timed(self) -> list[TimedCharge]:
        """What counts against the budget, in order, each with the times that it is about."""
        return [(entry.charge, entry.times) for entry in self.rounds if entry.charged]

    @property
    def spent(self) -> float:
        """The most that all charged rounds together tell about one unit, at the budget's delta."""
        return worst_epsilon(self.timed, delta=self.delta)

    @property
    def left(self) -> float:
        """Budget minus spent. One more round may cost less than its own epsilon suggests."""
        return max(self.epsilon - self.spent, 0.0)

    @property
    def open_rounds(self) -> tuple[LedgerRound, ...]:
        """Reserved, neither committed nor cancelled: charged, as something may have left."""
        return tuple(entry for entry in self.rounds if entry.is_open)

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
        worst = max(exposures(self.timed), key=lambda each: total_epsilon(each, delta=self.delta))
        return {
            law: largest_fitting_epsilon(worst, epsilon=self.epsilon, delta=self.delta, law=law)
            for law in AUTOMATIC
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the epsilon of a round is what it gives alone."""
        spent = self.spent
        rounds = [
            to_plain(each)
            | {
                "charge": charge_to_dict(each.charge),
                "charged": each.charged,
                "epsilon": total_epsilon([each.charge], delta=self.delta),
            }
            for each in self.rounds
        ]
        return {
            "population": self.population,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "spent": spent,
            "left": max(self.epsilon - spent, 0.0),
            "open": len(self.open_rounds),
            "rounds": rounds,
        }


@dataclass(slots=True)
class Accounts:
    """What all entries of a ledger say, one after the other."""

    budgets: dict[str, Account] = field(default_factory=dict)  # without their rounds
    rounds: dict[str, LedgerRound] = field(default_factory=dict)
    bound: BoundRecords = field(default_factory=BoundRecords)

    def apply(self, entry: Entry) -> None:
        """One entry. A KeyError, TypeError or ValueError: no ledger would have written it."""
        body = entry.body
        match body["event"]:
            case "records":
                self.bound.apply(body)
            case "budget":
                name = _text(body["population"])
                self.budgets[name] = Account(
                    population=name,
                    epsilon=check_epsilon(body["epsilon"]),
                    delta=check_zero_or_delta(body["delta"]),
                    unit=check_unit(body.get("unit", "record")),
                )
            case "reserve":
                self._reserve(entry)
            case "noised":
                known = self.open_round(body["round"])
                if known.noised is not None:
                    raise ValueError
                self.rounds[known.round_id] = replace(known, noised=body["document"])
            case event:
                self._close(_CLOSED[event], body)

    def _reserve(self, entry: Entry) -> None:
        body = entry.body
        name = _text(body["round"])
        if body["population"] not in self.budgets or name in self.rounds:
            raise ValueError
        _refuse_unknown_kind(body)
        self.rounds[name] = LedgerRound(
            round_id=name,
            population=body["population"],
            charge=charge_from_dict(body["mechanism"]),
            at=_text(body["at"]),
            head=Head(entry.number, entry.hash),
            note=_text(body["note"]),
            times=TimeInterval(*map(_text, body["span"])) if "span" in body else None,
            unit=check_unit(body.get("unit", "record")),
        )

    def _close(self, state: RoundState, body: Mapping[str, Any]) -> None:
        known = self.open_round(body["round"])
        if state == "cancelled" and known.noised is not None:
            raise ValueError
        self.rounds[known.round_id] = replace(
            known,
            state=state,
            closed_at=_text(body["at"]),
            release_hash=body.get("release_hash"),
            reason=body.get("reason"),
        )

    def account(self, population: str) -> Account:
        """Of one population, with its rounds."""
        if population not in self.budgets:
            known = ", ".join(repr(name) for name in sorted(self.budgets)) or "none"
            raise InvalidInputError(
                f"Population {population!r} has no budget. Set one first, in this ledger "
                "(`fedprikl ledger --ledger FILE --population NAME --set-epsilon 1`). Known: "
                f"{known}."
            )
        rounds = (each for each in self.rounds.values() if each.population == population)
        return replace(self.budgets[population], rounds=tuple(rounds))

    def open_round(self, round_id: str) -> LedgerRound:
        """A round that is charged and has not ended."""
        known = self.rounds.get(round_id)
        if known is None:
            raise InvalidInputError(f"Round {round_id!r} was never reserved in this ledger.")
        if known.state != "open":
            raise InvalidInputError(
                f"Round {round_id!r} is already {known.state}; that is never changed."
            )
        return known


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _refuse_unknown_kind(body: Mapping[str, Any]) -> None:
    """Not damaged, but written by a process that knew one more mechanism."""
    charge = body["mechanism"]
    kind = charge.get("kind") if isinstance(charge, Mapping) else None
    if isinstance(kind, str) and charge_named(kind) is None:
        raise LedgerError(
            f"The ledger charges round {body['round']!r:.60} for a mechanism of kind {kind!r:.60}, "
            "which is not known here. Import the module that registers it; nothing can be reserved."
        )
