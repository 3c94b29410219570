"""Three servers and their clients in one process: real reports, real roles, real messages.

    1. every client checks its invitation, or refuses; it seals a report for each server and is done
    2. each server takes in reports; at the end all agree on those that they all hold
    3. they draw a challenge together, and leave out reports that are not consistent
    4. the budget is reserved; each has a share of the sums, and they compute the noised numbers
    5. the release is signed by all of them

A deployment has a collector per server and a network between them; the roles are the same.
"""

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from fedprikl.errors import InvalidInputError, MessageDecodeError, PolicyRefusal, ReleaseRefused
from fedprikl.privacy import NoiseSource
from fedprikl.protocol.aggregator import Aggregator
from fedprikl.protocol.answering import Noised, points_of
from fedprikl.protocol.client import Client
from fedprikl.protocol.keys import SMALLEST, HybridKey, OpeningKey, SealingKey
from fedprikl.protocol.report import open_report
from fedprikl.protocol.round import Invitation, Round
from fedprikl.protocol.server_answer import ServersAnswer, answer
from fedprikl.protocol.server_share import (
    SECRET_BYTES,
    Ids,
    ServerShare,
    Stored,
    commitment,
    draw_challenge,
)
from fedprikl.protocol.sums import ServersSum
from fedprikl.secure_sum.line_runtime import LineRuntime, compute_together, in_memory
from fedprikl.secure_sum.line_shares import SERVERS, Field


class LocalServer:
    """One server: its key, its role, and its reports, which it keeps in memory. SECRET."""

    def __init__(self, number: int, current: Round, blocks: tuple[int, ...]) -> None:
        servers = current.plan.servers
        hybrid = servers is not None and servers.suite == "hybrid"
        self.key: OpeningKey = (HybridKey if hybrid else SealingKey).generate()
        self.role = ServerShare(number=number, blocks=blocks)
        self._plan, self._period = bytes.fromhex(current.plan.fingerprint), current.period or 0
        self._kept: dict[bytes, Field] = {}

    def __repr__(self) -> str:
        return f"<LocalServer {self.role.number}, {len(self._kept)} reports>"

    def take(self, message: bytes) -> bytes | None:
        """The id of a report that is taken in; None: it is no report for this server."""
        try:
            header, share = open_report(
                message,
                self.key,
                plan=self._plan,
                period=self._period,
                server=self.role.number,
                entries=sum(self.role.blocks) + 1,
            )
        except MessageDecodeError:
            return None
        if self.role.accept(header.report_id):
            self._kept[header.report_id] = share
        return header.report_id

    def stored(self, wanted: Ids | None = None) -> Stored:
        """Its shares of all reports, or of those that are wanted."""
        names = list(self._kept) if wanted is None else wanted.tolist()
        rows = [self._kept[name.ljust(16, b"\0")] for name in names]
        yield np.array(names, dtype="S16"), np.array(rows, dtype=np.uint64)


class ThreeServers:
    """One round of three servers in this process: `collect` reports, then `release`.

    `lost` names a server that is lost after the upload.
    """

    def __init__(
        self,
        current: Round,
        aggregator: Aggregator,
        *,
        source: NoiseSource,
        lost: int | None = None,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        servers = current.plan.servers
        if servers is None or servers.sealing:
            raise InvalidInputError(
                "The plan names three servers. Clients send their reports to them with `fedprikl "
                "report`; to run all parties in this process, plan without --servers."
            )
        self._round, self._aggregator, self._source = current, aggregator, source
        self._trust, self._randomness = ServersSum(current.plan), randomness
        self._servers = {
            number: LocalServer(number, current, tuple(self._trust.blocks)) for number in SERVERS
        }
        self._present = tuple(number for number in SERVERS if number != lost)
        self._names: dict[bytes, str] = {}  # of clients, by the ids of their reports
        self.refusals: dict[str, str] = {}
        self.counted: set[str] = set()

    def collect(
        self, clients: Mapping[str, Client], *, at: str, absent: Iterable[str] = ()
    ) -> None:
        """Every client sends one report to each server; who is `absent` sends none."""
        keys = [server.key.public for server in self._servers.values()]
        (cohort,), gone, message = self._round.cohorts, set(absent), b""
        for index, name in enumerate(cohort.members):
            if name in gone:
                continue
            if not message or self._round.plan.roster:  # without one, members have no places
                message = Invitation.to_member(self._round, cohort, index).to_bytes()
            try:
                reports = clients[name].report(message, keys, at=at)
            except PolicyRefusal as refusal:
                self.refusals[name] = refusal.reason
                continue
            for server, report in zip(self._servers.values(), reports, strict=True):
                if (taken := server.take(report)) is not None:
                    self._names[taken] = name

    def release(self, *, at: str, rng: np.random.Generator) -> bytes:
        """The release that all present servers sign. The budget is reserved before the answer."""
        shares, included = self._settle()
        self.counted |= {self._names[name.ljust(16, b"\0")] for name in included.tolist()}
        if len(self.counted) < SMALLEST:
            raise ReleaseRefused(
                f"{len(self.counted)} reports are left, and a sum of fewer than {SMALLEST} hides "
                "nobody. Nothing was opened and nothing was charged. Start again when more clients "
                "can report."
            )
        current = self._round
        points = points_of(current.plan, current.reference, current.points)
        asked = ServersAnswer(self._trust, points, lost=len(self._present) < len(SERVERS))
        self._aggregator.reserve(at, self._trust.composed_after_loss if asked.lost else None)
        found = compute_together(
            {
                number: answer(
                    LineRuntime(number, in_memory, self._present, self._randomness),
                    asked,
                    share,
                    included=len(self.counted),
                    source=self._source,
                    randomness=self._randomness,
                )
                for number, share in shares.items()
            }
        )
        self._aggregator.end(0, len(self.counted))
        noised: Noised = found[self._present[0]]
        return self._aggregator.hand_over(noised, self.counted, at=at, rng=rng)

    def _settle(self) -> tuple[dict[int, Field], Ids]:
        """SECRET: each server's share of the sums, and the ids of the reports that are in them."""
        servers = {number: self._servers[number] for number in self._present}

        def others(messages: Mapping[int, bytes], number: int) -> dict[int, bytes]:
            return {n: message for n, message in messages.items() if n != number}

        held = {n: server.role.close() for n, server in servers.items()}
        for n, server in servers.items():
            server.role.agree(others(held, n))
        secrets = {n: self._randomness(SECRET_BYTES) for n in servers}
        committed = {n: commitment(secret) for n, secret in secrets.items()}
        challenge = draw_challenge(secrets, committed)
        checks = {n: server.role.check(challenge, server.stored()) for n, server in servers.items()}
        shares, out = dict[int, Field](), b""
        for n, server in servers.items():
            out = server.role.settle(others(checks, n))
            shares[n] = server.role.total(out, server.stored)
        agreed = servers[self._present[0]].role.agreed
        left_out = np.frombuffer(out, dtype="S16")
        return shares, np.setdiff1d(agreed, left_out, assume_unique=True)
