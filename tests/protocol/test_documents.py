"""Plans, invitations, releases and keys: what is written comes back, and nothing else does."""

import json
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InvalidInputError
from fedprikl.documents import canonical, parse_document, to_plain
from fedprikl.protocol import (
    Invitation,
    Look,
    Plan,
    Question,
    Release,
    RoundResult,
    SignedPlan,
    SigningKey,
)
from fedprikl.protocol.client import _read
from fedprikl.protocol.keys import verify_signature
from tests.protocol.worlds import World

FOLDER = Path(__file__).parent
WORLD = World.make(clients=9)
RESULT = WORLD.run(WORLD.plan(cohort=9))
NOISY = WORLD.run(WORLD.plan(cohort=9, trust="none"))
SIGNED = RESULT.round.signed
LOOK = Look(share=0.1, switch=0.5)
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
    for result in (RESULT, NOISY):
        assert Release.from_bytes(result.release.to_bytes()) == result.release


def test_all_members_of_a_cohort_are_told_the_same_but_for_their_index() -> None:
    """Also where a name looks like an index; what is shared is what would be read alone."""
    plan = WORLD.plan(cohort=9).changed(population='clients,"index":3,')
    current = WORLD.run(plan).round
    messages = Invitation.to_members(current, current.cohorts[0])
    assert list(messages) == list(range(9))
    for index, message in messages.items():
        assert message == Invitation.to_member(current, current.cohorts[0], index).to_bytes()
        own, to_all = _read(message)
        assert own.to_bytes() == message
        assert to_all is _read(messages[0])[1]


@pytest.mark.parametrize("index", [b'3,"index":3', b"03", b"3.0", b"true", b"-1", b"%d" % 2**63])
def test_an_index_is_one_whole_number(index: bytes) -> None:
    message = INVITATION.to_bytes().replace(b',"index":3,', b',"index":%b,' % index)
    with pytest.raises(InvalidInputError, match="cannot be used"):
        _read(message)


def test_a_changed_plan_is_not_signed_any_more() -> None:
    forged = SignedPlan(SIGNED.plan.changed(epsilon=0.5), SIGNED.signer, SIGNED.signature)
    assert not forged.is_signed_by(WORLD.key.public)
    assert not SIGNED.is_signed_by(SigningKey.generate().public)
    assert not SignedPlan(SIGNED.plan).is_signed_by("")


def changes(value: Any) -> Iterator[Any]:
    """Every way to change one simple value of a document."""
    if isinstance(value, dict):
        for name in value:
            yield from (value | {name: other} for other in changes(value[name]))
    elif isinstance(value, list):
        yield value[:-1] or [value]
        for i, item in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in changes(item))
    elif isinstance(value, bool) or value is None:
        yield not value
    elif isinstance(value, str):
        yield value + "x"
    else:
        yield value + 1


@pytest.mark.parametrize("result", [RESULT, NOISY], ids=["scored", "noisy counts"])
def test_a_release_changed_anywhere_is_noticed(result: RoundResult) -> None:
    document = json.loads(result.release.to_bytes())
    assert Release.from_bytes(json.dumps(document)).is_intact
    tried = 0
    for changed in changes(document):
        tried += 1
        try:
            release = Release.from_bytes(json.dumps(changed))
        except InvalidInputError:
            continue
        assert not release.is_intact
        assert not release.is_signed_by(WORLD.key.public)
    assert tried > 40


@pytest.mark.parametrize("result", [RESULT, NOISY], ids=["scored", "noisy counts"])
def test_every_field_of_a_release_is_checked(result: RoundResult) -> None:
    """A missing field, one too many, or one of another kind: at every depth."""
    document = json.loads(result.release.to_bytes())

    def damaged(value: Any) -> Iterator[Any]:
        yield ["odd", {"a": 1}]
        if isinstance(value, dict):
            yield value | {"more": 1}
            for name in value:
                yield {key: item for key, item in value.items() if key != name}
                yield from (value | {name: worse} for worse in damaged(value[name]))
        elif isinstance(value, list) and value:
            yield from ([worse, *value[1:]] for worse in damaged(value[0]))
        elif isinstance(value, bool) or value is None:
            yield "yes"
        elif isinstance(value, str):
            yield 7
        else:
            yield from (True, "1", 10**400, [value])

    tried = 0
    for worse in damaged(document):
        tried += 1
        with pytest.raises(InvalidInputError):
            Release.from_bytes(json.dumps(worse))
    assert tried > 100


@pytest.mark.parametrize("name", ["plan", "invitation", "release"])
def test_a_document_has_one_reading(name: str) -> None:
    """A field named twice, a field too many, or 1e400 is refused and not passed over."""
    data = DOCUMENTS[name].decode()
    first = json.loads(data)
    outer = next(iter(first))
    READERS[name](data.encode())
    twice = f'{{"{outer}":{json.dumps(first[outer])},{data[1:]}'
    infinite = (
        data.replace("1e-06", "1e400")
        if name != "release"
        else re.sub(r'"value":[-0-9.e]+', '"value":1e400', data)
    )
    for odd in (twice, data[:-1] + ',"more":1}', infinite, data.replace(":", ":[" * 9999, 1)):
        with pytest.raises(InvalidInputError):
            READERS[name](odd.encode())


@pytest.mark.parametrize("name", ["plan", "release"])
def test_an_old_document_gets_a_message_that_says_what_to_do(name: str) -> None:
    document = json.loads(DOCUMENTS[name])
    now = document[name]["version"]
    document[name]["version"] = now + 1
    with pytest.raises(InvalidInputError, match=rf"has version {now + 1}; .* newer fedprikl"):
        READERS[name](json.dumps(document).encode())
    document[name] |= {"format": f"fedprikl {name}", "version": 9}
    with pytest.raises(InvalidInputError, match=r"before fedprikl 1\.0, by version 9.* again"):
        READERS[name](json.dumps(document).encode())
    document[name]["format"] = "something"
    with pytest.raises(InvalidInputError, match="This is not a fedprikl"):
        READERS[name](json.dumps(document).encode())


def test_a_release_from_before_1_0_is_refused_in_words() -> None:
    with pytest.raises(InvalidInputError, match=r"before fedprikl 1\.0.* Have it released again"):
        Release.load(FOLDER / "release_version_5.json")


def test_numbers_are_not_texts() -> None:
    for changes in ({"epsilon": "1"}, {"skew": "0.01"}, {"dropout": b"0.1"}, {"batches": True}):
        with pytest.raises(InvalidInputError):
            WORLD.plan(**changes)


def test_a_release_under_another_key_is_not_the_aggregators() -> None:
    other = SigningKey.generate()
    forged = RESULT.release.sign(other)
    assert forged.is_intact
    assert not forged.is_signed_by(WORLD.key.public)


READERS: dict[str, Callable[[bytes], object]] = {
    "plan": lambda data: SignedPlan.from_dict(parse_document(data, "plan")),
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
        ({"skew": 0}, "must be above 0"),
        ({"divergence": "magic"}, "no divergence"),
        ({"share": 0.5}, "must sum to 1"),
        ({"release": "counts", "batches": 2}, "of one batch only"),
        ({"release": "value", "trust": "none"}, "release='counts'"),
        ({"release": "adaptive", "trust": "none"}, "release='counts'"),
        ({"release": "looked"}, "has a look if, and only if"),
        ({"look": LOOK}, "has a look if, and only if"),
        ({"release": "looked", "look": LOOK, "divergence": "tv"}, "adaptive noise for kl only"),
        ({"release": "looked", "look": LOOK, "trust": "none"}, "release='counts'"),
        ({"share": 0}, "above 0 and at most 1"),
        ({"share": "1"}, "must be a number"),
        ({"exponent": 2}, "between 0 and 1"),
        ({"maximum_step": 0}, "above 0"),
        ({"dropout": 0.5}, "under one half"),
        ({"corruption": -0.1}, "under one half"),
        ({"cohort": 2}, "at least 3"),
        ({"threshold": float("nan")}, "finite"),
        ({"serial": -1}, "serial number"),
        ({"valid_until": "tomorrow"}, "ISO 8601"),
        ({"valid_until": "2030-01-01T00:00:00"}, "with an offset"),
        (
            {
                "valid_from": "2030-01-02T00:00:00+00:00",
                "valid_until": "2030-01-01T00:00:00+00:00",
            },
            "must end after it begins",
        ),
        ({"releases": 0}, "at least 1"),
        ({"total_epsilon": 0.0}, "above 0"),
        ({"total_delta": 2.0}, "strictly between"),
    ],
)
def test_plans_that_make_no_sense(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        WORLD.plan(**changes)


@pytest.mark.parametrize(
    ("part", "field", "odd", "words"),
    [
        ("", "trust", "magic", "one of 'aggregator', 'none'"),
        ("", "trust", ["none"], "one of 'aggregator', 'none'"),
        ("", "views", [["age"]], "'views'"),
        ("", "views", "age", "a list"),
        ("budget", "epsilon", "1", "a finite number"),
        ("sums", "batches", 1.5, "a whole number"),
        ("validity", "serial", True, "a whole number"),
        ("validity", "more", 1, "'validity' of the plan has unknown parts"),
        ("verdict", "control", "magic", "one of 'family', 'discovery'"),
        ("question", "release", "magic", "one of 'value', 'adaptive', 'looked', 'counts'"),
        ("question", "release", ["value"], "one of 'value', 'adaptive', 'looked', 'counts'"),
        ("question", "share", "1", "a finite number"),
        ("question", "noise", "white", "There is no noise 'white'"),
        ("question", "noise", 3, "a text"),
        ("question", "more", 1, "'questions' of the plan has unknown parts"),
    ],
)
def test_plans_with_odd_fields(part: str, field: str, odd: Any, words: str) -> None:
    document = WORLD.plan().to_dict()
    place = document["questions"][0] if part == "question" else document.get(part, document)
    place[field] = odd
    with pytest.raises(InvalidInputError, match=words):
        Plan.from_dict(document)


@pytest.mark.parametrize("questions", [(), (Question(),) * 2])
def test_a_plan_asks_questions_and_none_twice(questions: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"question|each divergence once"):
        replace(WORLD.plan(), questions=questions)


@pytest.mark.parametrize(
    "questions",
    [
        None,
        {},
        [],
        ["kl"],
        [{}],
        [to_plain(Question()) | {"more": 1}],
        [to_plain(Question())] * 2,
    ],
)
def test_questions_that_no_plan_has_are_refused(questions: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"question|each divergence once|field 'divergence'"
    ):
        Plan.from_dict(WORLD.plan().to_dict() | {"questions": questions})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for load in (SignedPlan.load, Release.load):
        with pytest.raises(InvalidInputError, match="Cannot read"):
            load(tmp_path / "nothing.json")
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(InvalidInputError, match="This is not a plan"):
        SignedPlan.load(tmp_path / "x.json")
    (tmp_path / "x.json").write_bytes(canonical(SIGNED.to_dict()))
    assert SignedPlan.load(tmp_path / "x.json") == SIGNED
