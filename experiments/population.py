"""Populations held in one place, for experiments and benchmarks: no party of a round has one."""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_counts, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import BatchCounts
from fedprikl.reference import QueryPoints

GONE = -1  # the batch of a client who left before its counts were sent


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Every record as a pair (client, cell). Only a simulation ever holds such a thing."""

    client: Ints
    cell: Ints
    cells: int  # size of the domain, "other" included
    clients: int

    def __post_init__(self) -> None:
        client, cell = check_counts(self.client, "client"), check_counts(self.cell, "cell")
        if len(client) != len(cell) or not len(cell):
            raise InvalidInputError("Every record needs one client and one cell.")
        if client.max() >= self.clients or cell.max() >= self.cells:
            raise InvalidInputError("A record names a client or a cell that does not exist.")
        object.__setattr__(self, "client", client)
        object.__setattr__(self, "cell", cell)

    @property
    def records(self) -> int:
        """How many records all clients hold together."""
        return len(self.cell)

    @property
    def distribution(self) -> Floats:
        """P(x): the share of all records in each cell."""
        return np.bincount(self.cell, minlength=self.cells) / self.records

    def counts_by_client(self) -> Ints:
        """Records per client and cell: (clients, cells)."""
        keys = self.client * self.cells + self.cell
        counts = np.bincount(keys, minlength=self.clients * self.cells)
        return counts.reshape(self.clients, self.cells)

    def histograms(self, batch_of_client: Ints, batches: int) -> Ints:
        """h_t(x) of every batch and every cell, (T, cells): no party of a real round ever holds it.

        Clients whose batch is `GONE` add nothing. Cost: one pass over the records, whatever is
        asked afterwards (`ask`).
        """
        batch = batch_of_client[self.client]
        stays = batch != GONE
        keys = np.where(stays, batch * self.cells + self.cell, batches * self.cells)
        counts = np.bincount(keys, minlength=batches * self.cells + 1)[:-1]
        return counts.reshape(batches, self.cells).astype(np.int64)

    def batch_counts(self, points: QueryPoints, batch_of_client: Ints) -> BatchCounts:
        """The sums a real round would compute. Cost: one pass over the records."""
        return ask(self.histograms(batch_of_client, points.batches), points)


def ask(histograms: Ints, points: QueryPoints) -> BatchCounts:
    """The sums a real round would compute for these points, from those of every cell."""
    if points.batches != len(histograms):
        raise InvalidInputError(
            f"The points are for {points.batches} batches, the clients are in "
            f"{len(histograms)}. Use one number for both."
        )
    return BatchCounts(points, histograms[points.batch, points.cells], histograms.sum(axis=1))


def deal_clients(clients: int, batches: int, rng: np.random.Generator) -> Ints:
    """The batch of each client: disjoint random batches of equal size, up to one client."""
    check_positive_int(clients, "clients")
    if clients < check_positive_int(batches, "batches"):
        raise InvalidInputError(f"{clients} clients cannot fill {batches} batches. Use fewer.")
    return rng.permutation(np.arange(clients) % batches).astype(np.int64)
