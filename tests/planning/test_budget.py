"""One budget: the parts of a release are calibrated together, and nobody takes a plan's word."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl import InvalidInputError
from fedprikl.errors import PolicyRefusal
from fedprikl.privacy import total_epsilon
from fedprikl.protocol import Plan, trust_of
from fedprikl.protocol.plan import SignedPlan
from fedprikl.protocol.sums import ScoredSum
from tests.long import long

DELTA = 1e-6


def table(columns: int) -> fk.Reference:
    rng = np.random.default_rng(1)
    names = {
        f"c{i}": rng.choice(4 + i, 2000, p=rng.dirichlet(np.full(4 + i, 3.0))).astype(str)
        for i in range(columns)
    }
    return fk.Reference.fit(pl.DataFrame(names))


@cache
def planned(columns: int, **changes: Any) -> Plan:
    settings: dict[str, Any] = {"clients": 40, "records": 3000, "epsilon": 0.5, "delta": DELTA}
    return fk.plan(table(columns), **settings | {"design_effect": 1.0} | changes).plan


def spent(plan: Plan, releases: int = 1) -> float:
    trust = trust_of(plan)
    assert isinstance(trust, ScoredSum)
    return total_epsilon([trust.charge(())] * releases, delta=DELTA)


@pytest.mark.parametrize("columns", [1, 2, long(4)])
def test_the_parts_of_a_release_cost_the_plans_epsilon_together(columns: int) -> None:
    plan = planned(columns)
    assert plan.budget.epsilon == plan.budget.total[0] == 0.5
    assert 0.999 * 0.5 <= spent(plan) <= 0.5


def test_so_do_those_of_several_releases() -> None:
    plan = planned(2, releases=6)
    assert 0.999 * 0.5 <= spent(plan, 6) <= 0.5
    assert 0.999 * plan.budget.epsilon <= spent(plan) <= plan.budget.epsilon


def test_whole_clients_too() -> None:
    plan = planned(2, unit="client", per_client=2)
    assert 0.999 * 0.5 <= spent(plan) <= 0.5


def test_it_wins_what_adding_up_would_leave_unspent() -> None:
    """Four parts, some of them Gaussian: their epsilons add up to more than the plan's."""
    plan = planned(4, epsilon=0.1)
    assert len(plan.groups) > 1
    assert plan.budget.parts > 1.02
    assert spent(plan.changed(parts=1.0)) < 0.98 * 0.1


def test_a_plan_that_claims_more_is_refused(tmp_path: Path) -> None:
    plan = planned(4, epsilon=0.1)
    greedy = Plan.from_dict(plan.changed(parts=round(1.02 * plan.budget.parts, 5)).to_dict())
    with pytest.raises(InvalidInputError, match=r"cost epsilon 0\.10.* it says 0\.1\."):
        trust_of(greedy).charge(())
    clients = [pl.DataFrame({f"c{i}": ["0"] * 60 for i in range(4)}) for _ in range(40)]
    with pytest.raises((InvalidInputError, PolicyRefusal), match="cost epsilon"):
        fk.compare(table(4), clients, SignedPlan(greedy), ledger=tmp_path / "ledger.db")


@pytest.mark.parametrize("parts", [0.5, 101.0, float("nan")])
def test_impossible_parts_are_refused(parts: float) -> None:
    with pytest.raises(InvalidInputError):
        planned(1).changed(parts=parts)


def test_the_statement_says_what_the_ledger_charges(tmp_path: Path) -> None:
    plan, rng = planned(4, epsilon=0.1), np.random.default_rng(2)
    clients = [
        pl.DataFrame({f"c{i}": rng.integers(0, 4 + i, 60).astype(str) for i in range(4)})
        for _ in range(40)
    ]
    found = fk.compare(table(4), clients, SignedPlan(plan), ledger=tmp_path / "ledger.db")
    assert found.privacy.holds
    assert found.privacy.claimed_epsilon == 0.1
    assert (found.privacy.epsilon, found.privacy.delta) == (spent(plan), DELTA)
