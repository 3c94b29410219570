"""The noise that a cohort's clients add in shares: whose share counts, and what delta pays for."""

from dataclasses import replace

import numpy as np
import pytest

from fedprikl.privacy import SharedMechanism
from fedprikl.privacy.shares import SAMPLER_DELTA, SharedLaplaceMechanism
from fedprikl.protocol import Roster, SigningKey
from fedprikl.protocol.round import plan_cohort
from fedprikl.protocol.sums import NoisyHistogram
from fedprikl.secure_sum import DEFAULT_FAILURE
from tests.protocol.worlds import World

WORLD = World.make(clients=9)
ROSTER = Roster(frozenset(bytes.fromhex(SigningKey.generate().public) for _ in range(3)))


def share_of(clients: int, **plan: object) -> SharedMechanism:
    return NoisyHistogram(WORLD.plan(trust="none", **plan)).share(clients)


def epsilon_of_the_rest(share: SharedLaplaceMechanism, left: int) -> float:
    """The epsilon of one count, moved by 1, under the noise of `left` shares, twice.

    From the probabilities of the sum, tabulated by a Fourier transform; an independent method.
    """
    size = 2**12
    angles = 2 * np.pi * np.arange(size) / size
    p = np.exp(-1 / share.scale)
    one = ((1 - p) ** 2 / np.abs(1 - p * np.exp(1j * angles)) ** 2) ** (left / share.on.shares)
    masses = np.fft.ifft(one).real
    near = masses[:15]  # beyond, rounding shows
    return 2 * float(np.max(np.abs(np.diff(np.log(near)))))


@pytest.mark.parametrize("clients", [3, 4, 8, 30])
def test_a_participant_that_knows_its_own_share_sees_no_more_than_stated(clients: int) -> None:
    """Also if nobody is expected to collude: everybody knows its own share, and the release."""
    share = share_of(clients, epsilon=2.0, corruption=0.0, dropout=0.0)
    assert isinstance(share, SharedLaplaceMechanism)
    assert epsilon_of_the_rest(share, clients - 1) <= 2.0 + 1e-6
    assert epsilon_of_the_rest(share, clients - 2) > 2.0 + 1e-3  # no share to spare


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_failure_of_a_sparse_graph_is_in_the_stated_delta(noise: str) -> None:
    plan = WORLD.plan(trust="none", noise=noise, cohort=400, epsilon=4.0)
    among_known = replace(plan, roster=ROSTER.fingerprint)
    sparse, complete = NoisyHistogram(plan).share(400), NoisyHistogram(among_known).share(400)
    assert sparse.on.failure == DEFAULT_FAILURE
    assert complete.on.failure == 0.0
    if noise == "laplace":
        assert sparse.proved_delta(1e-6) >= DEFAULT_FAILURE + SAMPLER_DELTA
        assert complete.proved_delta(1e-6) == SAMPLER_DELTA


def test_a_release_states_what_delta_pays_for() -> None:
    """Where nobody is expected to vanish or to collude, even small cohorts are sparse."""
    plan = WORLD.plan(trust="none", cohort=9, dropout=0.0, corruption=0.0)
    assert plan_cohort(plan, clients=9).neighbours < 8
    told = WORLD.run(plan).release.privacy
    assert told.delta >= DEFAULT_FAILURE
    assert told.holds
