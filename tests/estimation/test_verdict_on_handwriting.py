"""Real writers: resampled populations have not drifted, and are not called drifted.

Pi is the distribution of a digit's codes over all writers; a population is as many writers, drawn
with replacement. No noise hides the correlation of a writer's digits.
"""

import numpy as np
import pytest
from experiments.handwriting import load_compact
from experiments.paper.world import data_folder
from scipy import stats

from fedprikl.estimation import BatchCounts
from fedprikl.paper import no_privacy
from fedprikl.reference import Correlation, all_points
from tests.false_alarm import FALSE_ALARM

pytestmark = pytest.mark.slow

DIGITS = data_folder() / "femnist_digits.npz"
REPETITIONS = 1000


@pytest.mark.skipif(not DIGITS.exists(), reason="needs the FEMNIST digits, which are not at hand")
@pytest.mark.parametrize("digit", [0, 1, 5])
def test_writers_whose_images_are_alike_raise_no_alarm(digit: int) -> None:
    one = load_compact(DIGITS).population(digit)
    _, writer = np.unique(one.client, return_inverse=True)
    _, cell = np.unique(one.cell, return_inverse=True)
    held = np.zeros((writer.max() + 1, cell.max() + 1), np.int64)
    np.add.at(held, (writer, cell), 1)
    points = all_points(held.sum(axis=0) / held.sum())
    rng, found = np.random.default_rng(digit), []
    for _ in range(REPETITIONS):
        drawn = np.bincount(rng.integers(0, len(held), len(held)), minlength=len(held))
        counts = drawn @ held
        found.append(no_privacy(BatchCounts(points, counts, np.array([counts.sum()]))))
    values = np.array([estimate.value for estimate in found])
    effect = Correlation.estimate(writer, cell).design_effect(
        clients=len(held), records=int(held.sum())
    )
    exact = no_privacy(BatchCounts(points, held.sum(axis=0), np.array([held.sum()])))
    alarms = np.count_nonzero(values > exact.verdict(spread=effect).statistics[0].threshold)
    assert stats.binom.sf(alarms - 1, REPETITIONS, 0.01) > FALSE_ALARM
    ignoring = np.count_nonzero(values > exact.verdict().statistics[0].threshold)
    assert stats.binom.sf(ignoring - 1, REPETITIONS, 0.01) < FALSE_ALARM
