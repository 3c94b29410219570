"""Rows: where values come from, column by column, some rows at a time.

`Source` is what a data frame, a file and a table of a database have in common. Whatever is a source
can become a reference, and be counted: a new one needs nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, islice
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from fedprikl.errors import FedPriKLError, InvalidInputError, RecordsError
from fedprikl.libraries import narwhals as nw
from fedprikl.libraries import pyarrow
from fedprikl.reference.columns import Values
from fedprikl.reference.values import Odd

Mask = npt.NDArray[np.bool_]
LAZY_ROWS = 65_536  # of a lazy frame at a time


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, column by column, and the numbers of the lines that cannot be read.

    If rows are selected by their times, also what the time of each of these lines may be. `lines`
    are what stands there, for `Source.guesses`; left out, nobody can tell whose they are.
    """

    columns: dict[str, Values] = field(repr=False)
    unreadable: Sequence[int] = ()
    loose: Sequence[tuple[str, ...]] = field(default=(), repr=False)  # of each of these lines
    lines: Sequence[bytes] = field(default=(), repr=False)  # the same

    @property
    def rows(self) -> int:
        """How many rows can be read."""
        return len(next(iter(self.columns.values()), ()))

    def taken(self, inside: Mask, columns: Iterable[str] | None = None) -> dict[str, Values]:
        """The values of some rows, in some columns or in all."""
        names = self.columns if columns is None else columns
        return {name: _taken(self.columns[name], inside) for name in names}


def _taken(values: Values, inside: Mask) -> Values:
    if isinstance(values, np.ndarray):
        return values[inside]
    return list(compress(values, inside.tolist()))


class Source(ABC):
    """Rows with named columns, which can be read again and again."""

    where: str  # what people call it, at the beginning of a sentence
    names: tuple[str, ...]  # of the columns
    texts: ClassVar[bool] = False  # whether all values are texts, of numbers and times too
    error: ClassVar[type[FedPriKLError]] = RecordsError  # raised where it cannot be used

    @abstractmethod
    def chunks(self, columns: Sequence[str], *, times: str | None = None) -> Iterator[Chunk]:
        """The values of some columns, for all rows, a bounded number of rows at a time.

        No value may raise, and none may change how another is read. If rows will be selected by a
        column of `times`, those that are still being written are left out, and lines that cannot
        be read come with what their time may be.
        """

    def is_aware(self, column: str) -> bool:  # noqa: ARG002
        """Whether times of the column are instants, and not what some clock showed."""
        return False

    def guesses(self, line: bytes, column: str) -> tuple[str, ...]:  # noqa: ARG002
        """What a column may hold in a line that cannot be read, the likeliest first.

        A record is its client's whatever else stands in it: who it belongs to is public, and
        whether all of its line can be read is not.
        """
        return ()

    def advice(self) -> str:
        """What to do if a column is lacking."""
        return ""

    def require(self, wanted: Iterable[str]) -> None:
        """Refuses a source without these columns, naming those that it lacks."""
        lacking = [name for name in dict.fromkeys(wanted) if name not in self.names]
        if lacking:
            raise self.error(
                f"{self.where} has no column {quoted_names(lacking)}; it has "
                f"{quoted_names(self.names)}.{self.advice()}"
            )


class FrameSource(Source):
    """A data frame of any library: pandas, polars, pyarrow, ...; eager or lazy."""

    where, error = "The data frame", InvalidInputError

    def __init__(self, frame: Any) -> None:
        self.frame = any_frame(frame)
        self.names = tuple(self.frame.collect_schema().names())
        if not all(isinstance(name, str) for name in self.names):
            raise InvalidInputError("Columns must have names that are texts. Rename them first.")

    def chunks(self, columns: Sequence[str], *, times: str | None = None) -> Iterator[Chunk]:  # noqa: ARG002
        """All rows at once; of a lazy frame, whose query runs now, some at a time."""
        if isinstance(self.frame, nw.DataFrame):
            yield _chunk(self.frame, columns)
            return
        try:
            for part in _parts(self.frame.select(*columns).to_native()):
                yield part if isinstance(part, Chunk) else _chunk(any_frame(part), columns)
        except FedPriKLError:
            raise
        except Exception as error:  # its words may quote records
            raise RecordsError(
                f"The lazy frame cannot be read ({type(error).__name__}). Nothing was counted. "
                "Collect it to see why."
            ) from None


def _chunk(frame: Any, columns: Sequence[str]) -> Chunk:
    return Chunk({name: column_values(frame[name]) for name in columns})


def _parts(native: Any) -> Iterator[Any]:
    """What a lazy frame holds, in eager frames of a bounded number of rows where it can."""
    if hasattr(native, "collect_batches"):  # polars
        yield from native.collect_batches(chunk_size=LAZY_ROWS)
    elif hasattr(native, "to_arrow_reader"):  # a relation of DuckDB
        yield from map(_as_table, native.to_arrow_reader(LAZY_ROWS))
    elif hasattr(native, "to_pyarrow_batches"):  # ibis
        yield from map(_as_table, native.to_pyarrow_batches(chunk_size=LAZY_ROWS))
    elif hasattr(native, "toLocalIterator"):  # PySpark, one partition after the other
        rows = iter(native.toLocalIterator())
        while part := list(islice(rows, LAZY_ROWS)):
            yield Chunk(dict(zip(native.columns, map(list, zip(*part, strict=True)), strict=True)))
    else:
        yield nw.from_native(native).collect().to_native()


def _as_table(batch: Any) -> Any:
    return pyarrow.Table.from_batches([batch])


def quoted_names(names: Iterable[str]) -> str:
    """Column names for people."""
    return ", ".join(map(repr, names))


def any_frame(records: Any) -> "nw.DataFrame[Any] | nw.LazyFrame[Any]":
    """Any data frame behind one interface."""
    try:
        frame: nw.DataFrame[Any] | nw.LazyFrame[Any] = nw.from_native(records)
        return frame
    except TypeError:
        raise InvalidInputError(
            f"Expected a data frame (pandas, polars, pyarrow, ...), got {type(records).__name__}."
        ) from None
    except nw.exceptions.NarwhalsError as error:
        raise InvalidInputError(f"This data frame cannot be read: {error}") from None


def check_types(frame: "nw.DataFrame[Any] | nw.LazyFrame[Any]", names: Iterable[str]) -> None:
    """Refuses polars columns of Python objects, which polars supports only in part."""
    if not frame.implementation.is_polars():
        return
    odd = [name for name in names if frame.collect_schema().get(name) == nw.Object]
    if odd:
        raise InvalidInputError(
            f"Column {', '.join(map(repr, odd))} of the polars frame has the type Object. Cast it "
            "to texts or numbers, or give it a type when you build the frame."
        )


def column_values(series: "nw.Series[Any]") -> Values:
    """The values of a column: an array of numbers or moments where it is one, or a list.

    Which of the two makes no difference to a value's level. Nothing in a column may raise: a value
    its library cannot hand out is `Odd`.
    """
    kind = series.dtype
    if kind.is_integer() or kind.is_float() or isinstance(kind, nw.Datetime | nw.Date):
        try:
            array = series.to_numpy()
            if array.dtype.kind in "iufM":
                return array
        except Exception:  # noqa: S110  such as numbers of 128 bits: one by one, then
            pass
    listed = _or_odd(series.to_list)
    if listed is not Odd.VALUE:
        return cast(list[Any], listed)
    return [_or_odd(partial(series.item, row)) for row in range(len(series))]


def _or_odd(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BaseException as error:  # polars panics with a BaseException of its own
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
            raise
        return Odd.VALUE
