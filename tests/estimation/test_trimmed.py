"""The trimmed mean of cohort scores: what it is, how far a client moves it, what a verdict says."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pytest
import scipy

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.estimation import (
    BatchCounts,
    DebiasedNoise,
    Estimate,
    TrimmedMean,
    drifted_ratios,
    estimate_trimmed_mean,
    weighted_score,
)
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.privacy import Calibrated, InsecureSeededNoise, calibrate_laplace
from fedprikl.reference import all_points

PI = np.array([0.5, 0.3, 0.2])
NAMES = ("kl", "tv", "js")


def score_named(name: str, *, correction: float = 1.0, maximum_step: float = np.inf) -> Score:
    divergence = divergence_named(name)
    skew = Skew(max(divergence.skew, 0.01))
    return Score(skew, divergence, correction=correction, maximum_step=maximum_step)


def histograms(records: int) -> Ints:
    """All counts of three cells and of records outside them, (populations, 4)."""
    every = np.array(list(product(range(records + 1), repeat=4)))
    found: Ints = every[every.sum(axis=1) == records]
    return found


@dataclass(frozen=True)
class SmallWorld:
    """Cohorts of so many records, of which one client holds `moved`."""

    sizes: tuple[int, ...]
    moved: int
    trim: float
    score: Score

    @property
    def mean(self) -> TrimmedMean:
        return TrimmedMean.of(all_points(PI), np.array(self.sizes), self.trim)

    @cached_property
    def values(self) -> Floats:
        """Of all populations: one axis for each cohort."""
        each = [histograms(size)[:, :3] for size in self.sizes]
        grids = np.meshgrid(*(np.arange(len(one)) for one in each), indexing="ij")
        counts = np.concatenate([one[at] for one, at in zip(each, grids, strict=True)], axis=-1)
        return self.mean.values(counts, self.score)

    @cached_property
    def worst(self) -> float:
        """The largest difference of two populations that differ in all records of one client."""
        found = 0.0
        for cohort, size in enumerate(self.sizes):
            held, values = histograms(size), np.moveaxis(self.values, cohort, 0)
            for here, value in zip(held, values, strict=True):
                replaced = np.abs(held - here).sum(axis=1) <= 2 * self.moved
                found = max(found, float(np.abs(values[replaced] - value).max()))
        return found

    @property
    def stated(self) -> float:
        return self.mean.sensitivity(self.score, self.moved)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("moved", [1, 2, 3])
@pytest.mark.parametrize("step", [np.inf, 0.3])
def test_the_sensitivity_is_that_of_all_neighbours(name: str, moved: int, step: float) -> None:
    """Three cohorts of three records: 8,000 populations, and all neighbours of each."""
    world = SmallWorld((3, 3, 3), moved, 0.4, score_named(name, maximum_step=step))
    assert world.mean.cut == 1
    assert world.worst == pytest.approx(world.stated, rel=1e-9)
    assert world.worst <= world.stated


@pytest.mark.parametrize("name", NAMES)
def test_cohorts_of_other_sizes_never_move_it_further(name: str) -> None:
    world = SmallWorld((4, 2, 2), 2, 0.4, score_named(name))
    assert 0.5 * world.stated < world.worst <= world.stated


def test_four_cohorts_of_which_two_are_left() -> None:
    world = SmallWorld((2, 2, 2, 2), 2, 0.25, score_named("kl"))
    assert world.mean.kept == 2
    assert world.worst == pytest.approx(world.stated, rel=1e-9)


def test_the_brute_force_would_catch_too_little_noise() -> None:
    """That of the plain mean, and that of a client with fewer records."""
    world = SmallWorld((3, 3, 3), 2, 0.4, score_named("kl"))
    assert world.worst > world.stated * world.mean.kept / world.mean.cohorts
    assert world.worst > world.mean.sensitivity(world.score, 1)


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.3, 0.49])
def test_it_is_the_trimmed_mean_of_the_scores_of_cohorts(trim: float) -> None:
    """Beside scipy's, of scores that are computed one cohort at a time."""
    rng, score = np.random.default_rng(2), score_named("kl", correction=0.0)
    counts = rng.multinomial(200, PI, size=11)
    mean = TrimmedMean.of(all_points(PI), np.full(11, 200), trim)
    alone = [weighted_score(BatchCounts(all_points(PI), h, np.array([200])), score) for h in counts]
    expected = scipy.stats.trim_mean(alone, trim)
    assert mean.value(counts.ravel(), score) == pytest.approx(expected, rel=1e-12)
    assert mean.values(counts.reshape(1, -1), score)[0] == pytest.approx(expected, rel=1e-12)


def test_cohorts_are_corrected_as_the_samples_they_are() -> None:
    """Without a correction the score of a small sample is far too high."""
    rng, points, records = np.random.default_rng(3), all_points(PI), np.full(40, 50)
    counts = rng.multinomial(50, PI, size=40).ravel()
    mean = TrimmedMean.of(points, records, 0.1)
    plain = mean.value(counts, score_named("kl", correction=0.0))
    assert mean.value(counts, score_named("kl")) < plain / 3


@pytest.mark.parametrize("broken", [1, 2, 3, 7])
def test_broken_cohorts_shift_it_no_further_than_stated(broken: int) -> None:
    """The lowest become the highest that is possible: that attains what their ranks allow."""
    rng, score = np.random.default_rng(4), score_named("kl")
    mean = TrimmedMean.of(all_points(PI), np.full(15, 60), 0.2)
    extremes = mean.extremes(score)
    for _ in range(20):
        counts = rng.multinomial(60, rng.dirichlet(20 * PI), size=15)
        honest = mean.scores(counts.ravel(), score)[None]
        value, bound = mean.value(counts.ravel(), score), mean.shifts(honest, broken, extremes)[0]
        lied = counts.copy()
        lied[rng.permutation(15)[:broken]] = rng.multinomial(60, rng.dirichlet(PI), size=broken)
        moved = abs(mean.value(lied.ravel(), score) - value)
        assert moved <= bound + 1e-12
        assert bound <= mean.largest_shift(broken, score) + 1e-12
        worst = counts.copy()
        worst[np.argsort(honest[0])[:broken]] = [0, 0, 60]  # all in the rarest cell
        assert mean.value(worst.ravel(), score) - value <= bound + 1e-12
        if broken <= mean.cut:
            raised = np.sort(honest[0])[broken:]
            expected = np.append(raised, np.full(broken, extremes[1]))[3:-3].sum()
            assert mean.value(worst.ravel(), score) == pytest.approx(expected, rel=1e-9)


def test_extremes_are_those_of_all_populations() -> None:
    for name in NAMES:
        world = SmallWorld((3, 3, 3), 3, 0.4, score_named(name))
        counts = np.tile(histograms(3)[:, :3], 3)
        scores = world.mean.scores(counts, world.score)[:, 0]
        low, high = world.mean.extremes(world.score)
        assert scores.max() == pytest.approx(high, rel=1e-9)
        assert scores.min() == pytest.approx(low, rel=1e-9, abs=1e-9)


T, RECORDS, CELLS = 12, 300, 20
WIDE = np.random.default_rng(6).dirichlet(np.full(CELLS, 3.0))
WIDE_POINTS = all_points(WIDE)  # the same ones, whose errors are simulated once


def released(counts: Ints, seed: int, *, score: Score) -> Estimate:
    return estimate_trimmed_mean(
        WIDE_POINTS,
        counts,
        np.full(T, RECORDS),
        trim=0.1,
        moved=10,
        calibrated=Calibrated(2.0, 1e-6, "laplace"),
        score=score,
        client_effect=1.0,
        source=InsecureSeededNoise(seed),
    )


@pytest.mark.parametrize("name", ["kl", "tv"])
def test_the_false_alarm_rate_of_the_verdict(name: str) -> None:
    """4,000 populations without drift: the stated 5%, and the check can fail either way."""
    rng, score = np.random.default_rng(8), score_named(name)
    first = released(rng.multinomial(RECORDS, WIDE, size=T), 1, score=score)
    (witness,) = first.verdict(0.05, spread=1.0).witnesses
    mean = TrimmedMean.of(WIDE_POINTS, np.full(T, RECORDS), 0.1)
    counts = rng.multinomial(RECORDS, WIDE, size=(4000, T)).reshape(4000, -1)
    assert first.privacy.sensitivity is not None
    noise = rng.laplace(scale=first.privacy.sensitivity / 2, size=4000)
    values = mean.values(counts, score) + noise
    share = float(np.mean(values > witness.threshold))
    assert 0.03 < share < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 4000)
    assert np.mean(values > 0.9 * witness.threshold) > 0.065


def test_the_interval_covers_the_divergence_of_all_records() -> None:
    """Of 40 populations with a smooth drift; noise without an interval around it would not."""
    rng, score = np.random.default_rng(9), score_named("kl")
    ratios = drifted_ratios(WIDE, "smooth", 0.2, score)
    assert ratios is not None
    covered = missed = 0
    for seed in range(40):
        counts = rng.multinomial(RECORDS, WIDE * ratios / (WIDE @ ratios), size=T)
        everybody = BatchCounts(WIDE_POINTS, counts.sum(axis=0), np.array([T * RECORDS]))
        truth = weighted_score(everybody, score.plain)
        found = released(counts, seed, score=score)
        assert found.interval is not None
        assert found.guaranteed is None
        covered += found.interval[0] <= truth <= found.interval[1]
        missed += abs(found.value - truth) > 0.01
    assert covered >= 35
    assert missed >= 10


@pytest.mark.parametrize("name", ["kl", "tv"])
def test_the_answer_is_debiased(name: str) -> None:
    """The mean of cohort scores is far too high; what is released is not, whatever drifted."""
    rng, score = np.random.default_rng(10), score_named(name)
    for size in (0.0, 0.15):
        ratios = drifted_ratios(WIDE, "smooth", size, score)
        assert ratios is not None
        answers, raw, truths = [], [], []
        for seed in range(30):
            counts = rng.multinomial(RECORDS, WIDE * ratios / (WIDE @ ratios), size=T)
            everybody = BatchCounts(WIDE_POINTS, counts.sum(axis=0), np.array([T * RECORDS]))
            truths.append(weighted_score(everybody, score.plain))
            found = released(counts, seed, score=score)
            answers.append(found.value)
            mean = TrimmedMean.of(WIDE_POINTS, np.full(T, RECORDS), 0.1)
            raw.append(mean.value(counts.ravel(), score))
        off = abs(np.mean(answers) - np.mean(truths))
        if name == "tv" and size == 0:
            assert np.mean(raw) - np.mean(truths) > 0.05
            assert off < 0.01
        assert off < 0.025


def test_the_mean_without_drift_is_that_of_debiased_answers() -> None:
    rng, score = np.random.default_rng(11), score_named("tv")
    first = released(rng.multinomial(RECORDS, WIDE, size=T), 1, score=score)
    assert first.typical is not None
    assert first.statistic is not None
    model = NoDrift.of(first.statistic.points, first.statistic.records, 1.0)
    assert (
        first.typical(model)
        < 0.6 * first.statistic.simulated(model, model.counts(50, rng), rng).mean()
    )


def test_centres_rise_and_are_never_further_apart_than_stated() -> None:
    """What a shift before debiasing becomes after it: for tv near no drift it grows."""
    release = DebiasedNoise.of(
        calibrate_laplace(epsilon=1.0, sensitivity=1e-4),
        np.full(T, RECORDS),
        trim=0.1,
        client_effect=1.0,
    )
    errors = release.ladder(WIDE_POINTS, score_named("tv"))
    values = np.linspace(-0.1, 1.2, 2000)
    centres = errors.centres(values)
    assert np.all(np.diff(centres) >= 0)
    shift = 0.02
    moved = errors.centres(values + shift) - centres
    assert moved.max() <= errors.most_apart(shift) + 1e-12
    assert moved.max() > 0.99 * errors.most_apart(shift)
    assert errors.most_apart(shift) > 1.5 * shift


def test_cohorts_share_the_error_of_the_reference() -> None:
    """Pi was counted from few records: cells that are too high in one cohort are so in all."""
    reference = Reference.from_counts([60, 30, 20, 10])
    points = all_points(reference.probabilities)
    mean = TrimmedMean.of(points, np.full(3, 5000), 0.1)
    spread = reference.spread(clients=[500, 500, 500])
    model = NoDrift.of(mean.points, mean.records, spread)
    counts = model.counts(400, np.random.default_rng(1)).reshape(400, 3, 4)
    alike = np.corrcoef(counts[:, 0, 0], counts[:, 1, 0])[0, 1]
    assert alike > 0.9
