"""Clients in one process agree on each secret once; nothing that is sent differs from that."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedprikl.secure_sum import masking
from fedprikl.secure_sum.masking import AgreeOnce, agree

from .helpers import Cohort, make_plan


def test_every_message_is_the_same_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[bytes] = []

    def counted(private: X25519PrivateKey, public: bytes) -> bytes | None:
        computed.append(public)
        return agree(private, public)

    plain, once = Cohort(make_plan(9)), AgreeOnce()
    plain.finish()
    monkeypatch.setattr(masking, "agree", counted)
    cohort = Cohort(make_plan(9), agreement=once)
    assert (cohort.finish() == cohort.inputs.sum(axis=0)).all()
    assert cohort.sent == plain.sent
    assert len(computed) == 2 * 9 + 2 * 36  # keys that the aggregator tries; two of each pair
    assert not once._once


def test_a_key_that_was_changed_on_its_way_gives_no_common_secret() -> None:
    one, other, liar = (X25519PrivateKey.generate() for _ in range(3))
    keys = [each.public_key().public_bytes_raw() for each in (one, other, liar)]
    once = AgreeOnce()
    assert once(one, keys[2]) == agree(one, keys[2])
    assert once(other, keys[0]) == agree(other, keys[0]) != agree(one, keys[2])
    assert once(one, bytes(32)) is None


def test_it_forgets_a_sum_when_the_next_begins() -> None:
    """Also the secrets that nobody asked for a second time: a client had left."""
    once = AgreeOnce()
    one, other = (X25519PrivateKey.generate() for _ in range(2))
    key = other.public_key().public_bytes_raw()
    assert once.of_sum(b"first")(one, key) == agree(one, key)
    assert once.of_sum(b"first") is once
    assert once._once
    assert once._public
    once.of_sum(b"second")
    assert not once._once
    assert not once._public
