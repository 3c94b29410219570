"""Which records a release counts, whether two releases may share one, and where that is kept."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo

from fedprikl.documents import digest, read_fields, to_plain
from fedprikl.errors import HistoryError, InvalidInputError
from fedprikl.protocol import Plan, Series
from fedprikl.records import CsvFormat, Days, FileRecords, Place, TimeSlice, data_files
from fedprikl.records.clients import Records, open_records
from fedprikl.records.sources import check_once
from fedprikl.store import Entry, Store, StoreKind

REGISTRY = StoreKind(
    name="registry of counted records",
    application=0x66706B77,  # "fpkw"
    error=HistoryError,
    damaged=HistoryError,
    advice="It is damaged, and without it nobody knows which records are new. Restore a copy of "
    "it; nothing was counted.",
    unwritten="nothing was counted",
    half_written="Try again once the disk works.",
)


def records_key(data: Place) -> str:
    """By which a client's records are known: their place, however it is written."""
    place = str(data.resolve()) if isinstance(data, Path) else data.places[0]
    return hashlib.sha256(os.fsencode(place)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRecords:
    """The records of one count: those of some times, or all.

    Limits of time are comparable only if they are about the same column, read by the same zone's
    clock, or both about names of files.
    """

    population: str
    organiser: str = ""  # public key of who signed the plan
    series: str = ""  # digest of where its periods begin; empty: the plan has no series
    clock: str = ""  # what tells the time of a record; empty: times are no limit
    first: float = 0.0  # the earliest time that is counted, in seconds
    end: float = 0.0

    @classmethod
    def of(cls, plan: Plan, period: int | None, *, organiser: str) -> Self:
        """What a round of the plan counts; of a series, in a period."""
        if plan.when.kind == "once":
            return cls(population=plan.population, organiser=organiser)
        if period is None:
            raise InvalidInputError("A round of a series counts the records of one period.")
        series = plan.when
        content = to_plain(series)
        for name in ("periods", "window"):  # neither moves a period
            del content[name]
        counted = series.counted_by(period)
        return cls(
            population=plan.population,
            organiser=organiser,
            series=digest(content),
            clock=series.clock,
            first=counted.start.timestamp(),
            end=counted.end.timestamp(),
        )

    @property
    def lineage(self) -> tuple[str, str, str]:
        """Whose plans for whom, and which series."""
        return self.organiser, self.population, self.series

    def is_period_of(self, other: Self) -> bool:
        """Whether both are about the same period of a population."""
        both = self.series != "" != other.series
        return both and (self.population, self.end) == (other.population, other.end)

    def may_share(self, before: Self) -> bool:
        """Whether a record that was counted before may be counted here again."""
        if not self.clock or self.clock != before.clock:
            return True
        return self.first < before.end and before.first < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The records that one round counts."""

    round_id: str
    period: int
    counted: CountedRecords
    records: tuple[str, ...]  # of each client, by `records_key`


class CountedRegistry:
    """What has been counted, kept where the clients' files are. One entry per round."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def claim(self, plan: Plan, period: int, round_id: str, files: Mapping[str, Place]) -> None:
        """Writes down that a round counts these clients; refuses what was counted before.

        A record may be in as many releases as the plan says, and a population's period is counted
        once. All clients are claimed or none.
        """
        asked = CountedRecords.of(plan, period, organiser="")
        keys = {name: records_key(data) for name, data in files.items()}
        claim = Claim(round_id=round_id, period=period, counted=asked, records=tuple(keys.values()))
        with Store(self._path, REGISTRY) as store, store.writing():
            claims = _claims(store)
            own = (each for each in claims if each.counted.lineage == asked.lineage)
            if any(each.period == period for each in own):
                raise HistoryError(
                    f"The registry of counted records {self._path} says that period {period} of "
                    f"{plan.population!r} has been counted, and the history does not know it: the "
                    "history is an older copy. Bring the newer one back."
                )
            before: dict[str, list[CountedRecords]] = defaultdict(list)
            for each in claims:
                for key in each.records:
                    before[key].append(each.counted)
            for name, key in keys.items():
                times = sum(asked.may_share(each) for each in before[key])
                if times >= plan.budget.releases or any(map(asked.is_period_of, before[key])):
                    raise HistoryError(
                        f"The records of {name} from this period have been counted before, under "
                        "this or another population's name. Nothing was counted now. Each record "
                        "is counted once in a series."
                    )
                before[key].append(asked)  # two clients may be one file
            store.append({"event": "claim"} | to_plain(claim))

    def forget(self, round_id: str) -> None:
        """Takes a round's claims back: only if it never reserved a budget, so opened nothing."""
        with Store(self._path, REGISTRY) as store, store.writing():
            if any(each.round_id == round_id for each in _claims(store)):
                store.append({"event": "forget", "round_id": round_id})

    def rounds(self, plan: Plan) -> dict[str, int]:
        """The rounds that counted the plan's series, with their periods."""
        lineage = CountedRecords.of(plan, 0, organiser="").lineage
        with Store(self._path, REGISTRY) as store, store.reading():
            claims = _claims(store)
        return {each.round_id: each.period for each in claims if each.counted.lineage == lineage}


def _claims(store: Store) -> list[Claim]:
    """All claims of a registry that were not taken back, in order."""
    found: dict[str, Claim] = {}

    def apply(entry: Entry) -> None:
        body = entry.body
        match body["event"]:
            case "claim":
                found[body["round_id"]] = read_fields(Claim, dict(body))
            case "forget":
                found.pop(body["round_id"], None)
            case _:
                raise ValueError

    store.replay(store.entries(), apply)
    return list(found.values())


def records_asked(
    plan: Plan, period: int | None, place: Place, form: CsvFormat | None, *, drawn: bool
) -> Records:
    """What of a client's file, folder or table a round counts; a file is counted once."""
    when = plan.when
    check_once([place], by_name=when.kind == "series" and not when.time_column)
    if when.kind == "once" or period is None:
        return open_records(place, format=form, drawn=drawn)
    return records_of_period(when, period, place, form, drawn=drawn)


def records_of_period(
    series: Series, number: int, path: Place, form: CsvFormat | None = None, *, drawn: bool = False
) -> FileRecords:
    """What of a client's file or folder belongs to the release of a period.

    A client without a file of the period has no records in it. Where records are `drawn`, a client
    may have no files at all.
    """
    counted = series.counted_by(number)
    return records_between(series, counted.start, counted.end, path, form, drawn=drawn)


def records_between(
    series: Series,
    start: datetime,
    end: datetime,
    path: Place,
    form: CsvFormat | None = None,
    *,
    drawn: bool = False,
) -> FileRecords:
    """The same from one limit of periods up to another."""
    days, times = _days(series, start, end), times_between(series, start, end)
    return FileRecords(data_files(path, blank=drawn, days=days), form or CsvFormat(), times)


def times_between(series: Series, start: datetime, end: datetime) -> TimeSlice | None:
    """The times of these records; None: names of files say it."""
    column = series.time_column
    return TimeSlice(column, start, end, series.zone) if column else None


def days_of_period(series: Series, number: int) -> Days | None:
    """The days whose files the release of a period counts; None: a time column says it."""
    counted = series.counted_by(number)
    return _days(series, counted.start, counted.end)


def _days(series: Series, start: datetime, end: datetime) -> Days | None:
    if series.time_column:
        return None
    zone = ZoneInfo(series.zone)
    return start.astimezone(zone).date(), end.astimezone(zone).date()
