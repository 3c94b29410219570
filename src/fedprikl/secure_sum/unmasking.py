"""How the aggregator takes the masks off a sum, and off nothing but the sum."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedprikl.checks import Ints
from fedprikl.errors import CohortTooSmallError, UnmaskFailedError
from fedprikl.secure_sum.decoding import fitting
from fedprikl.secure_sum.masks import apply_masks, pair_mask, pair_sign, self_mask
from fedprikl.secure_sum.messages import KeyAdvert, UnmaskShares
from fedprikl.secure_sum.ring import Ring, Words
from fedprikl.secure_sum.shamir import LIMBS, from_limbs, reconstruct
from fedprikl.secure_sum.sum_keys import agree, commitment, public_of
from fedprikl.secure_sum.sum_plan import SumPlan

__all__ = ["Misfit", "Transcript", "open_sum"]

_BATCH = 256  # owners whose secrets are reconstructed in one go; bounds the memory

Holders = list[tuple[int, bytes]]
"""Who revealed a share of one secret, and the share."""

Misfit = tuple[int, int]
"""Owner of a secret and holder of a share of it, where one of the two did something wrong."""


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


def open_sum(view: Transcript) -> tuple[Ints, frozenset[Misfit]]:
    """The sum of the living clients' vectors, and the shares that do not fit the others.

    Every secret is checked against what its owner published (the commitment to its seed,
    the public mask key), so a wrong share cannot change the sum. Each secret is first opened
    from all its shares at once: a wrong one spoils that, unless several were chosen to cancel
    out, which changes nothing. If it does not open, the wrong shares are looked for.
    """
    holders = _holders(view)
    short = {owner: len(held) for owner, held in holders.items()}
    worst = min(short, key=lambda owner: short[owner])
    if short[worst] < view.plan.threshold:
        raise CohortTooSmallError(
            f"{short[worst]} shares of a secret of client {worst} were revealed, but unmasking "
            f"needs {view.plan.threshold}. No sum was opened; start a new round."
        )
    secrets, misfits = _open_secrets(view, holders)
    return _unmask(view, secrets), misfits


def _holders(view: Transcript) -> dict[int, Holders]:
    holders: dict[int, Holders] = {i: [] for i in sorted(view.masked.keys() | view.dropped)}
    for sender, answer in sorted(view.answers.items()):
        for owner, piece in (*answer.self_seeds, *answer.mask_keys):
            if owner in holders:
                holders[owner].append((sender, piece))
    return holders


def _open_secrets(
    view: Transcript, holders: Mapping[int, Holders]
) -> tuple[dict[int, bytes], frozenset[Misfit]]:
    """The secret of every owner, and the shares that do not fit."""
    secrets: dict[int, bytes] = {}
    misfits: set[Misfit] = set()
    for batch in _batches(holders):
        found = _reconstruct([holders[owner] for owner in batch])
        for owner, secret in zip(batch, found, strict=True):
            if secret is not None and _is_secret_of(view, owner, secret):
                secrets[owner] = secret
            else:
                secrets[owner], wrong = _repair(view, owner, holders[owner])
                misfits |= {(owner, holder) for holder in wrong}
    return secrets, frozenset(misfits)


def _batches(holders: Mapping[int, Holders]) -> Iterator[list[int]]:
    """Owners with equally many shares, to be reconstructed in one go."""
    owners = sorted(holders, key=lambda owner: len(holders[owner]))
    for _, alike in groupby(owners, key=lambda owner: len(holders[owner])):
        group = list(alike)
        yield from (group[start : start + _BATCH] for start in range(0, len(group), _BATCH))


def _arrays(held: list[Holders]) -> tuple[Ints, Ints]:
    """The points (owners, shares) and the shares (owners, shares, limbs)."""
    points = np.array([[sender + 1 for sender, _ in row] for row in held], dtype=np.int64)
    flat = b"".join(piece for row in held for _, piece in row)
    limbs = np.frombuffer(flat, dtype="<u2").astype(np.int64)
    return points, limbs.reshape(*points.shape, LIMBS)


def _reconstruct(held: list[Holders]) -> list[bytes | None]:
    """One secret for every list of shares; None where the limbs are none of a secret."""
    return [_secret(limbs) for limbs in reconstruct(*_arrays(held))]


def _secret(limbs: Ints) -> bytes | None:
    try:
        return from_limbs(limbs)
    except UnmaskFailedError:
        return None


def _is_secret_of(view: Transcript, owner: int, secret: bytes) -> bool:
    if owner in view.masked:
        return commitment(secret, round_id=view.plan.round_id) == view.commitments[owner]
    return public_of(secret) == view.adverts[owner].mask_key


def _repair(view: Transcript, owner: int, held: Holders) -> tuple[bytes, set[int]]:
    """The secret from those shares that fit together, and the holders of all others."""
    t = view.plan.threshold
    for good in _candidates(held, t):
        (secret,) = _reconstruct([good])
        if secret is not None and _is_secret_of(view, owner, secret):
            others = [each for each in held if each not in good]
            again = [_reconstruct([[*good[: t - 1], other]])[0] for other in others]
            pairs = zip(others, again, strict=True)
            return secret, {holder for (holder, _), found in pairs if found != secret}
    raise UnmaskFailedError(
        f"The revealed shares do not open the secret of client {owner}: it shared a wrong "
        "secret, or some neighbours revealed wrong shares. No sum was opened; start a new round."
    )


def _candidates(held: Holders, threshold: int) -> Iterator[Holders]:
    """Choices of at least t shares that may all be right.

    Decoding is right whenever at most (held - t) / 2 shares are wrong. Decoding without each
    holder in turn, one of them a liar, makes that half a share more: it rounds up.
    """
    for without in range(-1, len(held)):
        tried = [each for place, each in enumerate(held) if place != without]
        points, shares = _arrays([tried])
        places = fitting(points[0], shares[0], threshold) if len(tried) >= threshold else None
        if places is not None:
            yield [tried[place] for place in places]


def _unmask(view: Transcript, secrets: Mapping[int, bytes]) -> Ints:
    """The sum in the ring, whatever it is: an error here would depend on the exact sum.

    A client that sent a vector outside the public maxima may have made it impossible, which is for
    the caller to see to.
    """
    ring = view.ring
    total = np.zeros(ring.length, dtype=np.uint64)
    for packed in view.masked.values():
        total += ring.unpack(packed)
    return apply_masks(ring, total, _masks_to_remove(view, secrets)).astype(np.int64)


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
