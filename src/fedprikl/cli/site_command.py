"""`fedprikl site`: runs a site, checks it, and shows its people what is asked and what left."""

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedprikl.cli.console import print_json, say
from fedprikl.cli.options import (
    Force,
    Json,
    SiteData,
    TableName,
    check_outputs,
    load_reference,
)
from fedprikl.cli.running import (
    HealthPort,
    Logs,
    Poll,
    check_address,
    check_file,
    check_flower,
    check_node_key,
    note_relay,
    run_party,
)
from fedprikl.deployment.flower.parties import POLL, check_carried, site_processes
from fedprikl.deployment.policy import load_policy, policy_text
from fedprikl.deployment.settings import Home, NodeSettings, data_settings, home_folder, now
from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.records import Place, place_of
from fedprikl.store import replace_file

HEALTH_PORT = 8470
commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    no_args_is_help=True,
)
Relay = Annotated[
    str, typer.Argument(metavar="[RELAY]", help="host:port; default: as the invitation says.")
]
Folder = Annotated[
    Path | None,
    typer.Option(help="The site's own folder.", show_default="$FEDPRIKL_HOME or ~/.fedprikl"),
]
PolicyFile = Annotated[
    Path | None, typer.Option(help="The site's policy.", show_default="policy.toml of the folder")
]
ReferenceFile = Annotated[
    Path | None, typer.Option(help="The reference Π.", show_default="those of the folder")
]
NodeKey = Annotated[
    Path | None,
    typer.Option(
        help="Private key that the relay knows this site by.", show_default="node of the folder"
    ),
]
Roots = Annotated[
    Path | None,
    typer.Option(
        help="Certificates the relay is trusted by.",
        show_default="ca.pem of the folder, or the system's",
    ),
]
Number = Annotated[int, typer.Argument(help="Of the request, see `fedprikl site requests`.")]


@commands.callback()
def site_command() -> None:
    """Runs a site, checks it, and shows its people what is asked and what left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What a site is started with, with what its folder says for what was left out."""

    home: Home
    relay: str
    node_key: Path
    roots: Path | None

    @classmethod
    def of(
        cls,
        relay: str,
        folder: Path | None,
        policy: Path | None,
        reference: Path | None,
        node_key: Path | None,
        roots: Path | None,
    ) -> "_Start":
        home = _home(folder)
        home.policy, home.reference = policy or home.policy, reference or home.reference
        if not relay:
            from fedprikl.deployment.provisioning import load_membership

            relay = load_membership(home.folder).relay
        own = home.folder / "ca.pem"
        return cls(
            home=home,
            relay=relay,
            node_key=node_key or home.folder / "node",
            roots=roots or (own if own.exists() else None),
        )


def _place(data: str, table: str) -> Place:
    """The records; refuses what is not there."""
    place = place_of(data, table)
    if isinstance(place, Path):
        check_file(place, "file or folder of records", "Check the path.", folder=True)
    else:
        place.open()
    return place


def _home(folder: Path | None) -> Home:
    """The site's folder, also for the processes that are started."""
    if folder is not None:
        os.environ["FEDPRIKL_HOME"] = str(folder.resolve())
    return Home(home_folder())


@commands.command("run")
def run(
    data: SiteData,
    superlink: Relay = "",
    table: TableName = "",
    folder: Folder = None,
    policy: PolicyFile = None,
    reference: ReferenceFile = None,
    node_key: NodeKey = None,
    root_certificates: Roots = None,
    trusted_entities: Annotated[
        Path | None, typer.Option(help="Whose apps Flower accepts here.")
    ] = None,
    health_port: HealthPort = HEALTH_PORT,
    log_format: Logs = "text",
    poll: Poll = POLL,
) -> None:
    """Runs a site: Flower's SuperNode and the process that answers its messages.

    Answers with the fedprikl that is installed here, whatever app the relay sends. Keeps both
    processes running; ends them on Ctrl-C or SIGTERM. The folder holds the site's memory and log.

    Example: `fedprikl site run relay.example.org:9443 --folder site --data records.csv`

    Example: `fedprikl site run --folder site --data postgresql://db.example.org/clinic
    --table visits`
    """
    check_flower()
    start = _Start.of(superlink, folder, policy, reference, node_key, root_certificates)
    check_address(start.relay)
    check_file(start.roots, "certificate file", "It is the relay's ca.pem.")
    check_node_key(start.node_key)
    check_file(trusted_entities, "file of trusted entities", "Check the path.")
    place = _place(data, table)
    if reference is not None or not start.home.reference_files():
        load_reference(start.home.reference)
    config = {
        **data_settings(place),
        "policy": str(start.home.policy.resolve()),
        "reference": str(start.home.reference.resolve()),
    }
    NodeSettings.of(config)
    check_carried(config)
    note_relay(start.relay, start.roots, log_format)
    processes = partial(
        site_processes,
        config=config,
        superlink=start.relay,
        roots=start.roots,
        node_key=start.node_key,
        trusted=trusted_entities,
        poll=poll,
    )
    run_party(
        "site",
        start.home.folder,
        processes,
        health_port=health_port,
        log_format=log_format,
        certificates=[start.roots],
    )


@commands.command("policy")
def policy(
    organisers: Annotated[
        list[str], typer.Argument(help="NAME=KEY of each who may ask; the name is yours.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to.")] = Path("policy.toml"),
    force: Force = False,
) -> None:
    """Writes a policy with everything that can be said in it, to be edited.

    The key is the public one that `fedprikl plan` prints after "signed by".

    Example: `fedprikl site policy hospitals=3f5a... -o policy.toml`
    """
    check_outputs(output, force=force)
    named = dict(text.partition("=")[::2] for text in organisers)
    replace_file(output, policy_text(named, require_roster=False).encode(), mode=0o644)
    load_policy(output)
    say(f"{output}: read it, and change what you do not agree with")


@commands.command("check")
def check(
    data: SiteData,
    superlink: Relay = "",
    table: TableName = "",
    folder: Folder = None,
    policy: PolicyFile = None,
    reference: ReferenceFile = None,
    node_key: NodeKey = None,
    root_certificates: Roots = None,
    json: Json = False,
) -> None:
    """Says everything that is wrong, before the first round: exit code 1 if anything is.

    Looks at data and columns, policy and the plans it knows, keys, roster, the relay with its clock
    and certificate, memory, log and disk. Reads no record.

    Example: `fedprikl site check --folder site --data records.csv`
    """
    from fedprikl.deployment.site_check import CheckedSite, check_site

    start = _Start.of(superlink, folder, policy, reference, node_key, root_certificates)
    found = check_site(
        CheckedSite(
            home=start.home,
            data=place_of(data, table),
            relay=start.relay,
            roots=start.roots,
            node_key=start.node_key,
            check_node_key=check_node_key,
        ),
        at=now(),
    )
    wrong = [each for each in found if each.wrong]
    if json:
        print_json({"well": not wrong, "findings": [to_plain(each) for each in found]})
    else:
        for each in found:
            say(f"{'WRONG' if each.wrong else 'ok':5} {each.what}: {each.words}")
        say(f"{len(wrong)} things are wrong" if wrong else "nothing is wrong")
    if wrong:
        raise typer.Exit(1)


@commands.command("requests")
def requests(
    folder: Folder = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were decided.")
    ] = False,
    json: Json = False,
) -> None:
    """Shows what waits for a person of this site to say yes, in plain words.

    Example: `fedprikl site requests --folder site`
    """
    log = _log(_home(folder))
    known = log.read().requests.values()
    found = [each for each in known if everything or each.state == "waiting"]
    if json:
        print_json({"requests": [to_plain(each) for each in found]})
        return
    for each in found:
        _describe(log, each)
    say(f"{len(found)} requests" if found else "nothing waits for a yes")


@commands.command("approve")
def approve(
    number: Number,
    folder: Folder = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Says yes to a request: the site takes part when the organiser asks again.

    Example: `fedprikl site approve 1 --folder site`
    """
    _decide(number, folder, yes=True, sure=yes)


@commands.command("deny")
def deny(number: Number, folder: Folder = None) -> None:
    """Says no to a request. A later `approve` of the same number takes it back.

    Example: `fedprikl site deny 1 --folder site`
    """
    _decide(number, folder, yes=False, sure=True)


@commands.command("log")
def log_of(folder: Folder = None, json: Json = False) -> None:
    """Shows what was asked of this site, what its people said, what left, and what it cost.

    Verifies the chain of hashes: an entry that was changed or removed is found out.

    Example: `fedprikl site log --folder site`
    """
    home = _home(folder)
    log, at = _log(home), now()
    entries, book = log.entries(), log.read()
    spent = log.spent(load_policy(home.policy), at=at) if home.policy.exists() else None
    if json:
        lines = [{"number": each.number, **each.body, "hash": each.hash} for each in entries]
        print_json({"entries": lines, "spent_in_a_year": spent})
        return
    for each in book.sent:
        period = "" if each.period is None else f", period {each.period}"
        say(
            f"{each.at[:16]} {each.organiser} ({each.key[:8]}) asked, plan {each.plan[:16]}"
            f"{period}: {each.counts:,} counts of {', '.join(each.views)} left, masked; "
            f"cost: epsilon {each.epsilon:g}, delta {each.delta:g}"
        )
    for each in book.requests.values():
        if each.by:
            verb = "denied" if each.state == "denied" else "approved"
            words = f"request {each.number}, a {each.scope} of {each.plan[:16]}"
            say(f"{each.decided_at[:16]} {each.by} {verb} {words}")
    say(f"counts left {len(book.sent)} times")
    if spent is not None:
        say(f"the releases of the last 365 days cost a record epsilon {spent:.4g} at most")


def _log(home: Home) -> Any:
    """The log, which is no older than the site's memory says."""
    from fedprikl.deployment.site_log import SiteLog
    from fedprikl.deployment.site_memory import SiteMemory

    return SiteLog(home.log, SiteMemory(home.memory, home.folder).log_head())


def _describe(log: Any, request: Any) -> None:
    from fedprikl.deployment.site_log import plan_in_words

    signed = log.plan_of(request.document)
    scope = "every round of this plan" if request.scope == "plan" else "one round"
    lines: Sequence[str] = plan_in_words(signed, request.period)
    say(
        f"request {request.number}, {request.state}: {request.organiser} "
        f"({request.key[:16]}) asked at {request.at[:16]} for {scope}, plan {request.plan[:16]}"
    )
    for line in lines:
        say(f"  {line}")


def _decide(number: int, folder: Path | None, *, yes: bool, sure: bool) -> None:
    log = _log(_home(folder))
    known = log.read().requests.get(number)
    if known is not None:
        _describe(log, known)
    if known is not None and not sure and not typer.confirm("Take part?"):
        raise InvalidInputError("Nothing was changed.")
    decided = log.decide(number, yes=yes, by=getpass.getuser(), at=now())
    say(f"request {number}: {decided.state}" + (". Tell the organiser to ask again" if yes else ""))
