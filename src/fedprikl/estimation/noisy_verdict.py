"""The verdict with an untrusted aggregator: from noisy counts, which are public.

The estimate itself is a poor witness here: the score of a noisy count is mostly bias. Drift
makes counts vary more than their sampling and the noise explain, and that can be tested.
"""

from collections.abc import Callable

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.verdict import Verdict, alarm_threshold, simulated_draws
from fedprikl.reference import Spread

__all__ = [
    "NoiseSampler",
    "gaussian_sampler",
    "judge_noisy_counts",
    "judge_noisy_release",
    "overdispersion",
]

# Noise on each term's count, of so many populations: (draws, terms).
NoiseSampler = Callable[[np.random.Generator, int], Floats]


def gaussian_sampler(noise_sd: Floats) -> NoiseSampler:
    """Normal noise of the given sd per term; so close to summed integer shares as makes no odds."""

    def sample(rng: np.random.Generator, draws: int) -> Floats:
        return rng.standard_normal((draws, len(noise_sd))) * noise_sd

    return sample


def overdispersion(
    noisy: Floats,
    pi: Floats,
    records: Ints,
    noise_sd: Floats,
    *,
    design_effect: float | Floats = 1.0,
) -> Floats:
    """U, the score statistic for counts that vary more than they should; near 0 without drift.

        U = sum_x (N Pi)^2 / var^2 [ (h - N Pi)^2 - var ],   var = noise^2 + d N Pi (1 - Pi)

    The slope at 0 of the log-likelihood in the variance of r = P / Pi, for normal counts with
    Var(h) = var + (N Pi)^2 Var(r): the most powerful test against a small drift spread over all
    cells. Cells in which clients differ most have the largest d, and count least. `noisy` may have
    leading axes; all else is per term.
    """
    mean = records * pi
    variance = noise_sd**2 + design_effect * mean * (1 - pi)
    if np.any(variance <= 0):
        raise InvalidInputError("A count without noise or spread tells nothing; leave it out.")
    terms = (mean / variance) ** 2 * ((noisy - mean) ** 2 - variance)
    return np.asarray(terms.sum(axis=-1), dtype=np.float64)


def judge_noisy_counts(
    noisy: Floats,
    model: NoDrift,
    noise_sd: Floats,
    *,
    false_alarm: float = 0.01,
    sampler: NoiseSampler | None = None,
) -> Verdict:
    """The verdict on public noisy counts, one per term of the model.

    The law of U without drift is simulated: multinomial counts, and noise from `sampler` (default:
    normal). Cost: below a second for 500 terms.
    """
    sd = np.asarray(noise_sd, dtype=np.float64)
    if not len(noisy) == len(sd) == len(model.pi):
        raise InvalidInputError("Noisy counts, their noise and the terms must be equally many.")
    draw_noise = sampler or gaussian_sampler(sd)
    effect, records = model.design_effects, model.records_per_term

    def statistic(counts: Floats) -> Floats:
        return overdispersion(counts, model.pi, records, sd, design_effect=effect)

    rng = public_simulation()
    null = [
        statistic(counts + draw_noise(rng, len(counts)))
        for counts in model.chunks(simulated_draws(false_alarm), rng)
    ]
    return Verdict(
        statistic=float(statistic(np.asarray(noisy, dtype=np.float64))),
        threshold=alarm_threshold(np.concatenate(null), None, false_alarm=false_alarm),
        false_alarm=false_alarm,
        design_effect=model.design_effect,
        unit="",
    )


def judge_noisy_release(noisy: NoisyCounts, false_alarm: float, spread: float | Spread) -> Verdict:
    """The verdict on the noisy counts of a round, with noise drawn from their own law."""
    points = noisy.points
    model = NoDrift.of(points, noisy.records, spread)

    def sampler(rng: np.random.Generator, draws: int) -> Floats:
        return noisy.draw_noise(rng, draws)[0]

    return judge_noisy_counts(
        noisy.counts,
        model,
        noisy.noise_sd[points.batch],
        false_alarm=false_alarm,
        sampler=sampler,
    )
