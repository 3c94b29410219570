"""`fedprikl monitor run | status | acknowledge | rebaseline | verify`: a series over time."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.console import notes, print_json, say, shown_progress
from fedprikl.cli.options import (
    KEY,
    LEDGER,
    Audience,
    ClientRecords,
    CsvOptions,
    Json,
    KeyFile,
    LedgerFile,
    Limits,
    PlanFile,
    ReferenceFile,
    SkipBadFiles,
    check_apart,
    check_key,
    command_group,
    file_of,
    given_of,
    grouped,
    in_panels,
    load_reference,
    reference_beside,
)
from fedprikl.cli.release_output import DRIFT_FOUND, STYLES
from fedprikl.cli.running import check_flower
from fedprikl.dashboard import site_places, write_site
from fedprikl.deployment.flower.organiser import FederatedSeries, roster_names
from fedprikl.documents import to_plain
from fedprikl.errors import FedPriKLError, HistoryError, HookError, InvalidInputError, LedgerError
from fedprikl.front.checking import check_limits, now
from fedprikl.front.series import (
    HistorySource,
    ServedSeries,
    deliver_locked,
    deliver_notifications,
    monitor,
    read_status,
    verify_history,
)
from fedprikl.monitoring.history import History, is_begun, is_of_servers
from fedprikl.monitoring.metrics import metrics_text
from fedprikl.monitoring.notifications import CommandHook, Hook, Webhook, WebhookSecret
from fedprikl.monitoring.periods import run_due
from fedprikl.monitoring.status import SeriesStatus, headline
from fedprikl.protocol import Policy, SignedPlan
from fedprikl.reference import Reference
from fedprikl.reporting.facts import series_lines
from fedprikl.store import write_whole

SECRET = "FEDPRIKL_WEBHOOK_SECRET"  # noqa: S105  its name
OF_TABLES = ("client_column", "no_client", "data", "table")
OF_FILES = ("clients", "counted", "key", "separator", "encoding", "skip_bad_files", *OF_TABLES)
OF_FEDERATIONS = ("signer", "least_clients", "roster")
OF_RELEASES = ("releases",)

PANELS = {
    "What is counted": (
        *("reference", *OF_TABLES, "counted", "separator", "encoding", "skip_bad_files"),
    ),
    "Who, in a federation": ("federation", "signer", "least_clients", "roster"),
    "Three servers": ("releases",),
    "Privacy": ("ledger", "key", "largest_epsilon", "largest_delta"),
    "Who is told": ("site", "metrics", "webhook", "webhook_secret", "command"),
    "How": ("history", "note", "json"),
}

commands = command_group()


@commands.callback()
def monitor_command() -> None:
    """Watches a population over time: run, status, acknowledge, rebaseline, verify.

    `run` counts the periods that are over; call it as often as you like. The others count nothing.

    Example: `fedprikl monitor run plan.json clients/ --site public --metrics fedprikl.prom`
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFiles:
    """The files of a series."""

    history: Annotated[Path, typer.Option(help="All releases and what happened.")] = Path(
        "history.db"
    )
    ledger: LedgerFile = LEDGER

    def stand(self, signed: SignedPlan) -> SeriesStatus:
        """How the series of this plan stands."""
        found = read_status(self.history, self.ledger)
        if found.plan != signed.plan.fingerprint:
            raise HistoryError(
                f"{self.history} is the history of another plan. Give the plan that it was begun "
                "with, or name its history with --history."
            )
        return found


def _hooks(audience: Audience) -> dict[str, Hook]:
    """By the names under which the history knows them."""
    found: dict[str, Hook] = {}
    if audience.webhook:
        secret = None
        if audience.webhook_secret is not None:
            secret = WebhookSecret.from_file(audience.webhook_secret)
        elif SECRET in os.environ:
            secret = WebhookSecret.from_text(os.environ[SECRET])
        found["webhook"] = Webhook(url=audience.webhook, secret=secret).deliver
    if audience.command:
        try:
            found["command"] = CommandHook(argv=tuple(shlex.split(audience.command))).deliver
        except ValueError:
            raise typer.BadParameter("--command has a quote that is not closed.") from None
    return found


class Telling:
    """Page, metrics and notifications: after each period, and once more at the end."""

    def __init__(
        self,
        plan: Path,
        files: SeriesFiles,
        audience: Audience,
        inputs: Sequence[Path | None] = (),
        clients: Path | None = None,
    ) -> None:
        """Refuses outputs that would overwrite what the series needs."""
        self.plan, self.signed = plan, SignedPlan.load(plan)
        self.audience, self.files = audience, files
        site, metrics = audience.site, audience.metrics
        outputs = [*(site_places(site) if site else ()), *([metrics] if metrics else ())]
        beside = (plan.parent / "ref.json", plan.parent / "roster.txt")
        marks = files.history.with_name("counted.db")
        used = (plan, files.history, files.ledger, marks, audience.webhook_secret, KEY)
        check_apart(outputs, (*used, *beside, *inputs), clients)
        self.source = HistorySource(files.history, files.ledger, self.signed)
        self.hooks = _hooks(audience)
        self.working = dict(self.hooks)  # those that have not failed in this call

    def after_each(self, found: SeriesStatus) -> None:
        """Tells at once what is known. A hook that failed is tried again at the end only."""
        self._write(found)
        for name in deliver_locked(self.files.history, found, self.working, at=now()):
            del self.working[name]

    def end(self, *, json: bool, after: FedPriKLError | None = None) -> None:
        """Shows how the series stands, and says what could not be delivered.

        `after`: why not all that is due was counted. It is said last; an open alarm is still told
        by the exit code, which depends on the history alone.
        """
        if after is not None and not is_begun(self.files.history):
            raise after
        found = self.files.stand(self.signed)
        _show(found, json=json)
        self._write(found)
        if self.audience.site is not None:
            say(f"page: {self.audience.site / 'index.html'}", console=notes)
        failed = deliver_notifications(self.files.history, found, self.hooks, at=now())
        if failed:
            raise HookError(" ".join([*failed.values(), *([] if after is None else [str(after)])]))
        if after is not None and not found.open_alarms:
            raise after
        if after is not None:
            say(f"fedprikl: {after}", console=notes)
        if found.open_alarms:
            raise typer.Exit(DRIFT_FOUND)

    @contextmanager
    def told(self, *, json: bool) -> Iterator[None]:
        """Tells how the series stands after the block, also if not all of it could be counted."""
        failure: FedPriKLError | None = None
        try:
            yield
        except (HistoryError, LedgerError):  # what they say cannot be relied on
            raise
        except FedPriKLError as error:
            failure = error
        self.end(json=json, after=failure)

    def _write(self, found: SeriesStatus) -> None:
        if self.audience.site is not None:
            write_site(self.source, self.audience.site)
        if self.audience.metrics is not None:
            write_whole(self.audience.metrics, metrics_text([found]))


@commands.command("run")
@in_panels(PANELS)
@grouped
def run_command(
    context: typer.Context,
    plan: PlanFile,
    files: SeriesFiles,
    audience: Audience,
    limits: Limits,
    csv: CsvOptions,
    records: ClientRecords,
    reference: ReferenceFile = None,
    counted: Annotated[
        Path | None,
        typer.Option(help="Which records were counted; default: counted.db by the history."),
    ] = None,
    key: KeyFile = KEY,
    skip_bad_files: SkipBadFiles = False,
    federation: Annotated[
        str,
        typer.Option(
            help="Instead of clients' files: name of the SuperLink connection in Flower's config."
        ),
    ] = "",
    signer: Annotated[
        str, typer.Option(help="With --federation: the aggregator's public signing key.")
    ] = "",
    least_clients: Annotated[
        int, typer.Option(min=3, help="With --federation: wait until so many are connected.")
    ] = 3,
    roster: Annotated[
        Path | None,
        typer.Option(
            help="With --federation: the plan's roster, which names sites; default: roster.txt by "
            "the plan."
        ),
    ] = None,
    releases: Annotated[
        Path | None,
        typer.Option(
            help="Instead of clients' files: the folder with the releases of three servers."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Counts the periods of a series that are over, judges them, and sends notifications.

    Call it as often as you like, from cron, a timer or by hand: what is done is not done again.
    After a crash the next call goes on, or notes the period as missed. Exit code 3 while an alarm
    is open: look at the page, then acknowledge it, or take the periods since as the new normal.

    Example: `fedprikl monitor run plan.json clients/ --site public --metrics fedprikl.prom`

    Example: `fedprikl monitor run plan.json --data postgresql://db.example.org/clinic
    --table visits --client-column id`

    Example: `fedprikl monitor run plan.json --federation my-superlink --signer 3f5a...`

    Example: `fedprikl monitor run plan.json --releases srv/releases --ledger srv/ledger.db`
    """
    _check_usage(context, "federation" if federation else "releases" if releases else "")
    policy = limits.policy
    inputs = (reference, key, counted, roster)
    if federation:
        telling = Telling(plan, files, audience, inputs)
        signed = telling.signed
        check_flower()
        public = check_key(signer or None)
        if not public:
            raise typer.BadParameter(
                "--federation needs the aggregator's key, or anybody could make releases: --signer."
            )
        check_limits(signed.plan, policy)
        runner = FederatedSeries(
            signed=signed,
            superlink=federation,
            key=public,
            config={"clients": least_clients},
            note=_note,
            members=_members(roster, plan, signed, least_clients),
        )
        known = load_reference(reference or reference_beside(plan, signed))
        run_federated(telling, runner, known, json=json)
        return
    if releases is not None:
        _run_served(
            Telling(plan, files, audience, inputs, releases), releases, reference, policy, json=json
        )
        return
    if records.clients is None and records.data is None:
        raise typer.BadParameter("Give the folder with the clients' files, or --federation.")
    place = records.place()
    telling = Telling(plan, files, audience, inputs, file_of(place))
    with telling.told(json=json), shown_progress() as progress:
        monitor(
            reference or reference_beside(plan, telling.signed),
            place,
            telling.signed,
            client=records.client_column,
            no_client=records.no_client,
            history=files.history,
            ledger=files.ledger,
            counted=counted,
            key=key,
            csv_format=csv.format,
            skip_bad_files=skip_bad_files,
            largest_epsilon=policy.largest_epsilon,
            largest_delta=policy.largest_delta,
            progress=progress,
            note=_note,
            after=telling.after_each,
        )


def _run_served(
    telling: Telling, releases: Path, reference: Path | None, policy: Policy, *, json: bool
) -> None:
    """Judges what three servers released, and tells how the series stands."""
    signed, files = telling.signed, telling.files
    plan = signed.plan
    if plan.servers is None or not is_of_servers(plan):
        raise typer.BadParameter(
            "--releases is for plans with three servers (--trust servers); this plan names none."
        )
    if not releases.is_dir():
        raise InvalidInputError(
            f"There is no folder {releases}. Name the one with the servers' releases, like "
            "srv/releases of a server."
        )
    check_limits(plan, policy)
    known = load_reference(reference or reference_beside(telling.plan, signed))
    with telling.told(json=json):
        run_due(
            files.history,
            signed,
            known,
            ServedSeries(plan=plan, releases=releases),
            signer=" ".join(plan.servers.signing),
            at=now(),
            note=_note,
            after=lambda: telling.after_each(files.stand(signed)),
        )


def run_federated(
    telling: Telling, runner: FederatedSeries, reference: Reference, *, json: bool
) -> None:
    """Has what is due counted by a federation, and tells how the series stands."""
    signed, files = telling.signed, telling.files
    with telling.told(json=json):
        run_due(
            files.history,
            signed,
            reference,
            runner,
            signer=runner.key,
            at=now(),
            note=_note,
            after=lambda: telling.after_each(files.stand(signed)),
        )


@commands.command("status")
@in_panels(PANELS)
@grouped
def status_command(
    plan: PlanFile, files: SeriesFiles, audience: Audience, json: Json = False
) -> None:
    """Says how the series stands. Exit code 3 while an alarm is open.

    Example: `fedprikl monitor status plan.json --site public`
    """
    Telling(plan, files, audience).end(json=json)


@commands.command("acknowledge")
@in_panels(PANELS)
@grouped
def acknowledge_command(
    plan: PlanFile,
    number: Annotated[int, typer.Argument(min=1, help="The number of an alarm you have seen.")],
    files: SeriesFiles,
    audience: Audience,
    note: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    json: Json = False,
) -> None:
    """Notes in the history that a person has seen an alarm. It stays open until drift ends.

    Example: `fedprikl monitor acknowledge plan.json 1 --note "new carrier"`
    """
    telling = Telling(plan, files, audience)
    known = {alarm.number for alarm in files.stand(telling.signed).alarms}
    if number not in known:
        numbers = ", ".join(map(str, sorted(known))) or "none"
        raise InvalidInputError(f"There is no alarm {number}; there are: {numbers}.")
    with History.open(files.history, create=False) as opened:
        opened.acknowledge(number, note, at=now())
    telling.end(json=json)


@commands.command("rebaseline")
@in_panels(PANELS)
@grouped
def rebaseline_command(
    plan: PlanFile,
    periods: Annotated[
        str, typer.Argument(help="Periods that are the new normal, like 23:30: to the last one.")
    ],
    files: SeriesFiles,
    audience: Audience,
    json: Json = False,
) -> None:
    """Takes what was released about some periods as the new normal. Ends the alarms.

    The baseline is made of their noisy counts, so it costs no privacy.

    Example: `fedprikl monitor rebaseline plan.json 23:30`
    """
    telling = Telling(plan, files, audience)
    released = [point.number for point in files.stand(telling.signed).released]
    first, last = _range(periods, released)
    with History.open(files.history, create=False) as opened:
        opened.rebaseline(first, last, at=now())
    telling.end(json=json)


@commands.command("verify")
@in_panels(PANELS)
@grouped
def verify_command(plan: PlanFile, files: SeriesFiles) -> None:
    """Checks the history, the signatures of its releases, and what the ledger was charged.

    Example: `fedprikl monitor verify plan.json --ledger copy-of-ledger.db`
    """
    files.stand(SignedPlan.load(plan))
    say(verify_history(files.history, files.ledger))


def _note(text: str) -> None:
    say(text, console=notes)


def _check_usage(context: typer.Context, source: str) -> None:
    """Refuses what would be ignored. `source`: the option that says where periods come from."""
    unread = {
        "": OF_FEDERATIONS,
        "federation": (*OF_FILES, *OF_RELEASES),
        "releases": (*OF_FILES, *OF_FEDERATIONS, "federation"),
    }
    ignored = given_of(context, unread[source])
    if ignored:
        words = ", ".join(
            "a folder of clients" if name == "clients" else f"--{name.replace('_', '-')}"
            for name in ignored
        )
        mode = f"With --{source}" if source else "Without --federation"
        raise typer.BadParameter(f"{mode}, nobody reads {words}. Leave it out.")


def _members(roster: Path | None, plan: Path, signed: SignedPlan, clients: int) -> dict[str, str]:
    """The names of a roster's members; none if the plan names no roster, or it is not here."""
    place = roster or plan.parent / "roster.txt"
    if roster is None and not signed.plan.roster:
        return {}
    if roster is None and not place.exists():
        _note(f"There is no {place}, so sites are not named. Bring the roster.")
        return {}
    return roster_names(place, signed.plan, clients=clients)


def _range(text: str, released: Sequence[int]) -> tuple[int, int]:
    try:
        first, last = map(int, text.split(":"))
    except ValueError:
        raise typer.BadParameter("The new normal is two periods, like 23:30.") from None
    if first > last or not {first, last} <= set(released):
        raise InvalidInputError(
            f"Periods {first} to {last} cannot be the new normal: both must have a release, the "
            "first of them first."
        )
    if last != released[-1]:  # what was said about periods after it would have to change
        raise InvalidInputError(
            f"The new normal ends with the last release: {first}:{released[-1]}."
        )
    return first, last


def _show(found: SeriesStatus, *, json: bool) -> None:
    if json:
        print_json(to_plain(found) | {"verdict": found.outcome, "headline": headline(found)})
        return
    say(headline(found), style=STYLES[found.outcome])
    for line in series_lines(found):
        say(line)
