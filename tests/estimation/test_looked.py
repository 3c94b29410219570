"""A look that chooses the noise: its loss over all small data sets, its law, intervals, verdict."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError, Reference
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew, skewed_divergence
from fedprikl.estimation import BatchCounts, score_sensitivity, weighted_score
from fedprikl.estimation.adaptive import adaptive_law, adaptive_ranges
from fedprikl.estimation.drift_model import drifted_ratios
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import AskedNumber
from fedprikl.estimation.simulated_releases import (
    LookedNoise,
    Populations,
    ReleaseOption,
    simulated_errors,
)
from fedprikl.estimation.trusted_aggregator import looked_estimate
from fedprikl.privacy import (
    InsecureSeededNoise,
    LaplaceMechanism,
    LookedMechanism,
    Ranges,
    total_epsilon,
)
from fedprikl.privacy.adaptive import ring_weights
from fedprikl.privacy.charges import PureLoss, charge_from_dict, charge_to_dict
from fedprikl.protocol import Look, Plan, trust_of
from fedprikl.protocol.answering import noise_sums
from fedprikl.protocol.sums import OpenedSum
from fedprikl.reference import all_points
from tests.adaptive_losses import log, outcomes, ratios, survival
from tests.brute_force import Histogram, histograms, neighbours
from tests.false_alarm import FALSE_ALARM
from tests.long import long
from tests.plans import make_plan

pytestmark = pytest.mark.slow

SMALL_PI = [0.3, 0.7]
SCORES = [Score(Skew(0.01)), Score(Skew(0.05), maximum_step=0.3)]
LAW = LookedMechanism(epsilon=3.0, share=0.25, switch=0.4)


@cache
def ranges_of(histogram: Histogram, score: Score, epsilon: float) -> Ranges:
    return adaptive_ranges(exact(histogram), score, epsilon=epsilon)


def exact(histogram: Histogram) -> BatchCounts:
    """The last number counts the records outside all cells."""
    return BatchCounts(all_points(SMALL_PI), np.array(histogram[:-1]), np.array([sum(histogram)]))


def largest_loss(left: Histogram, right: Histogram, score: Score, law: LookedMechanism) -> float:
    """ln P(look, value | left) / P(look, value | right), the largest of all outcomes; exact."""
    looks = [ranges_of(each, score, law.look.epsilon) for each in (left, right)]
    place = math.floor(law.switch / looks[0].grid)
    found = outcomes(looks[0], looks[1], ring_weights(law.look.epsilon), {place})
    sides = {
        side: [r for t, r in found if (t * looks[0].grid > law.switch) is side]
        for side in (False, True)
    }
    assert all(sides.values())  # no data set excludes either noise
    values = [ranges_of(each, score, law.small.epsilon) for each in (left, right)]
    small = log(max(ratios(values[0], values[1], ring_weights(law.small.epsilon))))
    one, other = exact(left), exact(right)
    delta = score_sensitivity(one.points, one.records, score, 1)
    noise = law.large.for_sensitivity(delta)
    assert isinstance(noise, LaplaceMechanism)
    large = abs(weighted_score(one, score) - weighted_score(other, score)) / noise.scale
    return max(log(max(sides[False])) + small, log(max(sides[True])) + large)


@pytest.mark.parametrize("score", SCORES)
def test_the_loss_of_every_pair_of_small_data_sets(score: Score) -> None:
    """Look and value together, whichever noise follows: at most epsilon, and not far below."""
    losses = [
        largest_loss(left, right, score, LAW)
        for left in histograms(3, 7)
        for right in neighbours(left)
    ]
    assert 0.8 * LAW.epsilon < max(losses) <= LAW.epsilon


def test_a_look_that_is_not_charged_loses_more() -> None:
    """The test above has teeth: the value alone may not have the whole epsilon."""
    uncharged = replace(LAW, epsilon=LAW.epsilon / (1 - LAW.share))
    losses = [
        largest_loss(left, right, SCORES[0], uncharged)
        for left in histograms(3, 7)
        for right in neighbours(left)
    ]
    assert max(losses) > LAW.epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1 / 3, 1.0, 7.7])
@pytest.mark.parametrize("share", [0.05, 0.08, 1 / 3])
def test_the_parts_never_exceed_the_charge(epsilon: float, share: float) -> None:
    law = LookedMechanism(epsilon=epsilon, share=share, switch=0.2)
    assert law.small.epsilon == law.large.epsilon
    assert Fraction(law.look.epsilon) + Fraction(law.small.epsilon) <= Fraction(epsilon)
    assert law.large.charge.epsilon(1e-6) <= law.large.epsilon
    assert law.loss == PureLoss(epsilon)
    assert total_epsilon([law], delta=1e-6) == epsilon
    # What is known of the parts is no more than what is charged: their losses compose below it.
    assert total_epsilon([law.look, law.large.charge], delta=1e-6) <= epsilon * (1 + 1e-9)
    assert charge_from_dict(charge_to_dict(law)) == law


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.0}, {"epsilon": 0.0}])
def test_a_charge_that_says_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        charge_to_dict(replace(LAW, **wrong))


# A world of 40 cells, whose drift of 0.4 lies where the look is on either side of the switch.

PI: Floats = np.random.default_rng(31).dirichlet(np.full(40, 0.7))
POINTS, RECORDS = all_points(PI), np.array([20_000])
STEP = Score(maximum_step=0.65 * score_sensitivity(POINTS, RECORDS, Score(), 1))
WORLD_LAW = LookedMechanism(epsilon=0.5, share=0.08, switch=0.4)


def release_option(law: LookedMechanism = WORLD_LAW) -> LookedNoise:
    return LookedNoise.of(law, score_sensitivity(POINTS, RECORDS, STEP, 1), 1)


def drift(kind: str, size: float) -> Floats:
    found = drifted_ratios(PI, kind, size, Score(), nearest=True)
    assert found is not None
    return found


def population(kind: str, size: float) -> Ints:
    p = PI * drift(kind, size)
    return np.random.default_rng(5).multinomial(RECORDS[0], p / p.sum())


def error(option: ReleaseOption, kind: str, size: float) -> float:
    ratios = drift(kind, size)
    return simulated_errors(POINTS, RECORDS, ratios, STEP, option, effort=(2, 200)).mean_absolute


def test_it_is_nearly_as_good_as_the_better_noise() -> None:
    """Without drift as adaptive noise, at a large one as Laplace noise; each alone loses there."""
    looked = release_option()
    for size in (0.0, 0.05):
        found = error(looked, "smooth", size)
        assert found <= 1.05 * error(looked.small, "smooth", size)
        assert found < 0.5 * error(looked.large, "smooth", size)
    for kind in ("gone", "shuffled"):
        found = error(looked, kind, 1.5)
        assert found <= 1.05 * error(looked.large, kind, 1.5)
        assert found < 0.8 * error(looked.small, kind, 1.5)


@cache
def released() -> Floats:
    """Looks and values of one population, by the code that releases."""
    reference = Reference.from_probabilities(PI)
    look = Look(share=WORLD_LAW.share, switch=WORLD_LAW.switch)
    plan: Plan = make_plan(
        reference=reference.fingerprint,
        points=len(PI),
        epsilon=WORLD_LAW.epsilon,
        release="looked",
        look=look,
        maximum_step=STEP.maximum_step,
    )
    trust, source = trust_of(plan), InsecureSeededNoise(8)
    opened = OpenedSum((population("shuffled", 0.4),), int(RECORDS[0]))
    drawn = [noise_sums(trust, [POINTS], [opened], source=source).values[0] for _ in range(300)]
    return np.array(drawn)


def test_releases_have_the_law_that_is_forecast() -> None:
    """Both noises follow; Kolmogorov-Smirnov against many quantiles, wrong once in 1e9."""
    looks, values = released().T
    assert 30 < np.count_nonzero(looks > WORLD_LAW.switch) < 270
    held = population("shuffled", 0.4)[None]
    drawn = Populations(POINTS, RECORDS, held, held)
    option, rng = release_option(), np.random.default_rng(0)
    forecast = option.values(drawn, STEP, rng, 20_000)[0]
    assert stats.ks_2samp(values, forecast).pvalue > FALSE_ALARM
    for side, part in (
        (looks > WORLD_LAW.switch, option.large),
        (looks <= WORLD_LAW.switch, option.small),
    ):
        alone = part.values(drawn, STEP, rng, 20_000)[0]
        assert stats.ks_2samp(values[side], alone).pvalue > FALSE_ALARM
    assert stats.ks_2samp(values, forecast + 0.03).pvalue <= FALSE_ALARM  # that would be seen


@pytest.mark.parametrize("kind", ["smooth", "shuffled", "gone"])
@pytest.mark.parametrize("size", [0.1, long(0.4), long(1.5)])
def test_intervals_cover_after_either_look(kind: str, size: float) -> None:
    """Of all quantiles of the noise that follows: at least 95% after a small and a large look."""
    held, option = population(kind, size), release_option()
    drawn = Populations(POINTS, RECORDS, held[None], held[None])
    truth = skewed_divergence(PI, held / RECORDS[0], skew=0.01)
    asked = AskedNumber(POINTS, RECORDS, STEP)
    for look, part in ((-1.0, option.small), (9.0, option.large)):
        values = part.values(drawn, STEP, np.random.default_rng(0), 100)[0]
        limits = [
            looked_estimate(asked, look, value, WORLD_LAW, insecure=True).limits()
            for value in values.tolist()
        ]
        for printed in (True, False):
            ends = [each.printed if printed else each.guaranteed for each in limits if each]
            covered = [low <= truth <= high for low, high in filter(None, ends)]
            assert len(covered) == len(values)
            assert np.mean(covered) >= 0.95


def test_the_verdict_keeps_its_rate() -> None:
    """Without drift, where every fifth look is above the switch: all noise integrated out."""
    law = LookedMechanism(epsilon=0.5, share=0.08, switch=0.02)
    asked, delta = AskedNumber(POINTS, RECORDS, STEP), score_sensitivity(POINTS, RECORDS, STEP, 1)
    thresholds = [
        looked_estimate(asked, look, 0.0, law, insecure=True).verdict(0.05).statistics[0].threshold
        for look in (-1.0, 9.0)
    ]
    noise = law.large.for_sensitivity(delta)
    counts = NoDrift.of(POINTS, RECORDS, 1.0).counts(300, np.random.default_rng(77))
    alarms, above = [], []
    for held in counts:
        current = BatchCounts(POINTS, held, RECORDS)
        look, of_look = adaptive_law(current, STEP, epsilon=law.look.epsilon)
        value, of_value = adaptive_law(current, STEP, epsilon=law.small.epsilon)
        after = float(survival(of_look, np.array(law.switch - look)))
        small = float(survival(of_value, np.array(thresholds[0] - value)))
        large = float(noise.survival(np.array(thresholds[1] - weighted_score(current, STEP))))
        alarms.append((1 - after) * small + after * large)
        above.append(after)
    assert 0.1 < np.mean(above) < 0.9
    assert 0.03 < np.mean(alarms) <= 0.055  # the threshold itself is simulated
