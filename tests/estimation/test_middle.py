"""Medians of binned columns: where they lie, and how often their intervals hold."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from fedprikl.checks import Floats
from fedprikl.estimation import CountNoise, NoisyCounts, cells, middle
from fedprikl.estimation.cells import outside_share
from fedprikl.estimation.middle import binned_median, median_interval
from fedprikl.estimation.noisy_counts import CountedView
from fedprikl.reference import Reference, View, all_points
from tests.false_alarm import accepted

DRAWS, FEW, FALSE_ALARM = 1500, 300, 1e-9
EDGES = np.array([-5.0, -3.0, -1.0, 2.0, 7.0, 15.0, 40.0])
NOISES = [CountNoise(sd=30.0), CountNoise(sd=30.0, scale=30 / math.sqrt(2))]


def held(misses: int, draws: int = DRAWS) -> bool:
    """Whether intervals that miss at most one time in twenty may have missed so often."""
    return misses <= accepted(draws, 1 - cells.LEVEL, 2 * FALSE_ALARM)[1]


def bin_shares(law: Any) -> Floats:
    return np.diff(law.cdf(EDGES), prepend=0.0, append=1.0)


def misses_of(law: Any, noise: CountNoise, records: int) -> int:
    """How often the median of unrelated records is missed, a tenth of which are missing."""
    rng = np.random.default_rng(5)
    shares, size = np.append(0.9 * bin_shares(law), 0.1), len(EDGES) + 2
    bins, true, points = np.arange(size - 1), law.median(), all_points(np.full(size, 1 / size))
    found = 0
    for counts in rng.multinomial(records, shares, DRAWS):
        noisy = np.append(counts, 0.0) + noise.draw(rng, (size + 1,))
        view = CountedView(points, NoisyCounts.of(noisy, [records], [noise]), 1.0)
        low, high = median_interval(view, bins, EDGES)
        found += not low < true <= high
    return found


LAWS = {  # the second has its median at an edge: there, half of the chance to miss is used up
    "inside a bin": stats.lognorm(0.8, loc=-6, scale=9),
    "at an edge": stats.norm(2.0, 12.0),
    "in an open bin": stats.norm(60.0, 30.0),
}


@pytest.mark.parametrize("noise", NOISES, ids=["normal", "laplace"])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_interval_holds(law: Any, noise: CountNoise) -> None:
    assert held(misses_of(law, noise, records=2_000))


def test_one_of_half_the_width_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middle, "LEVEL", 0.67)
    assert not held(misses_of(LAWS["at an edge"], NOISES[0], records=2_000))


@pytest.fixture(scope="module")
def alike() -> tuple[View, Callable[[int, np.random.Generator], Floats]]:
    """A reference whose clients have values of their own, and populations of such clients."""

    def values(clients: int, rng: np.random.Generator) -> Floats:
        own = rng.normal(0.0, 6.0, (clients, 1))
        return np.asarray(own + rng.normal(3.0, 4.0, (clients, 20)))

    drawn = values(600, np.random.default_rng(1))
    frame = {
        "value": drawn.ravel(),
        "other": np.tile(["a", "b"], drawn.size // 2),
        "client": np.repeat(np.arange(600), 20),
    }
    reference = Reference.fit(pl.DataFrame(frame), client="client")
    return next(view for view in reference.views if view.columns == ("value",)), values


def clumped_misses(
    alike: tuple[View, Callable[[int, np.random.Generator], Floats]], *, known: bool
) -> int:
    """How often the median of clients whose records are alike is missed; it is at an edge."""
    view, values = alike
    rng, clients = np.random.default_rng(7), 100
    edges = np.array(view.domain.encoder.columns[0].edges)  # type: ignore[union-attr]
    bins, points, spread = np.arange(view.size), view.points(), view.spread(clients=[clients])
    shift, found = edges[4] - 3.0, 0
    for _ in range(FEW):
        place = np.searchsorted(edges, values(clients, rng) + shift)
        counts = np.bincount(place.ravel(), minlength=view.size)
        noisy = np.append(counts + rng.normal(0, 5.0, view.size), 0.0)
        seen = NoisyCounts.of(noisy, [20 * clients], [CountNoise(sd=5.0)])
        low, high = median_interval(
            CountedView(points, seen, spread if known else 1.0), bins, edges
        )
        found += not low < edges[4] <= high
    return found


def test_the_interval_holds_where_a_clients_values_are_alike(
    alike: tuple[View, Callable[[int, np.random.Generator], Floats]],
) -> None:
    assert held(clumped_misses(alike, known=True), FEW)


def test_it_would_not_if_they_were_taken_as_unrelated(
    alike: tuple[View, Callable[[int, np.random.Generator], Floats]],
) -> None:
    assert not held(clumped_misses(alike, known=False), FEW)


def test_a_median_of_whole_numbers_is_one() -> None:
    """Of 1 .. 8, each as often: half of them are up to 4."""
    whole = binned_median(np.array([1.0, 8.0, 1.0]), np.array([0.0, 8.0]), step=1.0)
    assert whole == 4
    assert binned_median(np.array([2.0, 8.0, 1.0]), np.array([0.0, 8.0]), step=1.0) == 4
    assert binned_median(np.array([1.0, 8.0, 2.0]), np.array([0.0, 8.0]), step=1.0) == 5


def test_a_median_in_an_open_bin_has_no_value() -> None:
    assert binned_median(np.array([3.0, 1.0]), np.array([0.0])) == -math.inf
    assert binned_median(np.array([1.0, 3.0]), np.array([0.0])) == math.inf


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_the_share_of_new_values_is_in_its_interval(share: float) -> None:
    assert held(outside_misses(share, claimed=30.0), FEW)


def test_it_would_not_be_with_less_noise_than_there_is() -> None:
    assert not held(outside_misses(0.02, claimed=8.0), FEW)


def outside_misses(share: float, claimed: float) -> int:
    rng, records, found = np.random.default_rng(3), 5_000, 0
    points, law = all_points([0.5, 0.5]), CountNoise(sd=claimed)
    for new in rng.binomial(records, share, FEW).tolist():
        exact = np.array([(records - new) // 2, records - new - (records - new) // 2, new])
        noisy = NoisyCounts.of(exact + rng.normal(0, 30.0, 3), [records], [law])
        _, low, high = outside_share(CountedView(points, noisy, 1.0), 1.0)
        found += not low <= share <= high
    return found
