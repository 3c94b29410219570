"""The paper's three estimators, under its own names: no federation runs them.

- no privacy: exact sums, no noise;
- the baseline without a trusted aggregator [alg:sys_dist]: noise on every count. The exact
  calibration adds integer noise, Laplace or Gaussian, once per point; the paper's adds the printed
  noise to every drawn frequency;
- FedPriKL with a trusted aggregator as the paper prints it [alg:sys_tagg]: noise on every term.

The printed noise does not give the epsilon that the paper claims, and an estimate with it warns
what it is worth. `fedprikl.estimation.trusted_aggregator` has noise that does.
"""

import math
import warnings
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, Ints, check_delta, check_epsilon
from fedprikl.divergence import Floor, Score
from fedprikl.errors import InvalidInputError, PaperCalibrationWarning
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.scoring import (
    BatchCounts,
    check_score,
    increments_per_batch,
    weighted_score,
)
from fedprikl.estimation.statistic import scored_statistic
from fedprikl.estimation.trusted_aggregator import TRUST
from fedprikl.paper.calibration import (
    classic_constant,
    paper_noise_gain,
    paper_term_sensitivity,
)
from fedprikl.privacy import (
    SECURE_NOISE,
    Counts,
    GaussianMechanism,
    NoiseSource,
    PrivacyStatement,
    calibrate,
    exact_sensitivity,
    terms_sensitivity,
)
from fedprikl.reference import QueryPoints

Released = Literal["terms", "mean"]
PLAIN_SCORE = Score()
PAPER_SCORE = Score(Floor(1e-4), control=-1.0)
BASELINE_TRUST = "whoever adds the noise to the sums; nobody, where clients add it in shares."
METHOD = {"exact": "baseline, exact calibration", "paper": "baseline, paper's calibration"}


def no_privacy(counts: BatchCounts, *, score: Score = PLAIN_SCORE) -> Estimate:
    """The weighted sum of scores without noise; with i.i.d. points, the paper's "No privacy"."""
    value = weighted_score(counts, score)
    return Estimate(
        method="no privacy",
        value=value,
        target=score.target,
        unit=score.unit,
        payload=counts.points.payload,
        noise_sd=0.0,
        statistic=scored_statistic(
            value,
            score=score,
            points=counts.points,
            records=counts.records,
            mechanism=None,
        ),
        privacy=PrivacyStatement(
            epsilon=math.inf,
            delta=0.0,
            claimed_epsilon=None,
            mechanism="no noise",
            released="one exact number",
            trust="everyone who sees the number.",
        ),
    )


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
        trust=BASELINE_TRUST,
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
    changed = max(
        int(np.sort(points.draws[points.batch == t])[-2:].sum()) for t in range(points.batches)
    )
    mechanism = GaussianMechanism(sigma=sigma, sensitivity=math.sqrt(changed))
    noisy = mechanism.add_to(counts.counts[of_term], source)
    statement = PrivacyStatement(
        epsilon=mechanism.epsilon(delta),
        delta=delta,
        claimed_epsilon=epsilon,
        mechanism=f"{mechanism} on each count",
        released=f"{len(noisy)} noisy frequencies",
        trust=BASELINE_TRUST,
        sensitivity=mechanism.sensitivity,
        insecure=source.insecure,
    )
    warn_of_paper_noise(statement, callers=2)
    return noisy, statement, of_term


def printed_aggregator(
    counts: BatchCounts,
    *,
    epsilon: float,
    delta: float = 1e-6,
    score: Score = PLAIN_SCORE,
    released: Released = "terms",
    source: NoiseSource = SECURE_NOISE,
) -> Estimate:
    """D(Pi || P) from exact batch counts with the printed noise, c kappa / (epsilon T) per term.

    `released` says whether the server sees every noisy term, as printed, or only their mean.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from fedprikl.estimation import BatchCounts
    >>> from fedprikl.paper import printed_aggregator
    >>> from fedprikl.reference import iid_points
    >>> rng = np.random.default_rng(0)
    >>> points = iid_points([0.5, 0.3, 0.2], 10, batches=20, rng=rng)
    >>> counts = BatchCounts(points, np.full(len(points), 300), np.full(20, 1000))
    >>> with warnings.catch_warnings(action="ignore"):
    ...     estimate = printed_aggregator(counts, epsilon=1.0)
    >>> estimate.privacy.holds
    False

    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if released not in ("terms", "mean"):
        raise InvalidInputError(f"`released` must be 'terms' or 'mean', got {released!r}.")
    points = counts.points
    if points.pooled or score.correction:
        raise InvalidInputError(
            "The paper's calibration is for its own design: points that are not pooled, a score "
            "without bias correction. Use `fedprikl.estimation.trusted_aggregator`."
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
    warn_of_paper_noise(statement, callers=1)
    return Estimate(
        method="trusted aggregator, paper's calibration",
        value=math.fsum((share * noisy).tolist()),
        target=score.target,
        unit=score.unit,
        payload=points.payload,
        noise_sd=_mean_sd(points, sigmas),
        privacy=statement,
    )


def warn_of_paper_noise(statement: PrivacyStatement, *, callers: int) -> None:
    """Say what the paper's printed noise really buys; blames the caller so many calls above."""
    falsely = statement.epsilon > (statement.claimed_epsilon or 0.0)
    warnings.warn(
        f"The paper's calibration claims epsilon {statement.claimed_epsilon:g}"
        f"{', but' if falsely else '; with these points'} the noise the paper prints gives "
        f"epsilon {statement.epsilon:.3g} (delta {statement.delta:g}) here. "
        "Use the exact calibration for the epsilon you ask for.",
        PaperCalibrationWarning,
        stacklevel=callers + 2,
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
