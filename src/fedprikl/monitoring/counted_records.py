"""Which records a release counts, whether two releases may share one, and where that is kept."""

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo

from fedprikl.documents import canonical, digest, to_plain
from fedprikl.errors import HistoryError, InvalidInputError
from fedprikl.protocol import Plan, Series
from fedprikl.records import CsvFormat, Days, FileRecords, TimeSlice, data_files
from fedprikl.store import writing

APPLICATION_ID, VERSION = 0x46504B57, 1  # "FPKW", in the header of the file
_SCHEMA = (
    "CREATE TABLE rounds (population TEXT, series TEXT, period INTEGER, round TEXT PRIMARY KEY) "
    "WITHOUT ROWID",
    "CREATE TABLE claims (records TEXT, counted TEXT, round TEXT)",
    "CREATE INDEX claims_of_records ON claims (records)",
)


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
    def line(self) -> tuple[str, str]:
        """Whose plans for whom."""
        return self.organiser, self.population

    def is_period_of(self, other: Self) -> bool:
        """Whether both are about the same period of a population."""
        both = self.series != "" != other.series
        return both and (self.population, self.end) == (other.population, other.end)

    def may_share(self, before: Self) -> bool:
        """Whether a record that was counted before may be counted here again."""
        if not self.clock or self.clock != before.clock:
            return True
        return self.first < before.end and before.first < self.end


class Watermark:
    """What has been counted, kept where the clients' files are. One transaction per round."""

    def __init__(self, path: Path, *, timeout: float = 30.0) -> None:
        self._path, self._timeout = path, timeout

    def claim(self, plan: Plan, period: int, round_id: str, files: Mapping[str, Path]) -> None:
        """Writes down that a round counts these clients; refuses what was counted before.

        A record may be in as many releases as the plan says, and a population's period is counted
        once. All clients are claimed or none.
        """
        asked = CountedRecords.of(plan, period, organiser="")
        line = (plan.population, asked.series)
        with self._writing() as db:
            again = "SELECT 1 FROM rounds WHERE population = ? AND series = ? AND period = ?"
            if db.execute(again, (*line, period)).fetchone():
                raise HistoryError(
                    f"The watermark {self._path} says that period {period} of "
                    f"{plan.population!r} has been counted, and the history does not know it: the "
                    "history is an older copy. Bring the newer one back."
                )
            for name, data in files.items():
                before = _claimed(db, data)
                times = sum(asked.may_share(each) for each in before)
                if times >= plan.budget.releases or any(map(asked.is_period_of, before)):
                    raise HistoryError(
                        f"The records of {name} from this period have been counted before, under "
                        "this or another population's name. Nothing was counted now. Each record "
                        "is counted once in a series."
                    )
                content = canonical(asdict(asked)).decode()
                db.execute("INSERT INTO claims VALUES (?, ?, ?)", (_key(data), content, round_id))
            db.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", (*line, period, round_id))

    def forget(self, round_id: str) -> None:
        """Takes a round's claims back: only if it never reserved a budget, so opened nothing."""
        with self._writing() as db:
            for table in ("rounds", "claims"):
                db.execute(f"DELETE FROM {table} WHERE round = ?", (round_id,))  # noqa: S608

    def rounds(self, plan: Plan) -> dict[str, int]:
        """The rounds that counted the plan's series, with their periods."""
        series = CountedRecords.of(plan, 0, organiser="").series
        with self._writing() as db:
            rows = db.execute(
                "SELECT round, period FROM rounds WHERE population = ? AND series = ?",
                (plan.population, series),
            ).fetchall()
        return dict(rows)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, alone, and on the disk when it ends."""
        try:
            with writing(
                self._path,
                _SCHEMA,
                application=APPLICATION_ID,
                version=VERSION,
                timeout=self._timeout,
            ) as db:
                yield db
        except (sqlite3.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise HistoryError(
                f"Cannot use the watermark {self._path}: {reason}. Nothing was counted; without it "
                "nobody knows which records are new."
            ) from None


def _claimed(db: sqlite3.Connection, data: Path) -> list[CountedRecords]:
    """What was counted of a client's records, under whatever name."""
    rows = db.execute("SELECT counted FROM claims WHERE records = ?", (_key(data),)).fetchall()
    known = {field.name for field in fields(CountedRecords)}  # earlier versions wrote more
    found = [json.loads(content) for (content,) in rows]
    return [CountedRecords(**{name: each[name] for name in known}) for each in found]


def _key(data: Path) -> str:
    return hashlib.sha256(os.fsencode(data.resolve())).hexdigest()


def records_of_period(
    series: Series, number: int, path: Path, form: CsvFormat | None = None, *, drawn: bool = False
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
    path: Path,
    form: CsvFormat | None = None,
    *,
    drawn: bool = False,
) -> FileRecords:
    """The same from one limit of periods up to another."""
    times, days = None, None
    if series.time_column:
        times = TimeSlice(series.time_column, start, end, series.zone)
    else:
        days = _days(series, start, end)
    return FileRecords(data_files(path, blank=drawn, days=days), form or CsvFormat(), times)


def named_days(series: Series, number: int) -> Days | None:
    """The days whose files the release of a period counts; None: a time column says it."""
    counted = series.counted_by(number)
    return None if series.time_column else _days(series, counted.start, counted.end)


def _days(series: Series, start: datetime, end: datetime) -> Days:
    zone = ZoneInfo(series.zone)
    return start.astimezone(zone).date(), end.astimezone(zone).date()
