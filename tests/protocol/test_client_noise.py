"""Noise of plans that protect clients: all neighbouring populations, through the real release."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedprikl import InsecureSeededNoise
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import score_sensitivity
from fedprikl.privacy import IntegerLaplaceMechanism
from fedprikl.privacy.shares import SharedLaplaceMechanism
from fedprikl.protocol import Plan, Question, WholeClient
from fedprikl.protocol.answering import estimate_sums
from fedprikl.protocol.sums import NoisyHistogram, OpenedSum, ScoredSum
from fedprikl.reference import all_points
from tests.brute_force import Histogram, distance, histograms
from tests.plans import AskColumns, make_plan
from tests.protocol.worlds import InsecureNoNoise

pytestmark = pytest.mark.slow

# Two columns of two values each, and their joint cells: aa, ab, ba, bb.
JOINT = np.array([0.4, 0.2, 0.1, 0.3])
CLIENTS, EPSILON = 3, 2.0
COLUMNS = AskColumns(views=(("a",), ("b",)), sizes=(2, 2), tv=0.1, js=0.1, counts=0.2)


def plan(questions: tuple[Question, ...], **changes: Any) -> Plan:
    return make_plan(epsilon=EPSILON, points=4, questions=questions, **changes)


def two_numbers(**changes: Any) -> Plan:
    """Two divergences of the whole, two of every column, and the counts of the columns."""
    asked = tuple(Question(divergence=name, share=0.3, skew=0.05) for name in ("kl", "hellinger"))
    return plan(asked, columns=COLUMNS, **changes)


class Watched(InsecureNoNoise):
    """No noise, and a note of what it would have hidden, in units of its scale."""

    def __init__(self) -> None:
        self.hidden: list[Floats] = []

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        self.hidden.append(np.asarray(values, np.float64) / scale)
        return super().laplace(values, scale=scale)

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:
        self.hidden.append(np.asarray(counts, np.float64) / scale)
        return super().integer_laplace(counts, scale=scale)


def released(asked: Plan, counts: Histogram) -> Floats:
    """All that is released about so many records of each joint cell, over its noise."""
    trust, source, rng = ScoredSum(asked), Watched(), np.random.default_rng(1)
    table = np.array(counts).reshape(2, 2)
    views = [all_points(JOINT.reshape(2, 2).sum(axis=axis)) for axis in (1, 0)]
    exact = (np.array(counts), table.sum(axis=1), table.sum(axis=0))
    batch, points = OpenedSum(exact, int(table.sum())), (all_points(JOINT), *views)
    estimate_sums(trust, points, [batch], [CLIENTS], source=source, rng=rng)
    return np.concatenate(source.hidden)


def largest_loss(asked: Plan, moved: int) -> float:
    """Of Laplace noise: the largest sum of moves over scales, of all pairs of neighbours."""
    populations = list(histograms(4, CLIENTS * moved))
    hidden = {each: released(asked, each) for each in populations}
    return max(
        float(np.abs(hidden[one] - hidden[other]).sum())
        for one, other in itertools.combinations(populations, 2)
        if distance(one, other) <= moved
    )


@pytest.mark.parametrize("moved", [1, 2, 3])
def test_no_client_is_told_from_another_by_all_that_is_released(moved: int) -> None:
    """Values, vectors and counts together: at most epsilon, and not far below."""
    asked = two_numbers(unit="client", per_client=moved)
    assert EPSILON / 2 < largest_loss(asked, moved) <= EPSILON


def test_a_plan_for_single_records_does_not_hide_a_client() -> None:
    """The test above has teeth: the noise of unit "record" is too little for three records."""
    assert largest_loss(two_numbers(), 3) > 1.5 * EPSILON


def test_a_client_of_one_record_is_a_record() -> None:
    asked = two_numbers(unit="client", per_client=1)
    for counts in ((1, 1, 1, 0), (0, 3, 0, 0)):
        np.testing.assert_array_equal(released(asked, counts), released(two_numbers(), counts))


@pytest.mark.parametrize("release", ["value", "adaptive", "counts"])
def test_every_way_to_release_is_for_the_client(release: Any) -> None:
    """More noise with 20 records of each client; as much as ever with one."""
    question = Question(release=release)
    counts = np.array([800, 400, 200, 600])

    def error(asked: Plan) -> float:
        trust, sums = ScoredSum(asked), [OpenedSum((counts,), 2000)]
        found = [
            estimate_sums(
                trust,
                (all_points(JOINT),),
                sums,
                [100],
                source=InsecureSeededNoise(seed),
                rng=np.random.default_rng(seed),
            )
            .each[0]
            .value
            for seed in range(12)
        ]
        return float(np.mean(np.abs(found)))

    record = plan((question,))
    one = plan((question,), unit="client", per_client=1)
    many = plan((question,), unit="client", per_client=20)
    assert error(one) == error(record)
    assert error(many) > 2 * error(record)


def test_the_stated_sensitivity_is_that_of_the_client() -> None:
    asked = plan((Question(),), unit="client", per_client=20)
    trust, sums = ScoredSum(asked), [OpenedSum((np.full(4, 500),), 2000)]
    rng, points = np.random.default_rng(1), (all_points(JOINT),)
    stated = estimate_sums(trust, points, sums, [100], source=InsecureNoNoise(), rng=rng).privacy
    score = trust.score_of(asked.question)
    expected = score_sensitivity(all_points(JOINT), np.array([2000]), score, 20)
    assert stated.sensitivity == expected
    assert expected < 20 * score_sensitivity(all_points(JOINT), np.array([2000]), score)


def test_noisy_counts_are_for_the_client() -> None:
    asked = plan((Question(release="counts"),), unit="client", per_client=20)
    (noise,) = ScoredSum(asked).noises
    assert isinstance(noise.charge, IntegerLaplaceMechanism)
    assert noise.charge.scale == pytest.approx(2 * 20 / EPSILON)
    columns = ScoredSum(two_numbers(unit="client", per_client=20)).column_counts
    assert columns.sensitivity == 2 * 2 * 20


def test_noise_shares_are_for_the_client() -> None:
    counted = Question(release="counts")
    record = plan((counted,), trust="none")
    client = replace(record, unit=WholeClient(20))
    shares = [NoisyHistogram(each).share(30) for each in (record, client)]
    assert all(isinstance(share, SharedLaplaceMechanism) for share in shares)
    scales = [share.laplace_scale for share in shares]
    assert scales[0] is not None
    assert scales[1] == pytest.approx(20 * scales[0])
    assert shares[1].epsilon(client.budget.delta) <= EPSILON
