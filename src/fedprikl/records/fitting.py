"""Pi from a public CSV or Parquet file, without a data-frame library."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records.data_files import (
    CsvFormat,
    DataFile,
    data_files,
    is_csv,
    open_file,
    quoted_names,
    require_columns,
)
from fedprikl.reference import Reference
from fedprikl.reference.columns import Values
from fedprikl.reference.fit import check_lists, compared_columns, fit_table, fit_views
from fedprikl.reference.values import MISSING_TEXTS


def fit_reference(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    bins: int = 10,
    categorical: Iterable[str] = (),
    clients: str | None = None,
    missing: Iterable[str] = MISSING_TEXTS,
    pairs: Sequence[tuple[str, str]] = (),
    joint: bool | None = None,
    format: CsvFormat | None = None,  # noqa: A002
    note: Callable[[str], None] | None = None,
) -> Reference:
    r"""Pi of a public CSV or Parquet file; the same as `Reference.fit` of its rows.

    A CSV has no types: a column is one of numbers if every present value is a number and none has
    a leading zero, and one of times if every present value is a date or time. `missing` are the
    texts that stand for a gap: they become part of the reference, so that clients read their files
    by the same rule. `pairs` and `joint` are those of `Reference.fit`. `note` is called with
    remarks on columns that look odd.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "public.csv")
    ...     _ = path.write_text("plan\nbasic\nbasic\nplus\nNA\n")
    ...     reference = fit_reference(path)
    >>> [reference.domain.label(cell) for cell in range(reference.domain.size)]
    ['plan=basic', 'plan=plus', 'plan=missing', 'other']
    >>> reference.probabilities.tolist()
    [0.5, 0.25, 0.25, 0.0]
    """
    check_positive_int(bins, "bins")
    check_lists(columns=columns, categorical=categorical, missing=missing)
    files = data_files(Path(path))
    if Path(path).is_dir():
        raise InvalidInputError(f"{path} is a folder. Give one public file.")
    file = open_file(files[0], format or CsvFormat())
    names = compared_columns(file.names, columns, clients)
    forced = set(categorical)
    ids = [] if clients is None else [clients]
    require_columns(file, [*names, *sorted(forced), *ids])
    stray = sorted(forced - set(names))
    if stray:
        raise InvalidInputError(
            f"Categorical {quoted_names(stray)} is not among the columns {quoted_names(names)}."
        )
    wanted = list(dict.fromkeys([*names, *ids]))
    table = fit_table(
        names,
        lambda: _whole_rows(file, wanted),
        bins=bins,
        categorical=forced,
        missing=missing,
        texts=is_csv(file.path),
        note=note,
    )
    rows = _whole_rows(file, wanted)
    return Reference(*fit_views(table, rows, clients, pairs=pairs, joint=joint))


def _whole_rows(file: DataFile, columns: Sequence[str]) -> Iterator[dict[str, Values]]:
    """The rows of public data, in which a line that cannot be read is worth a word."""
    for chunk in file.chunks(columns):
        if chunk.unreadable:
            raise RecordsError(
                f"{file.path} is not a well-formed CSV file at line {chunk.unreadable[0]}. Every "
                f"row needs as many fields as the header ({len(file.names)}), with quotes closed "
                "on the same line, in the encoding of the file. Correct or remove the line."
            )
        yield chunk.columns
