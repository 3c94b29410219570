"""The numbers that Prio3 adds up: whole numbers modulo a prime of 128 bits, in 16 bytes each."""

from collections.abc import Iterable

from fedprikl.errors import InvalidInputError

__all__ = ["ELEMENT_BYTES", "MODULUS", "read_elements", "signed"]

MODULUS = 2**66 * 4611686018427387897 + 1  # Field128 of the VDAF draft, section 6.1.2
ELEMENT_BYTES = 16


def read_elements(data: bytes) -> tuple[int, ...]:
    """The elements of an encoded vector, each little-endian.

    >>> read_elements(bytes([5]) + bytes(15))
    (5,)
    """
    if len(data) % ELEMENT_BYTES:
        raise InvalidInputError(f"A vector of Prio3 has {ELEMENT_BYTES} bytes for each element.")
    starts = range(0, len(data), ELEMENT_BYTES)
    found = tuple(int.from_bytes(data[at : at + ELEMENT_BYTES], "little") for at in starts)
    if any(element >= MODULUS for element in found):
        raise InvalidInputError("A vector of Prio3 has an element outside of its field.")
    return found


def signed(elements: Iterable[int]) -> tuple[int, ...]:
    """Whole numbers from elements of the field: those above the middle stand for negative ones.

    An aggregate without noise is never negative, so libraries return the element itself. With
    noise a small count may be below 0.

    >>> signed([3, MODULUS - 2])
    (3, -2)
    """
    return tuple(each - MODULUS if each > MODULUS // 2 else each for each in elements)
