"""The ClientApp: a site as a SuperNode runs it; and how Flower carries an envelope, either way.

Every message is answered by a process of its own. What the site keeps in between is in
`context.state`, which stays in the memory of the site's own SuperNode.
"""

import logging
from functools import partial
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedprikl.deployment.site import Envelope, Site
from fedprikl.errors import MessageDecodeError
from fedprikl.protocol import Step

RECORD = "fedprikl"
IDENTITY = "identity"  # the type of message of the identity check
SESSION = "fedprikl-session"  # a round that goes on, and its last answer
log = logging.getLogger(__name__)

app = ClientApp()


def pack(envelope: Envelope) -> RecordDict:
    """One record with the round, and a message or a refusal."""
    record = ConfigRecord()
    record["round"], record["message"] = envelope.round_id, envelope.message
    record["refusal"] = envelope.refusal
    return RecordDict({RECORD: record})


def unpack(message: Message) -> Envelope:
    """The envelope in a Flower message; anything else is a `MessageDecodeError`."""
    try:
        record = message.content.config_records[RECORD]
        match record["round"], record["message"], record["refusal"]:
            case str(round_id), bytes(content), str(refusal):
                return Envelope(round_id, content, refusal)
    except (KeyError, ValueError):
        pass
    raise MessageDecodeError("this is not a message of a fedprikl round")


def _site(context: Context) -> Site:
    """The site, with what it keeps in Flower's context."""
    if SESSION not in context.state:
        context.state[SESSION] = ConfigRecord()
    state: Any = context.state[SESSION]
    return Site(context.node_config, state)


def handle(step: Step, message: Message, context: Context) -> Message:
    """Answers one message of a round. Flower is handed no exception: it would send its text on."""
    site = _site(context)
    try:
        envelope = site.answer(step, unpack(message))
    except Exception as error:
        envelope = site.give_up("", error)
    return Message(pack(envelope), reply_to=message)


def handle_identity(message: Message, context: Context) -> Message:
    """Tells who this site is."""
    site = _site(context)
    try:
        envelope = site.introduce(unpack(message).round_id, str(context.node_id))
    except Exception as error:
        log.error("fedprikl cannot tell who this site is: %s", type(error).__name__)
        envelope = Envelope("", refusal="it cannot tell who it is; its own log says why")
    return Message(pack(envelope), reply_to=message)


app.query(IDENTITY)(handle_identity)
for _step in Step:
    app.query(_step.value)(partial(handle, _step))
