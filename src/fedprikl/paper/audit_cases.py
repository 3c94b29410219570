"""Audit cases: the two neighbouring data sets whose releases are easiest to tell apart.

Each case runs the calibration's own code on both and hands their samplers to `privacy.audit`.
"""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.divergence import Score, Skew
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.scoring import (
    BatchCounts,
    increments_per_batch,
    score_sensitivity,
    weighted_score,
)
from fedprikl.paper.calibration import paper_noise_gain, paper_term_sensitivity
from fedprikl.privacy import (
    GaussianMechanism,
    Mechanism,
    NoiseKind,
    NoiseSource,
    calibrate,
    worst_substitution,
)
from fedprikl.reference import QueryPoints


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuditCase:
    """Two neighbouring worlds: what the mechanism would release in each, and its noise."""

    mechanism: Mechanism
    left: Floats  # exact values of one release, one or several numbers
    right: Floats
    source: NoiseSource
    description: str
    true_epsilon: float  # of the noise on these two data sets, by theory

    def sample_left(self, trials: int) -> Floats:
        """Releases in the left world, projected on the direction that tells the worlds apart."""
        return self._sample(self.left, trials)

    def sample_right(self, trials: int) -> Floats:
        """Releases in the right world, projected likewise."""
        return self._sample(self.right, trials)

    def _sample(self, values: Floats, trials: int) -> Floats:
        noisy = self.mechanism.add_to(np.tile(values, trials), self.source).reshape(trials, -1)
        if noisy.shape[1] == 1:  # no arithmetic, so that every bit of the release is examined
            return noisy[:, 0]
        shift = self.right - self.left
        projected: Floats = noisy @ (shift / np.linalg.norm(shift))
        return projected


def exact_case(
    *,
    epsilon: float,
    delta: float,
    points: int,
    batches: int,
    noise: NoiseKind,
    source: NoiseSource,
) -> AuditCase:
    """The exact calibration on the data where one record moves the release the most."""
    asked = _flat_points(points, batches)
    records = np.full(batches, 40 * check_positive_int(points, "points"))
    score = Score(correction=1.0)
    left, right = worst_neighbours(asked, records, score)
    sensitivity = score_sensitivity(asked, records, score)
    mechanism = calibrate(epsilon=epsilon, delta=delta, sensitivity=sensitivity, kind=noise)
    return AuditCase(
        mechanism=mechanism,
        left=np.array([weighted_score(left, score)]),
        right=np.array([weighted_score(right, score)]),
        source=source,
        description=f"one number with {mechanism}, on the worst neighbours among all data sets",
        true_epsilon=mechanism.epsilon(delta),
    )


def paper_case(
    *,
    epsilon: float,
    delta: float,
    points: int,
    batches: int,
    released: str,
    source: NoiseSource,
) -> AuditCase:
    """The paper's printed noise on data that meet every premise of its theorems.

    Every cell counts at least 2, before and after: one asked cell falls from 3 to 2, another (not
    asked, if only the mean is released, or they would cancel) rises from 2 to 3. Nothing is
    smoothed, lambda is 0. The other terms are equal in both worlds, so the best adversary ignores
    them; the mean is sampled as one number, with the mean of the noise.
    """
    if check_positive_int(points, "points") < 2:
        raise InvalidInputError("This audit compares two asked cells; ask at least 2 points.")
    asked = _flat_points(points, batches)
    score, records = Score(Skew(0.0)), np.full(batches, 2 * (points + 1) + 1)
    left, right = np.full(len(asked), 2), np.full(len(asked), 2)
    left[0], right[1] = 3, 3 if released == "terms" else 2
    terms = [score(h, asked.pi, records[asked.batch]) for h in (left, right)]
    kappa = paper_term_sensitivity(control=0.0, records=int(records[0]), pi_min=asked.pi_min)
    sigma = kappa * paper_noise_gain(epsilon=epsilon, delta=delta, batches=batches) ** 0.5
    if released == "terms":
        values = [t[:2] for t in terms]
    elif released == "mean":
        values = [np.array([asked.weights @ t]) for t in terms]
        sigma /= (points * batches) ** 0.5
    else:
        raise InvalidInputError(f"`released` must be 'terms' or 'mean', got {released!r}.")
    distance = float(np.linalg.norm(values[1] - values[0]))
    mechanism = GaussianMechanism(sigma=sigma, sensitivity=distance)
    return AuditCase(
        mechanism=mechanism,
        left=values[0],
        right=values[1],
        source=source,
        description=f"the paper's noise, {released} released, on data that meet its premises",
        true_epsilon=mechanism.epsilon(delta),
    )


def worst_neighbours(
    points: QueryPoints, records: Ints, score: Score
) -> tuple[BatchCounts, BatchCounts]:
    """Two neighbouring data sets whose scores lie as far apart as any two do."""
    worst = worst_substitution(increments_per_batch(points, records, score))
    first = int(np.searchsorted(points.batch, worst.batch))
    free = records.copy()
    free[worst.batch] -= 1  # the record that is substituted
    common, moved = np.zeros(len(points), np.int64), np.zeros((2, len(points)), np.int64)
    for row, cell, count in ((0, worst.losing, worst.lose_at), (1, worst.gaining, worst.gain_at)):
        if cell is not None:
            moved[row, first + cell] = 1
            common += _placed(points, first + cell, count, free)
    return BatchCounts(points, common + moved[0], records), BatchCounts(
        points, common + moved[1], records
    )


def _placed(points: QueryPoints, point: int, count: int, free: Ints) -> Ints:
    """`count` records of this point's term, in its batches as far as there is room; uses it up.

    The batch of the substitution itself is filled last.
    """
    placed = np.zeros(len(points), np.int64)
    same = np.array([point])
    if points.pooled:
        same = np.flatnonzero(points.cells == points.cells[point])
        same = np.append(same[same != point], point)
    for entry in same:
        batch = points.batch[entry]
        placed[entry] = min(count, int(free[batch]))
        free[batch] -= placed[entry]
        count -= int(placed[entry])
    return placed


def _flat_points(points: int, batches: int) -> QueryPoints:
    """m distinct points for each batch from a uniform reference of m + 1 cells."""
    return QueryPoints.build(
        np.full(points + 1, 1 / (points + 1)),
        cells=np.tile(np.arange(points), batches),
        batch=np.repeat(np.arange(batches), points),
        weights=np.full(points * batches, 1 / (points * batches)),
        batches=batches,
    )
