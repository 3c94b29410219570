"""FedPriKL with a trusted aggregator: exact sums are scored, then noise is added   [alg:sys_tagg].

`calibration="exact"` (the default) releases one number with noise for its exact sensitivity.
`calibration="paper"` adds the noise the paper prints to every term, and warns what that is worth.
"""

import math
from functools import partial
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, Ints, check_delta, check_epsilon
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.estimate import Estimate, warn_of_paper_noise
from fedprikl.estimation.interval import confidence_interval
from fedprikl.estimation.scoring import increments_per_batch, score_sensitivity, weighted_score
from fedprikl.estimation.verdict import judge_release
from fedprikl.privacy import (
    SECURE_NOISE,
    GaussianMechanism,
    Mechanism,
    NoiseKind,
    NoiseSource,
    PrivacyStatement,
    calibrate,
    exact_sensitivity,
    terms_sensitivity,
)
from fedprikl.privacy.paper_calibration import paper_noise_gain, paper_term_sensitivity
from fedprikl.reference import QueryPoints

__all__ = ["Calibration", "Released", "release_mechanism", "trusted_aggregator"]

Calibration = Literal["exact", "paper"]
Released = Literal["terms", "mean"]
TRUST = "the aggregator, with the exact sums of each batch; the server sees the release only."


def trusted_aggregator(
    counts: BatchCounts,
    *,
    epsilon: float,
    delta: float = 1e-6,
    score: Score | None = None,
    calibration: Calibration = "exact",
    noise: NoiseKind = "auto",
    released: Released = "terms",
    client_effect: float = 1.0,
    source: NoiseSource = SECURE_NOISE,
) -> Estimate:
    """D(Pi || P) from exact batch counts, noised before it leaves the aggregator.

    `score` defaults to a skew of 0.01 and lambda = 0; the exact calibration also corrects the bias
    of small batches. `noise` belongs to the exact calibration, `released` to the paper's: whether
    the server sees every noisy term, as printed, or only their mean. `client_effect` (a design
    effect) widens the interval where batches are sets of clients whose records resemble each other.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if released not in ("terms", "mean"):
        raise InvalidInputError(f"`released` must be 'terms' or 'mean', got {released!r}.")
    if calibration == "exact":
        chosen = score or Score(correction=1.0)
        return _exact(counts, chosen, epsilon, delta, noise, client_effect, source)
    if calibration == "paper":
        return _paper(counts, score or Score(), epsilon, delta, released, source)
    raise InvalidInputError(f"Calibration must be 'exact' or 'paper', got {calibration!r}.")


def release_mechanism(
    points: QueryPoints,
    records: Ints,
    *,
    epsilon: float,
    delta: float,
    score: Score,
    calibration: Calibration,
    noise: NoiseKind = "auto",
    released: Released = "terms",
) -> Mechanism:
    """The noise of a release and its sensitivity, from public quantities: known before any data.

    For the paper's calibration, the Gaussian mechanism that is exactly as private.
    """
    if calibration == "paper":
        return _paper_mechanism(points, records, score, epsilon, delta, released)
    return calibrate(
        epsilon=epsilon,
        delta=delta,
        sensitivity=score_sensitivity(points, records, score),
        kind=noise,
    )


def _exact(
    counts: BatchCounts,
    score: Score,
    epsilon: float,
    delta: float,
    noise: NoiseKind,
    client_effect: float,
    source: NoiseSource,
) -> Estimate:
    points, records = counts.points, counts.records
    mechanism = release_mechanism(
        points,
        records,
        epsilon=epsilon,
        delta=delta,
        score=score,
        calibration="exact",
        noise=noise,
    )
    value = float(mechanism.add_to([weighted_score(counts, score)], source)[0])
    return Estimate(
        method="trusted aggregator, exact calibration",
        value=value,
        target=str(score.smoothing),
        payload=points.payload,
        noise_sd=mechanism.standard_deviation,
        limits=partial(
            confidence_interval,
            value,
            noise=mechanism,
            points=points,
            records=records,
            score=score,
            client_effect=client_effect,
        ),
        judge=partial(
            judge_release, value, noise=mechanism, points=points, records=records, score=score
        ),
        privacy=PrivacyStatement(
            epsilon=mechanism.epsilon(delta),
            delta=mechanism.proved_delta(delta),
            claimed_epsilon=epsilon,
            mechanism=str(mechanism),
            released="one number",
            trust=TRUST,
            sensitivity=mechanism.sensitivity,
            insecure=source.insecure,
        ),
    )


def _paper(
    counts: BatchCounts,
    score: Score,
    epsilon: float,
    delta: float,
    released: Released,
    source: NoiseSource,
) -> Estimate:
    points = counts.points
    if points.pooled or score.correction:
        raise InvalidInputError(
            "The paper's calibration is for its own design: points that are not pooled, a score "
            "without bias correction. Use calibration='exact'."
        )
    sigmas = _paper_sigmas(points, counts.records, score, epsilon, delta)
    scores = score(counts.counts, points.pi, counts.records_per_point)
    terms = np.repeat(scores, points.draws)
    batch = np.repeat(points.batch, points.draws)
    noisy = np.concatenate(
        [source.gaussian(terms[batch == t], sigma=sigmas[t]) for t in range(points.batches)]
    )
    share = _share_of_term(points)
    mechanism = _paper_mechanism(points, counts.records, score, epsilon, delta, released)
    statement = PrivacyStatement(
        epsilon=mechanism.epsilon(delta),
        delta=delta,
        claimed_epsilon=epsilon,
        mechanism=f"the paper's Gaussian noise of standard deviation {sigmas.max():.4g} per term",
        released=f"{len(terms)} noisy terms" if released == "terms" else "the mean of noisy terms",
        trust=TRUST,
        insecure=source.insecure,
    )
    warn_of_paper_noise(statement)
    return Estimate(
        method="trusted aggregator, paper's calibration",
        value=math.fsum((share * noisy).tolist()),
        target=str(score.smoothing),
        payload=points.payload,
        noise_sd=_mean_sd(points, sigmas),
        privacy=statement,
    )


def _paper_sigmas(
    points: QueryPoints, records: Ints, score: Score, epsilon: float, delta: float
) -> Floats:
    """c kappa_t / (epsilon T) per batch, as line 14 of the listing prints it."""
    gain = paper_noise_gain(epsilon=epsilon, delta=delta, batches=points.batches)
    kappa = [
        paper_term_sensitivity(control=score.control, records=int(n), pi_min=points.pi_min)
        for n in records
    ]
    return math.sqrt(gain) * np.array(kappa, dtype=np.float64)


def _share_of_term(points: QueryPoints) -> Floats:
    """The weight of every drawn term: 1/(mT) for i.i.d. points."""
    return np.repeat(points.weights / points.draws, points.draws)


def _mean_sd(points: QueryPoints, sigmas: Floats) -> float:
    """Standard deviation of the noise of the mean of all terms."""
    of_term = sigmas[np.repeat(points.batch, points.draws)]
    return math.sqrt(float(np.sum((_share_of_term(points) * of_term) ** 2)))


def _paper_mechanism(
    points: QueryPoints,
    records: Ints,
    score: Score,
    epsilon: float,
    delta: float,
    released: Released,
) -> GaussianMechanism:
    """What the printed noise truly is for this score, these points and batch sizes."""
    sigmas = _paper_sigmas(points, records, score, epsilon, delta)
    if released == "mean":
        batches = increments_per_batch(points, records, score, points.weights)
        return GaussianMechanism(
            sigma=_mean_sd(points, sigmas), sensitivity=exact_sensitivity(batches)
        )
    batches = increments_per_batch(points, records, score, np.ones(len(points)))
    reach = [
        terms_sensitivity([batch], [points.draws[points.batch == t]]) / sigmas[t]
        for t, batch in enumerate(batches)
    ]
    return GaussianMechanism(sigma=1.0, sensitivity=max(reach))
