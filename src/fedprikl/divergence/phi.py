"""Phi, the term whose mean over x ~ Pi estimates D(Pi || P)."""

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_finite
from fedprikl.errors import InvalidInputError

# e - ln(1 + e) = e^2 (1/2 - e/3 + e^2/4 - ...); 16 terms reach double precision for |e| < 0.08.
_SERIES = [(-1) ** k / (k + 2) for k in range(16)][::-1]
_SERIES_RADIUS = 0.08


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


def bregman_gap(ratio: Floats, excess: Floats) -> Floats:
    """(r - 1) - ln r >= 0, given r and, precisely, r - 1; infinite at r = 0.

    The vertical distance between the logarithm and its tangent at 1 (the paper's section on Monte
    Carlo sampling). Relative error near machine precision for every r.
    """
    with np.errstate(divide="ignore", over="ignore"):
        gap = np.array(excess - np.log(ratio))
    near = np.abs(excess) < _SERIES_RADIUS
    if np.any(near):
        small = excess[near]
        gap[near] = small**2 * _series(small)
    return gap


def _series(x: Floats) -> Floats:
    """`np.polyval`, in place: this is called thousands of times for a plan."""
    found = np.full_like(x, _SERIES[0])
    for coefficient in _SERIES[1:]:
        found *= x
        found += coefficient
    return found
