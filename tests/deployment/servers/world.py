"""Three servers in folders, a plan that names them, and clients that report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.deployment.servers.collector import Collector
from fedprikl.deployment.servers.home import Card, Limits, ServerHome, Task
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    Roster,
    Servers,
    SignedPlan,
    SigningKey,
)
from fedprikl.protocol.report import make_reports
from fedprikl.reference import Reference

NOW = "2030-01-01T12:00:00+00:00"
CELLS = 5
Answer = tuple[int, str, dict[str, str]]


@dataclass
class World:
    """Three servers that know each other; `plan` makes one that they accept."""

    folder: Path
    organiser: SigningKey
    homes: list[ServerHome]
    reference: Reference

    @classmethod
    def make(cls, folder: Path, ports: Sequence[int] = (1, 2, 3)) -> "World":
        organiser, homes, cards = SigningKey.generate(), [], list[Card]()
        for number, port in enumerate(ports, start=1):
            home = ServerHome(folder / f"server{number}")
            cards.append(
                home.create(
                    address=f"https://127.0.0.1:{9000 + number}",
                    peer=f"127.0.0.1:{port}",
                    host="127.0.0.1",
                    limits=Limits(organiser=organiser.public),
                    days=3650,
                )
            )
            homes.append(home)
        for home in homes:
            home.join(cards)
        reference = Reference.from_counts([10] * CELLS)
        return cls(folder, organiser, homes, reference)

    def plan(self, roster: Roster | None = None, **changes: Any) -> SignedPlan:
        cards, suite = self.homes[0].cards, changes.pop("suite", "x25519")
        rules = {"lost": changes.pop("lost", "nothing")}
        plan = Plan(
            population="phones",
            reference=self.reference.fingerprint,
            trust="servers",
            servers=Servers(
                suite=suite,
                sealing=tuple(getattr(card, suite) for card in cards),
                signing=tuple(card.signing for card in cards),
                addresses=tuple(card.address for card in cards),
                **rules,
            ),
            roster=roster.fingerprint if roster else "",
            budget=Budget(epsilon=1.0, **changes.pop("budget", {})),
            views=(AskedView(points=CELLS),),
            questions=(Question(release="counts"),),
            **changes,
        )
        signed = SignedPlan.sign(plan, self.organiser)
        for home in self.homes:
            home.accept(signed, self.reference, roster)
        return signed

    def collector(self, number: int = 1, *, name: str = "a", **options: Any) -> Collector:
        home = self.homes[number - 1]
        return Collector(
            lambda: list(home.tasks()),
            home.intake(name),
            ends=home.certificate_ends,
            **{"clock": lambda: NOW, **options},
        )

    def task(self, number: int = 1) -> Task:
        (task,) = self.homes[number - 1].tasks()
        return task


def reports(
    signed: SignedPlan,
    counts: Sequence[int] = (1, 2, 0, 0, 4),
    outside: int = 0,
    period: int = 0,
    identity: SigningKey | None = None,
    vector: Sequence[int] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """What a client sends."""
    servers = signed.plan.servers
    assert servers is not None
    if vector is None:
        vector = [*counts, outside, sum(counts) + outside]
    return make_reports(
        np.array(vector),
        plan=bytes.fromhex(signed.plan.fingerprint),
        period=period,
        suite=servers.suite,
        servers=servers.sealing,
        identity=identity,
    )


async def call(
    app: Any,
    body: bytes = b"",
    *,
    method: str = "POST",
    path: str = "/v1/reports",
    length: bytes | None = None,
    pieces: Sequence[Any] | None = None,
) -> Answer:
    """One request to an app in this process. `pieces` are what `receive` gives, or awaits."""
    told = str(len(body)).encode() if length is None else length
    events = list(pieces or [{"type": "http.request", "body": body, "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        event = events.pop(0)
        return await event if hasattr(event, "__await__") else event

    async def send(event: Any) -> None:
        sent.append(event)

    headers = [(b"content-length", told)] if told else []
    await app({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], sent[1]["body"].decode(), found
