"""The audit of whole clients: it cannot refute the right noise, and refutes too little of it."""

import numpy as np
import pytest

from fedprikl.estimation import score_sensitivity
from fedprikl.privacy import NoiseKind, SecureNoise, audit
from fedprikl.simulation.client_case import ClientCase, client_case

pytestmark = pytest.mark.slow

TRIALS = 3000


def case(
    per_client: int, noise: NoiseKind = "laplace", sensitivity: float | None = None
) -> ClientCase:
    return client_case(
        epsilon=1.0,
        delta=1e-6,
        per_client=per_client,
        noise=noise,
        source=SecureNoise(),
        sensitivity=sensitivity,
    )


def lower_bound(found: ClientCase) -> float:
    """Of epsilon; above the truth once in a million."""
    result = audit(
        found.sample_left,
        found.sample_right,
        epsilon=1.0,
        delta=1e-6,
        gaussian=found.mechanism.loss.gaussian,
        trials=TRIALS,
        false_alarm=1e-6,
    )
    return max(test.lower_bound_epsilon for test in result.tests)


@pytest.mark.parametrize("per_client", [1, 2, 7, 20])
def test_the_two_populations_are_as_far_apart_as_any(per_client: int) -> None:
    found = case(per_client)
    distance = abs(found.value(found.left) - found.value(found.right))
    records = np.array([3 * per_client])
    moved = score_sensitivity(found.points, records, found.score, moved=per_client)
    assert distance <= moved
    assert distance == pytest.approx(moved, rel=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_right_noise_is_not_refuted(noise: NoiseKind) -> None:
    assert lower_bound(case(5, noise)) <= 1.0


def test_the_audit_comes_close_to_the_right_noise() -> None:
    assert lower_bound(case(5)) > 0.3


def test_noise_for_one_record_of_the_client_is_refuted() -> None:
    """The audit has teeth: what protects one record leaves a client of five unprotected."""
    right = case(5)
    one = score_sensitivity(right.points, np.array([15]), right.score)
    assert lower_bound(case(5, sensitivity=one)) > 1.5


def test_a_client_is_drawn_anew_in_every_release() -> None:
    """Also one that holds more than it contributes; the draw is part of what is on trial."""
    found = case(3)
    held = np.arange(3).repeat(10)
    assert len({found.value(held) for _ in range(60)}) > 1
