"""How accurate the planner's private answers are, beside the paper's settings.

    python benchmarks/accuracy.py --data DIR [--ask kl] [--json] [--seed S] [--quick]
    python benchmarks/accuracy.py --read FILE

DIR holds `femnist_digits.npz` and `nist_digit_owners.npz`. Every population is estimated with the
paper's settings (T = 20 batches, i.i.d. points, its own noise, whose true epsilon is far above the
one in the table), without privacy (the same without noise), and as `fedprikl.plan` plans it, at
payloads of 40, 256 and 1,024 bytes. There is one plan for a reference and a payload: it serves
populations with and without drift. It asks for KL alone unless `--ask` says more. Errors of KL are
absolute, against D_gamma of all records, in nats, over all pairs and repetitions. Secure sums are
simulated in the open: they are exact.

`predicted` is the planner's mean absolute error, averaged over pairs like the measured `mae`:
without drift, or for mass that is dealt anew ("shuffled") with each pair's divergence. It never
sees the population: only how many clients and records there are.
"""

import argparse
import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from power_default import Default

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Floor, Score, Skew, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import BatchCounts
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.reference import QueryPoints, Reference, iid_points

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import load_compact, load_stand_in
from experiments.population import Population, ask, deal_clients

GAMMA, DELTA, BATCHES = 0.01, 1e-6, 20
SEED = [0]  # of all that is random: as `--seed` says
EPSILONS, PAYLOADS, COUNT_BYTES = (0.1, 0.5, 1.0), (40, 256, 1024), 4
INTERVALS = 1  # repetitions with an interval: it takes far longer
REMEMBERED = 2**30  # bytes of summed counts; 20 batches of the Zipf world's cells are 170 MB
ZIPF_CELLS, ZIPF_RECORDS, ZIPF_CLIENTS = 2**20, 10**6, 10_000
# What must hold on the stand-in: population, trust, bytes, and the largest mae at each epsilon.
BARS: tuple[tuple[str, str, int, dict[float, float]], ...] = (
    ("stand-in", "aggregator", 1024, {1.0: 0.0025, 0.5: 0.0042, 0.1: 0.016}),
    ("stand-in", "aggregator", 256, {1.0: 0.015}),
    ("stand-in", "aggregator", 40, {1.0: 0.035}),
    ("stand-in", "none", 1024, {1.0: 0.025, 0.5: 0.05}),
    ("stand-in, no drift", "aggregator", 1024, {1.0: 0.0008, 0.5: 0.0015, 0.1: 0.006}),
)


@dataclass(frozen=True, eq=False)
class World:
    """References and populations, and which are compared."""

    name: str
    references: list[Reference]
    populations: list[Population]
    pairs: list[tuple[int, int]]
    repetitions: int = 1  # times those asked for: few pairs need more
    laws: list[Floats] | None = None  # what each population was drawn from, where that is known

    def truth(self, pair: tuple[int, int]) -> float:
        """D_gamma of everybody's records."""
        pi = self.references[pair[0]].probabilities
        return skewed_divergence(pi, self.populations[pair[1]].distribution, skew=GAMMA)

    def drift(self, pair: tuple[int, int]) -> tuple[str, float]:
        """The kind and size of drift that a prediction is asked for."""
        size = self.truth(pair)
        if self.laws is not None:
            pi = self.references[pair[0]].probabilities
            size = skewed_divergence(pi, self.laws[pair[1]], skew=GAMMA)
        return ("shuffled", size) if size > 1e-9 else ("none", 0.0)

    @property
    def records(self) -> int:
        """What a user knows: about how many records there are."""
        return round(float(np.mean([p.records for p in self.populations])))


def digit_world(name: str, digits: Any, references: list[Reference]) -> World:
    """Every digit against every other."""
    populations = [digits.population(b) for b in range(10)]
    pairs = [(a, b) for a in range(10) for b in range(10) if a != b]
    return World(name, references, populations, pairs)


def no_drift_world(digits: Any, references: list[Reference], rng: np.random.Generator) -> World:
    """As many records as there are of each digit, drawn from that digit's own distribution."""
    populations = []
    for a, reference in enumerate(references):
        records = int(digits.counts(a).sum())
        cells = rng.choice(len(reference.probabilities), records, p=reference.probabilities)
        owners = rng.integers(0, digits.writers, records)
        populations.append(Population(owners, cells, len(reference.probabilities), digits.writers))
    pairs = [(a, a) for a in range(10)]
    laws = [reference.probabilities for reference in references]
    return World("stand-in, no drift", references, populations, pairs, 10, laws)


def zipf_world(rng: np.random.Generator) -> World:
    """2^20 cells, 10^6 records: no drift, spread drift, vanished cells, and both."""
    pi = 1 / np.arange(1.0, ZIPF_CELLS + 1)
    reference = Reference.from_probabilities(pi / pi.sum())
    gone = (rng.random(ZIPF_CELLS) > 0.1).astype(float)
    tilt = np.exp(0.7 * rng.standard_normal(ZIPF_CELLS))
    populations, laws = [], []
    for mass in (pi, pi * tilt, pi * gone, pi * tilt * gone):
        draw = np.cumsum(mass)
        laws.append(np.append(mass / draw[-1], 0.0))
        cells = np.searchsorted(draw, rng.random(ZIPF_RECORDS) * draw[-1], side="right")
        owners = rng.integers(0, ZIPF_CLIENTS, ZIPF_RECORDS)
        populations.append(Population(owners, cells, ZIPF_CELLS + 1, ZIPF_CLIENTS))
    return World("zipf", [reference], populations, [(0, b) for b in range(4)], 4, laws)


@cache  # the same for the populations with and without drift
def planned_default(
    reference: Reference,
    clients: int,
    records: int,
    epsilon: float,
    trust: Any,
    payload: int,
    ask: tuple[str, ...],
) -> Default:
    """The plan for a reference, and what it releases."""
    return Default(
        reference,
        clients=clients,
        records=records,
        epsilon=epsilon,
        trust=trust,
        payload=payload,
        ask=ask,
    )


class Bench:
    """One world, with what its cases share."""

    def __init__(
        self, world: World, repetitions: int, ask: tuple[str, ...], *, quick: bool
    ) -> None:
        self.world, self.repetitions = world, repetitions * world.repetitions
        self.asked, self.quick = ask, quick
        self.truths = {pair: world.truth(pair) for pair in world.pairs}
        cells = max(population.cells for population in world.populations)
        self._histograms = lru_cache(max(1, REMEMBERED // (8 * BATCHES * cells)))(self._sum)

    def _sum(self, b: int, batches: int, repetition: int) -> Ints:
        population = self.world.populations[b]
        rng = np.random.default_rng([*SEED, b, batches, repetition])
        dealt = deal_clients(population.clients, batches, rng)
        return population.histograms(dealt, batches)

    def ask(self, points: QueryPoints, b: int, repetition: int) -> BatchCounts:
        """Summed counts of one population, its clients dealt anew in each repetition."""
        return ask(self._histograms(b, points.batches, repetition), points)

    def cases(self) -> Iterator[dict[str, Any]]:
        """All cases of this world; with `quick`, plans that a bar is about."""
        if self.quick:
            for trust, payload, limits in dict.fromkeys((t, m, tuple(e)) for _, t, m, e in BARS):
                for epsilon in reversed(limits):
                    yield self._planned(trust, epsilon, payload)
            return
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
                    estimate(pair, r, np.random.default_rng([*SEED, *pair, r])) - self.truths[pair]
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

    def _planned(self, trust: str, epsilon: float, payload: int) -> dict[str, Any]:
        world = self.world
        plans = [
            planned_default(
                reference,
                world.populations[0].clients,
                world.records,
                epsilon,
                trust,
                payload,
                self.asked,
            )
            for reference in world.references
        ]
        covered = []

        def estimate(pair: tuple[int, int], r: int, rng: np.random.Generator) -> float:
            plan = plans[pair[0]]
            points = plan.trust.draw_points(plan.pi, rng)
            batches = self._histograms(pair[1], points.batches, r)
            found = plan.estimate(points, plan.opened(points, batches, rng), rng)
            if r < INTERVALS and not self.quick and (interval := found.interval) is not None:
                covered.append(interval[0] <= self.truths[pair] <= interval[1])
            return found.value

        case = self._case("planner", trust, epsilon, payload, estimate)
        predicted = [plans[pair[0]].predicted(*world.drift(pair)) for pair in world.pairs]
        case["predicted"] = float(np.nanmean(predicted))
        case["coverage"] = float(np.mean(covered)) if covered else None  # of the 95% interval
        case["intervals"] = len(covered)
        case["payload_bytes_used"] = max(each.planned.cost.masked_bytes for each in plans)
        case["releases"] = dict(Counter(each.plan.question.release for each in plans))
        return case


def notes(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


def worlds(data: Path, *, quick: bool) -> Iterator[World]:
    """All populations; with `quick`, the stand-in only."""
    genuine = load_compact(data / "femnist_digits.npz")
    stand_in = load_stand_in(genuine, data / "nist_digit_owners.npz")
    references = [Reference.from_counts(stand_in.counts(a)[:-1]) for a in range(10)]
    yield digit_world("stand-in", stand_in, references)
    yield no_drift_world(stand_in, references, np.random.default_rng([*SEED, 1]))
    if not quick:
        own = [Reference.from_counts(genuine.counts(a)[:-1]) for a in range(10)]
        yield digit_world("real subset", genuine, own)
        yield zipf_world(np.random.default_rng([*SEED, 2]))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(), help="folder with the digits")
    parser.add_argument("--ask", default="kl", help="divergences, KL first: kl,tv,js")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the bars only, no intervals")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--read", type=Path, help="print the tables of an earlier --json instead")
    options = parser.parse_args()
    SEED[:] = [options.seed]
    ask = tuple(options.ask.split(","))
    if ask[0] != "kl":
        parser.error("errors are those of kl: ask for it first")
    if options.read:
        cases = json.loads(options.read.read_text(encoding="utf-8"))["cases"]
    else:
        cases = [
            case
            for world in worlds(options.data, quick=options.quick)
            for case in Bench(world, options.repetitions, ask, quick=options.quick).cases()
        ]
        settings = {
            "seed": options.seed,
            "ask": ask,
            "repetitions": options.repetitions,
            "skew": GAMMA,
            "delta": DELTA,
        }
        if options.json:
            print(json.dumps({**settings, "cases": cases, "bars": bars(cases)}, indent=1))
            return
    print(table(cases), coverage(cases), bars_table(bars(cases)), sep="\n\n")


def table(cases: list[dict[str, Any]]) -> str:
    """A table: rows of cells for falling epsilon, in Markdown."""
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
        words += f" ({case['predicted'] / case['mae']:.2f})"
    return words


def bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bars and what was measured."""
    measured = {
        (c["population"], c["trust"], c["payload_bytes"], c["epsilon"]): c["mae"]
        for c in cases
        if c["method"] == "planner"
    }
    found = []
    for population, trust, payload, limits in BARS:
        for epsilon, limit in limits.items():
            mae = measured.get((population, trust, payload, epsilon))
            if mae is not None:
                where = f"{population}, trust {trust}, {payload:,} bytes, epsilon {epsilon:g}"
                found.append({"bar": where, "mae": mae, "limit": limit, "holds": mae <= limit})
    return found


def bars_table(rows: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = ["| mean absolute error | measured | at most | holds |", "| --- | --- | --- | --- |"]
    for row in rows:
        holds = "yes" if row["holds"] else "no"
        lines.append(f"| {row['bar']} | {row['mae']:.4f} | {row['limit']:g} | {holds} |")
    return "\n".join(lines)


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
