"""Which cells moved, at a stated false discovery rate; and their shares."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import CountedView, CountNoise, CountsDesign, NoisyCounts
from fedprikl.estimation.cells import cell_shares, law_without_drift, shifted_cells, step_up
from fedprikl.estimation.no_drift import public_simulation
from fedprikl.privacy import laplace_variance
from fedprikl.reference import Correlation, QueryPoints, Spread, all_points, distinct_points
from tests.estimation.column_releases import falling

pytestmark = pytest.mark.slow

RATE, RELEASES = 0.1, 2000
TINY = np.concatenate([[0.5, 0.3, 0.2], 10.0 ** -np.arange(2, 9)])
TINY = TINY / TINY.sum()
ICC = 0.03
ALIKE = Spread(clients=(100,), correlation=Correlation(icc=ICC, size_variation=0.0, clients=9999))

Draw = Callable[[Floats, np.random.Generator], Ints]


View = tuple[QueryPoints, NoisyCounts]


def counted(
    pi: Floats, records: int, *, sd: float = 0.0, scale: float | None = None, sums: float = 1.0
) -> View:
    if scale is not None:
        sd = (sums * laplace_variance(scale)) ** 0.5
    noise = CountNoise(sd=sd, scale=scale)
    return all_points(pi), NoisyCounts.of(np.append(records * pi, 0.0), [records], [noise])


def swapped(pi: Floats, by: float) -> Floats:
    """A share of the second cell goes to the first: two cells move, all others stay."""
    moved = pi.copy()
    moved[:2] += by * pi[1] * np.array([1.0, -1.0])
    return moved


def sides_of(
    views: Sequence[View],
    moved: int,
    by: float,
    rng: np.random.Generator,
    *,
    draw: Draw,
    spread: float | Spread = 1.0,
) -> tuple[Floats, Floats, Floats]:
    """P-values to both sides of many releases (releases, cells), and which way each cell moved."""
    simulation, above, below, truth = public_simulation(), [], [], []
    for j, (points, noisy) in enumerate(views):
        pi = points.pi
        p = swapped(pi, by) if j < moved else pi
        held = draw(p, rng)
        null = law_without_drift(CountedView(points, noisy, spread), simulation)
        on_counts, _ = CountsDesign.of(points, noisy).draw_noise(rng, len(held))
        high, low = null.above(held + on_counts), null.below(held + on_counts)
        above.append(high)
        below.append(low)
        truth.append(np.sign(np.round(p - pi, 12)))
    return np.concatenate(above, 1), np.concatenate(below, 1), np.concatenate(truth)


def false_share(moved: Ints, truth: Floats) -> float:
    """Of the cells called moved, those that have not, or that went the other way."""
    found = moved != 0
    return float(np.sum(found & (moved != truth)) / max(float(np.sum(found)), 1.0))


def rates(above: Floats, below: Floats, truth: Floats) -> tuple[float, float, float]:
    """The false discovery rate less 6 standard errors; without the step-up; and the power."""
    pairs = list(zip(above, below, strict=True))
    found = [step_up(high, low, RATE) for high, low in pairs]
    naive = [
        np.where(2 * np.minimum(high, low) <= RATE, np.where(high < low, 1, -1), 0)
        for high, low in pairs
    ]
    false, careless = (np.array([false_share(m, truth) for m in each]) for each in (found, naive))
    power = np.mean([(m == truth)[truth != 0].mean() for m in found]) if np.any(truth) else 0.0
    errors = [6 * each.std() / len(each) ** 0.5 for each in (false, careless)]
    return float(false.mean() - errors[0]), float(careless.mean() - errors[1]), float(power)


def records_of(records: int) -> Draw:
    return lambda p, rng: rng.multinomial(records, p, RELEASES)


@pytest.mark.parametrize("records", [300, 5000, 40_295])
@pytest.mark.parametrize("moved", [0, 1])
def test_few_cells_called_moved_have_not(
    records: int, moved: int, rng: np.random.Generator
) -> None:
    """Within 6 standard errors of 10%: each case a false alarm of 1e-9, about."""
    views = [counted(falling(12), records, sd=records**0.5 / 4)] * 4
    sides = sides_of(views, moved, 0.4, rng, draw=records_of(records))
    false, careless, power = rates(*sides)
    assert false <= RATE
    assert careless > 2 * RATE  # without Benjamini and Hochberg's step it breaks
    if moved:
        assert power > (0.03 if records == 300 else 0.9)


@pytest.mark.parametrize(
    ("sd", "scale", "sums"), [(0.5, None, 1.0), (0.0, 0.2, 1.0), (0.0, 3.0, 1.7), (0.0, 40.0, 0.5)]
)
def test_nor_do_rare_cells_break_it(
    sd: float, scale: float | None, sums: float, rng: np.random.Generator
) -> None:
    """Cells of a hundredth to a hundred-millionth, of 5,000 records, with little noise and much."""
    views = [counted(TINY, 5000, sd=sd, scale=scale, sums=sums)] * 4
    false, careless, power = rates(*sides_of(views, 1, 0.3, rng, draw=records_of(5000)))
    assert false <= RATE
    assert careless > 2 * RATE
    assert power > 0.5


def test_nor_clients_that_differ(rng: np.random.Generator) -> None:
    """Clients with a Dirichlet distribution each; unaware of it, the rate is not kept."""

    def draw(p: Floats, rng: np.random.Generator) -> Ints:
        own = rng.dirichlet(p * (1 - ICC) / ICC, (400, 100))
        return rng.multinomial(50, own).sum(axis=1)  # type: ignore[no-any-return]

    views = [counted(falling(12), 5000, sd=20.0)] * 4
    false, careless, power = rates(*sides_of(views, 1, 0.4, rng, draw=draw, spread=ALIKE))
    assert false <= RATE
    assert careless > RATE
    assert power > 0.8
    unaware, _, _ = rates(*sides_of(views, 1, 0.4, rng, draw=draw))
    assert unaware > RATE


def test_a_release_says_where_and_which_way(rng: np.random.Generator) -> None:
    pi, records = falling(12), 40_295
    views = []
    for p in (pi, swapped(pi, 0.2), pi):
        points, plain = counted(pi, records, sd=60.0)
        held = rng.multinomial(records, p) + rng.normal(0, 60.0, 12)
        views.append(CountedView(points, replace(plain, counts=tuple(held)), 1.0))
    found = shifted_cells(views, false_discovery=0.01)
    assert [each.tolist() for each in found] == [[0] * 12, [1, -1, *[0] * 10], [0] * 12]
    assert shifted_cells([], false_discovery=0.1) == ()


@pytest.mark.parametrize("records", [300, 40_295])
@pytest.mark.parametrize(("sd", "scale"), [(20.0, None), (0.0, 4.0)])
def test_intervals_cover_the_populations_share(
    records: int, sd: float, scale: float | None, rng: np.random.Generator
) -> None:
    """Of 100 releases: at a rate of 95%, fewer than 78 cover with probability 1e-9."""
    covered = np.zeros(len(TINY))
    for _ in range(100):
        points, plain = counted(TINY, records, sd=sd, scale=scale)
        noise = plain.noise[0].draw(rng, (len(TINY) + 1,))
        held = np.append(rng.multinomial(records, TINY), 0)
        noisy = NoisyCounts.of(held + noise, [records], plain.noise)
        shares, low, high = cell_shares(CountedView(points, noisy, 1.0))
        assert np.all((low >= 0) & (high <= 1))
        assert np.all((low <= shares) & (shares <= high))
        assert shares.sum() <= 1 + 1e-9
        covered += (low <= TINY) & (high >= TINY)
    assert covered.min() >= 78
    assert covered[0] < 100  # and they are not far too wide


def test_clients_that_differ_widen_the_intervals_and_the_reference_does_not() -> None:
    view = counted(falling(12), 40_295, sd=10.0)

    def width(spread: float | Spread) -> Floats:
        _, low, high = cell_shares(CountedView(*view, spread))
        return high - low

    counted_too = Spread(clients=(40_295,), counted=1000)
    assert width(counted_too) == pytest.approx(width(1.0))
    assert np.all(width(ALIKE) > 1.5 * width(1.0))


def test_intervals_without_noise_are_those_of_clopper_and_pearson() -> None:
    records, held = 1000, np.array([700, 250, 45, 5])
    view = NoisyCounts.of(np.append(held, 0), [records], [CountNoise(sd=0.0)])
    shares, low, high = cell_shares(CountedView(all_points([0.6, 0.3, 0.07, 0.03]), view, 1.0))
    assert shares == pytest.approx(held / records)
    assert low == pytest.approx(stats.beta.ppf(0.025, held, records - held + 1), rel=0.06)
    assert high == pytest.approx(stats.beta.ppf(0.975, held + 1, records - held), rel=0.06)


def test_hundred_views_take_seconds() -> None:
    views = [CountedView(*counted(falling(12), 40_295, sd=60.0), ALIKE)] * 100
    started = time.process_time()
    shifted_cells(views, false_discovery=0.1)
    for view in views:
        cell_shares(view)
    assert time.process_time() - started < 15  # usually 3


def test_what_cannot_be_told_is_refused() -> None:
    view = counted(falling(3), 100, sd=1.0)
    with pytest.raises(InvalidInputError, match="false_discovery"):
        shifted_cells([CountedView(*view, 1.0)], false_discovery=0.0)
    points = distinct_points(falling(4), 2, batches=2, rng=np.random.default_rng(0))
    split = NoisyCounts.of(np.zeros(6), [50, 50], [CountNoise(sd=1.0)] * 2, points)
    with pytest.raises(InvalidInputError, match="one batch"):
        cell_shares(CountedView(points, split, 1.0))
