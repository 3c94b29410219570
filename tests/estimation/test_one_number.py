"""A value and noisy counts of the same view are one number: the best of both, and possible."""

import numpy as np
import pytest

from fedprikl.checks import Floats
from fedprikl.divergence import JS, TV, Score, Skew
from fedprikl.estimation import CountedView, CountNoise, NoisyCounts, answers_from_counts
from fedprikl.estimation.scoring import score_sensitivity
from fedprikl.estimation.statistic import possible_values, scored_statistic
from fedprikl.privacy import LaplaceMechanism, Numbers
from fedprikl.reference import all_points
from tests.estimation.column_releases import falling
from tests.long import long

RELEASES = 40
TVS, JSS = Score(Skew(0.0), TV), Score(Skew(0.01), JS)


def errors(
    score: Score, cells: int, records: int, epsilon: float, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Mean errors of a value, of counts and of both; and how often the interval covers."""
    pi = falling(cells)
    points, sizes = all_points(pi), np.array([records])
    law = LaplaceMechanism.calibrated(
        Numbers(score_sensitivity(points, sizes, score)), epsilon=0.08 * epsilon, delta=0
    )
    noise = CountNoise(sd=2**1.5 / (0.92 * epsilon), scale=2 / (0.92 * epsilon))
    found, hits = [], 0
    for _ in range(RELEASES):
        held = rng.multinomial(records, pi)
        truth = float(score(held, pi, sizes) @ pi)
        value = truth + rng.laplace(0, law.scale)
        counts = np.append(held, 0) + noise.draw(rng, (cells + 1,))
        view = CountedView(points, NoisyCounts.of(counts, sizes, [noise]), 1.0)
        beside = scored_statistic(value, score=score, points=points, records=sizes, mechanism=law)
        (both,) = answers_from_counts(view, [score], mechanism="", values=[beside])
        (alone,) = answers_from_counts(view, [score], mechanism="")
        assert both.interval is not None
        least, largest = possible_values(score, points)
        assert least <= both.interval[0] <= both.value <= both.interval[1] <= largest
        hits += both.interval[0] <= truth <= both.interval[1]
        found.append([abs(value - truth), abs(alone.value - truth), abs(both.value - truth)])
    return np.mean(found, axis=0), hits / RELEASES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "cells", "records", "epsilon"),
    [
        (TVS, 12, 5_000, 1.0),  # counts are five times as good as the value
        long(TVS, 60, 2_000, 0.2),  # the value is better
        long(TVS, 40, 8_000, 0.1),  # both are as good
        (JSS, 12, 5_000, 1.0),  # counts are hundreds of times as good
    ],
)
def test_it_is_as_good_as_the_better_one(
    score: Score, cells: int, records: int, epsilon: float, rng: np.random.Generator
) -> None:
    """Mean errors of 40 releases; 95% coverage is seen below 0.77 with probability 1e-5."""
    (value, counts, both), covered = errors(score, cells, records, epsilon, rng)
    assert both <= 1.3 * min(value, counts)
    assert covered >= 0.77


def test_without_drift_it_is_as_large_as_it_says(rng: np.random.Generator) -> None:
    """The clamped number itself, not what it would be without clamping."""
    pi, records = falling(5), 60
    points, sizes, noise = all_points(pi), np.array([60]), CountNoise(sd=20.0)
    law, found, said = LaplaceMechanism.calibrated(Numbers(0.1), epsilon=0.5, delta=0), [], 0.0
    for _ in range(60):
        held = rng.multinomial(records, pi)
        value = float(TVS(held, pi, sizes) @ pi) + rng.laplace(0, law.scale)
        counts = np.append(held, 0) + noise.draw(rng, (6,))
        view = CountedView(points, NoisyCounts.of(counts, sizes, [noise]), 1.0)
        beside = scored_statistic(value, score=TVS, points=points, records=sizes, mechanism=law)
        (both,) = answers_from_counts(view, [TVS], mechanism="", values=[beside])
        assert both.no_drift is not None
        found.append(both.value)
        said = both.no_drift
    error = np.std(found) / 60**0.5
    assert abs(np.mean(found) - said) < 4 * error + 0.02


def test_the_words_name_both_noises() -> None:
    points, noise = all_points([0.5, 0.5]), CountNoise(sd=3.0)
    view = CountedView(points, NoisyCounts.of([50.0, 50.0, 0.0], [100], [noise]), 1.0)
    law = LaplaceMechanism.calibrated(Numbers(0.01), epsilon=1.0, delta=0)
    beside = scored_statistic(0.1, score=TVS, points=points, records=np.array([100]), mechanism=law)
    (tv, js) = answers_from_counts(view, [TVS, JSS], mechanism=str(noise), values=[beside])
    assert tv.mechanism == f"{law} on a value, and {noise}"
    assert js.mechanism == str(noise)
