"""A round at the aggregator's host, over whatever network its sites are on.

    1. load the plan, the reference, the two keys and the ledger from the home folder; refuse what
       can be known to fail: another key than whoever asked expects, an expired plan, a spent
       budget, clients that were all counted before, another run of the same plan under way.
       A period of a series that was released before: tell that release again, and no more
    2. wait for nodes; with a roster, ask who they are; open a round; deal them into cohorts
    3. five steps, all cohorts side by side; who is lost is left out. Before each step and before
       the release: does anybody still wait for it? If not, the round ends here
    4. release, sign, charge; write the release, print it, update the metrics

A host that dies leaves nothing behind but the ledger. Before the noise, the sums were in its memory
only: the round is void, and stays charged if sums were opened. After the noise the ledger has kept
the numbers: the next run of the plan (and period) finishes that release, asks nobody and charges
nothing.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedprikl.deployment.gathering import Company, gather, load_roster
from fedprikl.deployment.host import Host, Network, open_anchored
from fedprikl.deployment.metrics import RoundMetrics, write_metrics
from fedprikl.deployment.progress import cohorts_line, not_counted_line, release_line, step_line
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.errors import DeploymentError, InvalidInputError, ReleaseRefused
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    Aggregator,
    NoisedRound,
    Plan,
    Release,
    Roster,
    Round,
    RoundDriver,
    SealingKey,
    Server,
    SignedPlan,
    SigningKey,
    Step,
    StepCount,
    finish_round,
    trust_of,
)
from fedprikl.reference import Reference
from fedprikl.store import locked, replace_file


def load_plan(settings: RoundSettings) -> SignedPlan:
    """The plan that the round is about, if clients would take it at any time."""
    folder = settings.home.folder
    if not folder.is_dir():
        raise DeploymentError(
            f"There is no folder {folder} on the aggregator's host. Make it with "
            "`fedprikl keys`, or set FEDPRIKL_HOME for the process that runs the ServerApp."
        )
    signed = SignedPlan.load(settings.plan)
    if not signed.is_signed_by(signed.signer):
        raise InvalidInputError(
            f"The plan {settings.plan.name} is not signed as it stands, so every client would "
            "refuse it. Sign it with `fedprikl plan --key`."
        )
    _check_trust(signed.plan)
    return signed


def _check_trust(plan: Plan) -> None:
    """Refuses noise in shares among strangers: whoever poses as clients would know their shares.

    Flower's node keys are registered at the relay, so they do not tell clients from the relay.
    """
    if trust_of(plan).shares_noise and not plan.roster:
        raise InvalidInputError(
            "Over Flower, a plan without a trusted aggregator (`plan --trust none`) needs a roster "
            "of clients: a relay that poses as clients would leave too little noise. Plan again "
            "with `--roster`, or with a trusted aggregator."
        )


def check_time(plan: Plan, *, at: str) -> None:
    """Refuses a plan that every client would refuse at this time."""
    if not plan.validity.includes(at):
        raise InvalidInputError(
            "The plan has expired, or is not valid yet, so every client would refuse it. Nothing "
            "was asked; plan again with `fedprikl plan`."
        )


def check_wanted(settings: RoundSettings, *, at: str) -> None:
    """Refuses to go on with a run whose deadline is over: nobody would receive the release."""
    if settings.deadline is not None and datetime.fromisoformat(at) > settings.deadline:
        raise DeploymentError(
            f"Whoever asked for this run waited until {settings.deadline.isoformat()}, which is "
            "over by the aggregator's clock. Nothing was charged; ask again."
        )


def check_signer(signer: SigningKey, settings: RoundSettings) -> None:
    """Refuses a run whose release would not be believed by whoever asked for it."""
    if settings.signer and settings.signer != signer.public:
        raise DeploymentError(
            "Whoever asked for this run accepts releases of another key than this aggregator's. "
            "Nothing was asked, nothing was charged. Have the aggregator's people tell you the "
            "signing key that `fedprikl keys` prints there, and ask again with it."
        )


def check_account(ledger: Ledger, plan: Plan) -> None:
    """Refuses a population that has no budget here."""
    if plan.population not in ledger.populations():
        raise InvalidInputError(
            f"The population {plan.population!r} has no budget at this aggregator. Set "
            f"one: `fedprikl ledger --population {plan.population} --set-epsilon 1`."
        )


def rehearse(
    server: Server, roster: Roster | None, settings: RoundSettings, rng: np.random.Generator
) -> Round:
    """A round as it would be if all took part. It is never run: its budget is known before."""
    clients = max(settings.clients, 3 * server.plan.sums.batches)
    keys = [] if roster is None else sorted(roster.keys)
    names = [key.hex() for key in keys] or [str(n) for n in range(clients)]
    return server.open_round(
        names,
        rng=rng,
        randomness=os.urandom,
        identities=dict(zip(names, keys, strict=False)),
        period=settings.period,
    )


def check_cohorts(current: Round, roster: Roster | None) -> None:
    """Says early what every client would refuse."""
    smallest = min(len(cohort.members) for cohort in current.cohorts)
    needed = 0 if roster is None else trust_of(current.plan).smallest_cohort(len(roster))
    if smallest < needed:
        raise DeploymentError(
            f"A cohort has {smallest} clients; without a trusted aggregator it needs {needed} of "
            "the roster. Wait for more SuperNodes, or plan one cohort for all (`plan --cohort`)."
        )


def write_release(release: Release, folder: Path) -> Path:
    """Written whole, under the round's name, and on the disk when this returns."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{release.round_id}.json"
    replace_file(path, release.to_bytes() + b"\n")
    return path


def keep_refusals(driver: RoundDriver, round_id: str, folder: Path, host: Host) -> None:
    """Writes who took no part and why, for the aggregator's own people; they never travel on."""
    if not driver.refusals:
        return
    path = folder / f"{round_id}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(driver.refusals, indent=1).encode(), mode=0o600, new=True)
    except OSError as error:  # never worth a release
        host.say(f"[fedprikl] the refusals could not be written: {error.strerror}")


def prune_refusals(folder: Path, *, before: datetime) -> int:
    """Removes the files of refusals that were written before a time; how many.

    Folders and links are none of ours: they stay, and keep nothing else from being removed. Nor may
    `folder` be a link, not even from now on: it could lead to the releases, or to others' files.
    """
    limit, removed = before.timestamp(), 0
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for entry in list(os.scandir(handle)):
            ours = entry.name.endswith(".json") and entry.is_file(follow_symlinks=False)
            if ours and entry.stat(follow_symlinks=False).st_mtime < limit:
                os.unlink(entry.name, dir_fd=handle)
                removed += 1
    finally:
        os.close(handle)
    return removed


def refusals_in_words(driver: RoundDriver) -> str:
    """What people need to know when nothing was released. Public: the relay stores it.

    Of the refusals that were sealed only the number, as their words may depend on records.
    """
    reasons = [outcome.reason for outcome in driver.outcomes.values() if outcome.reason]
    words = f" The first cohort ended because: {reasons[0]}" if reasons else ""
    refusals, sealed = driver.refusals, len(driver.confided)
    if refusals:
        words += f" {len(refusals)} clients took no part"
        told = (why for client, why in refusals.items() if client not in driver.confided)
        first = next(told, "")
        words += f", the first because: {first}." if first else "."
    if sealed:
        words += f" {sealed} of the reasons are in the aggregator's folder."
    return words


def check_period(plan: Plan, settings: RoundSettings, *, at: str) -> None:
    """Refuses a run of a series without a period that is over, and a period without a series."""
    when, number = plan.when, settings.period
    if when.kind == "once":
        if number is not None or settings.previous:
            raise InvalidInputError(
                "The plan has no series, so it has no periods. Leave `period` and `previous` out "
                "of the run config."
            )
        return
    if number is None:
        raise InvalidInputError(
            "The plan is for a series, with a release for every period. Run what is due with "
            "`fedprikl monitor run --federation`."
        )
    end = when.period(number).end
    if end > datetime.fromisoformat(at):
        raise DeploymentError(
            f"Period {number} ends at {end.isoformat()}: it is not over by the aggregator's clock. "
            "Nothing was asked; ask again when it is."
        )


def find_release(folder: Path, plan: Plan, number: int | None, *, public: str) -> Release | None:
    """The release of a period that is there already, if this key signed it.

    Whatever else lies in the folder is passed over.
    """
    if number is None:
        return None
    fingerprint = plan.fingerprint.encode()
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(Exception):  # anybody may have put anything there
            content = path.read_bytes()
            if fingerprint not in content:
                continue
            release = Release.from_bytes(content)
            period = release.period if release.is_about(plan) else None
            if period is not None and period.number == number and release.is_signed_by(public):
                return release
    return None


@contextlib.contextmanager
def alone(folder: Path, plan: Plan) -> Iterator[None]:
    """Lets one run of a plan in at a time, of all series one; a run that dies lets go.

    Two at once would count some sites in one round and the others in a second. Each round may then
    have too few for a release, and nobody could be counted again.
    """
    name = "series" if plan.is_series else f"plan-{plan.fingerprint[:16]}"
    with locked(folder / name, timeout=0, error=DeploymentError) as first:
        if not first:
            what = "a series" if plan.is_series else "this plan"
            raise DeploymentError(
                f"Another run of {what} is under way at the aggregator. Nothing was asked; ask "
                "again when it is over."
            )
        yield


def host_round(network: Network, settings: RoundSettings, host: Host) -> Release:
    """One round over a network; the release, written to the home folder and printed."""
    metrics = RoundMetrics()
    try:
        release = _run(network, settings, host, metrics)
        metrics.release = release
        return release
    finally:
        try:
            if not metrics.repeated:
                write_metrics(settings.home.metrics, metrics)
        except OSError as error:  # never worth a release
            host.say(f"[fedprikl] the metrics could not be written: {error.strerror}")


def _run(network: Network, settings: RoundSettings, host: Host, metrics: RoundMetrics) -> Release:
    home = settings.home
    signed, signer = load_plan(settings), SigningKey.load(home.signing_key)
    check_signer(signer, settings)
    check_period(signed.plan, settings, at=host.now())
    with alone(home.folder, signed.plan):
        earlier = find_release(home.releases, signed.plan, settings.period, public=signer.public)
        if earlier is None:
            finished = _finish(signed.plan, signer, settings, host)
            if finished is not None:
                _say_counted(signed.plan, settings, host)
                return finished
            return _run_round(network, signed, signer, settings, host, metrics)
    metrics.repeated = True
    host.say(release_line(earlier))
    _say_counted(signed.plan, settings, host)
    host.say(
        f"[fedprikl] period {settings.period} was released before, in round {earlier.round_id}: "
        "this is that release. Nothing was asked, nothing was charged"
    )
    return earlier


def _say_counted(plan: Plan, settings: RoundSettings, host: Host) -> None:
    """Whom of the roster an earlier run did not count."""
    counted = Company.load(settings.home.cohorts).counted_in(plan, settings.period)
    if counted:
        _say_missing(load_roster(plan, settings.home), counted, host)


def _finish(plan: Plan, signer: SigningKey, settings: RoundSettings, host: Host) -> Release | None:
    """The release that an earlier run of this plan and period was charged for and did not end."""
    home = settings.home
    if not home.ledger.exists():
        return None

    def keep(kept: NoisedRound, release: Release) -> None:
        host.say(release_line(release))
        with contextlib.suppress(OSError):  # it is printed all the same
            write_release(release, home.releases)
        host.say(
            f"[fedprikl] round {kept.round_id} was charged before, and its run ended after the "
            "noise: this is its release, finished from its kept numbers. Nothing was asked, "
            "nothing was charged"
        )

    with open_anchored(home.ledger, home.releases, signer.public) as ledger:
        return finish_round(
            ledger,
            plan,
            Reference.load(home.reference),
            key=lambda: signer,
            at=host.now(),
            period=settings.period,
            request=settings.request,
            keep=keep,
        )


def _run_round(
    network: Network,
    signed: SignedPlan,
    signer: SigningKey,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
) -> Release:
    home, plan, period = settings.home, signed.plan, settings.period
    check_time(plan, at=host.now())
    check_wanted(settings, at=host.now())
    roster, sealer = load_roster(plan, home), SealingKey.load(home.sealing_key)
    server = Server(signed, Reference.load(home.reference))
    with open_anchored(home.ledger, home.releases, signer.public) as ledger:
        check_account(ledger, plan)
        rng = np.random.default_rng()
        trial = rehearse(server, roster, settings, rng)
        _prepare(trial, signer, ledger, settings, host)
        names = gather(network, plan, roster, Company.load(home.cohorts), settings, host, metrics)
        check_wanted(settings, at=host.now())
        identities = {node: bytes.fromhex(who) for node, who in names.items()} if roster else None
        with locked(home.cohorts):  # rounds at the same time deal the same people alike
            company = Company.load(home.cohorts)
            current = server.open_round(
                list(names),
                rng=rng,
                randomness=os.urandom,
                identities=identities,
                together=company.groups(names),
                period=period,
            )
            check_cohorts(current, roster)
            aggregator = _prepare(current, signer, ledger, settings, host)
            dealt = [[names[n] for n in cohort.members] for cohort in current.cohorts]
            company.after(dealt).save(home.cohorts)
        driver = RoundDriver(current, aggregator, sealer)
        host.say(cohorts_line(current))
        try:
            transport = network.transport(current.round_id)
            for count in _timed(driver.drive(transport), names, host, metrics):
                check_wanted(settings, at=host.now())  # before it asks again, and before it charges
                if count.step is Step.INPUT:
                    counted = [names[n] for n in driver.answered]
                    _keep_counted(counted, plan, period, home, host)
                    _say_missing(roster, counted, host)
            network.check_run()
            message = driver.release(at=host.now(), rng=rng)
        except ReleaseRefused as error:
            raise ReleaseRefused(f"{error}{refusals_in_words(driver)}") from None
        finally:
            keep_refusals(driver, current.round_id, home.refusals, host)
            left = ledger.account(plan.population).left
            metrics.left[plan.population] = round(left, 6)
        release = server.accept(current, message, aggregator=signer.public)
    _announce(release, driver, left, home, host)
    return release


def _prepare(
    current: Round, signer: SigningKey, ledger: Ledger, settings: RoundSettings, host: Host
) -> Aggregator:
    """The aggregator of a round, if its budget suffices. It keeps the release before it closes."""

    def keep(message: bytes) -> None:
        with contextlib.suppress(OSError):  # it is printed all the same, and written once more
            write_release(Release.from_bytes(message), settings.home.releases)

    aggregator = Aggregator(
        current,
        key=signer,
        ledger=ledger,
        software=f"fedprikl {version('fedprikl')}",
        source=host.source,
        request=settings.request,
        previous=settings.previous,
        keep=keep,
    )
    aggregator.check_budget()
    return aggregator


def _timed(
    steps: Iterator[StepCount], names: Mapping[str, str], host: Host, metrics: RoundMetrics
) -> Iterator[StepCount]:
    """The steps of a round, each noted and told with the time it took."""
    start = host.clock.now()
    for count in steps:
        metrics.seconds[count.step] = seconds = host.clock.now() - start
        metrics.lost[count.step] = count.lost
        metrics.refused += count.refused
        host.say(step_line(count, seconds, names))
        yield count
        start = host.clock.now()


def _keep_counted(
    clients: Sequence[str], plan: Plan, period: int | None, home: Home, host: Host
) -> None:
    try:
        with locked(home.cohorts):
            Company.load(home.cohorts).counting(clients, plan, period).save(home.cohorts)
    except (OSError, DeploymentError) as error:  # sites know it as well: never worth a release
        why = error.strerror if isinstance(error, OSError) else f"{home.cohorts.name} is damaged"
        host.say(f"[fedprikl] who was counted could not be written: {why}")


def _say_missing(roster: Roster | None, counted: Iterable[str], host: Host) -> None:
    """Names who of the roster is not counted; whoever has the roster knows who they are."""
    if roster is not None:
        host.say(not_counted_line({key.hex() for key in roster.keys} - set(counted)))


def _announce(release: Release, driver: RoundDriver, left: float, home: Home, host: Host) -> None:
    """Prints the release first: it is charged, so a full disk must not lose it."""
    host.say(release_line(release))
    path = write_release(release, home.releases)
    for outcome in driver.outcomes.values():
        if outcome.reason:
            host.say(f"[fedprikl] a cohort of {outcome.clients} was dropped: {outcome.reason}")
    host.say(f"[fedprikl] released, verified and written to {path.name}; budget left: {left:.3g}")
