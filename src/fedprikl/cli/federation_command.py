"""`fedprikl federation`: from nothing to a first release, with names instead of node ids."""

import json as json_module
import math
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli import site_command
from fedprikl.cli.console import agrees, notes, print_json, say, show_table
from fedprikl.cli.options import (
    Audience,
    CsvOptions,
    Force,
    Json,
    ReleaseFiles,
    SiteData,
    TableName,
    check_outputs,
    command_group,
    given_of,
    grouped,
    load_reference,
)
from fedprikl.cli.running import Logs, check_address, check_flower, held, run_party
from fedprikl.deployment import provisioning
from fedprikl.deployment.flower.parties import aggregator_processes, prepare_relay, relay_processes
from fedprikl.deployment.flower.privates import FLWR, connected_nodes, node_key
from fedprikl.deployment.log_lines import LogFormat
from fedprikl.deployment.progress import MARK, named, short_name
from fedprikl.deployment.provisioning import Federation, Site
from fedprikl.deployment.settings import Home, now
from fedprikl.deployment.tls import check_relay
from fedprikl.documents import minute
from fedprikl.errors import (
    BudgetExceededError,
    DeploymentError,
    FedPriKLError,
    InvalidInputError,
)
from fedprikl.privacy import Ledger
from fedprikl.privacy.ledger import budget_command, left_words
from fedprikl.protocol import Plan, Roster, SealingKey, SignedPlan, SigningKey, trust_of
from fedprikl.protocol.release import own_releases
from fedprikl.protocol.round import cohort_sizes
from fedprikl.reference import Reference
from fedprikl.store import replace_file

CONNECTION = "federation"  # in Flower's config file of the folder
OF_SITES = (
    "A site's policy, as `join` writes it, allows one release about the same records, of epsilon "
    "up to 1. For more, sites raise most-counts, and largest-epsilon-per-year above 2."
)
SITES_EPSILON = 1.0  # of one release, as `join` writes it
NUMBER = "--records NUMBER"  # in a command that is printed: the organiser fills it in
KNOWN = "already in use"  # what Flower says of a node that is registered
Folder = Annotated[Path, typer.Argument(help="The organiser's folder, made by `init`.")]
Clients = Annotated[
    int | None,
    typer.Option(
        min=3,
        help="Begin when so many sites are connected. One that then refuses is left out.",
        show_default="all admitted ones",
    ),
]
PlanOf = Annotated[
    Path | None, typer.Option(help="Which plan.", show_default="that of the newest kit")
]
Wait = Annotated[float, typer.Option(help="Seconds to wait for them.")]
commands = command_group()


@commands.callback()
def federation_command() -> None:
    """Sets a federation up: invites and admits sites, hands out kits, runs it and asks."""


@commands.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="The organiser's folder, a new one.")],
    relay: Annotated[str, typer.Option(help="Where others reach this machine, host:port.")],
    reference: Annotated[Path, typer.Option(help="The reference.")],
    epsilon: Annotated[float, typer.Option(help="Budget of all releases, in the ledger.")],
    delta: Annotated[float, typer.Option(help="Its delta.")] = 1e-6,
    population: Annotated[str, typer.Option(help="Whose budget it is.")] = "sites",
    name: Annotated[str, typer.Option(help="Default: the folder's name.")] = "",
    days: Annotated[float, typer.Option(help="How long the certificate is valid.")] = 365.0,
) -> None:
    """Organiser: makes keys, certificates and a ledger, for relay and aggregator on this machine.

    Example: `fedprikl federation init hospitals --relay relay.example.org:9443 --reference ref.json
    --epsilon 3`
    """
    check_flower()
    check_address(relay)
    load_reference(reference)
    if not 0 < epsilon < math.inf or not 0 <= delta < 1:
        raise InvalidInputError(
            "The budget of all releases together needs an --epsilon above 0, like 3, and a --delta "
            f"under 1, like 1e-6. {provisioning.UNCHANGED}"
        )
    name = name or folder.resolve().name
    provisioning.check_new(folder, name)
    host, place = relay.rpartition(":")[0].strip("[]"), folder.resolve()
    prepare_relay(place / "relay", name=host, days=days)
    aggregator = Home(place / "aggregator")
    aggregator.folder.mkdir(mode=0o700, exist_ok=True)
    with Ledger.open(aggregator.ledger) as ledger:
        ledger.set_budget(population, epsilon=epsilon, delta=delta, at=now())
    config = place / "flwr" / "config.toml"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    roots = json_module.dumps(str(place / "relay" / "ca.pem"))
    text = f'[superlink.{CONNECTION}]\naddress = "{relay}"\nroot-certificates = {roots}\n'
    replace_file(config, text.encode())
    # Last, so that what failed before is no federation, and can be made again.
    made = provisioning.found(folder, name=name, relay=relay, reference=reference)
    say(f"{made.name}: {made.folder}")
    say(f"budget: epsilon {epsilon:g} for all releases about {population}. {OF_SITES}")
    say(f"next: fedprikl federation host {shlex.quote(str(folder))}")


@commands.command("host")
def host(
    folder: Folder,
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104
    health_port: Annotated[int, typer.Option(min=0, max=65535, help="0: none.")] = 8471,
    log_format: Logs = "text",
) -> None:
    """Organiser: runs relay and aggregator, until it is stopped.

    Example: `fedprikl federation host hospitals`
    """
    check_flower()
    known = Federation.load(folder)
    relay = known.folder / "relay"
    os.environ["FEDPRIKL_HOME"] = str(known.home.folder)
    port = int(known.relay.rpartition(":")[2])
    processes = relay_processes(relay, host=listen, port=port)
    with held(relay, "relay"):
        run_party(
            "aggregator",
            known.home.folder,
            lambda private: [
                *processes,
                *aggregator_processes(
                    private,
                    superlink=known.relay,
                    roots=known.certificates,
                    secret=relay / "superexec.secret",
                ),
            ],
            health_port=health_port,
            log_format=log_format,
            certificates=[relay / "server.pem"],
            naming=partial(with_names, known.folder),
        )


def with_names(folder: Path, line: str) -> str:
    """A line of the host's log with the sites' names, which the relay does not get to see."""
    if MARK not in line:
        return line
    try:
        sites = Federation.load(folder).sites  # anew: sites come and go while the host runs
    except FedPriKLError:  # a line without names is better than none
        return line
    return named(line, {short_name(site.identity): site.name for site in sites if site.identity})


@commands.command("invite")
def invite(
    folder: Folder,
    names: Annotated[list[str], typer.Argument(help="The sites to invite.")],
    days: Annotated[float, typer.Option(help="How long the invitations last.")] = 14.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to.")] = Path(),
    force: Force = False,
) -> None:
    """Organiser: writes NAME.invite for each site, to be sent to it.

    Example: `fedprikl federation invite hospitals aachen bergen cork`
    """
    known = Federation.load(folder)
    tokens = [secrets.token_hex(16) for _ in names]
    changed, texts = provisioning.invite(known, names, days=days, tokens=tokens)
    paths = {name: output / f"{name}.invite" for name in names}
    check_outputs(*paths.values(), force=force)
    changed.save()
    for name, text in texts.items():
        replace_file(paths[name], text.encode(), mode=0o644)
        say(f"{paths[name]}: send it to {name}")


@commands.command("join")
def join(
    invitation: Annotated[Path, typer.Argument(help="The file that the organiser sent.")],
    folder: Annotated[
        Path, typer.Option(help="The site's own folder; made if it is missing.")
    ] = Path("site"),
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to.")] = Path(),
) -> None:
    """Site: makes its keys and writes NAME.join, to be sent back. Private keys stay in the folder.

    Example: `fedprikl federation join aachen.invite`
    """
    name, text, fingerprint = provisioning.join(invitation, folder)
    path = output / f"{name}.join"
    replace_file(path, text.encode(), mode=0o644)
    say(f"{path}: send it to the organiser\nfingerprint: {fingerprint}")
    say(f"policy: {folder / 'policy.toml'}, what this site allows: read it before you start")
    say("  As it was made: nobody here is asked first; epsilon 1 a release, 2 a year; one count.")
    say("Tell the organiser the fingerprint by another way, like the telephone.", console=notes)


@commands.command("admit")
def admit(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(help="The files that sites sent back.")],
    yes: Annotated[bool, typer.Option("--yes", help="The fingerprints were compared.")] = False,
) -> None:
    """Organiser: puts sites into the roster, once their fingerprints have been compared.

    Example: `fedprikl federation admit hospitals aachen.join bergen.join cork.join`
    """
    known = Federation.load(folder)
    found = [provisioning.read_joining(known, path) for path in files]
    changed = provisioning.admit(known, [site for site, _ in found])
    for site, fingerprint in found:
        say(f"{site.name}: {fingerprint}")
    if not yes and not agrees("Did every site tell you this fingerprint by another way?"):
        raise InvalidInputError("Nothing was changed. Compare them first; --yes says that you did.")
    changed.save()
    _tell_relay(changed, [site for site, _ in found])
    say(f"{_admitted(changed)}. next:\n  {_next(changed)}")
    _say_number(changed)


@commands.command("remove")
def remove(
    folder: Folder, names: Annotated[list[str], typer.Argument(help="Sites to remove.")]
) -> None:
    """Organiser: takes sites out of the roster. Plans with the old roster stop to work at once.

    Example: `fedprikl federation remove hospitals cork`
    """
    known = Federation.load(folder)
    if all(known.site(name).state == provisioning.REMOVED for name in names):
        were = "was" if len(set(names)) == 1 else "were"
        say(f"{', '.join(names)} {were} removed before. {provisioning.UNCHANGED}")
        return
    changed = provisioning.remove(known, names)
    changed.save()
    say(f"removed: {', '.join(names)}. Plan again, and hand out a new kit:\n  {_next(changed)}")
    _say_number(changed)
    say("The other sites stop, and start with the new kit.")


@commands.command("status")
def status(folder: Folder, json: Json = False) -> None:
    """Organiser: the sites by name, and what to do next.

    Example: `fedprikl federation status hospitals`
    """
    known = Federation.load(folder)
    there = _connected(known)
    rows = [
        (
            site.name,
            site.state,
            None if there is None else site.name in there,
            site.expires,
            _fingerprint(known, site),
        )
        for site in known.sites
    ]
    if json:
        names = ("name", "state", "connected", "expires", "fingerprint")
        sites = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({"name": known.name, "relay": known.relay, "sites": sites})
        return
    say(f"{known.name}, relay {known.relay}: {_admitted(known)}")
    head = ("site", "state", "connected", "invitation expires", "fingerprint")
    words = {None: "", True: "yes", False: "no"}
    show_table(head, [[n, s, words[c], e and minute(e), f] for n, s, c, e, f in rows])
    if there is None:
        say(f"The relay does not answer, so who is connected is not known. {_start_relay(known)}")
    if there is not None and _is_to_be_asked(known):
        _say_not_started(known, there)
    say(f"{_released(known)}next:\n  {_next(known)}")
    _say_number(known)


@commands.command("kit")
def kit(
    folder: Folder,
    plan: Annotated[Path, typer.Argument(help="The plan, signed with the organiser's key.")],
    reference: Annotated[
        Path | None, typer.Option(help="The plan's reference, if it is not the first one.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The kit.")] = Path("kit.json"),
    force: Force = False,
) -> None:
    """Organiser: gives the plan to the aggregator, and writes one kit for all sites.

    Example: `fedprikl federation kit hospitals plan.json`
    """
    known = Federation.load(folder)
    check_outputs(output, force=force, inputs=(plan,))
    if reference is not None:
        load_reference(reference)
    text = provisioning.make_kit(known, plan, reference)
    is_same = _is_like_before(known, plan)
    if reference is not None:
        provisioning.add_reference(known.home, reference)
    provisioning.add_plan(known.home, plan.read_text("utf-8"))
    replace_file(output, text.encode(), mode=0o644)
    say(f"{output}: send it to {', '.join(site.name for site in known.admitted)}")
    for words in _obstacles(known, SignedPlan.load(plan)):
        say(f"note: {words}", console=notes)
    if is_same:
        say("Sites that run with the kit before go on: the roster and the reference are the same.")
    else:
        say("next, at each site: stop it if it runs, then")
        say(f"  fedprikl federation start {output.name} --data RECORDS")
    say(f"{'next' if is_same else 'then'}, here:\n  {_next(known)}")


@commands.command("start")
@grouped
def start(
    context: typer.Context,
    kit_file: Annotated[Path, typer.Argument(metavar="KIT", help="The organiser's kit.")],
    data: SiteData,
    csv_options: CsvOptions,
    table: TableName = "",
    folder: Annotated[Path, typer.Option(help="The site's own folder.")] = Path("site"),
    check_only: Annotated[
        bool, typer.Option("--check", help="Unpack and check, and do not start.")
    ] = False,
    health_port: Annotated[int, typer.Option(min=0, max=65535, help="0: none.")] = 8470,
    log_format: Logs = "text",
) -> None:
    """Site: unpacks a kit and runs the site, until it is stopped, under the folder's policy.toml.

    Example: `fedprikl federation start kit.json --data records.csv`
    """
    provisioning.load_membership(folder)
    logs: LogFormat = "text" if check_only else log_format
    with held(folder, "site"):  # a site that runs would have half of two kits
        own = provisioning.unpack(kit_file, folder)
    site_command.check_before_start(data, table, folder, csv_options.format, logs)
    if check_only:
        names = ("data", "table", "folder", "separator", "encoding", "health_port", "log_format")
        given = [(name, str(context.params[name])) for name in given_of(context, names)]
        words = [word for name, text in given for word in (f"--{name.replace('_', '-')}", text)]
        line = shlex.join(["fedprikl", "federation", "start", str(kit_file), *words])
        say(f"the site can be started: {line}")
        return
    site_command.run(
        data=data,
        table=table,
        **asdict(csv_options),
        superlink=own.relay,
        folder=folder,
        health_port=health_port,
        log_format=log_format,
    )


@commands.command("ask")
@grouped
def ask(
    folder: Folder,
    *,
    clients: Clients = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="No release unless all admitted sites are counted.")
    ] = False,
    plan: PlanOf = None,
    wait: Wait = 60.0,
    files: ReleaseFiles,
) -> None:
    """Organiser: runs a round, verifies and writes the release, like `fedprikl federate`.

    Example: `fedprikl federation ask hospitals`
    """
    from fedprikl.cli.federate_command import federate_command

    known = Federation.load(folder)
    check_outputs(files.output, files.report, force=files.force)
    path = plan or known.home.folder / "plan.json"
    if _planned(known, path).plan.is_series:
        raise InvalidInputError(
            "The plan is for a series, with a release for every period. Run what is due with "
            f"`fedprikl federation monitor {shlex.quote(str(folder))}`."
        )
    _check_running(known)
    with _asking(known):
        _say_away(known, clients or len(known.admitted))
        federate_command(
            superlink=CONNECTION,
            key=SigningKey.load(known.home.signing_key).public,
            plan=path,
            roster=known.home.roster,
            clients=clients or len(known.admitted),
            everybody=everybody,
            wait=wait,
            **asdict(files),
        )


@commands.command("monitor")
@grouped
def monitor(
    folder: Folder,
    *,
    clients: Clients = None,
    plan: PlanOf = None,
    wait: Wait = 60.0,
    history: Annotated[
        Path | None,
        typer.Option(help="All releases.", show_default="one of the plan, in the folder"),
    ] = None,
    audience: Audience,
    json: Json = False,
) -> None:
    """Organiser: counts what is due of a series, like `fedprikl monitor run`; 3: an alarm is open.

    Example: `fedprikl federation monitor hospitals --site public`
    """
    from fedprikl.cli.monitor_command import SeriesFiles, Telling, run_federated
    from fedprikl.deployment.flower.organiser import FederatedSeries, roster_names

    check_flower()
    known = Federation.load(folder)
    path = plan or known.home.folder / "plan.json"
    signed = _planned(known, path)
    if not signed.plan.is_series:
        raise InvalidInputError(
            "The plan is for one release: run `fedprikl federation ask`. For a series, plan with "
            "`--every week --first DATE`."
        )
    reference = known.home.wanted_reference(
        signed.plan.reference, whose=known.name, advice="Make the kit again."
    )
    place = history or known.folder / f"history-{signed.plan.fingerprint[:16]}.db"
    files = SeriesFiles(history=place, ledger=known.home.ledger)
    telling, number = Telling(path, files, audience), clients or len(known.admitted)
    options = f"--history {shlex.quote(str(place))} --ledger {shlex.quote(str(files.ledger))}"
    say(f"look at it: fedprikl monitor status {shlex.quote(str(path))} {options}", console=notes)
    with _asking(known):
        runner = FederatedSeries(
            signed=signed,
            superlink=CONNECTION,
            key=SigningKey.load(known.home.signing_key).public,
            config={"clients": number, "wait": wait},
            note=lambda text: say(text, console=notes),
            members=roster_names(known.home.roster, signed.plan, clients=number),
        )
        run_federated(telling, runner, reference, json=json)


@contextmanager
def _asking(known: Federation) -> Iterator[None]:
    """The sites are registered; then it says where is written why some took no part.

    For the aggregator's own people: why a site took no part may depend on records.
    """
    started = time.time()
    _tell_relay(known, known.admitted)
    os.environ["FLWR_HOME"] = str(known.folder / "flwr")
    try:
        yield
    finally:
        for path in known.home.refusals.glob("*.json"):
            if path.stat().st_mtime >= started:
                say(f"why sites took no part, for you alone: {path}", console=notes)


def _obstacles(known: Federation, signed: SignedPlan) -> Iterator[str]:
    """What is known to stop a round of this plan: the budget, or what sites usually allow."""
    if words := _budget_obstacle(known, signed.plan):
        yield words
    if (before := _times_counted(known)) and not signed.plan.is_series:
        whom = "the release" if before == 1 else f"all {before} releases"
        yield (
            f"A site that was counted in {whom} before takes part again only if most-counts in its "
            f"policy is {before + 1} or more."
        )
    reference = known.home.find_reference(signed.plan.reference)
    if reference is not None and (why := provisioning.usual_refusal(signed, reference)):
        yield f"A site whose policy is as `join` made it will refuse this plan: {why}."


def _budget_obstacle(known: Federation, plan: Plan) -> str:
    """Why the ledger would refuse a release by all sites, and how to raise the budget."""
    path, name = known.home.ledger, plan.population
    verb, period = ("monitor", 0) if plan.is_series else ("ask", None)
    try:
        with Ledger.open(path, create=False) as ledger:
            if name not in ledger.populations():
                return (
                    f"The population {name!r} has no budget: `{verb}` will refuse this plan. Set "
                    f"one: `{budget_command(path, name, 1)}`."
                )
            batches, left = plan.sums.batches, left_words(ledger.account(name))
            sizes = cohort_sizes(plan, max(len(known.admitted) // batches, 3)) * batches
            charge, times = trust_of(plan).charge(sizes), plan.charged_times(period)
            ledger.check(name, charge, times=times, unit=plan.unit.kind)
    except BudgetExceededError as error:
        enough = math.ceil(1e4 * error.needed * (1 - 1e-9)) / 1e4
        return (
            f"This plan spends epsilon {plan.budget.epsilon:.4g}, and {left} of the budget is "
            f"left: `{verb}` will refuse it. If these people may lose more: "
            f"`{budget_command(path, name, f'{enough:.10g}')}`."
        )
    except FedPriKLError as error:
        return f"`{verb}` will refuse this plan: {error}"
    return ""


def _is_like_before(known: Federation, path: Path) -> bool:
    """Whether sites with the newest kit can answer another plan: it comes with its round."""
    newest = known.home.folder / "plan.json"
    if not newest.exists():
        return False
    before, plan = SignedPlan.load(newest).plan, SignedPlan.load(path).plan
    return (before.roster, before.reference) == (plan.roster, plan.reference)


def _planned(known: Federation, path: Path) -> SignedPlan:
    """The plan, if it is for the sites as they are now."""
    if not path.exists():
        raise InvalidInputError(f"There is no plan {path} yet. Make one:\n  {_next(known)}")
    signed = SignedPlan.load(path)
    if signed.plan.roster != Roster.load(known.home.roster).fingerprint:
        raise InvalidInputError(
            f"The plan's roster is not that of {known.name}: it was made elsewhere, or sites were "
            "admitted or removed since. Nothing was asked. Plan again, and hand out a new kit, "
            f"with which the sites stop and start:\n  {_plan_commands(known)}"
        )
    return signed


def _connected(known: Federation) -> set[str] | None:
    """The sites that are connected now, by name; None if the relay does not tell."""
    try:
        check_relay(known.relay, known.certificates)
        nodes = connected_nodes(known.relay, known.certificates)
    except DeploymentError:
        return None
    joined = (site for site in known.sites if site.node)
    return {site.name for site in joined if nodes.get(node_key(site.node), False)}


def _check_running(known: Federation) -> None:
    """Refuses to ask where no relay answers."""
    try:
        check_relay(known.relay, known.certificates)
    except DeploymentError as error:
        raise DeploymentError(f"{error} Nothing was asked. {_start_relay(known)}") from None


def _start_relay(known: Federation) -> str:
    return f"Start it: `fedprikl federation host {shlex.quote(str(known.folder))}`."


def _say_away(known: Federation, clients: int) -> None:
    """Who is waited for, and how to go on without them."""
    there = _connected(known)
    away = [site.name for site in known.admitted if site.name not in (there or ())]
    if there is None or len(known.admitted) - len(away) >= clients:
        return
    left = len(known.admitted) - len(away)
    words = f"; to go on without: --clients {left}" if left >= 3 else ""
    say(f"not connected yet: {', '.join(away)}{words}", console=notes)


def _admitted(known: Federation) -> str:
    many = len(known.admitted)
    return "1 site is admitted" if many == 1 else f"{many} sites are admitted"


def _fingerprint(known: Federation, site: Site) -> str:
    if not site.identity:
        return ""
    return provisioning.short_fingerprint(known.fingerprint, site.name, site.identity, site.node)


def _times_released(known: Federation, plan: Plan) -> int:
    public = SigningKey.load(known.home.signing_key).public
    return sum(each.is_about(plan) for each in own_releases(known.home.releases, public))


def _times_counted(known: Federation) -> int:
    """How many releases there are that may be about the same records as the next one."""
    public = SigningKey.load(known.home.signing_key).public
    found = own_releases(known.home.releases, public)
    return sum(each.period is None for each in found)


def _is_released(known: Federation, plan: Plan) -> bool:
    """Whether a plan for one release was released as often as it may be."""
    return not plan.is_series and _times_released(known, plan) >= plan.budget.releases


def _released(known: Federation) -> str:
    """That the newest plan is released, and what is needed for another."""
    plan = known.home.folder / "plan.json"
    if not plan.exists() or not _is_released(known, SignedPlan.load(plan).plan):
        return ""
    return (
        "The plan of the newest kit is released, as often as it allows. To count the same records "
        "once more, sites raise most-counts in their policies. "
    )


def _next(known: Federation) -> str:
    """The command that is to be run next."""
    folder, plan = shlex.quote(str(known.folder)), known.home.folder / "plan.json"
    invited = [site.name for site in known.sites if site.state == provisioning.INVITED]
    if len(known.admitted) < 3:  # a sum has at least three
        if not invited:
            return f"fedprikl federation invite {folder} NAME NAME NAME"
        return f"fedprikl federation admit {folder} {' '.join(f'{n}.join' for n in invited)}"
    if _is_to_be_asked(known):
        verb = "monitor" if SignedPlan.load(plan).plan.is_series else "ask"
        return f"fedprikl federation {verb} {folder}"
    return _plan_commands(known)


def _is_to_be_asked(known: Federation) -> bool:
    """Whether the plan of the newest kit is for the sites as they are, and not used up."""
    plan = known.home.folder / "plan.json"
    if len(known.admitted) < 3 or not plan.exists():
        return False
    found = SignedPlan.load(plan).plan
    current = found.roster == Roster.load(known.home.roster).fingerprint
    return current and not _is_released(known, found)


def _say_number(known: Federation) -> None:
    """What stands for a number in the command that is printed."""
    if NUMBER in _next(known):
        say("For NUMBER give about how many records all sites hold together.")


def _say_not_started(known: Federation, there: set[str]) -> None:
    """Who has to start before the next command, and how."""
    away = [site.name for site in known.admitted if site.name not in there]
    if away:
        say(
            f"not connected: {', '.join(away)}. Each starts with the newest kit: `fedprikl "
            "federation start kit.json --data RECORDS`."
        )


def _plan_commands(known: Federation) -> str:
    """Everything but the number of records, which the organiser knows; then the kit."""
    home, quote = known.home, shlex.quote
    again = " --force" if (home.folder / "plan.json").exists() else ""
    population, epsilon = _budget(home)
    return (
        f"fedprikl plan {quote(str(_reference_file(home)))} --clients {len(known.admitted)} "
        f"{NUMBER} --population {quote(population)} --epsilon {epsilon} "
        f"--roster {quote(str(home.roster))} "
        f"--aggregator {SealingKey.load(home.sealing_key).public} "
        f"--key {quote(str(known.folder / 'organiser.pem'))} -o plan.json{again}\n"
        f"  fedprikl federation kit {quote(str(known.folder))} plan.json{again}"
    )


def _reference_file(home: Home) -> Path:
    """The reference of the newest kit; before one, that of `init`."""
    newest = home.folder / "plan.json"
    wanted = SignedPlan.load(newest).plan.reference if newest.exists() else ""
    files = (path for path in home.reference_files() if wanted)
    found = (path for path in files if Reference.load(path).fingerprint == wanted)
    return next(found, home.reference)


def _budget(home: Home) -> tuple[str, str]:
    """Whose budget it is, and what the next release may spend: what sites allow, if it is left."""
    population, left = "sites", 1.0
    with suppress(FedPriKLError), Ledger.open(home.ledger, create=False) as ledger:
        population, *_ = ledger.populations()
        left = ledger.account(population).left
    epsilon = math.floor(1000 * min(left, SITES_EPSILON)) / 1000
    return population, f"{epsilon:g}" if epsilon else "NUMBER"


def _tell_relay(known: Federation, sites: list[Site]) -> None:
    """Registers the node keys of sites. If the relay does not run, `ask` does it again.

    A site that is removed stays registered: the roster decides who takes part, and Flower takes no
    key a second time.
    """
    try:
        check_relay(known.relay, known.certificates)
    except DeploymentError as error:
        say(f"{error} The sites are registered when it runs, by `ask`.", console=notes)
        return
    registered = connected_nodes(known.relay, known.certificates)
    path = known.folder / "node.pub"
    for site in sites:
        if node_key(site.node) in registered:
            continue
        replace_file(path, f"{site.node}\n".encode(), mode=0o644)
        words = ("supernode", "register", str(path), CONNECTION, "--name", site.name)
        done = subprocess.run(  # noqa: S603  the arguments are a list, no shell reads them
            [sys.executable, "-c", FLWR, *words],
            env=os.environ | {"FLWR_HOME": str(known.folder / "flwr")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and KNOWN not in done.stdout + done.stderr:
            raise DeploymentError(
                f"The relay did not register {site.name}: {(done.stderr or done.stdout)[-200:]}"
            )
    path.unlink(missing_ok=True)
