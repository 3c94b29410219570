"""The verdict with an untrusted aggregator: from noisy counts, which are public.

The estimate itself is a poor statistic here: the score of a noisy count is mostly bias. Drift
makes counts vary more than their sampling and the noise explain, and that can be tested.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.noisy_counts import CountsDesign
from fedprikl.estimation.statistic import COUNTS
from fedprikl.reference import QueryPoints, Spread

GROUPS = (2, 4, 8)  # of neighbouring cells, and of equally rare ones
GROUPED_DRAWS = 400  # populations that tell how groups vary without drift


def overdispersion(
    noisy: Floats,
    pi: Floats,
    records: Ints,
    noise_sd: Floats,
    *,
    design_effect: float | Floats = 1.0,
) -> Floats:
    """U, the score statistic for counts that vary more than they should; near 0 without drift.

        U = sum_x N Pi / var^2 [ (h - N Pi)^2 - var ],   var = noise^2 + d N Pi (1 - Pi)

    Without noise it is Pearson's chi-square statistic, which finds a drift of some KL about equally
    well in whatever cells it is. Cells that the noise exceeds have the less weight the rarer
    they are: they can tell nothing. Cells in which clients differ most have the largest d and count
    less. `noisy` may have leading axes; all else is per term.
    """
    mean = records * pi
    return _excess(noisy, mean, noise_sd**2 + design_effect * mean * (1 - pi))


def _excess(noisy: Floats, mean: Floats, variance: Floats) -> Floats:
    if np.any(variance <= 0):
        raise InvalidInputError("A count without noise or spread tells nothing; leave it out.")
    terms = mean / variance**2 * ((noisy - mean) ** 2 - variance)
    return np.asarray(terms.sum(axis=-1), dtype=np.float64)


class _Groups:
    """Cells that often drift together, counted together: 2, 4 and 8 groups of the terms.

    Neighbours in the order of the reference (bins of a number, an hour and the next one), and in
    the order of Pi (rare cells). The noise of a group's cells averages out, a common drift adds up.
    """

    def __init__(self, model: NoDrift) -> None:
        rare = np.argsort(model.pi, kind="stable")
        cells = np.arange(len(rare)) if model.cells is None else model.cells
        placed = np.argsort(cells, kind="stable")  # batches may count one cell apart
        self.orders = (placed, rare)
        # Without noise. Clients move the cells of a group together, so it is simulated.
        counts = model.counts(GROUPED_DRAWS, public_simulation())
        self.spread = self.sums(counts).var(axis=0)

    def sums(self, values: Floats | Ints) -> Floats:
        """Values of the terms (last axis), added up in every group."""
        found = []
        for order in self.orders:
            for number in GROUPS:
                if number < len(order):
                    starts = np.arange(number) * len(order) // number
                    found.append(np.add.reduceat(values[..., order], starts, axis=-1))
        if not found:
            return np.zeros((*values.shape[:-1], 0))
        return np.concatenate(found, axis=-1, dtype=np.float64)


def _unrelated(model: NoDrift) -> bool:
    """Whether records of one client are taken as unrelated."""
    spread = model.spread
    return spread.correlation is None if isinstance(spread, Spread) else spread == 1


@lru_cache(maxsize=2)  # one model serves all populations of a simulation
def _groups_of(model: NoDrift) -> _Groups:
    return _Groups(model)


def variation(noisy: Floats, model: NoDrift, noise_sd: Floats) -> Floats:
    """U of noisy counts, one per term of the model, plus U of the counts of groups of cells.

    Near 0 without drift. `noisy` may have leading axes. Groups are left out where clients' records
    are known to be alike, as a precaution: what clients have in common could add up in a group as
    drift does, and be too little in each cell to be measured there.
    """
    records = model.records_per_term
    alone = overdispersion(noisy, model.pi, records, noise_sd, design_effect=model.design_effects)
    if not _unrelated(model):
        return alone
    groups = _groups_of(model)
    mean, variance = groups.sums(records * model.pi), groups.sums(noise_sd**2) + groups.spread
    return np.asarray(alone + _excess(groups.sums(noisy), mean, variance))


@dataclass(frozen=True, slots=True, eq=False)
class VariationStatistic:
    """U of public noisy counts. Its `name` is "counts": it is no divergence."""

    design: CountsDesign
    counts: Floats  # per point
    name: ClassVar[str] = COUNTS
    unit: ClassVar[str] = ""
    mechanism: ClassVar[None] = None

    @property
    def points(self) -> QueryPoints:
        """The asked cells."""
        return self.design.points

    @property
    def records(self) -> Ints:
        """N_t, per batch."""
        return self.design.records

    def observed(self, model: NoDrift) -> float:
        """U of the released counts."""
        return float(variation(self.counts, model, self._noise_sd))

    def simulated(self, model: NoDrift, counts: Ints, rng: np.random.Generator) -> Floats:
        """U of simulated counts with noise of the same law."""
        noisy = counts + self.design.draw_noise(rng, len(counts))[0]
        return variation(noisy, model, self._noise_sd)[:, None]

    @property
    def _noise_sd(self) -> Floats:
        return self.design.noise_sd[self.points.batch]
