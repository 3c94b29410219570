"""How much a column drifted, from its noisy counts."""

import time
from collections.abc import Sequence

import numpy as np
import pytest

from fedprikl.checks import Floats
from fedprikl.divergence import Score, skewed_divergence
from fedprikl.estimation import (
    Answer,
    CountedView,
    CountNoise,
    NoisyCounts,
    answers_from_counts,
)
from fedprikl.reference import Correlation, Spread, all_points
from tests.estimation.column_releases import falling, score_of

N, SD = 40_295, 60.0
POINTS = all_points(falling(12))
SCORES = (score_of("kl"), score_of("tv"))


def sizes_of(
    noisy: NoisyCounts, spread: float | Spread, scores: Sequence[Score]
) -> tuple[Answer, ...]:
    return answers_from_counts(CountedView(POINTS, noisy, spread), scores, mechanism="")


def released(p: Floats, rng: np.random.Generator) -> NoisyCounts:
    held = np.append(rng.multinomial(N, p), 0)
    return NoisyCounts.of(held + rng.normal(0, SD, 13), [N], [CountNoise(sd=SD)])


def test_sizes_are_near_the_truth_and_inside_their_intervals(rng: np.random.Generator) -> None:
    pi = falling(12)
    p = pi * np.exp(0.3 * np.cos(np.arange(12)))
    p = p / p.sum()
    covered = np.zeros(2)
    for _ in range(20):
        for k, (size, score) in enumerate(
            zip(sizes_of(released(p, rng), 1.0, SCORES), SCORES, strict=True)
        ):
            kind = score.divergence
            truth = skewed_divergence(pi, p, skew=kind.skew, divergence=kind)
            assert (size.divergence, size.unit) == (kind.name, score.unit)
            assert size.interval is not None
            covered[k] += size.interval[0] <= truth <= size.interval[1]
            assert size.value == pytest.approx(truth, rel=0.35)
            assert size.excess is not None
            assert size.excess > 0.7 * size.value
    assert np.all(covered >= 14)  # of 20, at 95%: fewer with probability 3e-5, if at all


def test_correlated_clients_raise_what_no_drift_gives(rng: np.random.Generator) -> None:
    noisy, kind = released(falling(12), rng), Correlation(icc=0.05, size_variation=0.0, clients=99)
    (plain,) = sizes_of(noisy, 1.0, SCORES[:1])
    spread = Spread(clients=(100,), correlation=kind)
    (alike,) = sizes_of(noisy, spread, SCORES[:1])
    assert (alike.no_drift or 0.0) > 2 * (plain.no_drift or 1.0)


def test_hundred_columns_take_seconds(rng: np.random.Generator) -> None:
    noisy = released(falling(12), rng)
    started = time.process_time()
    for _ in range(25):
        sizes_of(noisy, 1.0, SCORES)
    assert time.process_time() - started < 4  # a quarter of 100 columns, usually in 0.7
