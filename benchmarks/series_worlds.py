"""Years of weekly counts that `series.py` measures on. All of it is simulated in the open.

A world has a reference and draws years: 52 weeks of about 7,749 records in 250 cells, released as
the plan of a series does it: noisy counts of every cell at epsilon 1, from which all questions are
answered. Secure sums are left out: they change no number.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from power_worlds import CLASSES, PER_CLIENT, Flights, domain, generator

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts
from fedprikl.protocol import AskedView, Budget, Plan, Question
from fedprikl.protocol.answering import expected_noise
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.sums import (
    NoisyHistogram,
    ScoredSum,
)

WEEKS, RECORDS, CELLS, CLIENTS = 52, 7_749, 250, 78
MANY = 50_000  # records of a large week
PUBLIC = 1_000  # clients of a reference with ids
EPSILON, DEVIATION = 1.0, 2e-5  # nats, that the reference does not know of
DOMAINS = ("lognormal", "flights", "digits")


def noise_of(trust: str) -> CountNoise:
    """As a plan says: all of epsilon for the counts of every cell."""
    plan = Plan(
        population="weeks",
        reference=64 * "0",
        trust=trust,  # type: ignore[arg-type]
        budget=Budget(epsilon=EPSILON),
        views=(AskedView(points=CELLS),),
        questions=tuple(
            Question(divergence=name, share=share, release="counts")
            for name, share in (("kl", 0.5), ("tv", 0.25), ("js", 0.25))
        ),
    )
    if trust == "none":
        return expected_noise(NoisyHistogram(plan), cohort_sizes(plan, CLIENTS))
    return CountNoise.of(ScoredSum(plan).noises[0].law.noise)  # type: ignore[union-attr]


@dataclass(eq=False)
class KnownWorld:
    """Pi is known but for a lasting deviation of 2e-5 nats, in a direction drawn every year."""

    name: str
    seed: int
    trust: str = "aggregator"
    varying: bool = False  # weeks of half to twice as many records
    one_cell: bool = False  # has all of the deviation, in weeks of 50,000 records
    pi: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.pi = domain(self.name, CELLS, self.seed)
        self.view = MonitoredView.of(Reference.from_probabilities(self.pi))
        self.noise = noise_of(self.trust)

    def held(self, rng: np.random.Generator, drift: Floats | None, start: int = 0) -> Ints:
        """Exact counts of a year, the rest last; P is `drift` from week `start` on."""
        sizes = np.full(WEEKS, MANY if self.one_cell else RECORDS)
        if self.varying:
            sizes = np.round(RECORDS * 2 ** rng.uniform(-1, 1, WEEKS)).astype(np.int64)
        ratio = rng.standard_normal(len(self.pi))
        if self.one_cell:
            ratio = np.arange(len(self.pi)) == rng.integers(len(self.pi))
            ratio = ratio / self.pi - 1  # it gains what all others lose
        ratio = 1 + ratio * math.sqrt(2 * DEVIATION / (ratio**2 @ self.pi))
        moved = [self.pi if drift is None or week < start else drift for week in range(WEEKS)]
        shares = np.array([np.append(p * ratio, 0.0) / (p @ ratio) for p in moved])
        return rng.multinomial(sizes, shares)


@dataclass(eq=False)
class ClientsWorld:
    """Clients of latent classes, on both sides; the reference knows its clients' ids."""

    seed: int
    same: bool  # whether the same clients are counted every week
    uneven: bool = False  # lognormal(1) sizes, of each client the same every week
    trust: str = "aggregator"

    def __post_init__(self) -> None:
        rng = generator(self.seed, "clients", self.same)
        self.joint = Flights.draw(rng).joint
        self.kept = np.sort(np.argsort(self.joint.mean(axis=0))[1 - CELLS :])
        held = self._sizes(PUBLIC, PER_CLIENT, rng)
        public = self._cells(Flights(self.joint).clients(PUBLIC, held, rng))
        self.view = MonitoredView.of(Reference.from_counts(public))
        self.seen = np.flatnonzero(public.sum(axis=0))
        self.noise = noise_of(self.trust)

    def held(self, rng: np.random.Generator, drift: None = None, start: int = 0) -> Ints:  # noqa: ARG002
        """Exact counts of a year. Classes are drawn for records, then cells given the class."""
        shares = np.broadcast_to(self._classes(rng), (WEEKS, CLIENTS, CLASSES))
        if not self.same:
            shares = np.array([self._classes(rng) for _ in range(WEEKS)])
        sizes = self._sizes(CLIENTS, RECORDS // CLIENTS, rng)
        classes = rng.multinomial(sizes, shares).sum(axis=1)
        cells = self._cells(rng.multinomial(classes, self.joint).sum(axis=1))
        known = cells[:, self.seen]
        return np.column_stack([known, cells.sum(axis=1) - known.sum(axis=1)])

    def _sizes(self, clients: int, mean: int, rng: np.random.Generator) -> Ints:
        """Records of each client."""
        if not self.uneven:
            return np.full(clients, mean)
        return np.maximum(np.round(mean * rng.lognormal(-0.5, 1.0, clients)), 1).astype(np.int64)

    def _classes(self, rng: np.random.Generator) -> Floats:
        return rng.dirichlet(np.full(CLASSES, 0.3), CLIENTS)

    def _cells(self, joint: Ints) -> Ints:
        """The heaviest cells, and all others as one."""
        kept = joint[..., self.kept]
        others = joint.sum(axis=-1) - kept.sum(axis=-1)
        return np.concatenate([kept, others[..., None]], axis=-1)


def released(
    world: "KnownWorld | ClientsWorld", held: Ints, rng: np.random.Generator
) -> list[PeriodCounts]:
    """The noisy counts of a year's releases."""
    noise = world.noise
    return [
        PeriodCounts(
            number=week,
            records=int(held[week].sum()),
            clients=CLIENTS,
            views=(NoisyCounts.of(row, [held[week].sum()], [noise]),),
        )
        for week, row in enumerate(held + noise.draw(rng, held.shape))
    ]
