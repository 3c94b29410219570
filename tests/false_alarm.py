"""Statistical checks with a stated false-alarm rate."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from fedprikl.checks import Floats

FALSE_ALARM = 1e-9


def looks_centred(samples: Floats, mean: float, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether the samples' mean is compatible with `mean` (z-test, two-sided).

    For thousands of samples that are not very skewed: the rate is that of a normal law. Of squares
    of heavy-tailed noise count how many are large instead (`looks_as_frequent`).
    """
    error = samples.std(ddof=1) / np.sqrt(len(samples))
    limit = float(stats.norm.isf(false_alarm / 2))
    return bool(abs(samples.mean() - mean) <= limit * error)


def looks_distributed(samples: Floats, law: Any, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether the samples come from a distribution (Kolmogorov-Smirnov)."""
    return bool(stats.kstest(samples, law.cdf).pvalue > false_alarm)


def looks_as_frequent(
    seen: int, trials: int, chance: float, false_alarm: float = FALSE_ALARM
) -> bool:
    """Whether an event of this chance may have been seen so often: binomial, two-sided, exact."""
    low, high = accepted(trials, chance, false_alarm)
    return low <= seen <= high


def missed(trials: int, tested: float, true: float, false_alarm: float = FALSE_ALARM) -> float:
    """How often `looks_as_frequent` accepts a chance that is not the true one, exactly."""
    low, high = accepted(trials, tested, false_alarm)
    return float(stats.binom.cdf(high, trials, true) - stats.binom.cdf(low - 1, trials, true))


def accepted(trials: int, chance: float, false_alarm: float) -> tuple[int, int]:
    """The fewest and the most events that are accepted."""
    low = int(stats.binom.ppf(false_alarm / 2, trials, chance))
    high = int(stats.binom.isf(false_alarm / 2, trials, chance))
    return low, high


@dataclass(frozen=True, kw_only=True)
class Enough:
    """At least `least` of `trials` succeed; looked at one by one, as each may take long.

    It is over once the rest cannot change the answer, or once it is sure (Wald's sequential test):
    what was seen is 1 / `missed` times likelier at a rate of `good` than at one of `poor`. At a
    rate of `poor` or less that ever happens with probability `missed` or less, so no more than that
    is missed beside what is missed by looking at all. A good rate fails more rarely. `passes` says
    how often exactly.
    """

    least: int
    trials: int
    good: float
    poor: float
    missed: float

    def holds(self, successes: Iterable[bool | np.bool_]) -> bool:
        """Whether they are enough; takes no more of them than it needs."""
        seen = 0
        for looked, success in enumerate(successes, start=1):
            seen += bool(success)
            if (answer := self._answer(seen, looked)) is not None:
                return answer
        raise AssertionError("too few trials")

    def passes(self, rate: float) -> float:
        """The probability of holding where each trial succeeds at this rate, exactly."""
        chances, passed = {0: 1.0}, 0.0
        for looked in range(1, self.trials + 1):
            open_: dict[int, float] = {}
            for seen, chance in chances.items():
                for now, share in ((seen + 1, rate), (seen, 1 - rate)):
                    answer = self._answer(now, looked)
                    if answer is None:
                        open_[now] = open_.get(now, 0.0) + chance * share
                    elif answer:
                        passed += chance * share
            chances = open_
        return passed

    def _answer(self, seen: int, looked: int) -> bool | None:
        failed = looked - seen
        for_it = seen * math.log(self.good / self.poor)
        against = failed * math.log((1 - self.poor) / (1 - self.good))
        if seen >= self.least or for_it - against >= -math.log(self.missed):
            return True
        return False if failed > self.trials - self.least else None
