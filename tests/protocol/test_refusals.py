"""A refusal is the client's own: sealed, of one length, and signed where clients are known."""

import numpy as np
import pytest

from fedprikl.protocol import (
    Aggregator,
    Invitation,
    Reply,
    Roster,
    Round,
    RoundDriver,
    SealingKey,
    Server,
    SignedPlan,
    SigningKey,
    Step,
)
from fedprikl.protocol.keys import seal_refusal
from tests.protocol.worlds import World

WORLD = World.make(clients=9).with_identities()
ROSTER: Roster = WORLD.roster()
KEY = SealingKey.generate()


def begin(*, known: bool) -> tuple[RoundDriver, Round]:
    plan = WORLD.plan(cohort=9, aggregator=KEY.public, roster=ROSTER.fingerprint if known else "")
    identities = {
        name: bytes.fromhex(key.public)
        for name, key in zip(WORLD.names(), WORLD.identities, strict=True)
    }
    current = Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference).open_round(
        WORLD.names(),
        rng=np.random.default_rng(0),
        randomness=lambda n: b"r" * n,
        identities=identities,
    )
    aggregator = Aggregator(current, key=WORLD.key, ledger=None, software="x")
    driver = RoundDriver(current, aggregator, KEY)
    driver.messages(Step.ADVERTISE)
    return driver, current


def refusal(current: Round, name: str, identity: SigningKey | None, reason: str = "no") -> bytes:
    index = current.cohorts[0].members.index(name)
    asked = Invitation.to_member(current, current.cohorts[0], index)
    return seal_refusal(reason, KEY.public, asked.address(Step.ADVERTISE), identity)


def test_a_known_client_signs_its_refusal() -> None:
    driver, current = begin(known=True)
    assert driver.take(
        Step.ADVERTISE, Reply("c4", refusal(current, "c4", WORLD.identities[4], "why"))
    )
    assert driver.refusals == {"c4": "why"}
    assert driver.confided == {"c4"}
    assert driver.waiting == 8


@pytest.mark.parametrize("signer", [None, SigningKey.generate(), WORLD.identities[5]])
def test_nobody_refuses_for_a_known_client(signer: SigningKey | None) -> None:
    """Anybody can seal to the aggregator's public key, and would keep the client out."""
    driver, current = begin(known=True)
    assert not driver.take(Step.ADVERTISE, Reply("c4", refusal(current, "c4", signer)))
    assert driver.refusals == {}
    assert driver.waiting == 9


def test_a_signature_is_for_these_words_in_current_place() -> None:
    driver, current = begin(known=True)
    elsewhere = refusal(current, "c5", WORLD.identities[4])  # another member's address
    assert not driver.take(Step.ADVERTISE, Reply("c4", elsewhere))
    assert driver.waiting == 9


def test_among_strangers_a_refusal_is_believed() -> None:
    """It has to be: nobody knows who they are. The relay could drop the client as well."""
    driver, current = begin(known=False)
    assert driver.take(Step.ADVERTISE, Reply("c4", refusal(current, "c4", None)))
    assert driver.waiting == 8


def test_all_refusals_have_one_length() -> None:
    _, current = begin(known=True)
    lengths = {
        len(refusal(current, "c1", signer, reason))
        for signer in (None, WORLD.identities[1])
        for reason in ("", "a reason", "long " * 100)
    }
    assert len(lengths) == 1
