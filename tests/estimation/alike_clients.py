"""Synthetic clients whose records are alike: counts per client, (clients, cells)."""

import numpy as np

from fedprikl.checks import Floats, Ints

__all__ = ["carriers", "dirichlet", "some_unusual"]

SHARE = np.array([0.25, 0.2, 0.15, 0.12, 0.1, 0.07, 0.06, 0.05])  # of the carriers
OF_A_CARRIER = np.random.default_rng(0).dirichlet(np.full(6, 2.0), len(SHARE))  # places, by carrier


def dirichlet(
    rng: np.random.Generator, *, clients: int, records: int, icc: float, cells: int = 30
) -> Ints:
    """Each client has a Dirichlet distribution of its own."""
    pi: Floats = 1 / np.arange(1.0, cells + 1)
    own = rng.dirichlet(pi / pi.sum() * (1 - icc) / icc, clients)
    return rng.multinomial(records, own)


def some_unusual(rng: np.random.Generator, *, clients: int, records: int, cells: int = 60) -> Ints:
    """Every tenth client has a distribution far from the others', in many cells at once."""
    pi: Floats = np.full(cells, 1 / cells)
    far = rng.random(clients) < 0.1
    own = rng.dirichlet(pi * 9999, clients)
    own[far] = rng.dirichlet(pi * 120, int(far.sum()))
    return rng.multinomial(records, own)


def carriers(rng: np.random.Generator, *, clients: int, records: int) -> Ints:
    """Cells are a carrier and a place; all records of a client have the same carrier."""
    carrier = rng.choice(len(SHARE), clients, p=SHARE)
    held = np.zeros((clients, *OF_A_CARRIER.shape), dtype=np.int64)
    held[np.arange(clients), carrier] = rng.multinomial(records, OF_A_CARRIER[carrier])
    return held.reshape(clients, -1)
