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
from fedprikl.estimation.scoring import Terms, some_rows
from fedprikl.estimation.worlds import Cells, population_counts, with_rest
from fedprikl.reference import QueryPoints, Spread

SEED = 6_2024
CHUNK = 2**19  # entries of the largest array: 4 MB
TINY = 1e-300
KEPT = 1 - 1e-12  # of a P: else rounding decides whether there is a rest, whose draw takes a number
SPARE = 4.0  # standard deviations; a draw in 30,000 is dealt afresh


def public_simulation() -> np.random.Generator:
    """The generator of every threshold: always the same draws."""
    return np.random.default_rng(SEED)


def public_noise() -> np.random.Generator:
    """One for what is added to such draws: noise is unrelated to counts, and the same on any."""
    return np.random.default_rng([SEED, 2])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoDrift:
    """The law of the summed counts if P = Pi. Everything in it is public.

    A *question* asks a batch for a term's cell; h_j adds up the answers of all batches asked term
    j. Counts of one batch are multinomial (what one cell gains others lose), batches independent.

    `spread` says how much more they vary than counts of unrelated records around a known Pi: a
    reference's `Spread` does so cell by cell (`worlds.py`). With a number instead, a design effect
    d > 1, a batch behaves like unrelated groups of floor(d) or floor(d) + 1 equal records each, so
    many of either that the variance is d times the multinomial one. Of all groupings with that
    variance it has the fewest groups, so it leaves the most cells empty and the threshold errs
    upwards. Counts stay whole and within 0 .. N.
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

    def counts(self, draws: int, rng: np.random.Generator, examples: Floats | None = None) -> Ints:
        """h_j of `draws` populations without drift: (draws, terms).

        `examples` are drifts, P / Pi of the terms, one a row: then as many populations of each.
        Cost: about a tenth of a microsecond per draw and question.
        """
        p = self.pi[None] if examples is None else self._drifted(examples)
        each, spread = draws // len(p), self.spread
        drawn = np.zeros((each * len(p), len(self.pi)), dtype=np.int64)
        # Each batch has its own numbers: how many another one takes depends on the drift.
        seeds = rng.integers(2**62, size=len(self.records)) if isinstance(spread, Spread) else ()
        for t, records in enumerate(self.records.tolist()):
            terms = self.term[self.batch == t]
            if not len(terms):
                continue
            if isinstance(spread, Spread):
                cells, clients = Cells.of(self.cells[terms], self.pi[terms]), spread.clients[t]
                rows = None if examples is None else with_rest(p[:, terms]).repeat(each, axis=0)
                own = np.random.default_rng(int(seeds[t]))
                found = population_counts(spread, cells, records, clients, len(drawn), own, rows)
                for some in some_rows(len(drawn)):
                    drawn[some, terms] += found[some]
                continue
            for place, pi in enumerate(p[:, terms]):
                cells_of = np.append(pi, max(0.0, 1 - math.fsum(pi.tolist())))  # the rest, as one
                part = drawn[place * each : (place + 1) * each]
                for size, groups in group_sizes(records, spread):
                    part[:, terms] += size * multinomial(groups, cells_of, each, rng)[:, :-1]
        return drawn

    def _drifted(self, examples: Floats) -> Floats:
        """P of the terms. Large ratios of few sampled cells may exceed 1 together."""
        chances = self.pi * examples
        asked = [
            chances[:, self.term[self.batch == t]].sum(axis=1) for t in range(len(self.records))
        ]
        most = np.maximum(np.max(asked, axis=0), 1.0)[:, None]
        return np.asarray(np.maximum(KEPT * chances / most, TINY))  # a probability is above 0

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
        correlated = self.pi * spread.of(self.cells, self.pi)
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
    >>> group_sizes(100, 60.95)  # no more groups than records
    [(61, 1), (1, 39)]
    """
    effect = min(design_effect, float(records))
    small = int(effect)
    large = min(round(records * (effect - small) / (small + 1)), records // (small + 1))
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
