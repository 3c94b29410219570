"""What is charged is what draws and what is stated, whoever is trusted."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedprikl.checks import Floats, Ints
from fedprikl.privacy import Calibrated, GaussianMechanism, LaplaceMechanism, SecureNoise
from fedprikl.privacy.charges import charge_to_dict
from fedprikl.privacy.shares import SharedLaplaceMechanism
from fedprikl.protocol import trust_of
from fedprikl.protocol.round import plan_cohort
from fedprikl.protocol.sums import NoisyHistogram, ScoredSum
from tests.protocol.worlds import World, budgeted


class Watched(SecureNoise):
    """Secure noise that notes how much of it was asked for."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, float, int]] = []

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        self.drawn.append(("laplace", scale, 1))
        return super().laplace(values, scale=scale)

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        self.drawn.append(("gaussian", sigma, 1))
        return super().gaussian(values, sigma=sigma)

    def laplace_share(
        self, entries: int, *, scale: float, shares: int, coordinates: int = 2
    ) -> Ints:
        self.drawn.append(("laplace share", scale, shares))
        return super().laplace_share(entries, scale=scale, shares=shares, coordinates=coordinates)


@pytest.mark.parametrize(("noise", "kind"), [("auto", "laplace"), ("gaussian", "gaussian")])
def test_the_aggregators_noise_is_made_once(
    noise: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Calibrated] = []
    original = Calibrated.__post_init__

    def note(self: Calibrated) -> None:
        original(self)
        made.append(self)

    monkeypatch.setattr(Calibrated, "__post_init__", note)
    world, source = World.make(), Watched()
    with budgeted(tmp_path / "ledger.db") as ledger:
        privacy = world.run(world.plan(noise=noise), ledger=ledger, source=source).release.privacy
        [charged] = ledger.account("testers").rounds
    (calibrated, *again) = made  # what follows the noise is computed from the plan once more
    assert all(each == calibrated for each in again)
    assert charged.charge == calibrated.charge
    mechanism = calibrated.for_sensitivity(privacy.sensitivity or 0.0)
    assert isinstance(mechanism, LaplaceMechanism | GaussianMechanism)
    size = mechanism.scale if isinstance(mechanism, LaplaceMechanism) else mechanism.sigma
    assert source.drawn == [(kind, size, 1)]
    assert privacy.mechanism == str(mechanism)
    assert privacy.epsilon == mechanism.epsilon(1e-6)


def test_noise_shares_are_drawn_charged_and_stated_alike(tmp_path: Path) -> None:
    world, source = World.make(clients=40), Watched()
    plan = world.plan(trust="none", cohort=40)
    with budgeted(tmp_path / "ledger.db") as ledger:
        privacy = world.run(plan, ledger=ledger, source=source).release.privacy
        [charged] = ledger.account("testers").rounds
    trust = NoisyHistogram(plan)
    share = trust.share(40)
    assert isinstance(share, SharedLaplaceMechanism)
    assert trust.share(40) is share
    assert source.drawn == [("laplace share", share.scale, share.on.shares)] * 40
    assert charged.charge == trust.charge([40]) == trust.client_charge(40)
    assert privacy.mechanism == str(share)
    assert privacy.epsilon == charge_to_dict(charged.charge)["proved_epsilon"]


def test_a_round_is_charged_for_its_least_protected_cohort() -> None:
    """Cohorts of other sizes have other shares; a record is in one of them."""
    plan = World.make().plan(trust="none", noise="gaussian", epsilon=2.0, corruption=0.2)
    trust = NoisyHistogram(plan)
    each = [trust.share(clients).epsilon(plan.budget.delta) for clients in (9, 10, 11)]
    assert len(set(each)) > 1
    assert trust.worst_share([9, 10, 11]).epsilon(plan.budget.delta) == max(each)


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_client_vector_fits_its_maxima_and_opens_to_its_counts(trust: Any) -> None:
    """One client's vector, as if it were the sum: without noise its very counts come back."""
    plan = World.make().plan(trust=trust, points=3)
    mode, sums = trust_of(plan), plan_cohort(plan, clients=9)
    asked = np.array([3, 0, 5], dtype=np.int64)
    vector = mode.vector([asked], 10, sums=sums, source=SecureNoise(), randomness=bytes)
    assert len(vector) == len(mode.maxima(9))
    assert np.all((vector >= 0) & (vector <= mode.maxima(9)))
    opened = mode.open(vector, clients=9, included=1)
    assert opened.records == 10
    assert not opened.insecure
    if isinstance(mode, ScoredSum):
        assert opened.counts[0].tolist() == [3, 0, 5]
        assert opened.noise_variance == 0
    else:
        assert len(opened.counts[0]) == 4  # all other records too
        assert opened.noise_variance == mode.share(9).share_variance
    both = opened + opened
    assert both.counts[0].tolist() == (2 * opened.counts[0]).tolist()
    assert (both.records, both.noise_variance) == (20, 2 * opened.noise_variance)


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_what_is_opened_never_prints(trust: Any) -> None:
    plan = World.make().plan(trust=trust, points=1)
    mode, sums = trust_of(plan), plan_cohort(plan, clients=9)
    asked = np.array([31337])
    vector = mode.vector([asked], 31337, sums=sums, source=SecureNoise(), randomness=bytes)
    opened = mode.open(vector, clients=9, included=1)
    public = f"OpenedSum(noise_variance={opened.noise_variance!r}, insecure=False)"
    assert repr(opened) == public
