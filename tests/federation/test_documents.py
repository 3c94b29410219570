"""Plans, invitations, releases and keys: what is written comes back, and nothing else does."""

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InvalidInputError
from fedprikl.federation import Invitation, Plan, Release, SignedPlan, SigningKey
from fedprikl.federation.documents import canonical
from fedprikl.federation.keys import verify_signature
from tests.federation.worlds import World

WORLD = World.make(clients=9)
RESULT = WORLD.run(WORLD.plan(cohort=9))
SIGNED = RESULT.round.signed
INVITATION = Invitation.to_member(RESULT.round, RESULT.round.cohorts[0], 3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def test_documents_come_back() -> None:
    assert Plan.from_dict(SIGNED.plan.to_dict()) == SIGNED.plan
    again = SignedPlan.from_dict(json.loads(canonical(SIGNED.to_dict())))
    assert again == SIGNED
    assert again.is_signed_by(WORLD.key.public)
    assert Invitation.from_bytes(INVITATION.to_bytes()).to_bytes() == INVITATION.to_bytes()
    assert Release.from_bytes(RESULT.release.to_bytes()).to_dict() == RESULT.release.to_dict()


def test_a_changed_plan_is_not_signed_any_more() -> None:
    forged = SignedPlan(replace(SIGNED.plan, epsilon=0.5), SIGNED.signer, SIGNED.signature)
    assert not forged.is_signed_by(WORLD.key.public)
    assert not SIGNED.is_signed_by(SigningKey.generate().public)
    assert not SignedPlan(SIGNED.plan).is_signed_by("")


@pytest.mark.parametrize("field", ["value", "plan", "cohorts", "privacy", "released_at"])
def test_a_changed_release_is_noticed(field: str) -> None:
    document = json.loads(RESULT.release.to_bytes())
    assert Release.from_bytes(json.dumps(document)).is_intact
    old = document["release"][field]
    document["release"][field] = (
        old + 1 if isinstance(old, float) else type(old)() if not isinstance(old, str) else "x"
    )
    assert not Release.from_bytes(json.dumps(document)).is_intact


def test_a_release_under_another_key_is_not_the_aggregators() -> None:
    other = SigningKey.generate()
    content = {k: v for k, v in RESULT.release.content.items() if k not in ("format", "version")}
    forged = Release.sign(content, other)
    assert forged.is_intact
    assert not forged.is_signed_by(WORLD.key.public)


READERS = {
    "plan": lambda data: SignedPlan.from_dict(json.loads(data)),
    "invitation": Invitation.from_bytes,
    "release": Release.from_bytes,
}
DOCUMENTS = {
    "plan": canonical(SIGNED.to_dict()),
    "invitation": INVITATION.to_bytes(),
    "release": RESULT.release.to_bytes(),
}


@given(st.sampled_from(sorted(READERS)), st.data(), JSON)
def test_any_field_of_any_document_may_be_odd(name: str, data: st.DataObject, odd: Any) -> None:
    """Only our own error ever comes out; any other one fails this test."""
    document = json.loads(DOCUMENTS[name])
    place = document
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            break
        place = place[key]
        if not place:
            return
    place[key] = odd
    try:
        READERS[name](json.dumps(document).encode())
    except InvalidInputError:
        return


@given(st.binary(max_size=60))
def test_foreign_bytes_give_only_our_error(data: bytes) -> None:
    for reader in (Invitation.from_bytes, Release.from_bytes):
        with pytest.raises(InvalidInputError):
            reader(data)


def test_keys_are_kept_for_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    key = SigningKey.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load_or_create(path).public == key.public
    assert verify_signature(key.public, key.sign(b"body"), b"body")
    assert not verify_signature(key.public, key.sign(b"body"), b"other")
    assert not verify_signature("zz", "zz", b"body")
    secret = path.read_text().splitlines()[1]
    assert secret not in repr(key)
    with pytest.raises(InvalidInputError, match="Cannot write"):
        key.save(path)


@pytest.mark.parametrize("content", [b"", b"not a key", b"\x00\xff"])
def test_bad_keys_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(content)
    with pytest.raises(InvalidInputError, match="not an unencrypted Ed25519 key"):
        SigningKey.load(tmp_path / "key.pem")
    with pytest.raises(InvalidInputError, match="Cannot read"):
        SigningKey.load(tmp_path / "none.pem")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"population": " "}, "names the population"),
        ({"reference": "x"}, "fingerprint"),
        ({"epsilon": 0}, "above 0"),
        ({"delta": 1.0}, "strictly between"),
        ({"points": 0}, "at least 1"),
        ({"batches": 1.5}, "whole number"),
        ({"skew": 0}, "strictly between"),
        ({"estimator": "magic"}, "no estimator"),
        ({"noise": "white"}, "no noise"),
        ({"dropout": 0.5}, "under one half"),
        ({"corruption": -0.1}, "under one half"),
        ({"cohort": 2}, "at least 3"),
        ({"threshold": float("nan")}, "finite"),
    ],
)
def test_plans_that_make_no_sense(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        WORLD.plan(**changes)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for load in (SignedPlan.load, Release.load):
        with pytest.raises(InvalidInputError, match="Cannot read"):
            load(tmp_path / "nothing.json")
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(InvalidInputError, match="This is not a plan"):
        SignedPlan.load(tmp_path / "x.json")
    (tmp_path / "x.json").write_bytes(canonical(SIGNED.to_dict()))
    assert SignedPlan.load(tmp_path / "x.json") == SIGNED
