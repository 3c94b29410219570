"""Two rounds over the same sites: refused by every site, unless plan and site both allow it."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from deploy.small_world import write_plan, write_roster
from flwr.app import Context, Message, RecordDict

from fedprikl.deployment.flower.client import unpack
from fedprikl.deployment.host import Company
from fedprikl.deployment.settings import Home
from fedprikl.errors import DeploymentError, ReleaseRefused
from fedprikl.privacy import Ledger
from fedprikl.protocol import Invitation, Step
from tests.deployment.fake_grid import AT, FakeFederation, FakeGrid, spent

pytestmark = pytest.mark.slow

COUNTED = "its records have been counted 1 times"


def forgetful(federation: FakeFederation) -> None:
    """An aggregator that does not care, or began anew."""
    Home(federation.home).cohorts.unlink(missing_ok=True)


def told(grid: FakeGrid) -> list[str]:
    return [unpack(message).refusal for message in grid.carried if unpack(message).refusal]


def steps(grid: FakeGrid) -> set[str]:
    return {message.metadata.message_type for message in grid.carried}


def all_refuse(federation: FakeFederation, grid: FakeGrid, words: str = COUNTED) -> None:
    """In the first step, in the open, without a look at a record; nothing is charged."""
    before = spent(federation)
    with pytest.raises(ReleaseRefused, match=f"8 clients took no part.*{words}"):
        federation.run(grid)
    assert steps(grid) == {"query.advertise"}
    assert len(told(grid)) == 8
    assert all(words in each for each in told(grid))
    assert spent(federation) == before


def test_a_second_round_is_refused_by_every_site(federation: FakeFederation) -> None:
    federation.run(federation.grid())
    forgetful(federation)
    all_refuse(federation, federation.grid())


def test_a_second_run_of_a_plan_asks_nobody_while_the_first_is_under_way(
    federation: FakeFederation,
) -> None:
    """Each would count a part of the sites: neither has enough, and nobody is left to count."""
    first, second = federation.grid(), federation.grid()
    halfway = list(first.contexts)[4]

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.message_type == "query.input" and asked.metadata.dst_node_id == halfway:
            with pytest.raises(DeploymentError, match="Another run of this plan is under way"):
                federation.run(second)
        return [answer]

    first.alter = alter
    assert federation.run(first)[0].cohorts[0].included == 8
    assert "query.input" in steps(first)
    assert second.carried == []
    with pytest.raises(DeploymentError, match="may still be counted"):  # its turn, and its words
        federation.run(second)


@pytest.mark.parametrize(("releases", "most"), [(1, 9), (9, 1)])
def test_neither_the_plan_nor_the_site_alone_allows_it(
    federation: FakeFederation, releases: int, most: int
) -> None:
    write_plan(federation.home, releases=releases)
    federation.run(federation.grid(most_counts=most))
    forgetful(federation)
    all_refuse(federation, federation.grid(most_counts=most))


def test_another_name_for_the_same_people_is_refused(federation: FakeFederation) -> None:
    federation.run(federation.grid())
    with Ledger.open(Home(federation.home).ledger) as ledger:
        ledger.set_budget("renamed", epsilon=10.0, delta=1e-6, at=AT)
    write_plan(federation.home, population="renamed", serial=7)
    all_refuse(federation, federation.grid())


def test_nodes_that_the_relay_renumbers_are_refused(federation: FakeFederation) -> None:
    federation.run(federation.grid())
    grid = federation.grid()
    grid.contexts = {
        number + 100: Context(
            run_id=2,
            node_id=number + 100,
            node_config=context.node_config,
            state=RecordDict(),
            run_config={},
        )
        for number, context in grid.contexts.items()
    }
    all_refuse(federation, grid)


def test_a_site_may_answer_for_one_population_only(federation: FakeFederation) -> None:
    grid = federation.grid(populations=["patients"])
    with pytest.raises(ReleaseRefused, match="8 clients took no part"):
        federation.run(grid)
    assert steps(grid) == {"query.advertise"}


def test_a_round_that_failed_after_the_counts_left_stays_counted(
    federation: FakeFederation,
) -> None:
    """No site can know whether the sum was opened."""
    grid = federation.grid()
    grid.delay = lambda _, step: math.inf if step is Step.ECHO else 0.0
    with pytest.raises(ReleaseRefused):
        federation.run(grid)
    forgetful(federation)
    all_refuse(federation, federation.grid())
    write_plan(federation.home, releases=2)  # what the documentation says to do
    release, _ = federation.run(federation.grid(most_counts=2))
    assert release.cohorts[0].included == 8


def test_a_round_that_failed_before_the_counts_left_can_be_repeated(
    federation: FakeFederation,
) -> None:
    grid = federation.grid()
    grid.delay = lambda _, step: math.inf if step is Step.INPUT else 0.0
    with pytest.raises(ReleaseRefused):
        federation.run(grid)
    release, _ = federation.run(federation.grid())
    assert release.cohorts[0].included == 8


# The aggregator's own part


def test_an_aggregator_that_remembers_asks_nobody(federation: FakeFederation) -> None:
    federation.run(federation.grid())
    grid = federation.grid()
    with pytest.raises(DeploymentError, match="records of only 0 clients may still be counted"):
        federation.run(grid)
    assert grid.carried == []


def test_with_a_roster_it_does_not_even_ask_who_is_there(federation: FakeFederation) -> None:
    roster = write_roster(federation.home, federation.files)
    write_plan(federation.home, roster=roster.fingerprint)
    federation.run(federation.grid())
    grid = federation.grid()
    with pytest.raises(DeploymentError, match="records of only 0 clients may still be counted"):
        federation.run(grid)
    assert grid.carried == []


def test_newcomers_are_asked_and_those_before_are_not(federation: FakeFederation) -> None:
    first, rest = federation.grid(), federation.grid()
    for number in (5, 6, 7, 8):
        del first.contexts[number]
    write_plan(federation.home, dropout=0.5 - 1e-9)
    federation.run(first, clients=4)
    release, lines = federation.run(rest)
    assert "4 clients were counted before: not asked" in lines[0]
    assert release.cohorts[0].clients == 4
    asked = {message.metadata.dst_node_id for message in rest.carried}
    assert asked & {1, 2, 3, 4} == set()


def cohorts(grid: FakeGrid) -> set[frozenset[int]]:
    """Who was asked for the same sum."""
    groups: dict[bytes, set[int]] = {}
    for message in grid.carried:
        if message.metadata.message_type == "query.advertise":
            if message.metadata.reply_to_message_id:
                continue
            invitation = Invitation.from_bytes(unpack(message).message)
            groups.setdefault(invitation.sums.nonce, set()).add(message.metadata.dst_node_id)
    return {frozenset(group) for group in groups.values()}


@pytest.mark.parametrize("known", [False, True])
def test_where_both_allow_it_cohorts_stay_together(federation: FakeFederation, known: bool) -> None:
    """Dealt anew they would agree in both repetitions once in 35^2 = 1,225 runs.

    With a roster also if the relay renumbers the nodes.
    """
    plan: dict[str, Any] = {"cohort": 4, "dropout": 0.1, "points": 4, "releases": 3}
    if known:
        plan["roster"] = write_roster(federation.home, federation.files).fingerprint
    write_plan(federation.home, **plan)
    seen = []
    for number in range(3):
        grid = federation.grid(most_counts=3)
        if known:
            grid.contexts = {
                node + 10 * number: Context(
                    run_id=1,
                    node_id=node + 10 * number,
                    node_config=context.node_config,
                    state=RecordDict(),
                    run_config={},
                )
                for node, context in grid.contexts.items()
            }
        federation.run(grid)
        seen.append({frozenset(node - 10 * number * known for node in g) for g in cohorts(grid)})
    assert len(seen[0]) == 2
    assert seen[0] == seen[1] == seen[2]
    assert spent(federation) == pytest.approx(3.0, abs=1e-3)
    grid = federation.grid(most_counts=3)
    with pytest.raises(DeploymentError, match="only 0 clients"):
        federation.run(grid)


def test_rounds_at_the_same_time_know_of_each_others_cohorts(federation: FakeFederation) -> None:
    """Another one deals while this one waits for sites, and once more while it counts.

    Dealt as if alone, cohorts would be the other's once in 35 runs.
    """
    write_plan(federation.home, cohort=4, dropout=0.1, points=4)
    path, grid = Home(federation.home).cohorts, federation.grid()
    odd, even = (frozenset(map(str, range(first, 9, 2))) for first in (1, 2))
    nodes = grid.get_node_ids

    def others_deal() -> Iterable[int]:
        Company.load(path).after([odd, even]).save(path)
        return nodes()

    def others_count(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.message_type == f"query.{Step.INPUT.value}":
            Company.load(path).after([["21", "22", "23"]]).save(path)
        return [answer]

    grid.get_node_ids = others_deal  # type: ignore[method-assign]
    grid.alter = others_count
    federation.run(grid)
    assert cohorts(grid) == {frozenset(map(int, odd)), frozenset(map(int, even))}
    found = Company.load(path)
    assert set(found.together) == {odd, even, frozenset({"21", "22", "23"})}
    assert [sum(times.values()) for times in found.counted.values()] == [8]


def test_a_damaged_list_of_cohorts_stops_the_run_and_says_so(federation: FakeFederation) -> None:
    for text in ("{", "[]", '{"together": [[1]], "counted": {}}', '{"together": []}', "\xff"):
        Home(federation.home).cohorts.write_text(text, encoding="latin-1")
        grid = federation.grid()
        with pytest.raises(DeploymentError, match="is damaged: who was in a cohort"):
            federation.run(grid)
        assert grid.carried == []


def test_groups_that_meet_become_one(tmp_path: Path) -> None:
    first = Company().after([["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]])
    later = first.after([["a", "b", "x"], ["d", "e", "f", "g"]])
    assert set(later.together) == {frozenset("abcx"), frozenset("defghi")}
    later.save(tmp_path / "cohorts.json")
    assert Company.load(tmp_path / "cohorts.json") == later
    assert later.groups({"1": "a", "2": "x", "3": "new"}) == [["1", "2"]]
    assert sorted(json.loads((tmp_path / "cohorts.json").read_text())) == ["counted", "together"]
