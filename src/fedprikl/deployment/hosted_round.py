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
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedprikl.deployment.host import Company, Host, Network, Run, gather
from fedprikl.deployment.progress import (
    FIRST,
    RELAY_SAYS,
    cohorts_line,
    cure_in_public,
    reason_in_public,
    release_line,
    roster_lines,
    short_name,
    step_line,
)
from fedprikl.deployment.round_metrics import RoundMetrics, write_metrics
from fedprikl.deployment.settings import RoundSettings
from fedprikl.errors import DeploymentError, InvalidInputError, ReleaseRefused
from fedprikl.privacy import Ledger
from fedprikl.privacy.ledger import budget_command
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
    finish_round,
    trust_of,
)
from fedprikl.protocol.aggregator import LATER
from fedprikl.protocol.release import newest_head, own_releases
from fedprikl.reference import Reference
from fedprikl.store import locked, replace_file

NOT_LEFT = "Nothing was charged, and no counts have left a site: ask again."


def host_round(network: Network, settings: RoundSettings, host: Host) -> Release:
    """One round over a network; the release, written to the home folder and printed."""
    metrics = RoundMetrics()
    try:
        signed = load_plan(settings)
        run = Run(
            network=network,
            settings=settings,
            host=host,
            signed=signed,
            signer=SigningKey.load(settings.home.signing_key),
            metrics=metrics,
        )
        metrics.release = release = _release(run)
        return release
    finally:
        try:
            if not metrics.repeated:
                write_metrics(settings.home.metrics, metrics)
        except OSError as error:  # never worth a release
            host.say(f"[fedprikl] the metrics could not be written: {error.strerror}")


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


def _release(run: Run) -> Release:
    """The release that was asked for: an earlier one told again, one finished, or a new one."""
    _check_asked(run)
    with alone(run.home.folder, run.plan):
        earlier = _tell_again(run) or _finish(run)
        if earlier is None:
            return _run_round(run)
    counted = Company.load(run.home.cohorts).counted_in(run.plan, run.settings.period)
    if counted:
        run.say_missing(run.load_roster(), counted)
    return earlier


def _check_asked(run: Run) -> None:
    """Refuses a run whose release would not be believed, and a period that is none or not over."""
    when, number, settings = run.plan.when, run.settings.period, run.settings
    if settings.signer and settings.signer != run.signer.public:
        raise DeploymentError(
            "Whoever asked for this run accepts releases of another key than this aggregator's. "
            "Nothing was asked, nothing was charged. Have the aggregator's people tell you the "
            "signing key that `fedprikl keys` prints there, and ask again with it."
        )
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
    if end > datetime.fromisoformat(run.host.now()):
        raise DeploymentError(
            f"Period {number} ends at {end.isoformat()}: it is not over by the aggregator's clock. "
            "Nothing was asked; ask again when it is."
        )


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


def _tell_again(run: Run) -> Release | None:
    """The release of the period that is there already, if this host's key signed it."""
    number = run.settings.period
    for release in [] if number is None else own_releases(run.home.releases, run.signer.public):
        period = release.period
        if period is not None and period.number == number and release.is_about(run.plan):
            run.metrics.repeated = True
            run.host.say(release_line(release))
            run.host.say(
                f"[fedprikl] period {number} was released before, in round {release.round_id}: "
                "this is that release. Nothing was asked, nothing was charged"
            )
            return release
    return None


def _open_ledger(run: Run) -> Ledger:
    """The ledger, if it is no older than the releases beside it; a `LedgerDamagedError` if it is.

    To begin anew on purpose, put the old releases away together with the old ledger.
    """
    return Ledger.open(run.home.ledger, anchor=newest_head(run.home.releases, run.signer.public))


def _finish(run: Run) -> Release | None:
    """The release that an earlier run of this plan and period was charged for and did not end."""
    if not run.home.ledger.exists():
        return None

    def keep(kept: NoisedRound, release: Release) -> None:
        run.host.say(release_line(release))
        with contextlib.suppress(OSError):  # it is printed all the same
            write_release(release, run.home.releases)
        run.host.say(
            f"[fedprikl] round {kept.round_id} was charged before, and its run ended after the "
            "noise: this is its release, finished from its kept numbers. Nothing was asked, "
            "nothing was charged"
        )

    with _open_ledger(run) as ledger:
        return finish_round(
            ledger,
            run.plan,
            _reference(run),
            key=lambda: run.signer,
            at=run.host.now(),
            period=run.settings.period,
            request=run.settings.request,
            keep=keep,
        )


def _reference(run: Run) -> Reference:
    """That the plan is about; several lie side by side."""
    wanted, folder = run.plan.reference, run.home.references.name
    advice = f"Put the reference {wanted[:16]} into {folder}/ of its folder."
    return run.home.wanted_reference(wanted, whose="the aggregator", advice=advice)


def _run_round(run: Run) -> Release:
    plan, home, host = run.plan, run.home, run.host
    check_time(plan, at=host.now())
    run.check_wanted()
    roster, sealer = run.load_roster(), SealingKey.load(home.sealing_key)
    lines = {} if roster is None else roster_lines(home.roster)
    members = {key: f"{name} {short_name(key)}" for key, name in lines.items()}
    server, rng = Server(run.signed, _reference(run)), np.random.default_rng()
    with _open_ledger(run) as ledger:
        if plan.population not in ledger.populations():
            raise InvalidInputError(
                f"The population {plan.population!r} has no budget at this aggregator. Set "
                f"one: `{budget_command(home.ledger, plan.population, 1)}`."
            )
        _aggregator(run, _rehearsal(run, server, roster, rng), ledger).check_budget()
        names = gather(run, roster)
        run.check_everybody(_wanted(names, roster), names.values(), {}, after=NOT_LEFT)
        run.check_wanted()
        with locked(home.cohorts):  # rounds at the same time deal the same people alike
            company = Company.load(home.cohorts)
            current = server.open_round(
                list(names),
                rng=rng,
                randomness=os.urandom,
                identities={n: bytes.fromhex(who) for n, who in names.items()} if roster else None,
                together=company.groups(names),
                period=run.settings.period,
            )
            check_cohorts(current, roster)
            aggregator = _aggregator(run, current, ledger)
            aggregator.check_budget()
            dealt = [[names[n] for n in cohort.members] for cohort in current.cohorts]
            company.after(dealt).save(home.cohorts)
        driver = RoundDriver(current, aggregator, sealer)
        host.say(cohorts_line(current))
        try:
            _drive(run, driver, current.round_id, names, roster)
            message = driver.release(at=host.now(), rng=rng)
            release = server.accept(current, message, aggregator=run.signer.public)
            host.say(release_line(release))  # first: it is charged, so nothing may lose it
        except ReleaseRefused as error:
            words = refusals_in_words(driver, names)  # first: they say what is to be done
            left_sites = f" {have_left(plan)}" if run.settings.everybody else ""
            ended = str(error)
            if cure := _cure(run, driver):
                ended = ended.replace(LATER, cure)
            raise ReleaseRefused(f"{words} {ended}{left_sites}".strip()) from None
        finally:
            keep_refusals(run, driver, names, members, current.round_id)
            left = ledger.account(plan.population).left
            run.metrics.left[plan.population] = round(left, 6)
    path = write_release(release, home.releases)
    for outcome in aggregator.outcomes.values():
        if outcome.reason:
            host.say(f"[fedprikl] a cohort of {outcome.clients} was dropped: {outcome.reason}")
    host.say(
        f"[fedprikl] released, verified and written to {path.name} in the aggregator's folder of "
        f"releases; budget left: {left:.3g}"
    )
    return release


def check_time(plan: Plan, *, at: str) -> None:
    """Refuses a plan that every client would refuse at this time."""
    if not plan.validity.includes(at):
        raise InvalidInputError(
            "The plan has expired, or is not valid yet, so every client would refuse it. Nothing "
            "was asked; plan again with `fedprikl plan`."
        )


def _rehearsal(run: Run, server: Server, roster: Roster | None, rng: np.random.Generator) -> Round:
    """A round as it would be if all took part. It is never run: its budget is known before."""
    clients = max(run.settings.clients, 3 * run.plan.sums.batches)
    keys = [] if roster is None else sorted(roster.keys)
    names = [key.hex() for key in keys] or [str(n) for n in range(clients)]
    return server.open_round(
        names,
        rng=rng,
        randomness=os.urandom,
        identities=dict(zip(names, keys, strict=False)),
        period=run.settings.period,
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


def _aggregator(run: Run, current: Round, ledger: Ledger) -> Aggregator:
    """The aggregator of a round. It keeps the release before it closes."""

    def keep(message: bytes) -> None:
        with contextlib.suppress(OSError):  # it is printed all the same, and written once more
            write_release(Release.from_bytes(message), run.home.releases)

    return Aggregator(
        current,
        key=run.signer,
        ledger=ledger,
        software=f"fedprikl {version('fedprikl')}",
        source=run.host.source,
        request=run.settings.request,
        previous=run.settings.previous,
        keep=keep,
        everybody=run.settings.everybody,
    )


def _drive(
    run: Run, driver: RoundDriver, round_id: str, names: Mapping[str, str], roster: Roster | None
) -> None:
    """All steps but the release, each noted and told with the time it took.

    Looks whether anybody waits for the release before it asks again, and at the end, before it
    charges.
    """
    host, metrics = run.host, run.metrics
    start = host.clock()
    for count in driver.drive(run.network.transport(round_id)):
        metrics.seconds[count.step] = seconds = host.clock() - start
        metrics.lost[count.step] = count.lost
        metrics.refused += count.refused
        host.say(step_line(count, seconds, names))
        run.check_wanted()
        there, why = [names[node] for node in driver.answered], open_reasons(driver, names)
        if count.step is Step.INPUT:
            _keep_counted(run, there)
            run.say_missing(roster, there, why)
        if count.step in (Step.ADVERTISE, Step.SHARE, Step.INPUT):  # later, all counts are in
            after = have_left(run.plan) if count.step is Step.INPUT else NOT_LEFT
            run.check_everybody(_wanted(names, roster), there, why, after=after)
        start = host.clock()
    run.network.check_run()


def _cure(run: Run, driver: RoundDriver) -> str:
    """What is to be done, if all who took no part refused in the open and for one listed reason."""
    lost = sum(run.metrics.lost.get(step, 0) for step in Step)
    return "" if lost or driver.confided else cure_in_public(driver.refusals.values())


def have_left(plan: Plan) -> str:
    """What a round that ends without a release has cost once counts have left sites."""
    paid = "each has charged its own ledger, and " if trust_of(plan).shares_noise else ""
    return (
        f"Counts of other sites have left: {paid}their records stay counted (see `releases` and "
        "most-counts)."
    )


def _wanted(names: Mapping[str, str], roster: Roster | None) -> set[str]:
    """Whom an all-or-nothing round needs."""
    return set(names.values()) if roster is None else {key.hex() for key in roster.keys}


def open_reasons(driver: RoundDriver, names: Mapping[str, str]) -> dict[str, str]:
    """Why clients took no part, by who they are; of those who said so in the open."""
    return {
        names[node]: reason_in_public(words)
        for node, words in driver.refusals.items()
        if node not in driver.confided
    }


def _keep_counted(run: Run, clients: Sequence[str]) -> None:
    path = run.home.cohorts
    try:
        with locked(path):
            company = Company.load(path).counting(clients, run.plan, run.settings.period)
            company.save(path)
    except (OSError, DeploymentError) as error:  # sites know it as well: never worth a release
        why = error.strerror if isinstance(error, OSError) else f"{path.name} is damaged"
        run.host.say(f"[fedprikl] who was counted could not be written: {why}")


def write_release(release: Release, folder: Path) -> Path:
    """Written whole, under the round's name, and on the disk when this returns."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{release.round_id}.json"
    replace_file(path, release.to_bytes() + b"\n")
    return path


def keep_refusals(
    run: Run,
    driver: RoundDriver,
    names: Mapping[str, str],
    members: Mapping[str, str],
    round_id: str,
) -> None:
    """Writes who took no part and why, for the aggregator's own people; they never travel on.

    `members`: names by key. What came in the open nobody has signed.
    """
    if not driver.refusals:
        return
    folder = run.home.refusals
    found = {
        members.get(names[node], node): words
        if node in driver.confided
        else f"{RELAY_SAYS}: {words}"
        for node, words in driver.refusals.items()
    }
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        text = json.dumps(found, indent=1).encode()
        replace_file(folder / f"{round_id}.json", text, mode=0o600, new=True)
    except OSError as error:  # never worth a release
        run.host.say(f"[fedprikl] the refusals could not be written: {error.strerror}")


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


def _clients(many: int) -> str:
    return "1 client" if many == 1 else f"{many} clients"


def refusals_in_words(driver: RoundDriver, names: Mapping[str, str]) -> str:
    """What people need to know when nothing was released. Public: the relay stores it.

    Of the refusals that were sealed only the number, as their words may depend on records; of the
    others who was first, as `names` says, and why: as the relay says, for nobody has signed it.
    """
    refusals, sealed, words = driver.refusals, len(driver.confided), ""
    if refusals:
        words += f" {_clients(len(refusals))} took no part"
        told = ((who, why) for who, why in refusals.items() if who not in driver.confided)
        first, why = next(told, ("", ""))
        who = f"{FIRST}{short_name(names.get(first, first))}, {RELAY_SAYS}: {why}"
        words += f"{who} [{reason_in_public(why)}]." if why else "."
    if sealed:
        words += f" {sealed} of the reasons are in the aggregator's folder."
    reasons = [outcome.reason for outcome in driver.aggregator.outcomes.values() if outcome.reason]
    words += f" The first cohort ended because: {reasons[0]}" if reasons else ""
    return words.strip()
