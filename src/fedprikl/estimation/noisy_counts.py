"""Noisy counts with the law of their noise, and divergences read off them: only post-processing.

Noisy counts are public. Everything here, and any other divergence, is free of privacy cost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.documents import LARGEST
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.privacy import Mechanism, laplace_variance
from fedprikl.reference import QueryPoints, Spread

CELLS = 20  # of a group, at least: their variance is estimated
SURE = 4.0  # deviations of its noise that the count of a group has, at least: so is their mean
TINY = 1e-9
WHOLE = 1e-9  # of probability: what may be left out of all cells
DOMINATED = 0.5  # noise on a count, in shares of the count expected without drift
FEW = 0.01  # of the weight of all points: if the noise dominates fewer, projected counts will do
MANY = 13  # sums whose noise is taken as normal
BELIEVED = 1.5, 3.5  # noise scales: fewer out-of-domain records are taken as none, more as they are


def noise_groups(expected: Floats, variances: Floats) -> tuple[Ints, Ints]:
    """Cells from the least expected count to the largest, and where among them each group begins.

    From what is public alone: counts expected without drift, and variances of the noise.

    >>> order, begins = noise_groups(np.arange(100.0, 0.0, -1.0), np.full(100, 4.0))
    >>> order[:3].tolist(), begins.tolist()
    ([99, 98, 97], [0, 20, 40, 60, 80])
    """
    order = np.argsort(expected, kind="stable")
    counts, noise = (list(accumulate(each[order].tolist())) for each in (expected, variances))
    begins, before, blur = [0], 0.0, 0.0
    for cell, (count, variance) in enumerate(zip(counts, noise, strict=True), start=1):
        known = count - before >= SURE * (variance - blur) ** 0.5
        if known and cell - begins[-1] >= CELLS and len(order) - cell >= CELLS:
            begins.append(cell)
            before, blur = count, variance
    return order, np.array(begins)


def shrink_counts(
    counts: Floats,
    expected: Floats,
    variances: Floats,
    groups: tuple[Ints, Ints],
    *,
    power: float = 0.5,
) -> Floats:
    """The counts drawn in towards the mean ratio of their group, (releases, cells).

    In a group, h / `expected` has a mean m, itself drawn in towards 1 by as much as noise explains,
    and a variance V beyond that of the noise, s^2 = variance / expected^2. V is at least
    m / expected, which whole records have without any drift. A count becomes

        m expected + sqrt(V / (V + s^2)) (h - m expected),

    so that the results vary like counts without noise. With a `power` of 1 instead of the root,
    which gives each count its least error, they vary less (Louis 1984, JASA 79: 393-398). Not
    negative only after a projection.

    >>> rng, expected, noise = np.random.default_rng(1), np.full(4000, 100.0), np.full(4000, 144.0)
    >>> held = rng.poisson(expected)
    >>> noisy = held + rng.normal(0.0, 12.0, (1, 4000))
    >>> found = shrink_counts(noisy, expected[None], noise, noise_groups(expected, noise))
    >>> round(noisy.std()), round(found.std()), round(held.std())
    (16, 11, 10)
    """
    order, begins = groups
    h, e, noise = counts[:, order], np.maximum(expected[:, order], TINY), variances[order]
    sizes = np.diff(begins, append=len(order))

    def of_group(values: Floats) -> Floats:
        """Sums."""
        return np.asarray(np.add.reduceat(values, begins, axis=1))

    def of_cell(values: Floats) -> Floats:
        """Those of its group."""
        return np.repeat(values, sizes, axis=1)

    whole = of_group(e)
    off = of_group(h) / whole - 1
    chance = (of_group(np.broadcast_to(noise, e.shape)) + whole) / whole**2
    mean = of_cell(np.maximum(1 + off * np.maximum(1 - chance / np.maximum(off**2, TINY), 0), 0))
    blur, sampling = noise / e**2, mean / e
    weights = (blur + 1 / e) ** -2
    beyond = of_group(weights * ((h / e - mean) ** 2 - blur - sampling)) / of_group(weights)
    own = of_cell(np.maximum(beyond, 0)) + sampling
    found = np.empty_like(h)
    found[:, order] = mean * e + (own / (own + blur)) ** power * (h - mean * e)
    return found


def whole_counts(counts: Floats, rng: np.random.Generator) -> Floats:
    """Counts of whole records that are these on average, with the same sum up to one record.

    >>> whole_counts(np.full((1, 8), 0.25), np.random.default_rng(1)).sum()
    np.float64(2.0)
    """
    reached = np.floor(np.cumsum(counts, axis=1) + rng.random((len(counts), 1)))
    return np.diff(reached, axis=1, prepend=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountNoise:
    """The law of the noise on one count.

    A sum of discrete Laplace variables of one `scale`, or about normal where that is None. Clients'
    shares and several cohorts add up, so the number of variables need not be whole.

    >>> noise = CountNoise(sd=3.0, scale=1.5)
    >>> noise.kind, round(noise.variables, 2), round(noise.fourth_cumulant, 1)
    ('laplace', 2.08, 117.1)
    """

    sd: float
    scale: float | None = None

    @classmethod
    def of(cls, mechanism: Mechanism) -> "CountNoise":
        """Of a mechanism that adds integer noise to each count."""
        return cls(sd=mechanism.standard_deviation, scale=mechanism.laplace_scale)

    @property
    def kind(self) -> str:
        """Of each variable: "laplace" or "gaussian"."""
        return "gaussian" if self.scale is None else "laplace"

    @property
    def variables(self) -> float:
        """How many times the variance of one variable it has; 1 of normal noise."""
        one = 0.0 if self.scale is None else laplace_variance(self.scale)
        return self.sd**2 / one if one else 1.0  # none where the noise of a huge epsilon vanishes

    @property
    def fourth_cumulant(self) -> float:
        """Of s Laplace variables of variance v: 3 s v^2, leaving out s v of whole numbers."""
        return 0.0 if self.scale is None else 3 * self.sd**2 * laplace_variance(self.scale)

    def __str__(self) -> str:
        kind = "normal" if self.scale is None else "discrete Laplace"
        return f"{kind} noise of standard deviation {self.sd:.4g} on each count"

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Noise of this law, for simulation: nothing is hidden by it.

        The sum of s discrete Laplace variables is the difference of two negative binomial ones of
        shape s, for every s > 0.
        """
        if self.scale is None:
            return rng.normal(0, self.sd, shape)
        if abs(self.variables - 1) < 1e-9:  # several times faster
            above, below = (rng.standard_exponential(shape) for _ in range(2))
            for each in (above, below):  # in place: most of a simulation's time is spent here
                each *= self.scale
                np.floor(each, out=each)
            above -= below
            return above
        success = -np.expm1(-1 / self.scale)
        more, less = (rng.negative_binomial(self.variables, success, shape) for _ in range(2))
        return (more - less).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """Noisy counts of cells with the law of their noise, in one batch or several. Public.

    Of a release, of one of its columns, of a period, and of a window of periods. From them anybody
    may compute any other divergence, free of privacy cost.

    >>> week = NoisyCounts.of([5.0, 4.0, 1.0], [10], [CountNoise(sd=3.0)])
    >>> week.counts, week.out_of_domain, week.records
    ((5.0, 4.0), (1.0,), (10,))
    """

    counts: tuple[float, ...]  # per cell, batch after batch
    out_of_domain: tuple[float, ...]  # per batch: records in cells that are not asked
    records: tuple[int, ...]  # N_t, per batch, without noise
    noise: tuple[CountNoise, ...]  # per batch, on each count
    cells: tuple[int, ...] = ()  # that are asked; empty: all cells of a view, in one batch
    batch: tuple[int, ...] = ()  # of each

    def __post_init__(self) -> None:
        batches = len(self.records)
        asked = {len(self.cells), len(self.batch)}
        if not len(self.out_of_domain) == len(self.noise) == batches or not (
            asked == {len(self.counts)} or (asked == {0} and batches == 1)
        ):
            raise InvalidInputError("Noisy counts must fit the points and batches.")
        if min(self.records, default=0) < 1:
            raise InvalidInputError("A batch holds no records, so it has no distribution.")
        if any(noise.scale is not None and not noise.scale > 0 for noise in self.noise):
            raise InvalidInputError("The scale of Laplace noise must be above 0.")
        if max(map(abs, self.numbers)) > LARGEST or not all(map(_is_possible, self.noise)):
            raise InvalidInputError("No noise makes such counts: they are damaged.")

    @classmethod
    def of(
        cls,
        numbers: Sequence[float] | Floats,
        records: Sequence[int] | Ints,
        noise: Sequence[CountNoise],
        points: QueryPoints | None = None,
    ) -> "NoisyCounts":
        """Of the noisy counts of all cells, then the out-of-domain count of every batch.

        `points` are those that were asked, where it is not a whole view.
        """
        found, batches = np.asarray(numbers, dtype=np.float64).tolist(), len(records)
        return cls(
            counts=tuple(found[:-batches]),
            out_of_domain=tuple(found[-batches:]),
            records=tuple(map(int, records)),
            noise=tuple(noise),
            cells=() if points is None else tuple(points.cells.tolist()),
            batch=() if points is None else tuple(points.batch.tolist()),
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """The counts, then the out-of-domain counts."""
        return self.counts + self.out_of_domain


def _is_possible(noise: CountNoise) -> bool:
    """Whether its variance can be computed, and is not less than that of no variable at all."""
    return 0 <= noise.sd <= LARGEST and (noise.scale or 0) <= LARGEST and noise.variables > 0


def sum_noise(laws: Sequence[CountNoise]) -> CountNoise:
    """The law of a sum: variances add up, and Laplace variables of one scale stay such.

    The sum of many Laplace variables is about normal (13: an excess kurtosis of 0.23), and normal
    noise is simulated many times as fast.
    """
    scales = {law.scale for law in laws}
    return CountNoise(
        sd=math.sqrt(sum(law.sd**2 for law in laws)),
        scale=scales.pop() if len(scales) == 1 and len(laws) < MANY else None,
    )


def sum_counts(parts: Sequence[NoisyCounts]) -> NoisyCounts:
    """The counts of several periods as those of one longer period.

    >>> week = NoisyCounts.of([5.0, 4.0, 1.0], [10], [CountNoise(sd=3.0)])
    >>> both = sum_counts([week, week])
    >>> both.counts, both.records, round(both.noise[0].sd, 2)
    ((10.0, 8.0), (20,), 4.24)
    """
    return replace(
        parts[0],
        counts=tuple(np.sum([part.counts for part in parts], axis=0).tolist()),
        out_of_domain=tuple(map(sum, zip(*(part.out_of_domain for part in parts), strict=True))),
        records=tuple(map(sum, zip(*(part.records for part in parts), strict=True))),
        noise=tuple(map(sum_noise, zip(*(part.noise for part in parts), strict=True))),
    )


@dataclass(frozen=True, slots=True, eq=False)
class CountsDesign:
    """How noisy counts come about: asked cells, records per batch, law of the noise. Public."""

    points: QueryPoints
    records: Ints  # N_t
    noise: tuple[CountNoise, ...]  # per batch

    @classmethod
    def of(cls, points: QueryPoints, noisy: NoisyCounts) -> "CountsDesign":
        """Of these noisy counts, which are those of the points."""
        if len(noisy.counts) != len(points) or len(noisy.records) != points.batches:
            raise InvalidInputError("Noisy counts must fit the points and batches.")
        return cls(points, np.array(noisy.records), noisy.noise)

    @property
    def noise_sd(self) -> Floats:
        """Per batch, of the noise on each count."""
        return np.array([noise.sd for noise in self.noise])

    def draw_noise(self, rng: np.random.Generator, draws: int = 1) -> tuple[Floats, Floats]:
        """Noise like that on counts (draws, points) and out-of-domain counts (draws, batches)."""
        sizes = np.bincount(self.points.batch, minlength=self.points.batches)
        parts = [law.draw(rng, (draws, n + 1)) for law, n in zip(self.noise, sizes, strict=True)]
        return (
            np.concatenate([part[:, :-1] for part in parts], axis=1),
            np.stack([part[:, -1] for part in parts], axis=1),
        )

    def asked(self, counts: Floats | Ints) -> Floats:
        """Records in asked cells, from counts (..., points): (..., batches)."""
        return np.asarray(counts @ (self.points.batch[:, None] == np.arange(self.points.batches)))

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Per batch, whether all cells of the reference are asked."""
        asked = np.bincount(self.points.batch, self.points.pi, minlength=self.points.batches)
        return np.asarray(asked > 1 - WHOLE)

    @property
    def noise_dominated(self) -> bool:
        """Whether noise dominates some counts. Public: from Pi, N and the law of the noise."""
        points = self.points
        expected = self.records[points.batch] * points.pi
        dominated = self.noise_sd[points.batch] > DOMINATED * expected
        return bool(np.sum(points.weights[dominated]) > FEW * np.sum(points.weights))

    def likely_outside(self, counts: Floats, outside: Floats) -> Floats:
        """Out-of-domain records of each batch, (releases, batches), as far as noise lets tell.

        Where all cells are asked, all counts sum to N, so each shares in what the sum is off:
        x = outside - (sum of all - N) / (K + 1). Then, with b = sd / sqrt(2),

            0 up to 1.5 b,    3.5 (x - 1.5 b) / 2 up to 3.5 b,    x above.

        Most rounds have no such records, and KL pays for each that noise feigns. A line instead of
        a threshold keeps the error near that of x itself, whatever the true count is: at most 1.41
        times as large for one Laplace variable, and 0.26 times without such records.
        """
        cells = np.bincount(self.points.batch, minlength=self.points.batches)
        off = self.asked(counts) + outside - self.records
        x, b = outside - off / (cells + 1), self.noise_sd / math.sqrt(2)
        none, all_ = (factor * b for factor in BELIEVED)
        rising = (x - none) * np.divide(all_, all_ - none, out=np.ones_like(b), where=b > 0)
        likely = np.clip(np.where(x < all_, np.maximum(rising, 0.0), x), 0.0, self.records)
        return np.where(self.whole, likely, outside)

    def project(self, counts: Floats, outside: Floats) -> Floats:
        """The likeliest counts: not negative, summing to N_t with the out-of-domain count.

        Of many releases at once: (releases, points) and (releases, batches). Where all cells of a
        batch are asked, that count is `likely_outside`; else it is projected like the others.
        """
        return self._onto(counts, self.likely_outside(counts, outside))

    def _onto(self, counts: Floats, outside: Floats) -> Floats:
        """The same, with out-of-domain counts that are known where all cells are asked."""
        found = np.empty_like(counts)
        for t, (total, whole) in enumerate(zip(self.records, self.whole, strict=True)):
            mine, rest = self.points.batch == t, outside[:, [t]]
            if whole:
                found[:, mine] = project_counts(counts[:, mine], total - rest)
            else:
                both = np.concatenate([counts[:, mine], rest], axis=1)
                found[:, mine] = project_counts(both, total)[:, :-1]
        return found

    def projected(self, noisy: NoisyCounts) -> Floats:
        """The likeliest counts of one release."""
        (found,) = self.project(np.array([noisy.counts]), np.array([noisy.out_of_domain]))
        return np.asarray(found)

    def debias(
        self,
        counts: Floats,
        outside: Floats,
        *,
        score: Score,
        rng: np.random.Generator,
        resamples: int,
        shrink: bool = True,
    ) -> tuple[Floats, Floats]:
        """`estimate_noisy_counts` for many releases of this design at once: values and spreads.

        The arguments are those of `project`. Without `shrink` it is the textbook's: the bias at
        projected counts, however large the noise is.
        """
        likeliest = self.project(counts, outside)
        on_counts, on_outside = self.draw_noise(rng, resamples * len(counts))
        before = likeliest
        if shrink and self.noise_dominated:
            before = whole_counts(self.shrunken(counts, likeliest), rng)
        on_counts += np.repeat(before, resamples, axis=0)
        left = np.repeat(self.records - self.asked(before), resamples, axis=0)
        # Noise on an out-of-domain count shifts the sum of all others, which is no bias of theirs.
        renoised = self._onto(on_counts, np.where(self.whole, left, left + on_outside))
        again = self.weighted(renoised, score).reshape(len(counts), resamples)
        bias = again.mean(axis=1) - self.weighted(before, score)
        return self.weighted(likeliest, score) - bias, again.std(axis=1)

    def simulate(
        self,
        counts: Ints | Floats,
        *,
        score: Score,
        rng: np.random.Generator,
        resamples: int,
        shrink: bool = True,
    ) -> Floats:
        """What would be read off exact counts (releases, points), with noise of this law on them.

        The arguments are those of `debias`.
        """
        on_counts, on_outside = self.draw_noise(rng, len(counts))
        values, _ = self.debias(
            counts + on_counts,
            self.records - self.asked(counts) + on_outside,
            score=score,
            rng=rng,
            resamples=resamples,
            shrink=shrink,
        )
        return values

    def shrunken(
        self, counts: Floats, likeliest: Floats, *, times: float = 1.0, power: float = 0.5
    ) -> Floats:
        """Counts like those before the noise; as many in each batch as are likeliest.

        The noise on these counts has so many `times` the variance of one release's. `power` is
        that of `shrink_counts`.
        """
        points, batch = self.points, self.points.batch
        variances = times * self.noise_sd[batch] ** 2
        groups = noise_groups(self.records[batch] * points.pi, variances)
        taken = self.asked(likeliest)
        asked = np.bincount(batch, points.pi, minlength=points.batches)
        expected = (taken / asked)[:, batch] * points.pi
        shrunken = shrink_counts(counts, expected, variances, groups, power=power)
        for t in range(points.batches):
            mine = batch == t
            shrunken[:, mine] = project_counts(shrunken[:, mine], taken[:, [t]])
        return shrunken

    def weighted(self, counts: Floats, score: Score) -> Floats:
        """The divergence of these very counts, (releases, points), if no others are asked."""
        scores = score(counts, self.points.pi, self.records[self.points.batch])
        return np.asarray(scores @ self.points.weights)


@dataclass(frozen=True, slots=True, eq=False)
class CountedView:
    """A view with its noisy counts, and how counts vary without drift. Public."""

    points: QueryPoints
    noisy: NoisyCounts
    spread: float | Spread

    @property
    def design(self) -> CountsDesign:
        """How the counts came about."""
        return CountsDesign.of(self.points, self.noisy)

    @property
    def model(self) -> NoDrift:
        """The law of the counts without drift."""
        return NoDrift.of(self.points, np.array(self.noisy.records), self.spread)


def estimate_noisy_counts(
    points: QueryPoints,
    noisy: NoisyCounts,
    *,
    score: Score,
    rng: np.random.Generator,
    resamples: int = 200,
) -> tuple[float, float]:
    """The divergence from noisy counts, less the bias that the known noise is seen to cause.

    And the spread of the noise in it. The score of a noisy count is biased. The noise is known, so
    noise of the same law is added to counts like those before the noise, and what that does to the
    estimate is subtracted (parametric bootstrap). While the noise is small, the projected counts
    are like them. Where it dominates some counts (`CountsDesign.noise_dominated`), projected counts
    vary far more, and the bias at them is not that at the truth: there they are shrunken first
    (`shrink_counts`). `counts_interval` leaves room for the bias that remains. `rng` is for this
    simulation; nothing is hidden by it.
    """
    design = CountsDesign.of(points, noisy)
    values, spreads = design.debias(
        np.array([noisy.counts]),
        np.array([noisy.out_of_domain]),
        score=score,
        rng=rng,
        resamples=resamples,
    )
    return float(values[0]), float(spreads[0])


def project_counts(values: npt.ArrayLike, total: Floats | Ints | float) -> Floats:
    """The nearest non-negative vector with the given sum, along the last axis. Cost: a sort.

    >>> project_counts([4.0, 3.0, -5.0], 5.0).tolist()
    [3.0, 2.0, 0.0]
    >>> project_counts([0.0, -np.inf], 0.0).tolist()
    [0.0, 0.0]
    """
    x = np.asarray(values, dtype=np.float64)
    falling = np.sort(x, axis=-1)[..., ::-1]
    shifts = (np.cumsum(falling, axis=-1) - total) / np.arange(1, x.shape[-1] + 1)
    kept = np.maximum(np.count_nonzero(falling > shifts, axis=-1)[..., None] - 1, 0)  # none: of 0
    projected: Floats = np.maximum(x - np.take_along_axis(shifts, kept, axis=-1), 0.0)
    return projected
