"""The answer: one number, what it estimates, and its privacy statement."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprikl.checks import Floats
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.interval import Interval
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.verdict import Verdict
from fedprikl.privacy import PrivacyStatement

__all__ = ["ComparedEstimate", "Estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate of a divergence of P from Pi."""

    method: str
    value: float
    target: str  # the divergence that is estimated, smoothing included
    unit: str  # of `value`
    privacy: PrivacyStatement
    payload: int  # counts each client reported
    noise_sd: float | None = None  # standard deviation of the noise on `value`, where it is known
    limits: Callable[[], Interval | None] = field(default=lambda: None, repr=False)
    noisy_counts: NoisyCounts | None = field(default=None, repr=False)  # where they are released
    # The verdict at a false-alarm rate and a design effect, where the law without drift is known.
    judge: Callable[[float, float], Verdict] | None = field(default=None, repr=False)
    false_alarm: float = 0.01  # of `drifted`
    design_effect: float = 1.0  # of `drifted`; see `Correlation.design_effect`

    @property
    def interval(self) -> tuple[float, float] | None:
        """The printed 95% interval, where it is known; computed when asked for (a second)."""
        return None if (limits := self.limits()) is None else limits.printed

    @property
    def guaranteed(self) -> tuple[float, float] | None:
        """The interval that covers for every population in at least 95% of releases, if known."""
        return None if (limits := self.limits()) is None else limits.guaranteed

    @property
    def drifted(self) -> bool:
        """Whether drift was found, at the estimate's own false-alarm rate and design effect."""
        return self.verdict().drifted

    def verdict(
        self, false_alarm: float | None = None, *, design_effect: float | None = None
    ) -> Verdict:
        """Drifted or not; computed when asked for, and costs no privacy.

        Below a second for 500 asked cells.
        """
        if self.judge is None:
            raise InvalidInputError(
                f"There is no verdict on this estimate ({self.method}): how it spreads without "
                "drift is not known. Use `fedprikl.estimation.trusted_aggregator`."
            )
        return self.judge(
            self.false_alarm if false_alarm is None else false_alarm,
            self.design_effect if design_effect is None else design_effect,
        )

    def __str__(self) -> str:
        return (
            f"{self.target} is about {self.value:.4f} {self.unit} ({self.method}). {self.privacy}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "method": self.method,
            "value": self.value,
            "target": self.target,
            "payload_counts": self.payload,
            "noise_sd": self.noise_sd,
            "interval": None if (limits := self.interval) is None else list(limits),
            "verdict": None if self.judge is None else self.verdict().to_dict(),
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
        """Of the real estimate, absolute."""
        return abs(self.estimate.value - self.truth)

    @property
    def typical_error(self) -> float:
        """Mean absolute error of the repetitions."""
        return float(np.mean(np.abs(self.repetitions - self.truth)))
