"""The files of a server: its keys and certificates, the cards of all three, and accepted plans.

signing.pem, sealing-x25519.pem, sealing-hybrid.pem     SECRET keys
server.pem, server.key, ca.pem      of the web address; replace them by those of an authority
card.json           public: who this server is, for the other two and for whoever makes a plan
servers.json        the cards of all three, in the order of their numbers
limits.json         what this server agrees to
plans/              accepted plans;  references/, rosters/ of these plans, by fingerprint
reports-NAME.db     reports of the collector NAME
ledger.db, releases/, state/        what was answered
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from fedprikl.deployment.servers.intake import Intake
from fedprikl.deployment.tls import unsigned_certificate, write_certificates
from fedprikl.deployment.web import Tls
from fedprikl.documents import parse_document, read_exactly, read_file, readable, to_plain
from fedprikl.errors import DeploymentError, InvalidInputError, PolicyRefusal
from fedprikl.protocol import Plan, Roster, Servers, SignedPlan, SigningKey
from fedprikl.protocol.client import beyond_limits
from fedprikl.protocol.keys import HybridKey, OpeningKey, SealingKey
from fedprikl.protocol.report_vector import report_blocks, report_entries
from fedprikl.reference import Reference
from fedprikl.store import replace_file

SEALING: dict[str, type[SealingKey | HybridKey]] = {"x25519": SealingKey, "hybrid": HybridKey}
PINNED = timedelta(days=3650)  # of the certificate between servers: what counts is its key
CARDS, LIMITS, CARD = "servers.json", "limits.json", "card.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Who a server is. Public; the three operators give each other theirs by hand."""

    address: str  # where clients send reports: https://one.example
    peer: str  # where the other servers reach it: host:port
    signing: str  # Ed25519 public key: signs releases, and is the key of its certificate
    x25519: str  # public keys that reports are sealed to, by suite
    hybrid: str
    certificate: str  # self-signed with the signing key, PEM

    def check(self) -> None:
        """Refuses a certificate of another key than the one that signs."""
        try:
            found = x509.load_pem_x509_certificate(self.certificate.encode())
            key = found.public_key()
            own = isinstance(key, Ed25519PublicKey) and key.public_bytes_raw().hex() == self.signing
            found.verify_directly_issued_by(found)
        except Exception:
            own = False
        host, _, port = self.peer.rpartition(":")
        if not own or not host or not port.isdecimal():
            raise InvalidInputError(
                "A card's certificate does not have the key that signs, or it names no host:port "
                "for the other servers. Take card.json from its operator once more."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server agrees to, whatever a plan says."""

    organiser: str  # public key that must have signed the plan
    largest_epsilon: float = 2.0
    largest_delta: float = 1e-5
    most_entries: int = 20_000  # numbers of a report

    def check(self, signed: SignedPlan) -> None:
        """Raises `PolicyRefusal` unless this server may take part in answers to the plan."""
        budget = signed.plan.budget
        if not signed.is_signed_by(self.organiser):
            raise _refusal(
                "the plan is not signed by the organiser that this server works for: "
                f"{LIMITS} says {self.organiser[:16]}, the plan {signed.signer[:16] or 'nobody'}"
            )
        if beyond := beyond_limits(budget, self.largest_epsilon, self.largest_delta):
            raise _refusal(f"{beyond}, see {LIMITS}")
        if report_entries(signed.plan) > self.most_entries:
            raise _refusal(f"a report has more than {self.most_entries:,} numbers")


@dataclass(frozen=True, eq=False)
class Task:
    """A plan as one of its servers sees it."""

    signed: SignedPlan
    number: int  # this server's
    servers: Servers  # the plan's part about servers
    key: OpeningKey
    roster: Roster | None

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.signed.plan

    @cached_property
    def fingerprint(self) -> bytes:
        """Of the plan, as reports carry it."""
        return bytes.fromhex(self.plan.fingerprint)

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Numbers of each view in a report."""
        return report_blocks(self.plan)

    @cached_property
    def entries(self) -> int:
        """Numbers of a report, without its mask."""
        return report_entries(self.plan)

    def is_open(self, period: int, *, at: str) -> bool:
        """Whether reports of a period may come at this time: the period is over, the plan is not.

        Without a series there is one period, number 0.
        """
        when = self.plan.when
        if not self.plan.validity.includes(at):
            return False
        if when.kind == "once":
            return period == 0
        return period < when.periods and when.period(period).end <= datetime.fromisoformat(at)


class ServerHome:
    """The folder of one server. Private keys never leave it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plans, self.references = folder / "plans", folder / "references"
        self.rosters, self.releases = folder / "rosters", folder / "releases"
        self.ledger, self.state = folder / "ledger.db", folder / "state"
        self.tls = Tls(folder / "server.pem", folder / "server.key")

    def create(self, *, address: str, peer: str, host: str, limits: Limits, days: float) -> Card:
        """Makes keys, certificates and the card; never over what is there."""
        if (self.folder / CARD).exists():
            raise InvalidInputError(
                f"{self.folder} is the folder of a server already. Choose another."
            )
        for folder in (self.folder, self.plans, self.references, self.rosters, self.releases):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state.mkdir(mode=0o700, exist_ok=True)
        signing = SigningKey.load_or_create(self.folder / "signing.pem")
        for suite, kind in SEALING.items():
            kind.load_or_create(self._sealing(suite))
        write_certificates(self.folder, host=host, days=days)
        card = Card(
            address=address,
            peer=peer,
            signing=signing.public,
            x25519=self.opening("x25519").public,
            hybrid=self.opening("hybrid").public,
            certificate=self._certificate(),
        )
        card.check()
        replace_file(self.folder / LIMITS, readable(to_plain(limits)).encode())
        replace_file(self.folder / CARD, readable(to_plain(card)).encode())
        return card

    def _sealing(self, suite: str) -> Path:
        return self.folder / f"sealing-{suite}.pem"

    def _certificate(self) -> str:
        """Self-signed with the signing key, so that the plan pins it."""
        key = load_pem_private_key((self.folder / "signing.pem").read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey)  # noqa: S101  loaded before
        name, public = "fedprikl server", key.public_key()
        made = (
            unsigned_certificate(name, name, public, until=datetime.now(UTC) + PINNED)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(key, None)
        )
        return made.public_bytes(Encoding.PEM).decode()

    @cached_property
    def card(self) -> Card:
        """Its own card."""
        if not (self.folder / CARD).exists():
            raise DeploymentError(
                f"{self.folder} is not the folder of a server. Make it: `fedprikl server init`."
            )
        return read_card(self.folder / CARD)

    @property
    def is_joined(self) -> bool:
        """Whether this server knows the other two."""
        return (self.folder / CARDS).exists()

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """Those of all three servers."""
        path = self.folder / CARDS
        if not path.exists():
            raise DeploymentError(
                "This server does not know the other two. Give it the cards of all three: "
                "`fedprikl server join one.json two.json three.json`."
            )
        document = parse_document(read_file(path, "servers"), "list of servers")
        return tuple(read_exactly(Card, each, "card") for each in document["cards"])

    @property
    def number(self) -> int:
        """Its place among the three servers, from 1."""
        return [card.signing for card in self.cards].index(self.card.signing) + 1

    @property
    def limits(self) -> Limits:
        """What this server agrees to."""
        document = parse_document(read_file(self.folder / LIMITS, "limits"), "list of limits")
        return read_exactly(Limits, document, "list of limits")

    def signing(self) -> SigningKey:
        """SECRET: signs releases."""
        return SigningKey.load(self.folder / "signing.pem")

    def opening(self, suite: str) -> OpeningKey:
        """SECRET: opens reports of a suite."""
        return SEALING[suite].load(self._sealing(suite))

    def join(self, cards: list[Card]) -> None:
        """Keeps the cards of all three servers, in the order of their numbers."""
        for card in cards:
            card.check()
        keys = {card.signing for card in cards}
        if len(cards) != 3 or len(keys) != 3 or self.card not in cards:
            raise InvalidInputError(
                "Three servers take part, each with a key of its own, and this one is one of them. "
                "Give the three cards, in the same order to all of them."
            )
        keys_before = [card.signing for card in self.cards] if self.is_joined else []
        changed = keys_before and keys_before != [card.signing for card in cards]
        if changed and any(self.plans.glob("*.json")):
            raise InvalidInputError(
                f"This server joined as server {self.number} of 3 and has accepted plans that name "
                "this order. Nothing was changed. Other servers, or another order, need a new "
                "folder (`fedprikl server init`)."
            )
        content = json.dumps({"cards": [to_plain(card) for card in cards]}, indent=2)
        replace_file(self.folder / CARDS, content.encode())
        self.__dict__.pop("cards", None)  # they were read before

    def accept(self, signed: SignedPlan, reference: Reference, roster: Roster | None) -> Task:
        """Keeps a plan that this server agrees to, with what its answers need."""
        task = self.check(signed, reference, roster)
        reference.save(self.references / f"{reference.fingerprint}.json")
        if roster is not None:
            lines = "".join(f"{key.hex()}\n" for key in sorted(roster.keys))
            replace_file(self.rosters / f"{roster.fingerprint}.txt", lines.encode())
        path = self.plans / f"{signed.plan.fingerprint}.json"
        replace_file(path, json.dumps(signed.to_dict()).encode())
        return task

    def check(self, signed: SignedPlan, reference: Reference, roster: Roster | None) -> Task:
        """A plan that this server agrees to; refuses any other, and another reference or roster."""
        task = self.task(signed, roster)
        if reference.fingerprint != signed.plan.reference:
            raise InvalidInputError("The plan is about another reference than this one.")
        if (roster.fingerprint if roster else "") != signed.plan.roster:
            raise InvalidInputError("The plan names another roster, or none. Give its own.")
        return task

    def task(self, signed: SignedPlan, roster: Roster | None) -> Task:
        """A plan as this server sees it; refuses one of other servers or beyond its limits."""
        servers, cards, number = signed.plan.servers, self.cards, self.number
        if servers is None or servers.signing != tuple(card.signing for card in cards):
            raise _refusal(
                "the plan names other servers than these three, or another order. Join again with "
                "the cards in the order of the plan: `fedprikl server join`"
            )
        key = self.opening(servers.suite)
        if servers.sealing[number - 1 : number] != (key.public,):
            raise _refusal("the plan names another sealing key than this server's")
        self.limits.check(signed)
        return Task(signed, number, servers, key, roster)

    def tasks(self) -> Iterator[Task]:
        """All accepted plans."""
        for path in sorted(self.plans.glob("*.json")):
            signed = SignedPlan.load(path)
            name = signed.plan.roster
            roster = Roster.load(self.rosters / f"{name}.txt") if name else None
            yield self.task(signed, roster)

    def reference(self, plan: Plan) -> Reference:
        """That of an accepted plan."""
        return Reference.load(self.references / f"{plan.reference}.json")

    def intake(self, name: str) -> Intake:
        """The reports of one collector, made if there are none."""
        return Intake(self.folder / f"reports-{name}.db", is_closed=self.is_closed)

    def intakes(self) -> list[Intake]:
        """Those of all collectors of this server."""
        found = sorted(self.folder.glob("reports-*.db"))
        return [Intake(path, create=False, is_closed=self.is_closed) for path in found]

    def is_closed(self, plan: bytes, period: int) -> bool:
        """Whether a period takes no more reports.

        A server of an earlier version wrote no `.closed`: what it answered with says so too.
        """
        name = f"{round_name(plan, period)}.json"
        signs = (self._closed(plan, period), self.state / name, self.releases / name)
        return any(path.exists() for path in signs)

    def close(self, plan: bytes, period: int) -> None:
        """Says that a period takes no more reports, to collectors that begin from now on. Those
        that have a file are told by their files (`Intake.shut`), which are listed after this.
        """
        replace_file(self._closed(plan, period), b"")

    def _closed(self, plan: bytes, period: int) -> Path:
        return self.state / f"{round_name(plan, period)}.closed"

    def release(self, plan: str, period: int) -> str | None:
        """The signed release of a plan and period; None if there is none yet."""
        path = self.releases / f"{round_name(bytes.fromhex(plan), period)}.json"
        return path.read_text(encoding="utf-8") if path.exists() else None

    def certificate_ends(self) -> datetime:
        """When the certificate of the web address ends."""
        found = x509.load_pem_x509_certificate(self.tls.certificate.read_bytes())
        return found.not_valid_after_utc


def _refusal(reason: str) -> PolicyRefusal:
    return PolicyRefusal(reason, who="server")


def round_name(plan: bytes, period: int) -> str:
    """The id of the one answer to a plan and period, the same at all servers."""
    name = b"fedprikl/servers/round/" + plan + period.to_bytes(8, "little")
    return hashlib.sha256(name).hexdigest()[:32]


def read_card(path: str | Path) -> Card:
    """The card of a file."""
    card = read_exactly(Card, parse_document(read_file(path, "card"), "card"), "card")
    card.check()
    return card
