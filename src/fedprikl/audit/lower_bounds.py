"""Lower bounds on epsilon from samples of a mechanism on two neighbouring data sets.

A bound holds with the stated confidence whatever the mechanism does (Clopper-Pearson), or for any
mechanism that adds Gaussian noise (the stronger test). It can refute a claim; it can never prove
one.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprikl.checks import (
    Floats,
    check_delta,
    check_epsilon,
    check_open_unit,
    check_positive_int,
)
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy
from fedprikl.privacy.accounting import gaussian_epsilon

Sampler = Callable[[int], Floats]  # n -> n releases, as numbers that tell the two worlds apart
Worlds = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What the audit found. `refuted` is wrong with probability at most `false_alarm`."""

    claimed_epsilon: float
    delta: float
    trials: int
    false_alarm: float
    bounds: dict[str, float]  # test -> the epsilon that any mechanism with these samples exceeds

    @property
    def lower_bound_epsilon(self) -> float:
        """The best of the tests' lower bounds."""
        return max(self.bounds.values())

    @property
    def refuted(self) -> bool:
        """Whether the true epsilon is above the claimed one."""
        return self.lower_bound_epsilon > self.claimed_epsilon

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = {"lower_bound_epsilon": self.lower_bound_epsilon, "refuted": self.refuted}
        return asdict(self) | found


def audit(
    left: Sampler,
    right: Sampler,
    *,
    epsilon: float,
    delta: float,
    gaussian: bool,
    trials: int = 100_000,
    false_alarm: float = 1e-6,
) -> AuditResult:
    """Lower bounds on the epsilon of a mechanism sampled on two neighbouring data sets.

    `left` and `right` draw the released number (or its projection on the direction in which the
    data sets differ) in either world. The first half of the trials picks the event that tells the
    worlds apart best, the second half measures it. Two events are tried: the number is large, and
    the number has low-order bits set (the floating-point attack). `gaussian` adds the test for
    Gaussian noise.

    >>> rng = np.random.default_rng(0)
    >>> found = audit(
    ...     lambda n: rng.laplace(0, 0.2, n),
    ...     lambda n: rng.laplace(1, 0.2, n),
    ...     epsilon=1.0,
    ...     delta=1e-6,
    ...     gaussian=False,
    ...     trials=5000,
    ... )
    >>> found.refuted  # noise of scale 0.2 gives epsilon 5
    True
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_open_unit(false_alarm, "false_alarm", "It is the chance of a wrong refutation.")
    half = check_positive_int(trials, "trials") // 2
    if half < 100:
        raise InvalidInputError("An audit needs at least 200 trials.")
    chance = false_alarm / (3 if gaussian else 2)
    pick, measure = (left(half), right(half)), (left(half), right(half))
    if not all(np.all(np.isfinite(samples)) for samples in (*pick, *measure)):
        raise InvalidInputError("A release was nan or infinite; audit finite numbers.")
    bits = [(lowest_bit(one), lowest_bit(other)) for one, other in (pick, measure)]
    bounds = {
        "clopper-pearson": _threshold_bound(pick, measure, delta, chance),
        "floating-point precision": _threshold_bound(bits[0], bits[1], delta, chance),
    }
    if gaussian:
        bounds["gaussian"] = _gaussian_bound(pick, measure, delta, chance)
    return AuditResult(
        claimed_epsilon=epsilon,
        delta=delta,
        trials=trials,
        false_alarm=false_alarm,
        bounds=bounds,
    )


def lowest_bit(values: Floats) -> Floats:
    """The exponent of the lowest set bit of each float; how fine the number is.

    A float sum of a value and continuous noise is finer near 0 than far from it, so this betrays
    the value (Mironov 2012; Haney et al. 2022). On a fixed grid it betrays nothing below the grid.

    >>> lowest_bit(np.array([0.75, 8.0]))
    array([-2.,  3.])
    """
    mantissa, exponent = np.frexp(values)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(whole == 0, 0.0, lowest + exponent - 53.0)


def _threshold_bound(pick: Worlds, measure: Worlds, delta: float, chance: float) -> float:
    """max(0, ln((p - delta) / q)) for the best event {statistic >= cut} or its mirror images.

    (epsilon, delta)-DP means p <= e^epsilon q + delta for every event and either order of the
    worlds; p is bounded from below and q from above by exact binomial limits.
    """

    def bound(samples: Worlds, sign: int, first: int, cut: float) -> float:
        lower, upper = _limits(sign * samples[first], sign * samples[1 - first], cut, chance)
        return math.log((lower - delta) / upper) if lower > delta else -math.inf

    events = [
        (sign, first, float(cut))
        for sign in (1, -1)
        for first in (0, 1)
        for cut in _cuts(sign * pick[0], sign * pick[1])
    ]
    best = max(events, key=lambda event: bound(pick, *event))
    return max(0.0, bound(measure, *best))


def _gaussian_bound(pick: Worlds, measure: Worlds, delta: float, chance: float) -> float:
    """epsilon of the Gaussian mechanism that is at least as private as the samples allow.

    mu-Gaussian DP bounds every event by Phi^-1(p) - Phi^-1(q) <= mu, and a Gaussian mechanism is
    mu-GDP for mu = Delta/sigma exactly. Binomial limits at the best cut give a lower bound on mu,
    hence on epsilon at any delta, far beyond ln(trials).
    """
    first = int(pick[1].mean() > pick[0].mean())

    def mu(samples: Worlds, cut: float) -> float:
        lower, upper = _limits(samples[first], samples[1 - first], cut, chance)
        return float(scipy.stats.norm.ppf(lower) - scipy.stats.norm.ppf(upper))

    found = mu(measure, max(_cuts(*pick).tolist(), key=lambda cut: mu(pick, cut)))
    return gaussian_epsilon(1 / found, delta) if found > 0 else 0.0


def _cuts(first: Floats, second: Floats) -> Floats:
    """Candidate thresholds: quantiles of both worlds, finer towards the tail."""
    tail = np.concatenate([np.linspace(0.01, 0.99, 50), 1 - np.geomspace(1e-4, 1e-2, 10)])
    return np.unique(np.quantile(np.concatenate([first, second]), tail))


def _limits(often: Floats, seldom: Floats, cut: float, chance: float) -> tuple[float, float]:
    """P(often >= cut) is above the first and P(seldom >= cut) below the second (Clopper-Pearson).

    Both but for `chance`.
    """
    trials, beta = len(often), scipy.stats.beta
    hits, misses = int(np.count_nonzero(often >= cut)), int(np.count_nonzero(seldom < cut))
    lower = float(beta.ppf(chance / 2, hits, trials - hits + 1)) if hits else 0.0
    upper = float(beta.ppf(1 - chance / 2, trials - misses + 1, misses)) if misses else 1.0
    return lower, upper
