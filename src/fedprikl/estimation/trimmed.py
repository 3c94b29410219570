"""The trimmed mean of cohort scores: clients that lie in a few cohorts hardly move it.

Every cohort's sum is scored by itself, and the lowest and highest scores are cut off.
docs/decisions/0022-liars.md has the proofs.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.scoring import score_sensitivity
from fedprikl.estimation.terms import Terms
from fedprikl.reference import QueryPoints

__all__ = ["TrimmedMean", "cut_off"]


@dataclass(frozen=True, slots=True, eq=False)
class TrimmedMean:
    """The mean of what is left of T cohort scores without the t lowest and the t highest. Public.

        value = sum_{i = t+1 .. T-t} S_(i),    S_c = sum_x w(x) s(h_c(x)) / (T - 2t)

    where S_(1) <= ... <= S_(T). A score is divided by T - 2t where it is made, so that a plan's
    maximum step limits what one record does to the value, as it does elsewhere.

    >>> from fedprikl.divergence import Skew, divergence_named
    >>> from fedprikl.reference import all_points
    >>> score = Score(Skew(0.0), divergence_named("tv"))
    >>> mean = TrimmedMean.of(all_points([0.5, 0.5]), np.full(5, 10), trim=0.2)
    >>> mean.cut
    1
    >>> counts = np.array([5, 5, 6, 4, 4, 6, 5, 5, 10, 0])  # tv is 0, 0.1, 0.1, 0 and 0.5
    >>> round(mean.value(counts, score), 4)
    0.0667
    """

    points: QueryPoints  # those of a round, once for each cohort
    records: Ints  # N_c, per cohort
    cut: int  # t

    @classmethod
    def of(cls, points: QueryPoints, records: Ints, trim: float) -> "TrimmedMean":
        """Of cohorts of so many records that are all asked the same points, those of one batch."""
        return _trimmed_mean(points, tuple(records.tolist()), trim)

    @property
    def cohorts(self) -> int:
        """T."""
        return len(self.records)

    @property
    def kept(self) -> int:
        """T - 2t."""
        return self.cohorts - 2 * self.cut

    def scores(self, counts: npt.ArrayLike, score: Score) -> Floats:
        """S_c of counts (..., T m): (..., T)."""
        return np.asarray(self._terms(counts, score).sum(axis=-1))

    def values(self, counts: npt.ArrayLike, score: Score) -> Floats:
        """The trimmed means of counts (..., T m), one a row."""
        ordered = np.sort(self.scores(counts, score), axis=-1)
        return np.asarray(ordered[..., self.cut : self.cohorts - self.cut].sum(axis=-1))

    def value(self, counts: Ints, score: Score) -> float:
        """The trimmed mean before noise. SECRET. Rounded as the sensitivity expects."""
        scores = sorted(math.fsum(row) for row in self._terms(counts, score).tolist())
        return math.fsum(scores[self.cut : self.cohorts - self.cut])

    def sensitivity(self, score: Score, moved: int) -> float:
        """How far one client with so many records can move the value: exact for equal cohorts.

        The client is in one cohort. With the other scores as they are, the value is a constant plus
        that cohort's score, kept between two of the others. So it moves by no more than the score,
        which is divided by T - 2t already.
        """
        return _sensitivity(self, score, moved)

    def extremes(self, score: Score) -> tuple[float, float]:
        """Below and above all scores that a cohort can have, whatever its clients hold."""
        terms = Terms.of(self.points, self.records)
        shape = self.cohorts, -1
        empty = (terms.weights * terms.scores(np.zeros(len(terms.pi)), score)).reshape(shape)
        full = (terms.weights * terms.scores(terms.records, score)).reshape(shape)
        most = empty.sum(axis=1) + np.maximum((full - empty).max(axis=1), 0.0)
        reach = self.sensitivity(score, int(self.records.max()))
        return float(most.min()) - reach, float(most.max())

    def largest_shift(self, broken: int, score: Score) -> float:
        """How far the clients of so many cohorts together can move the value, at most."""
        least, most = self.extremes(score)
        each = self.sensitivity(score, int(self.records.max()))
        return min(broken * each, self.kept * (most - least))

    def shifts(self, scores: Floats, broken: int, extremes: tuple[float, float]) -> Floats:
        """The same, if all cohorts would have these honest scores (draws, T): attained.

        Whatever `broken` of the scores become, the i-th lowest is then no higher than the
        (i + broken)-th lowest was, and no lower than the (i - broken)-th lowest.
        """
        ordered, (low, high) = np.sort(scores, axis=1), extremes
        ends = np.ones((len(ordered), broken))
        padded = np.concatenate([low * ends, ordered, high * ends], axis=1)
        left = np.arange(self.cut, self.cohorts - self.cut) + broken  # places in `padded`
        value = padded[:, left].sum(axis=1)
        up = padded[:, left + broken].sum(axis=1) - value
        down = value - padded[:, left - broken].sum(axis=1)
        return np.asarray(np.maximum(up, down))

    def _terms(self, counts: npt.ArrayLike, score: Score) -> Floats:
        """w(x) s(h_c(x)) / (T - 2t): (..., T, m)."""
        terms = Terms.of(self.points, self.records)
        found = terms.weights * terms.scores(counts, score)
        return found.reshape((*found.shape[:-1], self.cohorts, -1))


@lru_cache(maxsize=16)  # trials of one round ask for the same one thousands of times
def _trimmed_mean(points: QueryPoints, records: tuple[int, ...], trim: float) -> TrimmedMean:
    cohorts = len(records)
    cut = cut_off(cohorts, trim)
    apart = QueryPoints(
        batches=cohorts,
        cells=np.tile(points.cells, cohorts),
        batch=np.repeat(np.arange(cohorts), len(points)),
        pi=np.tile(points.pi, cohorts),
        weights=np.tile(points.weights / (cohorts - 2 * cut), cohorts),
        draws=np.tile(points.draws, cohorts),
        pi_min=points.pi_min,
        sampling_variance=points.sampling_variance,
    )
    return TrimmedMean(apart, np.array(records), cut)


@lru_cache(maxsize=64)
def _sensitivity(mean: TrimmedMean, score: Score, moved: int) -> float:
    return score_sensitivity(mean.points, mean.records, score, moved)


def cut_off(cohorts: int, trim: float) -> int:
    """t: how many scores are cut off at either end; one is always left.

    >>> cut_off(30, 0.1), cut_off(9, 0.1), cut_off(100, 0.29), cut_off(7, 0.499)
    (3, 0, 29, 3)
    """
    return min(math.floor(trim * cohorts + 1e-9), (cohorts - 1) // 2)
