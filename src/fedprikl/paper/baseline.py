"""The paper's baseline without a trusted aggregator: noise on every count   [alg:sys_dist].

`calibration="exact"` (the default) adds integer noise, Laplace or Gaussian, once per point.
`calibration="paper"` adds the printed noise to every drawn frequency, and warns.
"""

import math
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, check_delta, check_epsilon
from fedprikl.divergence import Floor, Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.scoring import BatchCounts, check_score
from fedprikl.paper.calibration import classic_constant
from fedprikl.paper.printed_aggregator import warn_of_paper_noise
from fedprikl.privacy import (
    SECURE_NOISE,
    Counts,
    GaussianMechanism,
    NoiseSource,
    PrivacyStatement,
    calibrate,
)

TRUST = "whoever adds the noise to the sums; nobody, where clients add it in shares."
PAPER_SCORE = Score(Floor(1e-4), control=-1.0)
METHOD = {"exact": "baseline, exact calibration", "paper": "baseline, paper's calibration"}


def baseline(
    counts: BatchCounts,
    *,
    epsilon: float,
    delta: float = 1e-6,
    score: Score = PAPER_SCORE,
    calibration: Literal["exact", "paper"] = "exact",
    noise: str = "auto",
    source: NoiseSource = SECURE_NOISE,
) -> Estimate:
    """D(Pi || P) from noisy counts: the server floors them and applies Phi.

    Everything after the noise is post-processing and costs no privacy, so any other divergence
    may be computed from the same counts. `score` defaults to the paper's: lambda = -1 and a floor.
    `noise` is for the exact calibration; "auto" takes the kind with the smaller spread.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if not check_score(score).finite:
        raise InvalidInputError("A noisy count may be 0, whose score is infinite; smooth it.")
    if calibration == "exact":
        noisy, statement = _integer_noise(counts, epsilon, delta, noise, source)
        of_term = np.arange(len(counts.points))
    elif calibration == "paper":
        noisy, statement, of_term = _printed_noise(counts, epsilon, delta, source)
    else:
        raise InvalidInputError(f"Calibration must be 'exact' or 'paper', got {calibration!r}.")
    points = counts.points
    share = points.weights / np.bincount(of_term)
    terms = score(np.maximum(noisy, 0.0), points.pi[of_term], counts.records_per_point[of_term])
    return Estimate(
        method=METHOD[calibration],
        value=math.fsum((share[of_term] * terms).tolist()),
        target=score.target,
        unit=score.unit,
        payload=points.payload,
        privacy=statement,
    )


def _integer_noise(
    counts: BatchCounts, epsilon: float, delta: float, noise: str, source: NoiseSource
) -> tuple[Floats, PrivacyStatement]:
    on = Counts(coordinates=min(2, counts.points.payload))
    mechanism = calibrate(on, epsilon=epsilon, delta=delta, law=noise)
    noisy = mechanism.add_to(counts.counts, source)
    return noisy, PrivacyStatement(
        epsilon=mechanism.epsilon(delta),
        delta=mechanism.proved_delta(delta),
        claimed_epsilon=epsilon,
        mechanism=str(mechanism),
        released=f"{len(noisy)} noisy counts",
        trust=TRUST,
        sensitivity=mechanism.sensitivity,
        insecure=source.insecure,
    )


def _printed_noise(
    counts: BatchCounts, epsilon: float, delta: float, source: NoiseSource
) -> tuple[Floats, PrivacyStatement, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Noise of sd c / (N_t epsilon) on every drawn frequency, that is c / epsilon on its count."""
    points = counts.points
    sigma = classic_constant(delta) / epsilon
    of_term = np.repeat(np.arange(len(points)), points.draws)
    # Two asked cells change by one record, each as often as it was drawn.
    moved = max(
        int(np.sort(points.draws[points.batch == t])[-2:].sum()) for t in range(points.batches)
    )
    mechanism = GaussianMechanism(sigma=sigma, sensitivity=math.sqrt(moved))
    noisy = mechanism.add_to(counts.counts[of_term], source)
    statement = PrivacyStatement(
        epsilon=mechanism.epsilon(delta),
        delta=delta,
        claimed_epsilon=epsilon,
        mechanism=f"{mechanism} on each count",
        released=f"{len(noisy)} noisy frequencies",
        trust=TRUST,
        sensitivity=mechanism.sensitivity,
        insecure=source.insecure,
    )
    warn_of_paper_noise(statement, callers=2)
    return noisy, statement, of_term
