"""Data frames of any library, behind one interface."""

from collections.abc import Iterable
from typing import Any

import narwhals.stable.v2 as nw

from fedprikl.errors import InvalidInputError
from fedprikl.reference.columns import Values
from fedprikl.reference.values import Odd


def eager_frame(records: Any) -> "nw.DataFrame[Any]":
    """Any eager data frame behind one interface."""
    try:
        frame = nw.from_native(records)
    except TypeError:
        raise InvalidInputError(
            f"Expected a data frame (pandas, polars, pyarrow, ...), got {type(records).__name__}."
        ) from None
    except nw.exceptions.NarwhalsError as error:
        raise InvalidInputError(f"This data frame cannot be read: {error}") from None
    eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    if not all(isinstance(name, str) for name in eager.columns):
        raise InvalidInputError("Columns must have names that are texts. Rename them first.")
    return eager


def check_types(frame: "nw.DataFrame[Any]", names: Iterable[str]) -> None:
    """Refuses polars columns of Python objects, which polars supports only in part."""
    if not frame.implementation.is_polars():
        return
    odd = [name for name in names if frame.schema.get(name) == nw.Object]
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
    try:
        return series.to_list()
    except BaseException as error:  # polars panics with a BaseException of its own
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
            raise
    return [_item(series, row) for row in range(len(series))]


def _item(series: "nw.Series[Any]", row: int) -> Any:
    try:
        return series.item(row)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
            raise
        return Odd.VALUE
