"""Any divergence from noisy counts (untrusted aggregator): post-processing, so free of cost."""

from dataclasses import dataclass

from fedprikl.divergence import Score
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.noisy_counts import NoisyCounts, estimate_noisy_counts
from fedprikl.estimation.noisy_estimates import values_without_drift
from fedprikl.reference import Spread

__all__ = ["NoisyDivergence", "noisy_divergence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyDivergence:
    """A divergence computed from public noisy counts, beside what no drift would give.

    `value` has the bias that the known noise is seen to cause removed. What is left of it, and the
    bias of a sample, is in `no_drift`: the mean of the same estimate over simulated populations
    of as many records that have not drifted, with the same noise. `no_drift_sd` is their spread.

    >>> found = NoisyDivergence(
    ...     divergence="tv",
    ...     value=0.21,
    ...     noise_sd=0.01,
    ...     no_drift=0.2,
    ...     no_drift_sd=0.01,
    ...     target="TV(Pi, P)",
    ...     unit="",
    ... )
    >>> round(found.excess, 3)
    0.01
    >>> print(found)
    TV(Pi, P) is about 0.2100, of which about 0.2000 is what no drift gives.
    """

    divergence: str  # its name
    value: float
    noise_sd: float  # spread of the noise in the value
    no_drift: float
    no_drift_sd: float
    target: str
    unit: str

    @property
    def excess(self) -> float:
        """The value less what no drift gives. Negative values are no drift."""
        return self.value - self.no_drift

    def __str__(self) -> str:
        value = f"{self.value:.4f} {self.unit}".rstrip()
        return (
            f"{self.target} is about {value}, of which about "
            f"{self.no_drift:.4f} is what no drift gives."
        )


def noisy_divergence(
    noisy: NoisyCounts, *, score: Score, spread: float | Spread = 1.0
) -> NoisyDivergence:
    """The divergence of `score` from noisy counts, and what it would be without drift.

    Both come from a public simulation with a fixed seed: anybody finds the same numbers. Counts
    without drift are multinomial; `spread` says how much more they vary where records of one client
    are alike. The excess is not a verdict: `judge_noisy_release` is. Cost: about a
    second for 500 cells.
    """
    plain = score.plain
    found = estimate_noisy_counts(noisy, score=plain, rng=public_simulation())
    model = NoDrift.of(noisy.points, noisy.records, spread)
    null = values_without_drift(noisy, plain, model)
    return NoisyDivergence(
        divergence=score.divergence.name,
        value=found.value,
        noise_sd=found.noise_sd,
        no_drift=float(null.mean()),
        no_drift_sd=float(null.std()),
        target=score.target,
        unit=score.unit,
    )
