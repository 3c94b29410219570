"""How Flower carries an envelope: one record with the round, and a message or a refusal."""

from flwr.app import ConfigRecord, Message, RecordDict

from fedprikl.deployment.host import Envelope
from fedprikl.errors import MessageDecodeError

RECORD = "fedprikl"
IDENTITY = "identity"  # the type of message of the identity check


def pack(envelope: Envelope) -> RecordDict:
    """As Flower carries it."""
    return RecordDict(
        {
            RECORD: ConfigRecord(
                {
                    "round": envelope.round_id,
                    "message": envelope.message,
                    "refusal": envelope.refusal,
                }
            )
        }
    )


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
