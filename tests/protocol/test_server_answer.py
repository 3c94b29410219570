"""The answer of three servers: the same numbers as in the clear, exact sensitivity and account."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, ReleaseRefused
from fedprikl.privacy import (
    InsecureSeededNoise,
    ServersNoise,
    SharedCounts,
    calibrate,
    total_epsilon,
)
from fedprikl.privacy.charges import charge_from_dict, charge_to_dict
from fedprikl.privacy.server_noise import JointLaplace
from fedprikl.protocol import AskedView, Budget, Plan, Question, Servers, WholeClient
from fedprikl.protocol.answering import Noised, places_of
from fedprikl.protocol.server_answer import (
    QUARTER,
    ServersAnswer,
    answer,
    expected_steps,
    laplace_noise,
    rising,
)
from fedprikl.protocol.sums import FINE, ServersSum, servers_law
from fedprikl.reference import QueryPoints, all_points
from fedprikl.secure_sum.line_runtime import LineRuntime
from fedprikl.secure_sum.line_shares import LARGEST, SERVERS, restore, to_field
from tests.secure_sum.three import Randomness, run_three, shares_of

PI = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4]), np.array([0.1, 0.2, 0.3, 0.4])
NAMES = ("a",), ("b",)


def plan(**changes: Any) -> Plan:
    """The whole by counts and tv; two columns by tv and counts."""
    given: dict[str, Any] = {
        "population": "p",
        "reference": 64 * "0",
        "trust": "servers",
        "servers": Servers(lost="counts"),
        "budget": Budget(epsilon=1.0),
        "views": (
            AskedView(points=3),
            AskedView(columns=("a",), points=2),
            AskedView(columns=("b",), points=4),
        ),
        "questions": (
            Question(share=0.3, release="counts"),
            Question(divergence="tv", share=0.2, skew=0.1),
            Question(divergence="tv", share=0.25, views=NAMES, skew=0.0),
            Question(divergence="tv", share=0.25, views=NAMES, release="counts", skew=0.0),
        ),
    }
    return Plan(**(given | changes))


def points() -> tuple[QueryPoints, ...]:
    return tuple(map(all_points, PI))


def in_the_clear(asked: ServersAnswer, total: Ints, records: int, noise: Ints) -> Noised:
    """What is released, computed without shares: another way to the same numbers."""
    numbers: list[int] = []
    for each in asked.noises:
        for place in places_of(asked.trust.plan, each):
            block = asked.view(place, to_field(total)).tolist()
            if each.is_counts:
                numbers += block
                continue
            expected = expected_steps(asked.points[place], records).tolist()
            short = (c - FINE * h for c, h in zip(expected, block[:-1], strict=True))
            numbers.append(sum(max(0, each) for each in short))
    return asked.read(np.array(numbers) + noise, records, insecure=True)


def on_shares(
    asked: ServersAnswer, total: Ints, included: int = 3, present: tuple[int, ...] = SERVERS
) -> tuple[Noised, Ints]:
    """The same by the servers; and all noise that they drew."""
    held = shares_of(total, bytes(range(32)))
    sources = {n: InsecureSeededNoise(n) for n in present}
    size = len(asked.draw_noise(InsecureSeededNoise(0)))
    noises = {n: np.random.default_rng(n).integers(-50, 50, size) for n in present}

    async def one(runtime: LineRuntime) -> Noised:
        n = runtime.server
        return await answer(
            runtime, asked, held[n], included=included, source=sources[n], noise=noises[n]
        )

    found = run_three(one, present)
    assert len({repr(each) for each in found.values()}) == 1
    return found[present[0]], np.sum(list(noises.values()), axis=0)


def total_of(rng: np.random.Generator, records: int) -> Ints:
    """Sums as honest clients have them: every block adds up to N."""
    blocks = [rng.multinomial(records, np.full(len(pi) + 1, 1 / (len(pi) + 1))) for pi in PI]
    return np.concatenate([*blocks, [records]])


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 2**32))
def test_shares_give_what_the_clear_gives(records: int, seed: int) -> None:
    total = total_of(np.random.default_rng(seed), records)
    asked = ServersAnswer(ServersSum(plan()), points())
    found, noise = on_shares(asked, total)
    assert found == in_the_clear(asked, total, records, noise)
    assert found.variances == ()


@pytest.mark.parametrize("present", [(1, 2), (1, 3), (2, 3)])
def test_with_one_server_lost_counts_are_left(present: tuple[int, ...]) -> None:
    total = total_of(np.random.default_rng(1), 500)
    asked = ServersAnswer(ServersSum(plan()), points(), lost=True)
    found, noise = on_shares(asked, total, present=present)
    assert found == in_the_clear(asked, total, 500, noise)
    assert (found.values, len(found.counts), len(found.variances)) == ((), 3, 2)


def test_a_plan_says_whether_a_server_may_be_lost() -> None:
    with pytest.raises(ReleaseRefused, match="releases nothing without it"):
        ServersAnswer(ServersSum(plan(servers=Servers())), points(), lost=True)
    columns = plan(
        views=(AskedView(points=3),),
        questions=(Question(divergence="tv", skew=0.0),),
        servers=Servers(),
    )
    some = replace(columns, servers=Servers(lost="counts"))
    with pytest.raises(InvalidInputError, match="needs a question with release='counts'"):
        Plan.from_dict(some.to_dict())
    with pytest.raises(InvalidInputError, match="needs a question with release='counts'"):
        ServersAnswer(ServersSum(some), points()[:1], lost=True)


def test_who_is_present_is_decided_before_noise_is_drawn() -> None:
    asked = ServersAnswer(ServersSum(plan()), points())
    with pytest.raises(InvalidInputError, match="before any noise"):
        on_shares(asked, total_of(np.random.default_rng(1), 9), present=(1, 2))


def test_reports_without_records_release_nothing() -> None:
    with pytest.raises(ReleaseRefused, match="hold no records"):
        on_shares(ServersAnswer(ServersSum(plan()), points()), np.zeros(13, np.int64))


def test_whole_clients_have_a_known_number_of_records() -> None:
    """It is not opened, whatever they say."""
    asked = ServersAnswer(ServersSum(plan(unit=WholeClient(20))), points())
    total = total_of(np.random.default_rng(2), 60)
    total[-1] = 7
    found, noise = on_shares(asked, total, included=3)
    assert found == in_the_clear(asked, total, 60, noise)


def test_a_tv_needs_all_cells() -> None:
    some = QueryPoints.build(PI[2], cells=[1, 3], batch=[0, 0], weights=[0.5, 0.5], batches=1)
    with pytest.raises(InvalidInputError, match="every cell is asked"):
        expected_steps(some, 10, 4)


# Exact sensitivity, over all neighbours of all small populations.


def histograms(cells: int, records: int) -> list[tuple[int, ...]]:
    """All ways to put so many records into cells and outside."""
    ranges = product(range(records + 1), repeat=cells)
    return [each for each in ranges if sum(each) <= records]


def neighbours(counts: tuple[int, ...], records: int, moved: int) -> list[tuple[int, ...]]:
    """All populations in which `moved` records are others."""
    found = histograms(len(counts), records)

    def apart(other: tuple[int, ...]) -> int:
        gone = sum(max(0, a - b) for a, b in zip(counts, other, strict=True))
        come = sum(max(0, b - a) for a, b in zip(counts, other, strict=True))
        return max(gone, come)

    return [other for other in found if apart(other) <= moved]


@pytest.mark.parametrize(("pi", "k"), [(PI[0], 1), (PI[1], 1), (PI[0], 2)])
def test_a_unit_moves_a_tv_by_at_most_its_sensitivity_and_some_unit_does(
    pi: np.ndarray[Any, Any], k: int
) -> None:
    records, fine = 4, 16
    expected = expected_steps(all_points(pi), records, fine)

    def value(counts: tuple[int, ...]) -> int:
        return int(rising(expected - fine * np.array(counts)).sum())

    moved = [
        abs(value(counts) - value(other))
        for counts in histograms(len(pi), records)
        for other in neighbours(counts, records, k)
    ]
    assert max(moved) == k * fine


@given(st.integers(-LARGEST, LARGEST), st.integers(1, 256))
def test_lying_clients_cannot_make_a_record_count_more(u: int, step: int) -> None:
    """Wherever they put a sum, also where the field ends, F changes no more than its argument."""
    there = (u + step + LARGEST) % (2 * LARGEST + 1) - LARGEST
    assert abs(int(rising(np.array(there))) - int(rising(np.array(u)))) <= step


def test_without_the_fall_they_could() -> None:
    """The teeth of the test above: where the field ends, max(0, u) jumps."""
    assert max(0, LARGEST) - max(0, -LARGEST) == LARGEST > 2 * QUARTER - 2


@pytest.mark.parametrize("unit", [None, WholeClient(5)])
@pytest.mark.parametrize("noise", ["laplace", "gaussian", "auto"])
def test_every_noise_is_for_the_sensitivity_of_what_it_is_on(noise: str, unit: Any) -> None:
    """One unit moves two counts of each view, and one tv of each, by as many as it has records."""
    agreed = plan(**({} if unit is None else {"unit": unit}))
    agreed = replace(agreed, questions=tuple(replace(q, noise=noise) for q in agreed.questions))
    trust, k = ServersSum(agreed), agreed.contribution_bound
    for each in trust.noises:
        law, views = servers_law(each), len(each.questions[0].views)
        moved, by = (2 * views, k) if each.is_counts else (views, k * FINE)
        wanted = by * math.sqrt(moved) if law.law == "gaussian" else by * moved
        assert law.noise.sensitivity == pytest.approx(wanted)
        if law.law == "gaussian":
            assert law.shares.shares == 2
            more = law.noise.standard_deviation / law.noise.shared.standard_deviation
            assert more**2 == pytest.approx(1.5)


def test_the_charge_is_within_the_plan_and_comes_back_from_a_ledger() -> None:
    trust = ServersSum(plan())
    charge = trust.charge([30])
    assert charge_from_dict(charge_to_dict(charge)) == charge
    assert 0.5 < total_epsilon([charge], delta=1e-6) <= 1.0


def epsilon_left(shared: Any, shares: int) -> float:
    """The epsilon of a count moved by 1 under the noise of so many shares, by a Fourier transform.

    Independent of the account; see `test_noise_of_a_cohort`.
    """
    angles = 2 * np.pi * np.arange(2**12) / 2**12
    p = np.exp(-1 / shared.scale)
    one = ((1 - p) ** 2 / np.abs(1 - p * np.exp(1j * angles)) ** 2) ** (shares / shared.on.shares)
    near = np.fft.ifft(one).real[:12]
    return float(np.max(np.abs(np.diff(np.log(near)))))


def test_of_two_servers_one_that_subtracts_its_noise_sees_no_more_than_is_charged() -> None:
    (_, law), *_ = ServersSum(plan()).after_loss
    claimed = 1.0 * 0.3 / 2  # of each of the two counts of the whole that a record moves
    assert epsilon_left(law.shared, 1) == pytest.approx(claimed, rel=1e-6)
    half = ServersNoise(SharedCounts(2), 0.3, 1e-6).shares  # the teeth: half shares of two
    assert epsilon_left(calibrate(half, epsilon=0.3, delta=1e-6), 1) > 1.2 * claimed


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Of two counts moved by 1, one up and one down, under discrete Gaussian noise."""
    reach = np.arange(-math.ceil(15 * sigma), math.ceil(15 * sigma) + 1)
    one = np.exp(-(reach**2) / (2 * sigma**2))
    one /= one.sum()
    before = np.pad(one, 1)
    world = np.outer(before, before)
    other = np.outer(np.roll(before, 1), np.roll(before, -1))
    return float(np.maximum(world - math.exp(epsilon) * other, 0).sum())


def test_a_server_that_subtracts_its_own_gaussian_share_sees_no_more_than_is_charged() -> None:
    law = ServersNoise(SharedCounts(2), 2.0, 1e-4, "gaussian")
    share = law.noise.shared.sigma
    assert gaussian_delta(math.sqrt(2) * share, 2.0) <= 1e-4
    assert gaussian_delta(math.sqrt(2) * share, 2.0) > 0.9e-4  # no more noise than needed
    assert gaussian_delta(share, 2.0) > 1e-3  # two colluding servers see more


def test_coins_of_a_joint_noise_make_its_law() -> None:
    """All outcomes of small noise: the law is discrete Laplace, to the stated distance."""
    law = JointLaplace(0.2)
    chances = law.chances / 2.0**61
    digits = [(np.array([1 - each]), np.array([each])) for each in chances]
    one = np.ones(1)
    for place, (no, yes) in enumerate(digits):
        wide = np.zeros(len(one) + 2**place)
        wide[: len(one)] += no * one
        wide[2**place :] += yes * one
        one = wide
    total = np.convolve(one, one[::-1])
    ks = np.arange(len(total)) - len(total) // 2
    p = math.exp(-1 / law.scale)
    exact = (1 - p) / (1 + p) * p ** np.abs(ks)
    assert 0.5 * np.abs(total - exact).sum() < max(law.distance, 1e-15)


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_servers_draw_laplace_noise_together(scale: float) -> None:
    """Against the law; false alarms: 1e-9 for each frequency."""
    size = 4000

    async def one(runtime: LineRuntime) -> Any:
        return await laplace_noise(runtime, JointLaplace(scale), size, Randomness(runtime.server))

    drawn = restore(run_three(one, seed=5))
    p = math.exp(-1 / scale)
    for k in range(-3, 4):
        chance = (1 - p) / (1 + p) * p ** abs(k)
        assert binomtest(int((drawn == k).sum()), size, chance).pvalue > 1e-9
    wrong = (1 - p) / (1 + p) * 1.5
    assert binomtest(int((drawn == 0).sum()), size, wrong).pvalue < 1e-9  # it has teeth
