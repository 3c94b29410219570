"""The periods of a series: what is due is counted once, judged once, and kept in the history."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from fedprikl.documents import canonical, read_fields, to_plain
from fedprikl.errors import FedPriKLError, HistoryDamagedError, HistoryError
from fedprikl.estimation import Answer, CountedView, answers_from_counts, sum_counts
from fedprikl.monitoring.alarms import Alarm, FindableInSeries, JudgedPeriod, after_people
from fedprikl.monitoring.history import History, SeriesHistory
from fedprikl.monitoring.monitored_views import (
    MonitoredView,
    PeriodCounts,
    counts_of,
    monitored_views,
)
from fedprikl.monitoring.null_series import ViewNull
from fedprikl.monitoring.sequential import judge_series
from fedprikl.monitoring.status import (
    BudgetFacts,
    PeriodPoint,
    SeriesStatus,
    SiteHealth,
    WindowFacts,
)
from fedprikl.privacy import Account
from fedprikl.protocol import Plan, Release, SignedPlan
from fedprikl.reference import Reference
from fedprikl.store import locked


class PeriodRunner(Protocol):
    """Counts one period, wherever the clients are."""

    def recover(self, history: History, *, at: str) -> None:
        """Settles rounds that were begun and never ended."""
        ...

    def run(self, history: History, number: int, *, previous: str, at: str) -> None:
        """Counts a period and keeps its release, or the reason why there will never be one.

        An error means that it is still due, and that nothing was lost.
        """
        ...


def run_due(
    path: Path,
    signed: SignedPlan,
    reference: Reference,
    runner: PeriodRunner,
    *,
    signer: str,
    at: str,
    note: Callable[[str], None],
    after: Callable[[], None] = lambda: None,
) -> tuple[int, ...]:
    """Counts every period that is over and not yet in the history; the numbers of those.

    Where something is due, `after` is called before the first period and after each: what is known
    by then can be shown, whatever becomes of the others.
    """
    with locked(path, timeout=0, error=HistoryError) as alone:
        if not alone:
            note("Another process is at work on this series; nothing was done here.")
            return ()
        with History.open(path) as history:
            history.start(signed, signer=signer, at=at)
            runner.recover(history, at=at)
            keep_findings(history, reference, at=at)
            due = history.read().due(at)
            if due:  # before anything is charged
                history.check_documents()
                after()
            for number in due:
                last = history.read().last
                previous = "" if last is None else last.release
                runner.run(history, number, previous=previous, at=at)
                keep_findings(history, reference, at=at)
                after()
            return tuple(due)


def keep_findings(history: History, reference: Reference, *, at: str) -> None:
    """Judges every release that is not judged yet, and keeps what was found.

    Anybody who has the releases and the reference can repeat it. Cost: all releases are read; and
    seconds for thresholds that were not simulated before. What was simulated is kept, too.
    """
    found = history.read()
    plan, todo = found.plan, sorted(found.kept.keys() - found.judged.keys())
    if not todo:
        return
    releases, views = history.releases(), monitored_views(plan, reference)
    counts = {n: counts_of(release, plan, reference, n) for n, release in sorted(releases.items())}
    said = {
        number: {view.name: view for view in read_point(kept).views}
        for number, kept in found.judged.items()
    }
    simulated = _simulated(found)
    kept_before = set(simulated)
    verdict = judge_series(
        views,
        list(counts.values()),
        false_alarm=plan.verdict.false_alarm,
        per_year=plan.series.per_year,
        horizon=plan.series.periods,
        rebaselined=found.rebaselined,
        said=said,
        simulated=simulated,
    )
    judged = {each.period: each for each in verdict.judged}
    for number in todo:
        release, period = releases[number], counts[number]
        sizes = [
            _said_sizes(plan, release, view, str(period.views[place].noise[0]))
            or sizes_of(view, [period], place)
            for place, view in enumerate(views)
        ]
        point = _point(release, judged[number], plan, sizes)
        body = {"point": to_plain(point), "privacy": str(release.privacy)}
        if number == todo[-1]:
            # As text what is long: whoever does not need it passes over it.
            windows = to_plain(window_values(views, list(counts.values())))
            fresh = {name: to_plain(simulated[name]) for name in simulated.keys() - kept_before}
            body |= {"simulated": canonical(fresh).decode()} if fresh else {}
            body |= {
                "windows": canonical(windows).decode(),
                "alarms": to_plain(verdict.alarms),
                "findable": to_plain(verdict.findable),
            }
        history.judge(number, body, at=at)


def _simulated(found: SeriesHistory) -> dict[str, ViewNull]:
    """The laws without drift that the history has kept, by the digests of their cases."""
    with _readable():
        texts = [each["simulated"] for each in found.judged.values() if "simulated" in each]
        return {digest: null for text in texts for digest, null in _laws(text).items()}


@lru_cache(maxsize=256)  # also for whatever is computed from them, once for each of these objects
def _laws(text: str) -> dict[str, ViewNull]:
    return {digest: ViewNull.from_dict(each) for digest, each in json.loads(text).items()}


def _said_sizes(
    plan: Plan, release: Release, view: MonitoredView, noise: str
) -> tuple[Answer, ...]:
    """What a release says about a column, where `sizes_of` would say the same; else nothing.

    It would not if values with noise of their own were released too. With a design effect, what no
    drift gives is computed in another way.
    """
    counts_alone = {each.release for each in plan.about_columns} == {"counts"}
    if plan.verdict.design_effect is not None or not counts_alone:
        return ()
    about = [each.answers for each in release.columns if each.name == view.name]
    said = {each.target: replace(each, mechanism=noise) for answers in about for each in answers}
    wanted = [score.target for score in view.scores]
    return tuple(said[target] for target in wanted) if said.keys() >= set(wanted) else ()


def window_values(
    views: Sequence[MonitoredView],
    periods: Sequence[PeriodCounts],
    lengths: Sequence[int] = (4, 13, 52),
) -> tuple[WindowFacts, ...]:
    """How large the drift of the last 4, 13 and 52 counted periods is, each taken together.

    Post-processing of public noisy counts: it costs no privacy. Windows longer than the series so
    far are left out. Cost: 30 ms for a divergence of 12 cells.

    >>> from fedprikl.estimation import CountNoise, NoisyCounts
    >>> from fedprikl.reference import Reference
    >>> seen = NoisyCounts.of([600.0, 300.0, 100.0, 0.0], [1000], [CountNoise(sd=3.0)])
    >>> weeks = [PeriodCounts(number=n, records=1000, clients=9, views=(seen,)) for n in (0, 1)]
    >>> view = MonitoredView.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> (found,) = window_values([view], weeks, lengths=(2, 4))
    >>> found.first, found.last, found.records
    (0, 1, 2000)
    >>> [(size.divergence, round(size.value, 2)) for size in found.sizes]
    [('kl', 0.05), ('tv', 0.1), ('js', 0.01)]
    """
    return tuple(
        WindowFacts(
            name=view.name,
            length=length,
            first=periods[-length].number,
            last=periods[-1].number,
            records=sum(period.records for period in periods[-length:]),
            sizes=sizes_of(view, periods[-length:], place),
        )
        for length in lengths
        if 1 <= length <= len(periods)
        for place, view in enumerate(views)
    )


def sizes_of(
    view: MonitoredView, periods: Sequence[PeriodCounts], place: int
) -> tuple[Answer, ...]:
    """The divergences of a view over some periods together; it stands at this place in each.

    Without drift, clients that stay the same differ from the reference by as much in many periods
    as in one.
    """
    noisy = sum_counts([period.views[place] for period in periods])
    records = round(noisy.records[0] / len(periods))
    clients = max(round(sum(period.clients for period in periods) / len(periods)), 1)
    spread, noise = view.spread_at(records, clients), str(noisy.noise[0])
    counted = CountedView(view.points, noisy, spread)
    return answers_from_counts(counted, view.scores, mechanism=noise)


def _point(
    release: Release, judged: JudgedPeriod, plan: Plan, sizes: Sequence[tuple[Answer, ...]]
) -> PeriodPoint:
    """One period, as pages show it; its views and their sizes are in the order of the views."""
    number = judged.period
    times = plan.series.period(number).times
    views = tuple(replace(v, sizes=s) for v, s in zip(judged.views, sizes, strict=True))
    return PeriodPoint(
        number=number,
        start=times.start,
        end=times.end,
        state="released",
        released_at=release.released_at,
        release=release.fingerprint,
        records=release.records,
        clients=sum(cohort.included for cohort in release.cohorts),
        threshold=judged.threshold,
        cumulative_threshold=judged.cumulative_threshold,
        exceeds=judged.exceeds,
        whole=views[0] if plan.points else None,
        columns=views[1:] if plan.points else views,
    )


def read_point(found: Mapping[str, Any]) -> PeriodPoint:
    """What was kept about a period."""
    with _readable():
        return read_fields(PeriodPoint, found["point"])


@contextmanager
def _readable() -> Iterator[None]:
    """What is not of the shape that it was written in is damage."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, FedPriKLError):
        raise HistoryDamagedError(
            "What was kept about a period makes no sense, though its hash is right: it was not "
            "written by this software. Restore a copy of the history."
        ) from None


def status_of(found: SeriesHistory, account: Account | None, *, at: str) -> SeriesStatus:
    """What the page, the metrics and the hooks show. Cost: a fraction of a second for years."""
    plan, series = found.plan, found.plan.series
    # What was released stays in sight, also if the clock of this machine is behind.
    over = max(series.last_over(at), *found.kept, *found.missed, -1)
    windows, alarms, findable = _newest(found)
    ahead = over + 1 < series.periods
    privacy = found.judged[max(found.judged)].get("privacy", "") if found.judged else ""
    return replace(
        _empty(plan, found.signer, at),
        points=tuple(_status_point(found, n, over) for n in range(over + 1 + ahead)),
        windows=windows,
        alarms=after_people(alarms, found.acknowledged, found.rebaselined),
        findable=findable,
        budget=None if account is None else BudgetFacts.of(account),
        sites=_sites(found),
        privacy=str(privacy),
        next_due=series.period(over + 1).end.isoformat() if ahead else "",
        last_success="" if found.last is None else found.last.at,
    )


def broken_status(plan: Plan, fault: str, *, at: str) -> SeriesStatus:
    """Of a history that cannot be read: what is wrong with it."""
    return replace(_empty(plan, "", at), faults=(fault,))


def _empty(plan: Plan, signer: str, at: str) -> SeriesStatus:
    return SeriesStatus(
        population=plan.population,
        every=plan.series.every,
        trust=plan.trust,
        plan=plan.fingerprint,
        reference=plan.reference,
        signer=signer,
        false_alarm=plan.verdict.false_alarm,
        tolerate=plan.verdict.tolerate,
        tolerate_columns=plan.verdict.tolerate_columns,
        at=at,
        points=(),
    )


def _status_point(found: SeriesHistory, number: int, over: int) -> PeriodPoint:
    if number in found.judged:
        return read_point(found.judged[number])
    times = found.plan.series.period(number).times
    empty = PeriodPoint(number=number, start=times.start, end=times.end, state="due")
    if number in found.missed:
        return replace(empty, state="missed", reason=found.missed[number])
    if number in found.kept:  # the process ended before it was judged
        kept = found.kept[number]
        return replace(empty, state="released", released_at=kept.at, release=kept.release)
    return empty if number <= over else replace(empty, state="ahead")


def _newest(
    found: SeriesHistory,
) -> tuple[tuple[WindowFacts, ...], tuple[Alarm, ...], FindableInSeries | None]:
    """Windows, alarms and what could be found, as they were found last."""
    with _readable():
        for number in sorted(found.judged, reverse=True):
            last = found.judged[number]
            if "alarms" in last:
                windows = [read_fields(WindowFacts, each) for each in json.loads(last["windows"])]
                alarms = [read_fields(Alarm, each) for each in last["alarms"]]
                could = last.get("findable")  # histories of earlier versions do not say
                findable = None if could is None else read_fields(FindableInSeries, could)
                return tuple(windows), tuple(alarms), findable
    return (), (), None


def _sites(found: SeriesHistory) -> tuple[SiteHealth, ...]:
    kept = [found.kept[number] for number in sorted(found.kept)]
    asked = Counter(name for each in kept for name in each.asked)
    answered = Counter(name for each in kept for name in each.answered)
    last = {name: each.period for each in kept for name in each.answered}
    return tuple(
        SiteHealth(name=name, asked=times, answered=answered[name], last=last.get(name))
        for name, times in sorted(asked.items())
    )
