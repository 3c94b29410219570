"""The audit of whole clients: it cannot refute the right noise, and refutes too little of it."""

from dataclasses import replace

import numpy as np
import pytest

from fedprikl.audit import AuditCase, client_case
from fedprikl.audit.calibrations import ClientRelease
from fedprikl.privacy import Numbers, calibrate

pytestmark = pytest.mark.slow

DELTA = 1e-6


def case(per_client: int, noise: str = "laplace") -> AuditCase:
    return client_case(epsilon=1.0, delta=DELTA, per_client=per_client, noise=noise)


def lower_bound(found: AuditCase) -> float:
    """Of epsilon; above the truth once in a million."""
    result = found.run(epsilon=1.0, delta=DELTA, trials=3000, false_alarm=1e-6)
    return result.lower_bound_epsilon


@pytest.mark.parametrize("per_client", [1, 2, 7, 20])
def test_the_two_populations_are_as_far_apart_as_any(per_client: int) -> None:
    found = case(per_client)
    distance = abs(float(found.left(1)[0, 0] - found.right(1)[0, 0]))
    most = ClientRelease(per_client).sensitivity(per_client)
    assert distance <= most
    assert distance == pytest.approx(most, rel=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_right_noise_is_not_refuted(noise: str) -> None:
    assert lower_bound(case(5, noise)) <= 1.0


def test_the_audit_comes_close_to_the_right_noise() -> None:
    assert lower_bound(case(5)) > 0.3


def test_noise_for_one_record_of_the_client_is_refuted() -> None:
    """The audit has teeth: what protects one record leaves a client of five unprotected."""
    one = ClientRelease(5).sensitivity(1)
    mechanism = calibrate(Numbers(one), epsilon=1.0, delta=DELTA, law="laplace")
    assert lower_bound(replace(case(5), mechanism=mechanism)) > 1.5


def test_a_client_is_drawn_anew_in_every_release() -> None:
    """Also one that holds more than it contributes; the draw is part of what is on trial."""
    held = np.arange(3).repeat(10)
    assert len(set(ClientRelease(3).values(held, 60).ravel().tolist())) > 1
