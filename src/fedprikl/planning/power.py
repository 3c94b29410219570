"""How small a drift is still found: the power of the verdict."""

from collections.abc import Callable

import scipy

from fedprikl.checks import check_finite
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import Mechanism

__all__ = ["Moments", "smallest_drift"]

# Mean and standard deviation of the value before noise if the divergence is D.
Moments = Callable[[float], tuple[float, float]]


def smallest_drift(
    moments: Moments,
    mechanism: Mechanism | None,
    threshold: float,
    *,
    largest: float,
    power: float = 0.95,
    precision: float = 1e-9,
) -> float | None:
    """The least D that exceeds the threshold with probability `power`.

    `moments` says how the drift shows; the value before noise is taken as normal with these. None
    if not even `largest` is found so often. `precision` is relative.
    """
    if not 0.5 < check_finite(power, "power") < 1:
        raise InvalidInputError(f"The power lies between 0.5 and 1, got {power}.")

    def margin(divergence: float) -> float:
        """How far the value's lower quantile lies above the threshold."""
        mean, sd = moments(divergence)
        if mechanism is None:
            return mean - float(scipy.special.ndtri(power)) * sd - threshold
        return mean - mechanism.quantile(power, error_sd=sd) - threshold

    if margin(largest) < 0:
        return None
    if margin(0.0) >= 0:
        return 0.0
    return float(scipy.optimize.brentq(margin, 0.0, largest, xtol=1e-9 * largest, rtol=precision))
