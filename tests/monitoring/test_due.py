"""What is due is done, in order and once; what cannot be done any more is noted with its reason."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import fedprikl as fk
from fedprikl.documents import canonical, to_plain
from fedprikl.errors import (
    BudgetExceededError,
    HistoryError,
    InvalidInputError,
    RecordsError,
    ReleaseRefused,
)
from fedprikl.front.series import EMPTY
from fedprikl.monitoring import sequential
from fedprikl.monitoring.history import History
from fedprikl.monitoring.monitored_views import counts_of, monitored_views
from fedprikl.monitoring.null_series import ViewNull
from fedprikl.monitoring.sequential import judge_series
from fedprikl.monitoring.status import SeriesStatus
from fedprikl.privacy import Ledger
from fedprikl.protocol import Series, SigningKey
from tests.monitoring.small_series import (
    FIRST,
    NAMED,
    NAMES,
    REFERENCE,
    WEEKS,
    World,
    over,
    plan_of,
    rows,
)

EACH = 20  # records of a client in a week, three clients


def states(status: SeriesStatus) -> list[str]:
    return [point.state for point in status.points]


def records(status: SeriesStatus) -> list[int]:
    """Of the periods that are over."""
    return [point.records for point in status.points if point.state != "ahead"]


def kept_bytes(world: World) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(world.folder.glob("*.db"))}


def test_nothing_is_due_before_the_first_period_is_over(folder: Path) -> None:
    world = World.create(folder / "series").grow(0)
    before = (FIRST + timedelta(days=7, seconds=-1)).isoformat()
    assert states(world.monitor(before)) == ["ahead"]
    assert not world.ledger.exists()
    end = (FIRST + timedelta(days=7)).isoformat()
    assert states(world.monitor(end)) == ["released", "ahead"]


def test_what_is_done_is_not_done_again(folder: Path) -> None:
    world = World.create(folder / "series").grow(0).grow(1)
    first = world.monitor(over(0))
    before = kept_bytes(world)
    for hours in (6, 7, 30, 6 * 24):
        assert world.monitor(over(0, hours=hours)).points[0] == first.points[0]
        assert kept_bytes(world) == before
    earlier = world.monitor(FIRST.isoformat())  # the clock was set back
    assert kept_bytes(world) == before
    assert earlier.points == first.points


def test_what_was_simulated_is_not_simulated_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history keeps the laws without drift, to the last digit; the verdict is the same."""
    world = World.create(folder / "series").grow(0).grow(1)
    world.monitor(over(0))
    monkeypatch.setattr(sequential, "simulate_null", NotImplemented)
    last = world.monitor(over(1)).points[1]
    monkeypatch.undo()
    with History.open(world.history, create=False) as opened:
        releases, plan = opened.releases(), world.plan
        judged = opened.read().judged.values()
        (kept,) = (each["simulated"] for each in judged if "simulated" in each)
    counts = [counts_of(each, plan, REFERENCE, n) for n, each in sorted(releases.items())]
    laws: dict[str, ViewNull] = {}
    anew = judge_series(
        monitored_views(plan, REFERENCE),
        counts,
        false_alarm=plan.verdict.false_alarm,
        per_year=plan.series.per_year,
        horizon=plan.series.periods,
        simulated=laws,
    )
    assert kept == canonical({name: to_plain(each) for name, each in laws.items()}).decode()
    assert last.whole is not None
    assert (anew.judged[1].views[0], anew.judged[1].threshold) == (
        replace(last.whole, sizes=()),
        last.threshold,
    )


def test_periods_are_caught_up_in_order(folder: Path) -> None:
    world = World.create(folder / "series").grow(0).grow(1, (1, 2, 3)).grow(2)
    world.monitor(over(0))
    status = world.monitor(over(2))
    assert states(status) == ["released", "released", "released", "ahead"]
    assert records(status) == [3 * EACH, 3 * 6, 3 * EACH]
    assert world.verify() == 3
    assert status.budget is not None
    assert status.budget.spent == pytest.approx(2.0)  # of one record, however many periods


def test_names_of_folders_tell_the_period(folder: Path) -> None:
    """All that are due are counted; what comes late, or is nobody's file, is not."""
    world = World.create(folder / "series", plan_of(NAMED)).grow(0)
    world.monitor(over(0))
    world.grow(0, (5, 3, 1)).grow(1).grow(2, (5, 0, 0)).grow(3)
    (world.folder / "clients" / "week=2027-W03" / "b.csv").unlink()
    status = world.monitor(over(3))
    assert states(status) == [*["released"] * 4, "ahead"]
    assert records(status) == [3 * EACH, 3 * EACH, 2 * 5, 3 * EACH]
    assert world.verify() == 4


def own_folders(world: World) -> World:
    """Puts the files of each client into a folder of its own."""
    for week in sorted((world.folder / "clients").iterdir()):
        for file in sorted(week.iterdir()):
            own = world.folder / "own" / file.stem
            own.mkdir(parents=True, exist_ok=True)
            file.rename(own / f"{week.name.removeprefix('week=')}.csv")
        week.rmdir()
    (world.folder / "clients").rmdir()
    (world.folder / "own").rename(world.folder / "clients")
    return world


def test_each_client_may_have_its_own_folder_of_periods(folder: Path) -> None:
    world = own_folders(World.create(folder / "series", plan_of(NAMED)).grow(0).grow(1))
    assert records(world.monitor(over(1))) == [3 * EACH, 3 * EACH]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize(
    ("own", "file", "new"),
    [
        (False, "week=2027-W02/b.csv", "week=2027-W02/d.csv"),  # two clients of a period
        (False, "week=2027-W02/b.csv", "week=2027-W01/d.csv"),  # of two periods
        (True, "b/2027-W02.csv", "b/2027-W01.csv"),  # two periods of a client
        (True, "b/2027-W02.csv", "b/2027-W03.csv"),
    ],
)
def test_a_file_that_clients_or_periods_share_charges_nothing(
    folder: Path, link: Callable[[Path, Path], None], own: bool, file: str, new: str
) -> None:
    world = World.create(folder / "series", plan_of(NAMED)).grow(0).grow(1)
    if own:
        own_folders(world)
    clients = world.folder / "clients"
    (clients / new).unlink(missing_ok=True)
    link(clients / new, clients / file)
    with pytest.raises(RecordsError, match="count twice") as refused:
        world.monitor(over(1))
    assert str(clients / file) in str(refused.value)
    assert str(clients / new) in str(refused.value)
    assert not world.ledger.exists()


def test_a_name_that_tells_no_period_stops_before_anything_is_counted(folder: Path) -> None:
    world = World.create(folder / "series", plan_of(NAMED)).grow(0)
    (world.folder / "clients" / "2027-W1").mkdir()
    with pytest.raises(RecordsError, match="2027-W1 says no period"):
        world.monitor(over(0))
    assert world.charged() == {}


def test_late_records_are_left_out(folder: Path) -> None:
    """Nine records of the first week are seen after the second was counted."""
    world = World.create(folder / "series").grow(0)
    world.monitor(over(0))
    world.grow(1).monitor(over(1))
    world.grow(0, (5, 3, 1)).grow(2)
    assert records(world.monitor(over(2))) == [60, 60, 60]


def test_a_round_that_opens_nothing_leaves_its_period_due(folder: Path) -> None:
    """No client has room for its records, so all refuse; the plan cannot count this week."""
    world = World.create(folder / "series", plan_of(most_records=EACH)).grow(0, (EACH, 5, 0))
    for _ in range(2):
        with pytest.raises(ReleaseRefused, match=r"Period 0 is still due\. .* 3 clients refused"):
            world.monitor(over(0))
        assert "open" not in world.charged().values()
        assert world.states(over(0)) == ["due", "ahead"]
    for name in NAMES:  # they hand in fewer
        (world.folder / "clients" / name).write_text("\n".join(["day,cell", *rows(0), ""]))
    assert states(world.monitor(over(0))) == ["released", "ahead"]
    assert [*world.charged().values()].count("committed") == 1


@pytest.mark.parametrize("series", [WEEKS, NAMED], ids=["times", "names"])
def test_a_period_without_records_is_missed_and_not_charged(folder: Path, series: Series) -> None:
    """Nobody has records of the second week, and the third is there: they do not come any more."""
    world = World.create(folder / "series", plan_of(series)).grow(0).grow(2)
    status = world.monitor(over(2))
    assert states(status) == ["released", "missed", "released", "ahead"]
    assert status.points[1].reason == EMPTY
    assert [*world.charged().values()] == 2 * ["committed"]
    before = kept_bytes(world)
    world.grow(1).monitor(over(2))  # too late
    assert kept_bytes(world) == before
    assert world.verify() == 2


@pytest.mark.parametrize("one", [WEEKS, NAMED], ids=["times", "names"])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("whole", [False, True], ids=["records", "clients, empty away"])
def test_a_clock_that_is_ahead_charges_nothing_for_weeks_to_come(
    folder: Path, one: Series, window: int, *, whole: bool
) -> None:
    """All six weeks are over by the clock of the machine; there are records of the first two."""
    unit = {"unit": "client", "per_client": 5, "empty": "away"} if whole else {}
    releases = 6 if whole else window
    series = replace(one, window=window)
    plan = plan_of(series, releases=releases, total_epsilon=20.0, **unit)
    world = World.create(folder / "series", plan).grow(0).grow(1)
    for _ in range(2):
        with pytest.raises(ReleaseRefused, match=r"Period 2 is still due: .* from 2027-01-18 on"):
            world.monitor(over(60))
        assert world.states(over(60)) == ["released"] * 2 + ["due"] * 4
        assert [*world.charged().values()] == 2 * ["committed"]
    status = world.grow(2).monitor(over(2))  # the clock was set, and the third week is over
    assert states(status) == ["released"] * 3 + ["ahead"]


def test_whether_whole_clients_hold_records_decides_nothing_where_it_is_secret(
    folder: Path,
) -> None:
    """Clients without records answer with draws of the reference: every week is counted."""
    plan = plan_of(unit="client", per_client=5, releases=6, total_epsilon=20.0)
    world = World.create(folder / "series", plan).grow(0)
    assert states(world.monitor(over(2))) == ["released"] * 3 + ["ahead"]


def test_a_file_that_cannot_be_read_leaves_its_period_due(folder: Path) -> None:
    world = World.create(folder / "series").grow(0)
    broken = world.folder / "clients" / "b.csv"
    good = broken.read_text()
    broken.write_text(good.replace("day,", "date,"))
    with pytest.raises((RecordsError, InvalidInputError), match=r"b\.csv"):
        world.monitor(over(0))
    assert not world.charged()
    assert world.states(over(0)) == ["due", "ahead"]
    broken.write_text(good)
    assert states(world.monitor(over(0))) == ["released", "ahead"]


def test_too_few_clients_leave_their_period_due(folder: Path) -> None:
    world = World.create(folder / "series").grow(0)
    away = world.folder / "clients" / "c.csv"
    text = away.read_text()
    away.unlink()
    with pytest.raises(InvalidInputError, match="holds 2 clients; a secure sum needs 3"):
        world.monitor(over(0))
    assert not world.charged()
    away.write_text(text)
    assert states(world.monitor(over(0))) == ["released", "ahead"]


def test_a_budget_that_is_too_small_is_said_and_nothing_is_charged(folder: Path) -> None:
    world = World.create(folder / "series").grow(0)
    with Ledger.open(world.ledger) as book:
        book.set_budget("clients", epsilon=0.5, delta=1e-6, at=over(0))
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        world.monitor(over(0))
    assert not world.charged()
    assert world.states(over(0)) == ["due", "ahead"]
    with Ledger.open(world.ledger) as book:
        book.set_budget("clients", epsilon=2.0, delta=1e-6, at=over(0))
    assert states(world.monitor(over(0))) == ["released", "ahead"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of(valid_until="2027-01-05T00:00:00+00:00"), "The plan is valid until 2027-01-05"),
        (plan_of(epsilon=3.0, total_epsilon=3.0), "at most 2 is allowed"),
        (plan_of(None, total_epsilon=None, total_delta=None), "The plan is for one release"),
    ],
    ids=["ended", "too much", "no series"],
)
def test_a_plan_that_cannot_be_used_begins_no_history(
    folder: Path, plan: fk.Plan, words: str
) -> None:
    """Otherwise the better plan would be refused: the history would be that of another one."""
    world = World.create(folder / "series", plan).grow(0)
    with pytest.raises(InvalidInputError, match=words):
        world.monitor(over(0))
    assert kept_bytes(world) == {}
    assert states(replace(world, plan=plan_of()).monitor(over(0))) == ["released", "ahead"]


def test_a_plan_that_ended_is_still_shown(folder: Path) -> None:
    """Nothing is due: the call says how the series stood, and does not fail."""
    until = (FIRST + timedelta(days=60)).isoformat()
    series = replace(WEEKS, periods=1)
    world = World.create(folder / "series", plan_of(series, valid_until=until)).grow(0)
    world.monitor(over(0))
    status = world.monitor(over(99))
    assert states(status) == ["released"]
    assert status.next_due == ""


def test_another_reference_is_refused_before_anything_is_judged(folder: Path) -> None:
    world = World.create(folder / "series").grow(0)
    world.monitor(over(0))
    before = kept_bytes(world)
    other = fk.Reference.from_counts([1, 2, 3])
    for at in (over(0), over(1)):
        with pytest.raises(InvalidInputError, match="about another reference"):
            fk.monitor(
                other,
                world.folder / "clients",
                world.plan,
                history=world.history,
                ledger=world.ledger,
                key=world.folder / "aggregator.pem",
                at=at,
            )
    assert kept_bytes(world) == before


@pytest.mark.parametrize("at", ["2027-01-12T06:00:00", "yesterday"])
def test_a_time_needs_an_offset(folder: Path, at: str) -> None:
    world = World.create(folder / "series").grow(0)
    world.monitor(over(0))
    with pytest.raises(InvalidInputError, match="A time is ISO 8601 with an offset"):
        world.monitor(at)


def test_the_same_files_under_another_name_are_refused(folder: Path) -> None:
    """Another population in the same folder: the records were counted already."""
    world = World.create(folder / "series").grow(0)
    world.monitor(over(0))
    other = replace(world, plan=plan_of(population="others"))
    with pytest.raises((InvalidInputError, HistoryError)):
        other.monitor(over(0), history=folder / "series" / "other.db", key=SigningKey.generate())
    assert len(world.charged()) == 1
