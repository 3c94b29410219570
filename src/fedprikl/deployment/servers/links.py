"""TLS between the servers: each shows the certificate of its signing key, and knows the others'.

A server listens for those with lower numbers and calls those with higher ones. What they say goes
in steps: in each, every server sends one message to every other and waits for one from each. That
is all that agreement, checks and the computation on shares need (`Exchange` in
`secure_sum/line_runtime.py`).
"""

import asyncio
import contextlib
import ssl
import struct
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedprikl.deployment.servers.home import Card, ServerHome
from fedprikl.errors import DeploymentError
from fedprikl.secure_sum.line_shares import SERVERS

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_HEAD = struct.Struct("<IQ")  # the number of the step, the length of the message
LARGEST = 2**33  # bytes of a message: ids of 5 * 10^8 reports
AGAIN = 0.2  # seconds between two calls
HANDSHAKE = 10.0


@dataclass(eq=False)
class Links:
    """The connections of one server to others that are present. Messages are never pickled."""

    number: int
    streams: Mapping[int, Stream]
    seconds: float = 120.0  # for the others, in each step
    _step: int = field(default=0, repr=False)

    @property
    def present(self) -> tuple[int, ...]:
        """The servers that take part, this one among them."""
        return tuple(sorted({self.number, *self.streams}))

    @property
    def others(self) -> tuple[int, ...]:
        """Without this one."""
        return tuple(sorted(self.streams))

    async def exchange(self, sent: Mapping[int, bytes]) -> dict[int, bytes]:
        """Sends a message to each of the others, and brings one from each, of the same step."""
        self._step += 1
        try:
            async with asyncio.timeout(self.seconds):
                found = await asyncio.gather(*(self._swap(n, sent[n]) for n in self.others))
        except TimeoutError:
            raise DeploymentError(
                f"A server did not answer for {self.seconds:g} seconds. Are all of them running?"
            ) from None
        except (OSError, EOFError) as error:
            raise DeploymentError(
                f"The connection to another server ended ({type(error).__name__}). Look at its log."
            ) from None
        return dict(zip(self.others, found, strict=True))

    async def broadcast(self, message: bytes) -> dict[int, bytes]:
        """The same message to all of the others."""
        return await self.exchange(dict.fromkeys(self.others, message))

    async def _swap(self, other: int, message: bytes) -> bytes:
        reader, writer = self.streams[other]
        writer.write(_HEAD.pack(self._step, len(message)))
        writer.write(message)
        _, received = await asyncio.gather(writer.drain(), self._read(reader, other))
        return received

    async def _read(self, reader: asyncio.StreamReader, other: int) -> bytes:
        step, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if step != self._step or size > LARGEST:
            raise DeploymentError(
                f"Server {other} is at another step than this one. Nothing was opened; start the "
                "answer again at all of them."
            )
        return await reader.readexactly(size)


@asynccontextmanager
async def connected(
    home: ServerHome, *, wait: float, without: int | None = None, seconds: float = 120.0
) -> AsyncIterator[Links]:
    """Links to all of the others that could be reached; waits for them for so many seconds.

    `without`: a server that is known to be lost, and not waited for.
    """
    expected = frozenset(SERVERS) - {home.number, without}
    gathering = _Gathering(home.number, home.cards, expected)
    with tempfile.TemporaryDirectory(dir=home.state) as folder:
        listening = _context(home, Path(folder), server=True)
        calling = _context(home, Path(folder), server=False)
    host, port = _address(home.card)
    try:
        server = await asyncio.start_server(
            gathering.called, host, port, ssl=listening, ssl_handshake_timeout=HANDSHAKE
        )
    except OSError as error:
        raise DeploymentError(
            f"Cannot listen on {host}, port {port}, for the other servers: {error.strerror}."
        ) from None
    above = [other for other in expected if other > gathering.number]
    tasks = [asyncio.create_task(gathering.call(other, calling)) for other in above]
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gathering.complete.wait(), wait)
        gathering.over = True
        server.close()
        if not gathering.streams:
            raise DeploymentError(
                f"No other server was there within {wait:g} seconds. Nothing was opened; start "
                "the answer at all of them at about the same time."
            )
        yield Links(gathering.number, dict(gathering.streams), wait + seconds)
    finally:
        for task in tasks:
            task.cancel()
        server.close()
        for _, writer in gathering.streams.values():
            await _end(writer)


@dataclass(eq=False)
class _Gathering:
    """Who has called, or was reached."""

    number: int
    cards: Sequence[Card]
    expected: frozenset[int]
    streams: dict[int, Stream] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False

    async def called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody calls who has shown the certificate of one of the three."""
        other = _who(writer, self.cards)
        if other not in self.expected or other >= self.number or self.over:
            await _end(writer)
            return
        if other in self.streams:  # it has called before, and started again
            await _end(self.streams[other][1])
        self._arrive(other, (reader, writer))

    async def call(self, other: int, context: ssl.SSLContext) -> None:
        """Calls another server until it is there."""
        host, port = _address(self.cards[other - 1])
        while not self.over:
            with contextlib.suppress(OSError, TimeoutError, EOFError):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=context, ssl_handshake_timeout=HANDSHAKE
                )
                if _who(writer, self.cards) == other:
                    self._arrive(other, (reader, writer))
                    return
                await _end(writer)
            await asyncio.sleep(AGAIN)

    def _arrive(self, other: int, stream: Stream) -> None:
        self.streams[other] = stream
        if self.expected <= set(self.streams):
            self.complete.set()


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), 1.0)


def _address(card: Card) -> tuple[str, int]:
    host, _, port = card.peer.rpartition(":")
    return host.strip("[]"), int(port)


def _who(writer: asyncio.StreamWriter, cards: Sequence[Card]) -> int:
    """The number of the server whose certificate this is; 0: of none."""
    link = writer.get_extra_info("ssl_object")
    shown = link.getpeercert(binary_form=True)
    for number, card in enumerate(cards, start=1):
        if ssl.PEM_cert_to_DER_cert(card.certificate) == shown:
            return number
    return 0


def _context(home: ServerHome, folder: Path, *, server: bool) -> ssl.SSLContext:
    """TLS 1.3 with this server's certificate, that accepts those of the three cards only."""
    own = folder / "own.pem"
    own.write_text(home.card.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is pinned
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags = ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_cert_chain(own, home.folder / "signing.pem")
    context.load_verify_locations(cadata="".join(card.certificate for card in home.cards))
    return context
