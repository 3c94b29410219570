"""Printed intervals cover on worlds that no constant was set on, and are not wide for nothing."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.estimation import CountNoise, NoisyCounts, score_sensitivity
from fedprikl.estimation.interval import adaptive_interval, counts_interval, value_interval
from fedprikl.estimation.scoring import AskedNumber
from fedprikl.privacy import LaplaceMechanism, Numbers
from fedprikl.reference import all_points
from tests.benchmark_modules import loaded
from tests.long import long

pytestmark = pytest.mark.slow

SEED, RELEASES, FALSE_ALARM = 31, 100, 1e-6
# cells, records, epsilon, kind; of the benchmark's worlds "check"
CASES = [
    ("two-level", 2, 1000, 1.0, "growing"),
    ("skewed", 4, 600, 1.0, "gone"),
    ("two-level", 4, 600, 0.1, "heavy"),
    ("skewed", 9, 2000, 1.0, "smooth"),
    ("two-level", 9, 2000, 0.1, "rare"),
    ("skewed", 9, 40_000, 0.1, "none"),
    ("two-level", 9, 40_000, 1.0, "heavy"),
]


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with loaded("intervals", ()) as modules:
        yield modules.intervals


def rows(bench: Any, release: str, name: str, narrowed: float = 1.0) -> list[dict[str, Any]]:
    return [
        bench.measure(bench.Case("check", *case, release), name, RELEASES, SEED, narrowed)
        for case in CASES
    ]


def least(found: list[dict[str, Any]]) -> float:
    """What a true coverage of 95% falls below with probability 1e-6."""
    trials = RELEASES * len(found)
    return float(stats.binom.ppf(FALSE_ALARM, trials, 0.95)) / trials


def coverage(found: list[dict[str, Any]]) -> float:
    return float(np.mean([row["coverage"] for row in found]))


@pytest.mark.parametrize("name", ["kl", long("js"), long("tv")])
@pytest.mark.parametrize("release", ["value", long("counts")])
def test_intervals_cover_and_are_not_wide(bench: Any, release: str, name: str) -> None:
    """Of the seven cases together; and as a geometric mean at most 1.7 times the ideal width."""
    found = rows(bench, release, name)
    assert coverage(found) >= least(found)
    assert all(row["outside"] == 0 for row in found)  # the value is in its interval
    assert math.exp(np.mean([math.log(row["ratio"]) for row in found])) < 1.7


@pytest.mark.parametrize(
    ("name", "narrowed"),
    [long("kl", 0.5), long("js", 0.5), long("tv", 0.5)],
)
def test_narrower_intervals_would_not_cover(bench: Any, name: str, narrowed: float) -> None:
    """At 0.7 of their width they are about as narrow as the ideal ones."""
    found = rows(bench, "counts", name, narrowed)
    assert coverage(found) < least(found)


@pytest.mark.parametrize("seed", range(12))
def test_the_value_is_in_its_interval_and_that_in_the_possible_range(seed: int) -> None:
    """Random small domains, and values far out of the possible range too."""
    rng = np.random.default_rng([SEED, seed])
    mass = rng.lognormal(sigma=1.5, size=int(rng.integers(2, 7)))
    points, records = all_points(mass / mass.sum()), np.array([int(rng.integers(20, 3000))])
    epsilon, name = float(rng.choice([0.1, 1.0, 5.0])), str(rng.choice(["kl", "js", "tv"]))
    score = Score(Skew(0.01), divergence_named(name))
    largest = score.divergence.largest(0.01, 1 / points.pi_min)
    asked, found = AskedNumber(points, records, score), []
    sensitivity = score_sensitivity(points, records, score)
    noise = LaplaceMechanism.calibrated(Numbers(sensitivity), epsilon=epsilon, delta=0.0)
    counts = rng.normal(records[0] * points.pi, 2 / epsilon)
    noisy = NoisyCounts.of([*counts, rng.normal()], records, [CountNoise(sd=2 / epsilon)])
    for value in (-1.0, 0.0, float(rng.uniform(0, largest)), largest, 9.0):
        found = [
            value_interval(value, noise, asked),
            counts_interval(points, noisy, value, score=score),
        ]
        if name == "kl" and seed % 3 == 0:  # slow
            found.append(adaptive_interval(value, epsilon, asked))
        for each in found:
            assert each is not None
            low, high = each.printed
            assert 0 <= low <= min(max(value, 0.0), largest) <= high <= largest + 1e-12
            if each.guaranteed is not None:
                assert each.guaranteed[0] <= low <= high <= each.guaranteed[1]
