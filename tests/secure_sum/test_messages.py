"""Every decoder: accepted bytes re-encode to themselves, and only our error comes out."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedprikl.errors import MessageDecodeError
from fedprikl.secure_sum import AggregatorStep
from fedprikl.secure_sum.messages import (
    BOX_BYTES,
    Echo,
    EchoInbox,
    KeyAdvert,
    MaskedInput,
    Message,
    PeerKeys,
    SealedShares,
    ShareInbox,
    Survivors,
    UnmaskShares,
    decode,
)

from .helpers import Cohort, make_plan

KINDS: list[type[Message]] = [
    KeyAdvert,
    PeerKeys,
    SealedShares,
    ShareInbox,
    MaskedInput,
    Survivors,
    Echo,
    EchoInbox,
    UnmaskShares,
]


def real_messages() -> list[bytes]:
    """One message of every kind from a real round, in which one client drops out."""
    cohort = Cohort(make_plan(5, 3))
    seen: list[bytes] = []
    while cohort.aggregator.step is not AggregatorStep.UNMASK:
        absent = [4] if cohort.aggregator.step is AggregatorStep.INPUTS else []
        seen.append(cohort.answer_all(without=absent)[0])
        cohort.next()
        seen.append(cohort.letters[0])
    return [*seen, cohort.answer(0)]


REAL = real_messages()


def decodes_canonically(data: bytes) -> bool:
    """True if the bytes are a message, False if refused; anything else raises."""
    try:
        message = decode(data)
    except MessageDecodeError:
        return False
    assert message.encode() == data
    return True


def test_real_messages_of_every_kind_survive() -> None:
    assert [type(decode(data)) for data in REAL] == KINDS
    assert all(decodes_canonically(data) for data in REAL)
    for kind, data in zip(KINDS, REAL, strict=True):
        assert kind.decode(data).encode() == data


@pytest.mark.parametrize("data", REAL, ids=[kind.__name__ for kind in KINDS])
def test_every_prefix_and_extension_is_refused(data: bytes) -> None:
    assert not any(decodes_canonically(data[:size]) for size in range(len(data)))
    assert not decodes_canonically(data + b"\0")


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_arbitrary_bytes(data: bytes) -> None:
    decodes_canonically(data)


@given(st.sampled_from(range(1, 10)), st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
@example(5, bytes(36) + b"\xff\xff\xff\xff")
@example(6, bytes(32) + struct.pack("<I", 2) + b"\1\0" + struct.pack("<I", 0))
def test_arbitrary_bytes_after_a_valid_header(kind: int, data: bytes) -> None:
    decodes_canonically(b"FSS\1" + bytes([kind]) + data)


@given(st.sampled_from(REAL), st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_real_messages(good: bytes, data: st.DataObject) -> None:
    """Bytes replaced, removed, repeated or inserted at random places."""
    start = data.draw(st.integers(0, len(good)))
    stop = data.draw(st.integers(start, min(len(good), start + 40)))
    patch = data.draw(st.one_of(st.binary(max_size=8), st.just(good[start:stop] * 2)))
    decodes_canonically(good[:start] + patch + good[stop:])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut short"),
        (b"GET /", "not a secure-sum message"),
        (b"FSS\2\1", "version 2 is not spoken here, only 1"),
        (b"FSS\1\0", "unknown kind"),
        (b"FSS\1\12", "unknown kind"),
        (b"FSS\1\5" + bytes(36) + b"\xff\xff\xff\xff", "cut short"),
        (b"FSS\1\6" + bytes(32) + b"\2\0\0\0\1\0" + bytes(4), "trailing zeros"),
        (b"FSS\1\6" + bytes(32) + b"\1\x20\0\0" + bytes(8192) + b"\1", "more than 65536"),
        (b"FSS\1\4" + bytes(36) + b"\2\0\0\0" + bytes(2 * (4 + BOX_BYTES)), "ascending"),
    ],
)
def test_reasons(data: bytes, reason: str) -> None:
    with pytest.raises(MessageDecodeError, match=reason):
        decode(data)


@pytest.mark.parametrize("data", [None, "text", 7, bytearray(5), [1]])
def test_what_is_not_bytes(data: object) -> None:
    with pytest.raises(MessageDecodeError, match="a message is bytes"):
        decode(data)  # type: ignore[arg-type]


def test_fields_of_a_wrong_size_are_not_encoded() -> None:
    with pytest.raises(MessageDecodeError, match="a field of 32 bytes cannot hold 31"):
        KeyAdvert(bytes(32), 0, bytes(31), bytes(32), bytes(32)).encode()
    with pytest.raises(MessageDecodeError, match="a body of 16 bytes"):
        Echo(bytes(32), 0, [(1, bytes(15))]).encode()
