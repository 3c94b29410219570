"""Shamir's t-of-k secret sharing [Shamir 1979] of 32-byte secrets, as one matrix product.

A secret is cut into 18 limbs of 15 bits, and every limb is shared by its own polynomial
over the field of p = 65521 elements, the largest prime below 2^16:

    f(x) = limb + a_1 x + ... + a_(t-1) x^(t-1)  mod p,   a_i uniform in the field

so fewer than t shares of a limb are uniform whatever the limb is, and limbs do not help
each other because their coefficients are independent. A small field is what makes this
fast: products stay below 2^32 and t of them below 2^53, so all shares of all limbs are one
exact floating-point matrix product instead of thousands of big-integer multiplications.
A share is 36 bytes for 32 bytes of secret.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints

PRIME = 65521
SECRET_BYTES = 32
LIMB_BITS = 15
LIMBS = 18  # 18 * 15 = 270 >= 256
SHARE_BYTES = 2 * LIMBS

Stream = Callable[[int], bytes]
"""The next so many bytes of a random stream."""


def to_limbs(secret: bytes) -> Ints:
    """The 18 limbs of a secret, lowest first: base-2^15 digits of the little-endian number."""
    number = int.from_bytes(secret, "little")
    digits = [(number >> (LIMB_BITS * i)) & 0x7FFF for i in range(LIMBS)]
    return np.asarray(digits, dtype=np.int64)


def from_limbs(limbs: Ints) -> bytes | None:
    """The inverse of `to_limbs`; None for limbs that no secret has."""
    number = sum(int(limb) << (LIMB_BITS * i) for i, limb in enumerate(limbs))
    if int(limbs.max()) >> LIMB_BITS or number >> (8 * SECRET_BYTES):
        return None
    return number.to_bytes(SECRET_BYTES, "little")


def uniform_coefficients(rows: int, columns: int, stream: Stream) -> Ints:
    """A matrix of independent uniform field elements, row by row from a random stream.

    The stream is read as little-endian 16-bit words; the 15 words from p up are skipped, so
    that every field element is equally likely.
    """
    need = rows * columns
    kept = np.empty(0, dtype=np.int64)
    while len(kept) < need:
        words = np.frombuffer(stream(2 * (need - len(kept))), dtype="<u2").astype(np.int64)
        kept = np.concatenate((kept, words[words < PRIME]))
    return kept.reshape(rows, columns)


def share(secrets: Ints, points: Ints, threshold: int, stream: Stream) -> Ints:
    """Shares of limbs for the holders at `points`: one row per holder, one column per limb."""
    random_rows = uniform_coefficients(threshold - 1, len(secrets), stream)
    coefficients = np.vstack((secrets[None, :], random_rows))
    return evaluate(coefficients, points)


def evaluate(coefficients: Ints, points: Ints) -> Ints:
    """Polynomials, one per column with the lowest coefficient first, at points: one row each."""
    return _exact_product(_powers(points, len(coefficients)), coefficients)


def lagrange_at_zero(points: Ints) -> Ints:
    """Weights l_j with f(0) = sum_j l_j f(x_j), for each row of distinct non-zero points.

    l_j = prod_(m != j) x_m / (x_m - x_j)  mod p
    """
    numerators = np.ones(points.shape[0], dtype=np.int64)
    denominators = points % PRIME
    for m in range(points.shape[1]):
        other = points[:, m]
        numerators = numerators * other % PRIME
        gaps = (other[:, None] - points) % PRIME
        gaps[:, m] = 1
        denominators = denominators * gaps % PRIME
    return numerators[:, None] * _inverse(denominators) % PRIME


def reconstruct(points: Ints, shares: Ints) -> Ints:
    """The limbs behind t shares each: points (owners, t), shares (owners, t, limbs)."""
    weights = lagrange_at_zero(points)
    return _exact_product(weights[:, None, :], shares)[:, 0, :]


def encode_shares(shares: Ints) -> list[bytes]:
    """Each row of field elements as little-endian 16-bit words."""
    flat = shares.astype("<u2").tobytes()
    size = 2 * shares.shape[1]
    return [flat[i : i + size] for i in range(0, len(flat), size)]


def all_in_field(shares: Sequence[bytes]) -> bool:
    """Whether every word of these encoded shares is a field element."""
    words = np.frombuffer(b"".join(shares), dtype="<u2")
    return bool(np.all(words < PRIME))


def _powers(points: Ints, count: int) -> Ints:
    """The matrix x^0 ... x^(count-1) mod p, by doubling."""
    powers = np.ones((len(points), 1), dtype=np.int64)
    step = points % PRIME
    while powers.shape[1] < count:
        powers = np.hstack((powers, powers * step[:, None] % PRIME))
        step = step * step % PRIME
    return powers[:, :count]


def _inverse(values: Ints) -> Ints:
    """x^(p-2) mod p, elementwise."""
    result = np.ones_like(values)
    base, exponent = values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * base % PRIME
        base = base * base % PRIME
        exponent >>= 1
    return result


def _exact_product(left: Ints, right: Ints) -> Ints:
    """The matrix product mod p. Exact: t * p^2 < 2^53 for every t below 2^20."""
    product: Floats = np.matmul(left.astype(np.float64), right.astype(np.float64))
    exact: npt.NDArray[np.int64] = product.astype(np.int64) % PRIME
    return exact


_ZERO: Ints = np.zeros(0, dtype=np.int64)


def fitting(points: Ints, shares: Ints, threshold: int) -> Ints | None:
    """The places of the shares that fit one polynomial per limb, or None if too many are wrong.

    Shares are rows, one per point, with one column per limb. Every set of at most (m - t) / 2
    wrong rows is found: decoding a column takes away the rows that are wrong in it, and what
    is left has still two rows to spare for each wrong one.
    """
    kept = np.arange(len(points))
    while True:
        product, through = _interpolate(points[kept], shares[kept])
        spoilt = np.flatnonzero(through[threshold:].any(axis=0))
        if not len(spoilt):
            return kept
        limb = spoilt[0]
        polynomial = _decode(product, _trim(through[:, limb]), threshold)
        if polynomial is None:
            return None
        fits = evaluate(polynomial[:, None], points[kept])[:, 0] == shares[kept, limb]
        kept = kept[fits]


def _interpolate(points: Ints, values: Ints) -> tuple[Ints, Ints]:
    """prod_i (x - x_i), and per column the polynomial through all values [Newton].

    Point after point, each column gets that multiple of the product so far which it misses.
    """
    count = len(points)
    powers = evaluate(np.eye(count, dtype=np.int64), points)
    product = np.zeros(count + 1, dtype=np.int64)
    product[0] = 1
    through = np.zeros_like(values)
    for i, x in enumerate(points.tolist()):
        inverse = pow(int(powers[i] @ product[:count]) % PRIME, -1, PRIME)
        missing = (values[i] - powers[i] @ through) % PRIME * inverse % PRIME
        through = (through + np.outer(product[:count], missing)) % PRIME
        product = (np.roll(product, 1) - x * product) % PRIME
    return product, through


def _decode(product: Ints, through: Ints, threshold: int) -> Ints | None:
    """The polynomial of degree below t that at most (m - t) / 2 of the values miss."""
    held = len(product) - 1
    older, newer = product, through
    before, after = _ZERO, np.ones(1, dtype=np.int64)
    while 2 * (len(newer) - 1) >= held + threshold:
        quotient, rest = _divide(older, newer)
        older, newer = newer, rest
        step = np.convolve(quotient, after)  # of higher degree than `before`
        step[: len(before)] -= before
        before, after = after, -step % PRIME
    polynomial, rest = _divide(newer, after)
    return None if len(rest) or len(polynomial) > threshold else polynomial


def _trim(polynomial: Ints) -> Ints:
    used = np.flatnonzero(polynomial)
    return polynomial[: used[-1] + 1] if len(used) else _ZERO


def _divide(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Quotient and remainder; `right` is not zero."""
    rest, inverse = left.copy(), pow(int(right[-1]), -1, PRIME)
    quotient = np.zeros(max(len(left) - len(right) + 1, 0), dtype=np.int64)
    for place in reversed(range(len(quotient))):
        window = slice(place, place + len(right))
        quotient[place] = rest[window][-1] * inverse % PRIME
        rest[window] = (rest[window] - quotient[place] * right) % PRIME
    return quotient, _trim(rest)
