"""`fedprikl site`: runs a site, checks it, and shows its people what is asked and what left."""

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedprikl.cli.console import agrees, notes, print_json, say
from fedprikl.cli.options import (
    CsvOptions,
    Force,
    Json,
    SiteData,
    TableName,
    check_outputs,
    command_group,
    grouped,
    load_reference,
)
from fedprikl.cli.running import (
    HealthPort,
    Logs,
    Poll,
    check_address,
    check_flower,
    note_relay,
    run_party,
)
from fedprikl.deployment.flower.parties import POLL, check_carried, site_processes
from fedprikl.deployment.log_lines import LogFormat, log_to
from fedprikl.deployment.policy import load_policy, policy_text
from fedprikl.deployment.provisioning import load_membership
from fedprikl.deployment.settings import (
    Home,
    NodeSettings,
    SiteStart,
    data_settings,
    home_folder,
    is_joined,
    now,
)
from fedprikl.deployment.tls import check_file, check_node_key
from fedprikl.documents import minute, to_plain
from fedprikl.errors import FedPriKLError, InvalidInputError
from fedprikl.records import CsvFormat, place_of
from fedprikl.store import replace_file

HEALTH_PORT = 8470
NEEDED = frozenset({"policy", "references", "data", "node key", "roster", "memory and log"})
commands = command_group()
Folder = Annotated[
    Path | None,
    typer.Option(
        help="The site's own folder.",
        show_default="$FEDPRIKL_HOME; else site, if it joined; else ~/.fedprikl",
    ),
]
Number = Annotated[int, typer.Argument(help="Of the request, see `fedprikl site requests`.")]


@commands.callback()
def site_command() -> None:
    """Runs a site, checks it, and shows its people what is asked and what left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFiles:
    """What a site is started with; its folder says what is left out."""

    superlink: Annotated[
        str, typer.Argument(metavar="[RELAY]", help="host:port; default: as the invitation says.")
    ] = ""
    table: TableName = ""
    folder: Folder = None
    policy: Annotated[
        Path | None,
        typer.Option(help="The site's policy.", show_default="policy.toml of the folder"),
    ] = None
    reference: Annotated[
        Path | None, typer.Option(help="The reference Π.", show_default="those of the folder")
    ] = None
    node_key: Annotated[
        Path | None,
        typer.Option(
            help="Private key that the relay knows this site by.", show_default="node of the folder"
        ),
    ] = None
    root_certificates: Annotated[
        Path | None,
        typer.Option(
            help="Certificates the relay is trusted by.",
            show_default="ca.pem of the folder, or the system's",
        ),
    ] = None

    def start(self, data: str, form: CsvFormat) -> SiteStart:
        """With these records; whether they are there is not checked."""
        home = _home(self.folder)
        home.policy, home.reference = self.policy or home.policy, self.reference or home.reference
        own = home.folder / "ca.pem"
        return SiteStart(
            home=home,
            data=place_of(data, self.table),
            relay=self.superlink or load_membership(home.folder).relay,
            node_key=self.node_key or home.folder / "node",
            roots=self.root_certificates or (own if own.exists() else None),
            form=form,
        )


def _home(folder: Path | None) -> Home:
    """The site's folder, also for the processes that are started."""
    joined = Path("site")
    if folder is None and not os.environ.get("FEDPRIKL_HOME") and is_joined(joined):
        usual = Home(home_folder())
        if _is_of_a_site(usual):  # each has a memory of its own: never guess
            raise InvalidInputError(
                f"Both {joined} and {usual.folder} are folders of a site. Say which: --folder."
            )
        folder = joined
        say(f"the site's folder: {folder.resolve()} (another one: --folder)", console=notes)
    if folder is not None:
        os.environ["FEDPRIKL_HOME"] = str(folder.resolve())
    return Home(home_folder())


def _is_of_a_site(home: Home) -> bool:
    """Whether a site joined, was started or wrote a policy there."""
    files = (home.policy, home.log, home.memory, home.folder / "site.lock")
    return is_joined(home.folder) or any(path.exists() for path in files)


@commands.command("run")
@grouped
def run(
    data: SiteData,
    csv_options: CsvOptions,
    files: SiteFiles,
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
    start = files.start(data, csv_options.format)
    check_address(start.relay)
    check_file(start.roots, "certificate file", "It is the relay's ca.pem.")
    check_node_key(start.node_key)
    check_file(trusted_entities, "file of trusted entities", "Check the path.")
    if isinstance(start.data, Path):
        check_file(start.data, "file or folder of records", "Check the path.", folder=True)
    else:
        start.data.open()
    if files.reference is not None or not start.home.reference_files():
        load_reference(start.home.reference)
    config = {
        **data_settings(start.data, start.form),
        "policy": str(start.home.policy.resolve()),
        "reference": str(start.home.reference.resolve()),
    }
    NodeSettings.of(config)
    check_carried(config)
    note_relay(start.relay, start.roots, log_format)
    processes = partial(
        site_processes, config=config, start=start, trusted=trusted_entities, poll=poll
    )
    run_party(
        "site",
        start.home.folder,
        processes,
        health_port=health_port,
        log_format=log_format,
        certificates=[start.roots],
        trouble=partial(_policy_trouble, start.home.policy),
    )


def _policy_trouble(policy: Path) -> str:
    """Why a policy cannot be read; a site with such a policy answers nobody."""
    try:
        load_policy(policy)
    except FedPriKLError as error:
        return f"This site answers nobody until its policy is mended. {error}"
    return ""


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
@grouped
def check(data: SiteData, csv_options: CsvOptions, files: SiteFiles, json: Json = False) -> None:
    """Says everything that is wrong, before the first round: exit code 1 if anything is.

    Looks at data and columns, policy and the plans it knows, keys, roster, the relay with its clock
    and certificate, memory, log and disk. It also looks at the first records, for you alone.

    Example: `fedprikl site check --folder site --data records.csv`
    """
    from fedprikl.deployment.site_check import check_site

    found = check_site(files.start(data, csv_options.format), at=now())
    wrong = [each for each in found if each.wrong]
    if json:
        print_json({"well": not wrong, "findings": [to_plain(each) for each in found]})
    else:
        for each in found:
            mark = "WRONG" if each.wrong else "LOOK" if each.look else "ok"
            say(f"{mark:5} {each.what}: {each.words}")
        many = "1 thing is wrong" if len(wrong) == 1 else f"{len(wrong)} things are wrong"
        say(many if wrong else "nothing is wrong")
        if any(each.look for each in found):
            say("LOOK: you decide; the site starts and answers all the same", console=notes)
    if wrong:
        raise typer.Exit(1)


def check_before_start(
    data: str, table: str, folder: Path, form: CsvFormat, logs: LogFormat = "text"
) -> None:
    """Says what `site check` finds wrong; refuses to start where no round could be answered.

    Where the log has JSON objects, what is said here is one of them: somebody may read only these.
    """
    from fedprikl.deployment.site_check import check_site

    def tell(words: str) -> None:
        if logs == "json":
            log_to(logs)("fedprikl", f"WARNING {words}")
        else:
            say(words, console=notes)

    found = check_site(SiteFiles(folder=folder, table=table).start(data, form), at=now())
    wrong = [each for each in found if each.wrong]
    for each in wrong:
        tell(f"WRONG {each.what}: {each.words}")
    if any(each.look for each in found):  # its words are of records, and this may go to a log
        tell("LOOK  data: the first records are unusual; `fedprikl site check` says why")
    if any(each.what in NEEDED for each in wrong):
        raise InvalidInputError(
            "The site was not started. The kit is unpacked: mend this, and start again. `fedprikl "
            "site check` shows everything."
        )


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
    home = _home(folder)
    log = _log(home)
    known = log.read().requests.values()
    found = [each for each in known if everything or each.state == "waiting"]
    if json:
        print_json({"requests": [to_plain(each) for each in found]})
        return
    for each in found:
        _describe(log, each, home)
    many = "1 request" if len(found) == 1 else f"{len(found)} requests"
    say(many if found else "nothing waits for a yes")


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
def deny(
    number: Number,
    folder: Folder = None,
    yes: Annotated[  # noqa: ARG001  so that both verbs take the same words
        bool, typer.Option("--yes", help="As of `approve`; a no is never asked about.")
    ] = False,
) -> None:
    """Says no to a request. A later `approve` of the same number takes it back.

    Example: `fedprikl site deny 1 --folder site`
    """
    _decide(number, folder, yes=False, sure=True)


@commands.command("log")
def log_of(folder: Folder = None, json: Json = False) -> None:
    """Shows what waited for a yes, what people said, what left, and what it cost, by time.

    What the policy refused is in the lines that the running site writes. Verifies the chain of
    hashes: an entry that was changed or removed is found out.

    Example: `fedprikl site log --folder site`
    """
    from fedprikl.deployment.site_log import how_often

    home = _home(folder)
    log, at = _log(home), now()
    entries, book = log.entries(), log.read()
    spent = log.spent(load_policy(home.policy), at=at) if home.policy.exists() else None
    if json:
        lines = [{"number": each.number, **each.body, "hash": each.hash} for each in entries]
        print_json({"entries": lines, "spent_in_a_year": spent})
        return
    sent = {each.number: _sent_words(each) for each in book.sent}
    for entry in entries:
        words = sent.get(entry.number) or _request_words(entry, book)
        say(f"{minute(entry.body['at'])} {words}")
    say(f"counts left {how_often(len(book.sent))}")
    if spent is not None:
        say(f"the releases of the last 365 days cost a record epsilon {spent:.4g} at most")


def _request_words(entry: Any, book: Any) -> str:
    """What was asked, or what a person said: each time, also what was taken back later."""
    body, number = entry.body, entry.body.get("request", entry.number)
    about = book.requests[number]
    what = "every round of the plan" if about.scope == "plan" else "one round of the plan"
    words = f"request {number}, {what} {about.plan[:16]}"
    if body["event"] == "asked":
        return f"{about.organiser} asked for a yes: {words}"
    return f"{body['by']} {body['event']} {words}"


def _sent_words(sent: Any) -> str:
    period = "" if sent.period is None else f", period {sent.period}"
    return (
        f"{sent.organiser} ({sent.key[:8]}) asked, plan {sent.plan[:16]}{period}: {sent.counts:,} "
        f"counts of {', '.join(sent.views)} left, masked; cost at most: epsilon "
        f"{sent.epsilon:g}, delta {sent.delta:g}"
    )


def _log(home: Home) -> Any:
    """The log, which is no older than the site's memory says. Refuses a folder of no site."""
    if not _is_of_a_site(home):
        raise InvalidInputError(
            f"{home.folder} is no folder of a site, so nothing is known there. Name the site's "
            "folder: --folder."
        )
    from fedprikl.deployment.site_log import SiteLog
    from fedprikl.deployment.site_memory import SiteMemory

    return SiteLog(home.log, SiteMemory(home.memory, home.folder).log_head())


def _describe(log: Any, request: Any, home: Home) -> None:
    from fedprikl.deployment.site_log import plan_in_words

    signed = log.plan_of(request.document)
    scope = "every round of this plan" if request.scope == "plan" else "one round"
    lines: Sequence[str] = plan_in_words(signed, request.period)
    say(
        f"request {request.number}, {request.state}: {request.organiser} "
        f"({request.key[:16]}) asked at {minute(request.at)} for {scope}, plan {request.plan[:16]}"
    )
    for line in [*lines, *_counted_before(log, signed, request.period, home)]:
        say(f"  {line}")


def _counted_before(log: Any, signed: Any, period: int | None, home: Home) -> list[str]:
    """That these records were counted already, and what one more count makes of the year."""
    from fedprikl.deployment.site_log import how_often

    if signed.plan.is_series and period is None:  # its periods count other records
        return []
    policy = load_policy(home.policy) if home.policy.exists() else None
    times, total = log.before(signed, period, policy, at=now())
    if not times:
        return []
    lines = [f"before: these records were counted {how_often(times)} already"]
    if policy is not None:
        limit = policy.epsilon_per_year
        allowed = "" if limit is None else f"; the policy allows {limit:g}"
        lines.append(
            f"with this release, those of 365 days cost a record epsilon {total:.4g}{allowed}"
        )
    return lines


def _decide(number: int, folder: Path | None, *, yes: bool, sure: bool) -> None:
    home = _home(folder)
    log = _log(home)
    known = log.read().requests.get(number)
    if known is not None:
        _describe(log, known, home)
    if known is not None and not sure and not agrees("Take part?"):
        raise InvalidInputError("Nothing was changed. To say it without being asked: --yes.")
    decided = log.decide(number, yes=yes, by=getpass.getuser(), at=now())
    say(f"request {number}: {decided.state}" + (". Tell the organiser to ask again" if yes else ""))
