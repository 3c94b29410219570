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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedprikl.errors import DeploymentError, FedPriKLError, InvalidInputError, ReleaseRefused
from fedprikl.federation import (
    Aggregator,
    Conductor,
    Plan,
    Release,
    RollCall,
    Roster,
    Round,
    SealingKey,
    Server,
    SignedPlan,
    SigningKey,
    Step,
    smallest_cohort,
)
from fedprikl.flower_app.anchor import open_anchored
from fedprikl.flower_app.cohorts import CohortFile, Company
from fedprikl.flower_app.exchange import Clock, call_the_roll, exchange, wait_for_nodes
from fedprikl.flower_app.metrics import RoundMetrics, write_metrics
from fedprikl.flower_app.progress import (
    cohorts_line,
    failure_line,
    printable,
    release_line,
    roll_line,
    step_line,
)
from fedprikl.flower_app.settings import Home, RoundSettings
from fedprikl.flower_app.wire import IDENTITY
from fedprikl.privacy import SECURE_NOISE, NoiseSource
from fedprikl.reference import Reference

__all__ = ["Host", "app", "run_on_flower"]

app = ServerApp()


def _print(line: str) -> None:
    print(printable(line), flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True, slots=True)
class Host:
    """What a round needs from the machine it runs on."""

    clock: Clock = field(default_factory=Clock)
    now: Callable[[], str] = _now
    say: Callable[[str], None] = _print
    source: NoiseSource = SECURE_NOISE


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
        _print(failure_line(str(error)))
        raise
    except Exception as error:
        words = f"The ServerApp failed unexpectedly ({type(error).__name__}). Please report it."
        _print(failure_line(words))
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
    roster = _load_roster(plan, home)
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
        file = CohortFile(home.cohorts)
        names, company = _clients(grid, roster, plan, settings, host, metrics, file)
        identities = {node: bytes.fromhex(who) for node, who in names.items()} if roster else None
        this = server.open_round(
            list(names),
            rng=rng,
            randomness=os.urandom,
            identities=identities,
            together=company.among(names),
        )
        _check_cohorts(this, roster)
        conductor = Conductor(this, prepare(this), sealer)
        host.say(cohorts_line(this))
        company = company.after([names[n] for n in cohort.members] for cohort in this.cohorts)
        file.save(plan.population, company)
        try:
            for step in Step:
                answered = _step(grid, conductor, this.round_id, step, settings, host, metrics)
                if step is Step.INPUT:
                    file.save(plan.population, company.counting(names[n] for n in answered))
            message = conductor.release(at=host.now(), rng=rng)
        except ReleaseRefused as error:
            raise ReleaseRefused(f"{error}{_why(conductor)}") from None
        finally:
            _keep_refusals(conductor, this.round_id, home.refusals, host)
            left = ledger.account(plan.population).left
            metrics.left[plan.population] = round(left, 6)
        release = server.accept(this, message, aggregator=signer.public)
    host.say(release_line(release))  # first: it is charged, so a full disk must not lose it
    path = _write(release, home.releases)
    for outcome in conductor.outcomes.values():
        if outcome.reason:
            host.say(f"[fedprikl] a cohort of {outcome.clients} was dropped: {outcome.reason}")
    host.say(f"[fedprikl] released, verified and written to {path.name}; budget left: {left:.3g}")
    return release


def _check_trust(plan: Plan) -> None:
    """Refuses noise in shares among strangers: whoever poses as clients would know their shares.

    Flower's node keys are registered at the relay, so they do not tell clients from the relay.
    """
    if plan.estimator == "baseline" and not plan.roster:
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


def _clients(
    grid: Grid,
    roster: Roster | None,
    plan: Plan,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
    file: CohortFile,
) -> tuple[dict[str, str], Company]:
    """The nodes to ask, with who each of them is: an identity, or itself; and what is known."""
    company = file.load(plan.population)
    needed = max(3, int((1 - plan.dropout) * settings.clients))
    if roster is not None:
        _check_countable(company.countable([k.hex() for k in roster.keys], plan.releases), needed)
    nodes = wait_for_nodes(grid, least=settings.clients, seconds=settings.wait, clock=host.clock)
    if len(nodes) < max(3, settings.clients):
        raise DeploymentError(
            f"{len(nodes)} SuperNodes are connected after {settings.wait:g} s, "
            f"{max(3, settings.clients)} are needed. Start more of them, or wait longer."
        )
    names = {node: node for node in nodes}
    if roster is None:
        _check_countable(company.countable(nodes, plan.releases), needed)
    else:
        names = _identities(grid, roster, nodes, plan, settings, host, metrics)
    left = set(company.countable(names.values(), plan.releases))
    if len(left) < len(names):
        host.say(f"[fedprikl] {len(names) - len(left)} clients were counted before, not asked")
        _check_countable(left, needed)
    return {node: who for node, who in names.items() if who in left}, company


def _check_countable(left: Collection[str], needed: int) -> None:
    """Says early what the sites' own memories would say."""
    if len(left) < needed:
        raise DeploymentError(
            f"The records of only {len(left)} clients may still be counted under this plan, "
            f"{needed} clients are needed. Nothing was asked. To count the same records again, "
            "plan with more `--releases`, and let the sites raise their own `most-counts`."
        )


def _load_roster(plan: Plan, home: Home) -> Roster | None:
    """The clients that the plan names; None if it names none."""
    if not plan.roster:
        return None
    roster = Roster.load(home.roster)
    if roster.fingerprint != plan.roster:
        raise InvalidInputError(
            f"The plan names another roster than {home.roster.name} of the aggregator's folder. "
            "Bring the one it was planned with, or plan again with `--roster`."
        )
    return roster


def _identities(
    grid: Grid,
    roster: Roster,
    nodes: Sequence[str],
    plan: Plan,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
) -> dict[str, str]:
    """The nodes that proved to be in the roster, and their public keys."""
    roll = RollCall(roster, nodes, question=os.urandom(16).hex(), dropout=plan.dropout)
    start = host.clock.now()
    call_the_roll(grid, roll, patience=settings.patience, clock=host.clock)
    metrics.seconds[IDENTITY] = seconds = host.clock.now() - start
    metrics.lost[IDENTITY] = roll.left_out
    host.say(roll_line(roll, seconds))
    needed = max(3, int((1 - plan.dropout) * settings.clients))
    if len(roll.identities) < needed:
        raise DeploymentError(
            f"{len(roll.identities)} of {len(nodes)} SuperNodes proved an identity of the roster, "
            f"{needed} are needed. The others have none (`fedprikl keys --site`), one that the "
            "roster does not know, or did not answer. Nothing was asked."
        )
    return {node: key.hex() for node, key in roll.identities.items()}


def _check_cohorts(this: Round, roster: Roster | None) -> None:
    """Says early what every client would refuse."""
    smallest = min(len(cohort.members) for cohort in this.cohorts)
    needed = 0 if roster is None else smallest_cohort(this.plan, len(roster))
    if smallest < needed:
        raise DeploymentError(
            f"A cohort has {smallest} clients; without a trusted aggregator it needs {needed} of "
            "the roster. Wait for more SuperNodes, or plan one cohort for all (`plan --cohort`)."
        )


def _step(
    grid: Grid,
    conductor: Conductor,
    round_id: str,
    step: Step,
    settings: RoundSettings,
    host: Host,
    metrics: RoundMetrics,
) -> set[str]:
    """Runs one step and tells how it went; who answered."""
    start = host.clock.now()
    count, answered = exchange(
        grid, conductor, round_id, step, patience=settings.patience, clock=host.clock
    )
    metrics.seconds[step] = seconds = host.clock.now() - start
    metrics.lost[step] = count.lost
    metrics.refused += count.refused
    host.say(step_line(count, seconds))
    return answered


def _why(conductor: Conductor) -> str:
    """What people need to know when nothing was released. Public: the relay stores it.

    Of the refusals that were sealed only the number, as their words may depend on records.
    """
    reasons = [outcome.reason for outcome in conductor.outcomes.values() if outcome.reason]
    words = f" The first cohort ended because: {reasons[0]}" if reasons else ""
    refusals, sealed = conductor.refusals, len(conductor.confided)
    if refusals:
        words += f" {len(refusals)} clients took no part"
        told = (why for client, why in refusals.items() if client not in conductor.confided)
        first = next(told, "")
        words += f", the first because: {first}." if first else "."
    if sealed:
        words += f" {sealed} of the reasons are in the aggregator's folder."
    return words


def _keep_refusals(conductor: Conductor, round_id: str, folder: Path, host: Host) -> None:
    """Writes who took no part and why, for the aggregator's own people; they never travel on."""
    if not conductor.refusals:
        return
    path = folder / f"{round_id}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(conductor.refusals, file, indent=1)
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
