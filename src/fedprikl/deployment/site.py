"""A site: hosts the client role where the records are, over whatever network.

A site may be a fresh process for every message. What it keeps between two messages (`Site.state`)
stays in its own memory: the session of a round, erased when the round is over, and the last answer,
sealed. A message that arrives twice gets the same bytes twice. Another message for the same step
gets nothing: the site's memory on disk (`site_memory.py`) knows, as it knows how often the site's
records were counted and which plans are replaced.

What is told in the open depends on no record. From the moment the records are read, everything
that goes back is sealed, also that something failed, and why stays in the site's own log.

Before a round begins, the site's policy (`policy.py`) decides, and where the policy says so a
person. The site's log (`site_log.py`) has what was asked and what left.

Without a trusted aggregator there is nobody who is sure to keep count of what was released. So the
site charges a ledger of its own before its counts leave, and without a budget they do not.
"""

import hashlib
import logging
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from fedprikl.deployment.settings import NodeSettings, now
from fedprikl.deployment.site_log import WAITS, SiteLog
from fedprikl.deployment.site_memory import SiteMemory, check_newest
from fedprikl.errors import BudgetExceededError, FedPriKLError, PolicyRefusal, SecureSumError
from fedprikl.monitoring.counted_records import records_asked
from fedprikl.privacy import Charge, Ledger
from fedprikl.protocol import (
    Client,
    ClientSession,
    Invitation,
    Plan,
    Roster,
    SigningKey,
    Step,
    draw_of,
    trust_of,
)
from fedprikl.protocol.client import (
    check_asker,
    check_corruption,
    check_period,
    check_plan,
    check_roster,
)
from fedprikl.protocol.keys import seal_answer, seal_refusal
from fedprikl.protocol.round import introduce
from fedprikl.reference import Reference

log = logging.getLogger(__name__)


def check_before_reading(invitation: Invitation, settings: NodeSettings, *, at: str) -> Reference:
    """The reference of the plan; a `PolicyRefusal` if it is not good enough. Looks at no record."""
    signed, plan, limits = invitation.signed, invitation.signed.plan, settings.policy.limits
    check_asker(signed, limits)
    if not plan.aggregator:
        raise PolicyRefusal("the plan names no aggregator to seal the answers to")
    settings.policy.check_hours(at)
    # A kit may have brought a newer plan before any round of it. The memory knows the rounds.
    check_newest(signed, settings.home.newest_serial(signed.lineage))
    reference = settings.home.find_reference(plan.reference)
    if reference is None:
        raise PolicyRefusal(settings.home.wrong_reference(plan.reference, "this site"))
    check_plan(signed, limits, reference, at=at)
    check_corruption(plan, limits)
    check_period(invitation, at=at)
    if trust_of(plan).shares_noise and not plan.roster:
        raise PolicyRefusal("without a trusted aggregator it needs a roster of clients")
    check_roster(invitation, limits, *credentials(plan, settings))
    _check_own_budget(invitation, settings)
    return reference


def credentials(plan: Plan, settings: NodeSettings) -> tuple[Roster | None, SigningKey | None]:
    """What the site has for a plan with a roster; its files are not touched for another."""
    if not plan.roster:
        return None, None
    return settings.load_roster(), settings.load_identity()


def _check_own_budget(invitation: Invitation, settings: NodeSettings) -> None:
    """Refuses early what the site's own ledger would not allow when the counts are to leave."""
    plan = invitation.signed.plan
    charge = trust_of(plan).client_charge(invitation.sums.clients)
    if charge is None:
        return
    if not settings.home.has_budget(plan.population):
        raise PolicyRefusal("without a trusted aggregator it needs a budget of its own")
    try:
        _pay(invitation, charge, settings, at=None)
    except BudgetExceededError:
        raise PolicyRefusal("its own budget does not allow another round") from None


def _pay(
    invitation: Invitation, charge: Charge | None, settings: NodeSettings, *, at: str | None
) -> None:
    """Charges the site's own ledger, where the sum itself is the release; or raises.

    Without a time it only looks whether the budget allows the charge.
    """
    if charge is None:
        return
    plan, round_id = invitation.signed.plan, invitation.round_id
    population, unit = plan.population, plan.unit.kind
    times = plan.charged_times(invitation.period)
    with Ledger.open(settings.home.ledger, create=False) as ledger:
        if at is None:
            ledger.check(population, charge, times=times, unit=unit)
        else:
            ledger.reserve(population, charge, round_id=round_id, at=at, times=times, unit=unit)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels between the host of a round and a site, either way. The relay sees it."""

    round_id: str  # or the challenge of an identity check
    message: bytes = b""  # to the host: sealed, or the proof of an identity
    refusal: str = ""  # in the open, so never about the site's records


@dataclass(frozen=True, slots=True)
class Site:
    """One site, for one message. `config` is its owner's; see `NodeSettings`.

    `state` is what it keeps between two messages, in memory of its own that no relay can read: the
    `session` of a round that goes on, the last `answer`, sealed, and a digest of what was `asked`.
    """

    config: Mapping[str, object]
    state: MutableMapping[str, bytes] = field(repr=False)  # SECRET: the session

    def answer(self, step: Step, asked: Envelope) -> Envelope:
        """Answers one message of a round. Whatever goes wrong, no exception leaves the site.

        A network would send its text to the relay; it stays in the site's own log.
        """
        try:
            if repeated := self._answered(step, asked):
                return Envelope(asked.round_id, repeated)
            if step is Step.ADVERTISE:
                return self._join(asked)
            return self._go_on(step, asked)
        except PolicyRefusal as refusal:  # of a check that looks at no record
            return _refuse(asked, refusal.reason)
        except Exception as error:
            return self.give_up(asked.round_id, error)

    def give_up(self, round_id: str, error: Exception) -> Envelope:
        """Forgets the round, and says no more in the open than that something is wrong."""
        self.state.clear()
        if isinstance(error, FedPriKLError):
            log.error("fedprikl takes no part in this round: %s", error)
            reason = "it is not set up for this round; its own log says why"
        else:
            log.error("fedprikl failed: %s. Please report it.", type(error).__name__)
            reason = "it failed unexpectedly; its own log says where"
        return Envelope(round_id, refusal=reason)

    def introduce(self, challenge: str, name: str) -> Envelope:
        """Tells who this site is, before a round. All of it is public; no round is touched."""
        try:
            identity = NodeSettings.of(self.config).load_identity()
            if identity is None:
                return Envelope(challenge, refusal="it has no identity")
            return Envelope(challenge, introduce(identity, challenge, name))
        except Exception as error:  # its words would reach the relay
            words = error if isinstance(error, FedPriKLError) else type(error).__name__
            log.error("fedprikl cannot tell who this site is: %s", words)
            return Envelope(challenge, refusal="it cannot tell who it is; its own log says why")

    def _join(self, asked: Envelope) -> Envelope:
        """The first step: check who asks for what, count, open a session."""
        settings = NodeSettings.of(self.config)
        invitation = Invitation.from_bytes(asked.message)
        at, policy = now(), settings.policy
        reference = check_before_reading(invitation, settings, at=at)
        memory = SiteMemory(settings.home.memory, settings.data)
        own = SiteLog(settings.home.log, memory.log_head())
        own.check(invitation, policy, at=at)
        left = own.left(memory.logged())
        memory.begin(invitation, most_counts=policy.limits.most_counts, at=at, left=left)
        self.state.clear()  # what is left of a round that never ended
        try:
            session = _open_session(invitation, settings, reference)
        except Exception as error:
            return self._refuse_sealed(error, Step.ADVERTISE, asked, invitation, settings)
        return self._answer(Step.ADVERTISE, asked, session, settings)

    def _go_on(self, step: Step, asked: Envelope) -> Envelope:
        """A later step: take the session up again, if it is of this round."""
        if "session" not in self.state:
            return _refuse(asked, "it has no session in this round")
        settings = NodeSettings.of(self.config)
        session = ClientSession.from_bytes(self.state["session"], identity=settings.load_identity())
        if session.invitation.round_id != asked.round_id:
            return _refuse(asked, "it sits in another round")
        return self._answer(step, asked, session, settings)

    def _answer(
        self, step: Step, asked: Envelope, session: ClientSession, settings: NodeSettings
    ) -> Envelope:
        """Works the answer out, claims the step in the site's memory, and only then lets it go."""
        invitation = session.invitation
        try:
            answer = session.answer(step, asked.message)
            if step is Step.INPUT and session.charge is not None and session.spoilt:
                raise PolicyRefusal(
                    "a neighbour shared nonsense; it does not pay for a sum like that"
                )
        except Exception as error:
            if step is not Step.ADVERTISE:  # a refusal is an answer too
                SiteMemory(settings.home.memory, settings.data).go_on(invitation.round_id, step)
            return self._refuse_sealed(error, step, asked, invitation, settings)
        _claim(step, session, settings)
        sealed = seal_answer(answer, invitation.signed.plan.aggregator, invitation.address(step))
        self._keep(step, asked, sealed)
        if not session.is_over:
            self.state["session"] = session.to_bytes()
        return Envelope(invitation.round_id, sealed)

    def _refuse_sealed(
        self,
        error: Exception,
        step: Step,
        asked: Envelope,
        invitation: Invitation,
        settings: NodeSettings,
    ) -> Envelope:
        """A refusal that may depend on records. Asked again, the site repeats the same bytes.

        Tells the aggregator alone, in as many bytes as an answer, and of our own words only.
        """
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
        _, identity = credentials(plan, settings)
        sealed = seal_refusal(reason, plan.aggregator, invitation.address(step), identity)
        self._keep(step, asked, sealed)
        return Envelope(invitation.round_id, sealed)

    def _keep(self, step: Step, asked: Envelope, sealed: bytes) -> None:
        """Keeps the last answer, and nothing from before."""
        self.state.clear()
        self.state["asked"], self.state["answer"] = _digest(step, asked), sealed

    def _answered(self, step: Step, asked: Envelope) -> bytes:
        """The last answer, if this very message was the one asked; empty otherwise.

        A host whose reply from the relay is lost sends again. To repeat sealed bytes tells nobody
        anything; to seal a second answer might.
        """
        same = self.state.get("asked") == _digest(step, asked)
        return self.state["answer"] if same else b""


def _open_session(
    invitation: Invitation, settings: NodeSettings, reference: Reference
) -> ClientSession:
    """Reads the records; of a series, those of the period.

    Where the plan protects whole clients, exactly as many records are drawn as the invitation's
    signed plan says, so a round sees neither how many there are nor which were drawn. A site
    without records that is to stay away refuses like one that cannot count: sealed, in as many
    bytes as an answer. The aggregator learns that the site has none. The relay does not learn it
    from the bytes, but it sees that the site is asked nothing any more.
    """
    plan = invitation.signed.plan
    draw = draw_of(plan)
    records = records_asked(
        plan, invitation.period, settings.data, settings.form, drawn=draw is not None
    )
    found = records.count(reference, draw)
    roster, identity = credentials(plan, settings)
    client = Client(
        found.counts,
        reference,
        views=found.views,
        policy=settings.policy.limits,
        randomness=os.urandom,
        identity=identity,
        roster=roster,
        period=invitation.period,
    )
    return client.join(invitation.to_bytes(), at=now())


def _claim(step: Step, session: ClientSession, settings: NodeSettings) -> None:
    """Claims a step in the site's memory; where the counts leave, that they did, and the charge.

    The first step is claimed before the records are read.
    """
    invitation, memory = session.invitation, SiteMemory(settings.home.memory, settings.data)
    if step is Step.INPUT:
        _pay(invitation, session.charge, settings, at=None)  # unpaid is not counted
        own, policy, at = SiteLog(settings.home.log, memory.log_head()), settings.policy, now()
        memory.count(
            invitation,
            most_counts=policy.limits.most_counts,
            at=at,
            log=lambda: own.send(invitation, policy, at=at),
            left=own.left(memory.logged()),
        )
        _pay(invitation, session.charge, settings, at=now())
        log.info(
            "fedprikl takes part: counts leave, masked, in round %s under plan %s",
            invitation.round_id,
            invitation.signed.plan.fingerprint[:16],
        )
    elif step is not Step.ADVERTISE:
        memory.go_on(invitation.round_id, step)


def _digest(step: Step, asked: Envelope) -> bytes:
    return hashlib.sha256(f"{asked.round_id}/{step}/".encode() + asked.message).digest()


def _refuse(asked: Envelope, reason: str) -> Envelope:
    level = logging.INFO if reason == WAITS else logging.ERROR  # a person's turn is no error
    log.log(level, "fedprikl takes no part: %s", reason)
    return Envelope(asked.round_id, refusal=reason)
