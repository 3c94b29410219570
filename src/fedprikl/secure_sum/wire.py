"""The byte codecs that messages are put together from. Each is strict and canonical.

Canonical: there is one encoding of a value, so accepted bytes re-encode to themselves.
Strict: nothing but `MessageDecodeError` comes out, and no length is believed before it has
been compared with the bytes that are there.
"""

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from fedprikl.errors import MessageDecodeError

__all__ = ["Blob", "Clients", "Codec", "Fixed", "Number", "Reader", "Records"]

MAX_CLIENTS = 1 << 16


class Reader:
    """Takes bytes off the front of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next so many bytes."""
        if size > len(self._data) - self._at:
            raise MessageDecodeError(f"the message is cut short at byte {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        """The next little-endian 32-bit number."""
        return int.from_bytes(self.take(4), "little")

    def end(self) -> None:
        """Refuses bytes that are left over."""
        if self._at != len(self._data):
            raise MessageDecodeError(f"{len(self._data) - self._at} bytes too many at the end")


class Codec(Protocol):
    """How one field of a message travels."""

    def put(self, value: Any) -> bytes:
        """The bytes of a value."""
        ...

    def get(self, reader: Reader) -> Any:
        """The value of the next bytes."""
        ...


class Number:
    """A little-endian 32-bit number."""

    def put(self, value: int) -> bytes:
        """Four bytes."""
        return value.to_bytes(4, "little")

    def get(self, reader: Reader) -> int:
        """The number."""
        return reader.number()


class Fixed:
    """Exactly so many bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def put(self, value: bytes) -> bytes:
        """The bytes themselves."""
        if len(value) != self.size:
            raise MessageDecodeError(f"a field of {self.size} bytes cannot hold {len(value)}")
        return value

    def get(self, reader: Reader) -> bytes:
        """The bytes themselves."""
        return reader.take(self.size)


class Blob:
    """Bytes of any length, after their length."""

    def put(self, value: bytes) -> bytes:
        """Length and bytes."""
        return len(value).to_bytes(4, "little") + value

    def get(self, reader: Reader) -> bytes:
        """The bytes."""
        return reader.take(reader.number())


class Records:
    """Clients, strictly ascending, each with a body of exactly so many bytes."""

    def __init__(self, size: int) -> None:
        self._layout = struct.Struct(f"<I{size}s")
        self._body = size

    def put(self, value: Iterable[tuple[int, bytes]]) -> bytes:
        """Count and records."""
        records = list(value)
        if any(len(body) != self._body for _, body in records):
            raise MessageDecodeError(f"a record must have a body of {self._body} bytes")
        pack = self._layout.pack
        return len(records).to_bytes(4, "little") + b"".join(pack(*record) for record in records)

    def get(self, reader: Reader) -> tuple[tuple[int, bytes], ...]:
        """The records."""
        block = reader.take(reader.number() * self._layout.size)
        records = tuple(self._layout.iter_unpack(block))
        if any(a[0] >= b[0] for a, b in pairwise(records)):
            raise MessageDecodeError("the clients in a list are not in strictly ascending order")
        return records


class Clients:
    """A set of clients, as one bit per client of the cohort; its last byte is not zero."""

    def put(self, value: frozenset[int]) -> bytes:
        """Length and bit map."""
        bits = np.zeros(max(value, default=-1) + 1, dtype=np.uint8)
        bits[list(value)] = 1
        return Blob().put(np.packbits(bits, bitorder="little").tobytes())

    def get(self, reader: Reader) -> frozenset[int]:
        """The set."""
        data = Blob().get(reader)
        if len(data) > MAX_CLIENTS // 8:
            raise MessageDecodeError(f"a set of clients has more than {MAX_CLIENTS} places")
        if data and not data[-1]:
            raise MessageDecodeError("a set of clients has trailing zeros")
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        return frozenset(np.nonzero(bits)[0].tolist())
