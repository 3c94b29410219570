"""Query points: which cells the clients of each batch are asked to count, and with what weight.

Points depend on Pi and public randomness only, never on private records.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_counts, check_positive_int
from fedprikl.errors import InvalidInputError

__all__ = ["QueryPoints", "all_points", "distinct_points", "iid_points", "inclusion_probabilities"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueryPoints:
    """The asked points of all batches, as parallel arrays; each (batch, cell) stands once.

    The estimate is `sum weight * score` over all entries. Everything here is public.
    """

    batches: int  # T
    cells: Ints  # x
    batch: Ints  # t, not decreasing
    pi: Floats  # Pi(x)
    weights: Floats  # design weight, 1/(mT) per draw for i.i.d. points
    draws: Ints  # how often the design drew x for batch t (1 unless i.i.d.)
    pi_min: float  # the reference's smallest probability above 0

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def payload(self) -> int:
        """Counts each client reports: the largest number of distinct points of a batch."""
        return int(np.bincount(self.batch, minlength=self.batches).max())

    def per_batch(self, values: npt.NDArray[np.generic]) -> list[npt.NDArray[np.generic]]:
        """Split an array over the entries into one array per batch."""
        ends = np.cumsum(np.bincount(self.batch, minlength=self.batches))
        return np.split(values, ends[:-1])

    @classmethod
    def build(
        cls,
        probabilities: Floats,
        *,
        cells: npt.ArrayLike,
        batch: npt.ArrayLike,
        weights: npt.ArrayLike,
        draws: npt.ArrayLike | None = None,
        batches: int = 1,
    ) -> "QueryPoints":
        """Points chosen by hand, checked: inside the domain, Pi(x) > 0, asked once per batch."""
        check_positive_int(batches, "batches")
        asked = check_counts(cells, "cells")
        of_batch = check_counts(batch, "batch")
        weight = np.asarray(weights, dtype=np.float64)
        drawn = np.ones(len(asked), np.int64) if draws is None else check_counts(draws, "draws")
        if not len(asked) == len(of_batch) == len(weight) == len(drawn) or not len(asked):
            raise InvalidInputError("Cells, batches and weights must be equally many, at least 1.")
        if asked.max() >= len(probabilities):
            raise InvalidInputError(
                f"Point {asked.max()} is outside the domain 0 .. {len(probabilities) - 1}."
            )
        if np.any(probabilities[asked] <= 0):
            raise InvalidInputError(
                f"Point {asked[probabilities[asked] <= 0][0]} has probability 0 under the "
                "reference, so it cannot be asked. Draw points from the reference."
            )
        if not np.all(np.isfinite(weight)):
            raise InvalidInputError("Weights must be finite numbers.")
        if len(np.unique(of_batch)) != batches or of_batch.max() != batches - 1:
            raise InvalidInputError(f"Each of the batches 0 .. {batches - 1} needs a point.")
        order = np.lexsort((asked, of_batch))
        asked, of_batch = asked[order], of_batch[order]
        if np.any((np.diff(asked) == 0) & (np.diff(of_batch) == 0)):
            raise InvalidInputError("A batch is asked the same point twice; merge the weights.")
        return cls(
            batches=batches,
            cells=asked,
            batch=of_batch,
            pi=probabilities[asked],
            weights=weight[order],
            draws=drawn[order],
            pi_min=float(probabilities[probabilities > 0].min()),
        )


def iid_points(
    probabilities: Floats, points: int, *, batches: int, rng: np.random.Generator
) -> QueryPoints:
    """The paper's design: `points` (m) i.i.d. draws from Pi for each of `batches` (T) batches.

    A cell drawn k times for a batch is asked once, with weight k/(mT).  [alg:sys_tagg]
    Cost: one pass over the domain and a binary search per draw.
    """
    m, n_batches = check_positive_int(points, "points"), check_positive_int(batches, "batches")
    cumulative = np.cumsum(probabilities)
    drawn = np.searchsorted(cumulative, rng.random(m * n_batches) * cumulative[-1], side="right")
    keys = np.repeat(np.arange(n_batches), m) * len(probabilities) + drawn
    distinct, draws = np.unique(keys, return_counts=True)
    return QueryPoints.build(
        probabilities,
        cells=distinct % len(probabilities),
        batch=distinct // len(probabilities),
        weights=draws / (m * n_batches),
        draws=draws,
        batches=n_batches,
    )


def distinct_points(
    probabilities: Floats, points: int, *, batches: int = 1, rng: np.random.Generator
) -> QueryPoints:
    """mT distinct points by systematic PPS, dealt out at random, m (`points`) to each batch.

    A cell is asked with probability `i(x) = min(1, k Pi(x))`, sum i = mT, and weighs
    `Pi(x) / i(x)` (Horvitz-Thompson), so the estimate stays unbiased while heavy cells are never
    asked twice. Systematic draws follow the domain's order, which spreads them over it.
    Cost: two passes over the domain; no sort of it.
    """
    m, n_batches = check_positive_int(points, "points"), check_positive_int(batches, "batches")
    inclusion = inclusion_probabilities(probabilities, m * n_batches)
    asked = systematic_sample(inclusion, rng.random())
    return QueryPoints.build(
        probabilities,
        cells=asked,
        batch=rng.permutation(np.repeat(np.arange(n_batches), m)),
        weights=probabilities[asked] / inclusion[asked],
        batches=n_batches,
    )


def all_points(probabilities: Floats) -> QueryPoints:
    """Every cell with Pi(x) > 0, for one batch: no sampling error, the largest payload."""
    asked = np.flatnonzero(probabilities > 0)
    return QueryPoints.build(
        probabilities, cells=asked, batch=np.zeros_like(asked), weights=probabilities[asked]
    )


def inclusion_probabilities(probabilities: Floats, total: int) -> Floats:
    """i(x) = min(1, k Pi(x)) with k such that they sum to `total`.

    Only the heaviest `total` cells can reach 1, so only these are sorted.
    """
    support = int(np.count_nonzero(probabilities))
    if total > support:
        raise InvalidInputError(
            f"{total} distinct points were asked for, but only {support} cells have probability "
            "above 0. Ask fewer points per batch, or use fewer batches."
        )
    if total == support:
        return np.asarray(probabilities > 0, dtype=np.float64)
    split = np.partition(probabilities, len(probabilities) - total)
    heaviest = np.sort(split[len(probabilities) - total :])[::-1]
    light = float(split[: len(probabilities) - total].sum())
    remaining = light + np.cumsum(heaviest[::-1])[::-1]  # mass from the k-th heaviest cell down
    free = total - np.arange(total)
    below_one = free * heaviest < remaining
    below_one[-1] = True  # the lightest of them never reaches 1 while lighter cells remain
    certain = int(np.argmax(below_one))
    inclusion: Floats = np.minimum(1.0, free[certain] * probabilities / remaining[certain])
    inclusion[inclusion > 1 - 1e-12] = 1.0
    return inclusion


def systematic_sample(inclusion: Floats, start: float) -> Ints:
    """The cells hit by start, start + 1, start + 2, ... on the cumulated inclusion probabilities.

    With start uniform on [0, 1), cell x is hit with probability i(x). Cells with i = 1 are taken
    first, so that rounding can neither miss one nor hit it twice.
    """
    certain = np.flatnonzero(inclusion == 1)
    uncertain = np.flatnonzero((inclusion > 0) & (inclusion < 1))
    if not uncertain.size:
        return certain.astype(np.int64)
    cumulative = np.cumsum(inclusion[uncertain])
    wanted = round(float(cumulative[-1]))
    hits = np.searchsorted(
        cumulative * (wanted / cumulative[-1]), start + np.arange(wanted), side="right"
    )
    return np.sort(np.concatenate([certain, uncertain[hits]])).astype(np.int64)
