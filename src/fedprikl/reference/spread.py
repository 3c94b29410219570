"""Spread: how counts of a population without drift vary around a reference. Public."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference.correlation import HOLDERS, Correlation, rare_discount


@dataclass(frozen=True, slots=True, eq=False)
class CellSpread:
    """The covariance of P / Pi of some cells, for one unit of `Spread.between`: see `Factors`."""

    own: Floats  # a(x) / Pi(x), per cell
    common: Floats  # l_j(x) / sqrt(Pi(x)), (factors, cells)

    @property
    def variance(self) -> Floats:
        """Of P(x) / Pi(x), per cell."""
        found: Floats = self.own + np.sum(self.common**2, axis=0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much counts of a population vary around N Pi if it has not drifted.

    Three things make them vary: the population is a sample of records, its clients' records are
    correlated (`correlation`; None: not known, taken as unrelated), and Pi was counted from a
    sample of its own, of `counted` records (0: Pi is exact) held by clients of the same kind.
    Of a counted Pi, rare cells are those that happened to be seen: `discount` is by how much
    (`rare_discount`). `Reference.spread` makes it.
    """

    clients: tuple[int, ...]  # of each batch
    correlation: Correlation | None = None
    counted: int = 0  # N_reference
    discount: float = 0.0

    def __post_init__(self) -> None:
        for clients in self.clients:
            check_positive_int(clients, "clients")
        if not self.clients or self.counted < 0:
            raise InvalidInputError("A spread needs the number of clients of every batch.")

    def covers(self, records: Ints) -> bool:
        """Whether it is known how alike a client's records are, or each holds about one."""
        return self.correlation is not None or one_each(int(records.sum()), sum(self.clients))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of how much clients differ: as many equal clients tell as much.

        Of clients that differ unequally, fewer: 2 over kappa / clients, the squared coefficient of
        variation of what was estimated from them.
        """
        kind = self.correlation
        if kind is None or kind.factors is None:
            return math.inf
        alike = kind.clients / (1 + kind.size_variation) - 1 - len(kind.factors.common)
        return max(min(alike, 2 * kind.clients / max(kind.factors.unlike, 1e-9)), 3.0)

    @property
    def unlike(self) -> float:
        """kappa: how unequally clients differ (`Factors.unlike`)."""
        kind = self.correlation
        return 0.0 if kind is None or kind.factors is None else kind.factors.unlike

    def own_freedom(self, alike: CellSpread, pi: Floats) -> Floats:
        """Degrees of freedom of each cell's own correlation: its holders, and those it borrows."""
        kind = self.correlation
        if kind is None or kind.factors is None or not self.counted:
            return np.full(len(pi), math.inf)
        return np.asarray(1 / self.counting(alike, pi) + HOLDERS)

    def between(self, records: Ints) -> Floats:
        """kappa of each batch: the weight of what clients differ in.

        Cov(h) = N (diag(Pi) - Pi Pi') + N (N - 1) kappa Cov(p_c),
        kappa = (sum_c n_c^2 - N) / (N (N - 1))
        """
        kind = self.correlation
        if kind is None:
            return np.zeros(len(records))
        if len(records) != len(self.clients):
            raise InvalidInputError("The spread needs the number of clients of every batch.")
        return between_clients(
            records.astype(np.float64), np.array(self.clients), kind.size_variation
        )

    @property
    def between_counted(self) -> float:
        """kappa of the reference's own clients."""
        kind = self.correlation
        if kind is None or not self.counted:
            return 0.0
        return float(between_clients(self.counted, kind.clients, kind.size_variation))

    def counting(self, alike: CellSpread, pi: Floats) -> Floats:
        """The variance of P / Pi because Pi was counted: 1 over the cell's holders, about."""
        if not self.counted:
            return np.zeros(len(pi))
        found = self.between_counted * alike.variance
        return np.asarray(found + 1 / (self.counted * pi))

    def of(self, cells: Ints, pi: Floats) -> CellSpread:
        """What clients differ in, in some cells with these probabilities."""
        kind = self.correlation
        if kind is None or kind.factors is None:
            icc = 0.0 if kind is None else kind.icc
            return CellSpread(icc / pi, np.zeros((0, len(pi))))
        own, common = kind.factors.of(cells, pi)
        found = CellSpread(own / pi, common / np.sqrt(pi))
        # A cell with k holders in the reference may well be one that k + 1/2 should hold.
        more = 1 + np.minimum(self.counting(found, pi), 1.0) / 2
        return CellSpread(found.own * more, found.common * np.sqrt(more))


def spread_around(mass: Floats, correlation: Correlation | None, clients: Sequence[int]) -> Spread:
    """Of counts around Pi = mass / sum(mass), where the masses are counts, or probabilities."""
    counted = float(mass.sum())
    if counted <= 1 + 1e-9:  # probabilities
        return Spread(clients=tuple(clients), correlation=correlation)
    lucky = rare_discount(mass.astype(np.int64)) if correlation is None else correlation.discount
    return Spread(
        clients=tuple(clients), correlation=correlation, counted=round(counted), discount=lucky
    )


def one_each(records: int, clients: int) -> bool:
    """Whether clients hold about one record each, so that theirs cannot be correlated."""
    return records <= 1.05 * clients


def between_clients(
    records: Floats | float, clients: Floats | float, size_variation: float
) -> Floats:
    """kappa of `Spread.between`, for clients whose sizes vary so much; arguments may be arrays."""
    alike = records * (1 + size_variation) / clients - 1  # others in the client of a random record
    return np.asarray(np.clip(alike / np.maximum(records - 1, 1), 0.0, 1.0))
