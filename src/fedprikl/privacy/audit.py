"""Audit: try to refute a privacy claim by experiment.

A lower bound on epsilon from samples of the mechanism on two neighbouring data sets. It holds
with the stated confidence whatever the mechanism does (Clopper-Pearson), or for any mechanism
that adds Gaussian noise (the stronger test). It can refute a claim; it can never prove one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTest:
    """One test: the epsilon that any mechanism with these samples must exceed."""

    name: str
    lower_bound_epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What the audit found. `refuted` is wrong with probability at most `false_alarm`."""

    claimed_epsilon: float
    delta: float
    trials: int
    false_alarm: float
    tests: tuple[AuditTest, ...]

    @property
    def lower_bound_epsilon(self) -> float:
        """The best of the tests' lower bounds."""
        return max(test.lower_bound_epsilon for test in self.tests)

    @property
    def refuted(self) -> bool:
        """Whether the true epsilon is above the claimed one."""
        return self.lower_bound_epsilon > self.claimed_epsilon

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "claimed_epsilon": self.claimed_epsilon,
            "delta": self.delta,
            "lower_bound_epsilon": self.lower_bound_epsilon,
            "refuted": self.refuted,
            "false_alarm": self.false_alarm,
            "trials": self.trials,
            "tests": {test.name: test.lower_bound_epsilon for test in self.tests},
        }


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
    tests = [
        AuditTest(
            name="clopper-pearson",
            lower_bound_epsilon=_threshold_bound(pick, measure, delta, chance),
        ),
        AuditTest(
            name="floating-point precision",
            lower_bound_epsilon=_threshold_bound(
                (lowest_bit(pick[0]), lowest_bit(pick[1])),
                (lowest_bit(measure[0]), lowest_bit(measure[1])),
                delta,
                chance,
            ),
        ),
    ]
    if gaussian:
        bound = _gaussian_bound(pick, measure, delta, chance)
        tests.append(AuditTest(name="gaussian", lower_bound_epsilon=bound))
    return AuditResult(
        claimed_epsilon=epsilon,
        delta=delta,
        trials=trials,
        false_alarm=false_alarm,
        tests=tuple(tests),
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


Pair = tuple[Floats, Floats]


def _threshold_bound(pick: Pair, measure: Pair, delta: float, chance: float) -> float:
    """max(0, ln((p - delta) / q)) for the best event {statistic >= cut} or its mirror images.

    (epsilon, delta)-DP means p <= e^epsilon q + delta for every event and either order of the
    worlds; p is bounded from below and q from above by exact binomial limits.
    """
    best, event = -math.inf, None
    for sign in (1, -1):
        for first, second in ((0, 1), (1, 0)):
            for cut in _cuts(sign * pick[first], sign * pick[second]):
                hits = _hits(pick, sign, first, second, cut)
                bound = _log_ratio(hits, len(pick[0]), delta, chance)
                if bound > best:
                    best, event = bound, (sign, first, second, cut)
    if event is None:
        return 0.0
    return max(0.0, _log_ratio(_hits(measure, *event), len(measure[0]), delta, chance))


def _cuts(first: Floats, second: Floats) -> Floats:
    """Candidate thresholds: quantiles of both worlds, finer towards the tail."""
    tail = np.concatenate([np.linspace(0.01, 0.99, 50), 1 - np.geomspace(1e-4, 1e-2, 10)])
    return np.unique(np.quantile(np.concatenate([first, second]), tail))


def _hits(samples: Pair, sign: int, first: int, second: int, cut: float) -> tuple[int, int]:
    return (
        int(np.count_nonzero(sign * samples[first] >= cut)),
        int(np.count_nonzero(sign * samples[second] >= cut)),
    )


def _log_ratio(hits: tuple[int, int], trials: int, delta: float, chance: float) -> float:
    lower, upper = _binomial_limits(hits, trials, chance)
    return math.log((lower - delta) / upper) if lower > delta else -math.inf


def _binomial_limits(hits: tuple[int, int], trials: int, chance: float) -> tuple[float, float]:
    """Clopper-Pearson: p above the first and q below the second, both but for `chance`."""
    often, seldom = hits
    lower = float(scipy.stats.beta.ppf(chance / 2, often, trials - often + 1)) if often else 0.0
    upper = (
        float(scipy.stats.beta.ppf(1 - chance / 2, seldom + 1, trials - seldom))
        if seldom < trials
        else 1.0
    )
    return lower, upper


def _gaussian_bound(pick: Pair, measure: Pair, delta: float, chance: float) -> float:
    """epsilon of the Gaussian mechanism that is at least as private as the samples allow.

    mu-Gaussian DP bounds every event by Phi^-1(p) - Phi^-1(q) <= mu, and a Gaussian mechanism is
    mu-GDP for mu = Delta/sigma exactly. Binomial limits at the best cut give a lower bound on mu,
    hence on epsilon at any delta, far beyond ln(trials).
    """
    first, second = (1, 0) if pick[1].mean() > pick[0].mean() else (0, 1)

    def mu(hits: tuple[int, int], trials: int) -> float:
        lower, upper = _binomial_limits(hits, trials, chance)
        return float(scipy.stats.norm.ppf(lower) - scipy.stats.norm.ppf(upper))

    cuts = _cuts(pick[first], pick[second])
    scores = [mu(_hits(pick, 1, first, second, cut), len(pick[0])) for cut in cuts]
    cut = float(cuts[int(np.argmax(scores))])
    found = mu(_hits(measure, 1, first, second, cut), len(measure[0]))
    if found <= 0:
        return 0.0
    return gaussian_epsilon(1 / found, delta)
