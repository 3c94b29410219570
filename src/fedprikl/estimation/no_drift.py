"""What the counts look like if nothing has drifted: simulated from public quantities only.

The simulation is public and starts from a fixed seed, so a release has one threshold, which
anybody can compute again. It makes no release noise.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import (
    Floats,
    Ints,
    check_design_effect,
)
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.scoring import Terms
from fedprikl.reference import QueryPoints, Spread
from fedprikl.reference.views import CellSpread

LARGEST = 9.0  # variance of a ratio; with more, hardly any population holds the cell
SEED = 6_2024
CHUNK = 2**21  # entries of the largest array: 16 MB
SPARE = 4.0  # standard deviations; a draw in 30,000 is dealt afresh


@dataclass(frozen=True, slots=True, eq=False)
class Ratios:
    """P / Pi in the asked cells, before records are drawn.

    With the covariance of the spread, and positive: a ratio of mean 1 and variance v is

        r = max(0, 1 - v/9 + g/3)^3,    g normal with variance v

    nearly a Gamma variable (Wilson and Hilferty, 1931), as a mean over few clients is. What the
    reference's own sampling adds is the same for all batches, and lowers the mean of cells that
    happened to be seen. How much clients differ was estimated from few clients, and in each cell
    from its holders, so draws are Student's and not normal. Clients differ unequally, so a
    population differs by more or less in all cells together (`inequality`).
    """

    spread: Spread
    pi: Floats
    between: CellSpread  # how clients differ
    mean: Floats  # of P / Pi
    strength: Floats  # variance between clients over the one estimated, (draws, 1)
    own: Floats  # a / Pi of each cell, (draws, terms)
    known: Floats  # the reference's own error in each cell, (draws, terms)
    common: Floats  # and in each factor, (draws, factors)

    @classmethod
    def draw(
        cls, spread: Spread, cells: Ints, pi: Floats, draws: int, rng: np.random.Generator
    ) -> "Ratios":
        """With the reference's own error, which all batches share."""
        between = spread.of(cells, pi)
        mean = 1 - spread.discount * np.minimum(spread.counting(between, pi), 1.0)
        strength = _over_estimate(np.array([spread.freedom]), draws, rng)
        own = between.own * strength * _over_estimate(spread.own_freedom(between, pi), draws, rng)
        deviates = rng.standard_normal((draws, len(between.common)))
        common = deviates * np.sqrt(spread.between_counted * strength)
        sd = np.sqrt(_own(spread, own, pi) / mean)
        known = rng.standard_normal((draws, len(pi))) * sd
        return cls(spread, pi, between, mean, strength, own, known, common)

    def shares(self, terms: Ints, between: float, clients: int, rng: np.random.Generator) -> Floats:
        """P of a batch in the cells it is asked, and of all others: (draws, cells + 1)."""
        pi, own, common = self.pi[terms], self.own[:, terms], self.between.common[:, terms]
        mean = self.mean[terms]
        shape = (len(self.strength), len(pi))
        weight = between * self._unequal(clients, rng)
        error = self.known[:, terms] + rng.standard_normal(shape) * np.sqrt(weight * own)
        variance = weight * own + _own(self.spread, own, pi) / mean
        rest = max(0.0, 1 - float(pi.sum()))
        gained = np.zeros(shape[0])
        if len(common):
            scale = np.sqrt(weight * self.strength)
            factors = self.common + scale * rng.standard_normal(self.common.shape)
            error += factors @ common
            both = (weight + self.spread.between_counted) * self.strength
            variance = variance + both * np.sum(common**2, axis=0)
            gained = factors @ (common @ pi)  # what the asked cells gain, the others lose
        asked = pi * mean * gamma_like(error, variance)
        others = np.maximum(rest - gained, rest / 10) + float(pi @ (1 - mean))
        shares = np.column_stack([asked, others])
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _unequal(self, clients: int, rng: np.random.Generator) -> Floats:
        """How much these clients differ over what so many differ on average, (draws, 1)."""
        if not self.spread.inequality:
            return np.ones_like(self.strength)
        shape = max(clients / self.spread.inequality, 1.0)
        return rng.gamma(shape, 1 / shape, self.strength.shape)


def gamma_like(error: Floats, variance: Floats) -> Floats:
    """Ratios of mean 1 from normal errors of this variance; nearly Gamma variables."""
    kept = np.minimum(variance, LARGEST)
    scale = np.sqrt(kept / np.maximum(variance, 1e-300))
    root = 1 - kept / 9 + scale * error / 3
    return np.asarray(np.maximum(root, 0.0) ** 3)


def _over_estimate(freedom: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """A variance over its estimate of such degrees of freedom, (draws, estimates)."""
    known = np.isinf(freedom)
    if np.all(known):
        return np.ones((draws, 1))
    some = np.where(known, 1.0, freedom)
    return np.where(known, 1.0, some / rng.chisquare(some, (draws, len(freedom))))


def _own(spread: Spread, own: Floats, pi: Floats) -> Floats:
    """The variance of P / Pi that the reference's own sampling adds to each cell alone."""
    if not spread.counted:
        return np.zeros(len(pi))
    counting = 1 / (spread.counted * pi)
    return np.asarray(spread.between_counted * own + counting * (1 + np.minimum(counting, 1.0) / 2))


def public_simulation() -> np.random.Generator:
    """The generator of every threshold: always the same draws."""
    return np.random.default_rng(SEED)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoDrift:
    """The law of the summed counts if P = Pi. Everything in it is public.

    A *question* asks a batch for a term's cell; h_j adds up the answers of all batches asked term
    j. Counts of one batch are multinomial (what one cell gains others lose), batches independent.

    `spread` says how much more they vary than counts of unrelated records around a known Pi: a
    reference's `Spread` does so cell by cell. With a number instead, a design effect d > 1, a batch
    behaves like unrelated groups of floor(d) or floor(d) + 1 equal records each, so many of either
    that the variance is d times the multinomial one. Of all groupings with that variance it has
    the fewest groups, so it leaves the most cells empty and the threshold errs upwards. Counts stay
    whole and within 0 .. N.
    """

    pi: Floats  # Pi(x_j), per term
    records: Ints  # N_t, per batch
    batch: Ints  # per question: the batch that is asked
    term: Ints  # per question: the term it counts for
    spread: float | Spread  # a design effect, or a reference's spread at these clients
    cells: Ints  # per term: its cell in the reference

    @classmethod
    def of(cls, points: QueryPoints, records: Ints, spread: "float | Spread") -> "NoDrift":
        """Of the counts of these points, added up where points are pooled."""
        if not isinstance(spread, Spread):
            spread = check_design_effect(spread)
        elif len(spread.clients) != len(records):
            raise InvalidInputError("The spread needs the number of clients of every batch.")
        terms = Terms.of(points, records)
        cells = np.zeros(len(terms.pi), dtype=np.int64)
        cells[terms.of_point] = points.cells
        return cls(
            pi=terms.pi,
            records=records,
            batch=points.batch,
            term=terms.of_point,
            spread=spread,
            cells=cells,
        )

    @property
    def records_per_term(self) -> Ints:
        """N_j: the records of all batches that were asked term j."""
        total = np.bincount(self.term, self.records[self.batch], minlength=len(self.pi))
        return total.astype(np.int64)

    def counts(self, draws: int, rng: np.random.Generator) -> Ints:
        """h_j of `draws` populations without drift: (draws, terms).

        Cost: about a quarter of a microsecond per draw and question.
        """
        if isinstance(self.spread, Spread):
            return self._spread_counts(self.spread, draws, rng)
        drawn = np.zeros((draws, len(self.pi)), dtype=np.int64)
        for t, records in enumerate(self.records.tolist()):
            terms = self.term[self.batch == t]
            if not len(terms):
                continue
            pi = self.pi[terms]
            cells = np.append(pi, max(0.0, 1 - math.fsum(pi.tolist())))  # the rest, as one cell
            for size, groups in group_sizes(records, self.spread):
                drawn[:, terms] += size * multinomial(groups, cells, draws, rng)[:, :-1]
        return drawn

    def _spread_counts(self, spread: Spread, draws: int, rng: np.random.Generator) -> Ints:
        cells, first, place = np.unique(self.cells, return_index=True, return_inverse=True)
        if len(cells) == len(self.cells):
            cells, first, place = self.cells, np.arange(len(cells)), np.arange(len(cells))
        # A cell that several batches count apart has one error of the reference.
        ratios = Ratios.draw(spread, cells, self.pi[first], draws, rng)
        drawn = np.zeros((draws, len(self.pi)), dtype=np.int64)
        for t, between in enumerate(spread.between(self.records).tolist()):
            terms = self.term[self.batch == t]
            if len(terms):
                shares = ratios.shares(place[terms], between, spread.clients[t], rng)
                drawn[:, terms] += rng.multinomial(self.records[t], shares)[:, :-1]
        return drawn

    @property
    def design_effect(self) -> float | None:
        """The mean of `design_effects`; None if the intra-client correlation is not known."""
        spread = self.spread
        if isinstance(spread, Spread) and not spread.covers(self.records):
            return None
        return float(np.mean(self.design_effects))

    @property
    def design_effects(self) -> Floats:
        """Var(h_j) / (N_j Pi_j (1 - Pi_j)) of each term."""
        if not isinstance(self.spread, Spread):
            return np.full(len(self.pi), self.spread)
        spread, total = self.spread, self.records_per_term.astype(np.float64)
        records = self.records[self.batch].astype(np.float64)
        weight = records * (records - 1) * spread.between(self.records)[self.batch]
        squares = np.bincount(self.term, weight, len(self.pi))
        found = spread.of(self.cells, self.pi)
        within = np.maximum(1 - self.pi, 1e-9)
        correlated = self.pi * (found.own + np.sum(found.common**2, axis=0) / within)
        between = squares / total + total * spread.between_counted
        own = total / spread.counted if spread.counted else 0.0  # the reference's own sampling
        return np.asarray(1 + correlated * between + own)

    def chunks(self, draws: int, rng: np.random.Generator) -> Iterator[Ints]:
        """The same counts, as many draws at a time as fit into little memory."""
        step = max(1, CHUNK // (len(self.pi) + 1))
        for start in range(0, draws, step):
            yield self.counts(min(step, draws - start), rng)


def group_sizes(records: int, design_effect: float) -> list[tuple[int, int]]:
    """(size, number) of the groups of equal records: all N records, mean square size / size = d.

    >>> group_sizes(1000, 1.0), group_sizes(1000, 2.5)
    ([(1, 1000)], [(3, 167), (2, 249), (1, 1)])
    """
    effect = min(design_effect, float(records))
    small = int(effect)
    large = round(records * (effect - small) / (small + 1))
    left = records - large * (small + 1)
    found = [(small + 1, large), (small, left // small), (1, left % small)]
    return [(size, number) for size, number in found if number]


def multinomial(records: int, pi: Floats, draws: int, rng: np.random.Generator) -> Ints:
    """Exact multinomial counts, (draws, cells); several times faster than numpy's for many cells.

    Independent Poisson counts are multinomial given their total. So most records are dealt as
    Poisson counts whose mean total stays `SPARE` standard deviations below what is left to deal
    (a draw that exceeds it is dealt afresh, whatever its cells), and the last few one by one.
    """
    cells = len(pi)
    share = pi / pi.sum()
    counts = np.zeros((draws, cells), dtype=np.int64)
    left = np.full(draws, records)
    while left.max() > 4 * max(cells, SPARE**2):
        mean = np.maximum(left - SPARE * np.sqrt(left), 0.0)
        dealt = rng.poisson(mean[:, None] * share)
        total = dealt.sum(axis=1)
        for i in np.flatnonzero(total > left):
            dealt[i] = rng.multinomial(left[i], share)
            total[i] = left[i]
        counts += dealt
        left = left - total
    row = np.repeat(np.arange(draws), left)
    cell = np.searchsorted(np.cumsum(share)[:-1], rng.random(len(row)), side="right")
    counts += np.bincount(row * cells + cell, minlength=draws * cells).reshape(draws, cells)
    return counts
