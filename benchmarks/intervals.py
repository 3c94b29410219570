"""How often printed 95% intervals hold D, and how wide they are beside the ideal ones.

    python benchmarks/intervals.py [--json FILE] [--seed 0] [--worlds check] [--releases 400]

For each case, populations of one kind are drawn anew and released. The truth is the divergence of
the very records. The ideal width is the range from the 2.5% to the 97.5% quantile of the error
(value - truth); the width is the mean one of the printed intervals. Constants of the library were
set on the worlds "tune"; the worlds "check" have other domains, sizes, drifts and seeds.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.estimation import BatchCounts, CountNoise, CountsDesign, NoisyCounts
from fedprikl.estimation.adaptive import adaptive_law
from fedprikl.estimation.interval import (
    Interval,
    adaptive_interval,
    counts_interval,
    value_interval,
)
from fedprikl.estimation.scoring import AskedNumber, Terms, score_sensitivity
from fedprikl.privacy import Counts, IntegerLaplaceMechanism, LaplaceMechanism, Numbers
from fedprikl.reference import all_points

CONFIDENCE, CLIPPED, SHARED = 0.99, 0.6, 1.25  # SHARED: variance of noise in shares, of one's own
PER_POPULATION = 10  # releases of one adaptive population
KINDS = ("none", "smooth", "rare", "heavy", "gone", "growing")
# name: domains, (cells, records), what the fading cells keep, seed
WORLDS: dict[str, tuple[tuple[str, ...], tuple[tuple[int, int], ...], float, int]] = {
    "tune": (
        ("lognormal", "zipf"),
        ((2, 400), (5, 400), (5, 50_000), (12, 5000), (62, 5000), (62, 50_000), (250, 20_000)),
        0.1,
        101,
    ),
    "check": (
        ("two-level", "skewed"),
        ((2, 1000), (4, 600), (9, 2000), (9, 40_000), (40, 12_000), (150, 3000), (150, 50_000)),
        0.25,
        202,
    ),
}
RELEASES = ("value", "adaptive", "counts", "none")  # with a trusted aggregator, and without


@dataclass(frozen=True)
class Case:
    """One kind of population, and how its divergences are released."""

    world: str
    domain: str
    cells: int
    records: int
    epsilon: float
    kind: str
    release: str

    @property
    def pi(self) -> Floats:
        """Of the reference, in no order."""
        rng = np.random.default_rng([WORLDS[self.world][3], self.cells, *self.domain.encode()])
        if self.domain == "two-level":
            mass = np.where(np.arange(self.cells) < max(1, self.cells // 4), 8.0, 1.0)
        elif self.domain == "zipf":
            mass = 1 / np.arange(1.0, self.cells + 1)
        else:
            mass = rng.lognormal(sigma=1.0 if self.domain == "lognormal" else 1.5, size=self.cells)
        return np.asarray(rng.permutation(mass / mass.sum()))

    @property
    def p(self) -> Floats:
        """Of the clients."""
        pi, kept = self.pi, WORLDS[self.world][2]
        order, ratios = np.argsort(pi), np.ones(self.cells)
        if self.kind == "smooth":
            rng = np.random.default_rng(WORLDS[self.world][3])
            ratios = np.exp(0.5 * rng.normal(size=self.cells))
        elif self.kind == "rare":
            ratios[order[: self.cells // 2]] = kept
        elif self.kind == "heavy":
            ratios[order[-1]] = kept
        elif self.kind == "gone":
            ratios[order[: max(1, self.cells // 10)]] = 0.0
        elif self.kind == "growing":
            ratios[order[self.cells // 3]] = 5.0
        mass = pi * ratios
        return np.asarray(mass / mass.sum())


def cases(worlds: tuple[str, ...], releases: tuple[str, ...], thin: int) -> Iterator[Case]:
    """Every `thin`-th case of the grid."""
    number = 0
    for world in worlds:
        domains, sizes, _, _ = WORLDS[world]
        for release in releases:
            for cells, records in sizes:
                for kind in KINDS:
                    for epsilon in (1.0, 0.1):
                        number += 1
                        if number % thin == 0:
                            domain = domains[(number // thin) % 2]
                            yield Case(world, domain, cells, records, epsilon, kind, release)


def released(
    case: Case, name: str, held: Ints, rng: np.random.Generator
) -> tuple[Floats, list[Interval | None]]:
    """Values and intervals of releases of these populations, one for each."""
    points, records = all_points(case.pi), np.array([case.records])
    score = Score(Skew(0.01), divergence_named(name))
    if case.release in ("counts", "none"):
        mechanism = IntegerLaplaceMechanism.calibrated(Counts(), epsilon=case.epsilon, delta=0.0)
        law = CountNoise.of(mechanism)
        if case.release == "none":
            law = CountNoise(sd=law.sd * math.sqrt(SHARED), scale=law.scale)
        design = CountsDesign(points, records, (law,))
        on_counts, on_outside = design.draw_noise(rng, len(held))
        noisy, values = held + on_counts, np.empty(len(held))
        for i in range(len(held)):
            values[i] = design.read(noisy[[i]], on_outside[[i]], scores=[score], rng=rng)[0][0, 0]
        return values, [
            counts_interval(
                points,
                NoisyCounts.of(np.append(row, outside), records, [law]),
                value,
                score=score,
            )
            for row, outside, value in zip(noisy, on_outside, values, strict=True)
        ]
    if name == "kl":
        step = CLIPPED * score_sensitivity(points, records, score)
        score = Score(Skew(0.01), divergence_named(name), maximum_step=step)
    asked = AskedNumber(points, records, score)
    if case.release == "value":
        sensitivity = Numbers(score_sensitivity(points, records, score))
        noise = LaplaceMechanism.calibrated(sensitivity, epsilon=case.epsilon, delta=0.0)
        terms = Terms.of(points, records)
        values = terms.scores(held, score) @ terms.weights + rng.laplace(0, noise.scale, len(held))
        return values, [value_interval(value, noise, asked) for value in values]
    values = np.empty(len(held))
    for i in range(0, len(held), PER_POPULATION):
        current = BatchCounts(points, held[i], records)
        value, private = adaptive_law(current, score, epsilon=case.epsilon)
        values[i : i + PER_POPULATION] = value + private.simulate(rng, PER_POPULATION)
    return values, [adaptive_interval(value, case.epsilon, asked) for value in values]


def measure(
    case: Case, name: str, releases: int, seed: int, narrowed: float = 1.0
) -> dict[str, Any]:
    """Coverage with its lower limit, and width over ideal, of one divergence.

    Intervals that are `narrowed` towards their value show that the measure would notice.
    """
    begun = time.perf_counter()
    rng = np.random.default_rng([seed, *str(case).encode(), *name.encode()])
    held = rng.multinomial(case.records, case.p, releases)
    if case.release == "adaptive":  # several releases of each population: its noise is slow to find
        held = np.repeat(held[::PER_POPULATION], PER_POPULATION, axis=0)[:releases]
    score = Score(Skew(0.01), divergence_named(name))
    truth = score(held, case.pi, np.array(case.records)) @ case.pi
    values, found = released(case, name, held, rng)
    low, high = np.array([each.printed for each in found if each is not None]).T
    shown = np.clip(values, 0.0, score.divergence.largest(0.01, 1 / case.pi.min()))
    low, high = shown + narrowed * (low - shown), shown + narrowed * (high - shown)
    # Rounding: an interval that ends at the largest possible value holds it.
    hits = int(np.sum((low <= truth + 1e-12) & (truth <= high + 1e-12)))
    ideal = float(np.diff(np.quantile(shown - truth, [0.025, 0.975]))[0])
    return asdict(case) | {
        "divergence": name,
        "coverage": hits / releases,
        "lower": float(special.betaincinv(hits, releases - hits + 1, 1 - CONFIDENCE)),
        "above": int(np.sum(truth > high)),
        "below": int(np.sum(truth < low)),
        "ideal": ideal,
        "width": float(np.mean(high - low)),
        "ratio": float(np.mean(high - low)) / max(ideal, 1e-12),
        "outside": int(
            np.sum((shown < low - 1e-12) | (shown > high + 1e-12))
        ),  # values beyond their interval
        "seconds": (time.perf_counter() - begun) / releases,
    }


def main() -> None:
    """Measures what was asked for, and prints and writes it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=["check"])
    parser.add_argument("--release", nargs="+", choices=RELEASES, default=RELEASES)
    parser.add_argument("--ask", nargs="+", default=["kl", "js", "tv"])
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--thin", type=int, default=11, help="1: all cases")
    parser.add_argument("--all", action="store_true", help="show every case")
    args = parser.parse_args()
    rows = []
    for case in cases(tuple(args.worlds), tuple(args.release), args.thin):
        for name in args.ask:
            if case.release == "adaptive" and name != "kl":
                continue
            rows.append(row := measure(case, name, args.releases, args.seed))
            if args.all or row["lower"] < 0.93:
                print(
                    f"{case.domain:9} {case.cells:3} {case.records:6} {case.epsilon:3} "
                    f"{case.kind:7} {case.release:8} {name}: {row['coverage']:.3f} "
                    f"(from {row['lower']:.3f}, {row['below']} below, {row['above']} above) "
                    f"ideal {row['ideal']:.4f} ratio {row['ratio']:.2f} {row['outside']} "
                    f"{1000 * row['seconds']:.0f} ms",
                    flush=True,
                )
    for release in (*args.release, None):
        for name in args.ask:
            some = [
                row
                for row in rows
                if row["divergence"] == name and release in (None, row["release"])
            ]
            if some:
                ratios = [row["ratio"] for row in some]
                print(
                    f"{release or 'all':8} {name}: {len(some)} cases, width over ideal "
                    f"{math.exp(np.mean(np.log(ratios))):.2f} (at most {max(ratios):.1f}), "
                    f"coverage {np.mean([row['coverage'] for row in some]):.4f}, "
                    f"least {min(row['coverage'] for row in some):.3f}"
                )
    if args.json:
        args.json.write_text(json.dumps({"seed": args.seed, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
