"""Intra-client correlation of records, from a public reference with client ids.

Records of one client are correlated. Counts then vary more than those of unrelated records, by the
design effect, and a verdict that ignores it raises false alarms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy

MOST_CELLS = 512  # with numbers of their own; all rarer ones share theirs
MOST_FACTORS = 32
MOST_CLIENTS = 20_000  # a random part of more clients tells the same
DIGITS = 6  # after the point, of every stored number
FLIPS = 3  # data sets without common factors, to see what chance gives
CHANCE = 1.2  # a factor has so many times what chance gives, at least
PASSES = 4
FOLDS = 4
HOLDERS = 8.0  # a cell's own correlation counts as much as its neighbours' with so many holders
SEED = 1
SPLIT_SEED = 0
OCTAVES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The covariance of clients' own distributions, in units of Pi. Public.

        Cov(p_c(x), p_c(y)) = sqrt(Pi(x) Pi(y)) ( sum_j l_j(x) l_j(y) + [x = y] a(x) )

    before p_c is made to sum to 1; p_c is the distribution of client c. Without factors, and with
    one a(x) for all cells, this is the covariance of Dirichlet clients with an intra-client
    correlation of a. The last number of every row stands for all cells that are not named: a(x)
    is shared by them, and so is l_j(x) / sqrt(Pi(x)).
    """

    cells: tuple[int, ...]  # the heaviest ones, in increasing order
    own: tuple[float, ...]  # a(x) of each, and of all others
    common: tuple[tuple[float, ...], ...]  # l_j(x) of each; of all others divided by sqrt(Pi)
    inequality: float = 0.0  # kappa: how unequally clients differ, see `_inequality`

    def __post_init__(self) -> None:
        if any(b <= a for a, b in zip(self.cells, self.cells[1:], strict=False)):
            raise InvalidInputError("The cells of the clients' factors must increase.")
        if any(len(row) != len(self.cells) + 1 for row in (self.own, *self.common)):
            raise InvalidInputError("The clients' factors need a number per cell, and one more.")
        if not all(0 <= value <= 1 for value in self.own):
            raise InvalidInputError("A cell's own correlation lies in 0 .. 1.")
        if not (np.all(np.isfinite(self.common)) and 0 <= self.inequality < np.inf):
            raise InvalidInputError("The clients' factors must be finite, and kappa at least 0.")

    def of(self, cells: Ints, pi: Floats) -> tuple[Floats, Floats]:
        """a(x), and l_j(x) as (factors, cells), of some cells with these probabilities."""
        known = np.array(self.cells, dtype=np.int64)
        place = np.searchsorted(known, cells)
        found = np.append(known, -1)[place] == cells
        place = np.where(found, place, len(known))
        common = np.reshape(np.array(self.common, dtype=np.float64), (-1, len(known) + 1))
        scale = np.where(found, 1.0, np.sqrt(pi))
        return np.array(self.own)[place], common[:, place] * scale


@dataclass(frozen=True, slots=True, eq=False)
class _Scatter:
    """Counts per client of the heaviest cells and of the rest, around what chance deals."""

    held: Floats  # h_c(x), (clients, cells + 1)
    sizes: Floats  # n_c

    @property
    def pi(self) -> Floats:
        found: Floats = self.held.sum(axis=0) / self.sizes.sum()
        return found

    @property
    def mean_holder(self) -> float:
        """n*: the size of the client that holds a random record."""
        return float(self.sizes @ self.sizes / self.sizes.sum())

    @property
    def chance(self) -> float:
        """How large a standardised square is if records are dealt at random, summed over clients.

        sum_c (h_c - n_c Pi)^2 / (Pi (1 - Pi)) has this mean, exactly.
        """
        total = float(self.sizes.sum())
        return (total - self.mean_holder) * total / max(total - 1, 1.0)

    def standardised(self) -> Floats:
        """(h_c(x) - n_c Pi(x)) / sqrt(Pi(x)), (clients, cells + 1)."""
        pi = self.pi
        root = np.sqrt(np.where(pi > 0, pi, 1.0))
        found: Floats = (self.held - self.sizes[:, None] * pi) / root
        return found


def fit_factors(holder: Ints, cell: Ints, held: Floats, typical: Floats, names: Ints) -> Factors:
    """From the (client, cell) pairs that occur, numbered from 0, and their records.

    `names` are the cells of these numbers in the reference, in increasing order. `typical` is the
    intra-client correlation that cells of the same probability have on average.

    A cell's total variance between clients is what its counts scatter more than records dealt at
    random do; with few holders it is drawn towards `typical`. Factors are directions in which many
    clients deviate: eigenvectors of the clients' directions whose eigenvalue exceeds what the same
    deviations with random signs reach (signs keep how much every client and cell vary, and break
    what is common to cells). What the factors do not explain of a cell is its own.
    """
    mass: Floats = np.bincount(cell, weights=held).astype(np.float64)
    heavy = np.sort(np.lexsort((np.arange(len(mass)), -mass))[:MOST_CELLS])
    others = np.setdiff1d(np.arange(len(mass)), heavy)
    rest = float(typical[others if len(others) else heavy].mean())
    usual = np.append(typical[heavy], rest)
    scatter = _scatter(holder, cell, held, heavy, len(mass))
    per_pair = (scatter.mean_holder - 1) * scatter.chance  # of the records of one client
    if per_pair <= 0:
        return Factors(cells=tuple(names[heavy].tolist()), own=_rounded(usual), common=())
    values, pi = scatter.standardised(), scatter.pi
    common = _common(values, scatter, per_pair)
    if len(others):  # l / sqrt(Pi) is shared by them
        common[:, -1] /= np.sqrt(pi[-1])
    explained = np.sum(common**2, axis=0)
    explained[-1] *= mass[others].mean() / mass.sum() if len(others) else 0.0
    total = _total(values, scatter, per_pair, usual)
    own = np.clip(total - explained / np.maximum(1 - pi, 1e-9), 0.0, 1.0)
    return Factors(
        cells=tuple(names[heavy].tolist()),
        own=_rounded(own),
        # A factor that rounds to nothing is one of rounding errors: another processor has others.
        common=tuple(row for row in map(_rounded, common) if any(row)),
        inequality=_rounded([_inequality(values, scatter)])[0],
    )


def _total(values: Floats, scatter: _Scatter, per_pair: float, usual: Floats) -> Floats:
    """The intra-client correlation of each cell; of the rest, which is many cells, the usual."""
    pi, squares = scatter.pi, np.sum(scatter.held**2, axis=0)
    known = (squares > 0) & (pi < 1)
    known[-1] = False
    within = np.where(known, 1 - pi, 1.0)
    seen = (np.sum(values**2, axis=0) / within - scatter.chance) / per_pair
    holders = np.where(known, np.sum(scatter.held, axis=0) ** 2 / np.maximum(squares, 1.0), 0.0)
    trust = holders / (holders + HOLDERS)
    found: Floats = trust * seen + (1 - trust) * usual
    return found


def _inequality(values: Floats, scatter: _Scatter) -> float:
    """kappa: how unequally clients differ, as a squared coefficient of variation.

        kappa = sum_(x != y) Cov_c(q(x), q(y)) / E_c[ sum_x q(x) - chance ]^2
        q_c(x) = w(x) (h_c(x) - n_c Pi(x))^2

    Some clients deviate in many cells at once. A population that happens to have many of them
    varies more in all cells together, by a factor whose variance is kappa over its clients: the
    fourth cumulants of the clients' deviations. w is a cell's weight in the verdict's statistic,
    with a noise of as many records as a cell needs to be trusted.
    """
    total, clients = float(scatter.sizes.sum()), len(values)
    pi, squares = scatter.pi[:-1], values[:, :-1] ** 2  # (h - n Pi)^2 / Pi
    weight = (pi / (pi * squares.sum(axis=0) / total + HOLDERS / total)) ** 2
    q = weight * squares
    beyond = (float(q.sum()) - float(weight @ (1 - pi)) * scatter.chance) / clients
    together = float(q.sum(axis=1).var() - q.var(axis=0).sum())
    if beyond <= 0 or together <= 0:
        return 0.0
    return min(together / beyond**2, float(clients))


def _common(values: Floats, scatter: _Scatter, per_pair: float) -> Floats:
    """l_j(x), (factors, cells + 1); none if nothing is common to cells.

    An eigenvector fits the very clients it comes from, so its strength is measured on others: a
    quarter of the clients at a time, along the eigenvectors of the rest.
    """
    length = np.sqrt(np.sum(values**2, axis=1, keepdims=True))
    patterns = values / np.where(length > 0, length, 1.0)  # of length 1: what many share
    factors = _number(patterns)
    root = np.sqrt(scatter.pi)
    fold = np.random.default_rng(SEED).permutation(np.arange(len(values)) % FOLDS)
    strength = np.zeros(factors)
    for i in range(FOLDS) if factors else ():
        basis = _eigenvectors(patterns[fold != i], factors)
        strength += np.sum((values[fold == i] @ basis.T) ** 2, axis=0)
        strength -= scatter.chance / FOLDS * (1 - (basis @ root) ** 2)
    equal = scatter.sizes.sum() ** 2 / (scatter.sizes @ scatter.sizes)  # clients of equal size
    strength = np.maximum(strength / per_pair, 0.0) * (1 + 1 / np.sqrt(equal))  # rather more
    loadings: Floats = np.sqrt(strength)[:, None] * _eigenvectors(patterns, factors)
    return np.asarray(loadings[strength > 0])


def _number(values: Floats) -> int:
    """How many factors exceed what chance gives; strong ones are taken out to see weak ones."""
    rng, left, found = np.random.default_rng(SEED), values, 0
    most = min(MOST_FACTORS, values.shape[1] - 1)  # what is left beyond them is rounding
    for _ in range(PASSES):
        square = np.linalg.eigvalsh(left.T @ left)
        new = int(np.count_nonzero(square > CHANCE * _by_chance(left, rng)))
        found = min(found + new, most)
        if not new or found == most:
            break
        basis = _eigenvectors(values, found)
        left = values - (values @ basis.T) @ basis
    return found


def _eigenvectors(values: Floats, number: int) -> Floats:
    """The strongest ones, as rows; their signs are fixed."""
    found = np.linalg.eigh(values.T @ values)[1][:, ::-1].T[:number]
    largest = np.argmax(np.abs(found), axis=1)
    signed: Floats = found * np.sign(found[np.arange(len(found)), largest])[:, None]
    return signed


def _by_chance(values: Floats, rng: np.random.Generator) -> float:
    """The largest eigenvalue if cells had nothing in common."""
    tops = []
    for _ in range(FLIPS):
        flipped = values * (rng.integers(0, 2, values.shape, dtype=np.int8) * 2 - 1)
        small = flipped @ flipped.T if len(flipped) < flipped.shape[1] else flipped.T @ flipped
        last = len(small) - 1
        top = scipy.linalg.eigh(small, eigvals_only=True, subset_by_index=(last, last))
        tops.append(float(top[0]))
    return max(tops)


def _scatter(holder: Ints, cell: Ints, held: Floats, heavy: Ints, cells: int) -> _Scatter:
    clients = int(holder.max()) + 1
    column = np.full(cells, len(heavy))
    column[heavy] = np.arange(len(heavy))
    if clients > MOST_CLIENTS:
        chosen = np.random.default_rng(SEED).permutation(clients)[:MOST_CLIENTS]
        number = np.full(clients, -1)
        number[np.sort(chosen)] = np.arange(MOST_CLIENTS)
        kept = number[holder] >= 0
        holder, cell, held, clients = number[holder[kept]], cell[kept], held[kept], MOST_CLIENTS
    table = np.zeros((clients, len(heavy) + 1))
    np.add.at(table, (holder, column[cell]), held)
    return _Scatter(table, table.sum(axis=1))


def _rounded(values: Floats | Sequence[float]) -> tuple[float, ...]:
    """So coarse that the order of a sum cannot change a fingerprint."""
    return tuple(round(float(value), DIGITS) + 0.0 for value in values)


def missed_share(cell: Ints, held: Floats) -> tuple[float, float]:
    """The share of records that the next client has in cells not seen so far, and its error.

    From the records of every (client, cell) pair that occurs. Without a client, the reference would
    not have seen the cells that this client alone holds (Good, 1953, with clients for records):

        share = S1 / N,   error^2 = (sum_1 h^2 + sum_2 2 h h') / N^2

    S1 and sum_1 go over the cells of one holder; sum_2 over those of two, which hold h and h'.

    >>> missed_share(np.array([0, 0, 0, 1, 1, 2]), np.array([3.0, 1.0, 2.0, 1.0, 1.0, 2.0]))
    (0.2, 0.2449489742783178)
    """
    holders, total = np.bincount(cell), float(held.sum())
    mass, squares = np.bincount(cell, held), np.bincount(cell, held**2)
    once, twice = holders == 1, holders == 2
    variance = float(squares[once].sum() + (mass[twice] ** 2 - squares[twice]).sum())
    return float(mass[once].sum()) / total, math.sqrt(variance) / total


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """The intra-client correlation of a reference, and how unequal its clients' sizes are."""

    icc: float  # 0 if records of one client are unrelated, 1 if they are all equal
    size_variation: float  # squared coefficient of variation of the records per client
    clients: int  # it was estimated from
    discount: float = 0.0  # of cells held by one client: see `Spread`
    factors: Factors | None = None  # how clients differ, cell by cell; None: icc says it all
    missed: float = 0.0  # share of records in cells that one client alone holds: see `OutOfDomain`
    missed_error: float = 0.0  # its standard error

    def __post_init__(self) -> None:
        shares = (self.icc, self.discount, self.missed, self.missed_error)
        if not all(0 <= share <= 1 for share in shares) or self.discount == 1:
            raise InvalidInputError("The shares of a correlation lie in 0 .. 1.")
        if not self.size_variation >= 0:
            raise InvalidInputError("The variation of the clients' sizes cannot be negative.")
        check_positive_int(self.clients, "clients")

    def design_effect(self, *, clients: int, records: int) -> float:
        """d = 1 + (n* - 1) icc: by how much the variance of this population's counts grows.

        n* = N/n (1 + cv^2) is the size of the client that holds a random record, with sizes as
        unequal as in the reference.
        """
        mean = check_positive_int(records, "records") / check_positive_int(clients, "clients")
        return 1 + max(mean * (1 + self.size_variation) - 1, 0.0) * self.icc

    def rare_effect(self, *, clients: int, records: int) -> float:
        """The same in a rare cell: the icc of cells without numbers of their own, if it is more."""
        rare = self.icc if self.factors is None else max(self.icc, self.factors.own[-1])
        return replace(self, icc=rare).design_effect(clients=clients, records=records)

    @classmethod
    def estimate(cls, client: npt.ArrayLike, cell: Ints, rows: Ints | None = None) -> "Correlation":
        """From every record's client id (text or number) and cell; `rows` counts equal records.

        With h_c(x) of n_c records of client c in cell x, and sums over one half of the clients,

            1 + (n* - 1) icc = sum_x w(x) S(x) / sum_x w(x) E(x),   n* = sum_c n_c^2 / N
            S(x) = sum_c (h_c(x) - n_c Pi(x))^2
            E(x) = Pi(x) (1 - Pi(x)) (N - n*) N / (N - 1)

        E is the exact mean of S if records are dealt to the clients at random, and w(x) is
        1 / Pi(x), the weight of (h - N Pi)^2 in the divergence, estimated from the *other* half:
        from the same half, rare cells would be weighted by their own scatter and hide half of it.
        Both halves take both parts; the split is random with a fixed seed.

        Cost: a sort of the (client, cell) pairs that occur.
        """
        return cls.of_pairs(*_pairs(client, cell, rows))

    @classmethod
    def of_pairs(cls, holder: Ints, cells: Ints, held: Floats, names: Ints) -> "Correlation":
        """Like `estimate`, from the distinct (client, cell) pairs and the records of each.

        Clients are numbered from 0 in the order of their texts, so that the same data in another
        format gives the same split; cells from 0, and `names` are those of the reference.
        """
        clients = int(holder.max(initial=-1)) + 1
        if clients < 4:
            raise InvalidInputError(
                f"The reference names {clients} clients; estimating the correlation of one "
                "client's records takes at least 4. Leave the client column out."
            )
        sizes = np.bincount(holder, weights=held)
        half = np.random.default_rng(SPLIT_SEED).permutation(np.arange(clients) % 2)
        one, two = (
            _Half.of(holder[mine], cells[mine], held[mine], int(cells.max()) + 1)
            for mine in (half[holder] == 0, half[holder] == 1)
        )
        if one.mean_holder == two.mean_holder == 1:
            raise InvalidInputError(
                "Every client of the reference holds one record, so nothing shows their "
                "correlation. Leave the client column out."
            )
        excess, pairs = _excess(one, two)
        whole = float(excess.sum()), float(pairs.sum())
        share, error = missed_share(cells, held)
        return cls(  # rounded, so that the order of a sum cannot change a fingerprint
            icc=round(_share(*whole), 9),
            size_variation=round(float(sizes.var() / sizes.mean() ** 2), 9),
            clients=clients,
            discount=round(rare_discount(np.bincount(cells)), 9),
            factors=fit_factors(holder, cells, held, _typical(excess, pairs, cells, held), names),
            missed=round(share, 9),
            missed_error=round(error, 9),
        )


def rare_discount(holders: Ints) -> float:
    """delta: by how many holders a cell is overrated because it happened to be seen.

    Of the cells that could be seen, a reference shows those that were lucky. A cell with k holders
    has (k - delta) / k of its Pi on average, delta = 1 - 2 n2 / n1, with n1 cells held once and n2
    held twice (Good, 1953); both plus 1, so that few cells do not decide.

    >>> rare_discount(np.array([9, 7, 5])), rare_discount(np.array([1, 1, 1, 2, 1, 1, 1, 1]))
    (0.0, 0.5)
    """
    once, twice = np.count_nonzero(holders == 1), np.count_nonzero(holders == 2)
    return max(0.0, float(1 - 2 * (twice + 1) / (once + 1)))


@dataclass(frozen=True, slots=True, eq=False)
class _Half:
    """The sums of one half of the clients, per cell."""

    mass: Floats
    scatter: Floats  # S
    expected: Floats  # E
    weights: Floats  # w for the other half
    mean_holder: float  # n*

    @classmethod
    def of(cls, holder: Ints, cell: Ints, held: Floats, cells: int) -> "_Half":
        sizes = np.bincount(holder, weights=held)
        total = math.fsum(sizes.tolist())
        mean_holder = float(sizes @ sizes) / total
        mass: Floats = np.bincount(cell, weights=held, minlength=cells).astype(np.float64)
        pi = mass / total
        # sum_c (h - n_c Pi)^2, where clients that do not hold x add n_c^2 Pi^2
        squares = np.bincount(cell, weights=held**2, minlength=cells)
        products = np.bincount(cell, weights=held * sizes[holder], minlength=cells)
        return cls(
            mass=mass,
            scatter=squares - 2 * pi * products + pi**2 * float(sizes @ sizes),
            expected=pi * (1 - pi) * (total - mean_holder) * total / max(total - 1, 1),
            weights=total / (mass + 1),
            mean_holder=mean_holder,
        )


def _excess(one: _Half, two: _Half) -> tuple[Floats, Floats]:
    """Numerator and denominator of the icc, summed over cells of about the same probability.

    Cells are told by the half that gives the weights, in octaves of their records there.
    """
    excess, pairs = np.zeros(OCTAVES), np.zeros(OCTAVES)
    for this, other in ((one, two), (two, one)):
        octave = _octave(other.mass)
        expected = np.bincount(octave, other.weights * this.expected, OCTAVES)
        excess += np.bincount(octave, other.weights * this.scatter, OCTAVES) - expected
        pairs += (this.mean_holder - 1) * expected
    return excess, pairs


def _typical(excess: Floats, pairs: Floats, cells: Ints, held: Floats) -> Floats:
    """The icc of the cells that have about the same probability, per cell."""
    near = [slice(max(i - 1, 0), i + 2) for i in range(OCTAVES)]  # an octave alone may be one cell
    found = [_share(float(excess[i].sum()), float(pairs[i].sum())) for i in near]
    mass: Floats = np.bincount(cells, weights=held).astype(np.float64)
    return np.array(found)[_octave(mass / 2)]


def _octave(mass: Floats) -> Ints:
    return np.minimum(np.log2(mass + 1).astype(np.int64), OCTAVES - 1)


def _share(excess: float, pairs: float) -> float:
    return min(max(excess / pairs, 0.0), 1.0) if pairs > 0 else 0.0


def _pairs(client: npt.ArrayLike, cell: Ints, rows: Ints | None) -> tuple[Ints, Ints, Floats, Ints]:
    """The (client, cell) pairs that occur, as `Correlation.of_pairs` takes them."""
    held = np.ones(len(cell)) if rows is None else np.asarray(rows, dtype=np.float64)
    texts = np.asarray(client, dtype=np.str_)
    if not texts.shape == cell.shape == held.shape:
        raise InvalidInputError("Every record needs one client and one cell.")
    _, holder = np.unique(texts, return_inverse=True)
    names, cells = np.unique(cell, return_inverse=True)
    width = int(cells.max(initial=0)) + 1
    keys, place = np.unique(holder.astype(np.int64) * width + cells, return_inverse=True)
    records: Floats = np.bincount(place, weights=held).astype(np.float64)
    return keys // width, keys % width, records, names
