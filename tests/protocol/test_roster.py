"""Rosters: what a file may hold, what a plan says of it, and what a client makes of both."""

import math
import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InvalidInputError
from fedprikl.errors import PolicyRefusal
from fedprikl.protocol import (
    Client,
    ClientSession,
    IdentityCheck,
    Invitation,
    Plan,
    Reply,
    Roster,
    Round,
    Server,
    SignedPlan,
    SigningKey,
    Step,
    trust_of,
)
from fedprikl.protocol.round import introduce, plan_cohort
from fedprikl.protocol.sums import NoisyHistogram
from fedprikl.secure_sum import Leaves
from tests.protocol.worlds import AT, EVERYTHING, InsecureNoNoise, World, consistent

KEYS = st.lists(st.binary(min_size=32, max_size=32), min_size=3, max_size=9, unique=True)
CHALLENGE = "0f" * 16
WORLD = World.make(clients=9).with_identities()
ROSTER = WORLD.roster()


# The file


@given(KEYS, st.randoms(use_true_random=False), st.data())
def test_a_roster_comes_back_in_any_order_and_with_any_names(
    keys: list[bytes], random: Any, data: st.DataObject
) -> None:
    words = st.text("abc é\t", max_size=8)
    start = st.sampled_from(["", "  "])
    lines = [
        f"{data.draw(start)}{key.hex()} {data.draw(words)}# {data.draw(words)}" for key in keys
    ]
    shuffled = [*lines, "# a comment", "", "   "]
    random.shuffle(shuffled)
    found = Roster.parse(data.draw(st.sampled_from(["\n", "\r\n"])).join(shuffled))
    assert found == Roster(frozenset(keys))
    assert found.fingerprint == Roster.parse("\n".join(lines)).fingerprint
    assert len(found) == len(keys)


@given(KEYS, st.data())
def test_any_other_set_of_keys_has_another_fingerprint(
    keys: list[bytes], data: st.DataObject
) -> None:
    other = data.draw(KEYS)
    same = Roster(frozenset(keys)).fingerprint == Roster(frozenset(other)).fingerprint
    assert same == (set(keys) == set(other))


KEY = "ab" * 32


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds 0 keys"),
        (f"{KEY}\n{'cd' * 32}", "holds 2 keys; a secure sum needs at least 3"),
        (f"# sites\n{KEY}x hospital", "Line 2 of the roster does not start with a key"),
        (f"{KEY}\n\n{KEY[:-1]}", "Line 3"),
        (f"hospital {KEY}", "Line 1"),
        (KEY.upper(), "lower case"),
        (f"{KEY} a\n# b\n{KEY} c", "Lines 1 and 3 of the roster hold the same key"),
        (f"{KEY}\n{KEY}\N{LINE SEPARATOR}{KEY}", "Lines 1 and 2"),
    ],
)
def test_malformed_rosters_are_refused_with_the_line(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Roster.parse(text)


@given(st.text(max_size=80))
def test_foreign_text_gives_only_our_error(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Roster.parse(text)


def test_roster_files(tmp_path: Path) -> None:
    path = tmp_path / "roster.txt"
    with pytest.raises(InvalidInputError, match="Cannot read the roster"):
        Roster.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="not a text in UTF-8"):
        Roster.load(path)
    text = "\n".join(key.hex() for key in ROSTER.keys)
    path.write_text(text, encoding="utf-8-sig")  # as some editors save it
    assert Roster.load(path) == ROSTER
    with pytest.raises(InvalidInputError, match="32 bytes"):
        Roster(frozenset({b"a", b"b", b"c"}))
    assert ROSTER.fingerprint[:8] in repr(ROSTER)


# The plan


def test_a_plan_carries_the_roster_under_its_signature() -> None:
    plan = WORLD.plan(roster=ROSTER.fingerprint)
    assert Plan.from_dict(plan.to_dict()) == plan
    signed = SignedPlan.sign(plan, WORLD.key)
    forged = SignedPlan(replace(plan, roster=""), signed.signer, signed.signature)
    assert signed.is_signed_by(WORLD.key.public)
    assert not forged.is_signed_by(WORLD.key.public)
    assert plan.fingerprint != WORLD.plan().fingerprint
    for bad in ("x", "AB" * 32):
        with pytest.raises(InvalidInputError, match="roster of a plan"):
            WORLD.plan(roster=bad)
    older = plan.to_dict() | {"format": "fedprikl plan", "version": 2}
    with pytest.raises(InvalidInputError, match=r"before fedprikl 1\.0, by version 2"):
        Plan.from_dict(older)


# The client


def open_round(**changes: Any) -> Round:
    plan = WORLD.plan(**({"cohort": 9, "roster": ROSTER.fingerprint} | changes))
    return Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference).open_round(
        WORLD.names(),
        rng=np.random.default_rng(1),
        randomness=os.urandom,
        identities={
            name: bytes.fromhex(WORLD.identities[int(name[1:])].public) for name in WORLD.names()
        },
    )


def invitation(**changes: Any) -> tuple[Invitation, int]:
    """The invitation of the first session, and the number of the client in it."""
    this = open_round(**changes)
    return Invitation.to_member(this, this.cohorts[0], 0), int(this.cohorts[0].members[0][1:])


def client(who: int, **changes: Any) -> Client:
    settings: dict[str, Any] = {
        "policy": EVERYTHING,
        "randomness": os.urandom,
        "identity": WORLD.identities[who],
        "roster": ROSTER,
    }
    return Client(WORLD.held[who], WORLD.reference, **(settings | changes))


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_member_of_the_roster_gets_a_session(trust: str) -> None:
    asked, who = invitation(trust=trust)
    assert len(asked.sums.roster) == 9
    session = client(who).join(asked.to_bytes(), at=AT)
    assert len(session.answer(Step.ADVERTISE, b"")) > 0


STRANGER = SigningKey.generate()
OTHERS = Roster(ROSTER.keys | {bytes.fromhex(STRANGER.public)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"roster": None}, "this client has none or no identity"),
        ({"identity": None}, "this client has none or no identity"),
        ({"roster": OTHERS}, r"another roster \(\w+\) than this client has \(\w+\)"),
        ({"identity": STRANGER}, "does not stand at its place"),
    ],
)
def test_a_client_without_its_part_of_the_roster_refuses(
    changes: dict[str, Any], words: str
) -> None:
    asked, who = invitation()
    with pytest.raises(PolicyRefusal, match=words):
        client(who, **changes).join(asked.to_bytes(), at=AT)


def with_roster(asked: Invitation, change: Callable[[list[bytes]], None]) -> Invitation:
    keys = list(asked.sums.roster)
    change(keys)
    return replace(asked, sums=replace(asked.sums, roster=tuple(keys)))


def put_a_stranger_in(keys: list[bytes]) -> None:
    keys[5] = bytes.fromhex(STRANGER.public)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put_a_stranger_in, "members who are not in the roster"),
        (list.clear, "members who are not in the roster"),
        (list.reverse, "does not stand at its place"),
    ],
)
def test_a_cohort_of_other_members_is_refused(
    change: Callable[[list[bytes]], None], words: str
) -> None:
    asked, who = invitation()
    with pytest.raises(PolicyRefusal, match=words):
        client(who).join(consistent(with_roster(asked, change)).to_bytes(), at=AT)


def test_an_index_beyond_the_cohort_is_refused() -> None:
    asked, who = invitation()
    with pytest.raises(PolicyRefusal, match="does not stand at its place"):
        client(who).join(replace(asked, index=9).to_bytes(), at=AT)


def test_a_plan_without_a_roster_has_none_in_its_sums() -> None:
    asked, who = invitation()
    without = SignedPlan.sign(replace(asked.signed.plan, roster=""), WORLD.key)
    with pytest.raises(PolicyRefusal, match="but the plan names none"):
        client(who).join(consistent(replace(asked, signed=without)).to_bytes(), at=AT)
    bare = consistent(replace(asked, signed=without, sums=replace(asked.sums, roster=())))
    client(who).join(bare.to_bytes(), at=AT)
    insists = replace(EVERYTHING, require_roster=True)
    with pytest.raises(PolicyRefusal, match="insists on one"):
        client(who, policy=insists).join(bare.to_bytes(), at=AT)
    client(who, policy=insists).join(asked.to_bytes(), at=AT)


# What a lying server may write into an invitation


@pytest.mark.parametrize(
    "lie",
    [
        {"minimum": 9},  # more inputs, so less noise of each
        {"minimum": 7},
        {"threshold": 7},
        {"neighbours": 4, "threshold": 4},  # a graph that colluders can surround a client in
        {"maxima": (10**6,) * 8},
    ],
)
def test_a_sum_that_does_not_follow_from_the_signed_plan_is_refused(lie: dict[str, Any]) -> None:
    asked, who = invitation(trust="none")
    client(who).join(asked.to_bytes(), at=AT)  # nothing else is wrong with it
    with pytest.raises(PolicyRefusal, match="does not fit the plan"):
        client(who).join(replace(asked, sums=replace(asked.sums, **lie)).to_bytes(), at=AT)


def test_members_of_a_sum_hold_the_same_plan() -> None:
    """Two plans may have sums of the same sizes, and one of them less noise: no mixture."""
    asked, who = invitation(trust="none", epsilon=1.0)
    plan, sums = asked.signed.plan, asked.sums
    weaker = plan.changed(epsilon=1.0 + 1e-9)
    same = plan_cohort(weaker, clients=9, nonce=sums.nonce, roster=sums.roster)
    assert same == sums  # nothing else would tell them apart
    mixed = replace(asked, signed=SignedPlan.sign(weaker, WORLD.key))
    for lie in (mixed, replace(asked, round_id="00" * 16)):
        with pytest.raises(PolicyRefusal, match="does not fit the plan"):
            client(who).join(lie.to_bytes(), at=AT)
    other = replace(asked, sums=replace(sums, nonce=os.urandom(32)))
    with pytest.raises(PolicyRefusal, match="does not fit the plan"):
        client(who).join(other.to_bytes(), at=AT)


def test_cohorts_of_a_round_have_sums_of_their_own() -> None:
    sums = [cohort.sums for cohort in open_round(cohort=3).cohorts]
    assert len(sums) == 3
    assert len({each.round_id for each in sums}) == 3


def smaller(asked: Invitation, clients: int) -> Invitation:
    """As an honest server would ask so few of the roster."""
    keys = asked.sums.roster[:clients]
    plan, nonce = asked.signed.plan, asked.sums.nonce
    return replace(asked, sums=plan_cohort(plan, clients=clients, nonce=nonce, roster=keys))


def test_where_nobody_is_trusted_a_cohort_is_nearly_the_whole_roster() -> None:
    """Whoever deals could put a client among colluders; with a trusted aggregator that is moot."""
    alone, who = invitation(trust="none", corruption=0.0)
    client(who).join(smaller(alone, 8).to_bytes(), at=AT)
    with pytest.raises(PolicyRefusal, match=r"has 7 clients; .* needs 8 of the roster's 9"):
        client(who).join(smaller(alone, 7).to_bytes(), at=AT)
    trusted, who = invitation()
    client(who).join(smaller(trusted, 5).to_bytes(), at=AT)
    assert trust_of(alone.signed.plan).smallest_cohort(100) == 90
    assert trust_of(trusted.signed.plan).smallest_cohort(100) == 3


def test_where_nobody_is_trusted_every_client_is_everybodys_neighbour() -> None:
    plan = WORLD.plan(trust="none", cohort=400)
    sparse = plan_cohort(plan, clients=400)
    complete = plan_cohort(replace(plan, roster=ROSTER.fingerprint), clients=400)
    assert sparse.neighbours < 399 == complete.neighbours
    assert 2 * complete.threshold > complete.neighbours + 40  # of whom 40 may collude
    assert complete.minimum == sparse.minimum == 360


@pytest.mark.parametrize("clients", [3, 4, 5, 8, 9, 20, 49])
@pytest.mark.parametrize("corruption", [0.0, 0.1, 0.2])
def test_sums_withstand_as_many_colluders_as_their_noise(clients: int, corruption: float) -> None:
    """A tenth of eight clients is one client, for the noise and for the secrets alike."""
    plan = WORLD.plan(trust="none", corruption=corruption, roster=ROSTER.fingerprint)
    sums = plan_cohort(plan, clients=clients)
    colluding = math.ceil(corruption * clients)
    assert sums.neighbours == clients - 1
    assert 2 * sums.threshold > sums.neighbours + colluding
    share = NoisyHistogram(plan).share(clients)
    assert share is not None
    assert share.on.shares == sums.minimum - max(1, colluding)  # everybody knows its own


def test_a_cohort_that_no_plan_allows_is_refused_and_not_an_error() -> None:
    asked, who = invitation(trust="none", corruption=0.45, dropout=0.0)
    hopeless = asked.signed.plan.changed(dropout=0.4)
    changed = replace(asked, signed=SignedPlan.sign(hopeless, WORLD.key))
    with pytest.raises(PolicyRefusal, match="does not fit the plan"):
        client(who).join(changed.to_bytes(), at=AT)


# Whole rounds, and sessions that outlive a process


def test_a_round_with_identities_is_the_round_without() -> None:
    leaves = {"c2": Leaves.BEFORE_INPUT}
    plain = WORLD.run(WORLD.plan(cohort=9), leaves=leaves, source=InsecureNoNoise())
    known = WORLD.run(
        WORLD.plan(cohort=9, roster=ROSTER.fingerprint), leaves=leaves, source=InsecureNoNoise()
    )
    assert known.release.value == plain.release.value
    assert set(known.round.cohorts[0].sums.roster) == ROSTER.keys
    assert plain.round.cohorts[0].sums.roster == ()


def test_a_round_with_a_roster_needs_identities() -> None:
    strangers = World.make(clients=9)
    with pytest.raises(InvalidInputError, match="every client needs its identity"):
        strangers.run(strangers.plan(roster=ROSTER.fingerprint))


def test_a_client_of_another_roster_is_left_out() -> None:
    clients = WORLD.clients()
    clients["c4"] = client(4, roster=OTHERS)
    result = WORLD.run(WORLD.plan(cohort=9, roster=ROSTER.fingerprint), clients=clients)
    assert list(result.refusals) == ["c4"]
    assert result.release.cohorts[0].included == 8


def test_a_kept_seat_has_no_identity_and_gets_it_again() -> None:
    asked, who = invitation()
    key = WORLD.identities[who]
    session = client(who).join(asked.to_bytes(), at=AT)
    session.answer(Step.ADVERTISE, b"")
    kept, secret = session.to_bytes(), key.private_bytes()
    assert all(each not in kept for each in (secret, secret.hex().encode(), b64encode(secret)))
    assert ClientSession.from_bytes(kept, identity=key).to_bytes() == kept
    for wrong in (None, STRANGER):
        with pytest.raises(InvalidInputError, match="identity"):
            ClientSession.from_bytes(kept, identity=wrong)


# The identity check


def identity_check(names: str = "abcde", dropout: float = 0.0) -> IdentityCheck:
    keys = [bytes.fromhex(key.public) for key in WORLD.identities[:4]]
    return IdentityCheck(Roster(frozenset(keys)), list(names), challenge=CHALLENGE, dropout=dropout)


def test_the_check_takes_whoever_proves_to_be_known() -> None:
    check = identity_check()
    for i, name in enumerate("abcd"):
        assert check.waiting == 5 - i
        assert check.take(Reply(name, introduce(WORLD.identities[i], CHALLENGE, name)))
    assert check.waiting == 0  # the whole roster is there; the fifth name can be no one
    assert check.left_out == 1
    assert check.identities == {
        name: bytes.fromhex(WORLD.identities[i].public) for i, name in enumerate("abcd")
    }


def test_nobody_takes_anothers_place_in_the_check() -> None:
    check = identity_check()
    mine = introduce(WORLD.identities[0], CHALLENGE, "a")
    for name, claim in {
        "b": mine,  # repeated by another name
        "c": introduce(STRANGER, CHALLENGE, "c"),  # not in the roster
        "d": mine[:32] + introduce(STRANGER, CHALLENGE, "d")[32:],  # says the key, has it not
        "e": introduce(WORLD.identities[1], "00" * 16, "e"),  # of another identity check
    }.items():
        assert not check.take(Reply(name, claim))
    assert check.take(Reply("a", mine))
    assert list(check.identities) == ["a"]
    assert not check.take(Reply("a", mine))
    assert not check.take(
        Reply("z", introduce(WORLD.identities[1], CHALLENGE, "z"))
    )  # was not asked


@given(st.binary(max_size=100))
def test_foreign_bytes_prove_nothing(data: bytes) -> None:
    check = identity_check()
    assert not check.take(Reply("a", data))
    assert check.identities == {}


def test_an_identity_at_two_names_counts_once() -> None:
    check = identity_check()
    for name in "ab":
        check.take(Reply(name, introduce(WORLD.identities[0], CHALLENGE, name)))
    assert list(check.identities) == ["a"]


def test_the_check_can_spare_as_many_as_the_plan() -> None:
    check = identity_check(dropout=0.2)
    for name in "abc":
        check.take(Reply(name, lost="gone"))
        assert not check.can_spare_the_rest()
    check.take(Reply("d", refusal="why"))
    assert check.can_spare_the_rest()
    assert check.waiting == 1
    with pytest.raises(InvalidInputError, match="fresh random bytes"):
        IdentityCheck(ROSTER, ["a"], challenge="x", dropout=0.0)
