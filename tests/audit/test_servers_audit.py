"""The audit of plans with three servers, as one corrupt server attacks them."""

from typing import Any

import pytest

from fedprikl import InsecureSeededNoise, Reference
from fedprikl.audit import audit_plan
from fedprikl.privacy.server_noise import JointLaplace
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    Servers,
    WholeClient,
    server_answer,
)

REFERENCE = Reference.from_counts([50, 30, 20])


def plan(noise: str = "auto", **changes: Any) -> Plan:
    given: dict[str, Any] = {
        "population": "p",
        "reference": REFERENCE.fingerprint,
        "trust": "servers",
        "servers": Servers(),
        "budget": Budget(epsilon=4.0, delta=1e-4),
        "views": (AskedView(points=3),),
        "questions": (
            Question(share=0.75, release="counts", noise=noise),
            Question(divergence="tv", share=0.25, skew=0.0, noise=noise),
        ),
    }
    return Plan(**(given | changes))


@pytest.mark.parametrize(
    "agreed",
    [plan(), plan("gaussian"), plan(unit=WholeClient(3))],
    ids=["laplace", "gaussian", "k"],
)
def test_the_claims_hold_and_are_nearly_reached(agreed: Plan) -> None:
    found = audit_plan(agreed, REFERENCE, source=InsecureSeededNoise(1), trials=300)
    assert not found.refuted
    for (_, result), share in zip(found.questions, (0.25, 0.75), strict=True):
        claimed = 4.0 * share
        assert result.claimed_epsilon == pytest.approx(claimed)
        assert result.bounds["noise asked for"] > 0.97 * claimed


def test_less_noise_than_claimed_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that draw with a third of the scale, whatever they state."""
    honest = server_answer.laplace_noise

    def careless(runtime: Any, law: JointLaplace, size: int, *more: Any) -> Any:
        return honest(runtime, JointLaplace(law.scale / 3), size, *more)

    monkeypatch.setattr("fedprikl.audit.servers_audit.laplace_noise", careless)
    found = audit_plan(plan(), REFERENCE, trials=300)
    assert all(result.refuted for _, result in found.questions)


def test_noise_that_counts_the_corrupt_server_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaussian shares of which three would suffice: one server knows its own."""
    monkeypatch.setattr("fedprikl.protocol.sums.HONEST", 3)
    found = audit_plan(plan("gaussian"), REFERENCE, source=InsecureSeededNoise(1), trials=300)
    assert all(result.refuted for _, result in found.questions)
