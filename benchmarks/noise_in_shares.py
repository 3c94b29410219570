"""Laplace against Gaussian noise in shares: its spread, the error it leaves, what a share costs.

    python benchmarks/noise_in_shares.py [--json] [--seed S] [--clients 3579] [--pairs 90]

One cohort of made-up handwriting, 250 points, delta 1e-6; 80% of the clients are counted on as
honest and present, and 95% are in the sum. The error is the mean absolute one over pairs of digits,
debiased, in nats, and includes that of the points. Noise is simulated; the shares timed are real.
"""

import argparse
import json
import math
import sys
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.divergence import Score, Skew, skewed_divergence
from fedprikl.estimation import CountNoise, NoisyCounts, estimate_noisy_counts
from fedprikl.privacy import SecureNoise, SharedCounts, SharedMechanism, calibrate
from fedprikl.privacy.shares import SharedLaplaceMechanism
from fedprikl.reference import distinct_points

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import Digits, synthetic_handwriting

SEED = [0]  # of all that is random: as `--seed` says
POINTS, DELTA, SKEW, ENTRIES = 250, 1e-6, 0.01, 500
EPSILONS = (1.0, 0.5, 0.1)


def estimate_error(
    digits: Digits, pair: tuple[int, int], noise: SharedMechanism, rng: np.random.Generator
) -> float:
    """|estimate - truth| for one pair of digits, in nats."""
    pi, held = digits.distribution(pair[0]), digits.counts(pair[1])
    points = distinct_points(pi, min(POINTS, np.count_nonzero(pi)), batches=1, rng=rng)
    asked, included = held[points.cells].astype(np.float64), 0.95 * digits.writers
    law = CountNoise(sd=math.sqrt(included * noise.share_variance), scale=noise.laplace_scale)
    exact = np.append(asked, held.sum() - asked.sum())
    noisy = NoisyCounts.of(exact + law.draw(rng, exact.shape), [held.sum()], [law], points)
    value, _ = estimate_noisy_counts(points, noisy, score=Score(Skew(SKEW)), rng=rng)
    return abs(value - skewed_divergence(pi, held / held.sum(), skew=SKEW))


def compare(digits: Digits, pairs: int, epsilon: float, kind: Any) -> dict[str, Any]:
    """Spread of the noise and error of the estimate."""
    shares = int(0.8 * digits.writers)
    noise = calibrate(SharedCounts(shares=shares), epsilon=epsilon, delta=DELTA, law=kind)
    chosen = list(permutations(range(10), 2))[:pairs]
    errors = [  # both kinds are asked the same points
        estimate_error(digits, pair, noise, np.random.default_rng([*SEED, *pair]))
        for pair in chosen
    ]
    return {
        "epsilon": epsilon,
        "noise": kind,
        "sd": round(noise.standard_deviation, 3),
        "error": round(float(np.mean(errors)), 4),
    }


def share_cost(clients: int) -> dict[str, float]:
    """Of a share of 500 counts at epsilon 1, once its table is made; the median of 200."""
    start = time.perf_counter()
    noise = SharedLaplaceMechanism.calibrated(
        SharedCounts(shares=int(0.8 * clients)), epsilon=1.0, delta=DELTA
    )
    source = SecureNoise()
    noise.draw_share(ENTRIES, source)
    first = time.perf_counter() - start
    took = []
    for _ in range(200):
        start = time.perf_counter()
        noise.draw_share(ENTRIES, source)
        took.append(time.perf_counter() - start)
    return {
        "first_share_ms": round(1e3 * first, 2),
        "share_ms": round(1e3 * float(np.median(took)), 3),
    }


def auto_choices() -> list[dict[str, Any]]:
    """The kind that "auto" takes: does Gaussian noise ever win?"""
    return [
        {"delta": delta}
        | {
            f"epsilon {epsilon:g}": type(
                calibrate(SharedCounts(shares=2), epsilon=epsilon, delta=delta)
            ).__name__[6:-9]
            for epsilon in (0.1, 1.0, 4.0, 10.0)
        }
        for delta in (1e-9, 1e-6, 1e-3, 1e-2, 3e-2)
    ]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--clients", type=int, default=3579)
    parser.add_argument("--pairs", type=int, default=90)
    options = parser.parse_args()
    SEED[:] = [options.seed]
    digits = synthetic_handwriting(writers=options.clients)
    cost = share_cost(options.clients)
    rows = [
        compare(digits, options.pairs, epsilon, kind)
        for epsilon in EPSILONS
        for kind in ("laplace", "gaussian")
    ]
    choices = auto_choices()
    if options.json:
        print(json.dumps({"seed": options.seed, "comparison": rows, "auto": choices, **cost}))
        return
    for row in [*rows, *choices, cost]:
        print("  ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
