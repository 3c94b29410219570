"""Writes the test vectors of the secure sum; the same bytes every time.

    python vectors/secure_sum/generate.py [DIRECTORY]

A vector is a whole round: plan, seeds, inputs, who leaves when (the number of messages a
client sends), every message of every client and every letter of the aggregator in hex, the
sum. A `bad_*` vector is a round in which one message or letter was changed; it names the
step, the party, and the error that the party who receives it must raise.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedprikl.secure_sum import SumAggregator, SumClient, SumPlan
from fedprikl.secure_sum.masking import ClientKeys
from fedprikl.secure_sum.messages import (
    EchoInbox,
    KeyAdvert,
    MaskedInput,
    PeerKeys,
    Survivors,
    UnmaskShares,
    sign,
)

Vector = dict[str, Any]


def fixed(name: str) -> bytes:
    """32 bytes that stand for randomness."""
    return hashlib.sha256(b"fedprikl test vector " + name.encode()).digest()


def identity_key(private: bytes) -> bytes:
    """The public key of an identity."""
    keys = ClientKeys.from_seed(bytes(32), round_id=b"", index=0, identity=private)
    return keys.sign_key.public_key().public_bytes_raw()


def play(
    name: str,
    *,
    clients: int,
    neighbours: int,
    threshold: int,
    maxima: list[int],
    leaves: dict[int, int] | None = None,
    roster: bool = False,
) -> Vector:
    """One whole round of real parties, written down."""
    identities = [fixed(f"{name} identity {i}") for i in range(clients)] if roster else []
    plan = SumPlan(
        nonce=fixed(f"{name} nonce"),
        clients=clients,
        neighbours=neighbours,
        threshold=threshold,
        minimum=threshold + 1,
        maxima=tuple(maxima),
        roster=tuple(identity_key(each) for each in identities),
    )
    seeds = [fixed(f"{name} seed {i}") for i in range(clients)]
    inputs = [
        [
            int.from_bytes(fixed(f"{name} {i} {e}")[:8], "little") % (top + 1)
            for e, top in enumerate(maxima)
        ]
        for i in range(clients)
    ]
    cohort = [
        SumClient(plan, i, seeds[i], identity=identities[i] if roster else None)
        for i in range(clients)
    ]
    aggregator = SumAggregator(plan)
    last = {i: (leaves or {}).get(i, 5) for i in range(clients)}
    letters: list[dict[int, bytes]] = [dict.fromkeys(range(clients), b"")]
    messages: list[dict[int, bytes]] = []
    ends = [aggregator.send_keys, aggregator.send_shares, aggregator.send_survivors]
    for step, end in enumerate([*ends, aggregator.send_echoes, None]):
        present = [i for i in letters[-1] if last[i] > step]
        messages.append({i: _answer(cohort[i], step, letters[-1][i], inputs[i]) for i in present})
        for i, data in messages[-1].items():
            aggregator.receive(i, data)
        if end:
            letters.append(end())
    result = aggregator.unmask()
    return {
        "name": name,
        "plan": {
            "nonce": plan.nonce.hex(),
            "clients": clients,
            "neighbours": neighbours,
            "threshold": threshold,
            "minimum": plan.minimum,
            "maxima": maxima,
            "roster": [key.hex() for key in plan.roster],
        },
        "round_id": plan.round_id.hex(),
        "seeds": [seed.hex() for seed in seeds],
        "identities": [each.hex() for each in identities],
        "inputs": inputs,
        "leaves": [last[i] for i in range(clients)],
        "messages": [{str(i): x.hex() for i, x in sent.items()} for sent in messages],
        "letters": [{str(i): x.hex() for i, x in sent.items()} for sent in letters[1:]],
        "included": list(result.included),
        "total": result.total.tolist(),
    }


def _answer(client: SumClient, step: int, letter: bytes, values: list[int]) -> bytes:
    if step == 0:
        return client.advertise()
    if step == 2:
        return client.mask_input(letter, values)
    return (client.share_keys, client.echo, client.reveal)[(1, 3, 4).index(step)](letter)


def spoil(
    vector: Vector, name: str, where: str, step: int, party: int, bad: bytes, error: str
) -> Vector:
    """The round with one message or letter replaced, and what must come of it."""
    changed: Vector = json.loads(json.dumps(vector))
    changed[where][step][str(party)] = bad.hex()
    changed["name"] = name
    changed["bad"] = {"where": where, "step": step, "party": party, "error": error}
    return changed


def bad_messages(good: Vector) -> list[Vector]:
    """What the aggregator must reject."""

    def message(step: int) -> bytes:
        return bytes.fromhex(good["messages"][step]["1"])

    keys = ClientKeys.from_seed(
        bytes.fromhex(good["seeds"][1]), round_id=bytes.fromhex(good["round_id"]), index=1
    )
    advert, masked = KeyAdvert.decode(message(0)), MaskedInput.decode(message(2))
    answer = UnmaskShares.decode(message(4))
    padded = masked.packed[:-1] + bytes([masked.packed[-1] | 0x80])
    outside = [(owner, b"\xff" * 36) for owner, _ in answer.self_seeds]
    box = message(1)
    cases = [
        ("bad_version", 0, b"FSS\2" + message(0)[4:]),
        ("bad_kind", 0, message(0)[:4] + b"\x2a" + message(0)[5:]),
        ("bad_round", 0, message(0)[:5] + bytes(32) + message(0)[37:]),
        ("bad_signature", 0, message(0)[:-1] + bytes([message(0)[-1] ^ 1])),
        ("bad_low_order_key", 0, sign(replace(advert, mask_key=bytes(32)), keys.sign_key)),
        ("bad_order_of_boxes", 1, box[:77] + box[169:261] + box[77:169] + box[261:]),
        ("bad_truncated", 2, message(2)[:-1]),
        ("bad_trailing", 2, message(2) + b"\0"),
        ("bad_padding", 2, sign(replace(masked, packed=padded), keys.sign_key)),
        ("bad_sender", 3, bytes.fromhex(good["messages"][3]["2"])),
        ("bad_share_outside_field", 4, sign(replace(answer, self_seeds=outside), keys.sign_key)),
    ]
    return [
        spoil(good, name, "messages", step, 1, data, "RejectedMessageError")
        for name, step, data in cases
    ]


def bad_letters(good: Vector) -> list[Vector]:
    """What a client must refuse."""

    def letter(step: int) -> bytes:
        return bytes.fromhex(good["letters"][step]["1"])

    told = Survivors.decode(letter(2))
    both = replace(told, dropped=told.dropped | {0}).encode()
    split = replace(told, alive=told.alive - {0}, dropped=told.dropped | {0}).encode()
    echoes = EchoInbox.decode(letter(3))
    forged = [(echoes.tags[0][0], bytes(16)), *echoes.tags[1:]]
    keys = PeerKeys.decode(letter(0))
    low = keys.adverts[0][1][:32] + bytes(32) + keys.adverts[0][1][64:]
    spoiled_keys = replace(keys, adverts=[(keys.adverts[0][0], low), *keys.adverts[1:]]).encode()
    cases = [
        ("bad_low_order_peer", 0, spoiled_keys, "UnsafeRequestError"),
        ("bad_receiver", 0, bytes.fromhex(good["letters"][0]["2"]), "RejectedMessageError"),
        ("bad_alive_and_dropped", 2, both, "UnsafeRequestError"),
        ("bad_too_few_survivors", 2, split, "CohortTooSmallError"),
        ("bad_echo", 3, replace(echoes, tags=forged).encode(), "UnsafeRequestError"),
    ]
    return [spoil(good, name, "letters", step, 1, data, error) for name, step, data, error in cases]


def bad_identity(good: Vector) -> Vector:
    """A relay puts its own keys in the place of a neighbour's."""
    keys = PeerKeys.decode(bytes.fromhex(good["letters"][0]["1"]))
    peer, record = keys.adverts[0]
    other = PeerKeys.decode(bytes.fromhex(good["letters"][0]["2"])).adverts[1][1]
    swapped = replace(keys, adverts=[(peer, record[:32] + other[32:]), *keys.adverts[1:]])
    return spoil(good, "bad_identity", "letters", 0, 1, swapped.encode(), "UnsafeRequestError")


def vectors() -> list[Vector]:
    """All of them."""
    plain = play("complete", clients=4, neighbours=3, threshold=2, maxima=[7, 1, 1000])
    tight = play("tight", clients=3, neighbours=2, threshold=2, maxima=[3, 3])
    leaves = {0: 0, 2: 1, 4: 2, 5: 3, 7: 4}
    dropouts = play(
        "dropouts", clients=12, neighbours=11, threshold=6, maxima=[100, 9], leaves=leaves
    )
    sparse = play("sparse", clients=9, neighbours=4, threshold=3, maxima=[2**40, 5, 2**31])
    roster = play("roster", clients=4, neighbours=3, threshold=2, maxima=[7, 1], roster=True)
    bad = [*bad_messages(plain), *bad_letters(tight), bad_identity(roster)]
    return [plain, tight, dropouts, sparse, roster, *bad]


def main(names: list[str]) -> None:
    """Writes one file per vector."""
    directory = Path(names[0]) if names else Path(__file__).parent
    for vector in vectors():
        text = json.dumps(vector, indent=1) + "\n"
        (directory / f"{vector['name']}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
