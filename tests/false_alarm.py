"""Statistical checks with a stated false-alarm rate."""

from typing import Any

import numpy as np
from scipy import stats

from fedprikl.checks import Floats

FALSE_ALARM = 1e-9


def looks_centred(samples: Floats, mean: float, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether the samples' mean is compatible with `mean` (z-test, two-sided)."""
    error = samples.std(ddof=1) / np.sqrt(len(samples))
    limit = float(stats.norm.isf(false_alarm / 2))
    return bool(abs(samples.mean() - mean) <= limit * error)


def looks_distributed(samples: Floats, law: Any, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether the samples come from a distribution (Kolmogorov-Smirnov)."""
    return bool(stats.kstest(samples, law.cdf).pvalue > false_alarm)
