"""Verdicts: the law without drift is exact, alarms keep their rate, promised power is reached."""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    CountsDesign,
    Estimate,
    JudgedStatistic,
    Verdict,
    judge_together,
    statistic,
    trusted_aggregator,
)
from fedprikl.estimation.no_drift import NoDrift, group_sizes, multinomial
from fedprikl.estimation.statistic import (
    Grouping,
    by_rarity,
    overdispersion,
    variation,
    variation_statistic,
)
from fedprikl.estimation.verdict import alarm_threshold
from fedprikl.paper import baseline, no_privacy
from fedprikl.privacy import GaussianMechanism, LaplaceMechanism, Mechanism
from fedprikl.reference import Spread, all_points, distinct_points
from tests.false_alarm import FALSE_ALARM, looks_centred

pytestmark = pytest.mark.slow

TINY = NoDrift(
    pi=np.array([0.5, 0.2]),
    records=np.array([5]),
    batch=np.array([0, 0]),
    term=np.array([0, 1]),
    spread=1.0,
    cells=np.array([0, 1]),
)


def zipf(cells: int) -> Floats:
    mass = 1 / np.arange(1.0, cells + 1)
    normalised: Floats = mass / mass.sum()
    return normalised


def one_batch(pi: Floats, records: int, design_effect: float = 1.0) -> NoDrift:
    terms = np.arange(len(pi))
    return NoDrift(
        pi=pi,
        records=np.array([records]),
        batch=np.zeros_like(terms),
        term=terms,
        spread=design_effect,
        cells=terms,
    )


def alarms_too_often(alarms: int, repetitions: int, rate: float) -> bool:
    """Whether a rate of at most `rate` is refuted, with a false-alarm rate of `FALSE_ALARM`."""
    return bool(stats.binom.sf(alarms - 1, repetitions, rate) < FALSE_ALARM)


# The law of the counts


def outcomes(records: int, pi: list[float]) -> list[tuple[tuple[int, ...], float]]:
    """Every table of asked cells with its multinomial probability."""
    full = [*pi, 1 - sum(pi)]
    law = stats.multinomial(records, full)
    return [
        (held, float(law.pmf([*held, records - sum(held)])))
        for held in itertools.product(range(records + 1), repeat=len(pi))
        if sum(held) <= records
    ]


def test_every_outcome_of_a_tiny_domain_has_its_probability(rng: np.random.Generator) -> None:
    drawn = TINY.counts(40_000, rng)
    table = outcomes(5, [0.5, 0.2])
    assert sum(p for _, p in table) == pytest.approx(1)
    seen = [np.count_nonzero(np.all(drawn == held, axis=1)) for held, _ in table]
    assert sum(seen) == 40_000
    fits = stats.chisquare(seen, [40_000 * p for _, p in table])
    assert fits.pvalue > FALSE_ALARM
    wrong = stats.chisquare(seen, [40_000 * p for _, p in outcomes(5, [0.5, 0.21])])
    assert wrong.pvalue < FALSE_ALARM


def test_values_have_the_exact_mean(rng: np.random.Generator) -> None:
    score, weights = Score(), np.array([0.7, 0.3])
    scores = partial(score, pi=TINY.pi, records=TINY.records_per_term)
    exact = sum(
        p * float(weights @ score(held, TINY.pi, np.array([5, 5])))
        for held, p in outcomes(5, [0.5, 0.2])
    )
    values = scores(TINY.counts(40_000, rng)) @ weights
    assert looks_centred(values, exact)
    assert not looks_centred(values, exact + 0.05)


@pytest.mark.parametrize("design_effect", [1.0, 2.6])
def test_pooled_batches_have_the_exact_covariance(
    design_effect: float, rng: np.random.Generator
) -> None:
    """Cov(h_j, h_k) = d Pi_j (1{j=k} - Pi_k) times the records asked both."""
    pi, records = np.array([0.4, 0.1, 0.3]), np.array([90_000, 60_000])
    model = NoDrift(
        pi=pi,
        records=records,
        batch=np.array([0, 0, 1, 1]),
        term=np.array([0, 1, 1, 2]),
        spread=design_effect,
        cells=np.arange(3),
    )
    assert model.records_per_term.tolist() == [90_000, 150_000, 60_000]
    asked = np.array([[1, 0], [1, 1], [0, 1]])
    both = (asked * records) @ asked.T
    expected = design_effect * both * (np.diag(pi) - np.outer(pi, pi))
    drawn = model.counts(60_000, rng)
    moved = drawn - model.records_per_term * pi
    for j, k in itertools.product(range(3), repeat=2):
        assert looks_centred(moved[:, j] * moved[:, k], expected[j, k])
    assert not looks_centred(moved[:, 0] * moved[:, 1], 0.0)  # independent cells would be wrong


@pytest.mark.parametrize("records", [3, 700, 40_000])
def test_the_fast_multinomial_is_one(records: int, rng: np.random.Generator) -> None:
    pi = zipf(30)
    drawn = multinomial(records, pi, 20_000, rng)
    assert np.all(drawn.sum(axis=1) == records)
    assert np.all(drawn >= 0)
    for cell in (0, 7, 29):
        law = stats.binom(records, pi[cell])
        # a discrete law: spread each whole number evenly over an interval of 1
        low = law.cdf(drawn[:, cell] - 1)
        spread = low + rng.random(20_000) * (law.cdf(drawn[:, cell]) - low)
        assert stats.kstest(spread, "uniform").pvalue > FALSE_ALARM
        wrong = stats.binom(records, pi[cell] * (0.9 if records > 3 else 0.5))
        low = wrong.cdf(drawn[:, cell] - 1)
        spread = low + rng.random(20_000) * (wrong.cdf(drawn[:, cell]) - low)
        assert cell or stats.kstest(spread, "uniform").pvalue < FALSE_ALARM


@pytest.mark.parametrize("effect", [1.0, 1.4, 3.0, 7.3, 500.0])
@pytest.mark.parametrize("records", [1, 2, 99, 10_000])
def test_groups_hold_all_records(effect: float, records: int) -> None:
    groups = group_sizes(records, effect)
    assert sum(size * number for size, number in groups) == records
    if records > 20 * effect:
        found = sum(size**2 * number for size, number in groups) / records
        assert found == pytest.approx(effect, rel=0.01)


def test_related_counts_stay_possible(rng: np.random.Generator) -> None:
    drawn = one_batch(zipf(4), 50, design_effect=17.5).counts(2000, rng)
    assert drawn.min() >= 0
    assert np.all(drawn.sum(axis=1) == 50)


# The threshold

VALUES = np.random.default_rng(3).normal(0.1, 0.02, 4000)
NOISES: dict[str, Mechanism | None] = {
    "laplace": LaplaceMechanism(scale=0.03, sensitivity=0.03),
    "gaussian": GaussianMechanism(sigma=0.03, sensitivity=0.03),
    "none": None,
}


@pytest.mark.parametrize("name", NOISES)
def test_the_threshold_keeps_the_rate(name: str, rng: np.random.Generator) -> None:
    noise = NOISES[name]
    threshold = alarm_threshold(VALUES, noise, false_alarm=0.01)
    released = rng.normal(0.1, 0.02, 200_000)
    if noise is not None:
        released = noise.add_to(released, InsecureSeededNoise(1))
    alarms = int(np.count_nonzero(released > threshold))
    assert not alarms_too_often(alarms, 200_000, 0.01)
    assert alarms > 0.004 * 200_000  # and the allowance is small
    lower = int(np.count_nonzero(released > threshold - 0.02))
    assert alarms_too_often(lower, 200_000, 0.01)


@pytest.mark.parametrize("rate", [0.01, 0.02, 0.3])
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_the_threshold_solves_the_stated_equation(name: str, rate: float) -> None:
    """The upper 99% limit of the rate, mean + z sd / sqrt(n) + z^2 / (2n), from scipy's laws."""
    threshold = alarm_threshold(VALUES, NOISES[name], false_alarm=rate)
    law = stats.laplace(scale=0.03) if name == "laplace" else stats.norm(scale=0.03)
    above, n, z = law.sf(threshold - VALUES), len(VALUES), stats.norm.ppf(0.99)
    limit = above.mean() + z * above.std() / math.sqrt(n) + z**2 / (2 * n)
    assert limit == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("name", NOISES)
def test_rarer_alarms_need_a_higher_threshold(name: str) -> None:
    rates = [0.5, 0.2, 0.05, 0.01]
    found = [alarm_threshold(VALUES, NOISES[name], false_alarm=rate) for rate in rates]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_thresholds_of_pure_noise_are_its_quantiles() -> None:
    same = np.full(10**6, 0.1)
    laplace = LaplaceMechanism(scale=0.03, sensitivity=0.03)
    found = alarm_threshold(same, laplace, false_alarm=0.01)
    assert found == pytest.approx(0.1 + 0.03 * math.log(50), rel=1e-3)


@pytest.mark.parametrize("rate", [0.0, 1e-5, 0.6, 1.0, math.nan])
def test_rates_that_cannot_be_kept_are_refused(rate: float) -> None:
    with pytest.raises(InvalidInputError):
        alarm_threshold(VALUES, None, false_alarm=rate)


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="needs at least 40000"):
        alarm_threshold(VALUES, None, false_alarm=0.001)


# Verdicts on estimates


def estimates(
    pi: Floats, records: int, seed: int, repetitions: int, *, private: bool, batches: int = 1
) -> tuple[list[Estimate], Estimate]:
    """Estimates of populations without drift, all asked the same points, and one of them."""
    rng, source = np.random.default_rng(seed), InsecureSeededNoise(seed)
    points = distinct_points(pi, len(pi) // (2 * batches), batches=batches, rng=rng)
    found = []
    for _ in range(repetitions):
        held = rng.multinomial(records // batches, pi, size=batches)
        counts = BatchCounts(points, held[points.batch, points.cells], held.sum(axis=1))
        found.append(
            trusted_aggregator(counts, epsilon=1.0, source=source)
            if private
            else no_privacy(counts)
        )
    return found, found[0]


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize(("cells", "records"), [(62, 500), (400, 40_000)])
def test_false_alarms_are_as_rare_as_stated(
    cells: int, records: int, batches: int, private: bool
) -> None:
    found, first = estimates(zipf(cells), records, 7, 2000, private=private, batches=batches)
    threshold = first.verdict().statistics[0].threshold
    alarms = sum(one.value > threshold for one in found)
    assert not alarms_too_often(alarms, len(found), 0.01)
    often = sum(one.value > 0.3 * threshold for one in found)
    assert alarms_too_often(often, len(found), 0.01)


def related_population(rng: np.random.Generator, pi: Floats, icc: float) -> Ints:
    """Counts of 300 clients with 60 correlated records each."""
    own = rng.dirichlet(pi * (1 - icc) / icc, 300)
    return np.asarray(rng.multinomial(60, own).sum(axis=0))


def test_ignoring_the_design_effect_cries_wolf() -> None:
    pi, rng, icc = zipf(62), np.random.default_rng(4), 0.05
    points, found = all_points(pi), []
    for _ in range(1000):
        held = related_population(rng, pi, icc)
        found.append(no_privacy(BatchCounts(points, held, np.array([18_000]))))
    aware = found[0].verdict(spread=1 + 59 * icc)
    blind = found[0].verdict()
    assert not alarms_too_often(
        sum(e.value > aware.statistics[0].threshold for e in found), 1000, 0.01
    )
    assert sum(e.value > blind.statistics[0].threshold for e in found) > 900


def test_the_verdict_is_the_same_every_time(rng: np.random.Generator) -> None:
    pi = zipf(80)
    counts = BatchCounts(all_points(pi), rng.multinomial(9000, pi), np.array([9000]))
    one = trusted_aggregator(counts, epsilon=1.0)
    assert one.verdict() == one.verdict()
    other = trusted_aggregator(counts, epsilon=1.0)
    assert other.verdict().statistics[0].threshold == one.verdict().statistics[0].threshold


def test_an_estimate_knows_its_own_rate_and_design_effect(rng: np.random.Generator) -> None:
    pi = zipf(50)
    counts = BatchCounts(all_points(pi), rng.multinomial(9000, pi), np.array([9000]))
    one = no_privacy(counts)
    assert not one.drifted
    assert one.verdict() == one.verdict(0.01, spread=1.0)
    other = replace(one, false_alarm=0.5, spread=3.0)
    assert other.verdict() == one.verdict(0.5, spread=3.0)
    tilted = pi[::-1]
    far = no_privacy(BatchCounts(counts.points, rng.multinomial(9000, tilted), np.array([9000])))
    assert far.drifted
    with pytest.raises(InvalidInputError, match="design effect is 1"):
        one.verdict(spread=0.5)


def test_where_the_law_is_not_known_there_is_no_verdict(rng: np.random.Generator) -> None:
    pi = zipf(50)
    counts = BatchCounts(all_points(pi), rng.multinomial(9000, pi), np.array([9000]))
    estimate = baseline(counts, epsilon=1.0)
    with pytest.raises(InvalidInputError, match="no verdict on this estimate"):
        _ = estimate.drifted


def test_verdicts_speak_plainly() -> None:
    seen = JudgedStatistic(name="kl", value=0.012, threshold=0.034, unit="nats")
    calm = Verdict(statistics=(seen,), false_alarm=0.01, design_effect=1.0)
    assert str(calm) == (
        "No drift found: closest is kl (0.35 times its threshold); populations without drift "
        "exceed the threshold at most 1% of the time"
    )
    loud = replace(seen, name="counts", value=0.5, unit="")
    alarmed = replace(calm, statistics=(loud,), design_effect=2.5)
    assert str(alarmed).startswith(
        "Drift found: the variation of the noisy counts (15 times its threshold); "
    )
    assert "drift (design effect 2.5) exceed" in str(alarmed)
    assert alarmed.to_dict()["drifted"] is True


def test_a_verdict_is_quick(rng: np.random.Generator) -> None:
    """500 of 65,536 cells, a million records: a blow-up only, of ten times the second promised."""
    pi = zipf(2**16)
    points = distinct_points(pi, 500, rng=rng)
    counts = BatchCounts(points, rng.multinomial(10**6, pi)[points.cells], np.array([10**6]))
    estimate = trusted_aggregator(counts, epsilon=1.0)
    start = time.process_time()
    estimate.verdict()
    assert time.process_time() - start < 10


# Noisy counts


def judge_counts(model: NoDrift, noise: CountNoise) -> Verdict:
    """The verdict on counts without drift, of all cells."""
    design = CountsDesign(all_points(model.pi), model.records, (noise,))
    statistic = variation_statistic(design, model.records_per_term * model.pi)
    return judge_together([statistic], model, false_alarm=0.01)


def noisy_population(rng: np.random.Generator, p: Floats, records: int, sd: float) -> Floats:
    return np.asarray(rng.multinomial(records, p) + np.rint(rng.normal(0, sd, len(p))))


def test_noisy_counts_alarm_as_rarely_as_stated_and_see_drift() -> None:
    pi, rng, records = zipf(100), np.random.default_rng(8), 20_000
    sd = np.full(100, 6.3)
    model = one_batch(pi, records)

    def share_above(p: Floats) -> int:
        found = [noisy_population(rng, p, records, 6.3) for _ in range(1000)]
        values = variation(np.array(found), model, sd)
        return int(np.count_nonzero(values > threshold))

    (seen,) = judge_counts(model, CountNoise(sd=6.3)).statistics
    threshold = seen.threshold
    assert not alarms_too_often(share_above(pi), 1000, 0.01)
    drifted = pi * np.exp(0.15 * rng.normal(size=100))
    assert share_above(drifted / drifted.sum()) > 950


def test_the_statistic_of_noisy_counts_by_hand() -> None:
    found = overdispersion(
        np.array([[7.0, 2.0], [5.0, 5.0]]), np.array([0.5, 0.2]), np.array([10, 10]), np.ones(2)
    )
    # means 5 and 2, variances 1 + 2.5 and 1 + 1.6
    by_hand = [
        5 / 3.5**2 * (4 - 3.5) - 2 / 2.6**2 * 2.6,
        -5 / 3.5**2 * 3.5 + 2 / 2.6**2 * (9 - 2.6),
    ]
    np.testing.assert_allclose(found, by_hand)


def test_groups_of_cells_are_counted_together_by_hand() -> None:
    """Four cells make two groups of neighbours, and two of equally rare cells."""
    pi, sd = np.array([0.4, 0.1, 0.3, 0.2]), np.full(4, 50.0)
    model, noisy = one_batch(pi, 1000), np.array([460.0, 60.0, 330.0, 150.0])
    alone = overdispersion(noisy, pi, model.records_per_term, sd)

    def group(count: float, share: float) -> float:
        mean, var = 1000 * share, 2 * 50.0**2 + 1000 * share * (1 - share)
        return mean / var**2 * ((count - mean) ** 2 - var)

    neighbours = group(460 + 60, 0.5) + group(330 + 150, 0.5)
    equally_rare = group(60 + 150, 0.3) + group(330 + 460, 0.7)
    # How groups vary without noise is simulated: it is a twentieth of the noise here.
    expected = alone + neighbours + equally_rare
    assert variation(noisy, model, sd) == pytest.approx(float(expected), rel=0.05)


def test_groups_find_a_common_drift_that_single_cells_hide() -> None:
    """The rarer half shrinks by a seventh, below the noise on each of its cells."""
    pi, rng, records = zipf(60), np.random.default_rng(11), 50_000
    sd, model = np.full(60, 40.0), one_batch(pi, 50_000)
    rare = np.arange(60) >= 30
    p = pi * np.where(rare, 0.86, 1.0)
    p = p / p.sum()
    none, held = (
        np.array([noisy_population(rng, law, records, 40.0) for _ in range(600)]) for law in (pi, p)
    )

    def found(statistic: Callable[[Floats], Floats]) -> float:
        return float(np.mean(statistic(held) > np.quantile(statistic(none), 0.99)))

    grouped = found(lambda noisy: variation(noisy, model, sd))
    alone = found(lambda noisy: overdispersion(noisy, pi, model.records_per_term, sd))
    assert grouped > 0.95
    assert alone < 0.8


def alarms_of_equal_cells() -> int:
    """Of 1,000 populations without drift, at a stated 1%; 100 for each of ten references."""
    rng, even, sd, alarms = np.random.default_rng(12), np.full(62, 1 / 62), np.full(62, 6.0), 0
    for _ in range(10):
        pi = rng.multinomial(20_000, even) / 20_000
        spread = Spread(clients=(50_000,), counted=20_000)
        model = NoDrift.of(all_points(pi), np.array([50_000]), spread)
        threshold = judge_counts(model, CountNoise(sd=6.0)).statistics[0].threshold
        held = [noisy_population(rng, even, 50_000, 6.0) for _ in range(100)]
        found = variation(np.array(held), model, sd, real=True)
        alarms += int(np.count_nonzero(found > threshold))
    return alarms


def test_equal_cells_are_not_called_drifted() -> None:
    """The rarest of equal cells were seen too seldom: the population has more of all of them."""
    assert not alarms_too_often(alarms_of_equal_cells(), 1000, 0.01)


def test_that_check_sees_groups_of_cells_that_were_seen_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_all(pi: Floats, cells: Ints, number: int, *, counted: int) -> Grouping:
        return by_rarity(pi, cells, number, counted=0 * counted)

    monkeypatch.setattr(statistic, "by_rarity", by_all)
    assert alarms_of_equal_cells() > 300


def test_any_noise_can_be_simulated() -> None:
    """Heavier tails than normal need a higher threshold."""
    model, normal = one_batch(zipf(20), 2000), CountNoise(sd=20.0)

    def threshold(noise: CountNoise) -> float:
        return judge_counts(model, noise).statistics[0].threshold

    assert threshold(CountNoise(sd=20.0, scale=20 / math.sqrt(2))) > threshold(normal)
    related = one_batch(zipf(20), 2000, design_effect=2.0)
    assert judge_counts(related, normal).design_effect == 2.0


def test_impossible_spreads_are_refused() -> None:
    points, records = all_points(zipf(3)), np.array([50])
    with pytest.raises(InvalidInputError, match="design effect is 1"):
        NoDrift.of(points, records, 0.9)
    with pytest.raises(InvalidInputError, match="clients of every batch"):
        NoDrift.of(points, records, Spread(clients=(3, 4)))


def test_other_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="tells nothing"):
        overdispersion(np.ones(1), np.ones(1), np.array([5]), np.zeros(1))
