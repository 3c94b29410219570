"""The noisy counts that a release without a trusted party carries."""

from dataclasses import dataclass

import numpy as np

from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts
from fedprikl.reference import QueryPoints

__all__ = ["CountNoise", "ReleasedCounts"]


@dataclass(frozen=True, slots=True)
class CountNoise:
    """The law of the noise on each count; its standard deviation stands beside the counts."""

    kind: str  # "gaussian" or "laplace"
    scale: float | None = None  # of one discrete Laplace variable
    sums: tuple[float, ...] = ()  # per batch, how many such variables each count carries


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedCounts:
    """Noisy counts, from which anybody may compute any other divergence. Public.

    >>> counts = ReleasedCounts(
    ...     batch=(0, 0),
    ...     cells=(3, 7),
    ...     counts=(12.0, -1.0),
    ...     rest=(30.0,),
    ...     records=(40,),
    ...     noise_sd=(2.5,),
    ...     noise=CountNoise("gaussian"),
    ... )
    >>> counts.counts[1]
    -1.0
    """

    batch: tuple[int, ...]  # per asked cell
    cells: tuple[int, ...]
    counts: tuple[float, ...]
    rest: tuple[float, ...]  # per batch: records in all other cells
    records: tuple[int, ...]  # per batch, without noise
    noise_sd: tuple[float, ...]  # per batch, of the noise on each count
    noise: CountNoise

    def __post_init__(self) -> None:
        batches = len(self.records)
        if not (
            len(self.batch) == len(self.cells) == len(self.counts)
            and len(self.rest) == len(self.noise_sd) == batches
            and len(self.noise.sums) in (0, batches)
        ):
            raise InvalidInputError("The noisy counts of a release do not fit its batches.")

    def read(self, points: QueryPoints) -> NoisyCounts:
        """The noisy counts again, given the points they were asked with, in the same order."""
        if (self.batch, self.cells) != (tuple(points.batch), tuple(points.cells)):
            raise InvalidInputError("The noisy counts of a release are not sorted by its points.")
        return NoisyCounts(
            points=points,
            counts=np.array(self.counts),
            rest=np.array(self.rest),
            records=np.array(self.records),
            noise_sd=np.array(self.noise_sd),
            laplace_scale=self.noise.scale,
        )

    @classmethod
    def of(cls, noisy: NoisyCounts) -> "ReleasedCounts":
        """The noisy counts of a round, without what follows from the reference."""
        noise = CountNoise("gaussian")
        if noisy.laplace_scale is not None:
            noise = CountNoise("laplace", noisy.laplace_scale, tuple(noisy.laplace_sums.tolist()))
        return cls(
            batch=tuple(noisy.points.batch.tolist()),
            cells=tuple(noisy.points.cells.tolist()),
            counts=tuple(noisy.counts.tolist()),
            rest=tuple(noisy.rest.tolist()),
            records=tuple(noisy.records.tolist()),
            noise_sd=tuple(noisy.noise_sd.tolist()),
            noise=noise,
        )
