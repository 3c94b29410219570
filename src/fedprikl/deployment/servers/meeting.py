"""What the servers do together before anything is opened: they settle which reports are counted.

    1. each closes its intake for the period, for ever
    2. hello: the same plan and period, the same servers present, nobody's ledger went back in time
    3. the ids that all of them hold
    4. a challenge that nobody chose
    5. a digest of ids and challenge, the same at all of them: or one could show each of the others
       a challenge of its own, and a mask hides one only. Each keeps the challenge, and answers no
       other one for this period
    6. the checks of each report (`protocol/server_share.py`); reports that fail are left out
    7. a digest of all that, the same at all of them

It can be repeated until the answer begins: the same challenge gives the same numbers, so nobody
learns more from a second time. What comes after is done once (`answering.py`).
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.deployment.servers.home import ServerHome, Task, round_name
from fedprikl.deployment.servers.intake import Intake
from fedprikl.deployment.servers.links import Links
from fedprikl.documents import canonical, parse_document
from fedprikl.errors import DeploymentError, InvalidInputError, MessageDecodeError, ReleaseRefused
from fedprikl.protocol.keys import SMALLEST
from fedprikl.protocol.report import open_report
from fedprikl.protocol.server_share import (
    ID_BYTES,
    SECRET_BYTES,
    Ids,
    ServerShare,
    commitment,
    draw_challenge,
)
from fedprikl.secure_sum.line_shares import Field
from fedprikl.store import Head, replace_file

VERSION = 2  # of what servers say to each other
LEAST_COMMON = 0.5  # of a server's reports: one that names few others could single out a client


@dataclass(frozen=True, slots=True)
class Settled:
    """What the present servers have settled on. SECRET: `share`, of the sums of all reports."""

    present: tuple[int, ...]
    share: Field = field(repr=False)
    agreed: bytes = field(repr=False)  # ids
    left_out: bytes = field(repr=False)  # ids of those whose shares are not those of counts
    held: Mapping[int, int]  # reports that each server said it holds
    missing: int  # reports that all others hold and this server does not
    at: str  # the time of the answer, ISO 8601: that of the first server
    previous: str  # fingerprint of the release before, in a series
    digest: bytes

    @property
    def reports(self) -> int:
        """That all present servers hold."""
        return len(self.agreed) // ID_BYTES

    @property
    def included(self) -> int:
        """That are counted."""
        return self.reports - len(self.left_out) // ID_BYTES


@dataclass(eq=False)
class Memory:
    """What a server must not forget of a period, in a file that is written whole."""

    path: Path
    challenge: str = ""  # that it answered
    seen: dict[str, tuple[int, str]] = field(default_factory=dict)  # heads of the others' ledgers

    @classmethod
    def open(cls, home: ServerHome, name: str) -> "Memory":
        """Of one round, with the heads that were seen in all of them."""
        path, heads = home.state / f"{name}.json", home.state / "heads.json"
        found = parse_document(path.read_bytes(), "state") if path.exists() else {}
        seen = parse_document(heads.read_bytes(), "state") if heads.exists() else {}
        known = {number: (int(count), str(digest)) for number, (count, digest) in seen.items()}
        return cls(path, str(found.get("challenge", "")), known)

    def keep_challenge(self, challenge: bytes) -> None:
        """Before anything is published."""
        self.challenge = challenge.hex()
        replace_file(self.path, canonical({"challenge": self.challenge}))

    def keep_heads(self, heads: Mapping[int, Head]) -> None:
        """The others' ledgers, as they are now."""
        self.seen |= {str(number): (head.count, head.hash) for number, head in heads.items()}
        replace_file(self.path.with_name("heads.json"), json.dumps(self.seen).encode())


async def settle(
    home: ServerHome,
    task: Task,
    period: int,
    links: Links,
    *,
    head: Head,
    verify: Callable[[Head], object],
    at: str,
    previous: str = "",
    randomness: Callable[[int], bytes] = os.urandom,
) -> Settled:
    """Steps 1 to 7. `head` is that of this server's ledger; `verify` raises if it lacks another."""
    memory = Memory.open(home, round_name(task.fingerprint, period))
    home.close(task.fingerprint, period)
    role, intakes = ServerShare(number=task.number, blocks=task.blocks), home.intakes()
    try:
        own = role.close(shut(intakes, task, period))
        hellos = await _hello(task, period, links, memory, head=head, at=at, previous=previous)
        for hello in hellos.values():
            if str(task.number) in hello["seen"]:
                verify(Head(*hello["seen"][str(task.number)]))
        lists = await links.broadcast(own)
        agreed = role.agree(lists)
        if len(agreed) < LEAST_COMMON * len(own):
            raise DeploymentError(
                f"Only {len(agreed) // ID_BYTES} of the {len(own) // ID_BYTES} reports of this "
                "server are held by all. Nothing was opened. One server lost its reports, or does "
                "not name what it holds: answer without it."
            )
        challenge = await _challenge(links, hellos, memory, randomness)
        await _same(links, _digest(task, period, links.present, agreed, challenge))
        memory.keep_challenge(challenge)
        checks = role.check(challenge, _stored(intakes, task, period))
        left_out = role.settle(await links.broadcast(checks))
        share = role.total(left_out, lambda ids: _stored(intakes, task, period, ids))
    finally:
        for intake in intakes:
            intake.close()
    held = {task.number: len(own) // ID_BYTES}
    held |= {n: len(ids) // ID_BYTES for n, ids in lists.items()}
    said = [(n, str(hello["at"]), str(hello["previous"])) for n, hello in hellos.items()]
    said = sorted([*said, (task.number, at, previous)])
    time, before = said[0][1], next((each[2] for each in said if each[2]), "")
    settled = Settled(
        present=links.present,
        share=share,
        agreed=agreed,
        left_out=left_out,
        held=dict(sorted(held.items())),
        missing=role.missing(lists),
        at=time,
        previous=before,
        digest=_digest(task, period, links.present, agreed, left_out, challenge, time, before),
    )
    await _same(links, settled.digest)
    if settled.included < SMALLEST:
        raise ReleaseRefused(
            f"Of the reports, {settled.included} are whole and held by all servers. A sum of fewer "
            f"than {SMALLEST} hides nobody. Nothing was opened, nothing was charged."
        )
    memory.keep_heads({n: Head(*hello["head"]) for n, hello in hellos.items()})
    return settled


def shut(intakes: Sequence[Intake], task: Task, period: int) -> bytes:
    """Closes a period at all collectors; the ids of its reports, in no order.

    A collector keeps one report of an identity. If several have one, that with the smallest id
    counts, at every server.
    """
    if not intakes:
        raise DeploymentError("This server has no reports: no collector has run in its folder.")
    for intake in intakes:
        intake.shut(task.fingerprint, period)
    held = [pair for intake in intakes for pair in intake.reports(task.fingerprint, period)]
    first: dict[bytes, bytes] = {}
    for report_id, identity in sorted(held, key=lambda pair: pair[0]):
        first.setdefault(identity or report_id, report_id)
    return b"".join(first.values())


def open_rows(task: Task, period: int, messages: Sequence[bytes]) -> tuple[Ids, Field]:
    """Ids and shares of reports that were opened before they were kept."""
    ids, rows = list[bytes](), np.empty((len(messages), task.entries + 1), dtype=np.uint64)
    for place, message in enumerate(messages):
        header, rows[place] = open_report(
            message,
            task.key,
            plan=task.fingerprint,
            period=period,
            server=task.number,
            entries=task.entries,
        )
        ids.append(header.report_id)
    return np.array(ids, dtype=f"S{ID_BYTES}"), rows


def _stored(
    intakes: Sequence[Intake], task: Task, period: int, wanted: Ids | None = None
) -> Iterator[tuple[Ids, Field]]:
    data = None if wanted is None else wanted.tobytes()
    ids = data and [data[i : i + ID_BYTES] for i in range(0, len(data), ID_BYTES)]
    for intake in intakes:
        for messages in intake.messages(task.fingerprint, period, ids or None):
            if messages:
                yield open_rows(task, period, messages)


async def _hello(
    task: Task, period: int, links: Links, memory: Memory, *, head: Head, at: str, previous: str
) -> dict[int, dict[str, Any]]:
    """What the others say first; refused unless all of them are about to do the same."""
    own = {
        "version": VERSION,
        "plan": task.plan.fingerprint,
        "period": period,
        "present": list(links.present),
        "head": [head.count, head.hash],
        "seen": memory.seen,
        "challenge": memory.challenge,
        "at": at,
        "previous": previous,
    }
    found = {}
    for number, message in (await links.broadcast(canonical(own))).items():
        hello = parse_document(message, "message of a server")
        for name in ("version", "plan", "period", "present"):
            if hello.get(name) != own[name]:
                raise DeploymentError(
                    f"Server {number} answers another {name} than this one, or does not see the "
                    "same servers. Nothing was opened; start the answer again at all of them."
                )
        if set(hello) != set(own) or not _is_proper(hello):
            raise MessageDecodeError(f"Server {number} did not say hello as servers do.")
        found[number] = hello
    return found


def _is_proper(hello: Mapping[str, Any]) -> bool:
    """Whether what the others use of it is of the kind that it should be."""
    seen = hello["seen"]
    heads = [hello["head"], *(seen.values() if isinstance(seen, dict) else [None])]
    words = (hello["challenge"], hello["at"], hello["previous"])
    return all(map(_is_head, heads)) and all(isinstance(each, str) for each in words)


def _is_head(value: Any) -> bool:
    match value:
        case [int(count), str()]:
            return count >= 0 and not isinstance(count, bool)
    return False


async def _challenge(
    links: Links,
    hellos: Mapping[int, Mapping[str, Any]],
    memory: Memory,
    randomness: Callable[[int], bytes],
) -> bytes:
    """A new challenge; or the one that was answered before, if an earlier attempt broke off."""
    known = {str(hello["challenge"]) for hello in hellos.values()} | {memory.challenge}
    known.discard("")
    if len(known) > 1:
        raise DeploymentError(
            "The servers have answered different challenges of this period, and none answers a "
            "second one: two would tell about single reports. This period cannot be answered."
        )
    if known:
        return _bytes(known.pop())
    secret = randomness(SECRET_BYTES)
    said = await links.broadcast(commitment(secret)) | {links.number: commitment(secret)}
    shown = await links.broadcast(secret) | {links.number: secret}
    return draw_challenge(shown, said)


def _bytes(digits: str) -> bytes:
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if len(found) != SECRET_BYTES:
        raise InvalidInputError("A server names a challenge that is none.")
    return found


def _digest(task: Task, period: int, present: Sequence[int], *parts: bytes | str) -> bytes:
    found = hashlib.sha256(b"fedprikl/servers/settled/" + task.fingerprint)
    found.update(canonical([period, list(present)]))
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.digest()


async def _same(links: Links, digest: bytes) -> None:
    if any(other != digest for other in (await links.broadcast(digest)).values()):
        raise DeploymentError(
            "The servers have settled on different reports or challenges: one of them told the "
            "others different things. Nothing was opened, nothing was spent."
        )
