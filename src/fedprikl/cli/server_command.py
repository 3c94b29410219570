"""`fedprikl server`: one of three servers, none of which is trusted."""

import importlib.util
import shlex
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from fedprikl.cli.console import notes, print_json, say
from fedprikl.cli.options import FailOnDrift, Json, PlanFile, check_key, command_group
from fedprikl.cli.release_output import exit_on_drift, print_release
from fedprikl.deployment.servers.answering import take_part
from fedprikl.deployment.servers.home import Limits, ServerHome, Task, read_card
from fedprikl.deployment.settings import now
from fedprikl.deployment.tls import check_certificates
from fedprikl.documents import minute, readable, to_plain
from fedprikl.errors import FedPriKLError, InvalidInputError, MissingExtraError
from fedprikl.libraries import install_words
from fedprikl.privacy import Ledger
from fedprikl.privacy.ledger import budget_command
from fedprikl.protocol import Plan, Roster, Servers, SignedPlan
from fedprikl.protocol.servers import Suite
from fedprikl.protocol.sums import ServersSum
from fedprikl.reference import Reference
from fedprikl.reporting import release_page
from fedprikl.store import locked, write_whole

Folder = Annotated[Path, typer.Argument(help="The folder of this server.")]
Cards = Annotated[
    list[Path], typer.Argument(help="The card.json of servers 1, 2 and 3, in this order.")
]

commands = command_group()


@commands.callback()
def server_command() -> None:
    """Runs one of three servers that add up reports: init, join, accept, run, answer, status.

    Each is run by another organisation. None of them learns more than the release.

    Example: `fedprikl server run /srv/fedprikl --port 8443`
    """


@commands.command("init")
def init_command(
    folder: Folder,
    address: Annotated[str, typer.Option(help="Where clients send reports: https://...")],
    peer: Annotated[str, typer.Option(help="Where the other servers reach this one: host:port.")],
    organiser: Annotated[str, typer.Option(help="Public key that must have signed every plan.")],
    largest_epsilon: Annotated[float, typer.Option(help="Refuse plans with more.")] = 2.0,
    largest_delta: Annotated[float, typer.Option(help="Refuse plans with more.")] = 1e-5,
    days: Annotated[float, typer.Option(help="How long the certificate is valid.")] = 365.0,
    json: Json = False,
) -> None:
    """Makes keys, a certificate and the card of a server, in a folder of its own.

    Give card.json to the operators of the other two and to whoever makes plans. The certificate of
    the web address (server.pem, server.key) is of an authority of its own, ca.pem: put those of an
    authority that your clients trust in their place.

    Example: `fedprikl server init srv --address https://one.example --peer one.example:9444
    --organiser 3f5a...`
    """
    Servers(addresses=(address, "https://another", "https://third"))  # refuses what is no address
    host = urlsplit(address).hostname or ""
    check_certificates(host=host, days=days)
    key = check_key(organiser, "--organiser")
    limits = Limits(
        organiser=key,
        largest_epsilon=largest_epsilon,
        largest_delta=largest_delta,
    )
    card = ServerHome(folder).create(
        address=address, peer=peer, host=host, limits=limits, days=days
    )
    if json:
        print_json({"folder": str(folder), "signing": card.signing, "card": to_plain(card)})
        return
    say(f"made {folder}. Its signing key: {card.signing}")
    say(f"Give {folder / 'card.json'} to the other two operators, and compare keys by phone.")
    line = f"fedprikl server join {shlex.quote(str(folder))} CARD1 CARD2 CARD3"
    say(f"next, with the cards in one order at all three:\n  {line}")


@commands.command("join")
def join_command(folder: Folder, cards: Cards) -> None:
    """Tells a server who the three are. Each operator does it, with the same order of cards.

    Example: `fedprikl server join srv one.json two.json three.json`
    """
    home = ServerHome(folder)
    home.join([read_card(path) for path in cards])
    say(f"this is server {home.number} of 3")


@commands.command("cards")
def cards_command(
    output: Annotated[Path, typer.Argument(help="The file to write.")],
    cards: Cards,
    suite: Annotated[Suite, typer.Option(help="What reports are sealed with.")] = "hybrid",
    lost: Annotated[
        Literal["nothing", "counts"], typer.Option(help="What is released if one server is lost.")
    ] = "nothing",
) -> None:
    """Writes what a plan says about three servers, for `fedprikl plan --servers`.

    Example: `fedprikl server cards servers.json one.json two.json three.json --lost counts`
    """
    found = [read_card(path) for path in cards]
    servers = Servers(
        suite=suite,
        sealing=tuple(getattr(card, suite) for card in found),
        signing=tuple(card.signing for card in found),
        addresses=tuple(card.address for card in found),
        lost=lost,
    )
    write_whole(output, readable(to_plain(servers)))
    say(f"written to {output}")


@commands.command("accept")
def accept_command(
    folder: Folder,
    plan: PlanFile,
    reference: Annotated[
        Path | None, typer.Option(help="The reference; default: ref.json beside the plan.")
    ] = None,
    roster: Annotated[Path | None, typer.Option(help="Who may report, if the plan says.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Set the population's epsilon in this server's ledger.")
    ] = None,
) -> None:
    """Takes reports of a plan from now on, if it is within this server's limits and budget.

    A collector that runs finds the plan by itself.

    Example: `fedprikl server accept srv plan.json --budget 1`
    """
    home, signed = ServerHome(folder), SignedPlan.load(plan)
    known = Reference.load(reference or plan.with_name("ref.json"))
    who = None if roster is None else Roster.load(roster)
    task = home.check(signed, known, who)
    with Ledger.open(home.ledger) as ledger:
        _check_budget(ledger, task, budget, home.ledger)
    home.accept(signed, known, who)
    say(f"server {task.number} takes reports of plan {signed.plan.fingerprint}")
    say(f"next, if its collector does not run:\n  fedprikl server run {shlex.quote(str(folder))}")


def _check_budget(ledger: Ledger, task: Task, budget: float | None, path: Path) -> None:
    """Refuses a plan whose answer this server could not pay; clients would report in vain.

    Then sets the budget, if one was given: a plan that is refused changes nothing.
    """
    plan, unit = task.plan, task.plan.unit.kind
    name, (total, delta) = plan.population, plan.budget.total
    wanted = None if budget is None else (budget, max(delta, 1e-6))
    if wanted is None and name not in ledger.populations():
        say(
            f"the population {name!r} has no budget at this server yet. Before the answer, set one "
            f"that has epsilon {total:.4g}: `{budget_command(path, name, f'{total:.4g}')}`",
            console=notes,
        )
        return
    try:
        first, trust = 0 if plan.is_series else None, ServersSum(plan)
        charges = [trust.charge([])]  # of one answer of all servers, and of two if one may be lost
        if task.servers.lost != "nothing":
            charges.append(trust.composed_after_loss)
        for charge in charges:
            ledger.check(name, charge, times=plan.charged_times(first), unit=unit, budget=wanted)
    except FedPriKLError as error:
        raise InvalidInputError(
            f"{error} The plan was not accepted: this server could not take part in its answer."
        ) from None
    if wanted is not None:
        ledger.set_budget(name, epsilon=wanted[0], delta=wanted[1], at=now(), unit=unit)
    if (left := ledger.account(name).left) < total * (1 - 1e-6):
        say(
            f"epsilon {left:.4g} is left for {name!r}, and all releases of the plan need "
            f"{total:.4g}: the last ones will be refused",
            console=notes,
        )


@commands.command("run")
def run_command(
    folder: Folder,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8443,
    collector: Annotated[
        str, typer.Option(help="A name of its own for each of several collectors of a server.")
    ] = "a",
) -> None:
    """Collects reports over HTTPS until it is stopped; what it acknowledges is on disk.

    `/health` is for probes and load balancers, `/metrics` for Prometheus. SIGTERM or Ctrl-C ends
    it after the requests that it is answering.

    Example: `fedprikl server run srv --port 8443`
    """
    if importlib.util.find_spec("uvicorn") is None:
        raise MissingExtraError(f"A server needs uvicorn: {install_words('servers')}.")
    if not collector.isalnum():
        raise typer.BadParameter("The name of a collector has letters and digits only.")
    from fedprikl.deployment.servers.collector import AT_ONCE, Collector
    from fedprikl.deployment.web import address_of, open_socket, serve

    home = ServerHome(folder)
    number = home.number
    with locked(home.state / f"collector-{collector}", timeout=0) as alone:
        if not alone:
            raise InvalidInputError(
                f"The collector {collector!r} of this server runs already. Give another one a name "
                "of its own: --collector b."
            )
        app = Collector(
            lambda: list(home.tasks()),
            home.intake(collector),
            ends=home.certificate_ends,
            release=home.release,
        )
        with open_socket(host, port) as listening:
            address = address_of(listening, "https")
            say(f"server {number} collects at {address} (Ctrl-C ends it)", console=notes)
            serve(app, listening, home.tls, at_once=AT_ONCE)
        say("stopped: all that was acknowledged is kept", console=notes)


@commands.command("answer")
def answer_command(
    folder: Folder,
    plan: PlanFile,
    period: Annotated[
        int | None,
        typer.Option(
            min=0, help="Of a series: which period.", show_default="the last that is over"
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for the other servers.")
    ] = 300.0,
    without: Annotated[
        int | None, typer.Option(min=1, max=3, help="A server that is lost: do not wait for it.")
    ] = None,
    fail_on_drift: FailOnDrift = False,
    json: Json = False,
) -> None:
    """Closes a period and answers it together with the other servers; once and never again.

    Start it at all three at about the same time. A server that is not there within --wait seconds
    is lost: then the other two release what the plan says. Both may say --without at once. The
    release and its report are in the folder `releases` of each server.

    Example: `fedprikl server answer srv plan.json`
    """
    home, wanted = ServerHome(folder), SignedPlan.load(plan).plan.fingerprint
    tasks = {task.plan.fingerprint: task for task in home.tasks()}
    if wanted not in tasks:
        raise InvalidInputError(
            "This server has not accepted the plan: `fedprikl server accept` comes first."
        )
    plan_of = tasks[wanted].plan
    number = _last_over(plan_of, at=now()) if period is None else period
    found = take_part(home, tasks[wanted], number, wait=wait, without=without)
    settled, release = found.settled, found.release
    report = home.releases / f"{release.round_id}.html"
    write_whole(report, release_page(release, plan_of, {}, (), home.reference(plan_of)))
    if settled is None:
        say("this period was answered before: this is that release", console=notes)
    else:
        say(
            f"{_reports(settled.included)} counted, {settled.reports - settled.included:,} "
            f"left out; the servers held {', '.join(f'{n:,}' for n in settled.held.values())}",
            console=notes,
        )
        if settled.missing > settled.reports / 100:
            say(
                f"of the reports that the others hold, this server lacks {settled.missing:,}. Was "
                "an older copy of its store put back, or a collector's file removed?",
                console=notes,
            )
    if json:
        print_json({"verdict": release.outcome} | release.to_dict())
    else:
        print_release(release)
        say(f"release: {report.with_suffix('.json')}\nreport: {report}")
    exit_on_drift(release, fail_on_drift)


@commands.command("status")
def status_command(folder: Folder, json: Json = False) -> None:
    """Says what a server holds: plans, reports of each period, releases, and what is spent.

    Example: `fedprikl server status srv`
    """
    home = ServerHome(folder)
    held: dict[tuple[str, int], int] = {}
    for intake in home.intakes():
        for (plan, period), count in intake.held().items():
            held[plan.hex(), period] = held.get((plan.hex(), period), 0) + count
        intake.close()
    releases = [
        {"plan": plan, "period": period} for plan, period in held if home.release(plan, period)
    ]
    left = {}
    if home.ledger.exists():
        with Ledger.open(home.ledger) as ledger:
            left = {account.population: account.left for account in ledger.accounts()}
    found = {
        "server": home.number,
        "plans": [task.plan.fingerprint for task in home.tasks()],
        "reports": [{"plan": p, "period": n, "held": count} for (p, n), count in held.items()],
        "releases": releases,
        "epsilon_left": left,
        "certificate_ends": home.certificate_ends().isoformat(),
    }
    if json:
        print_json(found)
        return
    say(f"server {home.number}, certificate until {minute(home.certificate_ends().isoformat())}")
    plans = {task.plan.fingerprint: task.plan for task in home.tasks()}
    for (name, number), count in sorted(held.items()):
        state = "answered" if home.release(name, number) else _reports(count)
        say(f"{_period_words(plans.get(name), name, number)}: {state}")
    for population, epsilon in left.items():
        say(f"population {population}: epsilon {epsilon:.3g} left")


def _last_over(plan: Plan, *, at: str) -> int:
    """The period that clients have reported last: an answer closes it for ever."""
    if not plan.is_series:
        return 0
    number = plan.series.last_over(at)
    if number < 0:
        end = minute(plan.series.period(0).end.isoformat())
        raise InvalidInputError(f"No period is over yet: the first ends at {end}.")
    return number


def _period_words(plan: Plan | None, name: str, number: int) -> str:
    """A plan and a period; of a series, from when until when."""
    if plan is None:
        return f"plan {name[:16]}, period {number}"
    words = f"plan {name[:16]} about {plan.population}"
    if not plan.is_series:
        return words
    period = plan.series.period(number)
    return f"{words}, period {number} ({period.start:%Y-%m-%d} up to {period.end:%Y-%m-%d})"


def _reports(number: int) -> str:
    return "1 report" if number == 1 else f"{number:,} reports"
