"""The ServerApp: hosts the server and the aggregator, on the aggregator's own host.

    1. load the plan, the reference, the two keys and the ledger from the home folder; refuse what
       can be known to fail: an expired plan, a spent budget, clients that were all counted before
    2. wait for SuperNodes; with a roster, ask who they are; open a round; deal them into cohorts
    3. five steps, all cohorts side by side; who is lost is left out
    4. release, sign, charge; write the release, print it, update the metrics

A ServerApp that dies leaves nothing behind but the ledger: the sums were in its memory only, so
the round is void, and what may have been released stays charged. The next run is a new round.
"""

import json
import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedprikl.deployment.company import Company
from fedprikl.deployment.flower.exchange import exchange
from fedprikl.deployment.flower.gathering import gather, load_roster
from fedprikl.deployment.host import Host, print_line
from fedprikl.deployment.ledger_anchor import open_anchored
from fedprikl.deployment.metrics import RoundMetrics, write_metrics
from fedprikl.deployment.progress import (
    cohorts_line,
    failure_line,
    printable,
    release_line,
    step_line,
)
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.errors import DeploymentError, FedPriKLError, InvalidInputError, ReleaseRefused
from fedprikl.protocol import (
    Aggregator,
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
    trust_of,
)
from fedprikl.reference import Reference

__all__ = ["Host", "app", "run_on_flower"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Entry point of a run. A run without a release fails, so that Flower shows it as failed.

    Flower logs an exception at the relay. Ours hold no secret; the words of any other might, so
    only its name leaves this process.
    """
    try:
        settings = RoundSettings.of(context.run_config)
        run_on_flower(grid, settings, Host())
    except FedPriKLError as error:
        error.args = (printable(str(error)),)
        print_line(failure_line(str(error)))
        raise
    except Exception as error:
        words = f"The ServerApp failed unexpectedly ({type(error).__name__}). Please report it."
        print_line(failure_line(words))
        raise DeploymentError(words) from None


def run_on_flower(grid: Grid, settings: RoundSettings, host: Host) -> Release:
    """One round over a grid; the release, written to the home folder and printed."""
    metrics = RoundMetrics()
    try:
        release = _run(grid, settings, host, metrics)
        metrics.released = True
        return release
    finally:
        try:
            write_metrics(settings.home.metrics, metrics)
        except OSError as error:  # never worth a release
            host.say(f"[fedprikl] the metrics could not be written: {error.strerror}")


def _run(grid: Grid, settings: RoundSettings, host: Host, metrics: RoundMetrics) -> Release:
    home = settings.home
    if not home.folder.is_dir():
        raise DeploymentError(
            f"There is no folder {home.folder} on the aggregator's host. Make it with "
            "`fedprikl keys`, or set FEDPRIKL_HOME for the process that runs the ServerApp."
        )
    signed, pi = SignedPlan.load(settings.plan), Reference.load(home.reference)
    if not signed.is_signed_by(signed.signer):
        raise InvalidInputError(
            f"The plan {settings.plan.name} is not signed as it stands, so every client would "
            "refuse it. Sign it with `fedprikl plan --key`."
        )
    plan = signed.plan
    _check_trust(plan)
    _check_time(plan, host.now())
    roster = load_roster(plan, home)
    server = Server(signed, pi)
    signer, sealer = SigningKey.load(home.signing_key), SealingKey.load(home.sealing_key)
    with open_anchored(home.ledger, home.releases, signer.public) as ledger:
        if plan.population not in ledger.populations():
            raise InvalidInputError(
                f"The population {plan.population!r} has no budget at this aggregator. Set "
                f"one: `fedprikl ledger --population {plan.population} --set-epsilon 1`."
            )
        rng = np.random.default_rng()

        def prepare(this: Round) -> Aggregator:
            """The aggregator of a round, if its budget suffices."""
            aggregator = Aggregator(
                this,
                key=signer,
                ledger=ledger,
                software=f"fedprikl {version('fedprikl')}",
                source=host.source,
                request=settings.request,
            )
            aggregator.check_budget()
            return aggregator

        prepare(_everybody(server, plan, roster, settings.clients, rng))
        company = Company.load(home.cohorts)
        names = gather(grid, plan, roster, company, settings, host, metrics)
        identities = {node: bytes.fromhex(who) for node, who in names.items()} if roster else None
        this = server.open_round(
            list(names),
            rng=rng,
            randomness=os.urandom,
            identities=identities,
            together=company.groups(names),
        )
        _check_cohorts(this, roster)
        driver = RoundDriver(this, prepare(this), sealer)
        host.say(cohorts_line(this))
        company = company.after([names[n] for n in cohort.members] for cohort in this.cohorts)
        company.save(home.cohorts)
        try:
            for step in Step:
                answered = _step(grid, driver, this.round_id, step, settings, host, metrics)
                if step is Step.INPUT:
                    _keep(company.counting((names[n] for n in answered), plan), home, host)
            message = driver.release(at=host.now(), rng=rng)
        except ReleaseRefused as error:
            raise ReleaseRefused(f"{error}{_why(driver)}") from None
        finally:
            _keep_refusals(driver, this.round_id, home.refusals, host)
            left = ledger.account(plan.population).left
            metrics.left[plan.population] = round(left, 6)
        release = server.accept(this, message, aggregator=signer.public)
    host.say(release_line(release))  # first: it is charged, so a full disk must not lose it
    path = _write(release, home.releases)
    for outcome in driver.outcomes.values():
        if outcome.reason:
            host.say(f"[fedprikl] a cohort of {outcome.clients} was dropped: {outcome.reason}")
    host.say(f"[fedprikl] released, verified and written to {path.name}; budget left: {left:.3g}")
    return release


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


def _check_time(plan: Plan, at: str) -> None:
    if not plan.is_valid(at):
        raise InvalidInputError(
            "The plan has expired, or is not valid yet, so every client would refuse it. Nothing "
            "was asked; plan again with `fedprikl plan`."
        )


def _everybody(
    server: Server, plan: Plan, roster: Roster | None, clients: int, rng: np.random.Generator
) -> Round:
    """A round as it would be if all took part. It is never run: its budget is known before."""
    keys = [] if roster is None else sorted(roster.keys)
    names = [key.hex() for key in keys] or [str(n) for n in range(max(clients, 3 * plan.batches))]
    return server.open_round(
        names, rng=rng, randomness=os.urandom, identities=dict(zip(names, keys, strict=False))
    )


def _check_cohorts(this: Round, roster: Roster | None) -> None:
    """Says early what every client would refuse."""
    smallest = min(len(cohort.members) for cohort in this.cohorts)
    needed = 0 if roster is None else trust_of(this.plan).smallest_cohort(len(roster))
    if smallest < needed:
        raise DeploymentError(
            f"A cohort has {smallest} clients; without a trusted aggregator it needs {needed} of "
            "the roster. Wait for more SuperNodes, or plan one cohort for all (`plan --cohort`)."
        )


def _step(
    grid: Grid,
    driver: RoundDriver,
    round_id: str,
    step: Step,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
) -> set[str]:
    """Runs one step and tells how it went; who answered."""
    start = host.clock.now()
    count, answered = exchange(
        grid, driver, round_id, step, patience=settings.patience, clock=host.clock
    )
    metrics.seconds[step] = seconds = host.clock.now() - start
    metrics.lost[step] = count.lost
    metrics.refused += count.refused
    host.say(step_line(count, seconds))
    return answered


def _keep(company: Company, home: Home, host: Host) -> None:
    try:
        company.save(home.cohorts)
    except OSError as error:  # the sites know it as well: never worth a release
        host.say(f"[fedprikl] who was counted could not be written: {error.strerror}")


def _why(driver: RoundDriver) -> str:
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


def _keep_refusals(driver: RoundDriver, round_id: str, folder: Path, host: Host) -> None:
    """Writes who took no part and why, for the aggregator's own people; they never travel on."""
    if not driver.refusals:
        return
    path = folder / f"{round_id}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(driver.refusals, file, indent=1)
    except OSError as error:  # never worth a release
        host.say(f"[fedprikl] the refusals could not be written: {error.strerror}")


def _write(release: Release, folder: Path) -> Path:
    """Written whole, under the round's name."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{release.round_id}.json"
    fresh = path.with_suffix(".new")
    fresh.write_bytes(release.to_bytes() + b"\n")
    os.replace(fresh, path)
    return path
