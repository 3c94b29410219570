"""The noise of one release, resolved once: what the ledger charges is what draws."""

from dataclasses import dataclass

from fedprikl.privacy.calibration import (
    GaussianMechanism,
    LaplaceMechanism,
    NoiseKind,
    calibrate,
)

__all__ = ["Calibrated"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The least noise that gives (epsilon, delta), for any sensitivity.

    Noise is scaled to the sensitivity, so its cost does not depend on it: `charge` is known before
    any data. "auto" is resolved to the kind with the smaller spread when the object is made.

    Examples
    --------
    >>> from fedprikl.privacy import Calibrated
    >>> noise = Calibrated(1.0, 1e-6)
    >>> noise.kind
    'laplace'
    >>> round(noise.for_sensitivity(0.5).scale, 6), noise.charge.sensitivity
    (0.5, 1.0)

    """

    epsilon: float
    delta: float
    kind: NoiseKind = "auto"

    def __post_init__(self) -> None:
        if self.kind == "auto":
            laplace = isinstance(self.charge, LaplaceMechanism)
            object.__setattr__(self, "kind", "laplace" if laplace else "gaussian")

    @property
    def charge(self) -> LaplaceMechanism | GaussianMechanism:
        """What the ledger reserves: the noise for a sensitivity of 1."""
        return self.for_sensitivity(1.0)

    def for_sensitivity(self, sensitivity: float) -> LaplaceMechanism | GaussianMechanism:
        """The mechanism that draws the noise and is stated."""
        return calibrate(
            epsilon=self.epsilon, delta=self.delta, sensitivity=sensitivity, kind=self.kind
        )
