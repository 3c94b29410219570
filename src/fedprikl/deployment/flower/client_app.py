"""The ClientApp: a site as a SuperNode runs it.

Every message is answered by a process of its own. What the site keeps in between is in
`context.state`, which stays in the memory of the site's own SuperNode.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedprikl.deployment.flower.envelope import IDENTITY, pack, unpack
from fedprikl.deployment.host import Envelope
from fedprikl.deployment.site import Kept, Site
from fedprikl.protocol import Step

SESSION = "fedprikl-session"  # a round that goes on, and its last answer
LAST = "fedprikl-last-answer"  # of a round that is over
log = logging.getLogger(__name__)

app = ClientApp()


@dataclass(frozen=True, slots=True)
class ContextState:
    """A site's state in Flower's context: `SiteState`."""

    records: RecordDict

    def load(self) -> Kept | None:
        """What is there; anything malformed counts as empty."""
        for name in (SESSION, LAST):
            if name in self.records:
                kept = self.records.config_records[name]
                return Kept(*(_bytes(kept.get(field.name)) for field in fields(Kept)))
        return None

    def save(self, kept: Kept) -> None:
        """Under a name that says whether the round goes on."""
        self.erase()
        found = {field.name: getattr(kept, field.name) for field in fields(Kept)}
        record = ConfigRecord({name: value for name, value in found.items() if value})
        self.records[SESSION if kept.session else LAST] = record

    def erase(self) -> None:
        """Both."""
        for name in {SESSION, LAST} & set(self.records):
            del self.records[name]


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def handle(step: Step, message: Message, context: Context) -> Message:
    """Answers one message of a round. Flower is handed no exception: it would send its text on."""
    site = Site(context.node_config, ContextState(context.state))
    try:
        envelope = site.answer(step, unpack(message))
    except Exception as error:
        envelope = site.give_up("", error)
    return Message(pack(envelope), reply_to=message)


def handle_identity(message: Message, context: Context) -> Message:
    """Tells who this site is."""
    site = Site(context.node_config, ContextState(context.state))
    try:
        envelope = site.introduce(unpack(message).round_id, str(context.node_id))
    except Exception as error:
        log.error("fedprikl cannot tell who this site is: %s", type(error).__name__)
        envelope = Envelope("", refusal="it cannot tell who it is; its own log says why")
    return Message(pack(envelope), reply_to=message)


def _handler(step: Step) -> Callable[[Message, Context], Message]:
    return lambda message, context: handle(step, message, context)


app.query(IDENTITY)(handle_identity)
for _step in Step:
    app.query(_step.value)(_handler(_step))
