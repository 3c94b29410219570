"""The audit of a calibration: two neighbouring data sets whose releases are easiest to tell apart.

Each case runs the calibration's own code on both. Data sets differ in one record, or in all
records of one client, which then counts and draws anew with the code that clients run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fedprikl.audit.lower_bounds import AuditResult, audit
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew
from fedprikl.estimation.scoring import (
    BatchCounts,
    increments_per_batch,
    score_sensitivity,
    weighted_score,
)
from fedprikl.paper import paper_noise_gain, paper_term_sensitivity
from fedprikl.privacy import (
    SECURE_NOISE,
    GaussianMechanism,
    Mechanism,
    Numbers,
    calibrate,
    worst_substitution,
)
from fedprikl.records import Draw, open_records
from fedprikl.reference import QueryPoints, Reference

World = Callable[[int], Floats]  # n -> what n releases would be before noise: (n, numbers)
OTHERS = 2  # clients that are the same in both populations
MANY = 10  # times k: what the replaced client holds in one of the two


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuditCase:
    """Two neighbouring worlds: what would be released about each, and with which noise."""

    description: str
    mechanism: Mechanism  # its sensitivity is the distance of these worlds
    left: World
    right: World

    def run(self, *, epsilon: float, delta: float, trials: int, false_alarm: float) -> AuditResult:
        """Tries to refute that the releases have this epsilon and delta."""
        return audit(
            partial(self.sample, self.left),
            partial(self.sample, self.right),
            epsilon=epsilon,
            delta=delta,
            gaussian=self.mechanism.loss.gaussian,
            trials=trials,
            false_alarm=false_alarm,
        )

    def sample(self, world: World, trials: int) -> Floats:
        """Releases in a world, projected on the direction that tells the two apart."""
        exact = world(trials)
        noisy = self.mechanism.add_to(exact.ravel(), SECURE_NOISE).reshape(exact.shape)
        if exact.shape[1] == 1:  # no arithmetic, so that every bit of the release is examined
            return noisy.ravel()
        shift = (self.right(1) - self.left(1))[0]
        return np.asarray(noisy @ (shift / np.linalg.norm(shift)))


def exact_case(*, epsilon: float, delta: float, points: int, batches: int, noise: str) -> AuditCase:
    """The exact calibration on the data where one record changes the release the most."""
    asked = _flat_points(points, batches)
    records = np.full(batches, 40 * points)
    score = Score(correction=1.0)
    sensitivity = score_sensitivity(asked, records, score)
    mechanism = calibrate(Numbers(sensitivity), epsilon=epsilon, delta=delta, law=noise)
    left, right = (
        _always(weighted_score(counts, score)) for counts in worst_neighbours(asked, records, score)
    )
    description = f"one number with {mechanism}, on the worst neighbours among all data sets"
    return AuditCase(description=description, mechanism=mechanism, left=left, right=right)


def paper_case(
    *,
    epsilon: float,
    delta: float,
    points: int,
    batches: int,
    released: Literal["terms", "mean"],
) -> AuditCase:
    """The paper's printed noise on data that meet every premise of its theorems.

    Every cell counts at least 2, before and after: one asked cell falls from 3 to 2, another (not
    asked, if only the mean is released, or they would cancel) rises from 2 to 3. Nothing is
    smoothed, lambda is 0. The other terms are equal in both worlds, so the best adversary ignores
    them; the mean is sampled as one number, with the mean of the noise.
    """
    asked = _flat_points(points, batches)
    score, records = Score(Skew(0.0)), np.full(batches, 2 * (points + 1) + 1)
    left, right = np.full(len(asked), 2), np.full(len(asked), 2)
    left[0], right[1] = 3, 3 if released == "terms" else 2
    terms = [score(h, asked.pi, records[asked.batch]) for h in (left, right)]
    kappa = paper_term_sensitivity(control=0.0, records=int(records[0]), pi_min=asked.pi_min)
    sigma = kappa * paper_noise_gain(epsilon=epsilon, delta=delta, batches=batches) ** 0.5
    values = [each[:2] for each in terms]
    if released == "mean":
        values = [np.array([asked.weights @ each]) for each in terms]
        sigma /= (points * batches) ** 0.5
    distance = float(np.linalg.norm(values[1] - values[0]))
    return AuditCase(
        description=f"the paper's noise, {released} released, on data that meet its premises",
        mechanism=GaussianMechanism(sigma=sigma, sensitivity=distance),
        left=_always(*values[0]),
        right=_always(*values[1]),
    )


def client_case(*, epsilon: float, delta: float, per_client: int, noise: str) -> AuditCase:
    """The calibration for whole clients on the client that changes the release the most.

    In one population it holds `per_client` records, each the only one of its cell; in the other ten
    times as many out-of-domain records, as all that the other clients hold.
    """
    release = ClientRelease(per_client)
    on = Numbers(release.sensitivity(per_client))
    mechanism = calibrate(on, epsilon=epsilon, delta=delta, law=noise)
    return AuditCase(
        description=(
            f"one number with {mechanism}, about {OTHERS + 1} clients that draw {per_client:,} "
            "records each; all records of one client are replaced"
        ),
        mechanism=mechanism,
        left=partial(release.values, np.arange(per_client)),
        right=partial(release.values, release.out_of_domain),
    )


class ClientRelease:
    """What is released, before noise, about clients that draw k records each; all but one of them
    hold only out-of-domain records.
    """

    def __init__(self, k: int) -> None:
        reference = Reference.from_counts([1] * k)
        self._reference, self._draw = reference, Draw(k)
        self._points, self._score = reference.whole.points(), Score(correction=1.0)
        self._records = np.array([k * (OTHERS + 1)])
        self.out_of_domain = np.full(MANY * k, k)
        self._others = OTHERS * self._counts(self.out_of_domain)

    def sensitivity(self, changed: int) -> float:
        """By how much a change of so many records can change the number."""
        return score_sensitivity(self._points, self._records, self._score, contribution=changed)

    def values(self, client: Ints, releases: int) -> Floats:
        """The number in so many releases, if one client holds these cells; it draws anew."""
        return np.array([[self._value(client)] for _ in range(releases)])

    def _value(self, client: Ints) -> float:
        counts = self._others + self._counts(client)
        return weighted_score(BatchCounts(self._points, counts[:-1], self._records), self._score)

    def _counts(self, client: Ints) -> Ints:
        return open_records(client).count(self._reference, self._draw).counts


def worst_neighbours(
    points: QueryPoints, records: Ints, score: Score
) -> tuple[BatchCounts, BatchCounts]:
    """Two neighbouring data sets whose scores lie as far apart as any two do."""
    worst = worst_substitution(increments_per_batch(points, records, score))
    first = int(np.searchsorted(points.batch, worst.batch))
    free = records.copy()
    free[worst.batch] -= 1  # the record that is substituted
    common, changed = np.zeros(len(points), np.int64), np.zeros((2, len(points)), np.int64)
    for row, cell, count in ((0, worst.losing, worst.lose_at), (1, worst.gaining, worst.gain_at)):
        if cell is not None:
            changed[row, first + cell] = 1
            common += _placed(points, first + cell, count, free)
    left, right = (BatchCounts(points, common + each, records) for each in changed)
    return left, right


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


def _always(*values: float) -> World:
    """The same numbers in every release."""
    return lambda releases: np.tile(values, (releases, 1))


def _flat_points(points: int, batches: int) -> QueryPoints:
    """m distinct points for each batch from a uniform reference of m + 1 cells."""
    return QueryPoints.build(
        np.full(points + 1, 1 / (points + 1)),
        cells=np.tile(np.arange(points), batches),
        batch=np.repeat(np.arange(batches), points),
        weights=np.full(points * batches, 1 / (points * batches)),
        batches=batches,
    )
