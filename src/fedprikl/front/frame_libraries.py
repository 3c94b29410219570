"""Data frames for users: of pandas, polars or pyarrow, whichever they have."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw

from fedprikl.errors import InvalidInputError, MissingExtraError

__all__ = ["FrameLibrary", "frame_of"]

FrameLibrary = Literal["pandas", "polars", "pyarrow"]


def frame_of(rows: Sequence[Mapping[str, Any]], library: FrameLibrary | None = None) -> Any:
    """A frame of the rows, by default of the first library imported already, or installed."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return nw.from_dict(columns, backend=_library(library)).to_native()


def _library(wanted: str | None) -> FrameLibrary:
    known = get_args(FrameLibrary)
    if wanted is not None and wanted not in known:
        raise InvalidInputError(f"Frames are of pandas, polars or pyarrow, got {wanted!r:.40}.")
    choices = known if wanted is None else (wanted,)
    for name in sorted(choices, key=lambda name: name not in sys.modules):
        if importlib.util.find_spec(name) is not None:
            return name  # type: ignore[no-any-return]
    raise MissingExtraError(
        f"A frame needs {' or '.join(choices)}, which is not installed. `to_dict` needs nothing."
    )
