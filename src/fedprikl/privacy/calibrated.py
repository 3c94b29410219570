"""From (epsilon, delta) to noise on one number: the same object is charged and draws."""

from dataclasses import dataclass, field
from typing import Literal

from fedprikl.checks import check_delta
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.gaussian import calibrate_gaussian
from fedprikl.privacy.integer_account import SMALLEST_DELTA
from fedprikl.privacy.laplace import calibrate_laplace
from fedprikl.privacy.mechanism import Mechanism, mechanism_named

__all__ = ["Calibrated", "NoiseKind", "calibrate"]

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
