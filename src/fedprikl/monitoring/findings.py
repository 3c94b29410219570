"""What the releases of a series say, computed once and kept in its history."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fedprikl.documents import canonical
from fedprikl.errors import FedPriKLError, HistoryDamagedError
from fedprikl.monitoring.channels import Channel, channels_of
from fedprikl.monitoring.history import History, SeriesHistory
from fedprikl.monitoring.judged_periods import JudgedChannel, JudgedPeriod, SeriesVerdict
from fedprikl.monitoring.period_counts import PeriodCounts, counts_of
from fedprikl.monitoring.sequential import judge_series
from fedprikl.monitoring.status import AlarmFacts, ColumnPoint, PeriodPoint, Size, WindowFacts
from fedprikl.monitoring.windows import sizes_of, window_values
from fedprikl.protocol import Plan, Release
from fedprikl.reference import Reference
from fedprikl.shapes import read_fields, to_plain

__all__ = ["find_series", "keep_findings", "read_alarms", "read_point", "read_windows"]


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
    assert series is not None  # noqa: S101  a history is of a series
    channels = channels_of(plan, reference)
    periods = [counts_of(release, plan, reference, n) for n, release in sorted(releases.items())]
    with _readable():
        said = {number: _said(kept) for number, kept in found.judged.items()}
    verdict = judge_series(
        channels,
        periods,
        false_alarm=plan.false_alarm,
        per_year=series.per_year,
        horizon=series.periods,
        rebaselined=found.rebaselined,
        acknowledged=[(int(e["alarm"]), e["at"], e["note"]) for e in found.acknowledged],
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
    period_speaks = kept["statistic"] > alone
    window_speaks = kept["cumulative"] is not None and kept["cumulative"] > over
    return JudgedChannel(
        name=kept["name"],
        statistic=kept["statistic"],
        cumulative=kept["cumulative"],
        window=kept["window"],
        period_speaks=period_speaks,
        cumulative_speaks=window_speaks,
        shortest=1 if period_speaks else kept["window"] * window_speaks,  # the loudest stands in
    )


def _sizes(channels: Sequence[Channel], counts: PeriodCounts) -> dict[str, tuple[Size, ...]]:
    """How large the drift of one period is, in every channel."""
    return {
        channel.name: sizes_of(channel, [counts], place) for place, channel in enumerate(channels)
    }


def _point(
    release: Release, judged: JudgedPeriod, plan: Plan, sizes: Mapping[str, tuple[Size, ...]]
) -> PeriodPoint:
    """One period, as pages show it."""
    place, series = release.period, plan.series
    assert place is not None and series is not None  # noqa: S101, PT018  a release of a series
    by_name = {channel.name: channel for channel in judged.channels}
    whole, span = by_name.get(""), series.period(place.number).span
    return PeriodPoint(
        number=place.number,
        start=span.start,
        end=span.end,
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
        speaks=judged.speaks,
        columns=tuple(
            _column(by_name[column.name], sizes[column.name]) for column in release.columns
        ),
    )


def _column(judged: JudgedChannel, sizes: tuple[Size, ...]) -> ColumnPoint:
    return ColumnPoint(
        name=judged.name,
        statistic=judged.statistic,
        cumulative=judged.cumulative,
        window=judged.window,
        speaks=judged.speaks,
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


def _read_size(size: dict[str, Any]) -> Size:
    limits = size["interval"]
    return Size(**size | {"interval": None if limits is None else (limits[0], limits[1])})


def read_windows(found: Mapping[str, Any]) -> tuple[WindowFacts, ...]:
    """The windows that ended with it."""
    with _readable():
        return tuple(read_fields(WindowFacts, each) for each in json.loads(found["windows"]))


def read_alarms(found: Mapping[str, Any]) -> tuple[AlarmFacts, ...]:
    """All alarms of the series up to it."""
    with _readable():
        alarms = found.get("alarms", ())  # those of older versions say no `until`
        return tuple(read_fields(AlarmFacts, {"until": None} | dict(each)) for each in alarms)
