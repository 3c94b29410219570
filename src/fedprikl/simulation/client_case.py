"""The audit of whole clients: two populations that differ in all records of one client.

Every release counts and draws anew, with the code that clients run.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.divergence import Score
from fedprikl.estimation import BatchCounts, score_sensitivity
from fedprikl.estimation.scoring import weighted_score
from fedprikl.privacy import Mechanism, NoiseKind, NoiseSource, calibrate
from fedprikl.records import Draw
from fedprikl.records.counting import CellReader
from fedprikl.reference import QueryPoints, Reference, all_points

OTHERS = 2  # clients that are the same in both populations
MANY = 10  # times k: what the client holds in one of the two


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClientCase:
    """Two populations that differ in one client, and what is released about each."""

    mechanism: Mechanism
    reader: CellReader
    points: QueryPoints
    score: Score
    draw: Draw
    others: Ints  # counts of the clients that are the same in both
    left: Ints  # records of the client, as cell numbers
    right: Ints
    source: NoiseSource
    true_epsilon: float  # of the noise on these two populations, by theory

    @property
    def description(self) -> str:
        """What is on trial."""
        k = self.draw.records
        return (
            f"one number with {self.mechanism}, about {OTHERS + 1} clients that draw {k:,} records "
            "each; all records of one client are replaced"
        )

    def sample_left(self, trials: int) -> Floats:
        """Releases about the left population."""
        return self._sample(self.left, trials)

    def sample_right(self, trials: int) -> Floats:
        """Releases about the right population."""
        return self._sample(self.right, trials)

    def _sample(self, client: Ints, trials: int) -> Floats:
        values = [self.value(client) for _ in range(trials)]
        return self.mechanism.add_to(values, self.source)

    def value(self, client: Ints) -> float:
        """What is released, before noise; the client draws anew."""
        counts = self.others + self.reader.count_array(client, self.draw).counts
        records = np.array([self.draw.records * (OTHERS + 1)])
        return weighted_score(BatchCounts(self.points, counts[:-1], records), self.score)


def client_case(
    *,
    epsilon: float,
    delta: float,
    per_client: int,
    noise: NoiseKind,
    source: NoiseSource,
    sensitivity: float | None = None,
) -> ClientCase:
    """The calibration for whole clients on the client that moves the release the most.

    In one population it holds `per_client` records, each the only one of its cell; in the other ten
    times as many that the reference has never seen, as all that the other clients hold.
    `sensitivity` replaces the right one, to see an audit refute a claim.
    """
    k = check_positive_int(per_client, "per_client")
    reference = Reference.from_counts([1] * k)
    points, score = all_points(reference.probabilities), Score(correction=1.0)
    reader, draw = CellReader(reference), Draw(k)
    moved = score_sensitivity(points, np.array([k * (OTHERS + 1)]), score, moved=k)
    unseen = np.full(MANY * k, k)
    mechanism = calibrate(
        epsilon=epsilon, delta=delta, sensitivity=sensitivity or moved, kind=noise
    )
    return ClientCase(
        mechanism=mechanism,
        reader=reader,
        points=points,
        score=score,
        draw=draw,
        others=OTHERS * reader.count_array(unseen, draw).counts,
        left=np.arange(k),
        right=unseen,
        source=source,
        true_epsilon=mechanism.epsilon(delta) if sensitivity is None else math.nan,
    )
