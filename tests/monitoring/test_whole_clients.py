"""A series that protects whole clients: k records of each client in every period."""

from pathlib import Path
from typing import Any

import pytest

from fedprikl.front import local_parties
from fedprikl.protocol import Client
from tests.monitoring.small_series import NAMED, NAMES, WEEKS, World, over, plan_of, rows

K = 5


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The counts of every client that takes part, in order."""
    found: list[list[int]] = []

    def client(counts: Any, *arguments: Any, **settings: Any) -> Client:
        found.append(counts.tolist())
        return Client(counts, *arguments, **settings)

    monkeypatch.setattr(local_parties, "Client", client)
    return found


def world_of(folder: Path, **changes: Any) -> World:
    settings: dict[str, Any] = {"unit": "client", "per_client": K, "series": WEEKS} | changes
    periods = settings["series"].periods  # a client is in all of them
    return World.create(folder, plan_of(releases=periods, total_epsilon=20.0, **settings))


def write(world: World, name: str, week: int, counts: tuple[int, ...]) -> None:
    with (world.folder / "clients" / name).open("a", encoding="utf-8") as file:
        file.write("\n".join([*rows(week, counts), ""]))


@pytest.mark.parametrize("series", [WEEKS, NAMED])
def test_every_period_draws_from_its_own_records(
    folder: Path, drawn: list[list[int]], series: Any
) -> None:
    world = world_of(folder, series=series)
    world.grow(0, (20, 0, 0))
    world.monitor(over(0))
    world.grow(1, (0, 30, 0))
    world.grow(2, (0, 0, 2))
    status = world.monitor(over(1))
    assert drawn == [[K, 0, 0, 0]] * 3 + [[0, K, 0, 0]] * 3
    assert [point.records for point in status.points[:2]] == [3 * K, 3 * K]
    world.monitor(over(2))
    assert all(each[2] >= 2 and sum(each) == K for each in drawn[6:])  # 2 records, and filled up
    assert len(drawn) == 9


def test_a_client_without_records_of_a_period(folder: Path, drawn: list[list[int]]) -> None:
    """With draws of the reference it is in every period, so nobody sees that it has none."""
    world, notes = world_of(folder), list[str]()
    write(world, "a.csv", 0, (9, 0, 0))
    status = world.monitor(over(0), note=notes.append)
    assert status.points[0].records == 3 * K
    assert [sum(counts) for counts in drawn] == [K] * 3
    assert not any("hold no records" in note for note in notes)


def test_a_client_without_records_of_a_period_stays_away(
    folder: Path, drawn: list[list[int]]
) -> None:
    world, notes = world_of(folder, empty="away"), list[str]()
    (world.folder / "clients" / "d.csv").write_text("day,cell\n", encoding="utf-8")
    world.grow(0, (9, 0, 0))
    status = world.monitor(over(0), note=notes.append)
    assert status.points[0].records == 3 * K
    assert len(drawn) == 3
    assert "1 of 4 clients hold no records and stay away, as the plan says." in notes
    for name in (*NAMES[1:], "d.csv"):  # nothing of the last was claimed
        write(world, name, 1, (0, 8, 0))
    status = world.monitor(over(1), note=notes.append)
    assert status.points[1].records == 3 * K
    assert drawn[3:] == [[0, K, 0, 0]] * 3


def test_a_period_that_too_few_clients_have_records_of_is_missed(folder: Path) -> None:
    world, notes = world_of(folder, empty="away"), list[str]()
    write(world, "a.csv", 0, (9, 0, 0))
    world.grow(1, (9, 3, 1))
    status = world.monitor(over(1), note=notes.append)
    assert [point.state for point in status.points[:2]] == ["missed", "released"]
    assert "2 of 3 clients hold no records" in status.points[0].reason
    assert len(world.charged()) == 1
    assert world.verify()
