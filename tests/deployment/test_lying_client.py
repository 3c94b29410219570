"""A site that shifts one entry by a lot: whether there is a release never depends on a sum."""

from collections.abc import Callable
from typing import Any

import pytest
from deploy.small_world import write_plan
from flwr.app import Message

import fedprikl.deployment.site
from fedprikl.checks import Ints
from fedprikl.protocol import Client, Invitation, Outcome
from tests.deployment.fake_grid import FakeFederation, FakeGrid, spent

pytestmark = pytest.mark.slow

LIAR = 3


def with_liar(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, shift: Callable[[Ints], Ints]
) -> FakeGrid:
    """The site's own handler, with a client in it that lies about its vector."""

    class Liar(Client):
        def _vector(self, invitation: Invitation) -> Ints:
            return shift(super()._vector(invitation))

    monkeypatch.setattr("fedprikl.secure_sum.sum_client.SumClient._check_values", lambda _, v: v)
    grid = federation.grid()
    honest = grid.deliver

    def deliver(message: Message) -> Message:
        with pytest.MonkeyPatch.context() as patch:
            if message.metadata.dst_node_id == LIAR:
                patch.setattr(fedprikl.deployment.site, "Client", Liar)
            return honest(message)

    grid.deliver = deliver  # type: ignore[method-assign]
    return grid


def by(amount: int, place: int = 0) -> Callable[[Ints], Ints]:
    def shift(vector: Ints) -> Ints:
        moved = vector.copy()
        moved[place] += amount
        return moved

    return shift


@pytest.mark.parametrize(
    ("amount", "place"),
    [(1, 0), (481, 0), (10**4, 0), (10**6, 0), (-60, 0), (-(10**6), 0), (-400, -1), (10**5, -1)],
)
def test_an_impossible_sum_is_released_and_charged_like_any_other(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, amount: int, place: int
) -> None:
    """The eight sites hold 480 records; what the liar adds makes counts exceed them, or wrap."""
    plan: dict[str, Any] = {"most_records": 1000}
    write_plan(federation.home, **plan)
    release, lines = federation.run(with_liar(federation, monkeypatch, by(amount, place)))
    (cohort,) = release.cohorts
    assert cohort == Outcome(batch=0, clients=8, included=8)
    assert spent(federation) == pytest.approx(1.0, abs=1e-6)
    assert not any("was dropped" in line for line in lines)
    assert all("8 of 8 answered, 0 refused, 0 lost" in line for line in lines[1:6])
