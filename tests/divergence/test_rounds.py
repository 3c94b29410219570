"""Every divergence goes through planning, a round and its release."""

from typing import Any

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.divergence import divergence_named, skewed_divergence
from fedprikl.planning import plan_round
from fedprikl.protocol import Plan, Question
from fedprikl.protocol.plan import Trust
from tests.protocol.worlds import InsecureNoNoise, World

pytestmark = pytest.mark.slow

OTHERS = ("reverse_kl", "psi", "js", "hellinger", "tv")


def planned(world: World, name: str, trust: Trust, **changes: Any) -> Any:
    return plan_round(
        world.reference,
        clients=len(world.held),
        records=int(world.held.sum()),
        epsilon=1.0,
        population="testers",
        trust=trust,
        ask=(name,),
        **changes,
    )


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_round_releases_it(name: str, trust: Trust) -> None:
    """Without noise, the divergence of the counts; a limited step may raise it."""
    world, divergence = World.make(), divergence_named(name)
    made = planned(world, name, trust)
    plan: Plan = made.plan
    assert plan.question.skew == divergence.skew
    kinds = {"none", "smooth", "rare", "heavy", "gone", "unseen"}
    assert {each.kind for each in made.forecasts} == kinds
    assert all(0 < each.error < 1 for each in made.forecasts)
    assert made.smallest_drift is None or 0 < made.smallest_drift < divergence.empty(0.001)
    release = world.run(plan, source=InsecureNoNoise()).release
    counts = world.held.sum(axis=0)
    pi = np.append(world.reference.probabilities, 0.0)[: len(counts)]
    truth = skewed_divergence(
        pi, counts / counts.sum(), skew=divergence.skew, divergence=divergence
    )
    exact = plan.question.release == "value"  # what is read off counts is debiased
    assert release.value == pytest.approx(truth, abs=1e-9 if exact else 0.03)
    assert release.interval is not None
    low, high = release.interval
    assert 0 <= low <= high <= divergence.largest(divergence.skew, 1 / pi[pi > 0].min())
    assert release.verdict is not None
    assert release.answers[0].target == divergence.target(
        "P" if name == "tv" else "0.01 Pi + 0.99 P"
    )


def test_the_smallest_drifts_of_tv_and_kl_fit_together() -> None:
    """The same world and budget: by Pinsker's inequality a TV of t has a KL of at least 2 t^2."""
    rng = np.random.default_rng(1)
    world = World.make(clients=40, cells=30)
    world.held = rng.multinomial(250, np.append(world.reference.probabilities, 0.0)[:31], 40)
    least = {name: planned(world, name, "aggregator").smallest_drift for name in ("kl", "tv")}
    assert least["tv"] is not None
    assert least["kl"] is not None
    assert 0.2 * least["kl"] < 2 * least["tv"] ** 2 < 1.5 * least["kl"]


@pytest.mark.parametrize("name", ["kl", "psi"])
def test_a_question_needs_a_skew_where_a_vanished_cell_is_infinite(name: str) -> None:
    with pytest.raises(InvalidInputError, match="must be above 0"):
        Question(divergence=name, skew=0.0)
