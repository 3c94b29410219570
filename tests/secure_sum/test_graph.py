"""The neighbour graph, and the rule for k and t: exactly, and against simulation."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import binomtest

from fedprikl.errors import InvalidInputError
from fedprikl.secure_sum import DEFAULT_FAILURE, Degree, choose_degree
from fedprikl.secure_sum.graph import Graph

FALSE_ALARM = 1e-9


@given(st.integers(3, 120), st.data())
@settings(max_examples=60, deadline=None)
def test_graph_is_regular_symmetric_and_the_same_for_everybody(n: int, data: st.DataObject) -> None:
    k = data.draw(st.sampled_from([*range(2, n - 1, 2), n - 1]))
    round_id = data.draw(st.binary(min_size=32, max_size=32))
    near = [Graph(n, k, round_id).of(i) for i in range(n)]
    assert all(len(each) == k and i not in each for i, each in enumerate(near))
    assert all(i in near[j] for i in range(n) for j in near[i])


def test_graphs_of_different_rounds_differ() -> None:
    assert Graph(50, 4, bytes(32)).of(0) != Graph(50, 4, b"\1" * 32).of(0)


@pytest.mark.parametrize(
    ("clients", "dropout", "corruption", "degree"),
    [
        (3, 0.0, 0.0, Degree(2, 2)),
        (200, 0.0, 0.0, Degree(2, 2)),
        (10, 0.1, 0.1, Degree(9, 6)),
        (100, 0.1, 1 / 3, Degree(99, 67)),
        (200, 0.05, 0.05, Degree(80, 54)),
        (3000, 0.05, 0.05, Degree(86, 58)),
        (3000, 0.1, 0.1, Degree(166, 111)),
    ],
)
def test_published_choices(clients: int, dropout: float, corruption: float, degree: Degree) -> None:
    """The table in docs/secure-sum.md."""
    assert choose_degree(clients, dropout=dropout, corruption=corruption) == degree


def holds(n: int, degree: Degree, gamma: float, delta: float, active: bool = True) -> bool:
    """The three conditions of the rule in exact fractions, independently of its code."""
    k, t, eta = degree.neighbours, degree.threshold, Fraction(DEFAULT_FAILURE) / 3
    g, d = Fraction(gamma), Fraction(delta)

    def above(rate: Fraction, least: int) -> Fraction:
        terms = (comb(k, x) * rate**x * (1 - rate) ** (k - x) for x in range(least, k + 1))
        return n * sum(terms, Fraction(0))

    leak = 2 * t - k if active else t  # this many corrupt neighbours are too many
    return (
        above(g, leak) <= eta
        and above(d, k - t + 1) <= eta
        and Fraction(n * (n - 1), 2) * (g + d) ** k <= eta
        and 2 * t > k
    )


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize(("n", "rate"), [(150, 0.03), (200, 0.05), (3000, 0.05)])
def test_rule_is_right_and_the_smallest_in_exact_arithmetic(
    n: int, rate: float, active: bool
) -> None:
    degree = choose_degree(n, dropout=rate, corruption=rate, active=active)
    assert degree.neighbours < n - 1
    assert holds(n, degree, rate, rate, active)
    k = degree.neighbours - 2
    assert not any(holds(n, Degree(k, t), rate, rate, active) for t in range(k // 2 + 1, k + 1))


def failures(n: int, degree: Degree, rate: float, trials: int, seed: int) -> int:
    """How often a simulated cohort leaks, stalls or falls apart."""
    k, t = degree.neighbours, degree.threshold
    rng = np.random.default_rng(seed)
    failed = 0
    for trial in range(trials):
        graph = Graph(n, k, trial.to_bytes(32, "little"))
        links = np.zeros((n, n), dtype=np.int64)
        for i in range(n):
            links[i, list(graph.of(i))] = 1
        corrupt, gone = rng.random(n) < rate, rng.random(n) < rate
        honest = ~corrupt & ~gone
        leaks = np.any(2 * t <= k + (links @ corrupt)[~corrupt])
        stalls = np.any(links @ ~gone < t)
        parts = connected_components(csr_array(links[np.ix_(honest, honest)]))[0]
        failed += bool(leaks or stalls or parts > 1)
    return failed


def rate_is_kept(failed: int, trials: int, stated: float) -> bool:
    """Whether so many failures are compatible with the stated probability."""
    test = binomtest(failed, trials, stated, alternative="greater")
    return float(test.pvalue) > FALSE_ALARM


STATED, TRIALS = 0.1, 600


def test_simulated_cohorts_fail_no_more_often_than_stated() -> None:
    degree = choose_degree(80, dropout=0.1, corruption=0.1, failure=STATED)
    assert degree.neighbours < 79
    assert rate_is_kept(failures(80, degree, 0.1, TRIALS, 1), TRIALS, STATED)


def test_that_simulation_would_catch_too_few_neighbours() -> None:
    """Half of the neighbours, with the same share of them as threshold."""
    degree = choose_degree(80, dropout=0.1, corruption=0.1, failure=STATED)
    k = degree.neighbours // 4 * 2
    fewer = Degree(k, k * degree.threshold // degree.neighbours + 1)
    assert not rate_is_kept(failures(80, fewer, 0.1, TRIALS, 1), TRIALS, STATED)


def test_degree_hardly_grows_with_the_cohort() -> None:
    small, large = (choose_degree(n, dropout=0.1, corruption=0.1) for n in (200, 3000))
    assert large.neighbours / small.neighbours < 1.5


def test_active_aggregators_cost_more_neighbours() -> None:
    active, passive = (
        choose_degree(1000, dropout=0.1, corruption=0.1, active=each) for each in (True, False)
    )
    assert active.neighbours > passive.neighbours


@pytest.mark.parametrize(
    ("clients", "dropout", "corruption", "failure"),
    [
        (2, 0.0, 0.0, 0.1),
        (10, 0.5, 0.5, 0.1),
        (10, -0.1, 0.0, 0.1),
        (10, 0.0, 1.0, 0.1),
        (10, float("nan"), 0.0, 0.1),
        (10, 0.0, 0.0, 0.0),
        (0, 0.0, 0.0, 0.1),
    ],
)
def test_impossible_requests(
    clients: int, dropout: float, corruption: float, failure: float
) -> None:
    with pytest.raises(InvalidInputError):
        choose_degree(clients, dropout=dropout, corruption=corruption, failure=failure)
