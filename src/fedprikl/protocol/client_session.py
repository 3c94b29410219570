"""A client's session in one round: what it must remember from one message to the next."""

from dataclasses import asdict

import numpy as np

from fedprikl.checks import Ints
from fedprikl.documents import bytes_of_text, canonical, parse_document, text_of_bytes
from fedprikl.errors import InvalidInputError, WrongStepError
from fedprikl.privacy import Charge
from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.round import Invitation
from fedprikl.protocol.sealing import Address
from fedprikl.protocol.transport import Step
from fedprikl.protocol.trust import trust_of
from fedprikl.secure_sum import ClientRules, SumClient

__all__ = ["ClientSession"]


class ClientSession:
    """One client in one round, from its invitation on: each step is answered once, in order.

    `to_bytes` is for a client whose process ends between two messages. It holds the seed and the
    messages so far; everything else of the secure sum follows from them, so `from_bytes` plays the
    messages again rather than storing keys. Whoever keeps it must see to it that an old copy is
    never used: two answers to one step could expose somebody.

    Secret: the seed and the vector, and so `to_bytes`. The identity, which signs where there is a
    roster, outlives the round and is not in it.
    """

    def __init__(
        self,
        invitation: Invitation,
        *,
        vector: Ints,
        seed: bytes,
        rules: ClientRules,
        identity: SigningKey | None = None,
    ) -> None:
        self.invitation = invitation
        self._vector, self._seed, self._rules = vector, seed, rules
        self._messages: list[bytes] = []
        signer = identity if invitation.sums.roster else None
        self._sum = SumClient(
            invitation.sums,
            invitation.index,
            seed,
            identity=None if signer is None else signer.private_bytes(),
            rules=rules,
        )

    def __repr__(self) -> str:
        return f"<ClientSession {self.invitation.index} in round {self.invitation.round_id[:8]}>"

    @property
    def is_over(self) -> bool:
        """Whether every step has been answered."""
        return len(self._messages) == len(Step)

    @property
    def spoilt(self) -> bool:
        """Whether a neighbour shared what does not open, so that the sum may never open either."""
        return bool(self._sum.damaged)

    @property
    def charge(self) -> Charge | None:
        """What the opened sum costs the records in it; None if it is opened to be noised."""
        trust = trust_of(self.invitation.signed.plan)
        return trust.client_charge(self.invitation.sums.clients)

    def address(self, step: Step) -> Address:
        """Where this client's answer of a step belongs."""
        return self.invitation.address(step)

    def answer(self, step: Step, message: bytes) -> bytes:
        """The client's answer to the message of a step, for the aggregator alone."""
        if self.is_over or step is not list(Step)[len(self._messages)]:
            raise WrongStepError("Every step of a round is answered once, in order.")
        match step:
            case Step.ADVERTISE:
                message = b""  # the invitation, which is kept already
                answer = self._sum.advertise()
            case Step.SHARE:
                answer = self._sum.share_keys(message)
            case Step.INPUT:
                answer = self._sum.mask_input(message, self._vector)
            case Step.ECHO:
                answer = self._sum.echo(message)
            case Step.REVEAL:
                answer = self._sum.reveal(message)
        self._messages.append(message)
        return answer

    def to_bytes(self) -> bytes:
        """SECRET: all of it, to go on in another process."""
        return canonical(
            {
                "invitation": text_of_bytes(self.invitation.to_bytes()),
                "vector": self._vector.tolist(),
                "seed": text_of_bytes(self._seed),
                "rules": asdict(self._rules),
                "messages": [text_of_bytes(message) for message in self._messages],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, *, identity: SigningKey | None = None) -> "ClientSession":
        """The session as it was when `to_bytes` was called; the identity is handed in again."""
        document = parse_document(data, "session")
        try:
            session = cls(
                Invitation.from_bytes(bytes_of_text(document["invitation"])),
                vector=np.array(document["vector"], dtype=np.int64),
                seed=bytes_of_text(document["seed"]),
                rules=ClientRules(**document["rules"]),
                identity=identity,
            )
            messages = [bytes_of_text(message) for message in document["messages"]]
        except (KeyError, TypeError):
            raise InvalidInputError("What this client kept of the round is damaged.") from None
        for step, message in zip(Step, messages, strict=False):
            session.answer(step, message)
        return session
