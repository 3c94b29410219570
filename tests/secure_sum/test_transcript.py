"""What travels in the open holds no secret, and no box opens for whoever is not meant to."""

import hashlib
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedprikl.secure_sum import AggregatorStep, ClientStep
from fedprikl.secure_sum.masking import Channel, ClientKeys, agree, commitment
from fedprikl.secure_sum.messages import KeyAdvert, SealedShares, UnmaskShares
from fedprikl.secure_sum.sum_aggregator import _reconstruct

from .helpers import Cohort, make_plan

CLIENTS, DROPPED, THRESHOLD = 6, 5, 3


@pytest.fixture
def keys() -> list[ClientKeys]:
    return [client._keys for client in Cohort(make_plan(CLIENTS, THRESHOLD)).clients]


@pytest.fixture
def cohort() -> Cohort:
    """A whole round in which the last client drops out after sharing its secrets."""
    cohort = Cohort(make_plan(CLIENTS, THRESHOLD)).until(AggregatorStep.INPUTS)
    cohort.answer_all(without=[DROPPED])
    cohort.next()
    cohort.until(AggregatorStep.UNMASK).answer_all()
    cohort.aggregator.unmask()
    assert cohort.clients[0].step is ClientStep.CLOSED
    return cohort


def opened_secrets(cohort: Cohort) -> list[bytes]:
    """All that the aggregator reconstructs: seeds of the living, the mask key of the dropped."""
    held: dict[int, list[tuple[int, bytes]]] = {i: [] for i in range(CLIENTS)}
    for data in cohort.sent[-1].values():
        answer = UnmaskShares.decode(data)
        for owner, piece in (*answer.self_seeds, *answer.mask_keys):
            held[owner].append((answer.sender, piece))
    secrets = [_reconstruct([pieces])[0] for pieces in held.values()]
    return [secret for secret in secrets if secret is not None]


def guesses(cohort: Cohort, opened: list[bytes]) -> Iterator[bytes]:
    """Shared secrets that can be made of public and revealed values."""
    adverts = [KeyAdvert.decode(data) for data in cohort.sent[0].values()]
    public = [key for each in adverts for key in (each.verify_key, each.seal_key, each.mask_key)]
    fixed = [SealedShares.decode(data).commitment for data in cohort.sent[1].values()]
    yield from (bytes(32), cohort.plan.round_id, cohort.plan.nonce, *public, *fixed, *opened)
    for secret in opened:
        private = X25519PrivateKey.from_private_bytes(secret)
        yield from (shared for key in public if (shared := agree(private, key)))


def opens(cohort: Cohort, shared: bytes) -> bool:
    """Whether a shared secret opens any of the sealed boxes."""
    shares = [SealedShares.decode(data) for data in cohort.sent[1].values()]
    return any(
        Channel(shared, peer, each.sender, cohort.plan.round_id).unseal(box) is not None
        for each in shares
        for peer, box in each.boxes
    )


def test_no_box_opens_with_what_the_aggregator_can_know(
    cohort: Cohort, keys: list[ClientKeys]
) -> None:
    opened = opened_secrets(cohort)
    assert opened == [*(each.self_seed for each in keys[:DROPPED]), keys[DROPPED].mask_private]
    assert not any(opens(cohort, guess) for guess in guesses(cohort, opened))


def test_that_check_would_notice_a_key_that_can_be_known(
    cohort: Cohort, keys: list[ClientKeys]
) -> None:
    shared = agree(keys[0].seal_key, keys[1].seal_key.public_key().public_bytes_raw())
    assert shared is not None
    assert opens(cohort, shared)


def test_no_secret_of_the_living_travels_in_clear(cohort: Cohort, keys: list[ClientKeys]) -> None:
    """Of every client, one secret is opened from shares; the others are nowhere, in no form."""
    seen = b"".join(data for step in cohort.sent for data in step.values())
    opened = opened_secrets(cohort)
    for i, each in enumerate(keys):
        seal, signing = each.seal_key.private_bytes_raw(), each.sign_key.private_bytes_raw()
        private = [seal, signing, each.mask_private, each.self_seed, each.share_key]
        assert not [secret for secret in private if secret in seen]
        assert not [secret for secret in private if hashlib.sha256(secret).digest() in seen]
        kept = each.self_seed if i == DROPPED else each.mask_private
        assert kept not in opened
        assert len(set(private)) == len(private)


def test_a_commitment_is_bound_to_the_round_and_is_not_the_seed(
    cohort: Cohort, keys: list[ClientKeys]
) -> None:
    for data, each in zip(cohort.sent[1].values(), keys, strict=True):
        fixed = SealedShares.decode(data).commitment
        assert fixed == commitment(each.self_seed, round_id=cohort.plan.round_id)
        assert fixed != commitment(each.self_seed, round_id=bytes(32))
        assert fixed != each.self_seed


@pytest.mark.parametrize("altered", [None, "round", "sender", "receiver"])
def test_a_box_is_bound_to_round_sender_and_receiver(altered: str | None) -> None:
    """Key and nonce are right; if one part of what is bound in is not, the box stays shut."""
    receiver = Channel(b"s" * 32, 2, 1, bytes(32))
    bound = {"round": bytes(32), "sender": bytes([1, 0, 0, 0]), "receiver": bytes([2, 0, 0, 0])}
    nonce = bound["sender"] + bytes(8)
    if altered:
        bound[altered] = bound[altered][:-1] + b"\1"
    cipher = ChaCha20Poly1305(receiver._seal_key)
    box = cipher.encrypt(nonce, b"share", b"".join(bound.values()))
    assert receiver.unseal(box) == (None if altered else b"share")


@pytest.mark.parametrize(
    ("me", "peer", "round_id"), [(2, 3, bytes(32)), (3, 1, bytes(32)), (2, 1, b"\1" * 32)]
)
def test_the_channel_of_another_pair_or_round_opens_nothing(
    me: int, peer: int, round_id: bytes
) -> None:
    box = Channel(b"s" * 32, 1, 2, bytes(32)).seal(b"share")
    assert Channel(b"s" * 32, me, peer, round_id).unseal(box) is None
