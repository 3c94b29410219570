"""A session taken up again in another process answers what it would have answered."""

import json
import os
from typing import Any

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.errors import WrongStepError
from fedprikl.protocol import Aggregator, ClientSession, Invitation, Round, Server, SignedPlan, Step
from tests.protocol.worlds import AT, World

WORLD = World.make(clients=6)


def open_round(**changes: Any) -> Round:
    plan = WORLD.plan(cohort=6, dropout=0.1, **changes)
    server = Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference)
    return server.open_round(WORLD.names(), rng=np.random.default_rng(1), randomness=os.urandom)


def run(current: Round, sessions: list[ClientSession], *, restart: bool) -> list[list[bytes]]:
    """All answers of all steps; with `restart`, sessions go through bytes after each step."""
    aggregator = Aggregator(current, key=WORLD.key, ledger=None, software="test")
    sums = aggregator.sums[0]
    senders = {
        Step.SHARE: sums.send_keys,
        Step.INPUT: sums.send_shares,
        Step.ECHO: sums.send_survivors,
        Step.REVEAL: sums.send_echoes,
    }
    answers = []
    for step in Step:
        messages = senders[step]() if step in senders else dict.fromkeys(range(6), b"")
        answers.append([sessions[i].answer(step, messages[i]) for i in range(6)])
        for i, message in enumerate(answers[-1]):
            sums.receive(i, message)
        if restart:
            sessions = [ClientSession.from_bytes(session.to_bytes()) for session in sessions]
    assert all(session.is_over for session in sessions)
    assert aggregator.close(0, at="2030-01-31T12:00:00Z").included == 6
    return answers


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_session_survives_its_process_in_every_step(trust: str) -> None:
    """Also the noise of a client that adds its own: drawn once, not once per process."""
    current = open_round(trust=trust, corruption=0.0)
    clients = WORLD.clients()
    sessions = []
    for i, name in enumerate(current.cohorts[0].members):
        invitation = Invitation.to_member(current, current.cohorts[0], i)
        sessions.append(clients[name].join(invitation.to_bytes(), at=AT))
    copies = [ClientSession.from_bytes(session.to_bytes()) for session in sessions]
    assert run(current, sessions, restart=False) == run(current, copies, restart=True)


def one_session() -> ClientSession:
    current = open_round()
    invitation = Invitation.to_member(current, current.cohorts[0], 0)
    return next(iter(WORLD.clients().values())).join(invitation.to_bytes(), at=AT)


def test_a_session_never_prints_and_refuses_what_is_out_of_order() -> None:
    session = one_session()
    assert repr(session).startswith("<ClientSession 0 in round")
    with pytest.raises(WrongStepError):
        session.answer(Step.REVEAL, b"")


@pytest.mark.parametrize("field", ["invitation", "vector", "seed", "rules", "messages"])
def test_a_damaged_session_is_refused(field: str) -> None:
    document = json.loads(one_session().to_bytes())
    document[field] = {"no": "such thing"} if field != "messages" else ["no base64!"]
    with pytest.raises(InvalidInputError):
        ClientSession.from_bytes(json.dumps(document).encode())
