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
from numpy.typing import NDArray

from fedprikl.checks import Floats, Ints
from fedprikl.reference import ClientCounts, Spread
from fedprikl.reference.views import between_clients

RARE = 16  # holders: cells with fewer are told apart by how rare they are, not by their names
POOL = 2000  # draws of clients, among which those of many periods are chosen
SEED = 11  # of what each client of the reference would contribute
MEMBERS = 2_000_000  # numbers in memory: draws at a time, times clients
TINY = 1e-300
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
        """Of cells with these probabilities. A rest that is rounding alone is none."""
        rest = 1 - math.fsum(pi.tolist())
        return cls(names, np.append(pi, rest if rest > 1e-9 else 0.0))


@dataclass(frozen=True, slots=True)
class Variance:
    """How much shares vary, as 1 over clients and 1 over records: V_b between and V_w within."""

    between: float
    within: float


def population_counts(
    spread: Spread, cells: Cells, records: int, clients: int, draws: int, rng: np.random.Generator
) -> Ints:
    """Counts of populations of so many records and clients without drift: (draws, cells).

    The reference's own sampling is in it.
    """
    kind, batches = spread.correlation, len(spread.clients)
    if kind is None or not kind.held:
        world = _dirichlet_world(spread, cells, draws, rng)
        shares = dirichlet(world, _dirichlet_variance(spread, records, clients), rng)
        return np.asarray(rng.multinomial(records, shares)[:, :-1])
    wanted = _error(spread, batches, Variance(1 / clients, 1 / records))
    shares, left = Clients.of(spread, cells).shares(wanted, draws, rng)
    counts = _whole(records * shares, rng)
    if left > 0:  # records of a client that are fewer than the reference has of it
        kept = math.sqrt(max(1 - records * left, 0.0))
        counts = rng.binomial(counts, kept)
        counts += rng.multinomial(records - counts.sum(axis=1), shares)
    return counts[:, :-1]


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
        world = _dirichlet_world(spread, cells, series, rng)[:, None]
        every = np.broadcast_to(world, (*shape, len(cells.pi)))
        return dirichlet(every, _dirichlet_variance(spread, records, clients), rng)
    known, others = Clients.of(spread, cells), Variance(1 / clients, 0.0)
    if periods == 1:
        return known.shares(_error(spread, 1, others), series, rng)[0][:, None]
    world = np.broadcast_to(cells.pi, (series, len(cells.pi)))
    if spread.counted:
        world, _ = known.shares(_error(spread, 1, Variance(0.0, 0.0)), series, rng)
    drawn, _ = known.shares(others, POOL, rng)
    ratios = drawn / np.maximum(cells.pi, TINY)
    return _normal(world[:, None] * ratios[rng.integers(0, POOL, shape)])


def ordinary_ratios(
    spread: Spread, cells: Cells, shape: tuple[int, int], rng: np.random.Generator
) -> Floats:
    """P of every period over P of all: (series, periods, cells + 1), as the reference has them.

    Each series has runs of consecutive periods of the reference, of random length (a stationary
    bootstrap: Politis and Romano, 1994), so that weekdays are in it as far as the reference has
    them, and slow changes in part (decision 29). It is compared with a Pi of as many periods as the
    reference has, drawn in the same way. The periods' own sampling is taken out, and how much they
    differ is known from few of them (Student's law).
    """
    held = ClientCounts.read(spread.periods)
    ratios, known = _period_ratios(held, cells), len(held)
    series = shape[0]
    world = ratios[_runs(known, (series, known), rng)].mean(axis=1, keepdims=True)
    found = ratios[_runs(known, shape, rng)] - world
    freedom = max(known - 1, 3)
    luck = np.sqrt(rng.chisquare(freedom, (series, 1, 1)) / freedom)
    return np.asarray(np.maximum(1 + found / np.maximum(luck, 0.25), 0.0))


def _runs(number: int, shape: tuple[int, int], rng: np.random.Generator) -> Ints:
    """Places of a stationary bootstrap: runs of about the root of the number, in a circle."""
    first = rng.integers(0, number, shape)
    begins = rng.random(shape) < 1 / max(math.sqrt(number), 1.0)
    begins[:, 0] = True
    since = np.arange(shape[1])
    start = np.maximum.accumulate(np.where(begins, since, 0), axis=1)
    return np.asarray((np.take_along_axis(first, start, 1) + since - start) % number)


def ordinary_variance(spread: Spread, cells: Cells) -> Floats:
    """Of P / Pi between periods of the reference, per cell; 0 where it has no times."""
    if not spread.periods:
        return np.zeros(len(cells.pi))
    return np.asarray(_period_ratios(ClientCounts.read(spread.periods), cells).var(axis=0))


def _period_ratios(held: ClientCounts, cells: Cells) -> Floats:
    """Shares of each period over those of all, (periods, cells + 1), without their sampling."""
    table = held.table(cells.names).toarray().astype(np.float64)
    shares, usual = _normal(table), _normal(table.sum(axis=0))
    alike, sizes = np.append(held.correlations(cells.names), 0.0), table.sum(axis=1)
    mean = float(sizes @ sizes) / float(sizes.sum())
    towards = np.sqrt(alike / np.maximum(alike + (1 - alike) / mean, TINY))
    ratio = np.divide(shares, usual, out=np.ones_like(shares), where=usual > 0)
    return np.asarray(1 + towards * (ratio - 1))


def _error(spread: Spread, batches: int, population: Variance) -> Variance:
    """Of the difference from Pi, with the reference's own; batches are compared with one Pi."""
    kind = spread.correlation
    if kind is None or not spread.counted:
        return population
    own = batches / kind.clients, batches / spread.counted
    return Variance(population.between + own[0], population.within + own[1])


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """The clients that a reference keeps: some as a population, compared with all the others."""

    pi: Floats  # of the cells, and of all others last
    raw: Any  # records that each holds, (clients, cells + 1), sparse
    table: Any  # those that it would contribute
    alike: Floats  # the intra-client correlation of each cell
    rare: Ints  # cells of few holders, the heaviest first
    freedom: float  # of how much clients differ
    usual: float | None  # correlation with which sizes are dealt anew; None: all sizes are equal

    @classmethod
    def of(cls, spread: Spread, cells: Cells) -> "Clients":
        """Cost: the pairs of client and cell that occur."""
        kind = spread.correlation
        assert kind is not None  # noqa: S101  only with client ids a reference keeps counts
        held = ClientCounts.read(kind.held)
        raw = held.table(cells.names).astype(np.float64)
        alike = held.correlations(cells.names, max(kind.icc, kind.rare_icc))
        mass, squares = (np.asarray(each.sum(axis=0)).ravel()[:-1] for each in (raw, raw.power(2)))
        holders = mass**2 / np.maximum(squares, TINY)  # equally large ones that vary as much
        order = np.argsort(-cells.pi[:-1], kind="stable")
        equal = spread.per_client is not None or kind.size_variation == 0
        return cls(
            cells.pi,
            raw,
            _contributions(kind.held, spread.per_client).table(cells.names).astype(np.float64),
            np.append(alike, kind.icc),
            order[holders[order] < RARE],
            spread.freedom if spread.counted else math.inf,
            None if equal else max(kind.icc, kind.rare_icc),
        )

    def shares(
        self, wanted: Variance, draws: int, rng: np.random.Generator
    ) -> tuple[Floats, float]:
        """P of populations, (draws, cells + 1), and the variance within that is left to add.

            P(x) = Pi(x) r(x)^e,    r = (share of some clients) / (share of all others)

        and in rare cells at least Pi plus e times the difference of the two. Some are so many that
        the two differ as much as is wanted, as far as there are enough clients; e makes up for the
        rest, and leaves empty cells empty. How much clients differ was seen in few of them, so e
        varies as in Student's law.
        """
        kept = self.raw.shape[0]
        root = math.sqrt(max(1 - 4 / (kept * max(wanted.between, TINY)), 0.0))
        some = max(1, round(kept / 2 * (1 - root)))
        held, others = np.empty((2, draws, len(self.pi)))
        anew = (np.arange(draws) % OWN > 0) & (self.usual is not None)
        step = MEMBERS // kept + 1  # dense: members of a sparse matrix would have to be sorted
        for start in range(0, draws, step):
            part = slice(start, start + step)
            held[part], others[part] = self._two_groups(some, anew[part], rng)
        own, rest = (float(np.median(each.sum(axis=1))) for each in (held, others))
        given = Variance(1 / some + 1 / max(kept - some, 1), 1 / own + 1 / max(rest, 1.0))
        exponent, left = self._exponent(wanted, given)
        if self.freedom < math.inf:  # sizes that are dealt anew are as unequal as may be already
            freedom = np.where(anew, max(kept - 1.0, self.freedom), self.freedom)[:, None]
            luck = np.sqrt(rng.chisquare(freedom) / freedom)
            exponent = exponent / np.maximum(luck, 0.25)
        return self._drifted(_normal(held), _normal(others), exponent, rng), left

    def _two_groups(
        self, some: int, anew: NDArray[np.bool_], rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """What some clients hold, each as often as it was drawn, and what those not drawn hold.

        (draws, cells + 1) each; `anew`: the draws in which sizes are dealt anew.
        """
        draws, kept = len(anew), self.raw.shape[0]
        place = rng.integers(0, kept, (draws, some)) + kept * np.arange(draws)[:, None]
        times = np.bincount(place.ravel(), minlength=kept * draws).reshape(draws, kept)
        members = np.stack([times, times == 0]).astype(np.float64)
        usual = np.zeros((2, draws, 1))  # records that are like those of all clients
        if self.usual is not None:
            sizes = np.asarray(self.raw.sum(axis=1)).ravel()
            dealt = dealt_sizes(sizes, (int(anew.sum()), kept), rng)
            weight, rest = self._resized(sizes, dealt)
            usual[:, anew] = np.sum(members[:, anew] * rest, axis=2, keepdims=True)
            members[:, anew] *= weight
        held = (self.table.T.tocsr() @ members[0].T).T + usual[0] * self.pi
        others = (self.raw.T.tocsr() @ members[1].T).T
        return held, np.where(others > 0, others + usual[1] * self.pi, 0.0)  # unseen stays unseen

    def _resized(self, sizes: Floats, dealt: Floats) -> tuple[Floats, Floats]:
        """How often each record of a client counts if it has S records, and records as Pi's.

        The shares of s records vary by a + (1 - a) / s, with a the correlation; those of S should
        by a + (1 - a) / S. So they are drawn to Pi by the root of the ratio.
        """
        a = self.usual or 0.0
        square = (a + (1 - a) / dealt) / (a + (1 - a) / sizes)
        towards = np.sqrt(np.minimum(square, 1.0))
        return towards * dealt / sizes, (1 - towards) * dealt

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

    def _drifted(
        self,
        some: Floats,
        others: Floats,
        exponent: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """P around Pi. Rare cells are those in which the *others* hold as little as is rare."""
        unseen = np.sum(np.where(others > 0, 0.0, some)[:, :-1], axis=1)
        if len(self.rare):
            mine = others[:, self.rare]
            order = np.argsort(-mine - 1e-12 * rng.random(mine.shape), axis=1)
            # Fewer cells are seen by fewer clients: the last ones stand for those that are not.
            seen, number = np.count_nonzero(mine, axis=1)[:, None], len(self.rare)
            place = np.arange(number)
            place = np.where(place < seen, place, np.maximum(place - (number - seen), 0))
            source = self.rare[
                np.take_along_axis(order, np.minimum(place, np.maximum(seen - 1, 0)), 1)
            ]
            some, others = some.copy(), others.copy()
            some[:, self.rare], others[:, self.rare] = (
                np.take_along_axis(some, source, 1),
                np.take_along_axis(others, source, 1),
            )
        ratio = np.divide(some, others, out=np.zeros_like(some), where=others > 0)
        found = self.pi * ratio**exponent
        if len(self.rare):  # what few clients hold comes in clumps, however rare the cell is
            power = np.broadcast_to(exponent, some.shape)[:, self.rare]
            gained = (some[:, self.rare] - others[:, self.rare]) * power
            more = np.where(gained > 0, self.pi[self.rare] + gained, 0.0)
            found[:, self.rare] = np.maximum(found[:, self.rare], more)
        found[:, -1] += unseen
        return _normal(found)


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
    index = rng.gamma(number, size=(shape[0], 1)) / max(slope, TINY)
    beyond = np.exp(np.minimum(rng.standard_exponential(shape) / index, FURTHEST))
    kept = len(ordered) - np.where(rng.random((shape[0], 1)) < 0.5, number, 1)
    start = np.where(kept == len(ordered) - 1, ordered[-1], ordered[-number - 1])
    place = rng.integers(0, len(ordered), shape)
    return np.where(place < kept, ordered[place], start * beyond)


@lru_cache(maxsize=64)
def _contributions(held: str, per_client: int | None) -> ClientCounts:
    """What each client of a reference would contribute: all, or so many records."""
    found = ClientCounts.read(held)
    if per_client is None:
        return found
    return found.contributing(per_client, np.random.default_rng(SEED))


def _whole(wanted: Floats, rng: np.random.Generator) -> Ints:
    """Whole counts with these means and their sum: rounded up or down at random."""
    ends = np.floor(np.cumsum(wanted, axis=1) + rng.random((len(wanted), 1)))
    total = np.rint(wanted.sum(axis=1, keepdims=True))
    ends = np.minimum(ends, total)
    ends[:, -1:] = total
    return np.asarray(np.diff(ends, prepend=0.0, axis=1), dtype=np.int64)


def _dirichlet_world(spread: Spread, cells: Cells, draws: int, rng: np.random.Generator) -> Floats:
    """P of worlds in which the reference is what it is, (draws, cells + 1).

    Rare cells are those that happened to be seen: their mean is lower, by a discount.
    """
    kind, pi = spread.correlation, cells.pi
    if not spread.counted:
        return np.broadcast_to(pi, (draws, len(pi)))
    error = 1 / spread.counted + (0.0 if kind is None else kind.icc * spread.between_counted)
    found = dirichlet(np.broadcast_to(pi, (draws, len(pi))), error, rng)
    some = np.maximum(pi[:-1], TINY)
    varied = spread.of(cells.names, some)
    lucky = np.append(spread.discount * np.minimum(spread.counting(varied, some), 1.0), 0.0)
    found = found * (1 - lucky)
    found[:, -1] += float(pi @ lucky)
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
