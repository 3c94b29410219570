"""How the aggregator takes the masks off a sum, and off nothing but the sum."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedprikl.checks import Ints
from fedprikl.errors import CohortTooSmallError, UnmaskFailedError
from fedprikl.secure_sum.keys import agree, commitment, public_of
from fedprikl.secure_sum.masks import apply_masks, pair_mask, pair_sign, self_mask
from fedprikl.secure_sum.messages import KeyAdvert, UnmaskShares
from fedprikl.secure_sum.plan import SumPlan
from fedprikl.secure_sum.ring import Ring, Words
from fedprikl.secure_sum.shamir import LIMBS, from_limbs, reconstruct

__all__ = ["Transcript", "open_sum"]

_BATCH = 256  # owners whose secrets are reconstructed in one go; bounds the memory

Holders = list[tuple[int, bytes]]
"""Who revealed a share of one secret, and the share."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Transcript:
    """All of the aggregator's view that opens the sum."""

    plan: SumPlan
    ring: Ring
    neighbours: Mapping[int, AbstractSet[int]]
    adverts: Mapping[int, KeyAdvert]
    commitments: Mapping[int, bytes]  # to the self-mask seeds
    masked: Mapping[int, bytes]  # packed vectors of the living
    dropped: AbstractSet[int]  # shared their secrets, sent no vector, and have living neighbours
    answers: Mapping[int, UnmaskShares]


def open_sum(view: Transcript) -> tuple[Ints, frozenset[int]]:
    """The sum of the living clients' vectors, and the clients who revealed wrong shares.

    Every secret is checked against what its owner published (the commitment to its seed,
    the public mask key), so a wrong share cannot change the sum. If the first t shares do
    not fit, other choices of t are tried.
    """
    holders = _holders(view)
    short = {owner: len(held) for owner, held in holders.items()}
    worst = min(short, key=lambda owner: short[owner])
    if short[worst] < view.plan.threshold:
        raise CohortTooSmallError(
            f"{short[worst]} shares of a secret of client {worst} were revealed, but unmasking "
            f"needs {view.plan.threshold}. No sum was opened; start a new round."
        )
    secrets, liars = _open_secrets(view, holders)
    return _unmask(view, secrets), liars


def _holders(view: Transcript) -> dict[int, Holders]:
    holders: dict[int, Holders] = {i: [] for i in sorted(view.masked.keys() | view.dropped)}
    for sender, answer in sorted(view.answers.items()):
        for owner, piece in (*answer.self_seeds, *answer.mask_keys):
            if owner in holders:
                holders[owner].append((sender, piece))
    return holders


def _open_secrets(
    view: Transcript, holders: Mapping[int, Holders]
) -> tuple[dict[int, bytes], frozenset[int]]:
    """The secret of every owner, and who revealed wrong shares."""
    owners, secrets, liars = list(holders), {}, set()
    for start in range(0, len(owners), _BATCH):
        batch = owners[start : start + _BATCH]
        found = _reconstruct([holders[owner][: view.plan.threshold] for owner in batch])
        for owner, secret in zip(batch, found, strict=True):
            if _is_secret_of(view, owner, secret):
                secrets[owner] = secret
            else:
                secrets[owner], wrong = _repair(view, owner, holders[owner])
                liars |= wrong
    return {owner: secret for owner, secret in secrets.items() if secret}, frozenset(liars)


def _reconstruct(held: list[Holders]) -> list[bytes | None]:
    """One secret for every list of t shares; None where the limbs are none of a secret."""
    count, t = len(held), len(held[0])
    points = np.array([[sender + 1 for sender, _ in row] for row in held], dtype=np.int64)
    flat = b"".join(piece for row in held for _, piece in row)
    shares = np.frombuffer(flat, dtype="<u2").astype(np.int64).reshape(count, t, LIMBS)
    return [_secret(limbs) for limbs in reconstruct(points, shares)]


def _secret(limbs: Ints) -> bytes | None:
    try:
        return from_limbs(limbs)
    except UnmaskFailedError:
        return None


def _is_secret_of(view: Transcript, owner: int, secret: bytes | None) -> bool:
    if secret is None:
        return False
    if owner in view.masked:
        return commitment(secret, round_id=view.plan.round_id) == view.commitments[owner]
    return public_of(secret) == view.adverts[owner].mask_key


def _repair(view: Transcript, owner: int, held: Holders) -> tuple[bytes, set[int]]:
    """The secret from some t of the shares, and the holders whose shares do not fit it."""
    t = view.plan.threshold
    for start in range(1, len(held)):
        turned = held[start:] + held[:start]
        (secret,) = _reconstruct([turned[:t]])
        if secret is not None and _is_secret_of(view, owner, secret):
            good, others = turned[:t], turned[t:]
            again = _reconstruct([[*good[1:], other] for other in others])
            pairs = zip(others, again, strict=True)
            return secret, {sender for (sender, _), found in pairs if found != secret}
    raise UnmaskFailedError(
        f"The revealed shares do not open the secret of client {owner}: it shared a wrong "
        "secret, or some neighbours revealed wrong shares. No sum was opened; start a new round."
    )


def _unmask(view: Transcript, secrets: Mapping[int, bytes]) -> Ints:
    ring = view.ring
    total = np.zeros(ring.length, dtype=np.uint64)
    for packed in view.masked.values():
        total += ring.unpack(packed)
    opened = apply_masks(ring, total, _masks_to_remove(view, secrets)).astype(np.int64)
    largest = np.asarray(view.plan.maxima, dtype=np.int64) * len(view.masked)
    if np.any(opened > largest):
        raise UnmaskFailedError(
            "The sum is larger than its inputs may be: some client sent a vector outside the "
            "public maxima, or masks that do not cancel. No sum was opened; start a new round."
        )
    return opened


def _masks_to_remove(view: Transcript, secrets: Mapping[int, bytes]) -> Iterator[tuple[int, Words]]:
    """Self masks of the living, and the masks that the living share with the dropped."""
    round_id, ring = view.plan.round_id, view.ring
    for owner, secret in secrets.items():
        if owner in view.masked:
            yield -1, self_mask(secret, owner, round_id=round_id, ring=ring)
            continue
        private = X25519PrivateKey.from_private_bytes(secret)
        for peer in view.neighbours[owner] & view.masked.keys():
            shared = agree(private, view.adverts[peer].mask_key)
            if shared is None:  # cannot happen: low-order keys are turned away on arrival
                raise UnmaskFailedError(f"The mask key of client {peer} is of low order.")
            mask = pair_mask(shared, owner, peer, round_id=round_id, ring=ring)
            yield -pair_sign(peer, owner), mask
