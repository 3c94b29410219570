"""What each idea of the estimators is worth: one change at a time, on the stand-in's 90 pairs.

    python benchmarks/ablation.py --data DIR [--json] [--seed S] [--repetitions 2]

Mean absolute error against D_gamma in nats, at epsilon 1, 0.5 and 0.1, with the exact sensitivity
of each variant. The Laplace noise is not drawn: its mean effect on an error e is computed,
E|e + L| = |e| + b exp(-|e|/b) for noise of scale b, so that few repetitions suffice.
`docs/estimators.md` discusses the table.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.divergence import Score, Skew, skewed_divergence
from fedprikl.estimation import (
    CountNoise,
    CountsDesign,
    NoisyCounts,
    estimate_noisy_counts,
    score_sensitivity,
    weighted_score,
)
from fedprikl.privacy import SharedCounts, calibrate
from fedprikl.privacy.shares import SharedLaplaceMechanism
from fedprikl.reference import QueryPoints, all_points, distinct_points, iid_points, spread_points

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import load_compact, load_stand_in
from experiments.population import deal_clients

GAMMA, EPSILONS = 0.01, (1.0, 0.5, 0.1)
SEED = [0]  # of all that is random: as `--seed` says
PAIRS = [(a, b) for a in range(10) for b in range(10) if a != b]
Points = Callable[[Any, np.random.Generator], QueryPoints]
CORRECTED = Score(Skew(GAMMA), correction=1.0)


@dataclass(frozen=True)
class Variant:
    """One way to ask and score."""

    name: str
    points: Points
    score: Score = CORRECTED


def spread(m: int, batches: int, exponent: float) -> Points:
    """`spread_points`, never more than there are cells."""
    return lambda pi, rng: spread_points(
        pi, min(m, int((pi > 0).sum())), batches=batches, exponent=exponent, rng=rng
    )


def few_counts(m: int) -> list[Variant]:
    """Where the payload is scarce."""
    best = spread(m, 8, 0.5)

    def dealt(pi: Any, rng: np.random.Generator) -> QueryPoints:
        cells = int((pi > 0).sum())
        return distinct_points(pi, min(m, cells), batches=max(1, min(8, cells // m)), rng=rng)

    plain = Score(Skew(GAMMA))
    return [
        Variant(
            f"{m} counts: i.i.d. points, T = 20, no correction (the paper's)",
            lambda pi, rng: iid_points(pi, m, batches=20, rng=rng),
            plain,
        ),
        Variant(f"{m} counts: distinct points, T = 1", spread(m, 1, 1.0), plain),
        Variant(f"{m} counts: distinct points dealt out, T = 8", dealt),
        Variant(f"{m} counts: pooled, as Pi, T = 8", spread(m, 8, 1.0)),
        Variant(f"{m} counts: pooled, as Pi^0.75, T = 8", spread(m, 8, 0.75)),
        Variant(f"{m} counts: pooled, as Pi^0.5, T = 8", best),
        Variant(f"{m} counts: pooled, as Pi^0.25, T = 8", spread(m, 8, 0.25)),
        Variant(f"{m} counts: pooled, as Pi^0.5, T = 2", spread(m, 2, 0.5)),
        Variant(f"{m} counts: pooled, as Pi^0.5, T = 32", spread(m, 32, 0.5)),
        Variant(f"{m} counts: pooled, T = 8, no correction", best, plain),
        Variant(f"{m} counts: pooled, T = 8, lambda = 0.5", best, _changed(control=0.5)),
        Variant(f"{m} counts: pooled, T = 8, lambda = -0.5", best, _changed(control=-0.5)),
        Variant(
            f"{m} counts: pooled, T = 8, steps up to 0.005", best, _changed(maximum_step=0.005)
        ),
        Variant(
            f"{m} counts: pooled, T = 8, steps up to 0.0025", best, _changed(maximum_step=0.0025)
        ),
    ]


def all_counts() -> list[Variant]:
    """Where every cell is asked."""
    limits = (math.inf, 0.002, 0.0015, 0.0012, 0.001, 0.0008, 0.0005)
    found = [
        Variant(
            "all cells" + ("" if c == math.inf else f", steps up to {c:g}"),
            lambda pi, _: all_points(pi),
            _changed(maximum_step=c),
        )
        for c in limits
    ]
    wider = [
        Variant(
            f"all cells, skew {gamma:g} instead", lambda pi, _: all_points(pi), Score(Skew(gamma))
        )
        for gamma in (0.02, 0.05)
    ]
    return found + wider


def _changed(**changes: Any) -> Score:
    return replace(CORRECTED, **changes)


def measure(variant: Variant, digits: Any, populations: Any, repetitions: int) -> dict[str, Any]:
    """The errors of one variant."""
    errors, sensitivities = [], []
    for repetition in range(repetitions):
        for a, b in PAIRS:
            rng = np.random.default_rng([*SEED, repetition, a, b])
            pi, population = digits.distribution(a), populations[b]
            points = variant.points(pi, rng)
            dealt = deal_clients(population.clients, points.batches, rng)
            counts = population.batch_counts(points, dealt)
            truth = skewed_divergence(pi, population.distribution, skew=GAMMA)
            errors.append(weighted_score(counts, variant.score) - truth)
            sensitivities.append(score_sensitivity(points, counts.records, variant.score))
    error, delta = np.array(errors), np.array(sensitivities)
    return {
        "variant": variant.name,
        "bias": float(error.mean()),
        "spread": float(error.std()),
        "sensitivity": float(delta.mean()),
        "mae": [float(np.mean(_with_laplace(np.abs(error), delta / e))) for e in EPSILONS],
    }


def _with_laplace(error: Any, scale: Any) -> Any:
    return error + scale * np.exp(-error / scale)


def measure_alone(kind: Any, digits: Any, populations: Any, *, debias: bool) -> dict[str, Any]:
    """Without a trusted party, every cell asked: projected noisy counts, debiased or not."""
    clients = digits.writers
    honest = int(0.9 * clients) - math.ceil(0.1 * clients)
    errors: list[list[float]] = []
    for epsilon in EPSILONS:
        share = calibrate(SharedCounts(shares=honest), epsilon=epsilon, delta=1e-6, law=kind)
        scale = share.scale if isinstance(share, SharedLaplaceMechanism) else None
        row = []
        for a, b in PAIRS:
            rng = np.random.default_rng([*SEED, a, b])
            pi, population = digits.distribution(a), populations[b]
            points = all_points(pi)
            held = digits.counts(b)[points.cells]
            noise = CountNoise(sd=math.sqrt(clients * share.share_variance), scale=scale)
            exact, records = np.append(held, population.records - held.sum()), population.records
            noisy = NoisyCounts.of(exact + noise.draw(rng, exact.shape), [records], [noise])
            score = Score(Skew(GAMMA))
            likeliest = CountsDesign.of(points, noisy).projected(noisy)
            value = float(points.weights @ score(likeliest, points.pi, np.array([records])))
            if debias:
                value, _ = estimate_noisy_counts(points, noisy, score=score, rng=rng)
            row.append(value - skewed_divergence(pi, population.distribution, skew=GAMMA))
        errors.append(row)
    words = "projected and debiased" if debias else "projected"
    return {
        "variant": f"trust none: {kind} shares, {words}",
        "bias": float(np.mean(errors[0])),
        "spread": float(np.std(errors[0])),
        "sensitivity": None,
        "mae": [float(np.mean(np.abs(row))) for row in errors],
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the digits")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    SEED[:] = [options.seed]
    genuine = load_compact(options.data / "femnist_digits.npz")
    digits = load_stand_in(genuine, options.data / "nist_digit_owners.npz")
    populations = [digits.population(b) for b in range(10)]
    variants = [*few_counts(10), *few_counts(20), *few_counts(64), *all_counts()]
    rows = [measure(each, digits, populations, options.repetitions) for each in variants]
    rows += [
        measure_alone(kind, digits, populations, debias=debias)
        for kind in ("gaussian", "laplace")
        for debias in (False, True)
    ]
    if options.json:
        print(json.dumps({"seed": options.seed, "epsilons": EPSILONS, "rows": rows}, indent=1))
        return
    print("| variant | bias | spread | sensitivity | ε 1 | ε 0.5 | ε 0.1 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        step = "" if row["sensitivity"] is None else f"{row['sensitivity']:.4f}"
        errors = " | ".join(f"{value:.4f}" for value in row["mae"])
        print(
            f"| {row['variant']} | {row['bias']:+.4f} | {row['spread']:.4f} | {step} | {errors} |"
        )


if __name__ == "__main__":
    main()
