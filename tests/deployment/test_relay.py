"""What a relay that keeps everything can compute: nothing; and that the attack has teeth."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import fedprikl.deployment.site
from fedprikl.deployment.flower.client import unpack
from fedprikl.deployment.settings import Home
from fedprikl.deployment.site import Envelope
from fedprikl.protocol import Invitation, Reply, RoundDriver, Step
from fedprikl.protocol.keys import Address
from fedprikl.records import open_records
from fedprikl.reference import Reference
from tests.deployment.attack import sums_of_a_relay
from tests.deployment.fake_grid import FakeFederation, FakeGrid
from tests.protocol.test_views import contains

pytestmark = pytest.mark.slow


def envelopes(grid: FakeGrid) -> list[tuple[int, Envelope]]:
    """Every envelope with the node at its end."""
    return [
        (max(m.metadata.src_node_id % 999, m.metadata.dst_node_id % 999), unpack(m))
        for m in grid.carried
    ]


def counts(federation: FakeFederation, cells: Iterable[int]) -> np.ndarray:
    reference = Reference.load(Home(federation.home).reference)
    held = [open_records(file).count(reference).counts for file in federation.files]
    return np.array([np.append(each[list(cells)], each.sum()) for each in held])


def asked(carried: list[tuple[int, Envelope]]) -> Invitation:
    return Invitation.from_bytes(carried[0][1].message)


def test_a_relay_cannot_open_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = FakeFederation.make(tmp_path, monkeypatch)
    grid = federation.grid()
    federation.run(grid)
    carried = envelopes(grid)
    assert sums_of_a_relay(carried) is None
    known = counts(federation, asked(carried).cells)
    messages = [envelope.message for _, envelope in carried]
    for vector in (*known, known.sum(axis=0)):
        assert not contains(messages, vector[:6])


def test_that_attack_opens_the_sum_if_answers_travel_unsealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masked inputs and shares in the open: the relay does what the aggregator does."""

    def in_the_open(message: bytes, _public: str, _address: Address) -> bytes:
        return message

    def take(self: RoundDriver, _: Step, reply: Reply) -> bool:
        number, index = self._places[reply.client]
        self.aggregator.sums[number].receive(index, reply.message)
        self._awaited.discard(reply.client)
        return True

    monkeypatch.setattr(fedprikl.deployment.site, "seal_answer", in_the_open)
    monkeypatch.setattr(RoundDriver, "take", take)
    federation = FakeFederation.make(tmp_path, monkeypatch)
    grid = federation.grid()
    federation.run(grid)
    carried = envelopes(grid)
    found = sums_of_a_relay(carried)
    assert found is not None
    assert found.tolist() == counts(federation, asked(carried).cells).sum(axis=0).tolist()
