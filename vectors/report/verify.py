"""Recomputes every byte of the test vectors of reports, in plain Python integers.

    python vectors/report/verify.py [FILE ...]

Deliberately naive and independent of the library: no numpy, no `cryptography`, no fedprikl. It
exits with 0 if every good vector is exactly what docs/reference/report-message.md says, any two of
its shares restore the counts, every message opens, and the message of every `bad_*` vector is
refused with the error that it names.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "secure_sum"))

from plain_crypto import ed25519_public, ed25519_sign
from plain_sealing import DoesNotOpenError, aes_ctr, check_signature, public_key, seal, unseal

HERE = Path(__file__).parent
PRIME = 2**61 - 1
SUITES = {"x25519": 1, "hybrid": 2}
ENCAPSULATED = {1: 32, 2: 1120}
SEAL, SIGN = b"fedprikl/report/1/seal/", b"fedprikl/report/1/sign/"


class MismatchError(Exception):
    """A vector that is not what the specification says."""


class RefusedError(Exception):
    """A message that is refused; its words are the name of the error."""


def packed(numbers: list[int]) -> bytes:
    """Eight bytes each, little endian."""
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def expand(seed: bytes, entries: int) -> list[int]:
    """Uniform numbers below 2^61 - 1."""
    stream = aes_ctr(seed, bytes(16), 8 * (entries + 8))
    words = [int.from_bytes(stream[i : i + 8], "little") % 2**61 for i in range(0, len(stream), 8)]
    return [word for word in words if word != PRIME][:entries]


def head_of(vector: dict[str, Any], server: int) -> bytes:
    """The header of a message."""
    identity = bytes.fromhex(vector["identity"])
    head = b"FPR\1" + bytes([SUITES[vector["suite"]], server, 1 if identity else 0, 0])
    head += vector["period"].to_bytes(4, "little") + bytes.fromhex(vector["plan"])
    head += bytes.fromhex(vector["report_id"])
    return head + (ed25519_public(identity) if identity else b"")


def messages_of(vector: dict[str, Any]) -> tuple[list[bytes], list[bytes]]:
    """The three shares and the three messages."""
    seed, identity = bytes.fromhex(vector["seed"]), bytes.fromhex(vector["identity"])
    entries = [int(count) for count in vector["counts"]]
    entries += expand(bytes.fromhex(vector["mask"]), 1)
    first = expand(seed, len(entries))
    shares = [
        packed([(f0 + i * (f1 - f0)) % PRIME for f0, f1 in zip(entries, first, strict=True)])
        for i in (1, 2, 3)
    ]
    messages = []
    for server, share, keys in zip((1, 2, 3), shares, vector["servers"], strict=True):
        public, coins = bytes.fromhex(keys["public"]), bytes.fromhex(keys["coins"])
        if public != public_key(bytes.fromhex(keys["private"])):
            raise MismatchError(f"the public key of server {server}")
        head = head_of(vector, server)
        message = head + seal(seed if server == 1 else share, public, SEAL + head, coins)
        if identity:
            body = SIGN + head + hashlib.sha256(message[len(head) :]).digest()
            message += ed25519_sign(identity, body)
        messages.append(message)
    return shares, messages


def opened(message: bytes, private: bytes, reader: dict[str, Any]) -> bytes:
    """What a server reads: its share as bytes; a `RefusedError` if the message is wrong."""
    if len(message) < 60 or message[:4] != b"FPR\1" or message[7]:
        raise RefusedError("MessageDecodeError")
    suite, server, signed = message[4], message[5], message[6]
    if suite not in ENCAPSULATED or server not in (1, 2, 3) or signed > 1:
        raise RefusedError("MessageDecodeError")
    around = 60 + 96 * signed + ENCAPSULATED[suite] + 16
    if server == 1 and len(message) != around + 32:
        raise RefusedError("MessageDecodeError")
    told = message[12:44].hex(), int.from_bytes(message[8:12], "little"), server
    if told != (reader["plan"], reader["period"], reader["server"]):
        raise RefusedError("ReportAddressError")
    numbers = reader["entries"] + 1
    if server != 1 and len(message) != around + 8 * numbers:
        raise RefusedError("MessageDecodeError")
    head, sealed = message[: 60 + 32 * signed], message[60 + 32 * signed :]
    try:
        if signed:
            sealed, signature = sealed[:-64], sealed[-64:]
            body = SIGN + head + hashlib.sha256(sealed).digest()
            check_signature(head[60:], signature, body)
        text = unseal(sealed, private, SEAL + head)
    except DoesNotOpenError:
        raise RefusedError("ReportSealError") from None
    if server == 1:
        return packed(expand(text, numbers))
    if any(int.from_bytes(text[i : i + 8], "little") >= PRIME for i in range(0, len(text), 8)):
        raise RefusedError("MessageDecodeError")
    return text


def check_lines(vector: dict[str, Any]) -> None:
    """Any two servers restore the counts: f(0) = 2 f(1) - f(2), and so on."""
    rows = [bytes.fromhex(share) for share in vector["shares"]]
    one, two, three = (
        [int.from_bytes(row[i : i + 8], "little") for i in range(0, len(row), 8)] for row in rows
    )
    counts = [int(count) % PRIME for count in vector["counts"]]
    half = (PRIME + 1) // 2
    for at, count in enumerate(counts):
        pairs = [
            2 * one[at] - two[at],
            (3 * one[at] - three[at]) * half,
            3 * two[at] - 2 * three[at],
        ]
        if any(each % PRIME != count for each in pairs):
            raise MismatchError(f"the shares of entry {at}")


def verify(vector: dict[str, Any]) -> None:
    """Refuses a vector that is not what the specification says, or bad in another way."""
    shares, messages = messages_of(vector)
    if vector["shares"] != [share.hex() for share in shares]:
        raise MismatchError("the shares")
    if vector["messages"] != [message.hex() for message in messages]:
        raise MismatchError("the messages")
    check_lines(vector)
    privates = [bytes.fromhex(keys["private"]) for keys in vector["servers"]]
    reader = {name: vector[name] for name in ("plan", "period")}
    reader["entries"] = len(vector["counts"])
    for server, (message, share) in enumerate(zip(messages, shares, strict=True), start=1):
        if opened(message, privates[server - 1], {**reader, "server": server}) != share:
            raise MismatchError(f"what server {server} reads")
    if "bad" in vector:
        check_refusal(vector["bad"], privates)


def check_refusal(bad: dict[str, Any], privates: list[bytes]) -> None:
    """Refuses a bad message that opens, or with another error."""
    said = "nothing"
    try:
        opened(bytes.fromhex(bad["message"]), privates[bad["reader"]["server"] - 1], bad["reader"])
    except RefusedError as error:
        said = str(error)
    if said != bad["error"]:
        raise MismatchError(f"refused with {said}, should be with {bad['error']}")


def main(names: list[str]) -> int:
    """Checks the files; 0 if all are as they should be."""
    files = [Path(name) for name in names] or sorted(HERE.glob("*.json"))
    wrong = 0
    for path in files:
        vector = json.loads(path.read_text(encoding="utf-8"))
        try:
            if path.name.startswith("bad_") != ("bad" in vector):
                raise MismatchError("a bad vector must be called one")
            verify(vector)
            print(f"ok    {path.name}")
        except MismatchError as error:
            wrong += 1
            print(f"WRONG {path.name}: {error}")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
