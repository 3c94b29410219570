"""How Prio3 writes a count from 0 to a maximum: zeros and ones that can weigh no more than it."""

from collections.abc import Sequence

from contrib.dap.field import MODULUS
from fedprikl.errors import InvalidInputError

__all__ = ["bit_weights", "from_bits", "to_bits"]


def bit_weights(maximum: int) -> tuple[int, ...]:
    """What each bit of a count from 0 to `maximum` weighs: together, exactly the maximum.

        1, 2, 4, ..., 2^(b-2),  maximum - (2^(b-1) - 1),      b = bit_length(maximum)

    So no bits stand for more than the maximum, and whether they are bits is all that a proof has
    to show. VDAF draft, section 7.4.2.

    >>> bit_weights(20)
    (1, 2, 4, 8, 5)
    """
    powers = tuple(1 << place for place in range(maximum.bit_length() - 1))
    return (*powers, maximum - sum(powers))


def to_bits(count: int, maximum: int) -> tuple[int, ...]:
    """The bits of a count. The last one is set only where the others do not suffice.

    >>> to_bits(3, 20), to_bits(20, 20)
    ((1, 1, 0, 0, 0), (1, 1, 1, 1, 1))
    """
    if not 0 <= count <= maximum:
        raise InvalidInputError("A count for Prio3 lies between 0 and the maximum of its task.")
    *powers, last = bit_weights(maximum)
    needed = count > sum(powers)
    below = count - last if needed else count
    return (*(below // power % 2 for power in powers), int(needed))


def from_bits(bits: Sequence[int], maximum: int) -> int:
    """The count of its bits, modulo the prime. Linear, so it reads shares of bits as well.

    >>> from_bits((1, 1, 0, 0, 0), 20)
    3
    """
    weights = bit_weights(maximum)
    return sum(weight * bit for weight, bit in zip(weights, bits, strict=True)) % MODULUS
