"""Confidence interval of a release, from public quantities only: it costs no privacy.

What is known: the noise exactly, the sampling design, and the released value. What is not: how
the drift is spread over the cells. With s = -ln v and E[v] = 1, the mean of the Bregman gap
(v - 1) - ln v is D, and s^2 <= rho ((v - 1) - ln v) for every v >= gamma with

    rho = (ln gamma)^2 / (gamma - 1 - ln gamma)          (5.9 for gamma = 0.01; 2 for small drift)

so E[s^2] <= rho D whatever the population, and the sampling variance is at most `gain` rho D, even
if all drift sits in the cells that are asked by chance. Where it does not, the interval is wider
than it need be; to know that would cost privacy. What small batches and a maximum
step add is taken from a drift model (`drift.py`): usually small, and an assumption.
"""

import math
from collections.abc import Callable

import numpy as np

from fedprikl.checks import Ints, check_open_unit
from fedprikl.divergence import Score, Skew
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.drift_model import model_drift
from fedprikl.estimation.forecast import simulate_scores
from fedprikl.estimation.terms import Terms
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints

__all__ = [
    "DRIFT_GRID",
    "confidence_interval",
    "error_before_noise",
    "sampling_ratio",
]

# Divergences at which a drift model is looked at, as shares of the largest one, ln 1/gamma.
DRIFT_GRID = np.array([0, 0.01, 0.05, 0.15, 0.4, 0.9])


def confidence_interval(
    value: float,
    *,
    noise: Mechanism,
    points: QueryPoints,
    records: Ints,
    score: Score,
    client_effect: float = 1.0,
    level: float = 0.95,
) -> tuple[float, float] | None:
    """All divergences D that the released value does not contradict, in nats.

    Those with |value - D| within the error expected *at D* (not at the value): a drift too small
    to have been sampled well is not excluded because the value happens to be small. None for a
    score other than a skew with lambda = 0, whose spread is not known.
    """
    check_open_unit(level, "level", "Use 0.95 for a 95% interval.")
    if not isinstance(score.smoothing, Skew) or score.control:
        return None
    largest = math.log(1 / score.smoothing.gamma)
    before_noise = error_before_noise(points, records, score, client_effect=client_effect)

    def slack(divergence: float) -> float:
        """How much further the value could lie from D; not negative inside the interval."""
        sd, bias = before_noise(divergence)
        shift = 2 * max(math.copysign(bias, bias * (value - divergence)), 0.0)
        return noise.quantile((1 + level) / 2, error_sd=sd) + shift - abs(value - divergence)

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

    The choice of points contributes a variance of at most `gain` rho D. Small batches and a limit
    on steps add what a drift model says; the interval leaves room for twice that bias.
    """
    gamma = skew_of(score)
    rho = sampling_ratio(gamma)
    terms = Terms.of(points, records)
    if score.maximum_step == math.inf and not np.any(terms.outside > 0):
        return lambda divergence: (math.sqrt(points.gain * rho * max(divergence, 0.0)), 0.0)
    grid = -math.log(gamma) * DRIFT_GRID
    seen = [_small_batches(terms, score, float(d), gamma, client_effect) for d in grid]
    spreads, biases = ([each[i] for each in seen] for i in (0, 1))

    def error(divergence: float) -> tuple[float, float]:
        sampling = points.gain * rho * max(divergence, 0.0)
        spread = float(np.interp(divergence, grid, spreads))
        return math.hypot(math.sqrt(sampling), spread), float(np.interp(divergence, grid, biases))

    return error


def sampling_ratio(gamma: float) -> float:
    """rho: the scores' mean square is at most so many times the divergence."""
    return math.log(gamma) ** 2 / (gamma - 1 - math.log(gamma))


def skew_of(score: Score) -> float:
    """gamma; only for a skew is the spread of scores known."""
    if not isinstance(score.smoothing, Skew):
        raise InvalidInputError("Errors are known for a skew only; use Skew(0.01).")
    return score.smoothing.gamma


def _small_batches(
    terms: Terms, score: Score, divergence: float, gamma: float, client_effect: float
) -> tuple[float, float]:
    """Standard deviation and bias of the scores of small batches."""
    model = model_drift(terms.weights, terms.pi, divergence=divergence, gamma=gamma, draws=2048)
    drawn = simulate_scores(terms, score, model, client_effect=client_effect)
    seen = drawn.moments(score.maximum_step)
    return math.sqrt(seen.error_variance), seen.bias


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy import optimize  # slow to load, and a client never needs it

    return float(optimize.brentq(function, low, high))
