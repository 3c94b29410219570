"""The paper's calibration: its constants and sensitivities, and what they truly give."""

import math
from typing import Literal

from fedprikl.checks import check_delta, check_epsilon, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.accounting import gaussian_epsilon


def classic_constant(delta: float) -> float:
    """c = sqrt(2 ln(1.25/delta)), the paper's calibration constant      [cor:GaussNoise].

    Proved for epsilon < 1 only.
    """
    return math.sqrt(2 * math.log(1.25 / check_delta(delta)))


def paper_noise_gain(*, epsilon: float, delta: float, batches: int) -> float:
    """g = (c / (epsilon T))^2: variance of the noise `alg:sys_tagg` prints, per squared kappa."""
    gain = classic_constant(delta) / (check_epsilon(epsilon) * check_positive_int(batches, "T"))
    return gain**2


def paper_true_epsilon(
    *,
    epsilon: float,
    delta: float,
    points: int,
    batches: int,
    released: Literal["terms", "mean"] = "terms",
    repeated: bool = False,
) -> float:
    """The epsilon that the paper's printed noise truly gives, on the paper's own premises.

    Its premise is that one record changes one term by at most kappa. `released="terms"` is
    `alg:sys_tagg` as printed, where the server sees all mT noisy terms; `"mean"` releases only
    their average. `repeated` is the worst case of i.i.d. draws: all m points of a batch are equal.
    """
    m, c = check_positive_int(points, "points"), classic_constant(delta)
    epsilon = check_epsilon(epsilon)
    changed = m if repeated else 1  # terms of the batch
    reach = epsilon * check_positive_int(batches, "batches") / c  # kappa / sd of one term's noise
    if released == "terms":
        ratio = math.sqrt(changed) * reach
    elif released == "mean":
        ratio = changed * reach / math.sqrt(m * batches)
    else:
        raise InvalidInputError(f"`released` must be 'terms' or 'mean', got {released!r}.")
    return gaussian_epsilon(1 / ratio, check_delta(delta))


def paper_kl_sensitivity() -> float:
    """ln 2 < 0.7, the paper's bound for D(Pi || P) itself              [th:SensitivityOfKLD].

    Only among histograms in which every cell counts at least 2 before and after: a condition on
    private data, so it cannot carry a guarantee.
    """
    return math.log(2)


def paper_term_sensitivity(*, control: float, records: int, pi_min: float) -> float:
    """kappa = |lambda| / (N pi_min) + ln 2, the paper's bound for one term of the mean.

    Under the same condition as `paper_kl_sensitivity`, with the same consequence.
    [th:SensitivityOfSampledKLD]
    """
    if not 0 < check_finite(pi_min, "pi_min") <= 1:
        raise InvalidInputError(f"pi_min is a probability above 0, got {pi_min}.")
    records = check_positive_int(records, "records")
    return abs(check_finite(control, "control")) / (records * pi_min) + math.log(2)
