"""What a release says: the answer to each question and about each column, and noisy counts."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts, Witness
from fedprikl.reference import QueryPoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An estimate of one divergence between the reference Pi and the records P of the clients.

    `value` estimates `target`, as D(Pi || (1 - s) P + s Pi) for a skew of s, and `interval` is
    its 95% interval; `guaranteed` covers for every population, not only for those that were tried.
    All account for the noise that `mechanism` names.  [alg:sys_tagg]
    `no_drift` is what the value would be on average if nothing had drifted: few records differ from
    Pi by chance.

    >>> answer = Answer(
    ...     divergence="kl",
    ...     value=0.5,
    ...     interval=(0.25, 0.75),
    ...     no_drift=0.125,
    ...     target="D(Pi || 0.01 Pi + 0.99 P)",
    ...     unit="nats",
    ...     mechanism="Laplace noise of scale 0.2693",
    ... )
    >>> answer.value, answer.no_drift
    (0.5, 0.125)
    """

    divergence: str  # its name
    value: float
    interval: tuple[float, float] | None  # 95%; None where it is not known
    guaranteed: tuple[float, float] | None = None  # 95% for every population, where it is known
    no_drift: float | None = None  # mean of the value without drift; None where it is not known
    target: str  # the divergence as a formula, smoothing included
    unit: str
    mechanism: str  # the noise, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAnswer:
    """One category or bin of a column: its share in the reference, and among the records."""

    label: str  # what a person calls it
    reference: float  # Pi(x), a share of 1
    count: float  # of the records, with noise
    share: float  # of the records, from all noisy counts of the column
    interval: tuple[float, float]  # 95%, of that share
    moved: Literal["up", "down", ""] = ""  # "": cannot be told from no change


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAnswer:
    """Whether one column has drifted, by how much, and which of its cells moved. Public.

    >>> column = ColumnAnswer(
    ...     columns=("carrier",),
    ...     witnesses=(Witness(name="tv", statistic=0.2, threshold=0.1, unit=""),),
    ...     answers=(),
    ...     cells=(),
    ...     rest=0.0,
    ...     noise_sd=3.0,
    ...     design_effect=1.0,
    ... )
    >>> column.name, column.drifted
    ('carrier', True)
    """

    columns: tuple[str, ...]  # one, or a pair
    witnesses: tuple[Witness, ...]  # beside thresholds for all columns together; none: no verdict
    answers: tuple[Answer, ...]  # how much: tv and kl, read off the noisy counts
    cells: tuple[CellAnswer, ...]  # in the order of the reference
    rest: float  # noisy count of records in none of these cells
    noise_sd: float  # of the noise on each count
    design_effect: float | None  # None: not known, records of one client are taken as unrelated

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidInputError("An answer about columns names one or more.")

    @property
    def drifted(self) -> bool | None:
        """At the false-alarm rate over all columns; None where it could not be computed."""
        return any(witness.speaks for witness in self.witnesses) if self.witnesses else None

    @property
    def name(self) -> str:
        """The column's name; of a pair, both."""
        return " and ".join(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        content = {field.name: to_plain(getattr(self, field.name)) for field in fields(self)}
        return content | {"drifted": self.drifted}

    def answer(self, divergence: str) -> Answer | None:
        """How much, in this divergence."""
        return next((each for each in self.answers if each.divergence == divergence), None)


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
