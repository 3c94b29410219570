"""What a site must never forget: across processes, crashes, names and node numbers."""

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedprikl.deployment import site_memory
from fedprikl.deployment.site_memory import SITE_MEMORY, SiteMemory, forget_expired, read_memory
from fedprikl.errors import DeploymentError, PolicyRefusal
from fedprikl.protocol import Invitation, SignedPlan, SigningKey, Step
from fedprikl.store import Head, Store
from tests.plans import make_plan
from tests.secure_sum.helpers import make_plan as make_plan_of_sums

KEY = SigningKey.generate()
AT = "2030-01-31T12:00:00+00:00"
LATER = "2031-01-31T12:00:00+00:00"


def signed(key: SigningKey = KEY, **changes: Any) -> SignedPlan:
    settings: dict[str, Any] = {
        "population": "sites",
        "valid_from": "2030-01-01T00:00:00+00:00",
        "valid_until": "2030-03-01T00:00:00+00:00",
    }
    return SignedPlan.sign(make_plan(**(settings | changes)), key)


SUMS = make_plan_of_sums(clients=3)
LOGGED = Head(1, 64 * "0")  # of a site's log


@dataclass
class Site:
    """A site's memory, asked by the name of a round and a plan."""

    memory: SiteMemory

    def begin(
        self, name: str, plan: SignedPlan, *, most_counts: int, at: str, period: int | None = None
    ) -> None:
        invited = Invitation(name, plan, 0, 0, 0, (), SUMS, period)
        self.memory.begin(invited, most_counts=most_counts, at=at)

    def count(
        self, name: str, plan: SignedPlan, *, most_counts: int, at: str, period: int | None = None
    ) -> None:
        invited = Invitation(name, plan, 0, 0, 0, (), SUMS, period)
        self.memory.count(invited, most_counts=most_counts, at=at, log=lambda: LOGGED)

    def go_on(self, name: str, step: Step) -> None:
        self.memory.go_on(name, step)


def memory(folder: Path, data: str = "records.csv") -> Site:
    return Site(SiteMemory(folder / "home" / "site.db", folder / data))


def counted(this: Site, round_id: str, plan: SignedPlan, *, most: int = 1, at: str = AT) -> None:
    """A round up to the step in which the counts leave."""
    this.begin(round_id, plan, most_counts=most, at=at)
    this.go_on(round_id, Step.SHARE)
    this.count(round_id, plan, most_counts=most, at=at)


def refused(words: str, call: Callable[..., object], *arguments: object, **more: object) -> None:
    with pytest.raises(PolicyRefusal, match=words):
        call(*arguments, **more)


# Answered once


def test_a_step_is_claimed_once_and_closes_those_before_it(tmp_path: Path) -> None:
    plan = signed()
    memory(tmp_path).begin("ab12", plan, most_counts=1, at=AT)
    refused("round has been answered", lambda: counted(memory(tmp_path), "ab12", plan))
    memory(tmp_path).go_on("ab12", Step.ECHO)
    for step in (Step.SHARE, Step.ECHO):
        refused("step has been answered", memory(tmp_path).go_on, "ab12", step)
    late = memory(tmp_path)
    refused("step has been answered", lambda: late.count("ab12", plan, most_counts=1, at=AT))
    memory(tmp_path).go_on("ab12", Step.REVEAL)


def test_a_step_of_a_round_that_never_began_is_not_answered(tmp_path: Path) -> None:
    refused("step has been answered", lambda: memory(tmp_path).go_on("ab12", Step.SHARE))


def test_another_round_reopens_nothing(tmp_path: Path) -> None:
    this, plan = memory(tmp_path), signed()
    this.begin("aa", plan, most_counts=1, at=AT)
    this.go_on("aa", Step.SHARE)
    this.begin("bb", plan, most_counts=1, at=AT)
    refused("answered already", lambda: this.go_on("aa", Step.SHARE))
    refused("answered already", lambda: this.begin("aa", plan, most_counts=1, at=AT))


def test_names_that_are_no_rounds_are_refused(tmp_path: Path) -> None:
    for name in ("", "../../etc", "a" * 65, "\ud800"):
        begin = memory(tmp_path).begin
        refused("letters and digits", begin, name, signed(), most_counts=1, at=AT)


# Plans that are over


def test_every_plan_that_was_forgotten_stays_over_when_the_clock_goes_back(
    tmp_path: Path,
) -> None:
    """Not only the one that ended first: its rounds are gone, so they would be answered again."""
    early = signed(valid_until="2030-02-15T00:00:00+00:00")
    late = signed(population="others", valid_until="2030-03-01T00:00:00+00:00")
    for name, plan in (("aa", early), ("bb", late)):
        memory(tmp_path).begin(name, plan, most_counts=1, at=AT)
    assert forget_expired(tmp_path / "home" / "site.db", at=LATER) == 2
    for name, plan in (("aa", early), ("bb", late)):
        refused("has expired", memory(tmp_path).begin, name, plan, most_counts=1, at=AT)
    longer = signed(valid_until="2030-03-01T00:00:01+00:00")  # nothing of it was forgotten
    memory(tmp_path).begin("cc", longer, most_counts=1, at=AT)


def test_a_plan_is_remembered_to_its_last_instant(tmp_path: Path) -> None:
    plan = signed()
    last = plan.plan.validity.valid_until
    memory(tmp_path).begin("aa", plan, most_counts=1, at=last)
    refused("answered already", memory(tmp_path).begin, "aa", plan, most_counts=1, at=last)
    memory(tmp_path).begin("bb", plan, most_counts=1, at=last)


# Counted once


def test_the_same_records_are_counted_once_whatever_the_population_is_called(
    tmp_path: Path,
) -> None:
    counted(memory(tmp_path), "aa", signed())
    for again in (signed(), signed(population="renamed"), signed(key=SigningKey.generate())):
        refused("as often as", counted, memory(tmp_path), "bb", again)


@pytest.mark.parametrize(("releases", "most", "rounds"), [(1, 5, 1), (5, 1, 1), (3, 2, 2)])
def test_plan_and_site_must_both_allow_another_count(
    tmp_path: Path, releases: int, most: int, rounds: int
) -> None:
    plan = signed(releases=releases)
    for number in range(rounds):
        counted(memory(tmp_path), f"r{number}", plan, most=most)
    refused("as often as", lambda: counted(memory(tmp_path), "more", plan, most=most))


def test_counts_belong_to_the_data_however_its_path_is_written(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "records.csv")
    counted(memory(tmp_path), "aa", signed())
    refused("as often as", lambda: counted(memory(tmp_path, "link.csv"), "bb", signed()))
    refused("as often as", lambda: counted(memory(tmp_path, "x/../link.csv"), "c", signed()))
    counted(memory(tmp_path, "other.csv"), "aa", signed())  # another site of this machine


def test_two_rounds_that_began_are_not_both_counted(tmp_path: Path) -> None:
    """Each was allowed when it began; whichever comes first to its counts is the only one."""
    for name in ("aa", "bb"):
        memory(tmp_path).begin(name, signed(), most_counts=1, at=AT)
    memory(tmp_path).count("aa", signed(), most_counts=1, at=AT)
    refused(
        "as often as",
        lambda: memory(tmp_path).count("bb", signed(), most_counts=1, at=AT),
    )


def test_counts_outlive_their_plan(tmp_path: Path) -> None:
    counted(memory(tmp_path), "aa", signed())
    later = signed(valid_until="2032-01-01T00:00:00+00:00")
    refused("as often as", lambda: counted(memory(tmp_path), "bb", later, at=LATER))
    twice = signed(valid_until="2032-01-01T00:00:00+00:00", releases=2)
    counted(memory(tmp_path), "aa", twice, most=2, at=LATER)  # the same round's name, once more
    refused("as often as", lambda: counted(memory(tmp_path), "cc", twice, most=2, at=LATER))


# Which plans


def test_an_older_plan_is_refused_once_a_newer_one_was_seen(tmp_path: Path) -> None:
    this = memory(tmp_path)
    this.begin("aa", signed(serial=1), most_counts=1, at=AT)
    this.begin("bb", signed(serial=2), most_counts=1, at=AT)
    refused("newer plan", lambda: counted(this, "cc", signed(serial=1)))
    refused("newer plan", lambda: this.count("aa", signed(serial=1), most_counts=1, at=AT))
    this.begin("dd", signed(serial=2), most_counts=1, at=AT)
    this.begin("ee", signed(serial=0, population="others"), most_counts=1, at=AT)
    this.begin("ff", signed(SigningKey.generate(), serial=0), most_counts=1, at=AT)


def test_a_plan_that_is_refused_replaces_none(tmp_path: Path) -> None:
    this = memory(tmp_path)
    this.begin("aa", signed(serial=1), most_counts=1, at=AT)
    future = signed(serial=9, valid_from="2030-02-15T00:00:00+00:00")
    refused("not valid at this time", lambda: counted(this, "bb", future))
    this.begin("cc", signed(serial=1), most_counts=1, at=AT)


def test_an_expired_plan_is_refused_in_every_step_that_matters(tmp_path: Path) -> None:
    this = memory(tmp_path)
    refused("not valid at this time", lambda: counted(this, "aa", signed(), at=LATER))
    this.begin("bb", signed(), most_counts=1, at=AT)
    refused("not valid at this time", lambda: this.count("bb", signed(), most_counts=1, at=LATER))


def test_rounds_of_expired_plans_are_forgotten_and_stay_closed(tmp_path: Path) -> None:
    this, long = memory(tmp_path), signed(valid_until="2032-01-01T00:00:00+00:00")
    this.begin("aa", signed(), most_counts=1, at=AT)
    this.begin("bb", long, most_counts=1, at=LATER)
    path = tmp_path / "home" / "site.db"
    assert [name for _, name in read_memory(path).rounds] == ["bb"]
    for name in ("aa", "cc"):  # the clock goes back: the plan stays expired
        refused("not valid at this time", counted, this, name, signed())


def test_forged_invitations_do_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_memory, "MOST_ROUNDS", 3)
    this = memory(tmp_path)
    for number in range(3):
        this.begin(f"r{number}", signed(), most_counts=1, at=AT)
    refused("used for 3 rounds", lambda: this.begin("r3", signed(), most_counts=1, at=AT))
    refused("answered already", lambda: this.begin("r0", signed(), most_counts=1, at=AT))
    this.begin("r3", signed(serial=1), most_counts=1, at=AT)


# The file


def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
    memory(tmp_path).begin("aa", signed(), most_counts=1, at=AT)
    (file,) = (tmp_path / "home").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert b"records.csv" not in file.read_bytes()


def test_a_memory_that_cannot_be_kept_stops_the_client(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, words in {
        tmp_path / "file" / "site.db": "Cannot use the folder .* of the site memory",
        tmp_path / "file": "is not a site memory: .* it is empty",
    }.items():
        this = Site(SiteMemory(path, tmp_path / "records.csv"))
        with pytest.raises(DeploymentError, match=words):
            this.begin("aa", signed(), most_counts=1, at=AT)
    (tmp_path / "noise").write_bytes(os.urandom(5000))
    with pytest.raises(DeploymentError, match="is not a site memory"):
        SiteMemory(tmp_path / "noise", tmp_path).go_on("aa", Step.SHARE)


def test_no_flipped_bit_lets_records_be_counted_again(tmp_path: Path) -> None:
    """In any page of the file: the right answer, or none and our error."""
    for number in range(20):  # more than one page of counts
        counted(memory(tmp_path, f"{number}.csv"), "ab" * 32, signed())
    path, draw = tmp_path / "home" / "site.db", random.Random(7)  # noqa: S311
    whole, noticed = path.read_bytes(), 0
    for _ in range(200):
        spoilt, bit = bytearray(whole), draw.randrange(8 * len(whole))
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        this = memory(tmp_path, f"{draw.randrange(20)}.csv")
        with pytest.raises((PolicyRefusal, DeploymentError)) as told:
            this.begin("new", signed(), most_counts=1, at=AT)
        noticed += told.type is DeploymentError
        assert told.match("as often as|site memory|Bring back a copy")
    assert noticed > 50


def edit(path: Path, *statements: str) -> None:
    """Another program's changes, with the guards against them taken away and put back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        guards = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)
        for _, sql in guards:
            db.execute(sql)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM entries WHERE number = 2", "entry 2 is missing"),
        ("UPDATE entries SET body = replace(body, '0.0', '9.0') WHERE number = 4", "entry 4 or"),
        ("UPDATE entries SET number = -number", "entry 1 is missing"),
    ],
)
def test_entries_are_chained(tmp_path: Path, statement: str, words: str) -> None:
    counted(memory(tmp_path), "aa", signed())
    edit(tmp_path / "home" / "site.db", statement)
    with pytest.raises(DeploymentError, match=words):
        memory(tmp_path).go_on("aa", Step.REVEAL)


@pytest.mark.parametrize(
    "body",
    [
        {"event": "dance"},
        {"event": "begin", "round_id": "aa"},
        {"event": "step", "records": "nobody", "round_id": "aa", "step": 2},
        {"event": "count", "records": "nobody", "counted": {"population": 3}},
        {"event": "forgot", "until": "never", "serials": []},
        {"event": "forgot", "until": 3.0, "serials": [["one"]]},
    ],
)
def test_entries_that_make_no_sense_are_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    """Whoever forges an entry can also forge its hash."""
    counted(memory(tmp_path), "aa", signed())
    with Store(tmp_path / "home" / "site.db", SITE_MEMORY) as store, store.writing():
        store.append(body)
    with pytest.raises(DeploymentError, match=r"Entry 5 .* makes no sense"):
        memory(tmp_path).go_on("aa", Step.REVEAL)


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    counted(memory(tmp_path), "aa", signed())
    edit(tmp_path / "home" / "site.db", "PRAGMA user_version = 9")
    with pytest.raises(DeploymentError, match="version 9, this software reads versions 1 to 1"):
        memory(tmp_path).go_on("aa", Step.REVEAL)


def in_another_process(work: Callable[[Callable[[str], None]], None]) -> tuple[int, int]:
    """Runs the work in a child that tells lines; (its process id, where they can be read)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        lines = os.fdopen(writing, "w")
        try:
            work(lambda line: print(line, file=lines, flush=True))
        finally:
            os._exit(0)
    os.close(writing)
    return child, reading


def told(child: int, reading: int) -> list[str]:
    os.waitpid(child, 0)
    with os.fdopen(reading) as lines:
        return lines.read().split()


def count_all(folder: Path, names: list[str], tell: Callable[[str], None]) -> None:
    """Tries to have every round counted; tells of those that were granted."""
    for name in names:
        try:
            this, plan = memory(folder), signed(releases=len(names))
            with suppress(PolicyRefusal):  # begun by one that was killed, or is faster
                this.begin(name, plan, most_counts=len(names), at=AT)
            this.count(name, plan, most_counts=len(names) // 2, at=AT)
            tell(name)
        except PolicyRefusal:
            continue


def test_processes_that_race_count_no_round_twice_and_none_too_many(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(12)]
    children = [in_another_process(lambda tell: count_all(tmp_path, names, tell)) for _ in range(4)]
    granted = [name for child in children for name in told(*child)]
    assert len(granted) == len(set(granted)) == len(names) // 2


def test_a_process_killed_at_any_instant_forgets_nothing(tmp_path: Path) -> None:
    """What was granted stays granted; what was not told of is granted to nobody else either."""
    names = [f"r{number}" for number in range(40)]
    granted: list[str] = []
    for number in range(8):
        child, reading = in_another_process(lambda tell: count_all(tmp_path, names, tell))
        time.sleep(0.004 * number)
        os.kill(child, signal.SIGKILL)
        granted += told(child, reading)
    granted += told(*in_another_process(lambda tell: count_all(tmp_path, names, tell)))
    assert len(granted) == len(set(granted)) <= len(names) // 2
    assert len(read_memory(tmp_path / "home" / "site.db").counts) == len(names) // 2
