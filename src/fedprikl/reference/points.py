"""Query points: which cells the clients of each batch are asked to count, and with what weight.

Points depend on Pi and public randomness only, never on private records.
"""

import hashlib
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.checks import (
    Floats,
    Ints,
    check_counts,
    check_finite_list,
    check_positive_int,
    check_probabilities,
)
from fedprikl.errors import InvalidInputError


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueryPoints:
    """The asked points of all batches, as parallel arrays; each (batch, cell) stands once.

    The estimate is `sum weight * score` over all entries. Everything here is public. The
    sensitivity relies on what is checked here, so nothing can be built that breaks it. Points with
    the same entries are equal: what was simulated for one round serves the next.
    """

    batches: int  # T
    cells: Ints  # x, increasing within a batch
    batch: Ints  # t, not decreasing
    pi: Floats  # Pi(x)
    weights: Floats  # design weight, 1/(mT) per draw for i.i.d. points
    draws: Ints  # how often the design drew x for batch t (1 unless i.i.d.)
    pi_min: float  # the reference's smallest probability above 0
    sampling_variance: float = 0.0  # of the estimate per unit of mean squared score, at most
    pooled: bool = False  # whether the counts of one cell in several batches are added up
    _digest: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_positive_int(self.batches, "batches")
        for name in ("cells", "batch", "draws"):
            object.__setattr__(self, name, check_counts(getattr(self, name), name))
        for name in ("pi", "weights"):
            object.__setattr__(self, name, check_finite_list(getattr(self, name), name).copy())
        sizes = {len(self.cells), len(self.batch), len(self.pi), len(self.weights), len(self.draws)}
        if len(sizes) > 1 or not len(self.cells):
            raise InvalidInputError("Cells, batches and weights must be equally many, at least 1.")
        if np.any(self.pi <= 0) or np.any(self.pi > 1) or np.any(self.draws < 1):
            raise InvalidInputError("Every point needs a probability in (0, 1] and a draw.")
        self._check_batches()
        if self.pooled:
            self._check_pooled()
        for array in self._arrays:
            array.flags.writeable = False
        content = [array.tobytes() for array in self._arrays] + [np.array(self._numbers).tobytes()]
        digest = hashlib.blake2b(b"".join(content), digest_size=7).digest()
        object.__setattr__(self, "_digest", int.from_bytes(digest))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: to the last bit, on every machine."""
        names = [each.name for each in fields(self) if each.init]
        found = {name: getattr(self, name) for name in names}
        return {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in found.items()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "QueryPoints":
        """The very same points again."""
        try:
            return cls(**document)
        except TypeError:
            raise InvalidInputError("The points have missing or unknown fields.") from None

    @property
    def _arrays(self) -> tuple[Floats | Ints, ...]:
        return self.cells, self.batch, self.pi, self.weights, self.draws

    @property
    def _numbers(self) -> tuple[float, ...]:
        return float(self.batches), self.pi_min, self.sampling_variance, float(self.pooled)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QueryPoints):
            return NotImplemented
        return (
            self._digest == other._digest
            and self._numbers == other._numbers
            and all(map(np.array_equal, self._arrays, other._arrays))
        )

    def __hash__(self) -> int:
        return self._digest

    def _check_pooled(self) -> None:
        order = np.argsort(self.cells, kind="stable")
        same = np.diff(self.cells[order]) == 0
        if np.any(same & (np.diff(self.weights[order]) != 0)):
            raise InvalidInputError("A pooled cell needs the same weight in each of its batches.")

    def _check_batches(self) -> None:
        if not np.array_equal(np.unique(self.batch), np.arange(self.batches)):
            raise InvalidInputError(f"Each of the batches 0 .. {self.batches - 1} needs a point.")
        next_batch, next_cell = np.diff(self.batch), np.diff(self.cells)
        if np.any((next_batch == 0) & (next_cell == 0)):
            raise InvalidInputError("A batch is asked the same point twice; merge the weights.")
        if np.any(next_batch < 0) or np.any((next_batch == 0) & (next_cell < 0)):
            raise InvalidInputError("Points must be sorted by batch and cell; use `build`.")

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def payload(self) -> int:
        """Counts each client reports: the largest number of distinct points of a batch."""
        return int(np.bincount(self.batch, minlength=self.batches).max())

    @classmethod
    def build(
        cls,
        probabilities: npt.ArrayLike,
        *,
        cells: npt.ArrayLike,
        batch: npt.ArrayLike,
        weights: npt.ArrayLike,
        draws: npt.ArrayLike | None = None,
        batches: int = 1,
        sampling_variance: float = 0.0,
        pooled: bool = False,
    ) -> "QueryPoints":
        """Points chosen by hand, in any order: inside the domain, Pi(x) > 0, once per batch."""
        distribution = check_probabilities(probabilities, "probabilities")
        asked, of_batch = check_counts(cells, "cells"), check_counts(batch, "batch")
        weight = check_finite_list(weights, "weights")
        drawn = np.ones(len(asked), np.int64) if draws is None else check_counts(draws, "draws")
        if not len(asked) == len(of_batch) == len(weight) == len(drawn):
            raise InvalidInputError("Cells, batches and weights must be equally many.")
        if asked.max(initial=0) >= len(distribution):
            raise InvalidInputError(
                f"Point {asked.max()} is outside the domain 0 .. {len(distribution) - 1}."
            )
        pi = distribution[asked]
        if np.any(pi <= 0):
            raise InvalidInputError(
                f"Point {asked[pi <= 0][0]} has probability 0 under the reference, so it cannot "
                "be asked. Draw points from the reference."
            )
        order = np.lexsort((asked, of_batch))
        return cls(
            batches=batches,
            cells=asked[order],
            batch=of_batch[order],
            pi=pi[order],
            weights=weight[order],
            draws=drawn[order],
            pi_min=float(distribution[distribution > 0].min()),
            sampling_variance=sampling_variance,
            pooled=pooled,
        )


def iid_points(
    probabilities: npt.ArrayLike, points: int, *, batches: int, rng: np.random.Generator
) -> QueryPoints:
    """The paper's design: `points` (m) i.i.d. draws from Pi for each of `batches` (T) batches.

    A cell drawn k times for a batch is asked once, with weight k/(mT).  [alg:sys_tagg]
    Cost: one pass over the domain and a binary search per draw.
    """
    m, n_batches = check_positive_int(points, "points"), check_positive_int(batches, "batches")
    pi = check_probabilities(probabilities, "probabilities")
    cumulative = np.cumsum(pi)
    drawn = np.searchsorted(cumulative, rng.random(m * n_batches) * cumulative[-1], side="right")
    keys = np.repeat(np.arange(n_batches), m) * len(pi) + drawn
    distinct, draws = np.unique(keys, return_counts=True)
    return QueryPoints.build(
        pi,
        cells=distinct % len(pi),
        batch=distinct // len(pi),
        weights=draws / (m * n_batches),
        draws=draws,
        batches=n_batches,
        sampling_variance=1 / (m * n_batches),
    )


def distinct_points(
    probabilities: npt.ArrayLike, points: int, *, batches: int = 1, rng: np.random.Generator
) -> QueryPoints:
    """mT distinct points by systematic PPS, dealt out at random, m (`points`) to each batch.

    A cell is asked with probability `i(x) = min(1, k Pi(x))`, sum i = mT, and weighs
    `Pi(x) / i(x)` (Horvitz-Thompson), so the estimate stays unbiased while heavy cells are never
    asked twice. Systematic draws follow the domain's order, which spreads them over it.
    Cost: two passes over the domain; no sort of it.
    """
    m, n_batches = check_positive_int(points, "points"), check_positive_int(batches, "batches")
    pi = check_probabilities(probabilities, "probabilities")
    inclusion = inclusion_probabilities(pi, m * n_batches)
    asked = systematic_sample(inclusion, rng.random())
    return QueryPoints.build(
        pi,
        cells=asked,
        batch=rng.permutation(np.repeat(np.arange(n_batches), m)),
        weights=pi[asked] / inclusion[asked],
        batches=n_batches,
        sampling_variance=_sampling_variance(pi, inclusion),
    )


def spread_points(
    probabilities: npt.ArrayLike,
    points: int,
    *,
    batches: int,
    exponent: float = 0.5,
    rng: np.random.Generator,
) -> QueryPoints:
    """Every cell is asked of as many batches as it needs; m (`points`) of them to each batch.

    Cell x is asked of a share `f(x) = min(1, k Pi(x)^exponent)` of the batches, sum f = m, and its
    counts are pooled: heavy cells, which set the noise, are asked of everybody, light ones of a
    few batches. Where T f(x) < 1, the cell is asked of one batch with that probability and weighs
    `Pi(x) / (T f(x))` (Horvitz-Thompson). With one batch this is `distinct_points`, for exponent 1.
    Cost: a few passes over the domain.
    """
    m, n_batches = check_positive_int(points, "points"), check_positive_int(batches, "batches")
    pi = check_probabilities(probabilities, "probabilities")
    wanted = n_batches * spread_shares(pi, m, exponent)
    copies = np.floor(wanted + 1e-9).astype(np.int64)
    copies[systematic_sample(np.maximum(wanted - copies, 0.0), rng.random())] += 1
    asked = rng.permutation(np.flatnonzero(copies))
    cells = np.repeat(asked, copies[asked])
    # Dealt in turn, the (at most T) copies of a cell go to different batches, and each batch
    # gets m. Clients are dealt to batches at random, so this order decides nothing.
    inclusion = np.minimum(wanted, 1.0)
    return QueryPoints.build(
        pi,
        cells=cells,
        batch=np.arange(len(cells)) % n_batches,
        weights=pi[cells] / inclusion[cells],
        batches=n_batches,
        sampling_variance=_sampling_variance(pi, inclusion),
        pooled=True,
    )


def _sampling_variance(pi: Floats, inclusion: Floats) -> float:
    """Of the estimate per unit of mean squared score, at most: max (1 - i(x)) Pi(x) / i(x)."""
    some = inclusion > 0
    return float(np.max((1 - inclusion[some]) * pi[some] / inclusion[some], initial=0.0))


def spread_shares(pi: Floats, points: int, exponent: float) -> Floats:
    """f(x) = min(1, k Pi(x)^exponent), the share of the batches asked for x; they sum to m."""
    if not 0 <= exponent <= 1:
        raise InvalidInputError(f"The exponent lies between 0 and 1, got {exponent}.")
    sizes = np.where(pi > 0, pi**exponent, 0.0)
    return inclusion_probabilities(sizes / sizes.sum(), points)


def all_points(probabilities: npt.ArrayLike) -> QueryPoints:
    """Every cell with Pi(x) > 0, for one batch: no sampling error, the largest payload."""
    pi = check_probabilities(probabilities, "probabilities")
    asked = np.flatnonzero(pi > 0)
    return QueryPoints.build(pi, cells=asked, batch=np.zeros_like(asked), weights=pi[asked])


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
    hits = np.minimum(hits, len(uncertain) - 1)  # a start just below 1 may round up to the end
    return np.sort(np.concatenate([certain, uncertain[hits]])).astype(np.int64)
