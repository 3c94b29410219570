"""The ServerApp, on the aggregator's own host; and its network over Flower's grid.

Flower's own `send_and_receive` looks for answers every 3 s; `FlowerNetwork` looks more often,
hands over each answer as it arrives, and waits no longer than a step may last, except for parts of
an answer that are on their way: at most 20 s for each.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedprikl.deployment.flower.client import IDENTITY, pack, unpack
from fedprikl.deployment.host import Host, print_line
from fedprikl.deployment.hosted_round import host_round
from fedprikl.deployment.progress import MARK, failure_line, printable
from fedprikl.deployment.settings import RoundSettings
from fedprikl.deployment.site import Envelope
from fedprikl.deployment.tls import CLOCKS
from fedprikl.errors import DeploymentError, FedPriKLError, MessageDecodeError
from fedprikl.protocol import Release, Reply, Step

AT_ONCE = 10  # messages of one request: a busy SuperLink gives up on long ones
TOGETHER = 4  # requests for answers at a time: each mostly waits for the relay
TRIES, RETRY_AFTER = 3, 5.0  # of one message, and seconds before it is sent again
SHORTEST_POLL, LONGEST_POLL = 0.1, 1.0
PER_CLIENT = 0.04  # seconds more between two looks: each asks the relay about everybody who is late
log = logging.getLogger(__name__)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Entry point of a run. A run without a release fails, so that Flower shows it as failed.

    Flower logs an exception at the relay. Ours hold no secret; the words of any other might, so
    only its name leaves this process.
    """
    try:
        print_line(f"{MARK} the aggregator has the run")
        run_on_flower(grid, RoundSettings.of(context.run_config), Host())
    except FedPriKLError as error:
        error.args = (printable(str(error)),)
        print_line(failure_line(str(error)))
        raise
    except Exception as error:
        words = f"The ServerApp failed unexpectedly ({type(error).__name__}). Please report it."
        print_line(failure_line(words))
        raise DeploymentError(words) from None


def run_on_flower(grid: Grid, settings: RoundSettings, host: Host) -> Release:
    """One round over a grid."""
    return host_round(FlowerNetwork(grid, settings, host), settings, host)


@dataclass(frozen=True, slots=True)
class FlowerNetwork:
    """The SuperNodes that are connected to a SuperLink; and the transport of one round.

    As a transport it carries what belongs to its round, and turns away what does not say so.
    """

    grid: Grid
    settings: RoundSettings
    host: Host
    round_id: str = ""

    def nodes(self) -> list[str]:
        """Their numbers, given by the SuperLink."""
        return sorted(str(node) for node in self.grid.get_node_ids())

    def check_run(self) -> None:
        """Any request will do: a SuperLink refuses all of a run that was stopped."""
        try:
            self.grid.get_node_ids()
        except Exception as error:
            raise DeploymentError(
                f"The run was stopped, or the relay does not say so ({type(error).__name__}). "
                "The aggregator charged nothing."
            ) from None

    def identify(
        self, challenge: str, nodes: Sequence[str], enough: Callable[[], bool]
    ) -> Iterator[Reply]:
        """Asks every node who it is."""
        return self.transport(challenge).ask(IDENTITY, dict.fromkeys(nodes, b""), enough)

    def transport(self, round_id: str) -> "FlowerNetwork":
        """The messages of one round."""
        return replace(self, round_id=round_id)

    def exchange(
        self, step: Step, messages: Mapping[str, bytes], enough: Callable[[], bool]
    ) -> Iterator[Reply]:
        """One step: `Transport.exchange` over Flower."""
        return self.ask(step.value, messages, enough)

    def ask(
        self, what: str, messages: Mapping[str, bytes], enough: Callable[[], bool]
    ) -> Iterator[Reply]:
        """Sends the messages and yields the replies, until all are in or the time is over.

        From `enough` on it waits for the grace only: one dead client need not cost everybody the
        whole timeout. Where all or nothing is asked, nobody can be spared.

        Where Flower reports an error instead of an answer, like a node that it thinks is gone, the
        very same message is sent again: a client that has answered repeats its bytes, and one that
        may have answered says nothing.
        """
        now, settings = self.host.clock, self.settings
        end = now() + settings.timeout
        pending = self._send(what, messages)
        tries, again = dict.fromkeys(messages, 1), dict[str, float]()  # whom to ask anew, and when
        pause, hurried = SHORTEST_POLL, False
        while pending or again:
            answers = self._pull(list(pending))
            for answer in answers:
                client = pending.pop(answer.metadata.reply_to_message_id, None)
                if client is None:  # foreign, or a second answer
                    continue
                if answer.has_error() and tries[client] < TRIES:
                    tries[client] += 1
                    again[client] = now() + RETRY_AFTER
                elif reply := self._reply(client, answer):
                    yield reply
            due = {client: messages[client] for client, at in again.items() if at <= now()}
            again = {client: at for client, at in again.items() if client not in due}
            pending |= self._send(what, due)
            if not hurried and not settings.everybody and enough():
                hurried, end = True, min(end, now() + settings.grace)
            left = end - now()
            if left <= 0:
                break
            if not answers:
                self.host.sleep(min(pause, left))
                pause = min(pause * 1.5, max(LONGEST_POLL, PER_CLIENT * len(pending)))

    def _send(self, what: str, messages: Mapping[str, bytes]) -> dict[str, str]:
        """Pushes the messages; the client of each message id.

        One lives as long as its step by any clock: the aggregator's may be behind the relay's, and
        the site's ahead of it.
        """
        pending: dict[str, str] = {}
        for clients in _in_pieces(list(messages)):
            for _ in range(TRIES):
                packed = [self._message(what, client, messages[client]) for client in clients]
                try:
                    ids = list(self.grid.push_messages(packed))
                except Exception as error:  # Flower's, of many kinds: a busy relay ends no round
                    log.warning("Flower could not send (%s); trying again.", type(error).__name__)
                    continue
                pending |= {i: client for i, client in zip(ids, clients, strict=False) if i}
                break
        return pending

    def _message(self, what: str, client: str, message: bytes) -> Message:
        return Message(
            pack(Envelope(self.round_id, message)),
            dst_node_id=int(client),
            message_type=f"query.{what}",
            ttl=self.settings.timeout + 2 * CLOCKS,
            group_id=self.round_id[:8],
        )

    def _pull(self, ids: list[str]) -> list[Message]:
        """The answers that are there; none of those for which the relay is too busy now."""

        def pull(piece: list[str]) -> list[Message]:
            try:
                return list(self.grid.pull_messages(piece))
            except Exception as error:
                log.warning("Flower could not look for answers (%s).", type(error).__name__)
                return []

        pieces = _in_pieces(ids)
        if len(pieces) == 1:
            return pull(pieces[0])
        with ThreadPoolExecutor(TOGETHER) as threads:
            return [message for found in threads.map(pull, pieces) for message in found]

    def _reply(self, client: str, answer: Message) -> Reply | None:
        """What a client said; None for what is not of this round, or from another node."""
        if answer.has_error():
            return Reply(client, lost=f"Flower reports error {answer.error.code} at this client")
        try:
            envelope = unpack(answer)
        except MessageDecodeError:
            return None
        if envelope.round_id != self.round_id or str(answer.metadata.src_node_id) != client:
            return None
        return Reply(client, envelope.message, envelope.refusal)


def _in_pieces(items: list[str]) -> list[list[str]]:
    return [items[i : i + AT_ONCE] for i in range(0, len(items), AT_ONCE)]
