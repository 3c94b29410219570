"""A small federation for tests: a reference, clients with known counts, keys, a ledger."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import BatchCounts, NoisyCounts
from fedprikl.privacy import Ledger, NoiseSource, SecureNoise
from fedprikl.protocol import (
    Client,
    Invitation,
    Plan,
    Policy,
    Release,
    Roster,
    RoundResult,
    Server,
    SignedPlan,
    SigningKey,
    run_round,
)
from fedprikl.protocol.round import plan_cohort, sum_nonce
from fedprikl.secure_sum import Leaves
from tests.plans import make_plan

AT = "2030-01-31T12:00:00+00:00"
EVERYTHING = Policy(
    largest_epsilon=1e6,
    largest_delta=1.0,
)


class InsecureNoNoise:
    """No noise at all, to see what is under it."""

    insecure: ClassVar[bool] = True

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:  # noqa: ARG002
        return np.asarray(values, dtype=np.float64)

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:  # noqa: ARG002
        return np.asarray(values, dtype=np.float64)

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:  # noqa: ARG002
        return np.asarray(counts, dtype=np.int64)

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:  # noqa: ARG002
        return np.asarray(counts, dtype=np.int64)

    def laplace_share(self, entries: int, **law: float) -> Ints:  # noqa: ARG002
        return np.zeros(entries, dtype=np.int64)

    def below(self, end: int) -> int:  # noqa: ARG002
        return 0


@dataclass
class World:
    """Clients c0, c1, ... holding `held[i]` records per cell, "other" last."""

    held: Ints
    reference: Reference
    key: SigningKey = field(default_factory=SigningKey.generate)
    policy: Policy = EVERYTHING
    client_type: type[Client] = Client
    identities: list[SigningKey] = field(default_factory=list)  # of clients that have one

    @classmethod
    def make(cls, clients: int = 24, cells: int = 12, seed: int = 3) -> "World":
        rng = np.random.default_rng(seed)
        mass = rng.integers(5, 50, cells)
        held = rng.poisson(4.0 * mass / mass.mean(), (clients, cells))
        return cls(np.hstack([held, rng.integers(0, 2, (clients, 1))]), Reference.from_counts(mass))

    def with_identities(self) -> "World":
        self.identities = [SigningKey.generate() for _ in self.held]
        return self

    def roster(self) -> Roster:
        return Roster(frozenset(bytes.fromhex(key.public) for key in self.identities))

    def names(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.held))]

    def plan(self, **changes: Any) -> Plan:
        settings: dict[str, Any] = {"reference": self.reference.fingerprint, "cohort": 8}
        return make_plan(**settings | changes)

    def clients(self, source: NoiseSource | None = None) -> dict[str, Client]:
        return {
            name: self.client_type(
                self.held[i],
                self.reference,
                policy=self.policy,
                randomness=os.urandom,
                source=source or SecureNoise(),
                identity=self.identities[i] if self.identities else None,
                roster=self.roster() if self.identities else None,
            )
            for i, name in enumerate(self.names())
        }

    def run(
        self,
        plan: Plan,
        *,
        leaves: Mapping[str, Leaves] | None = None,
        ledger: Ledger | None = None,
        source: NoiseSource | None = None,
        clients: dict[str, Client] | None = None,
        seed: int = 1,
    ) -> RoundResult:
        server = Server(SignedPlan.sign(plan, self.key), self.reference)
        return run_round(
            server,
            clients or self.clients(source),
            key=self.key,
            ledger=ledger,
            software="fedprikl test",
            at=AT,
            rng=np.random.default_rng(seed),
            leaves=leaves,
            source=source or SecureNoise(),
        )

    def plain_counts(self, result: RoundResult, left_early: set[str]) -> BatchCounts:
        """The sums in the open, over everybody whose input was sent."""
        points = result.round.points
        assert points is not None
        histograms = np.zeros((points.batches, self.held.shape[1]), np.int64)
        for cohort in result.round.cohorts:
            for name in cohort.members:
                if name not in left_early:
                    histograms[cohort.batch] += self.held[int(name[1:])]
        return BatchCounts(points, histograms[points.batch, points.cells], histograms.sum(axis=1))


def consistent(asked: Invitation) -> Invitation:
    """With the secure sum that follows from all it asks, as a server would write it."""
    plan, sums = asked.signed.plan, asked.sums
    nonce = sum_nonce(
        plan,
        asked.round_id,
        cohort=asked.cohort,
        batch=asked.batch,
        cells=asked.cells,
        period=asked.period,
    )
    expected = plan_cohort(plan, clients=sums.clients, nonce=nonce, roster=sums.roster)
    return replace(asked, sums=expected)


def noisy_counts(release: Release) -> NoisyCounts:
    """The noisy counts of a release that has some."""
    assert release.noisy_counts is not None
    return release.noisy_counts


def budgeted(path: Path, *, epsilon: float = 10.0, delta: float = 1e-5) -> Ledger:
    ledger = Ledger.open(path)
    ledger.set_budget("testers", epsilon=epsilon, delta=delta, at=AT)
    return ledger
