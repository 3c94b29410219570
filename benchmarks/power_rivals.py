"""What fedprikl's default is measured against: no privacy, and the textbook.

Each is complete in itself, so that a change of the library cannot move the measure.
"""

import math
from collections.abc import Callable

import numpy as np

from fedprikl.checks import Floats, Ints

SKEW = 0.01
NULLS = 20_000  # populations behind a chi-square threshold
RESAMPLES = 30  # of the debiasing step
# D_f(Pi || P'), as a mean of f(P' / Pi) over Pi. P' has a share of Pi in it, where one is needed.
DIVERGENCES: dict[str, tuple[float, Callable[[Floats], Floats]]] = {
    "kl": (SKEW, lambda v: -np.log(v)),
    "tv": (0.0, lambda v: np.maximum(0.0, 1 - v)),
    "js": (SKEW, lambda v: math.log(2) - (v * np.log1p(1 / v) + np.log1p(v)) / 2),
}


def chi_square(held: Ints, pi: Floats) -> Floats:
    """Pearson's statistic of the raw counts."""
    expected = held.sum(axis=1, keepdims=True) * pi
    return np.asarray(((held - expected) ** 2 / expected).sum(axis=1))


def chi_square_threshold(pi: Floats, records: int, rate: float, rng: np.random.Generator) -> float:
    """What populations without drift exceed so often; simulated, as rare cells spoil its law."""
    nulls = [chi_square(rng.multinomial(records, pi, 1000), pi) for _ in range(NULLS // 1000)]
    return float(np.quantile(np.concatenate(nulls), 1 - rate))


def textbook_errors(
    held: Ints, pi: Floats, epsilon: float, draws: int, rng: np.random.Generator
) -> dict[str, float]:
    """Mean absolute errors of a noisy histogram, for each divergence.

    Discrete Laplace noise of scale 2 / epsilon on every count, those out of the domain (last)
    included, projected onto the simplex, plugged in, less the bias that the same noise causes once
    more.
    """
    records, scale = int(held[0].sum()), 2 / epsilon
    errors: dict[str, list[float]] = {name: [] for name in DIVERGENCES}
    for counts in held:
        noisy = project(counts + discrete_laplace(scale, (draws, len(counts)), rng), records)
        again = np.repeat(noisy, RESAMPLES, axis=0)
        again = project(again + discrete_laplace(scale, again.shape, rng), records)
        for name, found in errors.items():
            twice = plug_in(again, pi, name).reshape(draws, RESAMPLES).mean(axis=1)
            value = 2 * plug_in(noisy, pi, name) - twice
            found.append(float(np.abs(value - plug_in(counts[None], pi, name)).mean()))
    return {name: float(np.mean(found)) for name, found in errors.items()}


def least_error(pi: Floats, records: int, epsilon: float, nats: float) -> float:
    """What no private release can beat at all drifts up to so many nats: a lower bound.

    If k records make x' of x, every epsilon-DP release T has E|T - D(x)| + E|T - D(x')| >=
    |D(x) - D(x')| (1 - TV) with 1 - TV >= 2 / (1 + e^(k epsilon)), so its mean error at one of
    the two is at least

        |D(x) - D(x')| / (1 + e^(k epsilon)).

    Here some cells of x are empty, one or the rarest together, of at most so many nats; k records
    of the heaviest cell return to them, each where it lowers D most. The largest bound of all.
    """
    order = np.argsort(pi)
    empty = [order[:number] for number in range(1, len(pi))] + [
        order[[i]] for i in range(len(pi) - 1)
    ]
    return max(_two_populations(pi, records, epsilon, nats, cells) for cells in empty)


def _two_populations(pi: Floats, records: int, epsilon: float, nats: float, empty: Ints) -> float:
    """The bound with these cells empty; 0 if that is too large a drift."""
    moved, heaviest = np.arange(int(4 / epsilon) + 1), int(np.argmax(pi))
    kept = pi.copy()
    kept[empty] = 0.0
    held = np.floor(records * kept / kept.sum())
    held[heaviest] += records - held.sum()
    if plug_in(held[None], pi)[0] > nats:
        return 0.0
    mass = pi[empty, None]
    falls = np.diff(mass * np.log(SKEW + (1 - SKEW) * moved / (records * mass)), axis=1)
    steepest = np.argsort(-falls, axis=None, kind="stable")[: len(moved) - 1]  # convex: in order
    added = np.zeros((len(moved), len(pi)))
    added[np.arange(1, len(moved)), empty[steepest // falls.shape[1]]] = 1.0
    back = held + np.cumsum(added, axis=0)
    back[:, heaviest] -= moved
    sizes = plug_in(back, pi)
    return float(np.max((sizes[0] - sizes) / (1 + np.exp(epsilon * moved))))


def plug_in(counts: Floats | Ints, pi: Floats, divergence: str = "kl") -> Floats:
    """The divergence of each row of counts; a last one may be that out of the domain of Pi."""
    skew, f = DIVERGENCES[divergence]
    p = counts[:, : len(pi)] / counts.sum(axis=1, keepdims=True)
    return np.asarray(f(skew + (1 - skew) * p / pi) @ pi)


def discrete_laplace(scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """P(k) proportional to exp(-|k| / scale): the difference of two geometric variables."""
    one, other = np.floor(scale * rng.standard_exponential((2, *shape)))
    return np.asarray(one - other)


def project(values: Floats, total: float) -> Floats:
    """The nearest rows that are not negative and have this sum."""
    falling = np.sort(values, axis=1)[:, ::-1]
    shifts = (np.cumsum(falling, axis=1) - total) / np.arange(1, values.shape[1] + 1)
    kept = np.count_nonzero(falling > shifts, axis=1)[:, None] - 1
    return np.maximum(values - np.take_along_axis(shifts, kept, axis=1), 0.0)
