"""Sealed messages open for one key and one address, and for nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedprikl import InvalidInputError
from fedprikl.errors import SealError
from fedprikl.protocol import SealingKey, SigningKey
from fedprikl.protocol import keys as sealing
from fedprikl.protocol.keys import Address, is_sealing_key, seal

HERE = Address(round_id="ab" * 16, cohort=bytes(32), member=4, invitation=bytes(32), step="input")


def test_a_message_opens_where_it_belongs() -> None:
    key = SealingKey.generate()
    box = seal(b"counts", key.public, HERE)
    assert key.open(box, HERE) == b"counts"
    assert b"counts" not in box
    assert seal(b"counts", key.public, HERE) != box  # fresh randomness each time


@pytest.mark.parametrize(
    "elsewhere",
    [
        replace(HERE, round_id="cd" * 16),
        replace(HERE, cohort=bytes(31) + b"\1"),
        replace(HERE, member=5),
        replace(HERE, step="reveal"),
        replace(HERE, invitation=bytes(31) + b"\1"),
    ],
)
def test_it_opens_nowhere_else(elsewhere: Address) -> None:
    key = SealingKey.generate()
    with pytest.raises(SealError, match="does not open"):
        key.open(seal(b"counts", key.public, HERE), elsewhere)


def test_another_key_or_damage_opens_nothing() -> None:
    key = SealingKey.generate()
    box = seal(b"counts", key.public, HERE)
    with pytest.raises(SealError):
        SealingKey.generate().open(box, HERE)
    for damaged in (b"", box[:-1], box + b"\0", bytes([box[0] ^ 1]) + box[1:], box[:40]):
        with pytest.raises(SealError):
            key.open(damaged, HERE)


def test_the_key_is_a_private_file_that_never_prints(tmp_path: Path) -> None:
    path = tmp_path / "sealing.pem"
    key = SealingKey.generate()
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SealingKey.load(path).public == key.public
    assert repr(key) == f"SealingKey(public {key.public[:8]}...)"
    with pytest.raises(InvalidInputError, match="Cannot write"):
        key.save(path)
    SigningKey.generate().save(tmp_path / "other.pem")
    with pytest.raises(InvalidInputError, match="X25519"):
        SealingKey.load(tmp_path / "other.pem")


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 32, "01" + "00" * 31, "ab" * 31])
def test_what_is_no_key_is_refused_by_a_plan(text: str) -> None:
    assert not is_sealing_key(text)


def test_the_suite_is_the_one_of_the_rfc() -> None:
    """RFC 9180, A.2.1: X25519, HKDF-SHA256, ChaCha20-Poly1305, base mode, its first message."""
    private = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb")
    )
    box = bytes.fromhex(
        "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db"
        "21993c62ce81883d2dd1b51a28"
    )
    opened = openssl.hpke._decrypt_with_aad(
        sealing._SUITE, box, private, b"Ode on a Grecian Urn", b"Count-0"
    )
    assert opened == b"Beauty is truth, truth beauty"


@pytest.mark.parametrize("length", [0, 1, sealing._BUCKET - sealing._HEAD, sealing._BUCKET])
def test_answers_come_out_as_they_went_in_and_are_of_few_lengths(length: int) -> None:
    key, message = SealingKey.generate(), b"\7" * length
    opened = key.open(sealing.seal_answer(message, key.public, HERE), HERE)
    assert sealing.unpadded(opened) == (sealing.ANSWER, message)
    assert len(opened) == sealing._BUCKET * (1 + (length > sealing._BUCKET - sealing._HEAD))


def test_a_refusal_says_who_wrote_it_where_that_matters() -> None:
    key, identity = SealingKey.generate(), SigningKey.generate()
    who, other = bytes.fromhex(identity.public), bytes.fromhex(SigningKey.generate().public)
    signed = sealing.seal_refusal("too few records", key.public, HERE, identity)
    plain = sealing.seal_refusal("too few records", key.public, HERE)
    assert len(signed) == len(plain)
    kind, content = sealing.unpadded(key.open(signed, HERE))
    assert kind == sealing.REFUSAL
    assert sealing.refusal_words(content, HERE, who) == "too few records"
    assert sealing.refusal_words(content, HERE, other) is None
    assert sealing.refusal_words(content, replace(HERE, member=5), who) is None
    _, unsigned = sealing.unpadded(key.open(plain, HERE))
    assert sealing.refusal_words(unsigned, HERE, None) == "too few records"
    assert sealing.refusal_words(unsigned, HERE, who) is None


def test_a_hybrid_key_is_read_from_both_of_its_parts(tmp_path: Path) -> None:
    key = sealing.HybridKey.generate()
    key.save(tmp_path / "key.pem")
    assert sealing.HybridKey.load(tmp_path / "key.pem").public == key.public
    end = b"-----END PRIVATE KEY-----\n"
    lattice, curve, _ = (tmp_path / "key.pem").read_bytes().split(end)
    for number, parts in enumerate([(curve, lattice), (lattice, lattice), (curve, curve)]):
        (tmp_path / f"{number}.pem").write_bytes(b"".join(part + end for part in parts))
        with pytest.raises(InvalidInputError):
            sealing.HybridKey.load(tmp_path / f"{number}.pem")


def test_of_two_processes_that_make_a_key_the_faster_one_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, faster = tmp_path / "key.pem", SigningKey.generate()

    def too_late(_: SigningKey, place: Path) -> None:
        monkeypatch.undo()
        faster.save(place)
        raise InvalidInputError("It exists.")

    monkeypatch.setattr(SigningKey, "save", too_late)
    assert SigningKey.load_or_create(path).public == faster.public
    monkeypatch.setattr(SigningKey, "save", lambda *_: 1 / 0)
    assert SigningKey.load_or_create(path).public == faster.public
    monkeypatch.undo()
    with pytest.raises(InvalidInputError):
        SigningKey.load_or_create(tmp_path / "no folder" / "key.pem")
