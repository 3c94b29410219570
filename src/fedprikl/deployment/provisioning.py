"""Setting a federation up: who is invited, who joined, who is admitted, and what sites are handed.

    organiser                                             site
    found    keys, federation.json
    invite   NAME.invite, signed by the organiser  --->   join    makes its own keys
    admit    <---  NAME.join, signed by the key it carries
    make_kit kit.json, signed by the organiser     --->   unpack  roster, reference, plan

All that travels is public. Private keys are made where they are used, and stay there. A signature
shows that a file was not altered on the way. Who made it, only people can tell: they compare the
fingerprint of a joining file, which covers the federation and the keys of the site.

Everything is checked before anything is written: a bad file changes nothing.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedprikl.deployment.policy import policy_text, usual_policy
from fedprikl.deployment.settings import Home, is_joined, now
from fedprikl.deployment.tls import write_node_key
from fedprikl.documents import (
    Format,
    canonical,
    digest,
    parse_document,
    read_exactly,
    read_file,
    readable,
    to_plain,
)
from fedprikl.errors import DeploymentError, InvalidInputError, PolicyRefusal
from fedprikl.protocol import Roster, SealingKey, SignedPlan, SigningKey
from fedprikl.protocol.client import check_corruption, check_parts, check_plan
from fedprikl.protocol.keys import verify_signature
from fedprikl.reference import Reference
from fedprikl.reference.files import loads
from fedprikl.store import replace_file

FORMAT = Format("federation", advice="Make it again with `fedprikl federation init`.")
NAME = re.compile("[a-z0-9][a-z0-9-]{0,39}")
INVITED, ADMITTED, REMOVED = "invited", "admitted", "removed"
UNCHANGED = "Nothing was changed."
Body = TypeVar("Body")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the organiser knows of a site."""

    name: str
    state: str
    token: str  # of its newest invitation
    expires: str  # of that invitation: ISO 8601
    identity: str = ""  # public key that the roster knows it by
    node: str = ""  # public key that the relay knows it by, as ssh-keygen writes it


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInvitation:
    """The federation as a site gets to know it; for one site, for a while."""

    federation: str
    relay: str  # host:port
    certificates: str  # that the relay is trusted by, PEM
    site: str
    token: str
    expires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The public keys of a site; signed by the identity."""

    federation: str  # its fingerprint
    site: str
    token: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What all sites need for a round. The files, as texts."""

    federation: str
    certificates: str
    roster: str
    reference: str
    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What a site remembers of the federation that it joined."""

    federation: str
    relay: str
    organiser: str  # public key
    site: str


def short_fingerprint(federation: str, site: str, identity: str, node: str) -> str:
    """80 bits over the federation and a site's keys, for people to compare over the telephone."""
    digits = digest([federation, site, identity, node])[:20]
    return "-".join(digits[at : at + 4] for at in range(0, 20, 4))


def fingerprint_of(name: str, relay: str, certificates: str, organiser: str) -> str:
    """Names a federation: another organiser, relay or certificate is another federation."""
    return digest([name, relay, certificates, organiser])


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """The organiser's folder: relay/, aggregator/, flwr/, organiser.pem, federation.json."""

    folder: Path
    name: str
    relay: str
    sites: tuple[Site, ...] = ()

    @property
    def home(self) -> Home:
        """The aggregator's files."""
        return Home(self.folder / "aggregator")

    @property
    def certificates(self) -> Path:
        """That the relay is trusted by."""
        return self.folder / "relay" / "ca.pem"

    @property
    def organiser(self) -> SigningKey:
        """SECRET: signs plans, invitations and kits."""
        return SigningKey.load(self.folder / "organiser.pem")

    @property
    def fingerprint(self) -> str:
        """Of the federation."""
        roots = self.certificates.read_text("utf-8")
        return fingerprint_of(self.name, self.relay, roots, self.organiser.public)

    @property
    def admitted(self) -> list[Site]:
        """The sites of the roster."""
        return [site for site in self.sites if site.state == ADMITTED]

    def site(self, name: str) -> Site:
        """The site of this name."""
        for site in self.sites:
            if site.name == name:
                return site
        known = ", ".join(site.name for site in self.sites) or "none yet"
        raise InvalidInputError(
            f"{name!r:.60} is no site of {self.name}. Its sites: {known}. {UNCHANGED}"
        )

    def with_sites(self, changed: Iterable[Site]) -> "Federation":
        """With these sites in place of those of the same names, and new ones at the end."""
        sites = {site.name: site for site in self.sites} | {site.name: site for site in changed}
        return replace(self, sites=tuple(sites.values()))

    def save(self) -> None:
        """Writes federation.json, and the roster of the admitted sites for the aggregator."""
        roster = "".join(f"{site.identity} {site.name}\n" for site in self.admitted)
        content = {
            **FORMAT.head,
            "name": self.name,
            "relay": self.relay,
            "sites": [to_plain(site) for site in self.sites],
        }
        replace_file(self.home.roster, roster.encode(), mode=0o644)
        replace_file(self.folder / "federation.json", readable(content).encode())

    @classmethod
    def load(cls, folder: Path) -> "Federation":
        """The federation of a folder that `fedprikl federation init` made."""
        path = folder / "federation.json"
        if not path.exists():
            raise InvalidInputError(
                f"{folder} holds no federation. Make one with `fedprikl federation init`."
            )
        content = FORMAT.current(parse_document(path.read_bytes(), "federation"))
        try:
            sites = tuple(read_exactly(Site, each, "site") for each in content["sites"])
            name, relay = str(content["name"]), str(content["relay"])
        except (KeyError, TypeError, AttributeError):
            raise DeploymentError(f"{path} is damaged. Restore a copy.") from None
        return cls(folder=folder.resolve(), name=name, relay=relay, sites=sites)


def check_new(folder: Path, name: str) -> None:
    """Refuses a folder that holds a federation, and what is no name."""
    _check_name(name)
    if (folder / "federation.json").exists():
        raise InvalidInputError(
            f"{folder} holds a federation already. {UNCHANGED} Another reference comes with "
            "`fedprikl federation kit --reference`; for a new federation, choose another folder."
        )


def found(folder: Path, *, name: str, relay: str, reference: Path) -> Federation:
    """A new federation with the organiser's and the aggregator's keys; the relay's are there."""
    check_new(folder, name)
    made = Federation(folder=folder.resolve(), name=name, relay=relay)
    made.home.folder.mkdir(mode=0o700, exist_ok=True)
    SigningKey.load_or_create(folder / "organiser.pem")
    SigningKey.load_or_create(made.home.signing_key)
    SealingKey.load_or_create(made.home.sealing_key)
    replace_file(made.home.reference, read_file(reference, "reference"), mode=0o644)
    made.save()
    return made


def invite(
    federation: Federation, names: Sequence[str], *, days: float, tokens: Sequence[str]
) -> tuple[Federation, dict[str, str]]:
    """After the invitations, and the text of each by the name of its site.

    A new invitation replaces an older one. A site that is admitted has to be removed first.
    """
    if not 0 < days <= 365:
        raise InvalidInputError(f"An invitation lasts up to 365 days. {UNCHANGED}")
    for name in names:
        _check_name(name)
    taken = {site.name for site in federation.admitted} & set(names)
    if taken or len(set(names)) < len(names):
        said = f"{', '.join(sorted(taken))} is admitted" if taken else "A name stands there twice"
        raise InvalidInputError(f"{said}. Invite under other names, or remove first. {UNCHANGED}")
    expires = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0).isoformat()
    key, roots = federation.organiser, federation.certificates.read_text("utf-8")
    invited, texts = [], {}
    for name, token in zip(names, tokens, strict=True):
        invited.append(Site(name=name, state=INVITED, token=token, expires=expires))
        body = SiteInvitation(
            federation=federation.name,
            relay=federation.relay,
            certificates=roots,
            site=name,
            token=token,
            expires=expires,
        )
        texts[name] = _signed("invitation", body, key)
    return federation.with_sites(invited), texts


def join(path: Path, folder: Path) -> tuple[str, str, str]:
    """Runs at a site: makes its keys. Its name, the joining file's text and its fingerprint.

    A site that was invited again keeps its keys.
    """
    body, organiser = _opened(path, "invitation", SiteInvitation)
    _check_name(body.site)
    _check_name(body.federation)  # it becomes a name of the policy, beside the organiser's key
    _check_date(body.expires, path)
    own = Membership(
        federation=body.federation, relay=body.relay, organiser=organiser, site=body.site
    )
    if is_joined(folder) and load_membership(folder).organiser != organiser:
        raise InvalidInputError(
            f"{folder} belongs to a site of another organiser. Use another folder. {UNCHANGED}"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = SigningKey.load_or_create(Home(folder).identity)
    if not (folder / "node").exists():
        write_node_key(folder / "node")
    node = (folder / "node.pub").read_text("utf-8").strip()
    named = fingerprint_of(body.federation, body.relay, body.certificates, organiser)
    replace_file(folder / "ca.pem", body.certificates.encode(), mode=0o644)
    replace_file(folder / "member.json", readable(to_plain(own)).encode())
    if not Home(folder).policy.exists():  # what the site's people wrote stays
        text = policy_text({body.federation: organiser}, require_roster=True)
        replace_file(Home(folder).policy, text.encode(), mode=0o644)
    joining = Joining(federation=named, site=body.site, token=body.token, node=node)
    check = short_fingerprint(named, body.site, identity.public, node)
    return body.site, _signed("joining file", joining, identity), check


def read_joining(federation: Federation, path: Path) -> tuple[Site, str]:
    """The site as it would be admitted, and the fingerprint that people compare."""
    body, identity = _opened(path, "joining file", Joining)
    if body.federation != federation.fingerprint:
        raise InvalidInputError(f"{path} is for another federation. {UNCHANGED}")
    site = federation.site(body.site)
    if site.state == ADMITTED:
        raise InvalidInputError(f"{site.name} is admitted already. {UNCHANGED}")
    if body.token != site.token:
        raise InvalidInputError(
            f"{path} answers an older invitation of {site.name}. Have it join with the newest one. "
            f"{UNCHANGED}"
        )
    _check_date(site.expires, path)
    _check_node(body.node, path)
    joined = replace(site, state=ADMITTED, identity=identity, node=body.node)
    check = short_fingerprint(body.federation, site.name, identity, body.node)
    return joined, check


def admit(federation: Federation, sites: Sequence[Site]) -> Federation:
    """With these sites in the roster; each has a name and keys of its own."""
    everybody = [*federation.admitted, *sites]
    for field in ("name", "identity", "node"):
        # Of a node key, without the comment at its end.
        known = {" ".join(getattr(site, field).split()[:2]) for site in everybody}
        if len(known) < len(everybody):
            raise InvalidInputError(
                f"Two sites have the same {field}. Every site makes its own keys, in a folder of "
                f"its own. {UNCHANGED}"
            )
    return federation.with_sites(sites)


def remove(federation: Federation, names: Sequence[str]) -> Federation:
    """Without these sites in the roster. Plans that name the old roster are refused from now on."""
    return federation.with_sites([replace(federation.site(n), state=REMOVED) for n in names])


def make_kit(federation: Federation, path: Path, reference: Path | None = None) -> str:
    """The text of the kit for a plan, which has to fit the federation.

    `reference`: one that the federation does not have yet.
    """
    signed, home = SignedPlan.load(path), federation.home
    files = [*home.reference_files(), *([] if reference is None else [reference])]
    found = [p for p in files if Reference.load(p).fingerprint == signed.plan.reference]
    if not found:
        words = home.wrong_reference(signed.plan.reference, federation.name)
        raise InvalidInputError(
            f"{words[0].upper()}{words[1:]}. Give the reference to the federation with "
            f"`--reference`. {UNCHANGED}"
        )
    wanted = {
        "organiser's key": (signed.signer, federation.organiser.public),
        "roster": (signed.plan.roster, Roster.load(home.roster).fingerprint),
        "aggregator's key": (signed.plan.aggregator, SealingKey.load(home.sealing_key).public),
    }
    for what, (planned, own) in wanted.items():
        if planned != own:
            raise InvalidInputError(
                f"The plan {path} does not have the {what} of {federation.name} as it is now: it "
                f"has {planned[:16] or 'none'}, the federation {own[:16]}. Plan again: `fedprikl "
                f"federation status` shows the command. {UNCHANGED}"
            )
    newest, serial = home.newest_serial(signed.lineage), signed.plan.validity.serial
    if serial < newest:  # sites would refuse it, round after round
        raise InvalidInputError(
            f"The plan {path} has the serial {serial}, and a plan of an earlier kit has {newest}, "
            f"which replaces it: sites would refuse it. Plan again: with `--serial {newest}` the "
            f"two stand side by side, with a higher one this plan replaces the other. {UNCHANGED}"
        )
    kit = Kit(
        federation=federation.name,
        certificates=federation.certificates.read_text("utf-8"),
        roster=home.roster.read_text("utf-8"),
        reference=found[0].read_text("utf-8"),
        plan=path.read_text("utf-8"),
    )
    return _signed("kit", kit, federation.organiser)


def usual_refusal(signed: SignedPlan, reference: Reference) -> str:
    """Why a site whose policy is as `join` made it would refuse a plan; empty if it would not."""
    policy, plan = usual_policy(signed.signer), signed.plan
    try:
        check_plan(signed, policy.limits, reference, at=now())
        check_parts(plan, policy.limits)
        check_corruption(plan, policy.limits)
    except PolicyRefusal as refusal:
        return refusal.reason
    most = policy.limits.most_counts
    if plan.when.kind == "once" and plan.budget.releases > most:
        return (
            f"it is for {plan.budget.releases} releases about the same records, and their policy "
            f"allows {most} (most-counts)"
        )
    return ""


def add_reference(home: Home, path: Path) -> None:
    """Puts a reference beside those that a party has."""
    found = Reference.load(path)
    home.references.mkdir(mode=0o700, parents=True, exist_ok=True)
    named = home.references / f"{found.fingerprint}.json"
    replace_file(named, read_file(path, "reference"), mode=0o644)


def add_plan(home: Home, text: str) -> None:
    """Puts a plan beside those that a party has; plan.json is the newest."""
    signed = SignedPlan.from_dict(parse_document(text, "plan"))
    home.plans.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (home.plans / f"{signed.plan.fingerprint}.json", home.folder / "plan.json"):
        replace_file(path, text.encode(), mode=0o644)


def unpack(path: Path, folder: Path) -> Membership:
    """Runs at a site: puts a kit's files into its folder, if its organiser signed it."""
    own, (kit, signer) = load_membership(folder), _opened(path, "kit", Kit)
    if signer != own.organiser:
        raise InvalidInputError(
            f"{path} is of another organiser than the invitation of {own.site}. {UNCHANGED}"
        )
    identity = SigningKey.load(Home(folder).identity).public
    if bytes.fromhex(identity) not in Roster.parse(kit.roster).keys:
        raise InvalidInputError(
            f"The roster of {path} does not have {own.site}: it was not admitted, or was removed. "
            f"Ask the organiser. {UNCHANGED}"
        )
    loads(kit.reference)
    SignedPlan.from_dict(parse_document(kit.plan, "plan"))
    texts = {"ca.pem": kit.certificates, "roster.txt": kit.roster, "ref.json": kit.reference}
    for name, text in texts.items():
        replace_file(folder / name, text.encode(), mode=0o644)
    add_reference(Home(folder), folder / "ref.json")
    add_plan(Home(folder), kit.plan)
    return own


def load_membership(folder: Path) -> Membership:
    """What a site remembers of its federation."""
    path = folder / "member.json"
    if not is_joined(folder):
        raise InvalidInputError(
            f"{folder} is no folder of a site that joined. If the site has joined, call this in "
            "the folder in which it did, or give --folder. If not, begin with `fedprikl federation "
            "join`."
        )
    return read_exactly(Membership, parse_document(path.read_bytes(), "membership"), "membership")


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r:.60} is no name here: up to 40 letters a-z, digits and hyphens. {UNCHANGED}"
        )


def _check_date(expires: str, path: Path) -> None:
    try:
        over = datetime.fromisoformat(expires) < datetime.now(UTC)
    except (TypeError, ValueError):
        over = True
    if over:
        raise InvalidInputError(
            f"The invitation of {path} expired at {expires:.40}. Invite again. {UNCHANGED}"
        )


def _check_node(text: str, path: Path) -> None:
    """One key on one line: the relay's list has a line for each."""
    try:
        key: object = load_ssh_public_key(text.encode()) if text.isprintable() else None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidInputError(f"{path} holds no elliptic-curve node key. {UNCHANGED}")


def _message(kind: str, body: Any) -> bytes:
    return f"fedprikl/{kind}/1/".encode() + canonical(body)


def _signed(kind: str, body: object, key: SigningKey) -> str:
    plain = to_plain(body)
    signature = key.sign(_message(kind, plain))
    head = {"format": f"fedprikl {kind}", "body": plain}
    return readable({**head, "signer": key.public, "signature": signature})


def _opened(path: Path, kind: str, wanted: type[Body]) -> tuple[Body, str]:
    """What a file says, and the key that signed it."""
    try:
        content = parse_document(read_file(path, kind), kind)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error} {UNCHANGED} Have it sent again.") from None
    if content.get("format") != f"fedprikl {kind}":
        raise InvalidInputError(f"{path} is no {kind} of a federation. {UNCHANGED}")
    match content:
        case {"body": dict(body), "signer": str(signer), "signature": str(signature)}:
            if verify_signature(signer, signature, _message(kind, body)):
                return read_exactly(wanted, body, kind), signer
    raise InvalidInputError(
        f"{path} was altered on the way: its signature does not fit. {UNCHANGED} Have it sent "
        "again."
    )
