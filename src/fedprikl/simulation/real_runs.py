"""Real runs on a made-up population: secure sums and whole rounds, with clients who leave."""

import os
from datetime import UTC, datetime

import numpy as np

from fedprikl.checks import Ints
from fedprikl.estimation import BatchCounts
from fedprikl.protocol import (
    Client,
    Plan,
    Policy,
    Release,
    Server,
    SignedPlan,
    SigningKey,
    draw_of,
    run_round,
)
from fedprikl.records import Draw, draw_counts
from fedprikl.reference import Reference, iid_points
from fedprikl.secure_sum import Leaves
from fedprikl.simulation.population import deal_clients
from fedprikl.simulation.synthetic import DriftedPopulation

__all__ = ["COHORT", "DROPOUT", "RealRuns"]

DESIGN = 1  # stream of a seed
COHORT, DROPOUT = 20, 0.05  # clients of a secure sum, about; the share of clients who leave


class RealRuns:
    """Noise and keys are from the operating system; points, batches and leavers from a seed."""

    def __init__(self, world: DriftedPopulation, seed: int) -> None:
        self.world, self._seed = world, seed
        self._sums: dict[tuple[int, int], BatchCounts] = {}

    def counts(self, points: int, batches: int) -> BatchCounts:
        """Secure sums of i.i.d. points, as the paper asks them; computed once for all methods."""
        asked = (points, batches)
        if asked not in self._sums:
            rng, world = self._rng(), self.world
            drawn = iid_points(world.reference.probabilities, points, batches=batches, rng=rng)
            dealt = deal_clients(world.population.clients, batches, rng)
            self._sums[asked] = world.population.secure_batch_counts(
                drawn, dealt, cohort=COHORT, dropout=DROPOUT, rng=rng
            )
        return self._sums[asked]

    def release(self, plan: Plan) -> Release:
        """One round of the real roles, without a ledger; each client draws where the plan says."""
        rng, world, draw = self._rng(), self.world, draw_of(plan)
        policy = Policy(
            largest_epsilon=plan.epsilon, largest_delta=plan.delta, most_points=plan.points
        )
        held = world.population.counts_by_client()
        counted = held if draw is None else _drawn(held, world.reference, draw)
        clients = {
            str(number): Client(counts, world.reference, policy=policy, randomness=os.urandom)
            for number, counts in enumerate(counted)
        }
        leavers = rng.choice(sorted(clients), int(DROPOUT * len(clients)), replace=False)
        return run_round(
            Server(SignedPlan(plan), world.reference),
            clients,
            key=SigningKey.generate(),
            ledger=None,
            software="fedprikl demo",
            at=datetime.now(UTC).isoformat(),
            rng=rng,
            leaves={str(name): Leaves(int(rng.integers(len(Leaves)))) for name in leavers},
        ).release

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(DESIGN,)))


def _drawn(held: Ints, reference: Reference, draw: Draw) -> list[Ints]:
    """What each client draws; without those that stay away."""
    found = (draw_counts(counts, reference, draw) for counts in held)
    return [counts for counts in found if counts.sum()]
