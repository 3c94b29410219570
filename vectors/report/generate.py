"""Writes the test vectors of reports; the same bytes every time.

    python vectors/report/generate.py [DIRECTORY]

A vector is one whole report: counts, keys, everything random, the three shares and the three
messages, in hex; numbers are texts, as JavaScript has no integers of 61 bits. A `bad_*` vector has
one message more, what its reader expects, and the error that the reader must raise.

Shares and headers are the library's. It takes no randomness for seals, so these are made by
plain_sealing.py; the tests open them with the library.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from plain_sealing import public_key, seal

from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.report import ReportHeader, SuiteName, share_bytes
from fedprikl.secure_sum.line_shares import LARGEST, PRIME, expand

Vector = dict[str, Any]
ERRORS = {
    "decode": "MessageDecodeError",
    "address": "ReportAddressError",
    "seal": "ReportSealError",
}


def fixed(name: str, size: int = 32) -> bytes:
    """Bytes that stand for randomness."""
    return hashlib.shake_256(b"fedprikl test vector report " + name.encode()).digest(size)


def signing_key(private: bytes) -> SigningKey:
    """The identity of 32 private bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.from_private_bytes(private))


class Report:
    """One report with everything that went into it."""

    def __init__(
        self, name: str, counts: list[int], *, suite: SuiteName, signed: bool, period: int
    ) -> None:
        self.name, self.counts, hybrid = name, counts, suite == "hybrid"
        self.privates = [fixed(f"{name} server {i}", 96 if hybrid else 32) for i in (1, 2, 3)]
        self.coins = [fixed(f"{name} seal {i}", 64 if hybrid else 32) for i in (1, 2, 3)]
        self.publics = [public_key(private) for private in self.privates]
        self.seed, self.mask = fixed(f"{name} seed"), fixed(f"{name} mask")
        self.identity = fixed(f"{name} identity") if signed else None
        self.texts = share_bytes(np.array(counts), self.seed, self.mask)
        self.header = ReportHeader(
            plan=fixed(f"{name} plan"),
            period=period,
            server=1,
            report_id=fixed(f"{name} id", 16),
            suite=suite,
            identity=None if self.identity is None else self._public(self.identity),
        )

    @staticmethod
    def _public(identity: bytes) -> bytes:
        return bytes.fromhex(signing_key(identity).public)

    def message(
        self,
        server: int,
        *,
        header: ReportHeader | None = None,
        text: bytes | None = None,
        key: int | None = None,
    ) -> bytes:
        """The message to a server; or one with another header, text or key under the seal."""
        head = (header or replace(self.header, server=server)).to_bytes()
        public = self.publics[(key or server) - 1]
        info = b"fedprikl/report/1/seal/" + head
        text = self.texts[server - 1] if text is None else text
        return self.signed(head, seal(text, public, info, self.coins[server - 1]))

    def signed(self, head: bytes, sealed: bytes) -> bytes:
        """Header and seal, with the signature of the identity if there is one."""
        if self.identity is None:
            return head + sealed
        body = b"fedprikl/report/1/sign/" + head + hashlib.sha256(sealed).digest()
        return head + sealed + bytes.fromhex(signing_key(self.identity).sign(body))

    def vector(self) -> Vector:
        """As it is published."""
        first = expand(self.seed, len(self.counts) + 1).astype("<u8").tobytes()
        return {
            "name": self.name,
            "suite": self.header.suite,
            "plan": self.header.plan.hex(),
            "period": self.header.period,
            "report_id": self.header.report_id.hex(),
            "counts": [str(count) for count in self.counts],
            "seed": self.seed.hex(),
            "mask": self.mask.hex(),
            "identity": "" if self.identity is None else self.identity.hex(),
            "servers": [
                {"private": private.hex(), "public": public.hex(), "coins": coins.hex()}
                for private, public, coins in zip(
                    self.privates, self.publics, self.coins, strict=True
                )
            ],
            "shares": [share.hex() for share in (first, *self.texts[1:])],
            "messages": [self.message(server).hex() for server in (1, 2, 3)],
        }

    def bad(self, name: str, error: str, message: bytes, **expects: Any) -> Vector:
        """The report with one more message, which its reader refuses."""
        reader = {
            "plan": self.header.plan.hex(),
            "period": self.header.period,
            "server": 2,
            "entries": len(self.counts),
            **expects,
        }
        bad = {"message": message.hex(), "reader": reader, "error": ERRORS[error]}
        return {**self.vector(), "name": f"bad_{name}", "bad": bad}


def changed(message: bytes, at: int, byte: int | None = None) -> bytes:
    """With one byte replaced, or its lowest bit turned."""
    at %= len(message)
    new = message[at] ^ 1 if byte is None else byte
    return message[:at] + bytes([new]) + message[at + 1 :]


def malformed(report: Report) -> list[Vector]:
    """What is no message, whatever the keys."""
    message, outside = report.message(2), PRIME.to_bytes(8, "little")
    text = report.texts[1]
    cases = [
        ("empty", b""),
        ("header_cut", message[:59]),
        ("magic", b"FSS\1" + message[4:]),
        ("version", changed(message, 3, 2)),
        ("suite", changed(message, 4, 3)),
        ("server_number", changed(message, 5, 4)),
        ("signed_flag", changed(message, 6, 2)),
        ("reserved", changed(message, 7, 1)),
        ("truncated", message[:-1]),
        ("trailing", message + b"\0"),
        ("number_outside_field", report.message(2, text=text[:-8] + outside)),
        ("one_number_less", report.message(2, text=text[:-8])),
    ]
    return [
        *(report.bad(name, "decode", data) for name, data in cases),
        report.bad("seed_of_31_bytes", "decode", report.message(1, text=report.seed[1:]), server=1),
    ]


def misdirected(report: Report) -> list[Vector]:
    """What belongs elsewhere, with its own header or with one made to fit."""
    message, here = report.message(2), replace(report.header, server=2)
    sealed = message[len(here.to_bytes()) :]
    other = fixed("another plan")
    return [
        report.bad("other_plan", "address", message, plan=other.hex()),
        report.bad("other_period", "address", message, period=here.period + 1),
        report.bad("other_server", "address", report.message(3)),
        report.bad(
            "plan_edited",
            "seal",
            replace(here, plan=other).to_bytes() + sealed,
            plan=other.hex(),
        ),
        report.bad(
            "period_edited",
            "seal",
            replace(here, period=here.period + 1).to_bytes() + sealed,
            period=here.period + 1,
        ),
        report.bad(
            "server_edited", "seal", here.to_bytes() + report.message(3)[len(here.to_bytes()) :]
        ),
        report.bad(
            "report_id_edited", "seal", replace(here, report_id=bytes(16)).to_bytes() + sealed
        ),
        report.bad("other_key", "seal", report.message(2, key=3)),
        report.bad("tag", "seal", changed(message, -1)),
        report.bad("low_order_key", "seal", message[:60] + bytes(32) + message[92:]),
        report.bad("share_changed", "seal", changed(message, 95)),
    ]


def unsigned(report: Report, thief: Report) -> list[Vector]:
    """Signatures that do not fit, and identities that were put on or taken off."""
    message, here = report.message(2), replace(report.header, server=2)
    sealed = message[len(here.to_bytes()) : -64]
    bare = replace(here, identity=None).to_bytes()
    taken = replace(here, identity=thief.header.identity).to_bytes()
    return [
        report.bad("signature", "seal", changed(message, -1)),
        report.bad("signature_of_another", "seal", thief.signed(here.to_bytes(), sealed)),
        report.bad("signature_taken_off", "seal", bare + sealed),
        report.bad("identity_replaced", "seal", thief.signed(taken, sealed)),
    ]


def vectors() -> list[Vector]:
    """All of them."""
    counts = [5, 0, 12, 3, 20]
    plain = Report("x25519", counts, suite="x25519", signed=False, period=0)
    signed = Report("x25519_signed", counts, suite="x25519", signed=True, period=7)
    thief = Report("thief", counts, suite="x25519", signed=True, period=7)
    wide = [0, 1, -1, LARGEST, -LARGEST, 2**32, 2**53 + 1, *range(100)]
    hybrid = Report("hybrid", counts, suite="hybrid", signed=False, period=2**32 - 1)
    sealed = hybrid.message(2)
    return [
        plain.vector(),
        signed.vector(),
        Report("x25519_wide", wide, suite="x25519", signed=False, period=1).vector(),
        hybrid.vector(),
        Report("hybrid_signed", counts, suite="hybrid", signed=True, period=3).vector(),
        *malformed(plain),
        *misdirected(plain),
        *unsigned(signed, thief),
        hybrid.bad("hybrid_lattice_changed", "seal", changed(sealed, 60)),
        hybrid.bad("hybrid_curve_changed", "seal", changed(sealed, 60 + 1088)),
        hybrid.bad("hybrid_cut", "decode", sealed[:-8]),
    ]


def main(names: list[str]) -> None:
    """Writes one file per vector."""
    directory = Path(names[0]) if names else Path(__file__).parent
    for vector in vectors():
        text = json.dumps(vector, indent=1) + "\n"
        (directory / f"{vector['name']}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
