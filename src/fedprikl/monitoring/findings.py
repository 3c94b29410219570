"""What the releases of a series say, computed once and kept in its history."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fedprikl.documents import canonical, read_fields, to_plain
from fedprikl.errors import FedPriKLError, HistoryDamagedError
from fedprikl.estimation import Answer, answers_from_counts, sum_counts
from fedprikl.monitoring.alarms import JudgedChannel, JudgedPeriod, SeriesVerdict
from fedprikl.monitoring.channels import Channel, PeriodCounts, channels_of, counts_of
from fedprikl.monitoring.history import History, SeriesHistory
from fedprikl.monitoring.sequential import judge_series
from fedprikl.monitoring.status import (
    AlarmFacts,
    BudgetFacts,
    ColumnPoint,
    PeriodPoint,
    SeriesStatus,
    SiteHealth,
    WindowFacts,
)
from fedprikl.privacy import Account
from fedprikl.protocol import Plan, Release
from fedprikl.reference import Reference


def window_values(
    channels: Sequence[Channel],
    periods: Sequence[PeriodCounts],
    lengths: Sequence[int] = (4, 13, 52),
) -> tuple[WindowFacts, ...]:
    """How large the drift of the last 4, 13 and 52 counted periods is, each taken together.

    Post-processing of public noisy counts: it costs no privacy. Windows longer than the series so
    far are left out. Cost: 30 ms for a divergence of 12 cells.

    >>> from fedprikl.estimation import CountNoise, NoisyCounts
    >>> from fedprikl.reference import Reference
    >>> seen = NoisyCounts.of([600.0, 300.0, 100.0, 0.0], [1000], [CountNoise(sd=3.0)])
    >>> weeks = [PeriodCounts(number=n, records=1000, clients=9, channels=(seen,)) for n in (0, 1)]
    >>> channel = Channel.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> (found,) = window_values([channel], weeks, lengths=(2, 4))
    >>> found.first, found.last, found.records
    (0, 1, 2000)
    >>> [(size.divergence, round(size.value, 2)) for size in found.sizes]
    [('kl', 0.05), ('tv', 0.1), ('js', 0.01)]
    """
    return tuple(
        WindowFacts(
            name=channel.name,
            length=length,
            first=periods[-length].number,
            last=periods[-1].number,
            records=sum(period.records for period in periods[-length:]),
            sizes=sizes_of(channel, periods[-length:], place),
        )
        for length in lengths
        if 1 <= length <= len(periods)
        for place, channel in enumerate(channels)
    )


def sizes_of(channel: Channel, periods: Sequence[PeriodCounts], place: int) -> tuple[Answer, ...]:
    """The divergences of a channel over some periods together; it stands at this place in each.

    Without drift, clients that stay the same differ from the reference by as much in many periods
    as in one.
    """
    noisy = sum_counts([period.channels[place] for period in periods])
    records = round(noisy.records[0] / len(periods))
    clients = max(round(sum(period.clients for period in periods) / len(periods)), 1)
    spread, noise = channel.spread_at(records, clients), str(noisy.noise[0])
    return answers_from_counts(channel.points, noisy, spread, channel.scores, mechanism=noise)


def keep_findings(history: History, reference: Reference, *, at: str) -> None:
    """Judges every release that is not judged yet, and keeps what was found.

    Cost: all releases are read; the first time, thresholds are simulated (seconds).
    """
    found = history.read()
    todo = [period for period in sorted(found.kept) if period not in found.judged]
    if not todo:
        return
    releases = history.releases()
    verdict, windows = find_series(found, releases, reference)
    channels = channels_of(found.plan, reference)
    judged = {each.period: each for each in verdict.judged}
    for period in todo:
        last = period == todo[-1]
        body: dict[str, Any] = {
            "point": to_plain(
                _point(
                    releases[period],
                    judged[period],
                    found.plan,
                    _sizes(channels, counts_of(releases[period], found.plan, reference, period)),
                )
            ),
            "privacy": str(releases[period].privacy),
        }
        if last:
            # Windows as text: those of the last period are read, the many before are passed over.
            text = canonical(to_plain(windows)).decode()
            body |= {"windows": text, "alarms": to_plain(verdict.alarms)}
        history.judge(period, body, at=at)


def find_series(
    found: SeriesHistory, releases: Mapping[int, Release], reference: Reference
) -> tuple[SeriesVerdict, tuple[WindowFacts, ...]]:
    """The verdict on the series and its windows, from all its releases: anybody can repeat it."""
    plan, series = found.plan, found.plan.series
    channels = channels_of(plan, reference)
    periods = [counts_of(release, plan, reference, n) for n, release in sorted(releases.items())]
    with _readable():
        said = {number: _said(kept) for number, kept in found.judged.items()}
    verdict = judge_series(
        channels,
        periods,
        false_alarm=plan.verdict.false_alarm,
        per_year=series.per_year,
        horizon=series.periods,
        rebaselined=found.rebaselined,
        acknowledged=[(each.alarm, each.at, each.note) for each in found.acknowledged],
        said=said,
    )
    return verdict, window_values(channels, periods)


def _said(found: Mapping[str, Any]) -> dict[str, JudgedChannel]:
    """The channels of a period as they were judged when it was counted."""
    kept = found["point"]
    whole = [kept | {"name": ""}] if kept["statistic"] is not None else []
    limits = kept["threshold"], kept["cumulative_threshold"]
    return {each["name"]: _said_of(each, *limits) for each in (*whole, *kept["columns"])}


def _said_of(kept: Mapping[str, Any], alone: float, over: float) -> JudgedChannel:
    period_exceeds = kept["statistic"] > alone
    window_exceeds = kept["cumulative"] is not None and kept["cumulative"] > over
    return JudgedChannel(
        name=kept["name"],
        statistic=kept["statistic"],
        cumulative=kept["cumulative"],
        window=kept["window"],
        period_exceeds=period_exceeds,
        cumulative_exceeds=window_exceeds,
        shortest=1 if period_exceeds else kept["window"] * window_exceeds,  # the loudest stands in
    )


def _sizes(channels: Sequence[Channel], counts: PeriodCounts) -> dict[str, tuple[Answer, ...]]:
    """How large the drift of one period is, in every channel."""
    return {
        channel.name: sizes_of(channel, [counts], place) for place, channel in enumerate(channels)
    }


def _point(
    release: Release, judged: JudgedPeriod, plan: Plan, sizes: Mapping[str, tuple[Answer, ...]]
) -> PeriodPoint:
    """One period, as pages show it."""
    place, series = release.period, plan.series
    assert place is not None  # noqa: S101  a release of a series
    by_name = {channel.name: channel for channel in judged.channels}
    whole, times = by_name.get(""), series.period(place.number).times
    return PeriodPoint(
        number=place.number,
        start=times.start,
        end=times.end,
        state="released",
        released_at=release.released_at,
        release=release.fingerprint,
        records=release.records,
        clients=sum(cohort.included for cohort in release.cohorts),
        sizes=sizes.get("", ()),
        statistic=None if whole is None else whole.statistic,
        cumulative=None if whole is None else whole.cumulative,
        window=0 if whole is None else whole.window,
        threshold=judged.threshold,
        cumulative_threshold=judged.cumulative_threshold,
        exceeds=judged.exceeds,
        columns=tuple(
            _column(by_name[column.name], sizes[column.name]) for column in release.columns
        ),
    )


def _column(judged: JudgedChannel, sizes: tuple[Answer, ...]) -> ColumnPoint:
    return ColumnPoint(
        name=judged.name,
        statistic=judged.statistic,
        cumulative=judged.cumulative,
        window=judged.window,
        exceeds=judged.exceeds,
        sizes=sizes,
    )


def read_point(found: Mapping[str, Any]) -> PeriodPoint:
    """What was kept about a period.

    The columns of many years are tens of thousands: they are taken as they were written, under the
    hashes of the history, and not checked field by field.
    """
    with _readable():
        content = found["point"]
        point = read_fields(PeriodPoint, content | {"columns": []})
        columns = [
            ColumnPoint(**column | {"sizes": tuple(map(_read_size, column["sizes"]))})
            for column in content["columns"]
        ]
        return replace(point, columns=tuple(columns))


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


def _read_size(size: dict[str, Any]) -> Answer:
    limits = size["interval"]
    return Answer(**size | {"interval": None if limits is None else (limits[0], limits[1])})


def read_windows(found: Mapping[str, Any]) -> tuple[WindowFacts, ...]:
    """The windows that ended with it."""
    with _readable():
        return tuple(read_fields(WindowFacts, each) for each in json.loads(found["windows"]))


def read_alarms(found: Mapping[str, Any]) -> tuple[AlarmFacts, ...]:
    """All alarms of the series up to it."""
    with _readable():
        return tuple(read_fields(AlarmFacts, each) for each in found.get("alarms", ()))


def status_of(found: SeriesHistory, account: Account | None, *, at: str) -> SeriesStatus:
    """What the page, the metrics and the hooks show. Cost: a fraction of a second for years."""
    plan, series = found.plan, found.plan.series
    # What was released stays in sight, also if the clock of this machine is behind.
    over = max(series.last_over(at), *found.kept, *found.missed, -1)
    windows, alarms = _newest(found)
    ahead = over + 1 < series.periods
    return replace(
        _empty(plan, found.signer, at),
        points=tuple(_status_point(found, n, over) for n in range(over + 1 + ahead)),
        windows=windows,
        alarms=_as_told(alarms, found),
        budget=None if account is None else _budget(account),
        sites=_sites(found),
        privacy=_privacy(found),
        next_due=series.period(over + 1).end.isoformat() if ahead else "",
        last_success="" if found.last is None else found.last.at,
    )


def broken_status(plan: Plan, signer: str, faults: Iterable[str], *, at: str) -> SeriesStatus:
    """Of a history that cannot be read: what is wrong with it."""
    return replace(_empty(plan, signer, at), faults=tuple(faults))


def _empty(plan: Plan, signer: str, at: str) -> SeriesStatus:
    return SeriesStatus(
        population=plan.population,
        every=plan.series.every,
        trust=plan.trust,
        plan=plan.fingerprint,
        reference=plan.reference,
        signer=signer,
        false_alarm=plan.verdict.false_alarm,
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


def _newest(found: SeriesHistory) -> tuple[tuple[WindowFacts, ...], tuple[AlarmFacts, ...]]:
    """Windows and alarms as they were found last."""
    for number in sorted(found.judged, reverse=True):
        if "alarms" in found.judged[number]:
            return read_windows(found.judged[number]), read_alarms(found.judged[number])
    return (), ()


def _as_told(alarms: Iterable[AlarmFacts], found: SeriesHistory) -> tuple[AlarmFacts, ...]:
    """With what people did about them since."""
    told = {each.alarm: each for each in found.acknowledged}
    accepted = max((last for _, last in found.rebaselined), default=-1)
    seen = []
    for alarm in alarms:
        if alarm.number in told:
            said = told[alarm.number]
            state = "acknowledged" if alarm.state == "open" else alarm.state
            alarm = replace(alarm, state=state, acknowledged_at=said.at, note=said.note)
        if alarm.raised <= accepted and alarm.state in ("open", "acknowledged"):
            alarm = replace(alarm, state="rebaselined")
        seen.append(alarm)
    return tuple(seen)


def _budget(account: Account) -> BudgetFacts:
    spent = account.spent
    return BudgetFacts(
        epsilon=account.epsilon,
        delta=account.delta,
        spent=spent,
        left=max(account.epsilon - spent, 0.0),
        unit=account.unit,
    )


def _sites(found: SeriesHistory) -> tuple[SiteHealth, ...]:
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    last: dict[str, int] = {}
    for number in sorted(found.kept):
        kept = found.kept[number]
        for name in kept.asked:
            asked[name] = asked.get(name, 0) + 1
        for name in kept.answered:
            answered[name] = answered.get(name, 0) + 1
            last[name] = number
    return tuple(
        SiteHealth(name=name, asked=times, answered=answered.get(name, 0), last=last.get(name))
        for name, times in sorted(asked.items())
    )


def _privacy(found: SeriesHistory) -> str:
    if not found.judged:
        return ""
    return str(found.judged[max(found.judged)].get("privacy", ""))
