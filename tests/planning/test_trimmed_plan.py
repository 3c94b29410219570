"""Plans that trim the scores of cohorts: what they cost, and that liars stay within the bounds."""

from functools import cache

import numpy as np
import pytest

from fedprikl import InvalidInputError, Reference
from fedprikl.checks import Ints
from fedprikl.estimation import TrimmedMean, estimate_trimmed_mean
from fedprikl.planning.liars import LiarBound
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.planner import plan_round
from fedprikl.protocol import trust_of
from fedprikl.protocol.scored_sum import ScoredSum
from fedprikl.reference import all_points
from tests.protocol.worlds import InsecureNoNoise

CLIENTS, COHORT, K, CELLS = 200, 10, 20, 8
PI = np.array([0.3, 0.2, 0.15, 0.12, 0.1, 0.06, 0.04, 0.03])
POINTS = all_points(PI)  # the same ones, whose errors are simulated once


@cache
def planned(trim: float = 0.1) -> PlannedRound:
    return plan_round(
        Reference.from_probabilities(PI),
        clients=CLIENTS,
        records=CLIENTS * 2 * K,
        epsilon=1.0,
        ask=("kl", "tv"),
        unit="client",
        per_client=K,
        cohort=COHORT,
        trim=trim,
    )


def test_the_plan_trims_values_of_the_whole() -> None:
    plan = planned().plan
    assert plan.trim == 0.1
    assert (plan.batches, plan.columns, plan.cohort) == (1, None, COHORT)
    assert {each.release for each in plan.questions} == {"value"}


def test_the_plan_says_what_trimming_costs() -> None:
    """Beside the same questions without it: the forecasts of both, and a reason."""
    trimmed, plain = planned().comparison
    assert (trimmed.taken, plain.taken) == (True, False)
    assert "trimmed" in trimmed.name
    assert trimmed.forecasts == planned().forecasts
    costs = [
        one.error / other.error
        for one, other in zip(trimmed.forecasts, plain.forecasts, strict=True)
    ]
    assert 1 < np.median(costs) < 30
    (reason,) = [each for each in planned().reasons if each.parameter == "trim"]
    assert "2 of 20 cohort scores" in reason.why


def dealt(rng: np.random.Generator, p: np.ndarray) -> Ints:
    """K records of every client, (cohorts, clients, cells)."""
    return rng.multinomial(K, p, size=(CLIENTS // COHORT, COHORT))


def answers(held: Ints) -> dict[str, float]:
    """What a round of the plan releases of these sums of cohorts, without noise."""
    plan = planned().plan
    trust = trust_of(plan)
    assert isinstance(trust, ScoredSum)
    return {
        question.divergence: estimate_trimmed_mean(
            POINTS,
            held,
            np.full(len(held), K * COHORT),
            trim=plan.trim,
            moved=K,
            calibrated=trust.calibrated(question),
            score=trust.score_of(question),
            client_effect=plan.client_effect,
            source=InsecureNoNoise(),
        ).value
        for question in plan.questions
    }


def test_the_forecast_is_the_error_of_rounds() -> None:
    """Without drift, 60 rounds: within a factor of 1.5."""
    rng, plan = np.random.default_rng(1), planned().plan
    trust = trust_of(plan)
    assert isinstance(trust, ScoredSum)
    score, calibrated = trust.score, trust.calibrated(plan.question)
    mean = TrimmedMean.of(POINTS, np.full(20, K * COHORT), 0.1)
    noise = calibrated.for_sensitivity(mean.sensitivity(score, K)).standard_deviation
    errors = []
    for _ in range(60):
        held = dealt(rng, PI).sum(axis=1)
        everybody = held.sum(axis=0)
        truth = float(score.plain(everybody, PI, everybody.sum()) @ PI)
        off = answers(held)["kl"] - truth
        errors.append(abs(off + rng.laplace(scale=noise / np.sqrt(2))))
    assert 1 / 1.5 < planned().forecasts[0].error / np.mean(errors) < 1.5


def bounds(share: float) -> dict[str, LiarBound]:
    return {each.divergence: each for each in planned().liars if each.share == share}


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("attack", ["hide", "fake"])
def test_liars_stay_within_the_bounds(share: float, attack: str) -> None:
    """25 attacks each, by clients that fake their records and by clients that fake their cohort.

    Hiding: the population has drifted, and the liars' records are those of the reference. Faking:
    nothing has drifted, and the liars' records are all of the rarest cell.
    """
    rng, liars, allowed = np.random.default_rng(2), round(share * CLIENTS), bounds(share)
    expected, rarest = (
        np.rint(PI * K * COHORT).astype(np.int64),
        K * COHORT * np.eye(CELLS, dtype=int)[-1],
    )
    lie = expected if attack == "hide" else rarest
    moved = []
    for _ in range(25):
        held = dealt(rng, rng.dirichlet(12 * PI) if attack == "hide" else PI)
        who = rng.permutation(CLIENTS)[:liars]
        before = answers(held.sum(axis=1))
        faked = held.copy().reshape(CLIENTS, CELLS)
        faked[who] = rng.multinomial(K, lie / lie.sum(), size=liars)
        own = answers(faked.reshape(held.shape).sum(axis=1))
        sums = held.sum(axis=1)
        sums[np.unique(who // COHORT)] = lie
        broken = answers(sums)
        for name, bound in allowed.items():
            assert abs(own[name] - before[name]) <= bound.moved
            assert abs(broken[name] - before[name]) <= bound.broken
            if attack == "fake":
                assert bound.dealt is not None
                assert abs(broken[name] - before[name]) <= bound.dealt
        moved.append(abs(broken["tv"] - before["tv"]))
    assert max(moved) > 0  # the liars do something


def test_few_broken_cohorts_move_much_less_where_cohorts_are_alike() -> None:
    """2 of 20 cohorts are cut off at either end: 1% of the clients are in 2 cohorts at most."""
    for bound in bounds(0.01).values():
        assert bound.liars == 2
        assert bound.dealt is not None
        assert bound.dealt < bound.broken / 3
    for bound in bounds(0.05).values():  # 10 of 20: more than are cut off
        assert bound.dealt is not None
        assert bound.dealt > bound.broken / 10


def test_bounds_of_a_plan_that_does_not_trim_know_no_cohorts() -> None:
    assert all(each.dealt is None for each in planned(trim=0.0).liars)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trim": 0.01}, "cuts nothing off"),
        ({"trim": 0.5}, "trim"),
        ({"trim": 0.1, "unit": "record", "per_client": None}, "trim"),
        ({"trim": 0.1, "trust": "none"}, "trim"),
    ],
)
def test_what_cannot_be_trimmed_is_refused(changes: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {
        "clients": CLIENTS,
        "records": CLIENTS * K,
        "epsilon": 1.0,
        "unit": "client",
        "per_client": K,
        "cohort": COHORT,
    }
    with pytest.raises(InvalidInputError, match=message):
        plan_round(Reference.from_probabilities(PI), **(settings | changes))  # type: ignore[arg-type]
