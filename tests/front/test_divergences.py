"""Other divergences from a signed release, at no further cost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedprikl as fk
from fedprikl import InvalidInputError
from fedprikl.divergence import divergence_named, skewed_divergence
from fedprikl.protocol import Plan
from fedprikl.protocol.answering import asked_points
from tests.protocol.worlds import InsecureNoNoise, World

NAMES = ("kl", "reverse_kl", "psi", "js", "hellinger", "tv")
WORLD = World.make()
WORLD.held[:, 0] *= 4
PLAN = WORLD.plan(trust="none", points=12, cohort=24)
RELEASE = WORLD.run(PLAN, source=InsecureNoNoise()).release


def divergence_of(name: str, **changes: Any) -> Any:
    given: dict[str, Any] = {"release": RELEASE, "reference": WORLD.reference, "plan": PLAN}
    return fk.divergence_of(divergence=name, **given | changes)


@pytest.mark.parametrize("name", NAMES)
def test_every_divergence_follows_from_one_release(name: str) -> None:
    """Without noise on the counts; they are debiased as if they had some."""
    counts, pi = WORLD.held.sum(axis=0), WORLD.reference.probabilities
    pi = np.append(pi, 0.0)[: len(counts)]
    divergence = divergence_named(name)
    truth = skewed_divergence(
        pi, counts / counts.sum(), skew=divergence.skew, divergence=divergence
    )
    found = divergence_of(name)
    assert found.value == pytest.approx(truth, rel=0.1)
    assert found.excess > 0.3 * truth
    assert f"{found.no_drift:.4f} is what no drift gives" in str(found)


def test_the_divergence_of_the_plan_is_found_again() -> None:
    found = divergence_of("kl")
    assert found.value == pytest.approx(RELEASE.value, abs=found.no_drift)
    assert found.interval[0] < RELEASE.value < found.interval[1]
    assert found.target == RELEASE.answers[0].target


def test_a_release_of_a_file_and_another_skew(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_bytes(RELEASE.to_bytes())
    assert divergence_of("js", release=path) == divergence_of("js")
    assert divergence_of("js", skew=0.0).target == "JS(Pi, P)"


@pytest.mark.parametrize("changes", [{"points": 6}, {"points": 3, "batches": 2, "cohort": 12}])
def test_counts_of_a_release_are_those_of_the_round(changes: dict[str, int]) -> None:
    """Some cells asked, one or two batches: weights and counts are found again."""
    plan = WORLD.plan(trust="none", exponent=0.5, **{"cohort": 24} | changes)
    result = WORLD.run(plan)
    released = result.release.noisy_counts
    assert released is not None
    pi = WORLD.reference.probabilities
    points = asked_points(plan, pi, released)
    assert result.round.points is not None
    np.testing.assert_allclose(points.weights, result.round.points.weights, rtol=1e-12)
    assert points.cells.tolist() == result.round.points.cells.tolist()


def trusted() -> tuple[Any, Plan]:
    plan = WORLD.plan()
    return WORLD.run(plan).release, plan


def test_a_release_without_counts_has_no_other_divergence() -> None:
    release, plan = trusted()
    with pytest.raises(InvalidInputError, match="carries no counts"):
        divergence_of("js", release=release, plan=plan)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("kl", {"skew": 0.0}, "skew above 0"),
        ("cosine", {}, "no divergence 'cosine'"),
        ("js", {"plan": PLAN.changed(epsilon=0.5)}, "another plan"),
        ("js", {"reference": World.make(seed=4).reference}, "another reference"),
        ("js", {"release": replace(RELEASE, population="others")}, "NOT genuine"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        divergence_of(name, **changes)


@pytest.mark.parametrize("cells", [(0, 99), (1, 0)])
def test_counts_that_fit_no_plan_are_refused(cells: tuple[int, int]) -> None:
    assert RELEASE.noisy_counts is not None
    odd = replace(RELEASE.noisy_counts, batch=(0, 0), cells=cells, counts=(1.0, 2.0))
    with pytest.raises(InvalidInputError, match=r"do not fit|not sorted"):
        asked_points(PLAN, WORLD.reference.probabilities, odd)
