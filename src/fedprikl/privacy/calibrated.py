"""From (epsilon, delta) to noise on numbers: the same object is charged and draws."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_delta, check_epsilon, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.accounting import (
    SAFETY,
    SMALLEST_DELTA,
    check_accounted_delta,
    gaussian_sigma,
)
from fedprikl.privacy.losses import GaussianLoss, LaplaceVectorLoss
from fedprikl.privacy.mechanism import (
    Mechanism,
    Written,
    charge_from_dict,
    check_charge,
    check_sensitivity,
    mechanism_named,
    register_mechanism,
)
from fedprikl.privacy.noise import GRID_SLACK, NoiseSource
from fedprikl.privacy.real_noise import (
    GaussianMechanism,
    LaplaceMechanism,
    calibrate_gaussian,
    calibrate_laplace,
)

NoiseKind = Literal["auto", "laplace", "gaussian"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Noise for one number at (epsilon, delta), before its sensitivity is known.

    The sensitivity follows from the batch sizes, which are known only when the sums are open; the
    budget is charged before. Noise is scaled to the sensitivity, so the noise for a sensitivity of
    1 costs the same: that is the `charge`. "auto" is resolved here, once: the kind that is charged
    is the kind that draws.

    >>> noise = Calibrated(epsilon=1.0, delta=1e-6)
    >>> print(noise.charge)
    Laplace noise of scale 1
    >>> print(noise.for_sensitivity(0.02))
    Laplace noise of scale 0.02
    """

    epsilon: float
    delta: float
    kind: str = "auto"
    charge: Mechanism = field(init=False)  # what the ledger reserves

    def __post_init__(self) -> None:
        kind = resolve_kind(epsilon=self.epsilon, delta=self.delta, kind=self.kind)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "charge", self.for_sensitivity(1.0))

    def for_sensitivity(self, sensitivity: float) -> Mechanism:
        """The mechanism that draws, and that the privacy statement names."""
        chosen = mechanism_named(self.kind)
        if chosen is None or not hasattr(chosen, "calibrated"):
            raise InvalidInputError(
                f"Noise must be 'auto', 'laplace' or 'gaussian', got {self.kind!r}."
            )
        made: Mechanism = chosen.calibrated(
            epsilon=self.epsilon, delta=self.delta, sensitivity=sensitivity
        )
        return made


def calibrate(*, epsilon: float, delta: float, sensitivity: float, kind: str = "auto") -> Mechanism:
    """The least noise for one number: Laplace or Gaussian, whichever is smaller ("auto").

    `kind` may be any registered mechanism that can be `calibrated`.

    >>> laplace = calibrate(epsilon=1.0, delta=1e-6, sensitivity=1.0)
    >>> gaussian = calibrate(epsilon=1.0, delta=1e-6, sensitivity=1.0, kind="gaussian")
    >>> round(gaussian.standard_deviation / laplace.standard_deviation, 2)
    2.99
    """
    return Calibrated(epsilon, delta, kind).for_sensitivity(sensitivity)


def resolve_kind(*, epsilon: float, delta: float, kind: str) -> str:
    """The name of the kind with the smaller standard deviation, if "auto"."""
    if kind != "auto":
        return kind
    laplace = calibrate_laplace(epsilon=epsilon, sensitivity=1.0)
    if check_delta(delta) < SMALLEST_DELTA:
        return "laplace"
    gaussian = calibrate_gaussian(epsilon=epsilon, delta=delta, sensitivity=1.0)
    return "laplace" if laplace.standard_deviation <= gaussian.standard_deviation else "gaussian"


@register_mechanism("vector")
@dataclass(frozen=True, slots=True, kw_only=True)
class VectorMechanism(Written):
    """Independent noise of one kind on each of `coordinates` numbers.

    One record may move all of them at once, number j by at most its own sensitivity Delta_j. `one`
    is the noise for a sensitivity of 1; number j gets Delta_j times as much. So each number costs
    as much as `one`, and all of them (docs/decisions/0015-columns.md)

        Laplace:  epsilon = d / b,    Gaussian:  mu = sqrt(d) / sigma

    >>> one = LaplaceMechanism(scale=6.0, sensitivity=1.0)
    >>> charge = VectorMechanism(one=one, coordinates=3)
    >>> print(charge)
    Laplace noise of scale 6 per unit of sensitivity on each of 3 numbers
    >>> round(charge.epsilon(delta=1e-6), 6)
    0.5
    """

    one: LaplaceMechanism | GaussianMechanism  # for a sensitivity of 1
    coordinates: int  # d

    def __post_init__(self) -> None:
        if isinstance(self.one, Mapping):  # as a ledger has written it
            object.__setattr__(self, "one", charge_from_dict(self.one))

    @property
    def loss(self) -> LaplaceVectorLoss | GaussianLoss:
        """What the accountant composes: all numbers move as far as they can."""
        loss = self.one.loss
        if isinstance(loss, GaussianLoss):
            return GaussianLoss(math.sqrt(self.coordinates) * loss.mu)
        return LaplaceVectorLoss(self.coordinates * loss.epsilon, self.coordinates)

    def epsilon(self, delta: float) -> float:
        """What one release truly gives at this delta; infinite if nothing is proved."""
        return self.loss.alone(check_delta(delta))

    def proved_delta(self, delta: float) -> float:
        """The delta to state beside `epsilon(delta)`: 0 for Laplace noise."""
        return self.one.proved_delta(delta)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_positive_int(self.coordinates, "coordinates")
        if not isinstance(self.one, LaplaceMechanism | GaussianMechanism):
            raise InvalidInputError("Noise on several numbers is Laplace or Gaussian noise.")
        check_charge(self.one)
        if self.one.sensitivity != 1:
            raise InvalidInputError("Noise on several numbers is stated for a sensitivity of 1.")

    def __str__(self) -> str:
        return f"{self.one.per_unit()} on each of {self.coordinates} numbers"


@dataclass(frozen=True, slots=True)
class VectorCalibrated:
    """Noise for a vector of numbers at (epsilon, delta), before its sensitivities are known.

    As `Calibrated`, for `coordinates` numbers that one record may move all at once: what is charged
    is what draws. Laplace or Gaussian noise, whichever has the smaller standard deviation ("auto").

    >>> noise = VectorCalibrated(epsilon=1.0, delta=1e-6, coordinates=3)
    >>> print(noise.charge)
    Laplace noise of scale 3 per unit of sensitivity on each of 3 numbers
    >>> print(noise.for_sensitivity(0.02))
    Laplace noise of scale 0.06
    >>> VectorCalibrated(epsilon=1.0, delta=1e-6, coordinates=20).kind
    'gaussian'
    """

    epsilon: float
    delta: float
    coordinates: int  # d
    kind: NoiseKind = "auto"
    charge: VectorMechanism = field(init=False)  # what the ledger reserves

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_positive_int(self.coordinates, "coordinates")
        if self.kind not in ("auto", "laplace", "gaussian"):
            raise InvalidInputError(
                f"Noise must be 'auto', 'laplace' or 'gaussian', got {self.kind!r}."
            )
        if self.kind == "auto":
            object.__setattr__(self, "kind", self._smaller_kind())
        charge = VectorMechanism(one=self.for_sensitivity(1.0), coordinates=self.coordinates)
        object.__setattr__(self, "charge", charge)

    def for_sensitivity(self, sensitivity: float) -> LaplaceMechanism | GaussianMechanism:
        """The noise on a number that one record moves by at most so much, rounding included."""
        return self._laplace(sensitivity) if self.kind == "laplace" else self._gaussian(sensitivity)

    def add_to(
        self, values: npt.ArrayLike, sensitivities: npt.ArrayLike, source: NoiseSource
    ) -> Floats:
        """Each value with independent noise for its own sensitivity.

        A sensitivity must be public, and hold for the values as computed: `rounding_slack` included
        (`score_sensitivity` does). One of 0 is refused: what no record can move needs no noise, and
        belongs to no private vector.
        """
        numbers, moves = np.asarray(values, np.float64), np.asarray(sensitivities, np.float64)
        if numbers.shape != (self.coordinates,) or moves.shape != (self.coordinates,):
            raise InvalidInputError(
                f"This noise is for {self.coordinates} numbers with a sensitivity each."
            )
        if not np.all(np.isfinite(moves) & (moves > 0)):
            raise InvalidInputError("Every number needs a finite sensitivity above 0.")
        noisy = [
            self.for_sensitivity(float(move)).add_to([number], source)
            for number, move in zip(numbers, moves, strict=True)
        ]
        return np.concatenate(noisy)

    def _smaller_kind(self) -> NoiseKind:
        if self.delta < SMALLEST_DELTA:
            return "laplace"
        laplace, gaussian = self._laplace(1.0), self._gaussian(1.0)
        laplace_is = laplace.standard_deviation <= gaussian.standard_deviation
        return "laplace" if laplace_is else "gaussian"

    def _laplace(self, sensitivity: float) -> LaplaceMechanism:
        return calibrate_laplace(epsilon=self.epsilon / self.coordinates, sensitivity=sensitivity)

    def _gaussian(self, sensitivity: float) -> GaussianMechanism:
        """Of the same mu = (Delta_j + slack) / sigma_j for every number: sqrt(d) mu in all."""
        sigma = gaussian_sigma(self.epsilon, check_accounted_delta(self.delta))
        reach = math.sqrt(self.coordinates) * (check_sensitivity(sensitivity) + GRID_SLACK) * SAFETY
        return GaussianMechanism(sigma=sigma * reach, sensitivity=sensitivity)
