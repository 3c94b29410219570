"""How far k records of one client move a sum: brute force over all neighbouring populations."""

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.divergence import KL, Additive, Divergence, Floor, Score, Skew, divergence_named
from fedprikl.errors import UnboundedSensitivityError
from fedprikl.estimation import BatchCounts, score_reach, score_sensitivity, weighted_score
from fedprikl.estimation.scoring import _scores_per_batch
from fedprikl.privacy import contribution_sensitivity, joint_sensitivity
from fedprikl.privacy import sensitivity as module
from fedprikl.reference import QueryPoints, all_points
from tests.brute_force import Histogram, distance, histograms, within

pytestmark = pytest.mark.slow

DIVERGENCES = ("kl", "reverse_kl", "psi", "js", "hellinger", "tv")
Case = tuple[QueryPoints, np.ndarray[Any, np.dtype[np.int64]], Score]


def random_score(rng: np.random.Generator, divergence: Divergence, cells: int) -> Score:
    """Any skew or additive smoothing, lambda, correction and maximum step: always convex."""
    least = 0.001 if divergence.empty(0.0) == math.inf else 0.0
    smoothing = Skew(float(rng.choice([least, 0.01, 0.1, 0.5])))
    if rng.random() < 0.3:
        return Score(Additive(float(rng.choice([0.1, 1.0])), cells), divergence)
    return Score(
        smoothing,
        divergence,
        control=float(rng.choice([0, -1, 1, 0.3, -2])),
        correction=float(rng.choice([0, 0.5, 1, 4])),
        maximum_step=float(rng.choice([0.01, 0.2, 1, math.inf])),
    )


def random_design(rng: np.random.Generator, divergence: Divergence, kind: str) -> Case:
    """All cells, some cells of two batches, or two pooled batches; records and weights of any size.

    Some cells are alike, so that several may be the best.
    """
    cells = 3
    pi = np.maximum(rng.dirichlet(np.full(cells + 1, rng.choice([0.3, 1, 5]))), 1e-4)
    if rng.random() < 0.3:
        pi[:] = 1.0
    pi /= pi.sum()
    score = random_score(rng, divergence, cells + 1)
    if kind == "whole":
        return all_points(pi[:cells] / pi[:cells].sum()), rng.integers(1, 9, 1), score
    asked = rng.random((2, cells)) < 0.7
    asked[np.arange(2), rng.integers(0, cells, 2)] = True
    batch, cell = np.nonzero(asked)
    weights = rng.gamma(1, 1, cells)[cell] if kind == "pooled" else rng.gamma(1, 1, len(cell))
    points = QueryPoints.build(
        np.append(pi, 0.0),
        cells=cell,
        batch=batch,
        weights=weights,
        batches=2,
        pooled=kind == "pooled",
    )
    return points, rng.integers(1, 5, 2), score


def all_values(case: Case) -> dict[tuple[Histogram, ...], float]:
    """The sum of every population, by the histograms of its batches, unasked cells last."""
    points, records, score = case
    sizes = np.bincount(points.batch, minlength=points.batches)
    each = [list(histograms(size + 1, int(n))) for size, n in zip(sizes, records, strict=True)]

    def value(joint: tuple[Histogram, ...]) -> float:
        counts = np.concatenate([h[:-1] for h in joint])
        return weighted_score(BatchCounts(points, counts, records), score)

    return {joint: value(joint) for joint in itertools.product(*each)}


def largest_moves(case: Case, most: int) -> list[float]:
    """The largest |f(x) - f(x')| for 1, 2, ..., `most` records of one batch: all pairs."""
    values = all_values(case)
    found = [0.0] * (most + 1)
    for joint, value in values.items():
        for t, held in enumerate(joint):
            for other, k in within(held, most):
                change = abs(value - values[(*joint[:t], other, *joint[t + 1 :])])
                found[k] = max(found[k], change)
    return list(itertools.accumulate(found, max))[1:]


def scale_of(case: Case) -> float:
    """The size of the sums whose differences are compared: their rounding is no error."""
    points, _, score = case
    return float(np.abs(points.weights) @ score.bound(points.pi, np.full(len(points), 8)))


@pytest.mark.parametrize("kind", ["whole", "sampled", "pooled"])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_sensitivity_of_a_client_is_brute_force(name: str, kind: str) -> None:
    """8 cases each, k up to 4: equal up to rounding and never below, in every design."""
    rng = np.random.default_rng([len(name), len(kind), 21])
    for _ in range(8):
        case = random_design(rng, divergence_named(name), kind)
        points, records, score = case
        brute = largest_moves(case, 4)
        for k, expected in enumerate(brute, start=1):
            exact = contribution_sensitivity(_scores_per_batch(points, records, score), k)
            assert exact == pytest.approx(expected, rel=1e-11, abs=1e-13 * scale_of(case))
            assert score_sensitivity(points, records, score, k) >= expected


@pytest.mark.parametrize("name", DIVERGENCES)
def test_nine_tenths_of_it_would_be_too_little(name: str) -> None:
    """The test above can fail: in every case some population moves by more than 0.9 of it."""
    rng = np.random.default_rng([len(name), 22])
    for k in (2, 3, 4):
        case = random_design(rng, divergence_named(name), "whole")
        found = score_sensitivity(*case, k)
        assert 0.9 * found < largest_moves(case, k)[-1] <= found


def test_gains_are_not_free_of_each_other() -> None:
    """Two rare cells cannot both be full: the best gains of each, added up, are out of reach."""
    points, records = all_points(np.array([0.01, 0.01, 0.98])), np.array([6])
    score = Score(Skew(0.0), divergence_named("js"), control=3.0)
    (batch,) = _scores_per_batch(points, records, score)
    cells, n = np.arange(3), records[0]
    free = batch.scores(cells, n) - batch.scores(cells, n - 1)
    loss = batch.scores(cells, np.array(0)) - batch.scores(cells, np.array(2))
    brute = largest_moves((points, records, score), 2)[-1]
    assert contribution_sensitivity([batch], 2) == pytest.approx(brute, rel=1e-12)
    assert free[0] + free[1] + max(loss.max(), 0.0) > 1.0001 * brute


@pytest.mark.parametrize("seed", range(30))
def test_one_record_is_a_client_of_one(seed: int) -> None:
    rng = np.random.default_rng([seed, 23])
    name, kind = rng.choice(DIVERGENCES), rng.choice(["whole", "sampled", "pooled"])
    points, records, score = random_design(rng, divergence_named(str(name)), str(kind))
    one = score_sensitivity(points, records, score)
    assert score_sensitivity(points, records, score, 1) == one
    found = contribution_sensitivity(_scores_per_batch(points, records, score), 1)
    assert found == pytest.approx(one, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_scores_that_are_not_convex_count_every_record(seed: int) -> None:
    """A floor, weights below 0: `moved` times one record, and never below brute force."""
    rng = np.random.default_rng([seed, 24])
    points, records, score = random_design(rng, KL, "sampled")
    signs = np.where(np.arange(len(points)) == 0, -1.0, 1.0)
    bent = QueryPoints.build(
        np.append(np.full(3, 1 / 3), 0.0),
        cells=points.cells,
        batch=points.batch,
        weights=points.weights * signs,
        batches=2,
    )
    for case in ((points, records, Score(Floor(0.3))), (bent, records, score)):
        one = score_sensitivity(*case)
        for k, brute in enumerate(largest_moves(case, 4), start=1):
            found = score_sensitivity(*case, k)
            assert found >= brute
            assert found == pytest.approx(k * one, rel=1e-12)


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("cells", [7, 40])
def test_looking_at_few_cells_gives_a_little_more(
    name: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against all choices of the gaining cell one by one, as the formula is written."""
    rng = np.random.default_rng([len(name), cells])
    points = all_points(rng.dirichlet(np.full(cells, 5.0)))
    records = np.array([200])
    score = Score(Skew(0.01), divergence_named(name), control=0.2)
    for k in (3, 50, 150, 500):
        exact = contribution_sensitivity(_scores_per_batch(points, records, score), k)
        assert exact == pytest.approx(as_written(points, records, score, k), rel=1e-11)
        found = score_sensitivity(points, records, score, k)
        assert exact < found == pytest.approx(exact, rel=1e-9)
        with monkeypatch.context() as patch:
            patch.setattr(module, "LOOKED", 0)
            assert found <= score_sensitivity(points, records, score, k) <= 1.5 * found


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize(("cells", "moved"), [(2, 150), (7, 40), (60, 3), (60, 90)])
def test_a_large_table_has_the_sensitivity_of_a_small_one(
    name: str, cells: int, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all steps are computed, or only those that matter."""
    rng = np.random.default_rng([len(name), cells])
    points, records = all_points(rng.dirichlet(np.full(cells, 2.0))), np.array([200])
    score = Score(Skew(0.01), divergence_named(name))
    scores = _scores_per_batch(points, records, score)
    small = contribution_sensitivity(scores, moved), joint_sensitivity(scores[0], moved)
    monkeypatch.setattr(module, "SMALL_TABLE", 0)
    large = contribution_sensitivity(scores, moved), joint_sensitivity(scores[0], moved)
    assert large == pytest.approx(small, rel=1e-12)


def as_written(points: QueryPoints, records: Any, score: Score, k: int) -> float:
    (batch,) = _scores_per_batch(points, records, score)
    n, cells = min(k, int(records[0])), np.arange(len(points))
    table = batch.scores(cells[:, None], np.arange(records[0] + 1))
    best = 0.0
    for z in [*cells.tolist(), None]:
        others = np.delete(table, z, axis=0) if z is not None else table
        steps = np.sort(np.maximum(-np.diff(others[:, : n + 1], axis=1), 0.0).ravel())[::-1]
        losses = np.append(0.0, np.cumsum(steps))[: n + 1]
        gains = 0.0 if z is None else table[z, -1] - table[z, ::-1][: n + 1]
        best = max(best, float(np.max(gains + losses)))
    return best


@pytest.mark.parametrize("kind", ["sampled", "pooled"])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_records_of_several_batches_move_no_more_than_the_reach(name: str, kind: str) -> None:
    """All pairs of populations of 2 + 2 records: never less, and more than one batch at times.

    The sensitivity of one batch is no bound for clients of several.
    """
    rng, beyond = np.random.default_rng([len(name), len(kind), 25]), False
    for _ in range(3):
        points, _, score = random_design(rng, divergence_named(name), kind)
        case = points, np.array([2, 2]), score
        most = [0.0] * 5
        for (left, one), (right, other) in itertools.combinations(all_values(case).items(), 2):
            k = sum(map(distance, left, right))
            most[k] = max(most[k], abs(one - other))
        for k, expected in enumerate(itertools.accumulate(most[1:], max), start=1):
            found = score_reach(*case, k)
            assert expected <= found <= k * score_sensitivity(*case, 1) * (1 + 1e-9)
            beyond |= expected > score_sensitivity(*case, k) * (1 + 1e-9)
    assert beyond


def test_the_reach_of_one_batch_is_its_sensitivity() -> None:
    points, records = all_points(np.array([0.6, 0.3, 0.1])), np.array([50])
    for k in (1, 7, 60):
        expected = score_sensitivity(points, records, Score(), k)
        assert score_reach(points, records, Score(), k) == expected


def test_a_client_costs_less_than_its_records_one_by_one() -> None:
    """250 lognormal cells, 71,580 records, 20 of each client; more, the smaller the cells."""
    mass = np.exp(1.1 * stats.norm.ppf((np.arange(250) + 0.5) / 250))
    points, n = all_points(mass / mass.sum()), np.array([71_580])
    shares = {
        name: score_sensitivity(points, n, Score(Skew(skew), divergence_named(name)), 20)
        / (20 * score_sensitivity(points, n, Score(Skew(skew), divergence_named(name))))
        for name, skew in (("kl", 0.01), ("js", 0.0), ("tv", 0.0))
    }
    assert shares["kl"] < 0.98
    assert shares["js"] < 0.95
    assert shares["tv"] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_large_domain_is_fast(name: str) -> None:
    """65,536 cells and 20,000 moved records: about half a second on a busy machine."""
    mass = np.random.default_rng(5).gamma(1, 1, 65_536) + 1e-6
    points, records = all_points(mass / mass.sum()), np.array([400_000])
    score = Score(Skew(0.01), divergence_named(name))
    score_sensitivity(points, records, score)
    start = time.process_time()
    found = score_sensitivity(points, records, score, 20_000)
    assert time.process_time() - start < 3.0
    assert found <= 20_000 * score_sensitivity(points, records, score) * (1 + 1e-9)


def test_more_records_than_there_are_move_no_more() -> None:
    points, records = all_points(np.array([0.6, 0.4])), np.array([5])
    every = score_sensitivity(points, records, Score(), 5)
    assert score_sensitivity(points, records, Score(), 500) == pytest.approx(every, rel=1e-9)


def test_without_smoothing_no_client_is_hidden() -> None:
    points, records = all_points(np.array([0.6, 0.4])), np.array([5])
    with pytest.raises(UnboundedSensitivityError, match="Choose a smoothing"):
        score_sensitivity(points, records, Score(Skew(0.0)), 3)


@pytest.mark.parametrize("moved", [0, -1, 1.5])
def test_bad_input_says_what_to_do(moved: Any) -> None:
    points, records = all_points(np.array([0.6, 0.4])), np.array([5])
    with pytest.raises(InvalidInputError, match="contribution"):
        score_sensitivity(points, records, Score(), moved)
    with pytest.raises(InvalidInputError, match="contribution"):
        contribution_sensitivity([], moved)
    with pytest.raises(InvalidInputError, match="no batch"):
        contribution_sensitivity([], 1)


def test_without_a_batch_there_is_nothing_to_release() -> None:
    with pytest.raises(InvalidInputError, match="no batch"):
        contribution_sensitivity([], 3)


@pytest.mark.parametrize("most", [2, 5, 9, 40])
def test_steps_that_are_found_in_blocks_are_those_found_at_once(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all are small, or fewer than are wanted."""
    weights = np.array([0.5, 0.3, 0.15, 0.05])
    batch = module.BatchScores(
        size=40,
        records=np.array([40, 40, 40, 40]),
        kinds=np.arange(4),
        scores=lambda cell, count: weights[cell] * (count / 40 - weights[cell]) ** 2,
    )
    at_once = contribution_sensitivity([batch], most)
    monkeypatch.setattr(module, "SMALL_TABLE", 0)
    assert contribution_sensitivity([batch], most) == pytest.approx(at_once, rel=1e-12)
