"""Statistical checks with a stated false-alarm rate."""

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
