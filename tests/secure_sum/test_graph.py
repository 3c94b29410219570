"""The neighbour graph, and the rule for k and t: exactly, and against simulation."""

from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import binomtest

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError
from fedprikl.secure_sum import DEFAULT_FAILURE, Degree, choose_degree
from fedprikl.secure_sum.sum_plan import Graph

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-9
STATED, TRIALS = 0.1, 600


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
        (200, 0.05, 0.05, Degree(84, 57)),
        (3000, 0.05, 0.05, Degree(90, 61)),
        (3000, 0.1, 0.1, Degree(176, 119)),
        (60000, 0.05, 0.05, Degree(102, 70)),
    ],
)
def test_published_choices(clients: int, dropout: float, corruption: float, degree: Degree) -> None:
    """The table in docs/secure-sum.md."""
    assert choose_degree(clients, dropout=dropout, corruption=corruption) == degree


def holds(n: int, degree: Degree, gamma: float, delta: float) -> bool:
    """The three conditions of the rule in exact fractions, independently of its code."""
    k, t, eta = degree.neighbours, degree.threshold, Fraction(DEFAULT_FAILURE) / 3
    g, d = Fraction(gamma), Fraction(delta)

    def tail(draws: int, rate: Fraction, least: int) -> Fraction:
        terms = (
            comb(draws, x) * rate**x * (1 - rate) ** (draws - x) for x in range(least, draws + 1)
        )
        return sum(terms, Fraction(0))

    leak = 2 * t - k  # this many corrupt neighbours are too many
    cut = tail(k // 2, g, t - k // 2) ** 2
    return (
        n * tail(k, g, leak) <= eta
        and n * tail(k, d, k - t + 1) <= eta
        and Fraction(n * (n - 1), 2) * cut <= eta
        and 2 * t > k
    )


@pytest.mark.parametrize(
    ("n", "corruption", "dropout"),
    [
        (150, 0.03, 0.03),
        (200, 0.05, 0.05),
        (3000, 0.05, 0.05),
        (3000, 0.05, 0.0),  # nobody drops: only the fear of a cut circle asks for more neighbours
        (3000, 0.0679, 0.0),  # 16 neighbours who are all corrupt: three times too likely
    ],
)
def test_rule_is_right_and_the_smallest_in_exact_arithmetic(
    n: int, corruption: float, dropout: float
) -> None:
    degree = choose_degree(n, dropout=dropout, corruption=corruption)
    assert degree.neighbours < n - 1
    assert holds(n, degree, corruption, dropout)
    k = degree.neighbours - 2
    fewer = (Degree(k, t) for t in range(k // 2 + 1, k + 1))
    assert not any(holds(n, each, corruption, dropout) for each in fewer)


Mask = npt.NDArray[np.bool_]


@lru_cache
def distances(n: int) -> Ints:
    """Between any two places of a circle."""
    ahead = (np.arange(n)[None, :] - np.arange(n)[:, None]) % n
    return np.asarray(np.minimum(ahead, ahead.T))


def hidden(graph: Graph, corrupt: Mask) -> Mask:
    """Whom an active aggregator pretends never to have heard of, to cut the circle in two.

    The honest clients in two separate runs of k/2 places: those with the most corrupt clients
    in the poorer of the two, and far apart.
    """
    n, half = graph.clients, graph.neighbours // 2
    runs = graph._order[(np.arange(n)[:, None] + np.arange(half)) % n]
    rich, apart = corrupt[runs].sum(axis=1), distances(n)
    score = np.where(apart > half, np.minimum.outer(rich, rich) * n + apart, -1)
    first, second = np.unravel_index(score.argmax(), score.shape)
    gone = np.zeros(n, dtype=bool)
    gone[runs[[first, second]]] = True
    return gone & ~corrupt


def falls_apart(near: Ints, corrupt: Mask, gone: Mask, threshold: int) -> bool:
    """Whether nobody honest who remains notices, and yet they are in separate groups."""
    honest, (n, k) = ~corrupt & ~gone, near.shape
    if np.any((~gone)[near].sum(axis=1)[honest] < threshold):
        return False
    one, other = np.repeat(np.arange(n), k), near.ravel()
    both, place = honest[one] & honest[other], np.cumsum(honest) - 1
    links = (place[one[both]], place[other[both]])
    left = int(honest.sum())
    matrix = csr_array((np.ones(len(links[0])), links), shape=(left, left))
    parts: int = connected_components(matrix)[0]
    return parts > 1


def failures(n: int, degree: Degree, dropout: float, corruption: float) -> int:
    """How often a simulated cohort leaks, stalls or can be made to fall apart."""
    k, t = degree.neighbours, degree.threshold
    rng = np.random.default_rng(1)
    failed = 0
    for trial in range(TRIALS):
        graph = Graph(n, k, trial.to_bytes(32, "little"))
        near = np.array([list(graph.of(i)) for i in range(n)])
        corrupt, gone = rng.random(n) < corruption, rng.random(n) < dropout
        leaks = np.any(2 * t <= k + corrupt[near].sum(axis=1)[~corrupt])
        stalls = np.any((~gone)[near].sum(axis=1) < t)
        parts = any(falls_apart(near, corrupt, who, t) for who in (gone, hidden(graph, corrupt)))
        failed += bool(leaks or stalls or parts)
    return failed


def rate_is_kept(failed: int) -> bool:
    """Whether so many failures are compatible with the stated probability."""
    test = binomtest(failed, TRIALS, STATED, alternative="greater")
    return float(test.pvalue) > FALSE_ALARM


@pytest.mark.parametrize(("n", "dropout", "corruption"), [(120, 0.1, 0.1), (300, 0.0, 0.05)])
def test_simulated_cohorts_fail_no_more_often_than_stated(
    n: int, dropout: float, corruption: float
) -> None:
    degree = choose_degree(n, dropout=dropout, corruption=corruption, failure=STATED)
    assert degree.neighbours < n - 1
    assert rate_is_kept(failures(n, degree, dropout, corruption))


def test_that_simulation_would_catch_too_few_neighbours() -> None:
    """Half of the neighbours, with the same share of them as threshold."""
    degree = choose_degree(120, dropout=0.1, corruption=0.1, failure=STATED)
    k = degree.neighbours // 4 * 2
    fewer = Degree(k, k * degree.threshold // degree.neighbours + 1)
    assert not rate_is_kept(failures(120, fewer, 0.1, 0.1))


def test_that_simulation_would_catch_a_rule_that_leaves_to_chance_who_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One share less than the rule asks for: chance hardly cuts this circle, an attack does."""
    assert choose_degree(300, dropout=0.0, corruption=0.05, failure=STATED) == Degree(6, 6)
    assert not rate_is_kept(failures(300, Degree(6, 5), 0.0, 0.05))
    monkeypatch.setitem(globals(), "hidden", lambda _, corrupt: np.zeros_like(corrupt))
    assert rate_is_kept(failures(300, Degree(6, 5), 0.0, 0.05))


def test_degree_hardly_grows_with_the_cohort() -> None:
    small, large = (choose_degree(n, dropout=0.1, corruption=0.1) for n in (200, 3000))
    assert large.neighbours / small.neighbours < 1.5


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
