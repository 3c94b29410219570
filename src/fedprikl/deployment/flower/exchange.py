"""One step over Flower's grid: send the letters, wait so long, take what comes.

Flower's own `send_and_receive` looks for answers every 3 s; this looks more often, takes each
answer as it arrives, and never waits longer than the step may last.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from fedprikl.deployment.flower.envelope import IDENTITY, Parcel, pack, unpack
from fedprikl.deployment.settings import Patience
from fedprikl.errors import MessageDecodeError
from fedprikl.protocol import IdentityCheck, RoundDriver, Step, StepCount

__all__ = ["Clock", "check_identities", "exchange", "wait_for_nodes"]

AT_ONCE = 10  # messages of one request: a busy SuperLink gives up on long ones
TRIES, RETRY_AFTER = 3, 5.0  # of one letter, and seconds before it is sent again
SHORTEST_POLL, LONGEST_POLL = 0.1, 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, as an argument."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_for_nodes(grid: Grid, *, least: int, seconds: float, clock: Clock) -> list[str]:
    """The SuperNodes that are connected, once there are enough or the time is over."""
    end = clock.now() + seconds
    while True:
        nodes = sorted(str(node) for node in grid.get_node_ids())
        if len(nodes) >= least or clock.now() >= end:
            return nodes
        clock.sleep(LONGEST_POLL)


def exchange(
    grid: Grid, driver: RoundDriver, round_id: str, step: Step, *, patience: Patience, clock: Clock
) -> tuple[StepCount, set[str]]:
    """Runs one step: how it went, and who answered. The others are lost to the round."""
    taken = set[str]()

    def take(client: str, letter: bytes) -> bool:
        if driver.take(step, client, letter):
            taken.add(client)
            return True
        return False

    asking = _Asking(driver, take, round_id, step.value, patience)
    _ask(grid, asking, driver.letters(step), clock)
    return driver.end(step), taken - driver.refusals.keys()


def check_identities(grid: Grid, roll: IdentityCheck, *, patience: Patience, clock: Clock) -> None:
    """Asks every node who it is; the roll knows afterwards."""
    asking = _Asking(roll, roll.take, roll.question, IDENTITY, patience)
    _ask(grid, asking, dict.fromkeys(roll.names, b""), clock)


@dataclass(frozen=True, slots=True)
class _Asking:
    """One question to many, whoever counts the answers."""

    counts: RoundDriver | IdentityCheck
    take: Callable[[str, bytes], bool]
    round_id: str
    what: str
    patience: Patience


def _ask(grid: Grid, asking: _Asking, letters: Mapping[str, bytes], clock: Clock) -> None:
    """Sends the letters and takes the answers, until all are in or the time is over.

    Once no more are missing than the plan says may vanish, it waits for the grace only: one dead
    client need not cost everybody the whole timeout. Where Flower reports an error instead of an
    answer, like a node that it thinks is gone, the very same letter is sent again: a client that
    has answered repeats its bytes, and one that may have answered says nothing.
    """
    counts, patience = asking.counts, asking.patience
    end = clock.now() + patience.timeout
    pending = _send(grid, asking, letters)
    tries, again = dict.fromkeys(letters, 1), dict[str, float]()  # whom to ask once more, and when
    pause, hurried = SHORTEST_POLL, False
    while (pending or again) and counts.waiting:
        answers = [reply for ids in _in_pieces(list(pending)) for reply in _pull(grid, ids)]
        for reply in answers:
            client = pending.pop(reply.metadata.reply_to_message_id, None)
            if client is None:  # foreign, or a second answer
                continue
            if reply.has_error() and tries[client] < TRIES:
                tries[client] += 1
                again[client] = clock.now() + RETRY_AFTER
            else:
                _take(asking, client, reply)
        due = {client: letters[client] for client, at in again.items() if at <= clock.now()}
        again = {client: at for client, at in again.items() if client not in due}
        pending |= _send(grid, asking, due)
        if counts.can_spare_the_rest and not hurried:
            hurried, end = True, min(end, clock.now() + patience.grace)
        left = end - clock.now()
        if left <= 0:
            break
        if not answers:
            clock.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_POLL)


def _send(grid: Grid, asking: _Asking, letters: Mapping[str, bytes]) -> dict[str, str]:
    """Pushes the letters; the client of each message id. A message lives as long as its step."""
    pending: dict[str, str] = {}
    for clients in _in_pieces(list(letters)):
        for _ in range(TRIES):
            messages = [_message(asking, client, letters[client]) for client in clients]
            try:
                ids = list(grid.push_messages(messages))
            except Exception as error:  # Flower's, of many kinds; a busy relay must not end a round
                log.warning("Flower could not send (%s); trying again.", type(error).__name__)
                continue
            pending |= {i: client for i, client in zip(ids, clients, strict=False) if i}
            break
    return pending


def _message(asking: _Asking, client: str, letter: bytes) -> Message:
    return Message(
        pack(Parcel(asking.round_id, letter)),
        dst_node_id=int(client),
        message_type=f"query.{asking.what}",
        ttl=asking.patience.timeout,
        group_id=asking.round_id[:8],
    )


def _pull(grid: Grid, ids: list[str]) -> list[Message]:
    """The answers that are there; none if the relay is too busy now."""
    try:
        return list(grid.pull_messages(ids))
    except Exception as error:
        log.warning("Flower could not look for answers (%s).", type(error).__name__)
        return []


def _take(asking: _Asking, client: str, reply: Message) -> None:
    if reply.has_error():
        asking.counts.lose(client, f"Flower reports error {reply.error.code} at this client")
        return
    try:
        parcel = unpack(reply)
    except MessageDecodeError:
        return
    if parcel.round_id != asking.round_id or str(reply.metadata.src_node_id) != client:
        return
    if parcel.letter:
        asking.take(client, parcel.letter)
    elif parcel.refusal:
        asking.counts.refuse(client, parcel.refusal)


def _in_pieces(items: list[str]) -> Iterator[list[str]]:
    return (items[i : i + AT_ONCE] for i in range(0, len(items), AT_ONCE))
