"""The verdict: drifted or not, at a stated false-alarm rate (docs/verdict.md: where it holds).

Without drift the released number is a known function of multinomial counts plus noise of known
law. The threshold is the number that it exceeds at most so often: no fixed 0.1.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy

from fedprikl.checks import Floats, Ints, check_open_unit
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift, null_values, public_simulation
from fedprikl.estimation.terms import Terms
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints, Spread

__all__ = ["Verdict", "alarm_threshold", "judge_release", "simulated_draws"]


CONFIDENCE = 0.99  # that the simulation's own error does not raise the false-alarm rate
LEAST_FALSE_ALARM = 1e-4
DRAWS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a statistic exceeds what populations without drift reach.

        drifted  if  statistic > threshold,   P(statistic > threshold | no drift) <= false_alarm

    >>> verdict = Verdict(
    ...     statistic=0.5, threshold=0.25, false_alarm=0.01, design_effect=1.0, unit="nats"
    ... )
    >>> verdict.drifted
    True
    >>> print(verdict)  # doctest: +ELLIPSIS
    Drift found: 0.5 nats is above 0.25, which populations without drift exceed at most 1% of ...
    """

    statistic: float
    threshold: float
    false_alarm: float  # how often, at most, a population without drift exceeds the threshold
    design_effect: float | None  # None: not known, records of one client are taken as unrelated
    unit: str  # of statistic and threshold; empty for the variation of noisy counts

    @property
    def drifted(self) -> bool:
        """Whether drift was found."""
        return self.statistic > self.threshold

    def __str__(self) -> str:
        found, place = ("Drift found", "above") if self.drifted else ("No drift found", "below")
        statistic, threshold = _told_apart(self.statistic, self.threshold)
        what = f"{statistic} {self.unit}"
        if not self.unit:
            what = f"the excess variation of the noisy counts, {statistic},"
        related = ""
        if self.design_effect is None:
            related = " and with unrelated records (which no client ids show)"
        elif self.design_effect != 1:
            related = f" (design effect {self.design_effect:.3g})"
        return (
            f"{found}: {what} is {place} {threshold}, which "
            f"populations without drift{related} exceed at most {100 * self.false_alarm:.3g}% "
            "of the time"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "drifted": self.drifted,
            "statistic": self.statistic,
            "threshold": self.threshold,
            "false_alarm": self.false_alarm,
            "design_effect": self.design_effect,
            "unit": self.unit,
            "statement": f"{self}.",
        }


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


def alarm_threshold(values: Floats, mechanism: Mechanism | None, *, false_alarm: float) -> float:
    """The least t with P(value + noise > t) <= false_alarm, in the unit of the values.

    `values` are draws of the value before noise without drift; the noise enters by its exact
    distribution function F. With S_i = 1 - F(t - value_i) over n draws, and z the 99% point of the
    normal law, t solves

        mean(S) + z sd(S) / sqrt(n) + z^2 / (2n) = false_alarm

    an upper 99% confidence limit of the false-alarm rate, so that the error of the simulation
    makes t too large rather than too small.
    """
    rate = check_false_alarm(false_alarm)
    if len(values) < 40 / rate - 1e-6:
        raise InvalidInputError(
            f"A false-alarm rate of {rate:g} needs at least {math.ceil(40 / rate)} simulated "
            f"populations, got {len(values)}."
        )
    if mechanism is None:
        return _order_statistic(values, rate)

    def excess(t: float) -> float:
        return _upper_limit(mechanism.survival(t - values)) - rate

    reach = -2 * math.log(rate) * mechanism.standard_deviation
    return float(scipy.optimize.brentq(excess, values.min() - reach, values.max() + 3 * reach))


def judge_release(
    value: float,
    false_alarm: float,
    spread: float | Spread,
    *,
    mechanism: Mechanism | None,
    points: QueryPoints,
    records: Ints,
    score: Score,
) -> Verdict:
    """The verdict on a released value; from public quantities, so it costs no privacy."""
    terms = Terms.of(points, records)
    model = NoDrift.of(points, records, spread)
    values = null_values(
        model,
        terms.weights,
        partial(terms.scores, score=score),
        draws=simulated_draws(false_alarm),
        rng=public_simulation(),
    )
    return Verdict(
        statistic=value,
        threshold=alarm_threshold(values, mechanism, false_alarm=false_alarm),
        false_alarm=false_alarm,
        design_effect=model.design_effect,
        unit=score.unit,
    )


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with four digits, or with as many as show that they differ."""
    digits = 4
    while digits < 17 and f"{one:.{digits}g}" == f"{other:.{digits}g}" and one != other:
        digits += 1
    return f"{one:.{digits}g}", f"{other:.{digits}g}"


def _upper_limit(samples: Floats) -> float:
    z, n = float(scipy.special.ndtri(CONFIDENCE)), len(samples)
    return float(samples.mean() + z * samples.std() / math.sqrt(n) + z**2 / (2 * n))


def _order_statistic(values: Floats, rate: float) -> float:
    """The same without noise: as many values may exceed t as the limit allows."""
    n, z = len(values), float(scipy.special.ndtri(CONFIDENCE))
    share = np.arange(n) / n
    limits = share + z * np.sqrt(share * (1 - share) / n) + z**2 / (2 * n)
    above = int(np.flatnonzero(limits <= rate)[-1])
    return float(np.sort(values)[n - 1 - above])
