"""The cryptography of reports in plain Python integers: slow, short, not for real use.

Written from the standards (FIPS 197 AES, SP 800-38D GCM, RFC 9180 HPKE, FIPS 203 ML-KEM, the X-Wing
draft) and from nothing else, so that an agreement with the library is evidence. Nothing here is
constant time.
"""

import hashlib
import hmac
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "secure_sum"))

from plain_crypto import (
    BASE,
    D,
    L,
    P,
    Point,
    _add,
    _compress,
    _recover_x,
    _times,
    x25519,
    x25519_public,
)


class DoesNotOpenError(Exception):
    """A tag, a signature or a key that does not fit."""


# AES-256, FIPS 197


def _double(x: int) -> int:
    return (x << 1) ^ (0x11B if x & 0x80 else 0)


def _s_box() -> list[int]:
    box, p, q = [0x63] * 256, 1, 1
    while True:
        p ^= _double(p)  # times 3
        for shift in (1, 2, 4):
            q ^= q << shift & 0xFF
        q ^= 0x09 if q & 0x80 else 0  # divided by 3
        turned = q
        for shift in (1, 2, 3, 4):
            turned ^= (q << shift | q >> (8 - shift)) & 0xFF
        box[p] = turned ^ 0x63
        if p == 1:
            return box


BOX = _s_box()


def _round_keys(key: bytes) -> list[bytes]:
    words, turn = [key[i : i + 4] for i in range(0, 32, 4)], 1
    while len(words) < 60:
        last = words[-1]
        if len(words) % 8 == 0:
            last = bytes(BOX[x] for x in last[1:] + last[:1])
            last, turn = bytes([last[0] ^ turn]) + last[1:], _double(turn)
        elif len(words) % 8 == 4:
            last = bytes(BOX[x] for x in last)
        words.append(_xor(words[-8], last))
    return [b"".join(words[i : i + 4]) for i in range(0, 60, 4)]


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=False))


def _mixed(state: bytes) -> bytes:
    out = b""
    for i in range(0, 16, 4):
        column = state[i : i + 4]
        total = column[0] ^ column[1] ^ column[2] ^ column[3]
        out += bytes(column[j] ^ total ^ _double(column[j] ^ column[(j + 1) % 4]) for j in range(4))
    return out


def aes_block(keys: list[bytes], block: bytes) -> bytes:
    """One block under the round keys."""
    state = _xor(block, keys[0])
    for number, key in enumerate(keys[1:], start=1):
        state = bytes(BOX[state[(5 * i) % 16]] for i in range(16))  # bytes, then rows shifted
        state = _xor(state if number == 14 else _mixed(state), key)
    return state


def aes_ctr(key: bytes, start: bytes, length: int) -> bytes:
    """The key stream from a counter block on."""
    keys, counter, out = _round_keys(key), int.from_bytes(start, "big"), b""
    while len(out) < length:
        out += aes_block(keys, (counter % 2**128).to_bytes(16, "big"))
        counter += 1
    return out[:length]


# GCM, SP 800-38D


def _gf_times(x: int, y: int) -> int:
    total = 0
    for bit in range(128):
        if x >> (127 - bit) & 1:
            total ^= y
        y = (y >> 1) ^ (0xE1 << 120 if y & 1 else 0)
    return total


def gcm(key: bytes, nonce: bytes, text: bytes) -> tuple[bytes, bytes]:
    """The text with the stream over it, and the tag that fits this text as the sealed one."""
    start = int.from_bytes(nonce + b"\0\0\0\1", "big")
    stream = aes_ctr(key, (start + 1).to_bytes(16, "big"), len(text))
    hashing, total = int.from_bytes(aes_ctr(key, bytes(16), 16), "big"), 0
    data = text + bytes(-len(text) % 16) + bytes(8) + (8 * len(text)).to_bytes(8, "big")
    for i in range(0, len(data), 16):
        total = _gf_times(total ^ int.from_bytes(data[i : i + 16], "big"), hashing)
    mask = aes_ctr(key, start.to_bytes(16, "big"), 16)
    return _xor(text, stream), _xor(total.to_bytes(16, "big"), mask)


# ML-KEM-768, FIPS 203

Q, K = 3329, 3
Poly = list[int]


def _zeta(power: int) -> int:
    return pow(17, power, Q)


TURNED = [int(f"{i:07b}"[::-1], 2) for i in range(128)]


def _ntt(f: Poly) -> Poly:
    f, i, size = list(f), 1, 128
    while size >= 2:
        for start in range(0, 256, 2 * size):
            zeta, i = _zeta(TURNED[i]), i + 1
            for j in range(start, start + size):
                t = zeta * f[j + size]
                f[j], f[j + size] = (f[j] + t) % Q, (f[j] - t) % Q
        size //= 2
    return f


def _back(f: Poly) -> Poly:
    f, i, size = list(f), 127, 2
    while size <= 128:
        for start in range(0, 256, 2 * size):
            zeta, i = _zeta(TURNED[i]), i - 1
            for j in range(start, start + size):
                f[j], f[j + size] = (f[j] + f[j + size]) % Q, zeta * (f[j + size] - f[j]) % Q
        size *= 2
    return [x * 3303 % Q for x in f]


def _product(a: list[Poly], b: list[Poly]) -> Poly:
    """Of two rows, entry by entry, added up."""
    out = [0] * 256
    for f, g in zip(a, b, strict=True):
        for i in range(128):
            even, odd = 2 * i, 2 * i + 1
            out[even] += f[even] * g[even] + f[odd] * g[odd] * _zeta(2 * TURNED[i] + 1)
            out[odd] += f[even] * g[odd] + f[odd] * g[even]
    return [x % Q for x in out]


def _plus(f: Poly, g: Poly) -> Poly:
    return [(x + y) % Q for x, y in zip(f, g, strict=True)]


def _matrix_entry(rho: bytes, row: int, column: int) -> Poly:
    stream = hashlib.shake_128(rho + bytes([column, row])).digest(1200)
    found: Poly = []
    for i in range(0, len(stream), 3):
        a, b, c = stream[i : i + 3]
        found += [x for x in (a + 256 * (b % 16), b // 16 + 16 * c) if x < Q]
    return found[:256]


def _small(seed: bytes, number: int) -> Poly:
    bits = int.from_bytes(hashlib.shake_256(seed + bytes([number])).digest(128), "little")
    four = [bits >> (4 * i) & 15 for i in range(256)]
    return [((x & 1) + (x >> 1 & 1) - (x >> 2 & 1) - (x >> 3)) % Q for x in four]


def _packed(f: Poly, bits: int) -> bytes:
    return sum(x << (bits * i) for i, x in enumerate(f)).to_bytes(32 * bits, "little")


def _unpacked(data: bytes, bits: int) -> Poly:
    number = int.from_bytes(data, "little")
    return [number >> (bits * i) & ((1 << bits) - 1) for i in range(256)]


def _rounded(f: Poly, bits: int) -> Poly:
    return [((x << bits) + Q // 2) // Q % (1 << bits) for x in f]


def _widened(f: Poly, bits: int) -> Poly:
    return [(Q * x + (1 << bits >> 1)) >> bits for x in f]


def mlkem_keys(seed: bytes) -> tuple[bytes, list[Poly]]:
    """The public key of 64 private bytes, and the secret polynomials."""
    both = hashlib.sha3_512(seed[:32] + bytes([K])).digest()
    rho, sigma = both[:32], both[32:]
    secret = [_ntt(_small(sigma, i)) for i in range(K)]
    public = b""
    for i in range(K):
        row = [_matrix_entry(rho, i, j) for j in range(K)]
        public += _packed(_plus(_product(row, secret), _ntt(_small(sigma, K + i))), 12)
    return public + rho, secret


def _encrypt(public: bytes, message: bytes, coins: bytes) -> bytes:
    rho, out = public[-32:], b""
    t = [_unpacked(public[384 * i : 384 * (i + 1)], 12) for i in range(K)]
    y = [_ntt(_small(coins, i)) for i in range(K)]
    for i in range(K):
        column = [_matrix_entry(rho, j, i) for j in range(K)]
        u = _plus(_back(_product(column, y)), _small(coins, K + i))
        out += _packed(_rounded(u, 10), 10)
    bits = _widened(_unpacked(message, 1), 1)
    v = _plus(_plus(_back(_product(t, y)), _small(coins, 2 * K)), bits)
    return out + _packed(_rounded(v, 4), 4)


def mlkem_encapsulate(public: bytes, message: bytes) -> tuple[bytes, bytes]:
    """The shared secret and what is sent, from 32 bytes that stand for randomness."""
    both = hashlib.sha3_512(message + hashlib.sha3_256(public).digest()).digest()
    return both[:32], _encrypt(public, message, both[32:])


def mlkem_open(seed: bytes, sent: bytes) -> bytes:
    """The shared secret; one that nobody knows if what was sent does not fit."""
    public, secret = mlkem_keys(seed)
    u = [_ntt(_widened(_unpacked(sent[320 * i : 320 * (i + 1)], 10), 10)) for i in range(K)]
    v, low = _widened(_unpacked(sent[320 * K :], 4), 4), _back(_product(secret, u))
    message = _packed(_rounded([(x - y) % Q for x, y in zip(v, low, strict=True)], 1), 1)
    shared, again = mlkem_encapsulate(public, message)
    return shared if again == sent else hashlib.shake_256(seed[32:] + sent).digest(32)


# HPKE, RFC 9180: base mode, one message, HKDF-SHA256, AES-256-GCM

X25519_KEM, HYBRID_KEM = 0x0020, 0x647A
XWING = bytes.fromhex("5c2e2f2f5e5c")  # the label of X-Wing


def _extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """At most 32 bytes: one block is enough."""
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labelled + b"\1", "sha256")[:length]


def _dh_secret(shared: bytes, sent: bytes, public: bytes) -> bytes:
    if shared == bytes(32):
        raise DoesNotOpenError("a key of low order")
    suite = b"KEM" + X25519_KEM.to_bytes(2, "big")
    key = _extract(suite, b"", b"eae_prk", shared)
    return _expand(suite, key, b"shared_secret", sent + public, 32)


def _hybrid_secret(lattice: bytes, curve: bytes, sent: bytes, public: bytes) -> bytes:
    return hashlib.sha3_256(lattice + curve + sent + public + XWING).digest()


def public_key(private: bytes) -> bytes:
    """Of 32 private bytes (X25519), or of 96 (ML-KEM-768's seed, then X25519)."""
    if len(private) == 32:
        return x25519_public(private)
    return mlkem_keys(private[:64])[0] + x25519_public(private[64:])


def encapsulate(public: bytes, coins: bytes) -> tuple[int, bytes, bytes]:
    """(KEM, shared secret, what is sent), from 32 or 64 bytes that stand for randomness."""
    one, curve = coins[-32:], public[-32:]
    sent, shared = x25519_public(one), x25519(one, curve)
    if len(public) == 32:
        return X25519_KEM, _dh_secret(shared, sent, public), sent
    lattice, first = mlkem_encapsulate(public[:-32], coins[:32])
    return HYBRID_KEM, _hybrid_secret(lattice, shared, sent, curve), first + sent


def _box_keys(kem: int, shared: bytes, info: bytes) -> tuple[bytes, bytes]:
    suite = b"HPKE" + kem.to_bytes(2, "big") + b"\0\1\0\2"
    context = b"\0" + _extract(suite, b"", b"psk_id_hash", b"")
    context += _extract(suite, b"", b"info_hash", info)
    key = _extract(suite, shared, b"secret", b"")
    return _expand(suite, key, b"key", context, 32), _expand(suite, key, b"base_nonce", context, 12)


def seal(text: bytes, public: bytes, info: bytes, coins: bytes) -> bytes:
    """What is sent of the key, the sealed text and its tag."""
    kem, shared, sent = encapsulate(public, coins)
    key, nonce = _box_keys(kem, shared, info)
    stream, _ = gcm(key, nonce, bytes(len(text)))
    sealed = _xor(text, stream)
    return sent + sealed + gcm(key, nonce, sealed)[1]


def unseal(sealed: bytes, private: bytes, info: bytes) -> bytes:
    """The text; what does not fit is a `DoesNotOpenError`."""
    curve, public = private[-32:], x25519_public(private[-32:])
    if len(private) == 32:
        sent, rest = sealed[:32], sealed[32:]
        kem, shared = X25519_KEM, _dh_secret(x25519(curve, sent), sent, public)
    else:
        sent, rest = sealed[:1120], sealed[1120:]
        lattice, shared = mlkem_open(private[:64], sent[:1088]), x25519(curve, sent[1088:])
        kem, shared = HYBRID_KEM, _hybrid_secret(lattice, shared, sent[1088:], public)
    key, nonce = _box_keys(kem, shared, info)
    text, tag = gcm(key, nonce, rest[:-16])
    if tag != rest[-16:]:
        raise DoesNotOpenError("the tag")
    return text


# Checking a signature, RFC 8032


def _point(data: bytes) -> Point:
    number = int.from_bytes(data, "little")
    y = number % 2**255
    x = _recover_x(y)
    if (y * y - x * x - 1 - D * x * x * y * y) % P:
        raise DoesNotOpenError("no point of the curve")
    x = P - x if x % 2 != number >> 255 else x
    return x, y, 1, x * y % P


def check_signature(public: bytes, signature: bytes, body: bytes) -> None:
    """A `DoesNotOpenError` unless S B = R + h A."""
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + body).digest(), "little") % L
    right = _add(_point(signature[:32]), _times(h, _point(public)))
    if _compress(_times(int.from_bytes(signature[32:], "little"), BASE)) != _compress(right):
        raise DoesNotOpenError("the signature")
