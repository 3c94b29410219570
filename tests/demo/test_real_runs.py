"""A simulated round equals one of the real roles before noise, with dropouts and lost cohorts."""

import os
from typing import Any

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Ints
from fedprikl.demo import DriftedPopulation, drifted_population
from fedprikl.demo.comparison import Federated, RealRuns
from fedprikl.estimation import BatchCounts, weighted_score
from fedprikl.protocol import (
    Client,
    Plan,
    RoundResult,
    Server,
    SignedPlan,
    SigningKey,
    run_round,
    trust_of,
)
from fedprikl.protocol.answering import expected_noise
from fedprikl.protocol.sums import NoisyHistogram
from fedprikl.secure_sum import Leaves
from tests.plans import make_plan
from tests.protocol.worlds import AT, InsecureNoNoise, noisy_counts

pytestmark = pytest.mark.slow


def plan_of(world: DriftedPopulation, **settings: Any) -> Plan:
    fixed: dict[str, Any] = {"reference": world.reference.fingerprint, "points": 10}
    return make_plan(**fixed | settings)


def real_round(world: DriftedPopulation, plan: Plan, leaves: dict[str, Leaves]) -> RoundResult:
    """Without noise, to see what is under it."""
    clients = {
        str(i): Client(counts, world.reference, randomness=os.urandom)
        for i, counts in enumerate(world.counts)
    }
    return run_round(
        Server(SignedPlan(plan), world.reference),
        clients,
        key=SigningKey.generate(),
        ledger=None,
        software="test",
        at=AT,
        rng=np.random.default_rng(6),
        leaves=leaves,
        source=InsecureNoNoise(),
    )


def heard(world: DriftedPopulation, result: RoundResult, left: set[str]) -> Ints:
    """The sums of each batch, without who left, and without cohorts that were dropped."""
    sums = np.zeros((2, world.counts.shape[1]), np.int64)
    for cohort, outcome in zip(result.round.cohorts, result.release.cohorts, strict=True):
        members = [int(name) for name in cohort.members if name not in left]
        if outcome.included:
            sums[cohort.batch] += world.counts[members].sum(axis=0)
    return sums


def test_a_simulated_round_equals_a_real_round_before_noise(rng: np.random.Generator) -> None:
    """Two batches of two cohorts each, some clients leave, one cohort is lost whole."""
    world = drifted_population(rng, clients=60, cells=40, records_per_client=15)
    plan = plan_of(world, batches=2, cohort=15, dropout=0.2)
    dealt = real_round(world, plan, {}).round.cohorts  # the same deal for the same seed
    left = {cohort.members[0] for cohort in dealt} | set(dealt[3].members[:11])
    result = real_round(world, plan, dict.fromkeys(left, Leaves.BEFORE_INPUT))
    assert [outcome.included for outcome in result.release.cohorts] == [14, 14, 14, 0]
    assert "are needed" in result.release.cohorts[3].reason
    assert result.round.points is not None
    sums, points = heard(world, result, left), result.round.points
    plain = BatchCounts(points, sums[points.batch, points.cells], sums.sum(axis=1))
    assert result.release.value == weighted_score(plain, trust_of(plan).score)


def test_cohorts_are_even_parts_of_one_batch(rng: np.random.Generator) -> None:
    world = drifted_population(rng, clients=230, cells=30)
    server = Server(SignedPlan(plan_of(world, batches=2, cohort=50)), world.reference)
    names = [str(i) for i in range(230)]
    cohorts = server.open_round(names, rng=rng, randomness=os.urandom).cohorts
    assert sorted(name for cohort in cohorts for name in cohort.members) == sorted(names)
    assert {len(cohort.members) for cohort in cohorts} == {57, 58}
    assert [cohort.batch for cohort in cohorts] == [0, 0, 1, 1]


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_method_is_a_round_of_the_real_roles(trust: str, rng: np.random.Generator) -> None:
    """5% leave, so that the sums are real; the repetition is of the same size."""
    world = drifted_population(rng, clients=60, cells=40)
    settings = {"epsilon": 1.0, "delta": 1e-6, "cohort": 20, "dropout": 0.2, "trust": trust}
    plan = plan_of(world, points=12, **settings)
    release = RealRuns(world, 3).release(plan)
    assert sum(cohort.clients for cohort in release.cohorts) == 60
    assert 57 <= sum(cohort.included for cohort in release.cohorts) < 60
    method = Federated(name="x", plan=settings | {"points": 12})
    estimate = method.estimate(RealRuns(world, 3))
    assert estimate.privacy.holds
    assert estimate.target == release.answers[0].target
    values = [method.repeat(world, rng, InsecureNoNoise()) for _ in range(20)]
    assert len(set(values)) > 1
    assert abs(np.mean(values) - estimate.value) < 1


@pytest.mark.parametrize("empty", ["reference", "away"])
def test_clients_of_a_real_run_draw_where_the_plan_says(
    empty: Any, rng: np.random.Generator
) -> None:
    world = drifted_population(rng, clients=60, cells=40)
    world.counts[50:] = 0  # the last ten hold nothing
    plan = plan_of(world, cohort=20, dropout=0.2, unit="client", per_client=4, empty=empty)
    release = RealRuns(world, 3).release(plan)
    assert sum(cohort.clients for cohort in release.cohorts) == (60 if empty == "reference" else 50)
    assert release.records == 4 * sum(cohort.included for cohort in release.cohorts)


def test_the_noise_of_repetitions_is_that_of_the_round(rng: np.random.Generator) -> None:
    """Of all clients in the simulation, of those who stayed in the real round."""
    world = drifted_population(rng, clients=60, cells=40)
    plan = plan_of(world, trust="none", cohort=20, dropout=0.2)
    release = RealRuns(world, 3).release(plan)
    included = sum(cohort.included for cohort in release.cohorts)
    expected = expected_noise(NoisyHistogram(plan), [20, 20, 20])
    (noise,) = noisy_counts(release).noise
    assert noise.sd == pytest.approx(expected.sd * np.sqrt(included / 60))
    assert noise.scale == expected.scale


@pytest.mark.parametrize("changes", [{"dropout": 1.0}, {"corruption": 2.0}, {"cohort": 0}])
def test_impossible_rounds_are_refused(changes: dict[str, float], rng: np.random.Generator) -> None:
    with pytest.raises(InvalidInputError):
        plan_of(drifted_population(rng, clients=20, cells=30), **changes)
