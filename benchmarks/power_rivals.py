"""What fedprikl's default is measured against: no privacy, the textbook, and the previous default.

Each is complete in itself, so that a change of the library cannot move the measure.
"""

import numpy as np

from fedprikl.checks import Floats, Ints

SKEW = 0.01
NULLS = 20_000  # populations behind a chi-square threshold
RESAMPLES = 30  # of the debiasing step
# The step limit that the search of the previous default chose, as a share of the maximum step, by
# epsilon times records; it hardly depended on anything else.
CLIPPED = ((72, 500, 720, 5_000, 45_000, 400_000), (0.15, 0.2, 0.35, 0.47, 0.7, 0.93))


def chi_square(held: Ints, pi: Floats) -> Floats:
    """Pearson's statistic of the raw counts."""
    expected = held.sum(axis=1, keepdims=True) * pi
    return np.asarray(((held - expected) ** 2 / expected).sum(axis=1))


def chi_square_threshold(pi: Floats, records: int, rate: float, rng: np.random.Generator) -> float:
    """What populations without drift exceed so often; simulated, as rare cells spoil its law."""
    nulls = [chi_square(rng.multinomial(records, pi, 1000), pi) for _ in range(NULLS // 1000)]
    return float(np.quantile(np.concatenate(nulls), 1 - rate))


def textbook_errors(
    held: Ints,
    truth: Floats,
    pi: Floats,
    epsilon: float,
    standard: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Mean absolute errors, per population, of a noisy histogram.

    Discrete Laplace noise of scale 2 / epsilon on every count, projected onto the simplex, plugged
    in, less the bias that the same noise causes once more. `standard` are exponential variables,
    (2, populations, draws, cells): other methods have the same, so that a ratio of errors does
    not hang on luck.
    """
    records, scale, errors = int(held[0].sum()), 2 / epsilon, []
    for i, (counts, true) in enumerate(zip(held, truth, strict=True)):
        noisy = project(counts + laplace_of(scale, standard[:, i]), records)
        draws = len(noisy)
        again = np.repeat(noisy, RESAMPLES, axis=0)
        again = project(again + discrete_laplace(scale, again.shape, rng), records)
        twice = plug_in(again, pi).reshape(draws, RESAMPLES).mean(axis=1)
        errors.append(np.abs(2 * plug_in(noisy, pi) - twice - true).mean())
    return np.array(errors)


def previous_errors(held: Ints, truth: Floats, pi: Floats, epsilon: float) -> Floats:
    """Mean absolute errors, per population, of one KL number with Laplace noise and a step limit.

    sum_x Pi(x) max(-ln v(x), ln 1/skew - c h(x) / Pi(x)) + Laplace(Delta / epsilon)
    """
    records = int(held[0].sum())
    first = pi * np.log1p((1 - SKEW) / (SKEW * records * pi))  # a record in an empty cell
    share = np.interp(np.log(epsilon * records), np.log(CLIPPED[0]), CLIPPED[1])
    step = float(share * first.max())
    scores = -np.log(SKEW + (1 - SKEW) * held / (records * pi))
    scores = np.maximum(scores, -np.log(SKEW) - step * held / pi)
    error, scale = np.abs(scores @ pi - truth), step / epsilon
    return np.asarray(error + scale * np.exp(-error / scale))


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


def plug_in(counts: Floats, pi: Floats) -> Floats:
    """D(Pi || skew Pi + (1 - skew) P), per row of counts."""
    p = counts / counts.sum(axis=1, keepdims=True)
    return np.asarray(-np.log(SKEW + (1 - SKEW) * p / pi) @ pi)


def discrete_laplace(scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """P(k) proportional to exp(-|k| / scale): the difference of two geometric variables."""
    return laplace_of(scale, rng.standard_exponential((2, *shape)))


def laplace_of(scale: float, standard: Floats) -> Floats:
    """The same from exponential variables, two for each."""
    one, other = np.floor(scale * standard)
    return np.asarray(one - other)


def project(values: Floats, total: float) -> Floats:
    """The nearest rows that are not negative and have this sum."""
    falling = np.sort(values, axis=1)[:, ::-1]
    shifts = (np.cumsum(falling, axis=1) - total) / np.arange(1, values.shape[1] + 1)
    kept = np.count_nonzero(falling > shifts, axis=1)[:, None] - 1
    return np.maximum(values - np.take_along_axis(shifts, kept, axis=1), 0.0)
