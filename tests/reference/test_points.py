"""Query points: unbiased designs, by exact enumeration; clear errors; fast on large domains."""

import itertools
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.reference import QueryPoints, all_points, distinct_points, iid_points, spread_points
from fedprikl.reference.points import inclusion_probabilities, spread_shares, systematic_sample
from tests.false_alarm import looks_centred

pytestmark = pytest.mark.slow

weights_lists = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=9)


def distribution(weights: list[float]) -> Floats:
    mass: Floats = np.array(weights) / np.sum(weights)
    return mass


def all_systematic_samples(inclusion: Floats) -> list[tuple[float, Ints]]:
    """Every sample the design can draw, with its probability: it changes at few start points."""
    uncertain = inclusion[(inclusion > 0) & (inclusion < 1)]
    starts = np.unique(np.concatenate([[0.0, 1.0], np.cumsum(uncertain) % 1.0]))
    return [
        (b - a, systematic_sample(inclusion, (a + b) / 2))
        for a, b in itertools.pairwise(starts)
        if b - a > 1e-12
    ]


@given(weights_lists, st.data())
def test_inclusion_probabilities_are_pps_capped_at_one(
    weights: list[float], data: st.DataObject
) -> None:
    pi = distribution(weights)
    total = data.draw(st.integers(1, len(pi)))
    inclusion = inclusion_probabilities(pi, total)
    assert inclusion.sum() == pytest.approx(total, rel=1e-9)
    assert np.all((inclusion > 0) & (inclusion <= 1))
    free = inclusion < 1
    if free.any():
        scale = inclusion[free] / pi[free]
        np.testing.assert_allclose(scale, scale[0], rtol=1e-6)
        assert np.all(pi[~free] * scale[0] >= 1 - 1e-6)


@given(weights_lists, st.data())
def test_systematic_pps_is_exactly_unbiased(weights: list[float], data: st.DataObject) -> None:
    """By enumeration of all samples: each cell is drawn as often as it should be, never twice."""
    pi = distribution(weights)
    total = data.draw(st.integers(1, len(pi)))
    inclusion = inclusion_probabilities(pi, total)
    score = np.sin(np.arange(len(pi)))
    drawn, mean = np.zeros(len(pi)), 0.0
    for probability, sample in all_systematic_samples(inclusion):
        assert len(sample) == total
        assert len(set(sample.tolist())) == total
        drawn[sample] += probability
        mean += probability * float(np.sum((pi / inclusion * score)[sample]))
    np.testing.assert_allclose(drawn, inclusion, atol=1e-6)
    assert mean == pytest.approx(float(pi @ score), abs=1e-6)


def test_that_check_would_catch_weights_without_inclusion() -> None:
    pi, score = np.array([0.7, 0.2, 0.1]), np.array([1.0, 2.0, 3.0])
    inclusion = inclusion_probabilities(pi, 2)
    mean = sum(p * float(np.sum((pi * score)[s])) for p, s in all_systematic_samples(inclusion))
    assert mean != pytest.approx(float(pi @ score), abs=1e-3)


def test_iid_points_are_exactly_unbiased_and_have_the_textbook_variance() -> None:
    """Enumerates all draws of 2 points for 1 batch through the weights they would get."""
    pi, score = np.array([0.5, 0.3, 0.2]), np.array([1.0, -2.0, 4.0])
    mean = second = 0.0
    for draw in itertools.product(range(3), repeat=2):
        probability = float(np.prod(pi[list(draw)]))
        points = iid_points(pi, 2, batches=1, rng=FixedDraws(pi, draw))
        value = float(points.weights @ score[points.cells])
        mean, second = mean + probability * value, second + probability * value**2
    variance = float(pi @ score**2 - (pi @ score) ** 2)
    assert mean == pytest.approx(float(pi @ score), rel=1e-12)
    assert second - mean**2 == pytest.approx(variance / 2, rel=1e-12)


class FixedDraws(np.random.Generator):
    """A generator whose uniform numbers hit the given cells."""

    def __init__(self, pi: Floats, draw: tuple[int, ...]) -> None:
        super().__init__(np.random.PCG64(0))
        self._numbers = (np.cumsum(pi) - pi / 2)[list(draw)]

    def random(self, *_: Any, **__: Any) -> Any:
        return self._numbers


def test_the_variance_of_distinct_points_is_smaller_than_of_iid_points(
    rng: np.random.Generator,
) -> None:
    pi = distribution((1 / np.arange(1, 101)).tolist())
    score = np.cos(np.arange(100))
    variances = []
    for design in (iid_points, distinct_points):
        draws = [design(pi, 20, batches=1, rng=rng) for _ in range(400)]
        variances.append(np.var([p.weights @ score[p.cells] for p in draws]))
    assert variances[1] < variances[0] / 2


def test_dealt_points_are_unbiased(rng: np.random.Generator) -> None:
    """Each batch has its own score for a cell; the mean over batches and cells is estimated."""
    pi = distribution([5.0, 3.0, 1.0, 1.0, 0.5, 0.2])
    score = rng.normal(size=(2, 6))
    values = []
    for _ in range(5_000):
        points = distinct_points(pi, 2, batches=2, rng=rng)
        values.append(points.weights @ score[points.batch, points.cells])
    truth = float(pi @ score.mean(axis=0))
    assert looks_centred(np.array(values), truth)
    assert not looks_centred(np.array(values), truth + 0.04)


def test_dealt_points_are_distinct_over_all_batches(rng: np.random.Generator) -> None:
    points = distinct_points(np.full(40, 1 / 40), 10, batches=4, rng=rng)
    assert len(set(points.cells.tolist())) == 40
    assert np.bincount(points.batch).tolist() == [10] * 4
    assert points.payload == 10


def test_a_point_drawn_twice_is_asked_once() -> None:
    pi = np.array([0.9, 0.1])
    points = iid_points(pi, 3, batches=1, rng=FixedDraws(pi, (0, 1, 0)))
    assert points.cells.tolist() == [0, 1]
    assert points.draws.tolist() == [2, 1]
    np.testing.assert_allclose(points.weights, [2 / 3, 1 / 3])


def test_points_of_probability_zero_are_never_drawn(rng: np.random.Generator) -> None:
    pi = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    for design in (iid_points, distinct_points):
        points = design(pi, 2, batches=1, rng=rng)
        assert set(points.cells.tolist()) <= {1, 3}
    assert all_points(pi).cells.tolist() == [1, 3]
    assert all_points(pi).weights.tolist() == [0.5, 0.5]


def test_a_start_just_below_one_stays_inside(rng: np.random.Generator) -> None:
    for _ in range(100):
        inclusion = inclusion_probabilities(rng.dirichlet(np.ones(50)), 7)
        assert len(systematic_sample(inclusion, float(np.nextafter(1.0, 0.0)))) == 7


def test_a_vanishing_tail_does_not_disturb_the_certain_cells() -> None:
    inclusion = inclusion_probabilities(np.array([0.9, 0.1, 1e-20]), 2)
    assert inclusion[:2].tolist() == [1.0, 1.0]
    assert systematic_sample(inclusion, 0.5).tolist() == [0, 1]


def raw(**changes: Any) -> QueryPoints:
    settings: dict[str, Any] = {
        "batches": 2,
        "cells": [0, 1, 0],
        "batch": [0, 0, 1],
        "pi": [0.5, 0.5, 0.5],
        "weights": [0.3, 0.3, 0.4],
        "draws": [1, 1, 1],
        "pi_min": 0.5,
    }
    return QueryPoints(**(settings | changes))


def build(**changes: Any) -> QueryPoints:
    settings: dict[str, Any] = {"cells": [0, 1], "batch": [0, 0], "weights": [0.5, 0.5]}
    return QueryPoints.build(np.array([0.5, 0.5, 0.0]), **(settings | changes))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: build(cells=[0, 3]), "outside the domain"),
        (lambda: build(cells=[0, 2]), "probability 0"),
        (lambda: build(cells=[0, 0]), "same point twice"),
        (lambda: build(cells=[]), "equally many"),
        (lambda: build(cells=[], batch=[], weights=[]), "at least 1"),
        (lambda: build(weights="a"), "must be numbers"),
        (lambda: build(weights=[[0.5], [0.5]]), "one list"),
        (lambda: build(draws=[0, 1]), "a draw"),
        (lambda: QueryPoints.build([0.7, 0.7], cells=[0], batch=[0], weights=[1]), "sum to 1"),
        (lambda: raw(cells=[1, 1, 0]), "same point twice"),
        (lambda: raw(cells=[1, 0, 0]), "sorted"),
        (lambda: raw(batch=[1, 0, 0]), "sorted"),
        (lambda: raw(batch=[0, 0, 0]), "needs a point"),
        (lambda: raw(pi=[0.5, 0.0, 0.5]), "probability"),
        (lambda: raw(weights=[0.3, 0.3]), "equally many"),
        (lambda: iid_points([], 1, batches=1, rng=np.random.default_rng()), "at least one"),
        (lambda: iid_points([1.5, -0.5], 1, batches=1, rng=np.random.default_rng()), "negative"),
        (lambda: distinct_points([50.0, 20.0], 1, rng=np.random.default_rng()), "sum to 1"),
        (lambda: all_points([np.nan, 1.0]), "finite"),
        (lambda: build(weights=[0.5, np.nan]), "finite numbers"),
        (lambda: build(batches=2), "needs a point"),
        (lambda: build(cells=[-1, 0]), "negative"),
        (lambda: distinct_points(np.array([1.0]), 2, rng=np.random.default_rng()), "only 1 cells"),
        (lambda: distinct_points(np.array([1.0]), 0, rng=np.random.default_rng()), "at least 1"),
        (
            lambda: iid_points(np.array([1.0]), 1, batches=0, rng=np.random.default_rng()),
            "at least 1",
        ),
    ],
)
def test_bad_points_say_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


@pytest.mark.parametrize("design", [iid_points, distinct_points])
def test_sampling_from_a_million_cells_takes_milliseconds(
    design: Any, rng: np.random.Generator
) -> None:
    """Processor time, for a busy machine; 30 times what was measured (about 15 to 30 ms)."""
    pi = distribution((1 / np.arange(1, 10**6 + 1)).tolist())
    start = time.process_time()
    points = design(pi, 250, batches=4, rng=rng)
    assert time.process_time() - start < 1.0
    assert len(points) > 250


def zipf(cells: int) -> Floats:
    return distribution((1 / np.arange(1.0, cells + 1)).tolist())


@pytest.mark.parametrize("batches", [1, 3, 10])
@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_spread_points_ask_every_batch_for_as_many(batches: int, exponent: float) -> None:
    """m points each, none twice; heavy cells in every batch; weights as the design demands."""
    pi = zipf(200)
    points = spread_points(pi, 12, batches=batches, exponent=exponent, rng=np.random.default_rng(3))
    assert np.bincount(points.batch).tolist() == [12] * batches
    assert points.pooled
    wanted = batches * spread_shares(pi, 12, exponent)
    copies = np.bincount(points.cells, minlength=len(pi))
    assert np.all(np.abs(copies - wanted) < 1)
    assert points.weights == pytest.approx(points.pi / np.minimum(wanted, 1)[points.cells])


def test_spread_points_are_unbiased_for_any_score() -> None:
    """Mean of sum w s over cells."""
    rng, pi = np.random.default_rng(4), zipf(60)
    score = rng.normal(size=len(pi))
    found = []
    for _ in range(4000):
        points = spread_points(pi, 4, batches=3, rng=rng)
        _, first = np.unique(points.cells, return_index=True)
        found.append(float(points.weights[first] @ score[points.cells[first]]))
    assert looks_centred(np.array(found), float(pi @ score))


def test_pooled_points_need_one_weight_per_cell() -> None:
    with pytest.raises(InvalidInputError, match="same weight"):
        QueryPoints.build(
            [0.5, 0.5], cells=[0, 0], batch=[0, 1], weights=[0.5, 0.4], batches=2, pooled=True
        )
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        spread_points(zipf(9), 3, batches=1, exponent=2.0, rng=np.random.default_rng(5))


def test_points_with_the_same_entries_are_equal() -> None:
    """What is simulated for points is kept for all that are equal."""
    one, other = (
        spread_points(zipf(60), 5, batches=3, rng=np.random.default_rng(4)) for _ in range(2)
    )
    assert one is not other
    assert one == other
    assert hash(one) == hash(other)
    changes: list[dict[str, Any]] = [
        {"weights": 2 * one.weights},
        {"pi": one.pi / 2},
        {"draws": one.draws + 1},
        {"cells": one.cells + 1},
        {"batch": np.zeros(len(one), np.int64), "batches": 1, "cells": np.arange(len(one))},
        {"pi_min": one.pi_min / 2},
        {"sampling_variance": one.sampling_variance + 1},
        {"pooled": False},
    ]
    for change in changes:
        assert replace(one, **change) != one, change
    assert one != "points"


def test_points_do_not_change() -> None:
    """Not even with the arrays they were made of: what is kept for them would be wrong."""
    pi = np.array([0.5, 0.3, 0.2])
    weights = pi.copy()
    points = QueryPoints.build(pi, cells=[0, 1, 2], batch=[0, 0, 0], weights=weights)
    weights[:] = 9.0
    assert points == all_points(pi)
    with pytest.raises(ValueError, match="read-only"):
        points.weights[0] = 9.0
