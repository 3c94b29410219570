"""The site's memory: what a site must never forget, in a store of its own.

    begin   a round was begun, and under which plan: no round is begun twice, older plans are void
    step    a step of it was answered: no step is answered twice
    count   the site's records were counted, under whatever population's name, and which; with the
            head of the site's log, which says so too
    forgot  rounds of plans that have expired were removed; what else was known stays

What a client remembers of a running round lives in its SuperNode's memory, which Flower updates
after the answer has left. A process that dies in between, or two that overlap, would find an old
memory, and two answers to one step could expose somebody. Two sums that differ by one client are
that client's counts. So before an answer is worked on, it is claimed here, in one transaction that
no other process can enter and that outlives a power cut.

Rounds and counts belong to the site's data, by its path: a relay gives a site any node number it
likes. The site's log says as well that counts left, so what an older copy of the memory lacks is
known by the log. It does not say of which data, so it counts for all. A process that dies between
the two has noted a count that never left; it counts too.

Whoever holds a signed plan can invite to any number of rounds, so a plan has at most
`MOST_ROUNDS`. The rounds of a plan that has expired are removed: it is refused anyway, also if the
clock goes back. Counts stay. The file holds no key and no record.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fedprikl.documents import read_fields, to_plain
from fedprikl.errors import DeploymentError, PolicyRefusal
from fedprikl.monitoring.counted_records import CountedRecords, records_key
from fedprikl.protocol import Invitation, Plan, SignedPlan, Step
from fedprikl.records import Place
from fedprikl.store import Entry, Head, Store, StoreKind

SITE_MEMORY = StoreKind(
    name="site memory",
    application=0x66706B73,  # "fpks"
    error=DeploymentError,
    damaged=DeploymentError,
    advice="Without it no step is answered. Bring back a copy made after its last round. If there "
    "is none, these records must not be counted again: start with new records in a new "
    "FEDPRIKL_HOME.",
    unwritten="no step was answered",
    half_written="No step was answered; try again once the disk works.",
)
MOST_ROUNDS = 1000  # of one plan ...
TRIES = 4  # ... or so many for each period of a long series
# By the number of an entry of the site's log: a plan under which counts left, and the period.
Left = Mapping[int, tuple[SignedPlan, int | None]]
_ROUND = re.compile("[0-9a-zA-Z]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRound:
    """A round that a site takes part in, and how far it was answered."""

    records: str  # by `records_key`
    round_id: str
    plan: str  # fingerprint
    organiser: str
    population: str
    serial: int
    ends: float | None  # when the plan ends, in seconds; None: never
    step: int  # the last that was answered, by its place among the steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Counts of a site's records that left."""

    records: str  # by `records_key`
    counted: CountedRecords
    plan: str = ""  # fingerprint; empty: not known, so it counts against every plan
    log: Head | None = None  # of the site's log with this count


@dataclass(slots=True)
class Remembered:
    """What the entries of a memory say, one after the other."""

    rounds: dict[tuple[str, str], BegunRound] = field(default_factory=dict)  # by records, round
    counts: list[Count] = field(default_factory=list)
    serials: dict[tuple[str, str], int] = field(default_factory=dict)  # by organiser, population
    forgotten: float = 0.0  # rounds of plans that ended up to then were removed

    def apply(self, entry: Entry) -> None:
        """One entry; an error if this software would never have written it."""
        body = entry.body
        match body["event"]:
            case "begin":
                begun = read_fields(BegunRound, dict(body))
                self.rounds[begun.records, begun.round_id] = begun
                lineage = begun.organiser, begun.population  # may be known by a newer plan that
                self.serials[lineage] = max(begun.serial, self.serials.get(lineage, 0))  # ended
            case "step":
                key = body["records"], body["round_id"]
                self.rounds[key] = replace(self.rounds[key], step=int(body["step"]))
            case "count":
                usual = {"plan": "", "log": None}  # of memories that were written before
                self.counts.append(read_fields(Count, usual | dict(body)))
            case "forgot":
                self.forgotten = float(body["until"])
                self.serials |= {(one, other): int(n) for one, other, n in body["serials"]}
            case _:
                raise ValueError

    def forget_expired(self, at: str) -> int:
        """Removes rounds of expired plans, and notes until when: a clock may go back; how many."""
        now = datetime.fromisoformat(at).timestamp()
        ended = {k: r.ends for k, r in self.rounds.items() if r.ends is not None and r.ends < now}
        for key in ended:
            del self.rounds[key]
        self.forgotten = max([self.forgotten, *ended.values()])
        return len(ended)

    def bodies(self, head: str) -> Iterator[dict[str, Any]]:
        """The entries of a new log, which stands in place of the one with this head."""
        serials = [[*names, serial] for names, serial in self.serials.items()]
        yield {"event": "forgot", "until": self.forgotten, "serials": serials, "head": head}
        for begun in self.rounds.values():
            yield {"event": "begin"} | to_plain(begun)
        for count in self.counts:
            yield {"event": "count"} | to_plain(count)

    @property
    def logged(self) -> frozenset[int]:
        """The numbers of the entries of the site's log with these counts."""
        return frozenset(each.log.count for each in self.counts if each.log is not None)

    @property
    def log(self) -> Head | None:
        """The newest head of the site's log that is known."""
        return next((each.log for each in reversed(self.counts) if each.log is not None), None)


class SiteMemory:
    """What one site has answered. Refuses with a `PolicyRefusal` that depends on no record.

    1. `begin` a round: its plan is neither expired nor replaced, its records may be counted
    2. `go_on` with a later step, once
    3. `count` before the masked counts leave: the step and the count in one transaction
    """

    def __init__(self, path: Path, data: Place) -> None:
        self._path, self._records = path, records_key(data)

    def begin(
        self, invitation: Invitation, *, most_counts: int, at: str, left: Left | None = None
    ) -> None:
        """Takes part in a round, once for ever; remembers the plan's serial number.

        `left`: what the site's log says, of which the memory may lack something.
        """
        round_id, signed, plan = invitation.round_id, invitation.signed, invitation.signed.plan
        if not _ROUND.fullmatch(round_id):
            raise PolicyRefusal("the round's name is not made of letters and digits")
        with _writing(self._path) as (store, known):
            _forget_expired(store, known, at)
            if (self._records, round_id) in known.rounds:
                raise PolicyRefusal("this round has been answered already")
            self._check(known, invitation, most_counts, at, left or {})
            mine = (each for each in known.rounds.values() if each.records == self._records)
            most = max(MOST_ROUNDS, TRIES * plan.series.periods if plan.is_series else 0)
            if sum(each.plan == plan.fingerprint for each in mine) >= most:
                raise PolicyRefusal(f"its plan has been used for {most} rounds; plan again")
            begun = BegunRound(
                records=self._records,
                round_id=round_id,
                plan=plan.fingerprint,
                organiser=signed.signer,
                population=plan.population,
                serial=plan.validity.serial,
                ends=_end(plan),
                step=_number(Step.ADVERTISE),
            )
            store.append({"event": "begin", "at": at} | to_plain(begun))

    def go_on(self, round_id: str, step: Step) -> None:
        """Claims a step of a round that was begun; those before it are closed as well."""
        with _writing(self._path) as (store, known):
            self._claim(store, known, round_id, step)

    def count(
        self,
        invitation: Invitation,
        *,
        most_counts: int,
        at: str,
        log: Callable[[], Head],
        left: Left | None = None,
    ) -> None:
        """Claims the step in which the counts leave, and that the records are counted.

        `log` writes it into the site's log, or refuses. Whether the sum is opened afterwards nobody
        here can know: they stay counted.
        """
        with _writing(self._path) as (store, known):
            self._claim(store, known, invitation.round_id, Step.INPUT)
            asked = self._check(known, invitation, most_counts, at, left or {})
            plan = invitation.signed.plan.fingerprint
            count = Count(records=self._records, counted=asked, plan=plan, log=log())
            body = {"event": "count", "round_id": invitation.round_id, "at": at}
            store.append(body | to_plain(count))

    def counted(self, signed: SignedPlan, left: Left | None = None) -> tuple[int, int]:
        """How often its records were counted so far: under all plans, and under this one.

        Of a series, in the period where it was least; a period that was counted is over.
        """
        plan = signed.plan
        known = read_memory(self._path) if self._path.exists() else Remembered()
        counts = self._counts(known, left or {})
        found = []
        for period in range(plan.series.periods) if plan.is_series else [None]:
            asked = CountedRecords.of(plan, period, organiser=signed.signer)
            if not any(asked.is_period_of(before.counted) for before in counts):
                found.append(_counted(plan, asked, counts))
        return min(found, default=(len(counts), plan.budget.releases))

    def logged(self) -> frozenset[int]:
        """The entries of the site's log with counts that the memory has."""
        return read_memory(self._path).logged if self._path.exists() else frozenset()

    def _counts(self, known: Remembered, left: Left) -> list[Count]:
        """Of these records; and what left by the log alone."""
        lacking = (left[number] for number in sorted(left.keys() - known.logged))
        return [
            *(each for each in known.counts if each.records == self._records),
            *(
                Count(
                    records=self._records,
                    counted=CountedRecords.of(signed.plan, period, organiser=signed.signer),
                    plan=signed.plan.fingerprint,
                )
                for signed, period in lacking
            ),
        ]

    def log_head(self) -> Head | None:
        """The newest head of the site's log that was known when counts left."""
        if not self._path.exists():
            return None
        return read_memory(self._path).log

    def _claim(self, store: Store, known: Remembered, round_id: str, step: Step) -> None:
        begun, number = known.rounds.get((self._records, round_id)), _number(step)
        if begun is None or begun.step >= number:
            raise PolicyRefusal("this step has been answered already")
        body = {"event": "step", "records": self._records, "round_id": round_id}
        store.append(body | {"step": number})

    def _check(
        self, known: Remembered, invitation: Invitation, most_counts: int, at: str, left: Left
    ) -> CountedRecords:
        """What would be counted; refuses a void plan, and records that were counted enough."""
        signed, plan = invitation.signed, invitation.signed.plan
        asked, end = CountedRecords.of(plan, invitation.period, organiser=signed.signer), _end(plan)
        if not plan.validity.includes(at) or (end is not None and end <= known.forgotten):
            raise PolicyRefusal("the plan is not valid at this time: it has expired, or not begun")
        check_newest(signed, known.serials.get(signed.lineage, 0))
        counts = self._counts(known, left)
        if any(asked.is_period_of(before.counted) for before in counts):
            raise PolicyRefusal("its records of this period have been counted already")
        _check_count(plan, asked, counts, most_counts)
        return asked


def check_newest(signed: SignedPlan, newest: int) -> None:
    """Raises `PolicyRefusal` if a plan of its lineage with this serial number has replaced it."""
    serial = signed.plan.validity.serial
    if serial < newest:
        raise PolicyRefusal(
            f"a newer plan of its organiser has replaced this one (serial {newest}, this one "
            f"has {serial}); plans with the same serial stand side by side"
        )


def _check_count(
    plan: Plan, asked: CountedRecords, counts: Sequence[Count], most_counts: int
) -> None:
    """Raises `PolicyRefusal` unless plan and policy allow one more count."""
    counted, own = _counted(plan, asked, counts)
    if own >= plan.budget.releases:
        raise PolicyRefusal(
            f"its records have been counted {own} times under this plan, as often as it says "
            "(releases)"
        )
    if counted >= most_counts:
        raise PolicyRefusal(
            f"its records have been counted {counted} times under all plans together, as often as "
            "its own policy (most-counts) allows"
        )


def _counted(plan: Plan, asked: CountedRecords, counts: Sequence[Count]) -> tuple[int, int]:
    """How many counts matter to the policy's `most-counts`, and to the plan's `releases`.

    A plan's `releases` are rounds of this plan alone. The policy's `most-counts` is about all
    plans: the difference of two sums tells as much if two plans asked for them. Of records, those
    counts matter that may share one with this count. A client is in every count, so all of them
    do: those of its own series are in the plan's budget, all others are not.
    """
    if plan.unit.kind == "record" or not plan.is_series:
        sharing = [each for each in counts if asked.may_share(each.counted)]
        return len(sharing), sum(each.plan in ("", plan.fingerprint) for each in sharing)
    own = sum(each.counted.lineage == asked.lineage for each in counts)
    return len(counts) - own, own


def _number(step: Step) -> int:
    return list(Step).index(step)


def _end(plan: Plan) -> float | None:
    """When the plan ends, in seconds; None: never."""
    until = plan.validity.valid_until
    return datetime.fromisoformat(until).timestamp() if until else None


def read_memory(path: Path) -> Remembered:
    """What a memory says."""
    with Store(path, SITE_MEMORY, create=False) as store, store.reading():
        return _replayed(store)


def forget_expired(path: Path, *, at: str) -> int:
    """Removes the rounds of plans that ended before a time from a memory; how many."""
    with _writing(path) as (store, known):
        return _forget_expired(store, known, at)


def _forget_expired(store: Store, known: Remembered, at: str) -> int:
    removed = known.forget_expired(at)
    if removed:
        store.rewrite(known.bodies(SITE_MEMORY.head_of(store.entries()).hash))
    return removed


@contextmanager
def _writing(path: Path) -> Iterator[tuple[Store, Remembered]]:
    """All or nothing, alone, and on the disk when it ends."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DeploymentError(
            f"Cannot use the folder {path.parent} of the site memory: {error.strerror}. Is it "
            "another user's? Set FEDPRIKL_HOME to one of this user."
        ) from None
    with Store(path, SITE_MEMORY) as store, store.writing():
        yield store, _replayed(store)


def _replayed(store: Store) -> Remembered:
    known = Remembered()
    store.replay(store.entries(), known.apply)
    return known
