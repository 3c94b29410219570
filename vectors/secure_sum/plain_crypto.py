"""The cryptography of the secure sum in plain Python integers: slow, short, not for real use.

Written from the RFCs (7748 X25519, 8032 Ed25519, 8439 ChaCha20-Poly1305, 5869 HKDF) and from
nothing else, so that an agreement with the library is evidence. Nothing here is constant
time.
"""

import hashlib
import hmac

P = 2**255 - 19


# X25519, RFC 7748


def x25519(scalar: bytes, point: bytes) -> bytes:
    """The Montgomery ladder."""
    k = int.from_bytes(scalar, "little")
    k = (k & ~7 & ~(1 << 255)) | (1 << 254)
    u = int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in reversed(range(255)):
        swap = (k >> bit) & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def x25519_public(scalar: bytes) -> bytes:
    """The public key of 32 private bytes."""
    return x25519(scalar, (9).to_bytes(32, "little"))


# Ed25519, RFC 8032 (signing is deterministic, so signatures can be compared)

L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
BASE_Y = 4 * pow(5, P - 2, P) % P
Point = tuple[int, int, int, int]  # X, Y, Z, T with x = X/Z, y = Y/Z, x y = T/Z


def _recover_x(y: int) -> int:
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P)
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return P - x if x % 2 else x


BASE: Point = (_recover_x(BASE_Y), BASE_Y, 1, _recover_x(BASE_Y) * BASE_Y % P)


def _add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(k: int, p: Point) -> Point:
    total: Point = (0, 1, 1, 0)
    while k:
        if k & 1:
            total = _add(total, p)
        p, k = _add(p, p), k >> 1
    return total


def _compress(p: Point) -> bytes:
    inverse = pow(p[2], P - 2, P)
    x, y = p[0] * inverse % P, p[1] * inverse % P
    return (y | ((x & 1) << 255)).to_bytes(32, "little")


def _expanded(private: bytes) -> tuple[int, bytes]:
    h = hashlib.sha512(private).digest()
    a = int.from_bytes(h[:32], "little")
    return (a & ~7 & ~(1 << 255)) | (1 << 254), h[32:]


def ed25519_public(private: bytes) -> bytes:
    """The public key of 32 private bytes."""
    return _compress(_times(_expanded(private)[0], BASE))


def ed25519_sign(private: bytes, message: bytes) -> bytes:
    """The 64-byte signature."""
    a, prefix = _expanded(private)
    public = _compress(_times(a, BASE))
    r = int.from_bytes(hashlib.sha512(prefix + message).digest(), "little") % L
    big_r = _compress(_times(r, BASE))
    h = int.from_bytes(hashlib.sha512(big_r + public + message).digest(), "little")
    return big_r + ((r + h * a) % L).to_bytes(32, "little")


# ChaCha20 and Poly1305, RFC 8439


def _rotate(x: int, n: int) -> int:
    return ((x << n) | (x >> (32 - n))) & 0xFFFFFFFF


def _quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & 0xFFFFFFFF
        s[z] = _rotate(s[z] ^ s[x], n)


def chacha20(key: bytes, length: int, counter: int = 0, nonce: bytes = bytes(12)) -> bytes:
    """The first bytes of the key stream."""
    words = [int.from_bytes(key[i : i + 4], "little") for i in range(0, 32, 4)]
    tail = [int.from_bytes(nonce[i : i + 4], "little") for i in range(0, 12, 4)]
    out = b""
    while len(out) < length:
        start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *words, counter, *tail]
        state = list(start)
        for _ in range(10):
            for i in range(4):
                _quarter(state, i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                _quarter(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        pairs = zip(state, start, strict=True)
        out += b"".join(((x + y) & 0xFFFFFFFF).to_bytes(4, "little") for x, y in pairs)
        counter += 1
    return out[:length]


def _poly1305(key: bytes, data: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(data), 16):
        block = data[i : i + 16] + b"\1"
        total = (total + int.from_bytes(block, "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def chacha20_poly1305(key: bytes, nonce: bytes, plain: bytes, bound: bytes) -> bytes:
    """The sealed box: ciphertext and tag."""
    stream = chacha20(key, len(plain), 1, nonce)
    cipher = bytes(x ^ y for x, y in zip(plain, stream, strict=True))
    data = bound + bytes(-len(bound) % 16) + cipher + bytes(-len(cipher) % 16)
    data += len(bound).to_bytes(8, "little") + len(cipher).to_bytes(8, "little")
    return cipher + _poly1305(chacha20(key, 32, 0, nonce), data)


# HKDF-SHA256, RFC 5869


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """Extract and expand."""
    key = hmac.digest(salt, secret, "sha256")
    out, block, i = b"", b"", 1
    while len(out) < length:
        block = hmac.digest(key, block + info + bytes([i]), "sha256")
        out, i = out + block, i + 1
    return out[:length]
