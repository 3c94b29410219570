"""Views: cells with Pi, and how counts of a population vary around it. Public.

The whole domain of a reference is a view, and so are each column of a table and each pair that was
named. Whatever one distribution can tell is said here, once for all of them.

Another kind of view, such as groups of cells, is a `ViewKind` (`fedprikl/reference/domain.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference.client_counts import ClientCounts
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import Domain, Table, ViewKind
from fedprikl.reference.points import QueryPoints
from fedprikl.reference.seen import Seen, seen_of, true_counts


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One distribution to watch: cells, Pi, and how they vary over clients.

        Pi(x) = (records of the reference in cell x) / (records of the reference)

    Every record is in one of the cells, or out of the domain. The masses are counts of records of
    the reference; of a Pi that is known exactly, they are probabilities.

    >>> from fedprikl.reference import Reference
    >>> view = Reference.from_counts({"red": 3, "blue": 1}).whole
    >>> view.labels, view.probabilities.tolist(), view.counted
    (('value=red', 'value=blue'), [0.75, 0.25, 0.0], 4)
    """

    domain: Domain
    mass: Floats  # per cell, out of the domain last
    correlation: Correlation | None = None  # of one client's records, if the data had client ids
    columns: tuple[str, ...] = ()  # what it is of, and what a plan calls it; (): all of a record
    periods: str = ""  # records per period and cell, as `ClientCounts` writes them; "": not known

    def __post_init__(self) -> None:
        mass = np.asarray(self.mass, dtype=np.float64)
        if mass.shape != (self.domain.size,):
            raise InvalidInputError(
                f"A domain of {self.domain.size} cells needs as many masses, got {mass.shape}."
            )
        if not np.all(np.isfinite(mass)) or np.any(mass < 0):
            raise InvalidInputError("The reference's masses must be finite and not negative.")
        if not 0 < mass.sum() < math.inf:
            raise InvalidInputError(
                "The reference is empty. Give it at least one record from public data."
            )
        object.__setattr__(self, "mass", mass)
        held = "" if self.correlation is None else self.correlation.held
        for text in filter(None, (held, self.periods)):
            ClientCounts.read(text).check(self.domain.size, float(mass.sum()))

    @property
    def name(self) -> str:
        """What people call it; empty: the whole."""
        return " and ".join(self.columns)

    @property
    def size(self) -> int:
        """Number of cells, without that of records out of the domain."""
        return len(self.domain.codes)

    @property
    def labels(self) -> tuple[str, ...]:
        """What people call each cell: levels of a column alone, others like `plan=a, age=20`."""
        encoder, codes = self.domain.encoder, self.domain.codes.tolist()
        if isinstance(encoder, Table) and len(self.columns) == 1:
            return tuple(map(encoder.columns[0].label, codes))
        return tuple(map(encoder.label, codes))

    @property
    def counted(self) -> int:
        """N_reference, the records that Pi was counted from; 0: Pi is exact."""
        total = float(self.mass.sum())
        return 0 if total <= 1 + 1e-9 else round(total)

    @property
    def probabilities(self) -> Floats:
        """Pi(x) per cell, out of the domain last; sums to 1."""
        found: Floats = self.mass / self.mass.sum()
        return found

    def points(self) -> QueryPoints:
        """All cells with Pi(x) > 0, asked of everybody in one batch.

        Of the whole, records of the reference that are out of the domain are one of them.
        """
        pi = self.probabilities
        cells = np.flatnonzero(pi[:-1] if self.columns else pi)
        return QueryPoints.build(pi, cells=cells, batch=np.zeros_like(cells), weights=pi[cells])

    def spread(self, *, clients: Sequence[int], per_client: int | None = None) -> "Spread":
        """How counts of a population vary around N Pi if it has not drifted, cell by cell.

        `clients` are those of each batch, and `per_client` the records that each contributes,
        where that is the same number for all. `Estimate.verdict` takes it. Without client ids in
        the reference, records of one client are taken as unrelated.

        >>> from fedprikl.reference import Reference
        >>> spread = Reference.from_counts([500, 500]).whole.spread(clients=[10])
        >>> spread.clients, spread.counted
        ((10,), 1000)
        """
        kind = self.correlation
        alone = kind is None and self.counted > 0
        return Spread(
            clients=tuple(clients),
            correlation=kind,
            counted=self.counted,
            discount=0.0 if kind is None or not self.counted else kind.discount,
            seen=seen_of(self.mass[:-1].astype(np.int64)) if alone else (),
            per_client=per_client,
            periods=self.periods,
        )

    def design_effect(self, *, clients: int, records: int) -> float:
        """By how much counts of such a population, if it has not drifted, vary around N Pi.

            d = d_population + d_reference N / N_reference

        in multiples of the variance of unrelated records around a Pi known exactly. Both design
        effects are those of `correlation`, 1 where that is not known. The second part is there
        because Pi was counted from a sample of its own; it is 0 for a Pi given as probabilities.

        >>> from fedprikl.reference import Reference
        >>> Reference.from_counts([500, 500]).whole.design_effect(clients=10, records=100)
        1.1
        """
        kind, own = self.correlation, 1.0
        population = 1.0 if kind is None else kind.design_effect(clients=clients, records=records)
        if not self.counted:
            return population
        if kind is not None:
            own = kind.design_effect(clients=kind.clients, records=self.counted)
        return population + own * records / self.counted

    def out_of_domain(
        self, *, clients: int, records: int, design_effect: float | None = None
    ) -> "OutOfDomain":
        """How many records of such a population are out of the domain if it has not drifted.

        A `design_effect` stands for the reference's own correlation, as in a plan.
        """
        kind, counted = self.correlation, self.counted
        known = float(self.probabilities[-1])
        own = effect = design_effect or 1.0
        if kind is not None and design_effect is None:
            own = kind.rare_effect(clients=kind.clients, records=max(counted, 1))
            effect = kind.rare_effect(clients=clients, records=records)
        if not counted:
            return OutOfDomain(shape=1.0, scale=0.0, effect=effect, known=known)
        if kind is not None:
            share, error = kind.missed, kind.missed_error
        else:  # every record a client of its own
            once, twice = (int(np.sum(self.mass[:-1] == held)) for held in (1, 2))
            share, error = once / counted, math.sqrt(once + 2 * twice) / counted
        one = own / counted
        mean, variance = share + one, error**2 + one**2
        shape = max(mean**2 / variance, 1.0)
        scale = math.sqrt(variance / shape)
        return OutOfDomain(shape=shape, scale=scale, effect=effect, known=known)


def check_views(whole: View, views: Sequence[View]) -> None:
    """Refuses views that are not of this table, or that do not hold all of its records."""
    table, total = whole.domain.encoder, whole.mass.sum()
    if not isinstance(table, Table):
        if views:
            raise InvalidInputError("Only a reference of a table has views of columns.")
        return
    if len({frozenset(view.columns) for view in views}) < len(views):
        raise InvalidInputError("A reference has each view of its columns once.")
    for view in views:
        encoder, mass = view.domain.encoder, view.mass
        part = encoder.table if isinstance(encoder, ViewKind) else encoder
        if not (isinstance(part, Table) and set(part.columns) <= set(table.columns)):
            raise InvalidInputError("A view must be of the reference's columns and their levels.")
        if not (view.size and np.all(mass[:-1] > 0) and np.isclose(mass.sum(), total, 1e-9)):
            raise InvalidInputError("Every view must hold all records, some in each of its cells.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much counts of a population vary around N Pi if it has not drifted.

    Three things make them vary: the population is a sample of records, its clients' records are
    correlated (`correlation`; None: not known, taken as unrelated), and Pi was counted from a
    sample of its own, of `counted` records (0: Pi is exact) held by clients of the same kind.
    Of a counted Pi, rare cells are those that happened to be seen. By how much they are overrated,
    `seen` tells (`true_counts`), or with client ids `discount` (`rare_discount`). `View.spread`
    makes it.
    """

    clients: tuple[int, ...]  # of each batch
    correlation: Correlation | None = None
    counted: int = 0  # N_reference
    discount: float = 0.0
    seen: Seen = ()
    per_client: int | None = None  # records that each client contributes; None: all it holds
    periods: str = ""  # what the reference's periods hold: how much they differ is ordinary

    def __post_init__(self) -> None:
        for clients in self.clients:
            check_positive_int(clients, "clients")
        if not self.clients or self.counted < 0:
            raise InvalidInputError("A spread needs the number of clients of every batch.")

    def covers(self, records: Ints) -> bool:
        """Whether the correlation of a client's records is known, or each holds about one."""
        return self.correlation is not None or one_each(int(records.sum()), sum(self.clients))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of how much clients differ: as many equal clients tell as much."""
        kind = self.correlation
        if kind is None or not kind.held:
            return math.inf
        return max(kind.clients / (1 + kind.size_variation) - 1, 3.0)

    def between(self, records: Ints) -> Floats:
        """kappa of each batch: the weight of what clients differ in.

        Cov(h) = N (diag(Pi) - Pi Pi') + N (N - 1) kappa Cov(p_c),
        kappa = (sum_c n_c^2 - N) / (N (N - 1))
        """
        if self.correlation is None:
            return np.zeros(len(records))
        if len(records) != len(self.clients):
            raise InvalidInputError("The spread needs the number of clients of every batch.")
        return between_clients(records.astype(np.float64), np.array(self.clients), self.unequal)

    @property
    def unequal(self) -> float:
        """The squared coefficient of variation of what clients contribute."""
        kind = self.correlation
        return 0.0 if kind is None or self.per_client else kind.size_variation

    @property
    def between_counted(self) -> float:
        """kappa of the reference's own clients."""
        kind = self.correlation
        if kind is None or not self.counted:
            return 0.0
        return float(between_clients(self.counted, kind.clients, kind.size_variation))

    def counting(self, varied: Floats, pi: Floats) -> Floats:
        """The variance of P / Pi because Pi was counted: 1 over the cell's holders, about."""
        if not self.counted:
            return np.zeros_like(pi)
        return np.asarray(self.between_counted * varied + 1 / (self.counted * pi))

    def overrated(self, cells: Ints, pi: Floats) -> Floats:
        """The share of Pi that some cells have only because they happened to be seen."""
        if self.seen:
            counts = self.counted * pi
            return np.asarray(1 - true_counts(self.seen).of(counts)[0] / np.maximum(counts, 1e-9))
        return self.discount * np.minimum(self.counting(self.of(cells, pi), pi), 1.0)

    def of(self, cells: Ints, pi: Floats) -> Floats:
        """The variance of P / Pi of some cells over clients, for one unit of `between`."""
        kind = self.correlation
        if kind is None:
            return np.zeros_like(pi)
        if not kind.held:
            return np.asarray(kind.icc / pi)
        usual = max(kind.icc, kind.rare_icc)
        return np.asarray(ClientCounts.read(kind.held).correlations(cells, usual) / pi)


def one_each(records: int, clients: int) -> bool:
    """Whether clients hold about one record each, so that theirs cannot be correlated."""
    return records <= 1.05 * clients


def between_clients(
    records: Floats | float, clients: Floats | float, size_variation: float
) -> Floats:
    """kappa of `Spread.between`, for clients whose sizes vary so much; arguments may be arrays."""
    others = records * (1 + size_variation) / clients - 1  # in the client of a random record
    return np.asarray(np.clip(others / np.maximum(records - 1, 1), 0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfDomain:
    """How many records of a population without drift lie in none of the reference's cells.

        R ~ Poisson(N G),   G ~ Gamma of mean known + u and variance (known + u) (d - 1) / N
        u ~ Gamma(shape) scale

    u is what the reference has missed. Its law has the mean and the variance of Good's estimate,
    with one more holder: a reference without any cell of one holder may have missed a cell of a
    share u with probability exp(-N_reference u / d). Then R of unrelated records is at least r
    with probability (N / (N + N_reference))^r, as in an exact test of one cell with no record of
    the reference. d is by how much a client's records come together in a rare cell.

    >>> from fedprikl.reference import Reference
    >>> Reference.from_counts([10_000]).whole.out_of_domain(clients=50, records=50)
    OutOfDomain(shape=1.0, scale=0.0001, effect=1.0, known=0.0)
    """

    shape: float
    scale: float  # 0: the reference is exact
    effect: float  # d of the population
    known: float = 0.0  # the reference's own share of records in none of its cells

    def draw(self, records: int, draws: int, rng: np.random.Generator) -> Floats:
        """R of so many populations of N records."""
        mean = self.known + self.scale * rng.gamma(self.shape, size=draws)
        together = (self.effect - 1) / records
        if together > 0:
            mean = together * rng.gamma(mean / together)
        return np.minimum(rng.poisson(records * mean), records).astype(np.float64)
