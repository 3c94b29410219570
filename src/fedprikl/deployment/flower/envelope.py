"""What a Flower message of a round holds: one record with the round, and a letter or a refusal."""

from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from fedprikl.errors import MessageDecodeError

__all__ = ["IDENTITY", "Parcel", "pack", "unpack"]

RECORD = "fedprikl"
IDENTITY = "identity"  # the question before a round: who are you?


@dataclass(frozen=True, slots=True)
class Parcel:
    """The content of a message, either way."""

    round_id: str  # or the identity check's question
    letter: bytes = b""  # to the aggregator: sealed, or who the site is
    refusal: str = ""  # in the open, so never about the client's records


def pack(parcel: Parcel) -> RecordDict:
    """As Flower carries it."""
    return RecordDict(
        {
            RECORD: ConfigRecord(
                {"round": parcel.round_id, "letter": parcel.letter, "refusal": parcel.refusal}
            )
        }
    )


def unpack(message: Message) -> Parcel:
    """The parcel of a message; anything else is a `MessageDecodeError`."""
    try:
        record = message.content.config_records[RECORD]
        match record["round"], record["letter"], record["refusal"]:
            case str(round_id), bytes(letter), str(refusal):
                return Parcel(round_id, letter, refusal)
    except (KeyError, ValueError):
        pass
    raise MessageDecodeError("this is not a message of a fedprikl round")
