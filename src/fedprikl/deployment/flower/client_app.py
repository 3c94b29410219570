"""The ClientApp: hosts the client role at the site that holds the records.

Flower starts a fresh process for every message. The session of a round is kept in `context.state`,
which stays in the memory of the site's own SuperNode and is erased when the round is over. With it
is the last answer, sealed: a letter that arrives twice gets the same bytes twice. Another letter
for the same step gets nothing: the site's memory (`site_memory.py`) knows, as it knows how often
the site's records were counted and which plans are replaced.

What is told in the open depends on no record. From the moment the records are read, everything
that goes back is sealed, also that something failed, and why stays in the site's own log.

Without a trusted aggregator there is nobody who is sure to keep count of what was released. So the
site charges a ledger of its own before its counts leave, and without a budget they do not.
"""

import hashlib
import logging
import os
from collections.abc import Callable

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedprikl.deployment.flower.envelope import IDENTITY, Parcel, pack, unpack
from fedprikl.deployment.host import now
from fedprikl.deployment.settings import NodeSettings
from fedprikl.deployment.site_memory import SiteMemory
from fedprikl.errors import BudgetExceededError, FedPriKLError, PolicyRefusal, SecureSumError
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    Client,
    ClientSession,
    Invitation,
    Plan,
    Roster,
    SigningKey,
    Step,
    check_roster,
    check_validity,
    introduce,
    seal_answer,
    seal_refusal,
    trust_of,
)
from fedprikl.records import open_records
from fedprikl.reference import Reference

__all__ = ["app", "handle", "handle_identity"]

SESSION = "fedprikl-session"  # a round that goes on, and its last answer
LAST = "fedprikl-last-answer"  # of a round that is over
log = logging.getLogger(__name__)

app = ClientApp()


def handle(step: Step, message: Message, context: Context) -> Message:
    """Answers one message. Whatever goes wrong, Flower is handed no exception.

    It would send the exception's text to the SuperLink; the text stays in the site's own log.
    """
    round_id = ""
    try:
        asked = unpack(message)
        round_id = asked.round_id
        if letter := _answered(step, asked, context):
            parcel = Parcel(round_id, letter)
        elif step is Step.ADVERTISE:
            parcel = _join(asked, context)
        else:
            parcel = _go_on(step, asked, context)
    except PolicyRefusal as refusal:  # of a check that looks at no record
        parcel = _refuse(asked, refusal.reason)
    except FedPriKLError as error:
        _forget(context)
        log.error("fedprikl takes no part in this round: %s", error)
        parcel = Parcel(round_id, refusal="it is not set up for this round; its own log says why")
    except Exception as error:
        _forget(context)
        log.error("fedprikl failed: %s. Please report it.", type(error).__name__)
        parcel = Parcel(round_id, refusal="it failed unexpectedly; its own log says where")
    return Message(pack(parcel), reply_to=message)


def _join(asked: Parcel, context: Context) -> Parcel:
    """The first step: check who asks for what, count, open a session."""
    settings = NodeSettings.of(context.node_config)
    invitation = Invitation.from_bytes(asked.letter)
    signed = invitation.signed
    _check_company(invitation, settings)
    _memory(settings).begin(
        invitation.round_id, signed, most_counts=settings.policy.most_counts, at=now()
    )
    _forget(context)  # what is left of a round that never ended
    try:
        session = _open_session(invitation, settings)
    except Exception as error:
        return _refuse_sealed(error, Step.ADVERTISE, invitation, settings)
    return _answer(Step.ADVERTISE, asked, session, settings, context)


def _check_company(invitation: Invitation, settings: NodeSettings) -> None:
    """Raises a `PolicyRefusal` if it is not good enough. Looks at no record."""
    signed, plan = invitation.signed, invitation.signed.plan
    if not signed.is_signed_by(settings.policy.organiser):
        raise PolicyRefusal("the plan is not signed by the organiser this client trusts")
    if not plan.aggregator:
        raise PolicyRefusal("the plan names no aggregator to seal the answers to")
    check_validity(plan, settings.policy, at=now())
    if trust_of(plan).shares_noise and not plan.roster:
        raise PolicyRefusal("without a trusted aggregator it needs a roster of clients")
    check_roster(invitation, settings.policy, *_credentials(plan, settings))
    _check_own_budget(invitation, settings)


def _credentials(plan: Plan, settings: NodeSettings) -> tuple[Roster | None, SigningKey | None]:
    """What the site has for a plan with a roster; its files are not touched for another."""
    if not plan.roster:
        return None, None
    return settings.load_roster(), settings.load_identity()


def _check_own_budget(invitation: Invitation, settings: NodeSettings) -> None:
    """Refuses early what the site's own ledger would not allow when the counts are to leave."""
    plan, sums = invitation.signed.plan, invitation.sums
    charge = trust_of(plan).client_charge(sums.clients)
    if charge is None:
        return
    if not settings.ledger.exists():
        raise PolicyRefusal("without a trusted aggregator it needs a budget of its own")
    with Ledger.open(settings.ledger, create=False) as ledger:
        if plan.population not in ledger.populations():
            raise PolicyRefusal("without a trusted aggregator it needs a budget of its own")
        try:
            ledger.check(plan.population, charge)
        except BudgetExceededError:
            raise PolicyRefusal("its own budget does not allow another round") from None


def _open_session(invitation: Invitation, settings: NodeSettings) -> ClientSession:
    reference = Reference.load(settings.reference)
    held = open_records(settings.data).count(reference).counts
    roster, identity = _credentials(invitation.signed.plan, settings)
    client = Client(
        held,
        reference,
        policy=settings.policy,
        randomness=os.urandom,
        identity=identity,
        roster=roster,
    )
    return client.join(invitation.to_bytes(), at=now())


def _go_on(step: Step, asked: Parcel, context: Context) -> Parcel:
    """A later step: take the session up again, if it is of this round."""
    if SESSION not in context.state:
        return _refuse(asked, "it has no session in this round")
    kept = context.state.config_records[SESSION]["session"]
    settings = NodeSettings.of(context.node_config)
    session = ClientSession.from_bytes(
        kept if isinstance(kept, bytes) else b"", identity=settings.load_identity()
    )
    if session.invitation.round_id != asked.round_id:
        return _refuse(asked, "it sits in another round")
    return _answer(step, asked, session, settings, context)


def _charge(session: ClientSession, settings: NodeSettings, *, only_check: bool = False) -> None:
    """Charges the site's own ledger, where the sum itself is the release; or raises."""
    charge, invitation = session.charge, session.invitation
    if charge is None:
        return
    population = invitation.signed.plan.population
    with Ledger.open(settings.ledger, create=False) as ledger:
        if only_check:
            ledger.check(population, charge)
        else:
            ledger.reserve(population, charge, round_id=invitation.round_id, at=now())


def _answer(
    step: Step, asked: Parcel, session: ClientSession, settings: NodeSettings, context: Context
) -> Parcel:
    """Works the answer out, claims the step in the site's memory, and only then lets it go."""
    invitation, memory = session.invitation, _memory(settings)
    round_id = invitation.round_id
    try:
        message = session.answer(step, b"" if step is Step.ADVERTISE else asked.letter)
        if step is Step.INPUT and session.charge is not None and session.spoilt:
            raise PolicyRefusal("a neighbour shared nonsense; it does not pay for a sum like that")
    except Exception as error:
        if step is not Step.ADVERTISE:
            memory.go_on(round_id, step)  # a refusal is an answer too
        _forget(context)
        return _refuse_sealed(error, step, invitation, settings)
    if step is Step.INPUT:
        _charge(session, settings, only_check=True)  # a count that cannot be paid is not counted
        memory.count(round_id, invitation.signed, most_counts=settings.policy.most_counts, at=now())
        _charge(session, settings)
    elif step is not Step.ADVERTISE:
        memory.go_on(round_id, step)
    aggregator = invitation.signed.plan.aggregator
    letter = seal_answer(message, aggregator, session.address(step))
    answered = ConfigRecord({"asked": _digest(step, asked), "answer": letter})
    if session.is_over:
        _forget(context)
        context.state[LAST] = answered
    else:
        answered["session"] = session.to_bytes()
        context.state[SESSION] = answered
    return Parcel(round_id, letter)


def _answered(step: Step, asked: Parcel, context: Context) -> bytes:
    """The last answer, if this very letter was the question; empty otherwise.

    A server whose reply from the relay is lost sends again. To repeat sealed bytes tells nobody
    anything; to seal a second answer might.
    """
    for name in {SESSION, LAST} & set(context.state):
        kept = context.state.config_records[name]
        answer = kept.get("answer")
        if kept.get("asked") == _digest(step, asked) and isinstance(answer, bytes):
            return answer
    return b""


def _digest(step: Step, asked: Parcel) -> bytes:
    return hashlib.sha256(f"{asked.round_id}/{step}/".encode() + asked.letter).digest()


def _refuse(asked: Parcel, reason: str) -> Parcel:
    log.error("fedprikl takes no part: %s", reason)
    return Parcel(asked.round_id, refusal=reason)


def _refuse_sealed(
    error: Exception, step: Step, invitation: Invitation, settings: NodeSettings
) -> Parcel:
    """Tells the aggregator alone, in as many bytes as an answer, and of our own words only."""
    match error:
        case PolicyRefusal():
            reason = error.reason
        case SecureSumError():
            reason = str(error)
        case _:
            reason = "it could not count its records; its own log says why"
    words = error if isinstance(error, FedPriKLError) else f"{type(error).__name__}, report it"
    log.error("fedprikl takes no part: %s", words)
    plan = invitation.signed.plan
    _, identity = _credentials(plan, settings)
    letter = seal_refusal(reason, plan.aggregator, invitation.address(step), identity)
    return Parcel(invitation.round_id, letter)


def _forget(context: Context) -> None:
    for name in {SESSION, LAST} & set(context.state):
        del context.state[name]


def _memory(settings: NodeSettings) -> SiteMemory:
    return SiteMemory(settings.memory, settings.data)


def handle_identity(message: Message, context: Context) -> Message:
    """Tells who this site is, before a round. All of it is public; no round is touched."""
    question = ""
    try:
        question = unpack(message).round_id
        identity = NodeSettings.of(context.node_config).load_identity()
        if identity is None:
            parcel = Parcel(question, refusal="it has no identity")
        else:
            parcel = Parcel(question, introduce(identity, question, str(context.node_id)))
    except Exception as error:  # Flower would send its words to the relay
        words = error if isinstance(error, FedPriKLError) else type(error).__name__
        log.error("fedprikl cannot tell who this site is: %s", words)
        parcel = Parcel(question, refusal="it cannot tell who it is; its own log says why")
    return Message(pack(parcel), reply_to=message)


def _handler(step: Step) -> Callable[[Message, Context], Message]:
    return lambda message, context: handle(step, message, context)


app.query(IDENTITY)(handle_identity)
for _step in Step:
    app.query(_step.value)(_handler(_step))
