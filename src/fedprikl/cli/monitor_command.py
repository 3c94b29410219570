"""`fedprikl monitor`: does whatever is due in a series, and nothing else."""

import importlib.util
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.console import notes, print_json, say, shown_progress
from fedprikl.cli.options import DRIFT_FOUND, check_apart, check_key, given_of, load_reference
from fedprikl.cli.reference_command import SEPARATORS
from fedprikl.dashboard.source import site_places, write_site
from fedprikl.deployment.answers import roster_names
from fedprikl.errors import HistoryError, HookError, InvalidInputError, MissingExtraError
from fedprikl.front.monitoring import HistorySource, monitor, read_status, verify_history
from fedprikl.front.plan_checks import check_limits, now
from fedprikl.front.series_news import deliver_locked, deliver_news
from fedprikl.monitoring.due import run_due
from fedprikl.monitoring.history import History
from fedprikl.monitoring.metrics import metrics_text
from fedprikl.monitoring.notifications import CommandHook, Hook, Webhook, WebhookSecret
from fedprikl.monitoring.status import SeriesStatus, alarm_words, counted, headline, period_name
from fedprikl.protocol import Policy, SignedPlan
from fedprikl.records import CsvFormat
from fedprikl.store import write_whole

USUAL = Policy()
SECRET = "FEDPRIKL_WEBHOOK_SECRET"  # noqa: S105  its name


OF_FILES = ("clients", "watermark", "key", "separator", "encoding", "skip_bad_files")
OF_FEDERATIONS = ("aggregator", "least_clients", "roster")


def monitor_command(
    context: typer.Context,
    plan: Annotated[Path, typer.Argument(help="The plan of the series, from `fedprikl plan`.")],
    clients: Annotated[
        Path | None, typer.Argument(help="A folder with one file or folder per client.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="The reference; default: ref.json beside the plan.")
    ] = None,
    history: Annotated[Path, typer.Option(help="All releases and what happened.")] = Path(
        "history.db"
    ),
    ledger: Annotated[Path, typer.Option(help="The privacy ledger.")] = Path("ledger.db"),
    watermark: Annotated[
        Path | None,
        typer.Option(help="Which records were counted; default: watermark.db by the history."),
    ] = None,
    key: Annotated[
        Path, typer.Option(help="The aggregator's signing key; made if it is missing.")
    ] = Path("aggregator.pem"),
    status: Annotated[
        bool, typer.Option("--status", help="Count nothing; say how the series stands.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Count nothing; check history, signatures and charges.")
    ] = False,
    acknowledge: Annotated[
        int | None, typer.Option(min=1, help="The number of an alarm that you have seen.")
    ] = None,
    note: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    rebaseline: Annotated[
        str,
        typer.Option(help="Periods that are the new normal, like 23:30; from their noisy counts."),
    ] = "",
    federation: Annotated[
        str,
        typer.Option(
            help="Instead of clients' files: name of the SuperLink connection in Flower's config."
        ),
    ] = "",
    aggregator: Annotated[
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
    site: Annotated[Path | None, typer.Option(help="Write the page into this folder.")] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Write metrics for Prometheus into this file.")
    ] = None,
    webhook: Annotated[str, typer.Option(help="Address that is told the news, as JSON.")] = "",
    webhook_secret: Annotated[
        Path | None,
        typer.Option(help="File with the secret that signs them; else $FEDPRIKL_WEBHOOK_SECRET."),
    ] = None,
    command: Annotated[
        str, typer.Option(help="Command that is told the news, as JSON on its standard input.")
    ] = "",
    largest_epsilon: Annotated[
        float, typer.Option(help="Refuse a plan whose release spends more epsilon.")
    ] = USUAL.largest_epsilon,
    largest_delta: Annotated[
        float, typer.Option(help="Refuse a plan whose release spends more delta.")
    ] = USUAL.largest_delta,
    separator: Annotated[
        str, typer.Option(help="What separates the fields of CSV files, like ; or tab.")
    ] = ",",
    encoding: Annotated[
        str, typer.Option(help="The encoding of CSV files, like cp1252.")
    ] = "utf-8",
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out files that cannot be opened.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Counts the periods of a series that are over, judges them, and tells who wants to know.

    Call it as often as you like, from cron, a timer or by hand: what is done is not done again.
    After a crash the next call goes on, or notes the period as missed. Exit code 3 while an alarm
    is open: look at the page, then acknowledge it, or take the periods since as the new normal.

    Example: `fedprikl monitor plan.json clients/ --site public --metrics fedprikl.prom`

    Example: `fedprikl monitor plan.json --federation my-superlink --aggregator 3f5a...`

    Example: `fedprikl monitor plan.json --acknowledge 1 --note "new carrier"`
    """
    _check_usage(context, federated=bool(federation))
    policy = Policy(largest_epsilon=largest_epsilon, largest_delta=largest_delta)
    signed = SignedPlan.load(plan)
    beside = history.with_name("watermark.db")
    names = (plan, reference or plan.parent / "ref.json", key, ledger, history, watermark or beside)
    outputs = [*(site_places(site) if site else ()), *([metrics] if metrics else ())]
    others = (roster or plan.parent / "roster.txt", webhook_secret)
    check_apart(outputs, (*names, *others), clients)
    hooks = _hooks(webhook, webhook_secret, command)
    news = _News(HistorySource(history, ledger, signed), site, metrics, hooks, dict(hooks))
    if verify:
        _stand(history, ledger, signed)
        say(verify_history(history, ledger))
        return
    if acknowledge is not None or rebaseline:
        _change(history, _stand(history, ledger, signed), acknowledge, note, rebaseline)
    if status or acknowledge is not None or rebaseline:
        found = _stand(history, ledger, signed)
    elif federation:
        _run_federated(
            signed,
            plan,
            reference,
            history,
            federation,
            aggregator,
            least_clients,
            roster,
            policy,
            after=lambda: news.after_each(_stand(history, ledger, signed)),
        )
        found = _stand(history, ledger, signed)
    else:
        if clients is None:
            raise typer.BadParameter(
                "Give the folder with the clients' files, --federation, or --status."
            )
        with shown_progress() as progress:
            found = monitor(
                reference or plan.parent / "ref.json",
                clients,
                signed,
                history=history,
                ledger=ledger,
                watermark=watermark,
                key=key,
                csv_format=CsvFormat(SEPARATORS.get(separator, separator), encoding),
                skip_bad_files=skip_bad_files,
                largest_epsilon=largest_epsilon,
                largest_delta=largest_delta,
                progress=progress,
                note=lambda text: say(text, console=notes),
                after=news.after_each,
            )
    _show(found, json=json)
    news.at_the_end(found)
    if found.open_alarms:
        raise typer.Exit(DRIFT_FOUND)


def _check_usage(context: typer.Context, *, federated: bool) -> None:
    """Refuses what would be ignored."""
    ignored = given_of(context, OF_FILES if federated else OF_FEDERATIONS)
    if ignored:
        words = ", ".join(
            "a folder of clients" if name == "clients" else f"--{name.replace('_', '-')}"
            for name in ignored
        )
        mode = "With" if federated else "Without"
        raise typer.BadParameter(f"{mode} --federation, nobody reads {words}. Leave it out.")


def _run_federated(
    signed: SignedPlan,
    plan: Path,
    reference: Path | None,
    history: Path,
    superlink: str,
    aggregator: str,
    clients: int,
    roster: Path | None,
    policy: Policy,
    *,
    after: Callable[[], None],
) -> None:
    """What is due, counted by a federation."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtraError("Federations need Flower: pip install 'fedprikl[flower]'.")
    from fedprikl.front.federated_series import FederatedSeries

    key = check_key(aggregator)
    if not key:
        raise typer.BadParameter(
            "--federation needs the aggregator's key, or anybody could make releases: --aggregator."
        )
    check_limits(signed.plan, policy)
    runner = FederatedSeries(
        signed=signed,
        superlink=superlink,
        name=plan.name,
        key=key,
        config={"clients": clients},
        note=lambda line: say(line, console=notes),
        members=_members(roster, plan, signed, clients),
    )
    run_due(
        history,
        signed,
        load_reference(reference or plan.parent / "ref.json"),
        runner,
        signer=key,
        at=now(),
        note=lambda text: say(text, console=notes),
        after=after,
    )


def _members(roster: Path | None, plan: Path, signed: SignedPlan, clients: int) -> dict[str, str]:
    """The names of a roster's members; none if the plan names no roster, or it is not here."""
    place = roster or plan.parent / "roster.txt"
    if roster is None and not signed.plan.roster:
        return {}
    if roster is None and not place.exists():
        say(f"There is no {place}, so sites are not named. Bring the roster.", console=notes)
        return {}
    return roster_names(place, signed.plan, clients=clients)


def _hooks(webhook: str, secret: Path | None, command: str) -> dict[str, Hook]:
    """By the names under which the history knows them."""
    found: dict[str, Hook] = {}
    if webhook:
        found["webhook"] = Webhook(url=webhook, secret=_secret(secret))
    if command:
        try:
            found["command"] = CommandHook(argv=tuple(shlex.split(command)))
        except ValueError:
            raise typer.BadParameter("--command has a quote that is not closed.") from None
    return found


def _secret(path: Path | None) -> WebhookSecret | None:
    if path is not None:
        return WebhookSecret.from_file(path)
    return WebhookSecret.from_environment(SECRET) if SECRET in os.environ else None


def _stand(history: Path, ledger: Path, signed: SignedPlan) -> SeriesStatus:
    """How the series of this plan stands."""
    found = read_status(history, ledger)
    if found.plan != signed.plan.fingerprint:
        raise HistoryError(
            f"{history} is the history of another plan. Give the plan that it was begun with, or "
            "name its history with --history."
        )
    return found


def _change(
    history: Path, found: SeriesStatus, acknowledge: int | None, note: str, rebaseline: str
) -> None:
    """What a person decides about an alarm; written into the history."""
    with History.open(history, create=False) as opened:
        if acknowledge is not None:
            known = {alarm.number: alarm for alarm in found.alarms}
            if acknowledge not in known:
                numbers = ", ".join(map(str, known)) or "none"
                raise InvalidInputError(f"There is no alarm {acknowledge}; there are: {numbers}.")
            opened.acknowledge(acknowledge, note, at=now())
        if rebaseline:
            first, last = _range(rebaseline, [point.number for point in found.released])
            opened.rebaseline(first, last, at=now())


def _range(text: str, released: Sequence[int]) -> tuple[int, int]:
    try:
        first, last = map(int, text.split(":"))
    except ValueError:
        raise typer.BadParameter("--rebaseline takes two periods, like 23:30.") from None
    if first > last or not {first, last} <= set(released):
        raise InvalidInputError(
            f"Periods {first} to {last} cannot be the new normal: both must have a release, the "
            "first of them first."
        )
    if last != released[-1]:  # what was said about periods after it would have to change
        raise InvalidInputError(
            f"The new normal ends with the last release: --rebaseline {first}:{released[-1]}."
        )
    return first, last


def _show(found: SeriesStatus, *, json: bool) -> None:
    if json:
        print_json(found.to_dict() | {"headline": headline(found)})
        return
    say(headline(found), style="bold")
    for alarm in found.alarms:
        raised = period_name(alarm.raised, found.every)
        say(
            f"alarm {alarm.number} ({alarm.state}): {alarm_words(alarm, found)} Raised in {raised}."
        )
    missed = [point for point in found.points if point.state == "missed"]
    for point in missed[-3:]:
        say(f"{period_name(point.number, found.every)} was missed: {point.reason}.")
    if found.budget is not None:
        budget = found.budget
        say(
            f"budget of one {budget.unit}: epsilon {budget.epsilon:g} for the whole series, at "
            f"most {budget.spent:.3g} of it spent"
        )
    due = [point.number for point in found.points if point.state == "due"]
    if due:
        say(
            f"due now: {counted(len(due), found.every)}, from {period_name(due[0], found.every)} on"
        )
    if found.next_due:
        say(f"next due: {found.next_due}")


@dataclass(frozen=True, slots=True)
class _News:
    """Page, metrics and notices: told after each period, and once more at the end."""

    source: HistorySource
    site: Path | None
    metrics: Path | None
    hooks: dict[str, Hook]
    trusted: dict[str, Hook]  # those that have not failed in this call

    def after_each(self, found: SeriesStatus) -> None:
        """Tells at once what is known. A hook that failed is tried again at the end only."""
        self._write(found)
        for name in deliver_locked(self.source.history, found, self.trusted, at=now()):
            del self.trusted[name]

    def at_the_end(self, found: SeriesStatus) -> None:
        """The same, and says what could not be delivered."""
        self._write(found)
        if self.site is not None:
            say(f"page: {self.site / 'index.html'}", console=notes)
        failed = deliver_news(self.source.history, found, self.hooks, at=now())
        if failed:
            raise HookError(" ".join(failed.values()))

    def _write(self, found: SeriesStatus) -> None:
        if self.site is not None:
            write_site(self.source, self.site)
        if self.metrics is not None:
            write_whole(self.metrics, metrics_text([found]))
