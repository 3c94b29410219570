"""Values that the reference never saw: the verdict's statistic, and the sizes' intervals."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import CountedView, CountNoise, NoisyCounts, judge_columns
from fedprikl.estimation import noisy_counts as module
from fedprikl.estimation.estimate import NoisyViews, answers_from_counts
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.reference import OutOfDomain, Reference, View, all_points
from tests.estimation.column_releases import falling, score_of
from tests.estimation.test_verdict import alarms_too_often
from tests.long import long

pytestmark = pytest.mark.slow

RATE, POPULATIONS = 0.05, 300
NOTHING_MISSED = OutOfDomain(shape=1.0, scale=0.0, effect=1.0)


def released(held: Ints, noise_sd: float, rng: np.random.Generator) -> NoisyViews:
    """Noisy counts of all cells and of "other"."""
    noisy = held + rng.normal(0, noise_sd, len(held))
    counts = NoisyCounts.of(noisy, [held.sum()], [CountNoise(sd=noise_sd)])
    return NoisyViews(counts=(counts,), mechanism="")


def threshold(law: OutOfDomain, records: int, noise_sd: float) -> float:
    """Of the statistic, where it is the only one of its column; the cells make no difference."""
    half = np.array([records // 2, records - records // 2, 0])
    views = released(half, noise_sd, np.random.default_rng(5))
    points = all_points(_view(half).probabilities)
    case = NoDrift.of(points, np.array([records]), 1.0), views.statistics(0, points, law)[-1:]
    (found,) = judge_columns([case], false_alarm=RATE)
    assert [statistic.name for statistic in found.statistics] == ["out_of_domain"]
    return found.statistics[0].threshold


class Records:
    """Unrelated records of a long tail: there is always something that was missed."""

    clients, records, noise_sd = 5000, 5000, 3.0

    def __init__(self, tail: float) -> None:
        self.pi: Floats = np.arange(1.0, 300.0) ** -tail
        self.pi = self.pi / self.pi.sum()

    def reference(self, rng: np.random.Generator) -> tuple[View, Ints]:
        mass = rng.multinomial(4000, self.pi)
        seen = np.flatnonzero(mass)
        return _view(np.append(mass[seen], 0)), seen

    def population(self, rng: np.random.Generator) -> Ints:
        return rng.multinomial(self.records, self.pi)


class Clients(Records):
    """Clients with a distribution each, in references with ids."""

    clients, noise_sd = 50, 5.0

    def _held(self, clients: int, rng: np.random.Generator) -> Ints:
        own = rng.dirichlet(self.pi * 19, clients)  # an intra-client correlation of 0.05
        return rng.multinomial(self.records // self.clients, own)

    def reference(self, rng: np.random.Generator) -> tuple[View, Ints]:
        held = self._held(60, rng)
        seen = np.flatnonzero(held.sum(axis=0))
        return Reference.from_counts(held[:, seen]).whole, seen

    def population(self, rng: np.random.Generator) -> Ints:
        return np.asarray(self._held(self.clients, rng).sum(axis=0))


def _view(mass: Ints) -> View:
    return Reference.from_counts(mass[:-1], other=mass[-1]).whole


@pytest.mark.parametrize("world", [Records(1.0), Records(1.6), Clients(1.0), Clients(1.6)])
def test_the_rate_is_kept_around_references_that_missed_something(
    world: Records, rng: np.random.Generator
) -> None:
    alarms = np.zeros(2, dtype=int)
    for _ in range(POPULATIONS // 10):
        view, seen = world.reference(rng)
        law = view.out_of_domain(clients=world.clients, records=world.records)
        marks = [threshold(each, world.records, world.noise_sd) for each in (law, NOTHING_MISSED)]
        for _ in range(10):
            outside = world.records - world.population(rng)[seen].sum()
            share = (outside + rng.normal(0, world.noise_sd)) / world.records
            alarms += share > np.array(marks)
    assert not alarms_too_often(int(alarms[0]), POPULATIONS, RATE)
    assert alarms_too_often(int(alarms[1]), POPULATIONS, RATE)  # the check has teeth


@pytest.mark.parametrize("records", [1_000, 40_000])
def test_one_rare_category_that_was_missed_is_no_alarm(
    records: int, rng: np.random.Generator
) -> None:
    """A share of 1 / N_reference: missed by every third reference, and by those alone new."""
    view, alarms = _view(np.array([3000, 2000, 0])), 0
    law = view.out_of_domain(clients=records, records=records)
    mark = threshold(law, records, 3.0)
    for _ in range(2000):
        if rng.poisson(1.0) == 0:
            share = (rng.poisson(records / 5000) + rng.normal(0, 3.0)) / records
            alarms += share > mark
    assert not alarms_too_often(alarms, 2000, RATE)


@pytest.mark.parametrize("control", ["family", "discovery"])
def test_a_new_category_is_found_where_clients_differ(
    control: Any, rng: np.random.Generator
) -> None:
    """2% of 5,000 records; the variation of the counts does not show it."""
    counts = rng.multinomial(125, rng.dirichlet(falling(8) * 30, 160))
    view = Reference.from_counts(counts).whole
    law = view.out_of_domain(clients=40, records=5000)
    points, exceeding = view.points(), 0
    for _ in range(20):
        kept = rng.multinomial(122, rng.dirichlet(falling(8) * 30, 40)).sum(axis=0)
        held = np.append(kept, 5000 - kept.sum())
        views = released(held, 10.0, rng)
        model = NoDrift.of(points, np.array([5000]), view.spread(clients=[40]))
        case = model, views.statistics(0, points, law)
        (found,) = judge_columns([case], false_alarm=0.005, control=control)
        told = {statistic.name: statistic.exceeds for statistic in found.statistics}
        assert set(told) == {"counts", "largest_cell", "out_of_domain"}
        exceeding += told["out_of_domain"]
        assert not told["counts"]
    assert exceeding == 20


SIZES = (score_of("kl"), score_of("tv"))
RELEASES = 60


def covered(share: float, rng: np.random.Generator) -> Ints:
    """How often the intervals of KL and TV hold those of the very records; noise of 20 records."""
    pi, hits = falling(12), np.zeros(2, dtype=int)
    view = _view(np.append(np.rint(1e6 * pi).astype(int), 0))
    for _ in range(RELEASES):
        held = rng.multinomial(5000, np.append((1 - share) * pi, share))
        (noisy,) = released(held, 20.0, rng).counts
        counted = CountedView(view.points(), noisy, 1.0)
        sizes = answers_from_counts(counted, SIZES, mechanism="")
        for i, (size, score) in enumerate(zip(sizes, SIZES, strict=True)):
            assert size.interval is not None
            hits[i] += size.interval[0] <= truth(score, pi, held) <= size.interval[1]
    return hits


def truth(score: Score, pi: Floats, held: Ints) -> float:
    return float(score.plain(held[:-1], pi, np.array(5000)) @ pi)


@pytest.mark.parametrize("share", [0.0, long(0.005), 0.015, long(0.05)])
def test_intervals_cover_whatever_share_is_unseen(share: float, rng: np.random.Generator) -> None:
    """At 95%, fewer than 48 of 60 with probability 1e-5."""
    least = stats.binom.ppf(1e-5, RELEASES, 0.95)
    assert np.all(covered(share, rng) >= least)


def test_behind_a_threshold_of_15_noise_scales_kl_is_not_covered(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(module, "BELIEVED", (15.0, 15.001))
    assert covered(0.015, rng)[0] < stats.binom.ppf(1e-5, RELEASES, 0.95)
