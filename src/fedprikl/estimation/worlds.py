"""Who happens to be counted, and in the reference: populations of clients without drift. Public.

A reference is a sample, so P may differ from Pi although nothing has drifted; and a population is a
sample of clients, whose records are correlated. Where the reference keeps what its clients hold,
both are seen in them: some clients stand for a population, and are compared with the others, who
stand for the reference. So a cell in which the others hold little may well have much, and blocks of
cells vanish together, as with real clients. Else clients differ as Dirichlet's do.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.scoring import some_rows
from fedprikl.reference import ClientCounts, Spread
from fedprikl.reference.seen import true_counts
from fedprikl.reference.views import between_clients

RARE = 16  # holders: cells with fewer are told apart by how rare they are, not by their names
POOL = 2000  # draws of clients, among which those of many periods are chosen
SEED = 11  # of what each client of the reference would contribute
MEMBERS = 2**17  # clients of all draws at a time: their numbers stay in the processor's cache
KEPT = 2**18  # numbers of drawn deviations that are kept for the next who asks, 2 MB
LARGE = 16  # records of a cell: so many vary as a normal law with a skewness says
TINY = 1e-300
DIRECTIONS = 512  # in which clients differ, at most
OWN = 4  # in every fourth population clients have their own sizes; in others sizes are dealt anew
TAIL = 0.1  # the share of clients whose sizes tell how large others may be
FURTHEST = 30.0  # e-folds of a size: keeps numbers finite


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Some cells of a view, and all others as a last one: what populations are drawn around."""

    names: Ints  # in the reference
    pi: Floats  # of each, and of all others

    @classmethod
    def of(cls, names: Ints, pi: Floats) -> "Cells":
        """Of cells with these probabilities."""
        return cls(names, with_rest(pi))


def with_rest(p: Floats) -> Floats:
    """Probabilities (..., cells), and that of all others last. Rounding alone is no rest."""
    rest = 1 - p.sum(axis=-1, keepdims=True)
    return np.concatenate([p, np.where(rest > 1e-9, rest, 0.0)], axis=-1)


@dataclass(frozen=True, slots=True)
class Variance:
    """How much shares vary, as 1 over clients and 1 over records: V_b between and V_w within."""

    between: float
    within: float


def population_counts(
    spread: Spread,
    cells: Cells,
    records: int,
    clients: int,
    draws: int,
    rng: np.random.Generator,
    drifted: Floats | None = None,
) -> Ints:
    """Counts of populations of so many records and clients: (draws, cells).

    The reference's own sampling is in it. `drifted` are P of the cells and of all others, a row
    for each population; without it nothing has drifted.
    """
    kind, batches = spread.correlation, len(spread.clients)
    p = np.broadcast_to(cells.pi, (draws, len(cells.pi))) if drifted is None else drifted
    if kind is None or not kind.held:
        world = _dirichlet_world(spread, cells, p, rng)
        shares = dirichlet(world, _dirichlet_variance(spread, records, clients), rng)
        return np.asarray(rng.multinomial(records, shares)[:, :-1])
    wanted = _error(spread, batches, Variance(1 / clients, 1 / records))
    found = Clients.of(spread, cells).deviations(wanted, draws, rng)
    mean, left = found.around(p), found.left
    del found  # as large as the counts
    mean *= records
    return _scattered(mean, left, rng)[:, :-1]


def period_shares(
    spread: Spread,
    cells: Cells,
    records: int,
    clients: int,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> Floats:
    """P of the clients of every period of several series: (series, periods, cells + 1).

    The reference's own error is the same in all periods of a series; clients are drawn anew in
    each. Series of one period stand for clients who stay.
    """
    kind = spread.correlation
    series, periods = shape
    if kind is None or not kind.held:
        pi = np.broadcast_to(cells.pi, (series, len(cells.pi)))
        world = _dirichlet_world(spread, cells, pi, rng)[:, None]
        every = np.broadcast_to(world, (*shape, len(cells.pi)))
        return dirichlet(every, _dirichlet_variance(spread, records, clients), rng)
    known, others = Clients.of(spread, cells), Variance(1 / clients, 0.0)
    if periods == 1:
        return known.lasting(_error(spread, 1, others), series, rng)[:, None]
    world = np.broadcast_to(cells.pi, (series, len(cells.pi)))
    if spread.counted:
        world = known.lasting(_error(spread, 1, Variance(0.0, 0.0)), series, rng)
    drawn = known.lasting(others, POOL, rng)
    ratios = drawn / np.maximum(cells.pi, TINY)
    return _normal(world[:, None] * ratios[rng.integers(0, POOL, shape)])


def _error(spread: Spread, batches: int, population: Variance) -> Variance:
    """Of the difference from Pi, with the reference's own; batches are compared with one Pi."""
    kind = spread.correlation
    if kind is None or not spread.counted:
        return population
    own = batches * _uneven(spread) / kind.clients, batches / spread.counted
    return Variance(population.between + own[0], population.within + own[1])


def _uneven(spread: Spread) -> float:
    """u = 1 + cv^2 of the sizes, where k records of each client count and Pi is of all they hold.

    So many times more does Pi vary than the mean of as many equal clients. Where all records count,
    populations are as uneven as the reference, and `Variance` leaves it out.
    """
    kind = spread.correlation
    return 1.0 if kind is None or spread.per_client is None else 1 + kind.size_variation


@dataclass(frozen=True, slots=True, eq=False)
class Deviations:
    """By how much P of populations without drift differs from Pi: the same around any P."""

    times: Floats  # P / Pi, (draws, cells + 1)
    rare: Ints  # cells of few holders
    gained: Floats  # what each of them gains at least, (draws, rare)
    unseen: Floats  # what is in cells that nobody else holds, (draws,)
    left: float  # variance within clients that is left to add

    def around(self, p: Floats) -> Floats:
        """P of populations, (draws, cells + 1), around one P or one for each."""
        found = p * self.times
        if len(self.rare):  # what few clients hold comes in clumps, however rare the cell is
            p = np.broadcast_to(p, found.shape)
            for rows in some_rows(len(found)):
                gained = self.gained[rows]
                more = np.where(gained > 0, p[rows, self.rare] + gained, 0.0)
                found[rows, self.rare] = np.maximum(found[rows, self.rare], more)
        found[:, -1] += self.unseen
        return _scale(found)


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """The clients that a reference keeps: some as a population, compared with all the others."""

    pi: Floats  # of the cells, and of all others last
    raw: Any  # records that each holds, (clients, cells + 1), dense or sparse
    table: Any  # those that it would contribute
    sizes: Floats  # records of each
    alike: Floats  # the intra-client correlation of each cell
    rare: Ints  # cells of few holders, the heaviest first
    freedom: float  # of how much clients differ
    uneven: float  # u, by which Pi varies more than populations do
    usual: float | None  # correlation with which sizes are dealt anew; None: all sizes are equal

    @classmethod
    def of(cls, spread: Spread, cells: Cells) -> "Clients":
        """Cost: the pairs of client and cell that occur."""
        return _clients(spread, cells.names.tobytes(), cells.pi.tobytes())

    def deviations(self, wanted: Variance, draws: int, rng: np.random.Generator) -> Deviations:
        """Of so many populations. All who ask with the same seed share them."""
        seed = int(rng.integers(2**62))
        if draws * len(self.pi) > KEPT:
            return self._drawn(wanted, draws, seed)
        return _shared(self, wanted, draws, seed)

    def lasting(self, wanted: Variance, draws: int, rng: np.random.Generator) -> Floats:
        """P of populations, (draws, cells + 1), without the sampling that is not wanted.

        Clients differ along few directions, and sampling equally along all: in coordinates
        (P - Pi) / sqrt(Pi) by a variance w. So principal directions of variance l are drawn in by
        sqrt((l - w) / l). Cell by cell, as for one release, would draw in what is real as well.
        """
        found = self.deviations(Variance(wanted.between, 1.0), draws, rng)
        unwanted = 1.0 - found.left - wanted.within
        root = np.where(self.pi > 0, np.sqrt(self.pi), 1.0)
        off = (found.around(self.pi) - self.pi) / root
        if len(root) <= DIRECTIONS:
            variances, directions = np.linalg.eigh(off.T @ off / draws)
        else:
            directions = np.linalg.svd(off[:DIRECTIONS], full_matrices=False)[2].T
            variances = np.mean((off @ directions) ** 2, axis=0)
        kept = np.sqrt(np.clip(1 - unwanted / np.maximum(variances, TINY), 0.0, 1.0))
        off = (off @ directions * kept) @ directions.T
        return _normal(np.maximum(self.pi + root * off, 0.0))

    def _drawn(self, wanted: Variance, draws: int, seed: int) -> Deviations:
        """As many populations, whose shares are

            P(x) = Pi(x) r(x)^e,    r = (share of some clients) / (share of all others)

        and in rare cells at least Pi plus e times the difference of the two. Some are so many that
        the two differ as much as is wanted, as far as there are enough clients; e makes up for the
        rest, and leaves empty cells empty. How much clients differ was seen in few of them, so e
        varies as in Student's law.
        """
        rng, kept = np.random.default_rng(seed), len(self.sizes)
        some = self._some(wanted.between)
        held, others = (np.empty((draws, len(self.pi))) for _ in range(2))
        anew = (np.arange(draws) % OWN > 0) & (self.usual is not None)
        step = MEMBERS // kept + 1
        memory = np.empty((2, step, kept))  # used again and again: fresh one takes as long to get
        for rows in (np.flatnonzero(anew), np.flatnonzero(~anew)):
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                dealt = dealt_sizes(self.sizes, (len(part), kept), rng) if anew[part[0]] else None
                held[part], others[part] = self._two_groups(
                    some, len(part), dealt, rng, memory[:, : len(part)]
                )
        own, left = (float(np.median(each.sum(axis=1))) for each in (held, others))
        given = Variance(self._given(some), 1 / own + 1 / max(left, 1.0))
        exponent, left = self._exponent(wanted, given)
        luck = np.ones((draws, 1))
        if self.freedom < math.inf:  # sizes that are dealt anew are as unequal as may be already
            freedom = np.where(anew, max(kept - 1.0, self.freedom), self.freedom)[:, None]
            luck = np.maximum(np.sqrt(rng.chisquare(freedom) / freedom), 0.25)
        gained, unseen = np.empty((draws, len(self.rare))), np.empty(draws)
        for at in some_rows(draws):
            one, rest = _scale(held[at]), _scale(others[at])
            held[at], gained[at], unseen[at] = self._compared(one, rest, exponent / luck[at], rng)
        return Deviations(held, self.rare, gained, unseen, left)

    def _given(self, some: int) -> float:
        """V(m) = 1 / m + u / (n - m): how much m of n clients differ from all others.

        u is `uneven`: the mean of all equally is not Pi either.
        """
        return 1 / some + self.uneven / max(len(self.sizes) - some, 1)

    def _some(self, wanted: float) -> int:
        """The smaller m of V(m) = wanted, or where V is least, if that is more than wanted."""
        kept, wanted = len(self.sizes), max(wanted, TINY)
        half = (kept * wanted + 1 - self.uneven) / 2
        square = half**2 - kept * wanted
        if half <= 0 or square <= 0:
            return max(1, round(kept / (1 + math.sqrt(self.uneven))))
        return max(1, round((half - math.sqrt(square)) / wanted))

    def _two_groups(
        self,
        some: int,
        draws: int,
        dealt: Floats | None,
        rng: np.random.Generator,
        memory: Floats,
    ) -> tuple[Floats, Floats]:
        """What some clients hold, each as often as it was drawn, and what those not drawn hold.

        (draws, cells + 1) each; `dealt`: sizes of all clients, where they are not their own.
        """
        kept = len(self.sizes)
        place = rng.integers(0, kept, (draws, some))
        place += kept * np.arange(draws)[:, None]
        times = np.bincount(place.ravel(), minlength=kept * draws).reshape(draws, kept)
        chosen, others = memory
        chosen[:] = times
        np.equal(times, 0, out=others)
        if dealt is None:
            return chosen @ self.table, others @ self.raw
        weight, rest = self._resized(dealt)
        usual = [np.einsum("ij,ij->i", each, rest)[:, None] * self.pi for each in (chosen, others)]
        chosen *= weight
        others *= weight
        held, left = chosen @ self.table + usual[0], others @ self.raw
        return held, np.where(left > 0, left + usual[1], 0.0)  # unseen stays unseen

    def _resized(self, dealt: Floats) -> tuple[Floats, Floats]:
        """How often each record of a client counts if it has S records, and records as Pi's.

        The shares of s records vary by a + (1 - a) / s, with a the correlation; those of S should
        by a + (1 - a) / S. So they are drawn to Pi by the root of the ratio. In place, also of the
        argument: fresh memory would take most of the time.
        """
        a = self.usual or 0.0
        varied = (1 - a) / dealt
        varied += a
        towards = np.sqrt(varied, out=varied)
        towards /= np.sqrt(a + (1 - a) / self.sizes)
        np.minimum(towards, 1.0, out=towards)
        near = np.multiply(towards, dealt, out=towards)
        dealt -= near
        near /= self.sizes
        return near, dealt

    def _exponent(self, wanted: Variance, given: Variance) -> tuple[Floats, float]:
        """e of each cell, and what is left: e^2 given = wanted, by the cell's correlation."""
        a = self.alike
        ratio = wanted.between / given.between
        left = wanted.within - ratio * given.within
        if left >= 0:
            return np.full(len(a), math.sqrt(min(ratio, 1.0))), left
        square = a * wanted.between + (1 - a) * wanted.within
        square /= a * given.between + (1 - a) * given.within
        return np.sqrt(np.minimum(square, 1.0)), 0.0

    def _compared(
        self, some: Floats, others: Floats, exponent: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        """`times`, `gained` and `unseen` of `Deviations`, of some rows of them.

        Rare cells are those in which the *others* hold as little as is rare.
        """
        unseen, rare = np.sum(np.where(others > 0, 0.0, some)[:, :-1], axis=1), self.rare
        gained = np.zeros((len(some), 0))
        if len(rare):
            mine = others[:, rare]
            order = np.argsort(-mine - 1e-12 * rng.random(mine.shape), axis=1)
            # Fewer cells are seen by fewer clients: the last ones stand for those that are not.
            seen, number = np.count_nonzero(mine, axis=1)[:, None], len(rare)
            place = np.arange(number)
            place = np.where(place < seen, place, np.maximum(place - (number - seen), 0))
            source = rare[np.take_along_axis(order, np.minimum(place, np.maximum(seen - 1, 0)), 1)]
            some[:, rare], others[:, rare] = (
                np.take_along_axis(each, source, 1) for each in (some, others)
            )
            gained = (some[:, rare] - others[:, rare]) * exponent[:, rare]
        ratio = np.divide(some, others, out=np.zeros_like(some), where=others > 0)
        return ratio**exponent, gained, unseen


@lru_cache(maxsize=16)
def _clients(spread: Spread, names: bytes, probabilities: bytes) -> Clients:
    """Those of a reference's view, at some of its cells."""
    kind, cells = spread.correlation, np.frombuffer(names, dtype=np.int64)
    assert kind is not None  # noqa: S101  only with client ids a reference keeps counts
    pi, held = np.frombuffer(probabilities), ClientCounts.read(kind.held)
    usual, column = max(kind.icc, kind.rare_icc), held.columns(cells)
    mass, squares = (
        np.bincount(column, held.records.astype(np.float64) ** power, len(pi))[:-1]
        for power in (1, 2)
    )
    holders = mass**2 / np.maximum(squares, TINY)  # equally large ones that vary as much
    order = np.argsort(-pi[:-1], kind="stable")
    equal = spread.per_client is not None or kind.size_variation == 0
    return Clients(
        pi,
        held.factor(cells),
        _contributions(kind.held, spread.per_client).factor(cells),
        held.sizes.astype(np.float64),
        np.append(held.correlations(cells, usual), kind.icc),
        order[holders[order] < RARE],
        spread.freedom if spread.counted else math.inf,
        _uneven(spread),
        None if equal else usual,
    )


@lru_cache(maxsize=8)
def _shared(clients: Clients, wanted: Variance, draws: int, seed: int) -> Deviations:
    return clients._drawn(wanted, draws, seed)


def dealt_sizes(sizes: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Records of other clients of the same kind, (populations, clients).

    Those of the reference, but the next population may well have a larger client than all that were
    seen. So in half of the populations the largest tenth is drawn from Pareto's law, in the others
    what is beyond the largest. How unequal the largest tenth is tells the law's index (Hill, 1975),
    which is drawn anew for each population, as it is known from few sizes.
    """
    ordered = np.sort(sizes)
    number = max(2, round(TAIL * len(ordered)))
    if number >= len(ordered):
        return rng.choice(sizes, shape)
    slope = float(np.log(ordered[-number:] / ordered[-number - 1]).sum())
    index = rng.gamma(number, size=shape[0]) / max(slope, TINY)
    kept = len(ordered) - np.where(rng.random(shape[0]) < 0.5, number, 1)
    start = np.where(kept == len(ordered) - 1, ordered[-1], ordered[-number - 1])
    place = rng.integers(0, len(ordered), shape, dtype=np.int32)
    dealt = ordered[place]
    far = np.flatnonzero(place >= kept[:, None].astype(place.dtype))  # few: these take a power
    row = far // shape[1]
    beyond = np.minimum(rng.standard_exponential(len(far)) / index[row], FURTHEST)
    dealt.ravel()[far] = start[row] * np.exp(beyond)
    return dealt


@lru_cache(maxsize=64)
def _contributions(held: str, per_client: int | None) -> ClientCounts:
    """What each client of a reference would contribute: all, or so many records."""
    found = ClientCounts.read(held)
    if per_client is None:
        return found
    return found.contributing(per_client, np.random.default_rng(SEED))


def _scattered(wanted: Floats, left: float, rng: np.random.Generator) -> Ints:
    """Whole counts with these means, (draws, cells), and their sum.

    Records of a client that are fewer than the reference has of it vary more: of counts c, a share
    1 - k is dealt again, with k^2 = 1 - N left. Then they vary by c (1 - k^2) more, with a third
    moment of c (1 - k)^2 (1 + 2 k); large ones by a normal law with this skewness. What all cells
    gain together is taken from each in proportion.
    """
    if left <= 0:
        return _whole(wanted, rng)
    records = wanted.sum(axis=1, keepdims=True)
    k = math.sqrt(max(1 - float(records.max()) * left, 0.0))
    z = rng.standard_normal(wanted.shape)
    # Cornish and Fisher (1938): z + (z^2 - 1) s / 6 has a skewness of s, about
    gained = z * np.sqrt((1 - k * k) * wanted)
    gained += (1 - k) ** 2 * (1 + 2 * k) / (6 * (1 - k * k)) * (z * z - 1)
    few = wanted < LARGE
    mean = wanted[few]
    ones = np.floor(mean + rng.random(len(mean))).astype(np.int64)
    gained[few] = rng.binomial(ones, k) + rng.poisson((1 - k) * mean) - mean
    gained -= wanted * (gained.sum(axis=1, keepdims=True) / records)
    found = np.maximum(wanted + gained, 0.0)
    return _whole(found * (records / np.maximum(found.sum(axis=1, keepdims=True), TINY)), rng)


def _whole(wanted: Floats, rng: np.random.Generator) -> Ints:
    """Whole counts with these means and their sum: rounded up or down at random."""
    found, start = np.empty(wanted.shape, dtype=np.int64), rng.random((len(wanted), 1))
    for rows in some_rows(len(wanted)):
        total = np.rint(wanted[rows].sum(axis=1, keepdims=True))
        ends = np.floor(np.cumsum(wanted[rows], axis=1) + start[rows])
        ends = np.minimum(ends, total)
        ends[:, -1:] = total
        found[rows] = np.diff(ends, prepend=0.0, axis=1)
    return found


def _dirichlet_world(spread: Spread, cells: Cells, p: Floats, rng: np.random.Generator) -> Floats:
    """P of worlds in which the reference is what it is, around P of each: (draws, cells + 1).

    Cells that happened to be seen are overrated: what they lose is in none of the cells.
    """
    kind, pi = spread.correlation, np.maximum(cells.pi[:-1], TINY)
    if not spread.counted:
        return p
    overrated = spread.overrated(cells.names, pi)
    lost = p[:, :-1] * overrated
    if spread.seen:  # a count tells the less of a cell the less others are like it
        mean, variance = true_counts(spread.seen).of(spread.counted * pi)
        shape = np.append(mean**2 / np.maximum(variance, TINY), spread.counted * cells.pi[-1])
        some = rng.standard_gamma(shape, p.shape) / np.maximum(shape, TINY)
        found = p * np.where(shape > 0, some, 1.0)
    else:
        error = 1 / spread.counted + (0.0 if kind is None else kind.icc * spread.between_counted)
        found = dirichlet(p, error, rng)
    found[:, :-1] *= 1 - overrated
    found[:, -1] += np.maximum(lost.sum(axis=1), 0.0)  # others of them may be underrated
    return _normal(found)


def _dirichlet_variance(spread: Spread, records: int, clients: int) -> float:
    kind = spread.correlation
    if kind is None:
        return 0.0
    return kind.icc * float(between_clients(records, clients, spread.unequal))


def dirichlet(mean: Floats, variance: float, rng: np.random.Generator) -> Floats:
    """Distributions around means (..., cells), with a variance of v p (1 - p) in each cell."""
    if variance <= 0:
        return np.array(mean)
    total = max(1 / min(variance, 1.0) - 1, 1e-3)
    return _normal(rng.standard_gamma(total * mean) + TINY * mean)


def _normal(shares: Floats) -> Floats:
    """Scaled to a sum of 1 along the last axis."""
    return np.asarray(shares / np.maximum(shares.sum(axis=-1, keepdims=True), TINY))


def _scale(shares: Floats) -> Floats:
    """The same, in place."""
    shares /= np.maximum(shares.sum(axis=-1, keepdims=True), TINY)
    return shares
