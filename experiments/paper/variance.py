"""The paper's theory of the estimator's variance and of the control parameter lambda.

All moments are over one draw X ~ Pi with r = P(X)/Pi(X); P and Pi share their support.
"""

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_finite, check_positive_int, check_probabilities
from fedprikl.divergence import skewed_divergence
from fedprikl.divergence.divergences import bregman_gap
from fedprikl.errors import InvalidInputError


def phi(ratio: npt.ArrayLike, *, control: float) -> Floats:
    """Per-point terms whose mean over x ~ Pi is D(Pi || P), in nats.

        Phi = lambda (r - 1) - ln r,    r = P(x) / Pi(x)         [lem:estimator_sum_expect]

    Unbiased for every lambda (`control`) as long as P lives on Pi's support; lambda only moves the
    variance. Infinite at r = 0. Near r = 1 it is computed without cancellation.
    """
    r = np.asarray(ratio, dtype=np.float64)
    check_finite(control, "control")
    if not np.all(np.isfinite(r)) or np.any(r < 0):
        raise InvalidInputError("Ratios P(x)/Pi(x) must be finite and not negative.")
    return (control - 1) * (r - 1) + bregman_gap(r, r - 1)


def jeffreys_divergence(pi: npt.ArrayLike, p: npt.ArrayLike) -> float:
    """D(P || Pi) + D(Pi || P), in nats: the covariance of r and ln r."""
    return skewed_divergence(p, pi, skew=0.0) + skewed_divergence(pi, p, skew=0.0)


def ratio_variance(pi: npt.ArrayLike, p: npt.ArrayLike) -> float:
    """Var[r] = sum_x (P - Pi)^2 / Pi, the chi-squared divergence of P from Pi."""
    reference, population = _same_support(pi, p)
    return float(np.sum((population - reference) ** 2 / reference))


def estimator_variance(
    pi: npt.ArrayLike, p: npt.ArrayLike, *, control: float, draws: int, noise_variance: float = 0.0
) -> float:
    """Var of the mean of `draws` (mT) i.i.d. noisy terms, exactly, in nats^2.

    (Var[Phi] + Var[eta]) / (mT), the equality behind [th:gen_estimator_variance].
    """
    reference, population = _same_support(pi, p)
    terms = phi(population / reference, control=control)
    mean = float(np.sum(reference * terms))
    variance = float(np.sum(reference * (terms - mean) ** 2))
    return (variance + _check_variance(noise_variance)) / check_positive_int(draws, "draws")


def variance_bound(
    pi: npt.ArrayLike, p: npt.ArrayLike, *, control: float, draws: int, noise_variance: float = 0.0
) -> float:
    """The paper's upper bound on `estimator_variance`, in nats^2   [th:gen_estimator_variance].

        (lambda^2 (alpha - 1) + max(alpha, beta^2) - 1 - D^2 - 2 lambda J + Var[eta]) / (mT)

    with alpha = max r, beta = max 1/r, D = D(Pi || P), J = D(P || Pi) + D(Pi || P). The printed
    proof bounds E[max] by max of E; the bound holds all the same, as |ln r| <= |r - 1|/sqrt(r).
    """
    reference, population = _same_support(pi, p)
    check_finite(control, "control")
    alpha, beta = _extreme_ratios(reference, population)
    distance = skewed_divergence(reference, population, skew=0.0)
    spread = control**2 * (alpha - 1) + max(alpha, beta**2) - 1 - distance**2
    spread -= 2 * control * jeffreys_divergence(reference, population)
    return (spread + _check_variance(noise_variance)) / check_positive_int(draws, "draws")


def optimal_control(pi: npt.ArrayLike, p: npt.ArrayLike) -> float:
    """The lambda of least variance without noise: J / Var[r]         [th:opt_lambda_no_noise].

    0 if P = Pi, where every lambda has variance 0.
    """
    variance = ratio_variance(pi, p)
    return jeffreys_divergence(pi, p) / variance if variance > 0 else 0.0


def optimal_control_lower_bound(pi: npt.ArrayLike, p: npt.ArrayLike) -> float:
    """J / (alpha - 1), at most the optimal lambda without noise        [corr:opt_lambda_bound]."""
    reference, population = _same_support(pi, p)
    alpha, _ = _extreme_ratios(reference, population)
    return jeffreys_divergence(reference, population) / (alpha - 1) if alpha > 1 else 0.0


def optimal_control_with_noise(
    pi: npt.ArrayLike, p: npt.ArrayLike, *, noise_gain: float, records: int
) -> float:
    """The lambda of least variance under the paper's noise             [th:opt_lambda_noise].

        max(0, (J - g ln 2 / (N pi_min)) / (Var[r] + g / (N pi_min)^2))

    `noise_gain` is g = 2 ln(1.25/delta) / (T epsilon)^2, the noise variance per squared unit of
    sensitivity. The paper's second case has a sign slip: for lambda < 0 the variance decreases
    strictly in lambda, so the optimum is never negative. Never above the optimum without noise
    [corr:opt_lambda_order].
    """
    reference, population = _same_support(pi, p)
    _check_variance(noise_gain)
    reach = 1 / (check_positive_int(records, "records") * reference.min())
    slope = jeffreys_divergence(reference, population) - noise_gain * np.log(2) * reach
    curvature = ratio_variance(reference, population) + noise_gain * reach**2
    return float(max(0.0, slope / curvature)) if curvature > 0 else 0.0


def _check_variance(value: float) -> float:
    if check_finite(value, "the noise variance") < 0:
        raise InvalidInputError(f"A noise variance cannot be negative, got {value}.")
    return value


def _same_support(pi: npt.ArrayLike, p: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Both distributions restricted to Pi's support, on which the paper's theory needs P > 0."""
    reference, population = check_probabilities(pi, "pi"), check_probabilities(p, "p")
    if reference.shape != population.shape:
        raise InvalidInputError("Both distributions must be over the same cells.")
    on = reference > 0
    if np.any(population[on] == 0) or np.any(population[~on] > 0):
        raise InvalidInputError(
            "The paper's variance theory needs P(x) > 0 exactly where Pi(x) > 0. "
            "Smooth P first, for example gamma Pi + (1 - gamma) P."
        )
    return reference[on], population[on]


def _extreme_ratios(pi: Floats, p: Floats) -> tuple[float, float]:
    return float(np.max(p / pi)), float(np.max(pi / p))
