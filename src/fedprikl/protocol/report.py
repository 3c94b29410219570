"""A report: all that a client sends when three servers add up, as three messages and no answer.

    make_reports    runs at the client: a vector of counts becomes one sealed message per server
    read_header     runs at a server: who and what a message is for, before anything is opened
    open_report     runs at a server: its share of the vector

On the wire (docs/reference/report-message.md has every byte):

    header      FPR, version, suite, server, whether signed, 0, period, plan, report id [, identity]
    sealed      HPKE of the share; the header is its `info`, so the seal fits no other one
    signature   only with an identity: Ed25519 over the header and the hash of what is sealed

The share of server 1 is the seed of a stream, those of servers 2 and 3 are numbers of eight bytes
(`secure_sum.line_shares`). The last number of a share belongs to the mask, a random entry with
which the servers later check that the three shares lie on lines and learn nothing else.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PublicKey, Suite

from fedprikl.checks import Ints
from fedprikl.errors import (
    InvalidInputError,
    MessageDecodeError,
    ReportAddressError,
    ReportSealError,
    SealError,
)
from fedprikl.protocol.keys import OpeningKey, SigningKey, verify_signature
from fedprikl.secure_sum.line_shares import (
    ENTRY_BYTES,
    PRIME,
    SEED_BYTES,
    SERVERS,
    Field,
    expand,
    from_field,
    split,
)

SuiteName: TypeAlias = Literal["x25519", "hybrid"]

SUITES: tuple[SuiteName, ...] = get_args(SuiteName)  # number 1 and 2 on the wire
LARGEST_PERIOD = 2**32 - 1
VERSION = 1
_MAGIC = b"FPR" + bytes([VERSION])
_HEAD = struct.Struct("<4s3B1xI32s16s")
_KEY_BYTES, _SIGNATURE_BYTES, _TAG_BYTES = 32, 64, 16
_SEAL = b"fedprikl/report/1/seal/"
_SIGN = b"fedprikl/report/1/sign/"
_KEMS = {"x25519": KEM.X25519, "hybrid": KEM.MLKEM768_X25519}
_LATTICE_BYTES = 1184  # public key of ML-KEM-768; that of X25519 follows


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportHeader:
    """What a message is for, and from whom. Everybody may read it."""

    plan: bytes  # fingerprint of the plan
    period: int
    server: int  # 1, 2 or 3
    report_id: bytes  # random, the same in the three messages of a report
    suite: SuiteName
    identity: bytes | None = None  # public key of a member of the roster, who signs

    def to_bytes(self) -> bytes:
        """The first bytes of the message."""
        return _HEAD.pack(
            _MAGIC,
            SUITES.index(self.suite) + 1,
            self.server,
            self.identity is not None,
            self.period,
            self.plan,
            self.report_id,
        ) + (self.identity or b"")


def message_bytes(entries: int, *, server: int, suite: SuiteName, signed: bool) -> int:
    """Length of a server's message, in bytes: it depends on nothing but the plan."""
    share = SEED_BYTES if server == 1 else ENTRY_BYTES * (entries + 1)
    sealed = _KEMS[suite].enc_length() + share + _TAG_BYTES
    return _HEAD.size + sealed + (_KEY_BYTES + _SIGNATURE_BYTES) * signed


def make_reports(
    vector: Ints,
    *,
    plan: bytes,
    period: int,
    suite: SuiteName,
    servers: Sequence[str],
    identity: SigningKey | None = None,
    randomness: Callable[[int], bytes] = os.urandom,
) -> tuple[bytes, bytes, bytes]:
    """The messages to servers 1, 2 and 3. Runs at the client; each is sealed, none tells a count.

    `servers` are their public keys in hexadecimal digits. `randomness` gives the report id and what
    the shares are made of; seals always take the operating system's. To send a report again, send
    the same bytes: called again, this makes another report.
    """
    if len(servers) != len(SERVERS):
        raise InvalidInputError(f"A report goes to {len(SERVERS)} servers, got {len(servers)}.")
    if len(plan) != 32 or not 0 <= period <= LARGEST_PERIOD or suite not in SUITES:
        raise InvalidInputError(
            "A report names the fingerprint of a plan (32 bytes), a period from 0 and a suite: "
            f"{' or '.join(SUITES)}."
        )
    report_id, shares = randomness(16), share_bytes(vector, randomness(SEED_BYTES), randomness(32))
    signer = None if identity is None else bytes.fromhex(identity.public)
    first, second, third = (
        _message(
            ReportHeader(
                plan=plan,
                period=period,
                server=server,
                report_id=report_id,
                suite=suite,
                identity=signer,
            ),
            share,
            public,
            identity,
        )
        for server, share, public in zip(SERVERS, shares, servers, strict=True)
    )
    return first, second, third


def share_bytes(vector: Ints, seed: bytes, mask: bytes) -> tuple[bytes, bytes, bytes]:
    """SECRET: what is sealed for servers 1, 2 and 3. `seed` and `mask` are 32 random bytes each."""
    masked = np.append(np.asarray(vector, dtype=np.int64), from_field(expand(mask, 1)))
    second, third = split(masked, seed)
    return seed, second.astype("<u8").tobytes(), third.astype("<u8").tobytes()


def _message(header: ReportHeader, share: bytes, public: str, identity: SigningKey | None) -> bytes:
    head = header.to_bytes()
    try:
        sealed = _suite(header.suite).encrypt(
            share, _public_key(public, header.suite), _SEAL + head
        )
    except (ValueError, TypeError):
        raise InvalidInputError(
            f"The key of server {header.server} is no public key of the suite {header.suite}. "
            "Nothing was sent; ask who made the plan."
        ) from None
    return head + sealed + (b"" if identity is None else _signature(identity, head, sealed))


def _signature(identity: SigningKey, head: bytes, sealed: bytes) -> bytes:
    return bytes.fromhex(identity.sign(_signed(head, sealed)))


def _signed(head: bytes, sealed: bytes) -> bytes:
    return _SIGN + head + hashlib.sha256(sealed).digest()


def read_header(message: bytes) -> ReportHeader:
    """What a message is for; what cannot be a report is a `MessageDecodeError`.

    Nothing is opened and no signature is checked: `open_report` does both.
    """
    if len(message) < _HEAD.size:
        raise MessageDecodeError(f"A report has at least {_HEAD.size} bytes, got {len(message)}.")
    magic, suite, server, signed, period, plan, report_id = _HEAD.unpack_from(message)
    if magic != _MAGIC or message[7]:
        raise MessageDecodeError("This is not a report of version 1.")
    if not 1 <= suite <= len(SUITES) or server not in SERVERS or signed > 1:
        raise MessageDecodeError("The header names a suite, a server or a signature of no report.")
    name = SUITES[suite - 1]
    shortest = message_bytes(0, server=server, suite=name, signed=bool(signed))
    if len(message) < shortest or (server == 1 and len(message) > shortest):
        raise MessageDecodeError(
            f"A report for server {server} with the suite {name} has "
            f"{'at least ' * (server != 1)}{shortest} bytes, got {len(message)}."
        )
    return ReportHeader(
        plan=plan,
        period=period,
        server=server,
        report_id=report_id,
        suite=name,
        identity=message[_HEAD.size : _HEAD.size + _KEY_BYTES] if signed else None,
    )


def open_report(
    message: bytes, key: OpeningKey, *, plan: bytes, period: int, server: int, entries: int
) -> tuple[ReportHeader, Field]:
    """The header, and this server's share of the vector and of the mask (`entries` + 1 numbers).

    Runs at a server. Whatever is wrong with the message is a `MessageDecodeError`, and nothing of
    it is used. A signature is checked against the identity in the header; whether the roster holds
    this identity is the caller's to look up.
    """
    header = read_header(message)
    if (header.plan, header.period, header.server) != (plan, period, server):
        raise ReportAddressError("This report is for another plan, period or server.")
    expected = message_bytes(
        entries, server=server, suite=header.suite, signed=header.identity is not None
    )
    if len(message) != expected:
        raise MessageDecodeError(
            f"A report of {entries} numbers for server {server} has {expected} bytes, got "
            f"{len(message)}."
        )
    opened = _open(message, header, key)
    return header, expand(opened, entries + 1) if server == 1 else _numbers(opened)


def _open(message: bytes, header: ReportHeader, key: OpeningKey) -> bytes:
    """SECRET: what was sealed."""
    head = header.to_bytes()
    sealed = message[len(head) :]
    if header.identity is not None:
        sealed, signature = sealed[:-_SIGNATURE_BYTES], sealed[-_SIGNATURE_BYTES:]
        if not verify_signature(header.identity.hex(), signature.hex(), _signed(head, sealed)):
            raise ReportSealError("The signature of this report does not fit its identity.")
    try:
        return key.unseal(_suite(header.suite), sealed, _SEAL + head)
    except SealError:
        raise ReportSealError(
            "This report does not open: it was sealed for another key, or changed on the way."
        ) from None


def _numbers(opened: bytes) -> Field:
    numbers = np.frombuffer(opened, dtype="<u8").astype(np.uint64)
    if numbers.max() >= PRIME:
        raise MessageDecodeError("A report holds a number that is not below 2^61 - 1.")
    return numbers


@lru_cache
def _suite(name: SuiteName) -> Suite:
    try:
        return Suite(_KEMS[name], KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    except UnsupportedAlgorithm:
        raise InvalidInputError(
            f"The library `cryptography` of this machine was built without the suite {name}. "
            "Install it from its wheel."
        ) from None


@lru_cache
def _public_key(public: str, suite: SuiteName) -> X25519PublicKey | MLKEM768X25519PublicKey:
    raw = bytes.fromhex(public)
    if suite == "x25519":
        return X25519PublicKey.from_public_bytes(raw)
    return MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(raw[:_LATTICE_BYTES]),
        X25519PublicKey.from_public_bytes(raw[_LATTICE_BYTES:]),
    )
