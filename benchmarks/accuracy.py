"""How accurate the planner's private answers are, beside the paper's settings.

    python benchmarks/accuracy.py --data DIR [--json] [--repetitions 5] [--quick] [--read FILE]

DIR holds `femnist_digits.npz` and `nist_digit_owners.npz`. Every population is estimated with the
paper's settings (T = 20 batches, i.i.d. points, its own noise, whose true epsilon is far above the
one in the table), without privacy (the same without noise), and as `fedprikl.plan` plans it, at
payloads of 40, 256 and 1,024 bytes. Errors are absolute, against D_gamma of all records, in nats,
over all pairs and repetitions. Secure sums are simulated in the open: they are exact.

`predicted` is the planner's root mean square error at each pair's divergence, averaged over pairs
in the same way as the measured `rmse`. It never sees the population: only how many clients and
records there are.
"""

import argparse
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Floor, Score, Skew, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import (
    BatchCounts,
    Estimate,
    NoisyRound,
    counts_interval,
    estimate_noisy_counts,
    forecast_noisy,
    trusted_aggregator,
)
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.planning import Design, Spectrum, forecast_design, sampling_errors
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.planner import plan_round
from fedprikl.planning.release_budget import split_budget
from fedprikl.planning.untrusted_plan import noisy_round
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol import trust_of
from fedprikl.reference import Reference, iid_points
from fedprikl.simulation import Population, deal_clients, load_compact, load_stand_in

GAMMA, DELTA, BATCHES, SEED = 0.01, 1e-6, 20, 20261115
EPSILONS, PAYLOADS, COUNT_BYTES = (0.1, 0.5, 1.0), (40, 256, 1024), 4
INTERVALS = {"aggregator": 2, "none": 1}  # repetitions with an interval: it takes far longer
ZIPF_CELLS, ZIPF_RECORDS, ZIPF_CLIENTS = 2**20, 10**6, 10_000


@dataclass(frozen=True, eq=False)
class World:
    """References and populations, and which are compared."""

    name: str
    references: list[Reference]
    populations: list[Population]
    pairs: list[tuple[int, int]]
    drifted: bool = True
    repetitions: int = 1  # times those asked for: few pairs need more

    def truth(self, pair: tuple[int, int]) -> float:
        """D_gamma of everybody's records."""
        pi = self.references[pair[0]].probabilities
        return skewed_divergence(pi, self.populations[pair[1]].distribution, skew=GAMMA)


def digit_world(name: str, digits: Any) -> World:
    """Every digit against every other."""
    references = [Reference.from_counts(digits.counts(a)[:-1]) for a in range(10)]
    populations = [digits.population(b) for b in range(10)]
    pairs = [(a, b) for a in range(10) for b in range(10) if a != b]
    return World(name, references, populations, pairs)


def no_drift_world(digits: Any, rng: np.random.Generator) -> World:
    """As many records as there are of each digit, drawn from that digit's own distribution."""
    references = [Reference.from_counts(digits.counts(a)[:-1]) for a in range(10)]
    populations = []
    for a, reference in enumerate(references):
        records = int(digits.counts(a).sum())
        cells = rng.choice(len(reference.probabilities), records, p=reference.probabilities)
        owners = rng.integers(0, digits.writers, records)
        populations.append(Population(owners, cells, len(reference.probabilities), digits.writers))
    pairs = [(a, a) for a in range(10)]
    return World("stand-in, no drift", references, populations, pairs, False, 10)


def zipf_world(rng: np.random.Generator) -> World:
    """2^20 cells, 10^6 records: no drift, spread drift, vanished cells, and both."""
    pi = 1 / np.arange(1.0, ZIPF_CELLS + 1)
    reference = Reference.from_probabilities(pi / pi.sum())
    gone = (rng.random(ZIPF_CELLS) > 0.1).astype(float)
    tilt = np.exp(0.7 * rng.standard_normal(ZIPF_CELLS))
    populations = []
    for mass in (pi, pi * tilt, pi * gone, pi * tilt * gone):
        draw = np.cumsum(mass)
        cells = np.searchsorted(draw, rng.random(ZIPF_RECORDS) * draw[-1], side="right")
        owners = rng.integers(0, ZIPF_CLIENTS, ZIPF_RECORDS)
        populations.append(Population(owners, cells, ZIPF_CELLS + 1, ZIPF_CLIENTS))
    return World("zipf", [reference], populations, [(0, b) for b in range(4)], True, 4)


class Bench:
    """One world, with what its cases share."""

    def __init__(self, world: World, repetitions: int) -> None:
        self.world, self.repetitions = world, repetitions * world.repetitions
        self.truths = {pair: world.truth(pair) for pair in world.pairs}
        self.spectra = [Spectrum.of(r.probabilities) for r in world.references]
        self._histograms = lru_cache(maxsize=64)(self._sum)

    def _sum(self, b: int, batches: int, repetition: int) -> Any:
        population = self.world.populations[b]
        rng = np.random.default_rng([SEED, b, batches, repetition])
        dealt = deal_clients(population.clients, batches, rng)
        return population.histograms(dealt, batches)

    def histogram(self, b: int) -> Ints:
        """Counts of everybody."""
        counts: Ints = self._histograms(b, 1, 0).counts[0]
        return counts

    def ask(self, points: Any, b: int, repetition: int) -> BatchCounts:
        """Summed counts of one population, its clients dealt anew in each repetition."""
        counts: BatchCounts = self._histograms(b, points.batches, repetition).ask(points)
        return counts

    def cases(self) -> Iterator[dict[str, Any]]:
        """All cases of this world."""
        for payload in PAYLOADS:
            points = payload // COUNT_BYTES
            yield self._case(
                "no-privacy", "aggregator", None, payload, lambda *a, m=points: self._plain(m, *a)
            )
            for epsilon in EPSILONS:
                for trust in ("aggregator", "none"):
                    yield self._case(
                        "paper",
                        trust,
                        epsilon,
                        payload,
                        lambda *a, m=points, e=epsilon, t=trust: self._paper(m, e, t, *a),
                    )
                    yield self._planned(trust, epsilon, payload)

    def _case(
        self, method: str, trust: str, epsilon: float | None, payload: int, estimate: Any
    ) -> dict[str, Any]:
        errors = np.array(
            [
                [
                    estimate(pair, r, np.random.default_rng([SEED, *pair, r])) - self.truths[pair]
                    for r in range(self.repetitions)
                ]
                for pair in self.world.pairs
            ]
        )
        notes(f"{self.world.name}: {method}, {trust}, epsilon {epsilon}, {payload} bytes")
        return {
            "population": self.world.name,
            "method": method,
            "trust": trust,
            "epsilon": epsilon,
            "payload_bytes": payload,
            "mae": float(np.abs(errors).mean()),
            "worst": float(np.abs(errors).max()),
            "bias": float(errors.mean()),
            "rmse": math.sqrt(float((errors**2).mean())),
        }

    def _plain(self, points: int, pair: tuple[int, int], r: int, rng: Any) -> float:
        pi = self.world.references[pair[0]].probabilities
        asked = iid_points(pi, points, batches=BATCHES, rng=rng)
        return no_privacy(self.ask(asked, pair[1], r), score=Score(Skew(GAMMA))).value

    def _paper(
        self, points: int, epsilon: float, trust: str, pair: tuple[int, int], r: int, rng: Any
    ) -> float:
        pi = self.world.references[pair[0]].probabilities
        asked = iid_points(pi, points, batches=BATCHES, rng=rng)
        counts = self.ask(asked, pair[1], r)
        source = InsecureSeededNoise(int(rng.integers(2**31)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PaperCalibrationWarning)
            if trust == "aggregator":
                return printed_aggregator(
                    counts,
                    epsilon=epsilon,
                    delta=DELTA,
                    score=Score(Skew(GAMMA)),
                    source=source,
                ).value
            return baseline(
                counts,
                epsilon=epsilon,
                delta=DELTA,
                score=Score(Floor(1e-4), control=-1.0),
                calibration="paper",
                source=source,
            ).value

    def _planned(self, trust: Any, epsilon: float, payload: int) -> dict[str, Any]:
        world = self.world
        plans = [self._plan(a, trust, epsilon, payload) for a in range(len(world.references))]

        rounds = [] if trust == "aggregator" else [self._round(*each) for each in enumerate(plans)]

        covered = []

        def estimate(pair: tuple[int, int], r: int, rng: np.random.Generator) -> float:
            if trust == "aggregator":
                found = self._trusted(plans[pair[0]], pair, r, rng)
                value, limits = found.value, found.limits
            else:
                value, limits = self._alone(plans[pair[0]], rounds[pair[0]], pair, rng)
            if r < INTERVALS[trust] and (interval := limits()) is not None:
                covered.append(interval.printed[0] <= self.truths[pair] <= interval.printed[1])
            return value

        case = self._case("planner", trust, epsilon, payload, estimate)
        predicted = [
            self._predict(plans[pair[0]], rounds[pair[0]] if rounds else None, pair, epsilon)
            for pair in world.pairs
        ]
        case["predicted"] = math.sqrt(float(np.mean(np.square(predicted))))
        case["coverage"] = float(np.mean(covered)) if covered else None  # of the 95% interval
        case["intervals"] = len(covered)
        case["payload_bytes_used"] = max(plan.cost.masked_bytes for plan in plans)
        return case

    def _plan(self, a: int, trust: Any, epsilon: float, payload: int) -> PlannedRound:
        population = self.world.populations[0]
        return plan_round(
            self.world.references[a],
            clients=population.clients,
            records=self._records(),
            epsilon=epsilon,
            delta=DELTA,
            payload=payload,
            trust=trust,
            skew=GAMMA,
        )

    def _records(self) -> int:
        """What a user knows: about how many records there are."""
        return round(float(np.mean([p.records for p in self.world.populations])))

    def _trusted(
        self, planned: PlannedRound, pair: tuple[int, int], r: int, rng: np.random.Generator
    ) -> Estimate:
        plan = planned.plan
        trust = trust_of(plan)
        points = trust.draw_points(self.world.references[pair[0]].probabilities, rng)
        return trusted_aggregator(
            self.ask(points, pair[1], r),
            epsilon=plan.epsilon,
            delta=plan.delta,
            score=trust.score,
            noise=plan.noise,
            source=InsecureSeededNoise(int(rng.integers(2**31))),
        )

    def _round(self, a: int, planned: PlannedRound) -> NoisyRound:
        """What a round without a trusted party would be, all clients staying."""
        return noisy_round(
            self.world.references[a],
            planned.plan,
            clients=self.world.populations[0].clients,
            records=self._records(),
        )

    def _alone(
        self,
        planned: PlannedRound,
        like: NoisyRound,
        pair: tuple[int, int],
        rng: np.random.Generator,
    ) -> tuple[float, Callable[[], tuple[float, float] | None]]:
        plan, population = planned.plan, self.world.populations[pair[1]]
        pi = self.world.references[pair[0]].probabilities
        trust = trust_of(plan)
        points = trust.draw_points(pi, rng)
        this = NoisyRound(
            points,
            records=population.records,
            noise_sd=float(like.empty.noise_sd[0]),
            laplace_scale=like.empty.laplace_scale,
        )
        counts = self.histogram(pair[1])[points.cells]
        on_counts, on_rest = this.empty.draw_noise(rng)
        noisy = replace(
            this.empty,
            counts=counts + on_counts[0],
            rest=population.records - counts.sum() + on_rest[0],
        )
        value = estimate_noisy_counts(noisy, score=trust.score, rng=rng, resamples=50).value
        return value, partial(counts_interval, noisy, value, score=trust.score)

    def _predict(
        self,
        planned: PlannedRound,
        this: NoisyRound | None,
        pair: tuple[int, int],
        epsilon: float,
    ) -> float:
        plan = planned.plan
        drifts = [self.truths[pair] if self.world.drifted else 0.0]
        spectrum = self.spectra[pair[0]]
        if this is not None:
            sampling = sampling_errors(
                spectrum,
                points=plan.question.points,
                exponent=plan.question.exponent,
                score=trust_of(plan).score,
                drifts=drifts,
            )
            return forecast_noisy(
                this, score=trust_of(plan).score, drifts=drifts, sampling=sampling
            )[0].error
        question = plan.question
        design = Design(
            points=question.points,
            batches=plan.batches,
            exponent=question.exponent,
            maximum_step=math.inf if question.maximum_step is None else question.maximum_step,
        )
        found = forecast_design(
            spectrum,
            design,
            records=self._records(),
            noise_per_sensitivity=split_budget(epsilon=epsilon, delta=DELTA).noise_per_sensitivity,
            score=trust_of(plan).score,
            drifts=drifts,
        )
        return found.error


def notes(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


def worlds(data: Path, *, quick: bool) -> Iterator[World]:
    """All populations; with `quick`, the real digits only."""
    genuine = load_compact(data / "femnist_digits.npz")
    if not quick:
        stand_in = load_stand_in(genuine, data / "nist_digit_owners.npz")
        yield digit_world("stand-in", stand_in)
        yield no_drift_world(stand_in, np.random.default_rng([SEED, 1]))
    yield digit_world("real subset", genuine)
    if not quick:
        yield zipf_world(np.random.default_rng([SEED, 2]))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(), help="folder with the digits")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the real digits only, once each")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--read", type=Path, help="print the tables of an earlier --json instead")
    options = parser.parse_args()
    if options.read:
        cases = json.loads(options.read.read_text(encoding="utf-8"))["cases"]
    else:
        repetitions = 1 if options.quick else options.repetitions
        cases = [
            case
            for world in worlds(options.data, quick=options.quick)
            for case in Bench(world, repetitions).cases()
        ]
        document = {"repetitions": repetitions, "skew": GAMMA, "delta": DELTA, "cases": cases}
        if options.json:
            print(json.dumps(document, indent=1))
            return
    print(table(cases), coverage(cases), sep="\n\n")


def table(cases: list[dict[str, Any]]) -> str:
    """The table of docs/estimators.md: rows of cells for falling epsilon, in Markdown."""
    lines = [
        "| population | bytes | no privacy, T = 20 | paper's noise, ε 1 / 0.5 / 0.1 | "
        "planner, ε 1 / 0.5 / 0.1 | planner, trust none |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for population, payload in dict.fromkeys((c["population"], c["payload_bytes"]) for c in cases):
        here = [c for c in cases if (c["population"], c["payload_bytes"]) == (population, payload)]
        kinds = [("no-privacy", "aggregator"), ("paper", "aggregator")]
        kinds += [("planner", "aggregator"), ("planner", "none")]
        cells = [
            " / ".join(_cell(c) for c in reversed(here) if (c["method"], c["trust"]) == kind)
            for kind in kinds
        ]
        lines.append(f"| {population} | {payload:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(case: dict[str, Any]) -> str:
    digits = 4 if case["mae"] < 0.1 else 3
    words = f"{case['mae']:.{digits}f}"
    if "predicted" in case:
        words += f" ({case['predicted'] / case['rmse']:.2f})"
    return words


def coverage(cases: list[dict[str, Any]]) -> str:
    """How often the 95% intervals of the planner's estimates held the truth."""
    lines = ["| population | trust | least | most | intervals |", "| --- | --- | --- | --- | --- |"]
    planned = [c for c in cases if c.get("coverage") is not None]
    for population, trust in dict.fromkeys((c["population"], c["trust"]) for c in planned):
        here = [c for c in planned if (c["population"], c["trust"]) == (population, trust)]
        shares = [c["coverage"] for c in here]
        lines.append(
            f"| {population} | {trust} | {min(shares):.1%} | {max(shares):.1%} | "
            f"{len(here)} cases of {here[0]['intervals']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
