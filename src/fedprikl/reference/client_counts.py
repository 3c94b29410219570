"""What the clients of a public reference hold, client by client: who could be in a population.

Populations without drift are drawn from these clients (`estimation/no_drift.py`). No model has all
that real clients do: an aircraft flies for one carrier, so that whole blocks of cells vanish
together from a population that happens to have none of its aircraft.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy

MOST_CLIENTS = 2_000  # that a reference keeps: a random part of more tells nearly the same
MOST_PAIRS = 60_000  # of a client and a cell it has records in: about 300 kB
LONGEST = 3 * 10**7  # characters of a text that is read
HOLDERS = 8.0  # a cell's own correlation counts as much as the usual one with so many holders
LARGEST = 2**53
MANY = 10**8  # records of one client
DENSE = 5  # a dense product takes as long as a sparse one if one in five entries is not 0


@dataclass(frozen=True, slots=True, eq=False)
class ClientCounts:
    """Records per client and cell, of the pairs that occur. Public; ids are not kept.

    >>> held = ClientCounts.read("0*3 2;1;0 1*2")  # of three clients
    >>> held.sizes.tolist(), held.write()
    ([4, 1, 3], '0*3 2;1;0 1*2')
    >>> held.table(np.array([0, 1])).tolist()  # cells 0 and 1, then all others
    [[3.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 2.0, 0.0]]
    """

    client: Ints  # of each pair, from 0, increasing
    cell: Ints  # in the reference, increasing for each client
    records: Ints

    def __len__(self) -> int:
        return int(self.client[-1]) + 1

    @classmethod
    def sample(cls, client: Ints, cell: Ints, records: Floats | Ints, seed: int) -> "ClientCounts":
        """Of as many clients, chosen at random, as a reference keeps; in random order."""
        order = np.random.default_rng(seed).permutation(int(client.max()) + 1)
        rank = np.argsort(order)[client]
        place = np.lexsort((cell, rank))
        rank, held = rank[place], np.asarray(records[place], dtype=np.int64)
        kept = min(MOST_CLIENTS, int(rank[min(MOST_PAIRS, len(rank)) - 1]) + 1)
        return cls(rank[rank < kept], cell[place][rank < kept], held[rank < kept])

    @classmethod
    def read(cls, text: str) -> "ClientCounts":
        """The inverse of `write`."""
        return _read(text)

    def write(self) -> str:
        """A text for a file: clients apart by ';', their cells by ' ', and `*` before a count."""
        words = [
            f"{cell}*{number}" if number > 1 else f"{cell}"
            for cell, number in zip(self.cell.tolist(), self.records.tolist(), strict=True)
        ]
        ends = np.flatnonzero(np.diff(self.client)) + 1
        parts = np.split(np.array(words, dtype=object), ends)
        return ";".join(" ".join(part) for part in parts)

    @property
    def sizes(self) -> Ints:
        """n_c: the records of each client."""
        return np.bincount(self.client, self.records).astype(np.int64)

    def check(self, cells: int, records: float) -> None:
        """Refuses cells that a view of so many does not have, and more records than it has."""
        if int(self.cell.max()) >= cells or float(self.records.sum()) > records + 0.5:
            raise InvalidInputError("What the reference's clients or periods hold is damaged.")

    def columns(self, cells: Ints) -> Ints:
        """Which of some cells each pair is of: a position; that of all others is the last."""
        order = np.argsort(cells)
        place = np.searchsorted(cells, self.cell, sorter=order)
        found = np.append(order, 0)[place]
        known = np.append(cells, -1)[found] == self.cell
        return np.where(known & (place < len(cells)), found, len(cells))

    def table(self, cells: Ints) -> Floats:
        """h_c(x) of some cells, and of all others last: (clients, cells + 1)."""
        width = len(cells) + 1
        place = self.client * width + self.columns(cells)
        held = np.bincount(place, self.records.astype(np.float64), len(self) * width)
        return np.asarray(held.reshape(-1, width))

    def factor(self, cells: Ints) -> Any:
        """The same, to multiply by: sparse, where that takes less time and memory."""
        if DENSE * len(self.cell) >= len(self) * (len(cells) + 1):
            return self.table(cells)
        pairs = self.records.astype(np.float64), (self.client, self.columns(cells))
        return scipy.sparse.csr_matrix(pairs, shape=(len(self), len(cells) + 1))

    def correlations(self, cells: Ints, usual: float | None = None) -> Floats:
        """The intra-client correlation of each of some cells, near the `usual` one of few holders.

        By how much its counts scatter more than records dealt at random: see `Correlation`. The
        usual one is by default that of all these cells together.
        """
        sizes = self.sizes.astype(np.float64)
        total, square = float(sizes.sum()), float(sizes @ sizes)
        column, width = self.columns(cells), len(cells) + 1
        held = self.records.astype(np.float64)
        mass, squares, with_sizes = (
            np.bincount(column, held * each, width)[:-1] for each in (1.0, held, sizes[self.client])
        )
        pi = mass / total
        chance = (total - square / total) * total / max(total - 1, 1.0)
        per_pair = (square / total - 1) * chance  # of the records of one client
        known = (pi > 0) & (pi < 1) & (per_pair > 0)
        scatter = squares - 2 * pi * with_sizes + pi**2 * square
        within = np.where(known, pi * (1 - pi), 1.0)
        seen = np.where(known, (scatter / within - chance) / (per_pair or 1.0), 0.0)
        holders = np.where(known, mass**2 / np.maximum(squares, 1.0), 0.0)
        trust = holders / (holders + HOLDERS)
        if usual is None:
            weight = within * known
            usual = max(float(seen @ weight) / max(float(weight.sum()), 1e-300), 0.0)
        return np.clip(trust * seen + (1 - trust) * usual, 0.0, 1.0)

    def merged(self, group: Ints) -> "ClientCounts":
        """The same clients with some cells as one: `group` is the new number of each cell.

        >>> ClientCounts.read("0*3 2;1;0 1*2").merged(np.array([0, 0, 1])).write()
        '0*3 1;0;0*3'
        """
        groups = int(group.max()) + 1
        pairs, place = np.unique(self.client * groups + group[self.cell], return_inverse=True)
        records = np.bincount(place, self.records).astype(np.int64)
        return ClientCounts(pairs // groups, pairs % groups, records)

    def contributing(self, number: int, rng: np.random.Generator) -> "ClientCounts":
        """The same clients if each contributes so many records, as where clients are protected.

        Drawn from its own, without replacement; what it lacks is drawn from those of all.
        """
        mass = np.bincount(self.cell, self.records)
        sizes, clients, cells, counts = self.sizes, [], [], []
        starts = np.append(0, np.cumsum(np.bincount(self.client)))
        for client, (first, last) in enumerate(pairwise(starts.tolist())):
            cell, held = self.cell[first:last], self.records[first:last]
            if sizes[client] >= MANY:  # drawn again or not is the same, of so many
                held = rng.multinomial(number, held / held.sum())
            elif sizes[client] >= number:
                held = rng.multivariate_hypergeometric(held, number, method="marginals")
            else:
                drawn = rng.choice(len(mass), number - int(sizes[client]), p=mass / mass.sum())
                cell, place = np.unique(np.concatenate([cell, drawn]), return_inverse=True)
                ones = np.append(held, np.ones(len(drawn), dtype=np.int64))
                held = np.bincount(place, ones).astype(np.int64)
            clients.append(np.full(len(cell), client))
            cells.append(cell)
            counts.append(held)
        return ClientCounts(*(np.concatenate(part) for part in (clients, cells, counts)))


@lru_cache(maxsize=64)
def _read(text: str) -> ClientCounts:
    if len(text) > LONGEST:
        raise InvalidInputError(
            "What the reference's clients or periods hold is too long a text. Use fewer cells, or "
            "longer periods (--reference-periods month)."
        )
    words = [word.partition("*") for word in text.replace(";", " ").split(" ")]
    try:
        cell = [int(name) for name, _, _ in words]
        records = [int(count or "1") for _, _, count in words]
    except ValueError:
        raise InvalidInputError("What the reference's clients hold is damaged.") from None
    pairs = [part.count(" ") + 1 for part in text.split(";")]
    if max(max(cell), max(records)) > LARGEST or min(min(cell), min(records) - 1) < 0:
        raise InvalidInputError("What the reference's clients hold is damaged.")
    client = np.repeat(np.arange(len(pairs)), pairs)
    found = ClientCounts(client, np.array(cell), np.array(records))
    same = np.diff(found.client) == 0
    if np.any(np.diff(found.cell)[same] <= 0) or found.write() != text:
        raise InvalidInputError("What the reference's clients hold is damaged.")
    return found
