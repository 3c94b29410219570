"""Noisy counts with the law of their noise, and divergences read off them: only post-processing.

Noisy counts are public. Everything here, and any other divergence, is free of privacy cost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.documents import LARGEST
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.before_noise import BeforeNoise
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.well_counted import exchanged, has_gaps
from fedprikl.libraries import scipy
from fedprikl.privacy import Mechanism, laplace_variance
from fedprikl.reference import QueryPoints, Spread

DRAWS, LEAST_DRAWS = 100, 20  # of what counts may have been before noise
FEWER = 400_000  # draws times cells, above which fewer draws will do
PIECE, LAWS = 2_000_000, 66  # numbers at a time; for every cell, beside its draws
TINY = 1e-9
FEW_CELLS = 5  # of fewer no median is taken
MEDIAN = 1.25  # the standard deviation of a median over that of a mean, of normal variables
WHOLE = 1e-9  # of probability: what may be left out of all cells
NORMALS = 3  # normal laws that stand for Laplace noise
DOMINATED = 0.5  # noise on a count, in shares of the count expected without drift
SOME = 0.01  # of the weight of all points
MANY = 13  # sums whose noise is taken as normal
NORMAL = 100  # Laplace variables that are normal to 1 %; Gauss-Laguerre weights overflow from 170
FEWEST = 1e-6  # Laplace variables: fewer are taken as so many
BELIEVED = 1.5, 3.5  # noise scales: fewer out-of-domain records are taken as none, more as they are


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Of each row of values: half of the weight is below it.

    >>> weighted_median(np.array([[3.0, 1.0, 2.0]]), np.array([1.0, 1.0, 5.0])).tolist()
    [2.0]
    """
    order = np.argsort(values, axis=-1)
    reached = np.cumsum(weights[order], axis=-1)
    place = np.sum(reached < reached[..., -1:] / 2, axis=-1, keepdims=True)
    return np.asarray(np.take_along_axis(values, np.take_along_axis(order, place, -1), -1)[..., 0])


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

    @property
    def normals(self) -> tuple[Floats, Floats]:
        """Variances and weights of normal laws that are together like the noise.

        A sum of s Laplace variables is normal with a variance that has a Gamma law of shape s.

        >>> variances, weights = CountNoise(sd=3.0, scale=2.1).normals
        >>> round(float(variances @ weights), 6)
        9.0
        """
        if self.scale is None or self.variables > NORMAL:
            return np.full(NORMALS, self.sd**2), np.full(NORMALS, 1 / NORMALS)
        shape = max(self.variables, FEWEST)
        nodes, weights = scipy.special.roots_genlaguerre(NORMALS, shape - 1)
        return self.sd**2 / shape * np.asarray(nodes), np.asarray(weights / sum(weights))

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
        return bool(np.sum(points.weights[dominated]) > SOME * np.sum(points.weights))

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

    def read(
        self,
        counts: Floats,
        outside: Floats,
        *,
        scores: Sequence[Score],
        rng: np.random.Generator,
        draws: int = DRAWS,
    ) -> tuple[Floats, Floats]:
        """Divergences before noise, as many releases tell them: means and standard deviations.

        (scores, releases) each, over draws of what the counts may have been. `counts` and `outside`
        are those of `project`.
        """
        draws = min(draws, max(LEAST_DRAWS, FEWER // len(self.points)))
        pieces = self.pieces(len(counts), draws)
        parts = zip(*(np.array_split(each, pieces) for each in (counts, outside)), strict=True)
        found = [self._read_some(*part, scores=scores, rng=rng, draws=draws) for part in parts]
        values, spreads = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
        return values, spreads

    def _read_some(
        self,
        counts: Floats,
        outside: Floats,
        *,
        scores: Sequence[Score],
        rng: np.random.Generator,
        draws: int,
    ) -> tuple[Floats, Floats]:
        """The same of so few releases that they fit into memory."""
        points, records = self.points, self.records[self.points.batch]
        known, taken = self._known(counts, outside)
        before = self._before_noise(known, taken, rng=rng, draws=draws)
        values, spreads = np.empty((len(scores), len(counts))), np.empty((len(scores), len(counts)))
        for place, score in enumerate(scores):
            of_cells = score(before, points.pi, records)
            drawn = of_cells @ points.weights
            values[place], spreads[place] = drawn.mean(axis=1), drawn.std(axis=1)
            if has_gaps(score):
                values[place] += exchanged(
                    score,
                    known,
                    before,
                    of_cells,
                    self.noise_sd[points.batch],
                    pi=points.pi,
                    weights=points.weights,
                    records=records,
                )
                largest = score.divergence.largest(skew_of(score), 1 / points.pi_min)
                values[place] = np.clip(values[place], 0.0, largest)
        return values, spreads

    def pieces(self, releases: int, draws: int) -> int:
        """In how many pieces so many releases fit into memory."""
        return min(releases, 1 + releases * len(self.points) * (LAWS + draws) // PIECE)

    def before_noise(
        self,
        counts: Floats,
        outside: Floats,
        *,
        rng: np.random.Generator,
        draws: int,
        varied: bool = False,
    ) -> Floats:
        """Counts as they may have been before noise, (releases, draws, points).

        As many in each batch as are likeliest; what is missing to that, or too much, is shared out
        by how uncertain each count is.
        """
        known, taken = self._known(counts, outside)
        return self._before_noise(known, taken, rng=rng, draws=draws, varied=varied)

    def _known(self, counts: Floats, outside: Floats) -> tuple[Floats, Floats]:
        """Noisy counts that sum to what is likeliest in each batch, and these sums."""
        taken = self.asked(self.project(counts, outside))
        sizes = np.bincount(self.points.batch, minlength=self.points.batches)
        return counts - ((self.asked(counts) - taken) / sizes)[:, self.points.batch], taken

    def _before_noise(
        self,
        known: Floats,
        taken: Floats,
        *,
        rng: np.random.Generator,
        draws: int,
        varied: bool = False,
    ) -> Floats:
        """`before_noise`, given counts with known sums."""
        points, batch = self.points, self.points.batch
        scale = 1 / self._growth(known, taken)[:, batch]
        normals = zip(*(law.normals for law in self.noise), strict=True)
        noise, weights = (np.array(each)[batch] for each in normals)
        laws = BeforeNoise.of(self.records[batch] * points.pi, noise, weights)
        found, variance = laws.draw(known * scale, draws, rng, varied=varied)
        found = found / scale[:, None]
        part = variance / self.asked(variance)[:, batch]
        off = taken[:, None] - self.asked(found)
        found = np.maximum(found + off[..., batch] * part[:, None], 0.0)
        return np.asarray(
            found * (taken[:, None] / np.maximum(self.asked(found), TINY))[..., batch]
        )

    def _growth(self, known: Floats, taken: Floats) -> Floats:
        """By how much most cells of each batch have grown, (releases, batches).

        Where a cell vanishes, all others grow by the same factor: they have not drifted apart. That
        is the weighted median of their ratios, if it is surely not the ratio of the sums.
        """
        batch, expected = self.points.batch, self.records[self.points.batch] * self.points.pi
        variance = self.noise_sd[batch] ** 2 + expected
        found = np.maximum(taken, 1.0) / np.bincount(batch, expected, minlength=taken.shape[1])
        for t in range(self.points.batches):
            here = np.flatnonzero(batch == t)
            if len(here) < FEW_CELLS:
                continue
            weights = expected[here] / np.sqrt(variance[here])
            middle = weighted_median(known[:, here] / expected[here], weights) / found[:, t]
            chance = MEDIAN / math.sqrt(np.sum(weights**2))
            sure = (np.abs(middle - 1) > 2 * chance) & (middle > 1 / 2) & (middle < 2)
            found[:, t] *= np.where(sure, middle, 1.0)
        return found

    def textbook(
        self,
        counts: Floats,
        outside: Floats,
        *,
        score: Score,
        rng: np.random.Generator,
        draws: int = DRAWS,
    ) -> Floats:
        """The divergence of projected counts, less the bias that the same noise causes once more.

        What everybody would do with noisy counts: a measure for what we do.
        """
        before = self.project(counts, outside)
        on_counts, on_outside = self.draw_noise(rng, draws * len(counts))
        on_counts += np.repeat(before, draws, axis=0)
        left = np.repeat(self.records - self.asked(before), draws, axis=0)
        # Noise on an out-of-domain count shifts the sum of all others, which is no bias of theirs.
        renoised = self._onto(on_counts, np.where(self.whole, left, left + on_outside))
        again = self.weighted(renoised, score).reshape(len(counts), draws)
        return np.asarray(2 * self.weighted(before, score) - again.mean(axis=1))

    def simulate(
        self,
        counts: Ints | Floats,
        *,
        scores: Sequence[Score],
        rng: np.random.Generator,
        draws: int,
        textbook: bool = False,
    ) -> Floats:
        """What would be read off exact counts (releases, points), with noise of this law on them.

        (scores, releases). The arguments are those of `read`.
        """
        noisy = self.renoised(counts, rng)
        if not textbook:
            return self.read(*noisy, scores=scores, rng=rng, draws=draws)[0]
        found = [self.textbook(*noisy, score=score, rng=rng, draws=draws) for score in scores]
        return np.array(found)

    def renoised(self, counts: Ints | Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Exact counts (releases, points) with noise of this law, as `read` takes them."""
        on_counts, on_outside = self.draw_noise(rng, len(counts))
        return counts + on_counts, self.records - self.asked(counts) + on_outside

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
    points: QueryPoints, noisy: NoisyCounts, *, score: Score, rng: np.random.Generator
) -> tuple[float, float]:
    """The divergence before noise as noisy counts tell it, and the spread of the noise in it.

    The score of a noisy count is biased, by an amount that depends on the count before noise. So
    counts are drawn as they may have been (`before_noise.py`), and the mean of their divergences is
    taken. `rng` is for this simulation; nothing is hidden by it.
    """
    (found,) = read_noisy_counts(points, noisy, scores=[score], rng=rng)
    return found


def read_noisy_counts(
    points: QueryPoints, noisy: NoisyCounts, *, scores: Sequence[Score], rng: np.random.Generator
) -> list[tuple[float, float]]:
    """The same for several scores, of the same draws."""
    values, spreads = CountsDesign.of(points, noisy).read(
        np.array([noisy.counts]), np.array([noisy.out_of_domain]), scores=scores, rng=rng
    )
    return list(zip(values[:, 0].tolist(), spreads[:, 0].tolist(), strict=True))


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
