"""Sequential alarms: one false-alarm rate per year for all periods, windows and views.

Every view is tested in every period twice: the period alone, and the longer windows that end
with it (a scan). All statistics are put on one scale, how rare they are without drift
(`null_series.py`), and share two thresholds, one for each test. Everything is computed from public
noisy counts with a fixed seed, so anybody who has the releases finds the same alarms, but for
statistics that lie on their threshold to within the rounding of the processor.
"""

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_false_alarm, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts, sum_counts
from fedprikl.estimation.noisy_counts import project_counts
from fedprikl.estimation.verdict import least_depth
from fedprikl.monitoring.alarms import (
    FindableInSeries,
    JudgedPeriod,
    JudgedView,
    SeriesVerdict,
    Trace,
    follow_alarms,
)
from fedprikl.monitoring.findable_series import findable_in_series
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts
from fedprikl.monitoring.null_series import (
    LENGTHS,
    Nominal,
    NullCase,
    ViewNull,
    WindowStatistic,
    nominal_of,
    normal_deviate,
    null_cases,
    simulate_null,
    simulation_error,
    total_variation,
)
from fedprikl.reference import QueryPoints, Spread

Range = tuple[int, int]  # first and last period
Simulated = MutableMapping[str, ViewNull]  # by the digest of their case

LEAST = 0.5  # records in a cell: none may be impossible
HALVINGS = 30


def baseline_of(
    views: Sequence[MonitoredView], periods: Sequence[PeriodCounts]
) -> tuple[MonitoredView, ...]:
    """The views with the shares of these periods, made from their noisy counts, as Pi.

    Their sampling and their noise make the new Pi uncertain, by a variance of
    (noise^2 + h) / h^2 of P / Pi in a cell of h records.

    >>> from fedprikl.estimation import CountNoise, NoisyCounts
    >>> from fedprikl.reference import Reference
    >>> view = MonitoredView.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> seen = NoisyCounts.of([600.0, 300.0, 100.0, 0.0], [1000], [CountNoise(sd=10.0)])
    >>> week = PeriodCounts(number=3, records=1000, clients=10, views=(seen,))
    >>> (found,) = baseline_of([view], [week])
    >>> found.pi.round(2).tolist(), found.error.round(4).tolist()
    ([0.6, 0.3, 0.1], [0.0019, 0.0044, 0.02, 0.0001])
    """
    if not periods:
        raise InvalidInputError("A baseline needs at least one counted period.")
    seen = zip(*(period.views for period in periods), strict=True)
    return tuple(
        _baseline(view, sum_counts(counts)) for view, counts in zip(views, seen, strict=True)
    )


def _baseline(view: MonitoredView, seen: NoisyCounts) -> MonitoredView:
    noise, (records,) = seen.noise[0].sd ** 2, seen.records
    counts = project_counts(seen.numbers, records)
    held = np.maximum(counts, LEAST)
    held[-1] = counts[-1]  # the out-of-domain count may well be 0
    pi = held / held.sum()
    error = np.append((noise + held[:-1]) / held[:-1] ** 2, (noise + held[-1]) / records**2)
    spread = view.spread
    if isinstance(spread, Spread):  # the reference's own error is not part of it any more
        spread = replace(spread, counted=0, discount=0.0, seen=())
    whole = np.zeros(max(int(view.points.cells.max()) + 2, len(pi)))
    whole[view.points.cells], whole[-1] = pi[:-1], pi[-1]
    points = QueryPoints.build(
        whole, cells=view.points.cells, batch=view.points.batch, weights=pi[:-1]
    )
    ranked = view.pi if view.ranked is None else view.ranked
    return replace(view, points=points, spread=spread, error=error, ranked=ranked)


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """Running sums of one view over the periods of a segment, from 0 periods to all."""

    view: MonitoredView
    counts: Floats  # (periods + 1, cells + 1)
    sizes: Floats  # (periods + 1, 4): records, clients, variance and fourth cumulant of the noise

    @classmethod
    def of(cls, view: MonitoredView, place: int, periods: Sequence[PeriodCounts]) -> "Watched":
        """The view that stands at this place in every period."""
        counts: list[Sequence[float]] = [np.zeros(len(view.points) + 1).tolist()]
        sizes: list[Sequence[float]] = [(0.0, 0.0, 0.0, 0.0)]
        for period in periods:
            seen = period.views[place]
            noise = seen.noise[0].sd ** 2, seen.noise[0].fourth_cumulant
            counts.append(seen.numbers)
            sizes.append((period.records, period.clients, *noise))
        return cls(view, np.cumsum(counts, axis=0), np.cumsum(sizes, axis=0))

    def statistics(self, first: Sequence[int] | Ints, last: Sequence[int] | Ints) -> Floats:
        """z of windows from period `first` to `last` of the segment, both included.

        One row for each grouping, one column for each window.
        """
        start, end = np.asarray(first), np.asarray(last) + 1
        length = end - start
        counts = self.counts[end] - self.counts[start]
        records, clients, noise, fourth = (self.sizes[end] - self.sizes[start]).T
        # Windows of the same size have the same law; running sums differ in the last digits.
        sizes = np.column_stack([records, records / length, clients / length, noise, fourth])
        distinct, which = np.unique(sizes.round(6), axis=0, return_inverse=True)
        shares, lasting = self.view.shares, self.view.lasting(*distinct[:, 1:3].T)
        found = []
        for grouping in self.view.groupings:
            law = WindowStatistic.of(
                grouping,
                shares,
                lasting,
                records=distinct[:, 0],
                noise=distinct[:, 3],
                fourth=distinct[:, 4],
            )
            law = law.take(which.ravel())
            found.append(law(grouping.real(counts, law.mean, law.variance)))
        return np.array(found)

    def variations(self, first: Ints, last: Ints) -> Floats:
        """The total variation of windows, with what noise and sampling add to it."""
        counts = self.counts[last + 1] - self.counts[first]
        records = self.sizes[last + 1, 0] - self.sizes[first, 0]
        return total_variation(counts, self.view.shares, records)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Periods that are judged against one baseline: None is the reference."""

    baseline: Range | None
    periods: Sequence[PeriodCounts]
    views: Sequence[Watched]


def judge_series(
    views: Sequence[MonitoredView],
    periods: Sequence[PeriodCounts],
    *,
    false_alarm: float,
    per_year: int,
    horizon: int,
    rebaselined: Sequence[Range] = (),
    said: Mapping[int, Mapping[str, JudgedView]] = MappingProxyType({}),
    simulated: Simulated | None = None,
) -> SeriesVerdict:
    """Every counted period of a series, judged with those before it, and the alarms.

    If nothing drifts, the probability of any alarm within a year is at most `false_alarm`, half of
    it for each test. A series has `horizon` periods, `per_year` of them in a year. Periods that are
    not in `periods` were missed: windows skip them. What was said about a period never changes
    when later ones are counted.

    `rebaselined` are ranges of periods: later periods are judged against the shares of these, made
    from their noisy counts, and windows begin anew. Only Pi changes; no privacy is spent.

    `said` are the views of periods that were judged before. It stays: on another processor a
    statistic may land on the other side of its threshold, and people know alarms by their numbers.

    `simulated` are laws without drift that are known already, by the `digest` of their case. Those
    that had to be simulated are added.

    Cost: some seconds for a simulation; else about a millisecond per period.

    >>> from fedprikl.estimation import CountNoise, NoisyCounts
    >>> from fedprikl.reference import Reference
    >>> def week(number, counts):
    ...     seen = NoisyCounts.of([*counts, 0.0], [1000], [CountNoise(sd=3.0)])
    ...     return PeriodCounts(number=number, records=1000, clients=20, views=(seen,))
    >>> weeks = [week(0, [503.0, 296.0, 201.0]), week(1, [420.0, 380.0, 200.0])]
    >>> found = judge_series(
    ...     [MonitoredView.of(Reference.from_probabilities([0.5, 0.3, 0.2]))],
    ...     weeks,
    ...     false_alarm=0.01,
    ...     per_year=52,
    ...     horizon=4,
    ... )
    >>> [period.exceeds for period in found.judged], found.alarms[0].since
    ([False, True], 1)
    """
    rate = check_false_alarm(false_alarm)
    check_positive_int(per_year, "per_year")
    check_positive_int(horizon, "horizon")
    _check(views, periods)
    nominal = dict(zip([period.number for period in periods], nominal_of(periods), strict=True))
    judged: list[JudgedPeriod] = []
    nulls = _Nulls({} if simulated is None else simulated)
    segments = list(_segments(views, periods, rebaselined))
    for segment in segments:
        found = _judge(segment, nominal, nulls, rate=rate, per_year=per_year, horizon=horizon)
        judged += [_as_said(period, said.get(period.period, {})) for period in found]
    alarms = follow_alarms(judged, _tracer(segments))
    known = [each for each in segments if each.periods][-1:]
    findable = [
        _findable(e, nominal, nulls, rate=rate, per_year=per_year, horizon=horizon) for e in known
    ]
    return SeriesVerdict(judged=tuple(judged), alarms=alarms, findable=next(iter(findable), None))


def _as_said(period: JudgedPeriod, said: Mapping[str, JudgedView]) -> JudgedPeriod:
    """The period with what was said about its views, wherever this processor says otherwise."""

    def kept(view: JudgedView) -> JudgedView:
        known = said.get(view.name, view)
        same = known.period_exceeds == view.period_exceeds
        return view if same and known.cumulative_exceeds == view.cumulative_exceeds else known

    return replace(period, views=tuple(map(kept, period.views)))


def _threshold(nulls: Sequence[ViewNull], test: int, rate: float) -> float:
    """The depth of one of the two tests that is exceeded in any view with this rate, at most.

    The chances of the views are added up (union bound), which holds however they depend on each
    other. The simulation's own error makes the depth too large rather than too small.
    """
    each = rate / len(nulls)
    allowed = rate / simulation_error(nulls[0].series, len(nulls), each)

    def fits(depth: float) -> bool:
        return math.fsum(null.chance(test, depth) for null in nulls) <= allowed

    return least_depth(fits, 8.0, halvings=HALVINGS)


def _check(views: Sequence[MonitoredView], periods: Sequence[PeriodCounts]) -> None:
    numbers = [period.number for period in periods]
    if any(b <= a for a, b in pairwise(numbers)):
        raise InvalidInputError("The periods of a series must increase, each counted once.")
    sizes = [len(view.points) for view in views]
    if not sizes or any([len(each.counts) for each in period.views] != sizes for period in periods):
        raise InvalidInputError("Every period of a series needs the counts of every view.")


def _segments(
    views: Sequence[MonitoredView], periods: Sequence[PeriodCounts], rebaselined: Sequence[Range]
) -> Iterator[Segment]:
    """Parts with one baseline each: the reference, then those that people accepted."""
    baselines = [None, *sorted(rebaselined, key=lambda each: each[1])]
    ends = [-1.0, *(last for _, last in filter(None, baselines)), math.inf]
    for baseline, after, until in zip(baselines, ends, ends[1:], strict=False):
        mine = [period for period in periods if after < period.number <= until]
        judged = views
        if baseline is not None:
            first, last = baseline
            accepted = [period for period in periods if first <= period.number <= last]
            judged = baseline_of(views, accepted)
        watched = [Watched.of(view, i, mine) for i, view in enumerate(judged)]
        yield Segment(baseline, mine, watched)


@dataclass(frozen=True, slots=True)
class _Nulls:
    """The laws of all views without drift, simulated unless they are known."""

    known: Simulated

    def of(self, cases: Sequence[NullCase]) -> tuple[ViewNull, ...]:
        """One for each view."""
        for case in cases:
            if case.digest not in self.known:
                self.known[case.digest] = simulate_null(case)
        return tuple(self.known[case.digest] for case in cases)


@lru_cache(maxsize=256)
def _depths(nulls: tuple[ViewNull, ...], rate: float) -> tuple[float, float]:
    """The thresholds of both tests: each has half of the rate."""
    return _threshold(nulls, 0, rate / 2), _threshold(nulls, 1, rate / 2)


def _findable(
    segment: Segment,
    nominal: dict[int, Nominal],
    nulls: _Nulls,
    *,
    rate: float,
    per_year: int,
    horizon: int,
) -> FindableInSeries:
    """What the counted periods of a segment could have shown, by the thresholds of the last one."""
    watched, last = [each.view for each in segment.views], nominal[segment.periods[-1].number]
    cases, blocks = null_cases(watched, last, per_year=per_year, horizon=horizon)
    variation = _variation_depth(len(cases) * min(per_year, horizon), rate)
    return _findable_by(cases, nulls.of(cases), rate / blocks, len(segment.periods), variation)


@lru_cache(maxsize=256)
def _findable_by(
    cases: tuple[NullCase, ...],
    nulls: tuple[ViewNull, ...],
    rate: float,
    counted: int,
    variation: float,
) -> FindableInSeries:
    depths = _depths(nulls, rate)
    return findable_in_series(cases, nulls, depths, counted, variation=variation)


def _variation_depth(judged: int, rate: float) -> float:
    """Of any total variation of so many views and periods, in a year: the union bound."""
    return math.log(len(LENGTHS) * judged / rate)


def _judge(
    segment: Segment,
    nominal: dict[int, Nominal],
    nulls: _Nulls,
    *,
    rate: float,
    per_year: int,
    horizon: int,
) -> list[JudgedPeriod]:
    """All periods of a segment. Periods with the same null are judged together."""
    found: dict[int, JudgedPeriod] = {}
    keys = [nominal[period.number] for period in segment.periods]
    for key in dict.fromkeys(keys):
        watched = [each.view for each in segment.views]
        cases, blocks = null_cases(watched, key, per_year=per_year, horizon=horizon)
        laws = nulls.of(cases)
        depths = _depths(laws, rate / blocks)
        limits = normal_deviate(np.array(depths)).tolist()
        places = [place for place, other in enumerate(keys) if other == key]
        variation = _variation_depth(len(cases) * min(per_year, horizon), rate)
        tested = [
            _deviates(each, null, places, variation)
            for each, null in zip(segment.views, laws, strict=True)
        ]
        for row, place in enumerate(places):
            values = [(found_z[:, row], beyond[:, row]) for found_z, beyond in tested]
            found[place] = _period(segment, place, values, limits)
    return [found[place] for place in range(len(keys))]


def _deviates(
    watched: Watched, null: ViewNull, places: Sequence[int], depth: float
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Of windows that end at these places, (lengths, places): how far they are from no drift, and
    whether that is beyond what is tolerated.

    -inf where a window would begin before the segment. `depth` is how rarely a total variation
    that is tolerated may be taken for more.
    """
    ends, tolerance = np.array(places), watched.view.tolerance
    found = np.full((len(LENGTHS), len(ends)), -np.inf)
    beyond = np.ones(found.shape, dtype=np.bool_)
    for row, length in enumerate(LENGTHS):
        fits = ends + 1 >= length
        if length in null.windows and fits.any():
            first, last = ends[fits] + 1 - length, ends[fits]
            values = watched.statistics(first, last)
            found[row, fits] = normal_deviate(null.depth(length, values))
            if tolerance:
                limit = tolerance + null.least_variation(length, depth)
                beyond[row, fits] = watched.variations(first, last) > limit
    return found, beyond


def _period(
    segment: Segment,
    place: int,
    values: Sequence[tuple[Floats, npt.NDArray[np.bool_]]],
    limits: Sequence[float],
) -> JudgedPeriod:
    period_limit, window_limit = limits
    views = []
    for watched, ((alone, *longer), beyond) in zip(segment.views, values, strict=True):
        over = np.array(longer)
        best = int(np.argmax(over))
        known = bool(np.isfinite(over[best]))
        differs = np.append(alone > period_limit, over > window_limit)
        above = differs & beyond
        views.append(
            JudgedView(
                name=watched.view.name,
                statistic=float(alone),
                cumulative=float(over[best]) if known else None,
                window=LENGTHS[best + 1] if known else 0,
                period_exceeds=bool(above[0]),
                cumulative_exceeds=bool(above[1:].any()),
                shortest=LENGTHS[int(np.argmax(above))] if above.any() else 0,
                tolerated=bool(differs.any() and not above.any()),
            )
        )
    return JudgedPeriod(
        period=segment.periods[place].number,
        views=tuple(views),
        threshold=period_limit,
        cumulative_threshold=window_limit,
        baseline=segment.baseline,
    )


def _tracer(segments: Sequence[Segment]) -> Trace:
    """Since when a drift is seen in a period, and in which views most."""
    places = {
        period.number: (segment, place)
        for segment in segments
        for place, period in enumerate(segment.periods)
    }

    def trace(period: int, names: Sequence[str], after: int) -> tuple[int, tuple[str, ...]]:
        """The window that ends here with the largest statistic of the first of these views.

        It begins after the period `after`.
        """
        segment, place = places[period]
        by_name = {watched.view.name: watched for watched in segment.views}
        earlier = sum(each.number <= after for each in segment.periods)
        starts = np.arange(max(earlier, place + 1 - LENGTHS[-1]), place + 1)
        values = by_name[names[0]].statistics(starts, np.full(len(starts), place))
        since = int(starts[np.argmax(values.max(axis=0))])
        sizes = {name: float(by_name[name].statistics([since], [place]).max()) for name in names}
        order = sorted((name for name in names if name), key=lambda name: -sizes[name])
        return segment.periods[since].number, tuple(order)

    return trace
