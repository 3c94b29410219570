"""A round at the aggregator's host, over whatever network its sites are on.

    1. load the plan, the reference, the two keys and the ledger from the home folder; refuse what
       can be known to fail: an expired plan, a spent budget, clients that were all counted before,
       another run of the same plan that is under way.
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
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version

import numpy as np

from fedprikl.deployment.company import Company
from fedprikl.deployment.gathering import gather, load_roster
from fedprikl.deployment.host import Host
from fedprikl.deployment.host_checks import (
    check_account,
    check_cohorts,
    check_time,
    check_wanted,
    load_plan,
    rehearse,
)
from fedprikl.deployment.host_files import keep_refusals, refusals_in_words, write_release
from fedprikl.deployment.ledger_anchor import open_anchored
from fedprikl.deployment.metrics import RoundMetrics, write_metrics
from fedprikl.deployment.network import Network
from fedprikl.deployment.period_runs import alone, check_period, find_release
from fedprikl.deployment.progress import (
    cohorts_line,
    not_counted_line,
    release_line,
    step_line,
)
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.deployment.turns import turn
from fedprikl.errors import DeploymentError, ReleaseRefused
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
)
from fedprikl.reference import Reference

__all__ = ["host_round"]


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
        with turn(home.cohorts):  # rounds at the same time deal the same people alike
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
        with turn(home.cohorts):
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
