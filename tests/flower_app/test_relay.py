"""What a relay that keeps everything can compute: nothing; and that the attack has teeth."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import fedprikl.flower_app.client
from fedprikl.federation import Address, Conductor, Invitation, Step, open_records
from fedprikl.flower_app.settings import Home
from fedprikl.flower_app.wire import Parcel, unpack
from fedprikl.reference import Reference
from tests.federation.test_views import contains
from tests.flower_app.attack import sums_of_a_relay
from tests.flower_app.fake_grid import FakeFederation, FakeGrid


def parcels(grid: FakeGrid) -> list[tuple[int, Parcel]]:
    """Every parcel with the node at its end."""
    return [
        (max(m.metadata.src_node_id % 999, m.metadata.dst_node_id % 999), unpack(m))
        for m in grid.carried
    ]


def counts(federation: FakeFederation, cells: Iterable[int]) -> np.ndarray:
    reference = Reference.load(Home(federation.home).reference)
    held = [open_records(file).count(reference).counts for file in federation.files]
    return np.array([np.append(each[list(cells)], each.sum()) for each in held])


def asked(carried: list[tuple[int, Parcel]]) -> Invitation:
    return Invitation.from_bytes(carried[0][1].letter)


def test_a_relay_cannot_open_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = FakeFederation.make(tmp_path, monkeypatch)
    grid = federation.grid()
    federation.run(grid)
    carried = parcels(grid)
    assert sums_of_a_relay(carried) is None
    known = counts(federation, asked(carried).cells)
    letters = [parcel.letter for _, parcel in carried]
    for vector in (*known, known.sum(axis=0)):
        assert not contains(letters, vector[:6])


def test_that_attack_opens_the_sum_if_answers_travel_unsealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masked inputs and shares in the open: the relay does what the aggregator does."""

    def in_the_open(message: bytes, _public: str, _address: Address) -> bytes:
        return message

    def take(self: Conductor, _: Step, client: str, letter: bytes) -> bool:
        number, index = self._seats[client]
        self._aggregator.sums[number].receive(index, letter)
        self._awaited.discard(client)
        return True

    monkeypatch.setattr(fedprikl.flower_app.client, "seal_answer", in_the_open)
    monkeypatch.setattr(Conductor, "take", take)
    federation = FakeFederation.make(tmp_path, monkeypatch)
    grid = federation.grid()
    federation.run(grid)
    carried = parcels(grid)
    found = sums_of_a_relay(carried)
    assert found is not None
    assert found.tolist() == counts(federation, asked(carried).cells).sum(axis=0).tolist()
