"""Which of many shares are wrong: Reed-Solomon decoding of Shamir shares [Gao 2003].

The shares of one limb at the points x_1 ... x_m are the values of a polynomial f of degree
below t, so m shares with at most (m - t) / 2 wrong ones have only one such f near them. Gao's
decoder finds it with Euclid's algorithm:

    g_0 = prod_i (x - x_i),   g_1 = the polynomial of degree below m through all shares,
    divide until the remainder g has degree below (m + t) / 2, with g = u g_0 + v g_1;
    then f = g / v, if that leaves no remainder and has degree below t.

Polynomials are arrays of coefficients mod p, lowest first, without leading zeros.
"""

import numpy as np

from fedprikl.checks import Ints
from fedprikl.secure_sum.shamir import PRIME, evaluate

__all__ = ["fitting"]

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
        before, after = after, _subtract(before, _multiply(quotient, after))
    polynomial, rest = _divide(newer, after)
    return None if len(rest) or len(polynomial) > threshold else polynomial


def _trim(polynomial: Ints) -> Ints:
    used = np.flatnonzero(polynomial)
    return polynomial[: used[-1] + 1] if len(used) else _ZERO


def _subtract(left: Ints, right: Ints) -> Ints:
    result = np.zeros(max(len(left), len(right)), dtype=np.int64)
    result[: len(left)] = left
    result[: len(right)] -= right
    return _trim(result % PRIME)


def _multiply(left: Ints, right: Ints) -> Ints:
    result = np.zeros(len(left) + len(right) - 1, dtype=np.int64)
    for place, factor in enumerate(left.tolist()):
        result[place : place + len(right)] += factor * right % PRIME
    return _trim(result % PRIME)


def _divide(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Quotient and remainder; `right` is not zero."""
    rest, inverse = left.copy(), pow(int(right[-1]), -1, PRIME)
    quotient = np.zeros(max(len(left) - len(right) + 1, 0), dtype=np.int64)
    for place in reversed(range(len(quotient))):
        window = slice(place, place + len(right))
        quotient[place] = rest[window][-1] * inverse % PRIME
        rest[window] = (rest[window] - quotient[place] * right) % PRIME
    return quotient, _trim(rest)
