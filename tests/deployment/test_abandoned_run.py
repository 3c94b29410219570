"""A run that nobody waits for any more asks nothing, releases nothing and charges nothing."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deploy.small_world import write_plan, write_roster

from fedprikl.deployment.flower.organiser import roster_names
from fedprikl.deployment.flower.server import run_on_flower
from fedprikl.deployment.host import Host
from fedprikl.deployment.progress import named, parse_line, short_name
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.errors import BudgetExceededError, DeploymentError, InvalidInputError
from fedprikl.privacy import Ledger
from fedprikl.protocol import Release, SignedPlan, Step
from tests.deployment.fake_grid import AT, FakeFederation, FakeGrid, spent

pytestmark = pytest.mark.slow

SLOW = 20.0  # seconds that every site takes for a step


def run(
    federation: FakeFederation, grid: FakeGrid, **changes: object
) -> tuple[Release | None, list[str], str]:
    """A round whose wall clock goes with the grid's; the release, what it printed, its error."""
    lines: list[str] = []
    start = datetime.fromisoformat(AT)
    host = Host(
        clock=grid.time.now,
        sleep=grid.time.sleep,
        now=lambda: (start + timedelta(seconds=grid.time.seconds)).isoformat(),
        say=lines.append,
    )
    try:
        return run_on_flower(grid, federation.settings(**changes), host), lines, ""
    except DeploymentError as error:
        return None, lines, str(error)


def after(seconds: float) -> str:
    return (datetime.fromisoformat(AT) + timedelta(seconds=seconds)).isoformat()


def releases(federation: FakeFederation) -> list[Path]:
    return list(Home(federation.home).releases.glob("*"))


def asked(grid: FakeGrid) -> set[str]:
    return {message.metadata.message_type for message in grid.carried}


def test_a_run_that_comes_too_late_asks_nothing(federation: FakeFederation) -> None:
    """As when the aggregator was down, and comes back to what nobody waits for."""
    grid = federation.grid()
    release, lines, error = run(federation, grid, deadline=after(-1))
    assert release is None
    assert "The aggregator charged nothing; ask again" in error
    assert (grid.carried, lines) == ([], [])
    assert spent(federation) == 0
    assert releases(federation) == []


@pytest.mark.parametrize("steps", range(1, len(Step) + 1))
def test_a_deadline_that_passes_on_the_way_ends_the_round(
    federation: FakeFederation, steps: int
) -> None:
    """Also after the last answers, when nothing is left but to open the sums."""
    grid = federation.grid()
    grid.delay = lambda _node, _step: SLOW
    release, _, error = run(federation, grid, deadline=after(SLOW * steps - 1))
    assert release is None
    assert "The aggregator charged nothing" in error
    assert len(asked(grid)) == steps
    assert spent(federation) == 0
    assert releases(federation) == []


def test_a_deadline_that_is_kept_changes_nothing(federation: FakeFederation) -> None:
    release, _, _ = run(federation, federation.grid(), deadline=after(60))
    assert release is not None
    assert spent(federation) == pytest.approx(1.0, abs=1e-6)


@dataclass
class StoppedGrid(FakeGrid):
    """Its SuperLink refuses every question about nodes once a step has been sent."""

    last: Step = Step.REVEAL

    def get_node_ids(self) -> Iterable[int]:
        if f"query.{self.last}" in asked(self):
            raise RuntimeError("the run is not running")
        return super().get_node_ids()


def test_a_run_that_was_stopped_is_not_charged(federation: FakeFederation) -> None:
    grid = StoppedGrid(federation.grid().contexts)
    release, _, error = run(federation, grid)
    assert release is None
    assert "The run was stopped" in error
    assert len(asked(grid)) == len(Step)
    assert spent(federation) == 0
    assert releases(federation) == []


@pytest.mark.parametrize("text", ["tomorrow", "2030-01-01T00:00:00", 7])
def test_a_deadline_is_an_instant(text: object) -> None:
    with pytest.raises(InvalidInputError, match="deadline"):
        RoundSettings.of({"deadline": text})


def test_a_spent_budget_is_said_before_the_first_message(federation: FakeFederation) -> None:
    with Ledger.open(Home(federation.home).ledger) as ledger:
        ledger.set_budget("sites", epsilon=0.5, delta=1e-6, at=AT)
    grid = federation.grid()
    with pytest.raises(BudgetExceededError):
        run(federation, grid)
    assert grid.carried == []


def test_an_expired_plan_is_said_before_the_first_message(federation: FakeFederation) -> None:
    write_plan(federation.home, valid_until=after(-60), valid_from=after(-7200))
    grid = federation.grid()
    with pytest.raises(InvalidInputError, match="Nothing was asked"):
        run(federation, grid)
    assert grid.carried == []


def test_too_few_sites_are_said_before_the_first_message(federation: FakeFederation) -> None:
    grid = federation.grid()
    del grid.contexts[1]
    _, lines, error = run(federation, grid, wait=5.0)
    assert "7 sites are connected after 5 s, 8 are needed" in error
    assert lines == ["[fedprikl] 7 of 8 sites are connected; waiting 5 s for the others"]
    assert grid.carried == []


def test_lost_sites_have_names_where_there_is_a_roster(federation: FakeFederation) -> None:
    roster = write_roster(federation.home, federation.files)
    write_plan(federation.home, roster=roster.fingerprint)
    plan = SignedPlan.load(federation.home / "plan.json").plan
    grid = federation.grid()
    grid.delay = lambda node, step: math.inf if node == 3 and step is Step.INPUT else 0.0
    release, lines, _ = run(federation, grid)
    assert release is not None
    (line,) = (line for line in lines if "1 lost" in line)
    names = roster_names(Home(federation.home).roster, plan, clients=8)
    assert "site002" not in line  # the relay stores the line
    assert named(line, names).endswith("1 lost, 30 s; lost: site002")
    found = parse_line(line)
    assert found is not None
    assert found[0] == "progress"
    with pytest.raises(InvalidInputError, match="wait for fewer"):
        roster_names(Home(federation.home).roster, plan, clients=9)
    write_plan(federation.home)
    plan = SignedPlan.load(federation.home / "plan.json").plan
    with pytest.raises(InvalidInputError, match="names another roster"):
        roster_names(Home(federation.home).roster, plan, clients=8)


def test_lost_sites_without_a_roster_are_nodes(federation: FakeFederation) -> None:
    grid = federation.grid()
    grid.delay = lambda node, step: math.inf if node == 3 and step is Step.INPUT else 0.0
    _, lines, _ = run(federation, grid)
    assert any(line.endswith("1 lost, 30 s; lost: node 3") for line in lines)
    assert short_name("ab" * 32) == "ab" * 6


def test_who_refuses_is_not_named(federation: FakeFederation) -> None:
    """A refusal may depend on records."""
    federation.files[2].write_text("other\n1\n")
    _, lines, _ = run(federation, federation.grid())
    assert any("1 refused, 0 lost" in line for line in lines)
    assert not any("; lost: " in line for line in lines)
