"""Confidence interval of a release, from public quantities only: it costs no privacy.

What is known: the noise exactly, the sampling design, and the released value. What is not: how
the drift is spread over the cells. With s = f(v) and E[v] = 1, the mean of the gap
g(v) = f(v) - f'(1) (v - 1) is D, and s^2 <= R g(v) for every ratio v that can occur, where R is
the divergence's `square_ratio` (for KL 5.9 at gamma = 0.01; 2 for small drift). So E[s^2] <= R D
whatever the population, and the choice of points adds a variance of at most
`points.sampling_variance` R D, even if all drift sits in the cells that are asked by chance. Where
it does not, the interval is wider than it need be; to know that would cost privacy.
What small batches and clipping add is taken from a drift model (`drift_model.py`): usually small,
and an assumption.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import scipy

from fedprikl.checks import Ints, check_open_unit
from fedprikl.divergence import Score, Skew
from fedprikl.estimation.drift_model import model_drift, skew_of
from fedprikl.estimation.simulated_scores import simulate_scores
from fedprikl.estimation.terms import Terms
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints

__all__ = [
    "DRIFT_GRID",
    "confidence_interval",
    "error_before_noise",
]

# Divergences at which a drift model is looked at, as shares of what an empty cell scores.
DRIFT_GRID = np.array([0, 0.01, 0.05, 0.15, 0.4, 0.9])


def confidence_interval(
    value: float,
    *,
    mechanism: Mechanism,
    points: QueryPoints,
    records: Ints,
    score: Score,
    client_effect: float = 1.0,
    level: float = 0.95,
) -> tuple[float, float] | None:
    """All divergences D that the released value does not contradict, in their unit.

    Those with |value - D| within the error expected *at D* (not at the value): a drift too small
    to have been sampled well is not excluded because the value happens to be small. None for a
    score other than a skew with lambda = 0 and finite scores, whose spread is not known.
    """
    check_open_unit(level, "level", "Use 0.95 for a 95% interval.")
    if not isinstance(score.smoothing, Skew) or score.control or not score.finite:
        return None
    largest = score.divergence.largest(score.smoothing.gamma, 1 / points.pi_min)
    before_noise = error_before_noise(points, records, score, client_effect=client_effect)

    @cache  # a search for a root asks for its ends again
    def slack(divergence: float) -> float:
        """How much further the value could lie from D; not negative inside the interval."""
        sd, bias = before_noise(divergence)
        shift = 2 * max(math.copysign(bias, bias * (value - divergence)), 0.0)
        return mechanism.quantile((1 + level) / 2, error_sd=sd) + shift - abs(value - divergence)

    middle = min(max(value, 0.0), largest)
    if slack(middle) < 0:  # the noise threw the value far out of the possible range
        return (middle, middle)
    low = 0.0 if slack(0.0) >= 0 else _root(slack, 0.0, middle)
    high = largest if slack(largest) >= 0 else _root(slack, middle, largest)
    return (low, high)


def error_before_noise(
    points: QueryPoints, records: Ints, score: Score, *, client_effect: float = 1.0
) -> Callable[[float], tuple[float, float]]:
    """Standard deviation and bias of the estimate before noise, as functions of the divergence.

    The choice of points contributes a variance of at most `points.sampling_variance` R D. Small
    batches and clipping add what a drift model says; the interval leaves room for twice that bias.
    """
    gamma = skew_of(score)
    ratio = score.divergence.square_ratio(gamma, 1 / points.pi_min)
    terms = Terms.of(points, records)
    if score.maximum_step == math.inf and not np.any(terms.outside > 0):
        return lambda divergence: (
            math.sqrt(points.sampling_variance * ratio * max(divergence, 0.0)),
            0.0,
        )
    grid = score.divergence.empty(gamma) * DRIFT_GRID
    seen = [_small_batches(terms, score, float(d), client_effect) for d in grid]
    spreads, biases = ([each[i] for each in seen] for i in (0, 1))

    def error(divergence: float) -> tuple[float, float]:
        sampling = points.sampling_variance * ratio * max(divergence, 0.0)
        spread = float(np.interp(divergence, grid, spreads))
        return math.hypot(math.sqrt(sampling), spread), float(np.interp(divergence, grid, biases))

    return error


def _small_batches(
    terms: Terms, score: Score, divergence: float, client_effect: float
) -> tuple[float, float]:
    """Standard deviation and bias of the scores of small batches."""
    model = model_drift(terms.weights, terms.pi, divergence=divergence, score=score, draws=2048)
    drawn = simulate_scores(terms, score, model, client_effect=client_effect)
    seen = drawn.moments(score.maximum_step)
    return math.sqrt(seen.error_variance), seen.bias


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.brentq(function, low, high))
