"""The demo's population: many clients, a Zipf-like domain, and a drift that is known exactly."""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.reference import Reference
from fedprikl.simulation.population import Population

__all__ = ["DriftedPopulation", "drifted_population"]

TOPICS = 16


@dataclass(frozen=True, slots=True, eq=False)
class DriftedPopulation:
    """A public reference and the population whose drift from it is to be found."""

    reference: Reference
    population: Population


def drifted_population(
    rng: np.random.Generator,
    *,
    clients: int = 600,
    cells: int = 4096,
    records_per_client: int = 200,
    drift: float = 0.8,
) -> DriftedPopulation:
    """Clients with Zipf-distributed records, tilted away from the reference.

    Pi(x) is proportional to 1/(x + 1). Each of 16 topics (x mod 16) became more or less popular
    by a factor e^(+-drift); half of a client's records come from one favourite topic, so its
    records are alike. P is what the clients then hold.
    """
    pi = _normalised(1 / (np.arange(cells) + 1.0))
    topic = np.arange(cells) % TOPICS
    tilt = drift * np.cos(2 * np.pi * np.arange(TOPICS) / TOPICS)
    p = _normalised(pi * np.exp(tilt[topic]))
    share = np.bincount(topic, weights=p)
    favourite = rng.choice(TOPICS, clients, p=share)
    held = rng.poisson(records_per_client, clients)
    client = np.repeat(np.arange(clients), held)
    cell = _draw(p, len(client), rng)
    own = rng.random(len(client)) < 0.5
    for t in range(TOPICS):
        mine = own & (favourite[client] == t)
        within = np.where(topic == t, p, 0.0)
        cell[mine] = _draw(within, int(np.count_nonzero(mine)), rng)
    return DriftedPopulation(
        Reference.from_probabilities(pi), Population(client, cell, cells + 1, clients)
    )


def _normalised(mass: Floats) -> Floats:
    distribution: Floats = mass / mass.sum()
    return distribution


def _draw(mass: Floats, size: int, rng: np.random.Generator) -> Ints:
    cumulative = np.cumsum(mass)
    drawn: Ints = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
    return drawn
