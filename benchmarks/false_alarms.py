"""How often populations without drift are called drifted, and which drift is found.

    python benchmarks/false_alarms.py [--json] [--seed S] [--repetitions 400]

fedprikl's verdict at a false-alarm rate of 1% and epsilon 1 (private) beside evidently's drift
tests at their own defaults (raw data, no privacy; `pip install 'fedprikl[drift]'`). Both know the
same reference, a sample of 100,000 records, drawn anew for every 20 populations. The drift is the
smallest that fedprikl promises to find with 95% power: every cell's probability times an
independent Gamma variable of mean 1.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from fedprikl import Reference
from fedprikl.divergence import Score, skewed_divergence
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    CountsDesign,
    judge_together,
    score_sensitivity,
    trusted_aggregator,
)
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import scored_statistic, variation, variation_statistic
from fedprikl.estimation.verdict import NullValues
from fedprikl.privacy import SECURE_NOISE, Calibrated, Counts, Numbers, calibrate
from fedprikl.reference import Spread, distinct_points

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SEED = [0]  # of all that is random: as `--seed` says
EPSILON, DELTA, FALSE_ALARM, POWER = 1.0, 1e-6, 0.01, 0.95
REFERENCE_RECORDS = 100_000
PER_REFERENCE = 20  # populations
SCORE = Score()


@dataclass(frozen=True)
class Case:
    """A true distribution, how many records clients hold, and how alike a client's records are."""

    name: str
    pi: Floats
    records: int
    asked: int
    clients: int = 0  # 0: every record is a client of its own
    icc: float = 0.0

    def population(self, rng: np.random.Generator, p: Floats) -> Ints:
        """The counts of a population drawn from P."""
        if not self.clients:
            return rng.multinomial(self.records, p)
        return self.related(rng, p, self.clients).sum(axis=0)

    def related(self, rng: np.random.Generator, p: Floats, clients: int) -> Ints:
        """Counts per client, each with a distribution of its own around P."""
        own = rng.dirichlet(p * (1 - self.icc) / self.icc, clients)
        return rng.multinomial(self.records // self.clients, own)


class Known:
    """What both tools know of a case: a public sample, and fedprikl's questionnaire."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        rng = np.random.default_rng([1, seed, *SEED])
        self.reference = self._reference(rng)
        known = self.reference.probabilities
        asked = min(case.asked, int(np.count_nonzero(known)))
        self.points = distinct_points(known, asked, rng=rng)

    @property
    def spread(self) -> Spread:
        """How counts vary without drift, by the reference."""
        return self.reference.whole.spread(clients=[self.case.clients or self.case.records])

    @property
    def design_effect(self) -> float:
        """By the reference's own correlation and size."""
        case = self.case
        return self.reference.whole.design_effect(
            clients=case.clients or case.records, records=case.records
        )

    def _reference(self, rng: np.random.Generator) -> Reference:
        """Counts of a public sample, with client ids where there are any."""
        case = self.case
        if not case.clients:
            return Reference.from_counts(rng.multinomial(REFERENCE_RECORDS, case.pi))
        held = case.related(rng, case.pi, REFERENCE_RECORDS * case.clients // case.records)
        return Reference.from_counts(held)


def zipf(cells: int, power: float = 1.0) -> Floats:
    """Probabilities proportional to 1 / rank^power."""
    mass = np.arange(1.0, cells + 1) ** -power
    return np.asarray(mass / mass.sum())


CASES = (
    Case("62 classes, 500 records", np.full(62, 1 / 62), 500, 62),
    Case("62 classes, 50,000 records", np.full(62, 1 / 62), 50_000, 62),
    Case("421 Zipf cells, 40,000 records", zipf(421), 40_000, 250),
    Case("62 classes, 400 clients of 100 alike records", zipf(62, 0.5), 40_000, 62, 400, 0.05),
)


class Verdicts:
    """fedprikl on one case: the threshold is public, so it is computed once."""

    def __init__(self, known: Known, spread: float | Spread) -> None:
        self.case, self.points = known.case, known.points
        self.records = np.array([known.case.records])
        points = known.points
        sensitivity = score_sensitivity(points, self.records, SCORE)
        self.mechanism = Calibrated(Numbers(), EPSILON, DELTA).for_sensitivity(sensitivity)
        statistic = scored_statistic(
            0.0, score=SCORE, points=points, records=self.records, mechanism=self.mechanism
        )
        model = NoDrift.of(points, self.records, spread)
        verdict = judge_together([statistic], model, false_alarm=FALSE_ALARM)
        self.threshold = verdict.statistics[0].threshold

    def flags(self, populations: list[Ints]) -> int:
        """How many populations are called drifted, each with fresh noise."""
        return sum(self.estimate(held).value > self.threshold for held in populations)

    def estimate(self, held: Ints) -> Any:
        """The private estimate of one population."""
        counts = BatchCounts(self.points, held[self.points.cells], self.records)
        return trusted_aggregator(counts, epsilon=EPSILON, delta=DELTA, score=SCORE)

    def smallest_drift(self, draws: int) -> float | None:
        """The smallest D found with 95% power, from simulated populations with a drift D."""
        grid = np.geomspace(1e-4, 3.5, 40)
        powers = np.maximum.accumulate([self._power(float(drift), draws) for drift in grid])
        if powers[-1] < POWER:
            return None
        return float(np.exp(np.interp(POWER, powers, np.log(grid))))

    def _power(self, drift: float, draws: int) -> float:
        rng, points = np.random.default_rng([3, *SEED]), self.points
        held, _ = drifted(self.case, drift, draws, rng)
        scores = SCORE(np.array(held)[:, points.cells], points.pi, self.records)
        values = NullValues((scores @ points.weights)[:, None], self.mechanism)
        return float(values.above(self.threshold).mean())


class NoisyVerdicts:
    """fedprikl without a trusted party: integer noise on every count, then a public test."""

    def __init__(self, known: Known, spread: float | Spread) -> None:
        case, points = known.case, known.points
        self.points = points
        self.mechanism = calibrate(Counts(), epsilon=EPSILON, delta=DELTA, law="gaussian")
        self.model = NoDrift.of(points, np.array([case.records]), spread)
        self.sd = np.full(len(points), self.mechanism.standard_deviation)
        design = CountsDesign(points, self.model.records, (CountNoise.of(self.mechanism),))
        statistic = variation_statistic(design, case.records * points.pi)
        verdict = judge_together([statistic], self.model, false_alarm=FALSE_ALARM)
        self.threshold = verdict.statistics[0].threshold

    def flags(self, populations: list[Ints]) -> int:
        """How many populations are called drifted, each with fresh noise."""
        noisy = [self.mechanism.add_to(h[self.points.cells], SECURE_NOISE) for h in populations]
        statistic = variation(np.array(noisy), self.model, self.sd)
        return int(np.count_nonzero(statistic > self.threshold))


def drifted(
    case: Case, drift: float, draws: int, rng: np.random.Generator
) -> tuple[list[Ints], list[float]]:
    """Populations whose P is Pi times Gamma variables, of D `drift` on average; and D(Pi || P)."""
    skew = SCORE.smoothing.gamma
    shape = gamma_shape(drift, skew)
    held, divergences = [], []
    for _ in range(draws):
        p = case.pi * rng.gamma(shape, 1 / shape, len(case.pi))
        p = p / p.sum()
        held.append(case.population(rng, p))
        divergences.append(float(skewed_divergence(case.pi, p, skew=skew)))
    return held, divergences


@lru_cache
def gamma_shape(drift: float, skew: float) -> float:
    """The shape of a Gamma variable r of mean 1 with E[-ln(gamma + (1 - gamma) r)] = drift."""
    levels = (np.arange(4000) + 0.5) / 4000

    def excess(log_shape: float) -> float:
        shape = np.exp(log_shape)
        r = special.gammaincinv(shape, levels) / shape
        return float(-np.log(skew + (1 - skew) * r).mean()) - drift

    return float(np.exp(optimize.brentq(excess, np.log(2e-3), np.log(1e6))))


def records_of(held: Ints) -> Ints:
    """The cell of every record, as a tool without privacy sees them."""
    return np.repeat(np.arange(len(held)), held)


def run_case(case: Case, repetitions: int, notes: list[str]) -> list[dict[str, Any]]:
    """One row per method."""
    rng, first = np.random.default_rng([4, *SEED]), Known(case, 0)
    private = Verdicts(first, first.spread)
    drift = private.smallest_drift(max(repetitions, 100))
    flagged: dict[str, list[int]] = {}
    divergences: list[float] = []
    for seed, start in enumerate(range(0, repetitions, PER_REFERENCE)):
        size = min(PER_REFERENCE, repetitions - start)
        calm = [case.population(rng, case.pi) for _ in range(size)]
        moved, truths = ([], []) if drift is None else drifted(case, drift, size, rng)
        divergences += truths
        for name, flags in methods(Known(case, seed), calm[0], notes).items():
            alarms, found = flagged.setdefault(name, [0, 0])
            flagged[name] = [alarms + flags(calm), found + flags(moved)]
    return [
        {
            "case": case.name,
            "method": name,
            "private": name.startswith("fedprikl"),
            "repetitions": repetitions,
            "false_alarms": alarms / repetitions,
            "found": found / repetitions if divergences else None,
            "smallest_drift": drift,
            "mean_drift": float(np.mean(divergences)) if divergences else None,
            "records": case.records,
            "threshold": private.threshold,
            "design_effect": round(first.design_effect, 3),
        }
        for name, (alarms, found) in flagged.items()
    ]


Flags = Callable[[list[Ints]], int]  # how many of the populations are called drifted


def methods(known: Known, example: Ints, notes: list[str]) -> dict[str, Flags]:
    """All verdicts on a case, by name."""
    spread = known.spread
    ours: dict[str, Flags] = {
        "fedprikl, epsilon 1": Verdicts(known, spread).flags,
        "fedprikl, epsilon 1, no trusted party": NoisyVerdicts(known, spread).flags,
    }
    if known.case.clients:
        ours["fedprikl, epsilon 1, client ids ignored"] = Verdicts(known, 1.0).flags
    return ours | evidently(known.reference, example, notes)


def evidently(reference: Reference, example: Ints, notes: list[str]) -> dict[str, Flags]:
    """Evidently's tests, or none with a note if it is not installed."""
    try:
        import evidently_drift
    except ImportError:
        note = "evidently is not installed: python -m pip install 'fedprikl[drift]'"
        if note not in notes:
            notes.append(note)
        return {}
    rng = np.random.default_rng([5, *SEED])
    known = records_of(reference.whole.mass[:-1].astype(np.int64))
    few = rng.choice(known, 1000, replace=False)
    named = {f"evidently {method}": (known, method) for method in evidently_drift.METHODS}
    named["evidently default, 1,000 reference records"] = (few, "default")
    for data, method in named.values():
        if not evidently_drift.agrees(data, records_of(example), method):
            notes.append(f"evidently's report differs from its test {method}")

    def flags(data: Ints, method: str, populations: list[Ints]) -> int:
        return int(evidently_drift.flags(data, list(map(records_of, populations)), method))

    return {name: partial(flags, data, method) for name, (data, method) in named.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then prints a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--repetitions", type=int, default=400)
    options = parser.parse_args(arguments)
    SEED[:] = [options.seed]
    notes: list[str] = []
    rows = [row for case in CASES for row in run_case(case, options.repetitions, notes)]
    if options.json:
        print(json.dumps({"seed": options.seed, "cases": rows, "notes": notes}))
        return
    for row in rows:
        found = "-" if row["found"] is None else f"{row['found']:.1%}"
        print(f"{row['case']:45} {row['method']:44} {row['false_alarms']:7.1%} {found:>7}")
    for note in notes:
        print(f"note: {note}")


if __name__ == "__main__":
    main()
