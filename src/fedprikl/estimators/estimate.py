"""The answer: one number, what it estimates, and its privacy statement."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprikl.checks import Floats
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.privacy import PrivacyStatement

__all__ = ["ComparedEstimate", "Estimate", "warn_of_paper_noise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate of D(Pi || P), in nats."""

    method: str
    value: float
    target: str  # the divergence that is estimated, smoothing included
    privacy: PrivacyStatement
    payload: int  # counts each client reported
    noise_sd: float | None = None  # standard deviation of the noise on `value`, where it is known
    limits: Callable[[], tuple[float, float] | None] = field(default=lambda: None, repr=False)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval, where it is known; computed when asked for (milliseconds)."""
        return self.limits()

    def __str__(self) -> str:
        return f"{self.target} is about {self.value:.4f} nats ({self.method}). {self.privacy}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "method": self.method,
            "value": self.value,
            "target": self.target,
            "payload_counts": self.payload,
            "noise_sd": self.noise_sd,
            "interval": None if (limits := self.interval) is None else list(limits),
            "privacy": self.privacy.to_dict(),
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparedEstimate:
    """A real estimate beside simulated repetitions of the same method, to tell luck from skill."""

    name: str
    estimate: Estimate
    repetitions: Floats  # values of simulated runs
    truth: float

    @property
    def error(self) -> float:
        """Of the real estimate, absolute, in nats."""
        return abs(self.estimate.value - self.truth)

    @property
    def typical_error(self) -> float:
        """Mean absolute error of the repetitions, in nats."""
        return float(np.mean(np.abs(self.repetitions - self.truth)))


def warn_of_paper_noise(statement: PrivacyStatement) -> None:
    """Say what the paper's printed noise really buys; the caller's caller's caller is blamed."""
    falsely = statement.epsilon > (statement.claimed_epsilon or 0.0)
    warnings.warn(
        f"calibration='paper' claims epsilon {statement.claimed_epsilon:g}"
        f"{', but' if falsely else '; with these points'} the noise the paper prints gives "
        f"epsilon {statement.epsilon:.3g} (delta {statement.delta:g}) here. "
        "Use calibration='exact' for the epsilon you ask for.",
        PaperCalibrationWarning,
        stacklevel=4,
    )
