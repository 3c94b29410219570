"""FedPriKL with a trusted aggregator: exact sums are scored, then noise is added   [alg:sys_tagg].

One number is released, with noise for its exact sensitivity.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fedprikl.checks import Floats, Ints, check_delta, check_epsilon
from fedprikl.divergence import Score
from fedprikl.estimation.adaptive import LAWS, adaptive_laws, dead_zone, draw_adaptive, is_whole
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.interval import adaptive_interval, value_interval
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import (
    AskedNumber,
    BatchCounts,
    Terms,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.statistic import Statistic, possible_values, scored_statistic
from fedprikl.privacy import (
    SECURE_NOISE,
    Calibrated,
    InverseSensitivityMechanism,
    LookedMechanism,
    Mechanism,
    NoiseSource,
    Numbers,
    PrivacyStatement,
)
from fedprikl.reference import QueryPoints

TRUST = "the aggregator, with the exact sums of each batch; everybody else sees the release only."
REPETITIONS = 8  # draws of the noise for each simulated population


def trusted_aggregator(
    counts: BatchCounts,
    *,
    epsilon: float,
    delta: float = 1e-6,
    score: Score | None = None,
    noise: str = "auto",
    client_effect: float = 1.0,
    contribution: int = 1,
    source: NoiseSource = SECURE_NOISE,
) -> Estimate:
    """D(Pi || P) from exact batch counts, noised before it leaves the aggregator.

        sum_x w(x) s(h(x)) + noise,    s(h) = -ln(gamma + (1 - gamma) h / (N Pi(x)))

    with weights of the asked points, `alg:sys_tagg` with noise for the exact sensitivity of the
    sum. `score` defaults to a skew of 0.01 whose bias in small batches is corrected.
    `client_effect` (a design effect) widens the interval where batches are sets of clients whose
    records are correlated. `contribution` records of one batch are protected together: 1, or those
    of a client.

    Examples
    --------
    >>> import numpy as np
    >>> from fedprikl.estimation import BatchCounts, trusted_aggregator
    >>> from fedprikl.reference import Reference, spread_points
    >>> reference = Reference.from_counts([30, 20, 10])
    >>> rng = np.random.default_rng(0)
    >>> points = spread_points(reference.probabilities, 3, batches=1, rng=rng)
    >>> counts = BatchCounts(points, np.array([900, 2200, 3100]) * 10, np.array([62000]))
    >>> estimate = trusted_aggregator(counts, epsilon=1.0)
    >>> estimate.drifted, estimate.privacy.holds
    (True, True)

    """
    return estimate_scored_sum(
        counts,
        calibrated=Calibrated(Numbers(), check_epsilon(epsilon), check_delta(delta), noise),
        score=score or Score(correction=1.0),
        client_effect=client_effect,
        contribution=contribution,
        source=source,
    )


def estimate_scored_sum(
    counts: BatchCounts,
    *,
    calibrated: Calibrated,
    score: Score,
    client_effect: float = 1.0,
    contribution: int = 1,
    source: NoiseSource = SECURE_NOISE,
) -> Estimate:
    """The same with the very noise whose charge a ledger has reserved."""
    asked = AskedNumber(counts.points, counts.records, score, client_effect, contribution)
    exact = weighted_score(counts, score)
    value = float(_mechanism(asked, calibrated).add_to([exact], source)[0])
    return scored_estimate(asked, value, calibrated, insecure=source.insecure)


def _mechanism(asked: AskedNumber, calibrated: Calibrated) -> Mechanism:
    sensitivity = score_sensitivity(asked.points, asked.records, asked.score, asked.contribution)
    return calibrated.for_sensitivity(sensitivity)


def scored_estimate(
    asked: AskedNumber, value: float, calibrated: Calibrated, *, insecure: bool
) -> Estimate:
    """The estimate that a noised score is."""
    points, records, score = asked.points, asked.records, asked.score
    mechanism = _mechanism(asked, calibrated)
    return Estimate(
        method="trusted aggregator, exact calibration",
        value=value,
        target=score.target,
        unit=score.unit,
        possible=possible_values(score, points),
        payload=points.payload,
        noise_sd=mechanism.standard_deviation,
        limits=partial(value_interval, value, mechanism, asked),
        statistic=scored_statistic(
            value, score=score, points=points, records=records, mechanism=mechanism
        ),
        privacy=PrivacyStatement(
            epsilon=mechanism.epsilon(calibrated.delta),
            delta=mechanism.proved_delta(calibrated.delta),
            claimed_epsilon=calibrated.epsilon,
            mechanism=str(mechanism),
            released="one number",
            trust=TRUST,
            sensitivity=mechanism.sensitivity,
            insecure=insecure,
        ),
    )


def adaptive_estimate(
    asked: AskedNumber, value: float, epsilon: float, *, insecure: bool
) -> Estimate:
    """The estimate that a value with adaptive noise is; how large that was is private."""
    return Estimate(
        method="trusted aggregator, adaptive noise",
        value=value,
        target=asked.score.target,
        unit=asked.score.unit,
        possible=possible_values(asked.score, asked.points),
        payload=asked.points.payload,
        statistic=adaptive_statistic(asked, value, epsilon),
        limits=partial(adaptive_interval, value, epsilon, asked),
        privacy=PrivacyStatement(
            epsilon=epsilon,
            delta=0.0,
            claimed_epsilon=epsilon,
            mechanism=str(InverseSensitivityMechanism(epsilon=epsilon)),
            released="one number",
            trust=TRUST,
            insecure=insecure,
        ),
    )


def looked_estimate(
    asked: AskedNumber, look: float, value: float, mechanism: LookedMechanism, *, insecure: bool
) -> Estimate:
    """The estimate that a value after a look is: that of the noise which the look has chosen.

    Given the look, the value has exactly that noise, whatever the population: so the interval
    covers as often as without a look, and a guaranteed one is guaranteed. A verdict compares the
    value with a threshold for that noise. Without drift the look tells next to nothing about the
    population, so its rate is kept too.
    """
    rest = mechanism.rest(look)
    if isinstance(rest, InverseSensitivityMechanism):
        found = adaptive_estimate(asked, value, rest.epsilon, insecure=insecure)
    else:
        found = scored_estimate(asked, value, rest, insecure=insecure)
    return replace(
        found,
        method="trusted aggregator, noise chosen by a look",
        mechanism=f"{found.privacy.mechanism}, after a look of {look:.4g}",
        privacy=replace(
            found.privacy,
            epsilon=mechanism.epsilon,
            claimed_epsilon=mechanism.epsilon,
            mechanism=str(mechanism),
            released="one number and a look at it",
        ),
    )


def adaptive_statistic(asked: AskedNumber, value: float, epsilon: float) -> Statistic:
    """The released value as a test statistic. Its noise without drift is simulated."""
    points, records, score = asked.points, asked.records, asked.score
    terms = Terms.of(points, records)

    def before_noise(_model: NoDrift, counts: Ints, _rng: np.random.Generator) -> Floats:
        if not is_whole(points):
            return terms.sums(counts, score)[:, None]
        total, cells = int(records[0]), len(points)
        tau = dead_zone(epsilon, records=total, cells=cells, contribution=asked.contribution)
        gaps = terms.sums(counts, replace(score, control=1.0))
        outside = np.maximum(total - counts.sum(axis=1) - tau, 0.0)
        return np.asarray(gaps + (1 - skew_of(score)) * outside / total)[:, None]

    def noise(counts: Ints) -> Callable[[np.random.Generator, int], Floats]:
        some = _dealt(points, terms, records, counts[:LAWS])
        laws = adaptive_laws(points, records, score, epsilon, asked.contribution, some)
        return lambda rng, draws: draw_adaptive(laws, rng, (draws, REPETITIONS))

    return Statistic(
        name=score.divergence.name,
        unit=score.unit,
        points=points,
        records=records,
        observed=lambda _: value,
        simulated=before_noise,
        noise=noise,
        possible=lambda _: possible_values(score, points),
        score=score,
    )


def _dealt(points: QueryPoints, terms: Terms, records: Ints, counts: Ints) -> Ints:
    """Counts of terms dealt evenly to their points: pooled, they are about the same again.

    A batch may have more of the cells that only it was asked about than others have: then it gets
    less of each, so that its records suffice.
    """
    asked = np.bincount(terms.of_point)
    order = np.argsort(terms.of_point, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(asked) - asked, asked)
    of, number = counts[:, terms.of_point], asked[terms.of_point]
    dealt = of // number + (place < of % number)
    asked_of = (points.batch[:, None] == np.arange(points.batches)).astype(np.float64)
    held = dealt.astype(np.float64) @ asked_of  # exact, and much faster than with whole numbers
    kept = np.minimum(records / np.maximum(held, 1), 1.0)
    return np.asarray(np.floor(dealt * kept[:, points.batch] + 1e-9), dtype=np.int64)
