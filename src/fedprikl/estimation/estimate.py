"""Answers: one number with its interval, as it is shown; and estimates, which can be judged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprikl.checks import Floats
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.interval import Interval
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import Statistic, Verdict, judge_together
from fedprikl.privacy import PrivacyStatement
from fedprikl.reference import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An estimate of one divergence between the reference Pi and the records P of the clients.

    `value` estimates `target`, as D(Pi || (1 - s) P + s Pi) for a skew of s, and `interval` is
    its 95% interval; `guaranteed` covers for every population, not only for those that were tried.
    All account for the noise that `mechanism` names.  [alg:sys_tagg]
    `no_drift` is what the value would be on average if nothing had drifted: few records differ from
    Pi by chance.

    >>> answer = Answer(
    ...     divergence="tv",
    ...     value=0.21,
    ...     interval=(0.19, 0.23),
    ...     no_drift=0.2,
    ...     target="TV(Pi, P)",
    ...     unit="",
    ...     mechanism="Laplace noise of scale 0.2693",
    ... )
    >>> round(answer.excess, 3)
    0.01
    >>> print(answer)
    TV(Pi, P) is about 0.2100, of which about 0.2000 is what no drift gives.
    """

    divergence: str  # its name
    value: float
    interval: tuple[float, float] | None  # 95%; None where it is not known
    guaranteed: tuple[float, float] | None = None  # 95% for every population, where it is known
    no_drift: float | None = None  # mean of the value without drift; None where it is not known
    target: str  # the divergence as a formula, smoothing included
    unit: str
    mechanism: str  # the noise, in words

    @property
    def excess(self) -> float | None:
        """The value less what no drift gives. Negative values are no drift."""
        return None if self.no_drift is None else self.value - self.no_drift

    def __str__(self) -> str:
        value = f"{self.value:.4f} {self.unit}".rstrip()
        if self.no_drift is None:
            return f"{self.target} is about {value}."
        return (
            f"{self.target} is about {value}, of which about {self.no_drift:.4f} is what no drift "
            "gives."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate of a divergence of P from Pi, whose interval and verdict wait to be asked for."""

    method: str
    value: float
    target: str  # the divergence that is estimated, smoothing included
    unit: str  # of `value`
    privacy: PrivacyStatement
    payload: int  # counts each client reported
    noise_sd: float | None = None  # standard deviation of the noise on `value`, where it is known
    limits: Callable[[], Interval | None] = field(default=lambda: None, repr=False)
    statistic: Statistic | None = field(default=None, repr=False)  # what a verdict rests on
    # Its mean without drift, where that is not the mean of its statistic.
    typical: Callable[[NoDrift], float] | None = field(default=None, repr=False)
    false_alarm: float = 0.01  # of `drifted`
    spread: float | Spread = 1.0  # of `drifted`: a design effect, or a reference's `spread`

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
        """Whether drift was found, at the estimate's own false-alarm rate and spread."""
        return self.verdict().drifted

    def verdict(
        self, false_alarm: float | None = None, *, spread: float | Spread | None = None
    ) -> Verdict:
        """Drifted or not; computed when asked for, and costs no privacy.

        `spread` is a design effect, or what `Reference.spread` says of these clients.

        Below a second for 500 asked cells.
        """
        statistic = self.statistic
        if statistic is None:
            raise InvalidInputError(
                f"There is no verdict on this estimate ({self.method}): how it spreads without "
                "drift is not known. Use `fedprikl.estimation.trusted_aggregator`."
            )
        model = NoDrift.of(
            statistic.points, statistic.records, self.spread if spread is None else spread
        )
        rate = self.false_alarm if false_alarm is None else false_alarm
        return judge_together([statistic], model, false_alarm=rate)

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
            "verdict": None if self.statistic is None else self.verdict().to_dict(),
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
