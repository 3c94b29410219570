"""Noise in shares, without a trusted party: Laplace or Gaussian, whichever is smaller."""

import math

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.calibrated import NoiseKind
from fedprikl.privacy.gaussian import calibrate_gaussian
from fedprikl.privacy.integer_laplace import laplace_variance
from fedprikl.privacy.polya import SCALES
from fedprikl.privacy.renyi import concentration_of
from fedprikl.privacy.shared_gaussian import (
    SharedGaussianMechanism,
    calibrate_shared_gaussian,
    delta_without_failure,
)
from fedprikl.privacy.shared_laplace import (
    SAMPLER_DELTA,
    SharedLaplaceMechanism,
    calibrate_shared_laplace,
)

__all__ = ["SharedMechanism", "calibrate_shared"]

SharedMechanism = SharedGaussianMechanism | SharedLaplaceMechanism


def calibrate_shared(
    *,
    epsilon: float,
    delta: float,
    shares: int,
    kind: NoiseKind = "auto",
    failure: float = 0.0,
    coordinates: int = 2,
    moved: int = 1,
) -> SharedMechanism:
    """The least noise in shares that gives (epsilon, delta).

    `coordinates`: how many counts one record can move, by 1 each; 2 in every table of counts.
    `moved`: the records of whoever is protected; 1, or those of a client.
    `failure`: the probability that a secure sum opens to less than its cohort; delta pays for it.
    "auto" does not depend on `shares`, so all cohorts of a round carry noise of one kind.
    """
    usable = delta_without_failure(delta, failure)
    if kind == "auto":
        kind = "laplace" if _laplace_is_smaller(epsilon, usable, coordinates, moved) else "gaussian"
    if kind == "laplace":
        if delta < SAMPLER_DELTA + failure:
            raise InvalidInputError(
                f"Laplace noise in shares is drawn to a delta of {SAMPLER_DELTA:.2g}, more than "
                f"the {usable:g} allowed. Raise delta, or use Gaussian noise."
            )
        return calibrate_shared_laplace(
            epsilon=epsilon,
            shares=shares,
            failure=failure,
            coordinates=coordinates,
            moved=moved,
        )
    if kind == "gaussian":
        return calibrate_shared_gaussian(
            epsilon=epsilon,
            delta=delta,
            shares=shares,
            failure=failure,
            coordinates=coordinates,
            moved=moved,
        )
    raise InvalidInputError(f"Noise must be 'auto', 'laplace' or 'gaussian', got {kind!r}.")


def _laplace_is_smaller(epsilon: float, delta: float, coordinates: int, moved: int) -> bool:
    """By standard deviation; the Gaussian's by its continuous formula, because the exact account
    takes longer. They differ by a few percent; where the two kinds are as close, either will do.
    """
    changes = check_positive_int(coordinates, "coordinates") * check_positive_int(moved, "moved")
    if moved > 1:
        sigma = moved * math.sqrt(coordinates / (2 * concentration_of(epsilon, delta)))
    else:
        length = math.sqrt(coordinates)
        sigma = calibrate_gaussian(epsilon=epsilon, delta=delta, sensitivity=length).sigma
    low, high = SCALES
    if delta < SAMPLER_DELTA or not changes / high <= epsilon <= changes / low:
        return False
    return math.sqrt(laplace_variance(changes / epsilon)) <= sigma
