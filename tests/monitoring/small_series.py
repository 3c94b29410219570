"""A series so small that a period takes a moment: three cells, three clients, no planner."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fedprikl as fk
from fedprikl.front.series import read_status
from fedprikl.monitoring.history import History
from fedprikl.monitoring.status import SeriesStatus
from fedprikl.privacy import InsecureSeededNoise, Ledger, RoundState
from fedprikl.protocol import Plan, Series, SignedPlan
from tests.plans import make_plan

FIRST = datetime(2027, 1, 4, tzinfo=UTC)
NAMES = ("a.csv", "b.csv", "c.csv")
REFERENCE = fk.Reference.from_counts([600, 300, 100])

LIKE_PI, DRIFTED = (12, 6, 2), (2, 6, 12)  # records of a client in a period, by cell
WEEKS = Series(every="week", first="2027-01-04", periods=6, time_column="day")
NAMED = replace(WEEKS, time_column="")  # by the names of folders, which hold clients' files


def plan_of(series: Series | None = WEEKS, **known: Any) -> Plan:
    """What the planner would make of it, in no time."""
    usual: dict[str, Any] = {
        "population": "clients",
        "reference": REFERENCE.fingerprint,
        "trust": "aggregator",
        "epsilon": 2.0,
        "delta": 1e-6,
        "points": 3,
        "release": "counts",
        "batches": 1,
        "noise": "laplace",
        "cohort": 3,
        "most_records": 2047,
        "false_alarm": 0.01,
        "total_epsilon": 2.0,
        "total_delta": 1e-6,
        "series": series,
    }
    return make_plan(**(usual | known))


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """In memory where there is such a folder: disks wait for every durable write.

    A process that is killed leaves the same behind in either; only a power cut does not.
    """
    memory = Path("/dev/shm")  # noqa: S108
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as found:
        yield Path(found)


def over(number: int, *, hours: int = 6) -> str:
    """Some hours after the end of a week."""
    return (FIRST + timedelta(days=7 * (number + 1), hours=hours)).isoformat()


def rows(week: int, counts: Iterable[int] = LIKE_PI) -> list[str]:
    """Records of one client in one week: a day and a cell."""
    day = (FIRST + timedelta(days=7 * week + 1)).date()
    return [f"{day},{cell}" for cell, many in enumerate(counts) for _ in range(many)]


@dataclass(frozen=True)
class World:
    """A folder with three clients' files, and all that a series keeps beside it."""

    folder: Path
    plan: Plan

    @classmethod
    def create(cls, folder: Path, plan: Plan | None = None) -> "World":
        (folder / "clients").mkdir(parents=True)
        world = cls(folder, plan or plan_of())
        if not world.plan.is_series or world.plan.series.time_column:
            for name in NAMES:
                (folder / "clients" / name).write_text("day,cell\n", encoding="utf-8")
        return world

    def grow(self, week: int, counts: Iterable[int] = LIKE_PI) -> "World":
        """The files of all clients go on with another week."""
        place = self.folder / "clients"
        if self.plan.is_series and not self.plan.series.time_column:
            place /= f"week=2027-W{week + 1:02}"
            place.mkdir(exist_ok=True)
        for name in NAMES:
            with (place / name).open("a", encoding="utf-8") as file:
                header = [] if file.tell() else ["day,cell"]
                file.write("\n".join([*header, *rows(week, counts), ""]))
        return self

    @property
    def history(self) -> Path:
        return self.folder / "history.db"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def counted(self) -> Path:
        return self.folder / "counted.db"

    def monitor(self, at: str, **other: Any) -> SeriesStatus:
        known: dict[str, Any] = {
            "key": self.folder / "aggregator.pem",
            "source": InsecureSeededNoise(7),
        }
        known |= {"history": self.history, "ledger": self.ledger} | other
        return fk.monitor(REFERENCE, self.folder / "clients", self.plan, at=at, **(known | other))

    def states(self, at: str) -> list[str]:
        return [point.state for point in read_status(self.history, self.ledger, at=at).points]

    def charged(self) -> dict[str, RoundState]:
        """Rounds of the ledger."""
        if not self.ledger.exists():
            return {}
        with Ledger.open(self.ledger, create=False) as book:
            if self.plan.population not in book.populations():
                return {}
            account = book.account(self.plan.population)
            return {each.round_id: each.state for each in account.rounds}

    def verify(self) -> int:
        with History.open(self.history, create=False) as opened:
            return opened.verify()

    @property
    def signed(self) -> SignedPlan:
        return SignedPlan(self.plan)
