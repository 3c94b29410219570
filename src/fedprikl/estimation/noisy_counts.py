"""What the server makes of noisy counts (untrusted aggregator): only post-processing.

Noisy counts are public. Everything here, and any other divergence, is free of privacy cost.
"""

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import laplace_variance
from fedprikl.reference import QueryPoints

CELLS = 20  # of a group, at least: their variance is estimated
SURE = 4.0  # deviations of its noise that the count of a group has, at least: so is their mean
TINY = 1e-9
WHOLE = 1e-9  # of probability: what may be left out of all cells
LOUD = 0.5  # noise on a count, in shares of the count expected without drift
FEW = 0.01  # of the weight of all points: if fewer are loud, projected counts are good enough


def noise_groups(expected: Floats, variances: Floats) -> tuple[Ints, Ints]:
    """Cells from the least expected count to the largest, and where among them each group begins.

    From what is public alone: counts expected without drift, and variances of the noise.

    >>> order, begins = noise_groups(np.arange(100.0, 0.0, -1.0), np.full(100, 4.0))
    >>> order[:3].tolist(), begins.tolist()
    ([99, 98, 97], [0, 20, 40, 60, 80])
    """
    order = np.argsort(expected, kind="stable")
    counts, noise = (list(accumulate(each[order].tolist())) for each in (expected, variances))
    begins, before, loud = [0], 0.0, 0.0
    for cell, (count, variance) in enumerate(zip(counts, noise, strict=True), start=1):
        known = count - before >= SURE * (variance - loud) ** 0.5
        if known and cell - begins[-1] >= CELLS and len(order) - cell >= CELLS:
            begins.append(cell)
            before, loud = count, variance
    return order, np.array(begins)


def shrink_counts(
    counts: Floats, expected: Floats, variances: Floats, groups: tuple[Ints, Ints]
) -> Floats:
    """The counts drawn in towards the mean ratio of their group, (releases, cells).

    In a group, h / `expected` has a mean m, itself drawn in towards 1 by as much as noise explains,
    and a variance V beyond that of the noise, s^2 = variance / expected^2. V is at least
    m / expected, which whole records have without any drift. A count becomes

        m expected + sqrt(V / (V + s^2)) (h - m expected),

    so that the results vary like counts without noise. Without the root, which gives each count its
    least error, they would vary less (Louis 1984, JASA 79: 393-398). Not negative only after a
    projection.

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
    found[:, order] = mean * e + np.sqrt(own / (own + blur)) * (h - mean * e)
    return found


def whole_counts(counts: Floats, rng: np.random.Generator) -> Floats:
    """Counts of whole records that are these on average, with the same sum up to one record.

    >>> whole_counts(np.full((1, 8), 0.25), np.random.default_rng(1)).sum()
    np.float64(2.0)
    """
    reached = np.floor(np.cumsum(counts, axis=1) + rng.random((len(counts), 1)))
    return np.diff(reached, axis=1, prepend=0.0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoisyCounts:
    """Noisy counts of the asked cells and of all others, per batch. Public."""

    points: QueryPoints
    counts: Floats  # per point
    rest: Floats  # per batch: records in cells that are not asked, with noise
    records: Ints  # N_t, without noise
    noise_sd: Floats  # per batch, of the noise on each count
    laplace_scale: float | None = None  # of discrete Laplace noise; None: about normal noise

    def __post_init__(self) -> None:
        batches = self.points.batches
        if len(self.counts) != len(self.points) or not (
            len(self.rest) == len(self.records) == len(self.noise_sd) == batches
        ):
            raise InvalidInputError("Noisy counts must fit the points and batches.")
        if np.any(np.asarray(self.records) < 1):
            raise InvalidInputError("A batch holds no records, so it has no distribution.")

        if self.laplace_scale is not None and not self.laplace_scale > 0:
            raise InvalidInputError("The scale of Laplace noise must be above 0.")

    @property
    def laplace_sums(self) -> Floats:
        """Per batch, how many times the noise of one discrete Laplace variable each count carries.

        More clients than the fewest, and several cohorts, add up: not a whole number.
        """
        if self.laplace_scale is None:
            raise InvalidInputError("This noise is not Laplace noise.")
        one = laplace_variance(self.laplace_scale)
        if one == 0:  # so large an epsilon that the noise vanishes
            return np.ones(len(self.noise_sd))
        sums: Floats = np.asarray(self.noise_sd) ** 2 / one
        return sums

    def draw_noise(self, rng: np.random.Generator, draws: int = 1) -> tuple[Floats, Floats]:
        """Noise like that on the counts (draws, points) and on the rest (draws, batches).

        For simulation: nothing is hidden by it. The sum of s discrete Laplace variables is the
        difference of two negative binomial ones of shape s, for every s > 0.
        """
        sizes = np.bincount(self.points.batch, minlength=self.points.batches)
        parts = [self._batch_noise(rng, t, (draws, n + 1)) for t, n in enumerate(sizes)]
        return (
            np.concatenate([part[:, :-1] for part in parts], axis=1),
            np.stack([part[:, -1] for part in parts], axis=1),
        )

    def draw_rest_noise(self, rng: np.random.Generator, draws: int) -> Floats:
        """Noise like that on the rest of the first batch, (draws,)."""
        return self._batch_noise(rng, 0, (draws, 1))[:, 0]

    def _batch_noise(self, rng: np.random.Generator, batch: int, shape: tuple[int, int]) -> Floats:
        if self.laplace_scale is None:
            return rng.normal(0, self.noise_sd[batch], shape)
        sums, success = self.laplace_sums[batch], -np.expm1(-1 / self.laplace_scale)
        if abs(sums - 1) < 1e-9:  # several times faster
            above, below = (rng.standard_exponential(shape) for _ in range(2))
            for each in (above, below):  # in place: most of a trial's time is spent here
                each *= self.laplace_scale
                np.floor(each, out=each)
            above -= below
            return above
        more, less = (rng.negative_binomial(sums, success, shape) for _ in range(2))
        return (more - less).astype(np.float64)

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Per batch, whether all cells of the reference are asked."""
        asked = np.bincount(self.points.batch, self.points.pi, minlength=self.points.batches)
        return np.asarray(asked > 1 - WHOLE)

    @property
    def loud(self) -> bool:
        """Whether noise drowns some of the counts. Public: from Pi, N and the law of the noise."""
        points = self.points
        expected = np.asarray(self.records)[points.batch] * points.pi
        drowned = np.asarray(self.noise_sd)[points.batch] > LOUD * expected
        return bool(np.sum(points.weights[drowned]) > FEW * np.sum(points.weights))

    @property
    def _dead_zone(self) -> Floats:
        """Per batch, the rest below which Laplace noise alone explains it.

            tau = b max(ln 1000, ln(5000 N / K^2)),   b = noise_sd / sqrt(2)

        Noise exceeds it with probability p = e^(-tau / b) / 2, and the estimate then errs by about
        tau / N. Noise on the counts of a population without drift moves KL by about
        b sqrt(2 sum 1 / (N Pi)) / N, which is at least b K sqrt(2 / N) / N. So p (tau / N)^2 adds
        (tau / b)^2 / 20,000 to the square of that: 0.02 with a million records in 3 cells, less
        with fewer records or more cells. An error may be hundreds of times the usual one, so it
        must be rare enough that even its square hardly counts.
        """
        cells = np.bincount(self.points.batch, minlength=self.points.batches)
        rare = 5000 * np.asarray(self.records) / np.maximum(cells, 1) ** 2
        scale: Floats = np.asarray(self.noise_sd) / math.sqrt(2)
        return np.asarray(scale * np.log(np.maximum(rare, 1000.0)))

    def projected(self) -> Floats:
        """The likeliest counts: not negative, summing to N_t with the rest."""
        (likeliest,) = self.project(self.counts[None, :], self.rest[None, :])
        return np.asarray(likeliest)

    def project(self, counts: Floats, rest: Floats, records: Ints | None = None) -> Floats:
        """The same for many releases at once: (releases, points) and (releases, batches).

        `records` is like `rest`, where every release has its own. Where all cells of a batch are
        asked, a rest that noise alone explains counts as none: otherwise noise on a rest that is
        empty would take records from the cells, in every release.
        """
        rest = np.where(self.whole & (rest < self._dead_zone), -np.inf, rest)
        totals = np.broadcast_to(self.records if records is None else records, rest.shape)
        parts = [
            project_counts(
                np.concatenate([counts[:, self.points.batch == t], rest[:, [t]]], axis=1),
                totals[:, [t]],
            )[:, :-1]
            for t in range(self.points.batches)
        ]
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True, slots=True)
class NoisyEstimate:
    """A value with part of its bias removed, and the spread of the noise in it."""

    value: float
    noise_sd: float


def estimate_noisy_counts(
    noisy: NoisyCounts, *, score: Score, rng: np.random.Generator, resamples: int = 200
) -> NoisyEstimate:
    """The divergence from noisy counts, less the bias that the known noise is seen to cause.

    The score of a noisy count is biased. The noise is known, so noise of the same law is
    added to counts like those before the noise, and what that does to the estimate is subtracted
    (parametric bootstrap). While the noise is small, the projected counts are like them. Where it
    drowns some counts (`NoisyCounts.loud`), projected counts vary far more, and the bias at them is
    not that at the truth: there they are shrunken first (`shrink_counts`). `counts_interval` leaves
    room for the bias that remains. `rng` is for this simulation; nothing is hidden by it.
    """
    values, spreads = debias(
        noisy,
        noisy.counts[None, :],
        noisy.rest[None, :],
        noisy.records[None, :],
        score=score,
        rng=rng,
        resamples=resamples,
    )
    return NoisyEstimate(float(values[0]), float(spreads[0]))


def debias(
    noisy: NoisyCounts,
    counts: Floats,
    rest: Floats,
    records: Ints,
    *,
    score: Score,
    rng: np.random.Generator,
    resamples: int,
    shrink: bool = True,
) -> tuple[Floats, Floats]:
    """`estimate_noisy_counts` for many releases with the points and noise of `noisy` at once.

    Values and spreads; the arguments are (releases, points), (releases, batches) twice. Without
    `shrink` it is the textbook's: the bias at projected counts, however loud the noise is.
    """
    likeliest = noisy.project(counts, rest, records)
    on_counts, on_rest = noisy.draw_noise(rng, resamples * len(counts))
    before = likeliest
    if shrink and noisy.loud:
        before = whole_counts(_shrunken(noisy, counts, likeliest), rng)
    more = np.repeat(records, resamples, axis=0)
    on_counts += np.repeat(before, resamples, axis=0)
    on_rest += np.repeat(records - _taken(noisy, before), resamples, axis=0)
    renoised = noisy.project(on_counts, on_rest, more)
    again = _weighted(noisy, renoised, more, score).reshape(len(counts), resamples)
    bias = again.mean(axis=1) - _weighted(noisy, before, records, score)
    values: Floats = _weighted(noisy, likeliest, records, score) - bias
    return values, again.std(axis=1)


def project_counts(values: npt.ArrayLike, total: Floats | Ints | float) -> Floats:
    """The nearest non-negative vector with the given sum, along the last axis. Cost: a sort.

    >>> project_counts([4.0, 3.0, -5.0], 5.0).tolist()
    [3.0, 2.0, 0.0]
    """
    x = np.asarray(values, dtype=np.float64)
    falling = np.sort(x, axis=-1)[..., ::-1]
    shifts = (np.cumsum(falling, axis=-1) - total) / np.arange(1, x.shape[-1] + 1)
    kept = np.count_nonzero(falling > shifts, axis=-1)[..., None] - 1
    projected: Floats = np.maximum(x - np.take_along_axis(shifts, kept, axis=-1), 0.0)
    return projected


def _taken(noisy: NoisyCounts, counts: Floats) -> Floats:
    """Records in asked cells, (releases, batches)."""
    return np.asarray(counts @ (noisy.points.batch[:, None] == np.arange(noisy.points.batches)))


def _shrunken(noisy: NoisyCounts, counts: Floats, likeliest: Floats) -> Floats:
    """Counts like those before the noise; as many in each batch as are likeliest."""
    points, batch = noisy.points, noisy.points.batch
    variances = np.asarray(noisy.noise_sd)[batch] ** 2
    groups = noise_groups(np.asarray(noisy.records)[batch] * points.pi, variances)
    taken = _taken(noisy, likeliest)
    asked = np.bincount(batch, points.pi, minlength=points.batches)
    expected = (taken / asked)[:, batch] * points.pi
    shrunken = shrink_counts(counts, expected, variances, groups)
    for t in range(points.batches):
        mine = batch == t
        shrunken[:, mine] = project_counts(shrunken[:, mine], taken[:, [t]])
    return shrunken


def _weighted(noisy: NoisyCounts, counts: Floats, records: Ints, score: Score) -> Floats:
    points = noisy.points
    scores = score(counts, points.pi, records[:, points.batch])
    return np.asarray(scores @ points.weights)
