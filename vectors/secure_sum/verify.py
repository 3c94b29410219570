"""Recomputes every byte of the test vectors from the seeds, in plain Python integers.

    python vectors/secure_sum/verify.py [FILE ...]

Deliberately naive and independent of the library: no numpy, no `cryptography`, no fedprikl,
one client after the other, one bit after the other. It exits with 0 if every good vector is
exactly what the protocol says, and every `bad_*` vector differs from it in exactly the one
message or letter that it names.
"""

import hashlib
import hmac
import json
import sys
from pathlib import Path
from typing import Any

from plain_crypto import (
    chacha20,
    chacha20_poly1305,
    ed25519_public,
    ed25519_sign,
    hkdf,
    x25519,
    x25519_public,
)

HERE = Path(__file__).parent
LABEL = b"fedprikl/secure-sum/1/"
PRIME = 65521


class MismatchError(Exception):
    """A vector that is not what the protocol says."""


def u32(number: int) -> bytes:
    """Four bytes, little endian."""
    return number.to_bytes(4, "little")


def derive(secret: bytes, salt: bytes, label: bytes, length: int = 32) -> bytes:
    """The protocol's key derivation."""
    return hkdf(secret, salt, LABEL + label, length)


def records(items: dict[int, bytes]) -> bytes:
    """A list of clients with a body each, ascending."""
    return u32(len(items)) + b"".join(u32(i) + items[i] for i in sorted(items))


def bitmap(members: list[int]) -> bytes:
    """A set of clients."""
    number = sum(1 << i for i in members)
    size = (number.bit_length() + 7) // 8
    return u32(size) + number.to_bytes(size, "little")


class Plan:
    """The public parameters."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.n, self.k, self.t = plan["clients"], plan["neighbours"], plan["threshold"]
        self.maxima, self.roster = plan["maxima"], [bytes.fromhex(key) for key in plan["roster"]]
        encoded = LABEL + b"plan" + bytes.fromhex(plan["nonce"])
        for number in (self.n, self.k, self.t, plan["minimum"], len(self.maxima)):
            encoded += u32(number)
        for top in self.maxima:
            encoded += top.to_bytes(8, "little")
        self.round = hashlib.sha256(encoded + b"".join(self.roster)).digest()
        self.widths = [len(bin(top * self.n)) - 2 for top in self.maxima]
        self.word = 4 if max(self.widths) <= 32 else 8

    def neighbours(self, i: int) -> list[int]:
        """The k nearest on the circle."""
        if self.k == self.n - 1:
            return [j for j in range(self.n) if j != i]
        stream = chacha20(derive(self.round, self.round, b"graph"), 8 * self.n)
        words = [int.from_bytes(stream[8 * j : 8 * j + 8], "little") for j in range(self.n)]
        circle = sorted(range(self.n), key=lambda j: (words[j], j))
        place = circle.index(i)
        steps = [s for s in range(-self.k // 2, self.k // 2 + 1) if s]
        return sorted(circle[(place + s) % self.n] for s in steps)

    def head(self, kind: int) -> bytes:
        """The first bytes of every message."""
        return b"FSS\1" + bytes([kind]) + self.round


class Client:
    """One client's secrets."""

    def __init__(self, plan: Plan, index: int, seed: bytes, identity: bytes | None) -> None:
        block = derive(seed, plan.round, b"client" + u32(index), 160)
        self.seal, self.mask, self.self_seed, self.share, own = (
            block[i : i + 32] for i in range(0, 160, 32)
        )
        self.sign = identity or own
        self.index = index
        self.seal_public, self.mask_public = x25519_public(self.seal), x25519_public(self.mask)

    def shares(self, plan: Plan, holders: list[int]) -> dict[int, tuple[bytes, bytes]]:
        """Per holder, the share of the mask key and of the self seed."""
        numbers = [int.from_bytes(x, "little") for x in (self.mask, self.self_seed)]
        limbs = [(number >> (15 * i)) & 0x7FFF for number in numbers for i in range(18)]
        stream = chacha20(self.share, 2 * 36 * plan.t + 2000)
        words = [int.from_bytes(stream[i : i + 2], "little") for i in range(0, len(stream), 2)]
        field = [word for word in words if word < PRIME]
        out = {}
        for holder in holders:
            values = []
            for limb in range(36):
                value = limbs[limb]
                for power in range(1, plan.t):
                    coefficient = field[(power - 1) * 36 + limb]
                    value += coefficient * (holder + 1) ** power
                values.append((value % PRIME).to_bytes(2, "little"))
            out[holder] = b"".join(values[:18]), b"".join(values[18:])
        return out


def pair_label(what: bytes, i: int, j: int) -> bytes:
    """The label of something that two clients share."""
    return what + u32(min(i, j)) + u32(max(i, j))


class Round:
    """All that happens in one round, from the seeds."""

    def __init__(self, vector: dict[str, Any]) -> None:
        self.plan = Plan(vector["plan"])
        plan, self.leaves = self.plan, vector["leaves"]
        self.inputs = vector["inputs"]
        identities = [bytes.fromhex(key) for key in vector["identities"]]
        self.clients = [
            Client(plan, i, bytes.fromhex(seed), identities[i] if identities else None)
            for i, seed in enumerate(vector["seeds"])
        ]
        everyone = range(plan.n)
        # present[s]: who sends the message of step s
        self.present = [[i for i in everyone if self.leaves[i] > step] for step in range(5)]
        self.dealt = {i: self.clients[i].shares(plan, self.near(i, 0)) for i in self.present[1]}
        alive = self.present[2]
        dropped = [i for i in self.present[1] if i not in alive]
        self.alive, self.dropped = alive, dropped
        self.survivors = plan.head(6) + bitmap(alive) + bitmap(dropped)
        self.adverts = {i: self.advert(i) for i in self.present[0]}
        self.signatures = {i: self.sent(0, i)[-64:] for i in self.present[0]}
        self.boxes = {i: {j: self.box(i, j) for j in self.near(i, 0)} for i in self.present[1]}
        self.tags = {i: {j: self.tag(i, j) for j in self.near(i, 2)} for i in self.present[3]}

    def near(self, i: int, step: int) -> list[int]:
        """The neighbours of i who sent the message of a step."""
        return [j for j in self.plan.neighbours(i) if j in self.present[step]]

    def advert(self, i: int) -> bytes:
        """The three public keys of a client."""
        it = self.clients[i]
        return ed25519_public(it.sign) + it.seal_public + it.mask_public

    def channel(self, i: int, j: int) -> tuple[bytes, bytes]:
        """The sealing key and the echo key of two clients."""
        shared = x25519(self.clients[i].seal, self.clients[j].seal_public)
        keys = derive(shared, self.plan.round, pair_label(b"channel", i, j), 64)
        return keys[:32], keys[32:]

    def box(self, i: int, j: int) -> bytes:
        """Both shares for j, sealed by i."""
        bound = self.plan.round + u32(i) + u32(j)
        plain = b"".join(self.dealt[i][j])
        return chacha20_poly1305(self.channel(i, j)[0], u32(i) + bytes(8), plain, bound)

    def tag(self, i: int, j: int) -> bytes:
        """What proves to j what i was told."""
        digest = hashlib.sha256(self.survivors).digest()
        return hmac.digest(self.channel(i, j)[1], u32(i) + u32(j) + digest, "sha256")[:16]

    def stream(self, secret: bytes, label: bytes) -> list[int]:
        """A mask."""
        key, word = derive(secret, self.plan.round, label), self.plan.word
        out = chacha20(key, word * len(self.plan.maxima))
        return [int.from_bytes(out[i : i + word], "little") for i in range(0, len(out), word)]

    def masked(self, i: int) -> bytes:
        """The packed vector of a client under its masks."""
        it, plan = self.clients[i], self.plan
        total = list(self.inputs[i])
        masks = [(1, self.stream(it.self_seed, b"self-mask" + u32(i)))]
        for j in self.near(i, 1):
            shared = x25519(it.mask, self.clients[j].mask_public)
            mask = self.stream(shared, pair_label(b"pair-mask", i, j))
            masks.append((1 if i < j else -1, mask))
        for sign, mask in masks:
            total = [x + sign * m for x, m in zip(total, mask, strict=True)]
        number, at = 0, 0
        for value, width in zip(total, plan.widths, strict=True):
            number |= (value % 2**width) << at
            at += width
        return number.to_bytes((at + 7) // 8, "little")

    def sent(self, step: int, i: int) -> bytes:
        """The signed message of client i in a step."""
        it, plan = self.clients[i], self.plan
        head = plan.head(2 * step + 1) + u32(i)
        if step == 0:
            body = self.adverts[i]
        elif step == 1:
            fixed = hashlib.sha256(LABEL + b"commitment" + plan.round + it.self_seed).digest()
            body = fixed + records(self.boxes[i])
        elif step == 2:
            packed = self.masked(i)
            body = u32(len(packed)) + packed
        elif step == 3:
            body = records(self.tags[i])
        else:
            near = self.near(i, 1)
            seeds = {j: self.dealt[j][i][1] for j in near if j in self.alive}
            keys = {j: self.dealt[j][i][0] for j in near if j in self.dropped}
            body = records(seeds) + records(keys)
        return head + body + ed25519_sign(it.sign, head + body)

    def letter(self, step: int, i: int) -> bytes:
        """The aggregator's letter to client i after a step."""
        if step == 2:
            return self.survivors
        near = self.near(i, step)
        if step == 0:
            items = {j: self.adverts[j] + self.signatures[j] for j in near}
        elif step == 1:
            items = {j: self.boxes[j][i] for j in near}
        else:
            items = {j: self.tags[j][i] for j in near}
        return self.plan.head(2 * step + 2) + u32(i) + records(items)


_ROUNDS: dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]] = {}


def computed(it: Round) -> tuple[list[dict[str, str]], ...]:
    """All messages and letters of a round; remembered, since bad vectors share a good round."""
    key = it.plan.round.hex()
    if key not in _ROUNDS:
        _ROUNDS[key] = (
            [{str(i): it.sent(s, i).hex() for i in it.present[s]} for s in range(5)],
            [{str(i): it.letter(s, i).hex() for i in it.present[s]} for s in range(4)],
        )
    return _ROUNDS[key]


def differences(vector: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Where a vector differs from what the protocol says: messages or letters, step, party."""
    it = Round(vector)
    if vector["round_id"] != it.plan.round.hex():
        raise MismatchError("the round")
    columns = zip(*(it.inputs[i] for i in it.alive), strict=True)
    if vector["included"] != it.alive or vector["total"] != [sum(column) for column in columns]:
        raise MismatchError("the sum")
    found = []
    for where, expected in zip(("messages", "letters"), computed(it), strict=True):
        for step, (told, due) in enumerate(zip(vector[where], expected, strict=True)):
            if list(told) != list(due):
                raise MismatchError(f"the parties in the {where} of step {step}")
            found += [(where, step, int(i)) for i in due if told[i] != due[i]]
    return found


def verify(vector: dict[str, Any]) -> None:
    """Refuses a vector that is not what the protocol says, or bad elsewhere than it says."""
    found, bad = differences(vector), vector.get("bad")
    expected = [(bad["where"], bad["step"], bad["party"])] if bad else []
    if found != expected:
        raise MismatchError(f"differs at {found}, should differ at {expected}")


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
