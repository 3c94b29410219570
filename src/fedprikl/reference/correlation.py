"""Intra-client correlation of records, from a public reference with client ids.

Records of one client are correlated. Counts then vary more than those of unrelated records, by the
design effect, and a verdict that ignores it raises false alarms.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference.client_counts import ClientCounts

SPLIT_SEED = 0
OCTAVES = 40


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
    rare_icc: float = 0.0  # the icc of a cell, whatever its probability, on average
    discount: float = 0.0  # of cells held by one client: see `Spread`
    held: str = ""  # what clients hold, as `ClientCounts` writes it; "": icc says it all
    missed: float = 0.0  # share of records in cells that one client alone holds: see `OutOfDomain`
    missed_error: float = 0.0  # its standard error

    def __post_init__(self) -> None:
        shares = (self.icc, self.rare_icc, self.discount, self.missed, self.missed_error)
        if not all(0 <= share <= 1 for share in shares) or self.discount == 1:
            raise InvalidInputError("The shares of a correlation lie in 0 .. 1.")
        if not self.size_variation >= 0:
            raise InvalidInputError("The variation of the clients' sizes cannot be negative.")
        check_positive_int(self.clients, "clients")
        if self.held and len(ClientCounts.read(self.held)) > self.clients:
            raise InvalidInputError("A correlation keeps the counts of more clients than it has.")

    def design_effect(self, *, clients: int, records: int) -> float:
        """d = 1 + (n* - 1) icc: by how much the variance of this population's counts grows.

        n* = N/n (1 + cv^2) is the size of the client that holds a random record, with sizes as
        unequal as in the reference.
        """
        mean = check_positive_int(records, "records") / check_positive_int(clients, "clients")
        return 1 + max(mean * (1 + self.size_variation) - 1, 0.0) * self.icc

    def rare_effect(self, *, clients: int, records: int) -> float:
        """The same in a rare cell: with the icc of an average cell, if it is more."""
        rare = max(self.icc, self.rare_icc)
        return replace(self, icc=rare, held="").design_effect(clients=clients, records=records)

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
            rare_icc=round(float(_typical(excess, pairs, cells, held).mean()), 9),
            discount=round(rare_discount(np.bincount(cells)), 9),
            held=ClientCounts.sample(holder, names[cells], held, SPLIT_SEED).write(),
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
