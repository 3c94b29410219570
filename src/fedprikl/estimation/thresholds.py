"""Thresholds that populations without drift exceed at most so often, one or several together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedprikl.checks import Floats, check_open_unit
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy
from fedprikl.privacy import Mechanism

__all__ = [
    "NullValues",
    "alarm_threshold",
    "check_false_alarm",
    "joint_thresholds",
    "simulated_draws",
    "upper_limit",
]

CONFIDENCE = 0.99  # that the simulation's own error does not raise the false-alarm rate
LEAST_FALSE_ALARM = 1e-4
DRAWS = 4_000
HALVINGS = 14  # of the common tail level


def check_false_alarm(value: float) -> float:
    """A false-alarm rate that a simulation can resolve: from 0.0001 to 0.5."""
    rate = check_open_unit(value, "false_alarm", "Use 0.01 for one false alarm in a hundred.")
    if not LEAST_FALSE_ALARM <= rate <= 0.5:
        raise InvalidInputError(
            f"A false-alarm rate lies between {LEAST_FALSE_ALARM} and 0.5, got {rate}."
        )
    return rate


def simulated_draws(false_alarm: float) -> int:
    """How many populations to simulate: at least 4,000, and 40 above the threshold."""
    return max(DRAWS, math.ceil(40 / check_false_alarm(false_alarm)))


@dataclass(frozen=True, eq=False)
class NullValues:
    """A statistic of many populations without drift: (populations, draws of the noise).

    With a `mechanism` its noise is not in the values yet, and there is one value per population.
    """

    values: Floats
    mechanism: Mechanism | None = None

    @property
    def mean(self) -> float:
        """Over all populations; noise of a mechanism has mean 0."""
        return float(self.values.mean())

    def above(self, threshold: float) -> Floats:
        """P(statistic > threshold), of each population."""
        if self.mechanism is None:
            return np.asarray((self.values > threshold).mean(axis=1), dtype=np.float64)
        return self.mechanism.survival(threshold - self.values[:, 0])

    def at_level(self, level: float) -> float:
        """The least threshold that a share `level` of all populations exceeds, at most."""
        if self.mechanism is None:
            return float(self._sorted[-1 - int(level * self._sorted.size)])
        low, high = _bracket(self.values, self.mechanism, level)
        return float(scipy.optimize.brentq(lambda t: self.above(t).mean() - level, low, high))

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.values, axis=None)


def joint_thresholds(nulls: Sequence[NullValues], *, false_alarm: float) -> tuple[float, ...]:
    """A threshold for each statistic: P(any exceeds its own) <= false_alarm without drift.

    Every statistic exceeds its threshold equally often. The values are of the same populations;
    given one, the noises of different statistics are independent, so that

        P(any | population) = 1 - product over statistics of (1 - P(above | population))

    and its upper 99% confidence limit over the populations stays within the rate, as in
    `alarm_threshold`.
    """
    rate = _check_draws(len(nulls[0].values), false_alarm)
    if len(nulls) == 1 and nulls[0].values.shape[1] == 1:
        return (
            alarm_threshold(nulls[0].values[:, 0], nulls[0].mechanism, false_alarm=false_alarm),
        )

    def thresholds(level: float) -> tuple[float, ...]:
        return tuple(null.at_level(level) for null in nulls)

    def fits(level: float) -> bool:
        calm = [1 - null.above(t) for null, t in zip(nulls, thresholds(level), strict=True)]
        return upper_limit(1 - np.prod(calm, axis=0)) <= rate

    low, high = rate / (4 * len(nulls)), rate  # by the union bound `low` fits
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return thresholds(low)


def alarm_threshold(values: Floats, mechanism: Mechanism | None, *, false_alarm: float) -> float:
    """The least t with P(value + noise > t) <= false_alarm, in the unit of the values.

    `values` are draws of the value before noise without drift; the noise enters by its exact
    distribution function F. With S_i = 1 - F(t - value_i) over n draws, and z the 99% point of the
    normal law, t solves

        mean(S) + z sd(S) / sqrt(n) + z^2 / (2n) = false_alarm

    an upper 99% confidence limit of the false-alarm rate, so that the error of the simulation
    makes t too large rather than too small.
    """
    rate = _check_draws(len(values), false_alarm)
    if mechanism is None:
        return _order_statistic(values, rate)

    def excess(t: float) -> float:
        return upper_limit(mechanism.survival(t - values)) - rate

    return float(scipy.optimize.brentq(excess, *_bracket(values, mechanism, rate)))


def _check_draws(draws: int, false_alarm: float) -> float:
    rate = check_false_alarm(false_alarm)
    if draws < 40 / rate - 1e-6:
        raise InvalidInputError(
            f"A false-alarm rate of {rate:g} needs at least {math.ceil(40 / rate)} simulated "
            f"populations, got {draws}."
        )
    return rate


def _bracket(values: Floats, mechanism: Mechanism, level: float) -> tuple[float, float]:
    reach = -2 * math.log(level) * mechanism.standard_deviation
    return float(values.min() - reach), float(values.max() + 3 * reach)


def upper_limit(samples: Floats) -> float:
    """Of the mean that independent samples are drawn with: 99% confidence."""
    z, n = float(scipy.special.ndtri(CONFIDENCE)), len(samples)
    return float(samples.mean() + z * samples.std() / math.sqrt(n) + z**2 / (2 * n))


def _order_statistic(values: Floats, rate: float) -> float:
    """The same without noise: as many values may exceed t as the limit allows."""
    n, z = len(values), float(scipy.special.ndtri(CONFIDENCE))
    share = np.arange(n) / n
    limits = share + z * np.sqrt(share * (1 - share) / n) + z**2 / (2 * n)
    above = int(np.flatnonzero(limits <= rate)[-1])
    return float(np.sort(values)[n - 1 - above])
