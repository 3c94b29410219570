"""Rounds without a trusted party: Laplace shares inside real secure sums, with dropouts."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.privacy.charges import charge_to_dict
from fedprikl.privacy.shares import SAMPLER_DELTA, SharedGaussianMechanism, SharedLaplaceMechanism
from fedprikl.protocol import RoundResult
from fedprikl.protocol.sums import LARGEST_MARK, NoisyHistogram
from fedprikl.secure_sum import Leaves
from tests.false_alarm import FALSE_ALARM, looks_as_frequent, missed
from tests.protocol.worlds import InsecureNoNoise, World, budgeted, noisy_counts

pytestmark = pytest.mark.slow

LEAVES = {"c2": Leaves.BEFORE_INPUT, "c17": Leaves.BEFORE_ECHO, "c30": Leaves.BEFORE_UNMASK}
EARLY = {"c2"}  # its input is in no sum


def released_noise(world: World, result: RoundResult) -> Floats:
    """What the release carries beyond the plain sums of those who took part."""
    plain = world.plain_counts(result, EARLY)
    noisy = noisy_counts(result.release)
    rest = plain.records - np.bincount(
        plain.points.batch, weights=plain.counts, minlength=plain.points.batches
    )
    assert list(noisy.records) == plain.records.tolist()
    return np.asarray(noisy.numbers - np.append(plain.counts, rest))


def sharing(result: RoundResult) -> SharedLaplaceMechanism:
    sums = result.round.cohorts[0].sums
    share = NoisyHistogram(result.round.plan).share(sums.clients)
    assert isinstance(share, SharedLaplaceMechanism)
    return share


def test_a_round_with_dropouts_states_and_charges_what_is_true(tmp_path: Path) -> None:
    world = World.make(clients=40)
    with budgeted(tmp_path / "ledger.db", epsilon=2.5) as ledger:
        result = world.run(world.plan(trust="none", cohort=40), leaves=LEAVES, ledger=ledger)
        [charged] = ledger.account("testers").rounds
        assert charged.charge == sharing(result).charge(1e-6)
        assert charge_to_dict(charged.charge)["proved_delta"] == SAMPLER_DELTA
        assert 1 - 1e-9 < ledger.account("testers").spent <= 1.0
    privacy = result.release.privacy
    assert privacy.holds is True
    assert 1 - 1e-9 < privacy.epsilon <= 1.0
    assert privacy.delta == SAMPLER_DELTA
    assert privacy.sensitivity == 2.0
    assert "discrete Laplace noise in shares" in privacy.mechanism
    assert privacy.trust.startswith("nobody")
    assert [outcome.included for outcome in result.release.cohorts] == [39]


def test_without_noise_the_sums_are_exact_and_with_it_they_are_not() -> None:
    """The shift by `included` times the reach is taken off again, dropouts or not."""
    world = World.make(clients=40)
    plan = world.plan(trust="none", cohort=20, batches=2, points=4)
    bare = world.run(plan, leaves=LEAVES, source=InsecureNoNoise())
    assert not released_noise(world, bare).any()
    loud = world.plan(trust="none", cohort=20, batches=2, points=4, epsilon=0.1)
    noise = released_noise(world, world.run(loud, leaves=LEAVES))
    assert noise.any()  # ten noises that are 0 once in 40: all of them once in 1e16
    assert np.array_equal(noise, np.rint(noise))


def chance_of_large(scale: float, sums: float, cut: int) -> float:
    """P(|noise| >= cut) of `sums` times the noise of scale `scale`: a difference of two negative
    binomial variables, from scipy's probabilities.
    """
    one = stats.nbinom.pmf(np.arange(4000), sums, -math.expm1(-1 / scale))
    law = np.convolve(one, one[::-1])
    assert law.sum() == pytest.approx(1)
    return float(law[np.abs(np.arange(len(law)) - 3999) >= cut].sum())


def test_the_sum_carries_the_noise_that_the_release_tells() -> None:
    """How many of 301 noises are 15 or more: a binomial test, at an exact false-alarm rate of 1e-9.
    Ten times or a tenth of the variance would pass with a probability below 1e-9, also exact.
    """
    world = World.make(clients=40, cells=300)
    plan = world.plan(trust="none", cohort=40, points=300, epsilon=0.2)
    result = world.run(plan, leaves=LEAVES)
    told, share = noisy_counts(result.release), sharing(result)
    (law,) = told.noise
    assert law.kind == "laplace"
    assert law.scale == pytest.approx(10.0)
    assert law.variables == pytest.approx(39 / share.on.shares)
    assert law.sd == pytest.approx(np.sqrt(39 * share.share_variance))
    noise, cut, scale = released_noise(world, result), 15, law.scale or 0.0
    large, sums = int(np.count_nonzero(np.abs(noise) >= cut)), law.variables
    true = chance_of_large(scale, sums, cut)
    assert looks_as_frequent(large, len(noise), true)
    for factor in (0.1, 10.0):
        wrong = chance_of_large(scale * math.sqrt(factor), sums, cut)
        assert missed(len(noise), wrong, true) < FALSE_ALARM
        assert not looks_as_frequent(large, len(noise), wrong)


def test_the_plan_chooses_the_noise() -> None:
    world = World.make(clients=40)
    either = NoisyHistogram(world.plan(trust="none"))
    other = NoisyHistogram(world.plan(trust="none", noise="gaussian", delta=1e-4))
    laplace, gaussian = either.share(40), other.share(40)
    assert either.minimum(40) == other.minimum(40) == 36
    assert isinstance(laplace, SharedLaplaceMechanism)
    assert isinstance(gaussian, SharedGaussianMechanism)
    assert laplace.on.shares == gaussian.on.shares == 32  # four may collude
    for trust in (either, other):
        reach = trust.share(40).reach
        maxima = trust.maxima(40)
        assert maxima == (10**6 + 2 * reach,) * 7 + (10**6, LARGEST_MARK)


def test_gaussian_shares_still_state_and_charge_the_plans_delta(tmp_path: Path) -> None:
    world = World.make(clients=40)
    plan = world.plan(trust="none", cohort=40, noise="gaussian", epsilon=4.0)
    with budgeted(tmp_path / "ledger.db") as ledger:
        release = world.run(plan, ledger=ledger).release
        [charged] = ledger.account("testers").rounds
        assert charge_to_dict(charged.charge)["proved_delta"] == 1e-6
    assert release.privacy.delta == 1e-6
    assert {law.kind for law in noisy_counts(release).noise} == {"gaussian"}
    assert "Gaussian" in release.privacy.mechanism


class Hasty(NoisyHistogram):
    """Opens sums with half of the inputs."""

    def minimum(self, clients: int) -> int:
        return clients // 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": "laplace", "delta": 1e-30}, "Raise delta"),
        ({"corruption": 0.49}, "none would"),
    ],
)
def test_noise_that_cannot_be_shared_is_refused(changes: dict[str, Any], words: str) -> None:
    plan = World.make().plan(trust="none", **changes)
    with pytest.raises(InvalidInputError, match=words):
        Hasty(plan).share(10)
