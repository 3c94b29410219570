"""Reference: the public distribution Pi over a finite domain."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_counts, check_positive_int, check_probabilities
from fedprikl.errors import InvalidInputError
from fedprikl.reference import files
from fedprikl.reference.columns import OUT_OF_DOMAIN, Categories
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import (
    BlockCode,
    Domain,
    Indices,
    Table,
    ViewKind,
    all_codes,
    read_levels,
)
from fedprikl.reference.fit import (
    Every,
    ReferenceTimes,
    compared_columns,
    fit_table,
    fit_views,
    public_rows,
)
from fedprikl.reference.rows import FrameSource, Source
from fedprikl.reference.values import MISSING_TEXTS, level_text
from fedprikl.reference.views import View, check_views

OLD_NAME = "Reference.fit(clients=...) is now called `client`, as in `compare`: client={!r:.60}."


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Pi, the public distribution that the private population is compared with.

    Everything in it is public: it is sent to every client. The cells of its `whole` are the
    combinations of values (or bins of them) that were seen; all other records are out of the
    domain, and counted as "other".

    A table of several columns has more `views`: the distribution of each column by itself, and of
    the pairs that were named. Where the combinations of all columns are too many to be compared,
    the whole has no cells (`joint`).

    >>> reference = Reference.from_counts({"red": 3, "blue": 1})
    >>> reference.probabilities.tolist()  # red, blue, and "other"
    [0.75, 0.25, 0.0]
    >>> reference
    Reference(2 cells and 'other', 2 with probability above 0)
    """

    whole: View
    views: tuple[View, ...] = ()  # one per column, then the named pairs
    _fingerprint: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        check_views(self.whole, self.views)

    @classmethod
    def fit(
        cls,
        data: Any,
        *,
        columns: Sequence[str] | None = None,
        bins: int = 10,
        categorical: Iterable[str] = (),
        client: str | None = None,
        missing: Iterable[str] = MISSING_TEXTS,
        pairs: Sequence[tuple[str, str]] = (),
        views: Sequence[Callable[[Table], ViewKind]] = (),
        joint: bool | None = None,
        times: str | None = None,
        periods: Every = "week",
        note: Callable[[str], None] | None = None,
        clients: str | None = None,
    ) -> "Reference":
        """Pi of public rows: a data frame (pandas, polars, pyarrow, ...), or any other `Source`.

        `columns` are the fields to compare (default: all). Columns of numbers, dates or times with
        more than `bins` distinct values are cut at their quantiles, unless listed in `categorical`;
        all others are categories. Each combination of levels that occurs becomes a cell.
        `client` names a column of client ids, which is not compared but shows how correlated
        one client's records are; `clients` is its old name. `times` names a column of times: a
        series then takes differences that the `periods` of the reference have among themselves
        (day, week, month or quarter) for ordinary; by default it is not compared. `missing` are the
        texts that stand for a gap, here and at clients; `note` is called with remarks on columns
        that look odd, which are warnings by default.

        With several columns, each is a view of its own, and so is each of the `pairs` of columns.
        `views` make views of other kinds from the table (`ViewKind`).
        `joint` says whether the combinations of all columns are cells. By default they are, unless
        there are more than 2^62, or more than 4096 occur and more than half as many as records.

        >>> import polars as pl
        >>> public = pl.DataFrame({"plan": ["basic", "basic", "plus"], "age": [20, 30, 40]})
        >>> reference = Reference.fit(public, columns=["plan"])
        >>> [reference.domain.label(cell) for cell in range(reference.domain.size)]
        ['plan=basic', 'plan=plus', 'other']
        >>> reference = Reference.fit(public, pairs=[("plan", "age")])
        >>> [(view.columns, view.labels[0]) for view in reference.views]
        [(('plan',), 'basic'), (('age',), '20'), (('plan', 'age'), 'plan=basic, age=20')]
        """
        check_positive_int(bins, "bins")
        lists = {"columns": columns, "categorical": categorical, "missing": missing}
        for option, given in lists.items():
            if isinstance(given, str):  # its letters would be taken one by one
                raise InvalidInputError(f"Give a list: {option}=[{given!r:.40}].")
        if clients is not None:
            warnings.warn(OLD_NAME.format(clients), FutureWarning, stacklevel=2)
            if client not in (None, clients):
                raise InvalidInputError("`clients` is the old name of `client`: give one of both.")
            client = clients
        source, forced = data if isinstance(data, Source) else FrameSource(data), set(categorical)
        names = compared_columns(source, columns, forced, client, times)
        more = [name for name in (client, times) if name is not None]
        rows = partial(public_rows, source, [*names, *more])
        remarks: list[str] = []
        table = fit_table(
            names,
            rows,
            bins=bins,
            categorical=forced,
            missing=missing,
            texts=source.texts,
            note=note or remarks.append,
        )
        for remark in remarks:
            warnings.warn(remark, UserWarning, stacklevel=2)
        when = None if times is None else ReferenceTimes(times, periods)
        return cls(
            *fit_views(table, rows(), client, pairs=pairs, views=views, joint=joint, times=when)
        )

    @classmethod
    def fit_images(
        cls,
        images: npt.ArrayLike,
        *,
        code: BlockCode | None = None,
        clients: npt.ArrayLike | None = None,
    ) -> "Reference":
        """Pi of a stack of public images (n, side, side) under the paper's 16-bit block code.

        `clients` are the ids of those who made them, one per image: they show how
        correlated one client's images are.

        >>> white, black = np.full((28, 28), 255), np.zeros((28, 28))
        >>> Reference.fit_images(np.stack([white, black, black])).whole.mass.tolist()
        [1.0, 2.0, 0.0]
        """
        encoder = code or BlockCode()
        codes = encoder.encode(images)
        odd = np.count_nonzero(codes == OUT_OF_DOMAIN)
        if odd:
            raise InvalidInputError(
                f"{odd} images of the reference cannot be read: they contain nan, infinity or no "
                "numbers, or have another shape. Leave them out."
            )
        if not codes.size:
            raise InvalidInputError("The reference is empty. Give it at least one record.")
        seen, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
        found = None if clients is None else Correlation.estimate(clients, place)
        return cls(View(Domain(encoder, seen), np.append(counts, 0), found))

    @classmethod
    def from_counts(
        cls, counts: npt.ArrayLike | Mapping[str, int], *, other: int = 0
    ) -> "Reference":
        """Pi from counts: a mapping {category: count}, or a list whose positions are the cells.

        With a mapping, clients' records are a frame with the column "value"; with a list, they are
        cell numbers. `other` counts the reference's own records outside the cells. Instead of one
        count, a cell may have one per client, as a table with a row per client or as a mapping
        {category: counts of the clients}: they show how correlated one client's records are.

        >>> Reference.from_counts([3, 1]).count([0, 0, 1, 7]).tolist()  # 7 is in no cell
        [2, 1, 1]
        >>> held = [[9, 1], [0, 10], [8, 2], [1, 9]]  # of four clients in two cells
        >>> Reference.from_counts(held).whole.mass.tolist()
        [18.0, 22.0, 0.0]
        """
        if isinstance(counts, Mapping):
            masses, kind = _of_clients(list(counts.values()), by_cell=True)
            names = tuple(text for name in counts if (text := level_text(name)) is not None)
            if not names or len(set(names)) < len(counts):
                raise InvalidInputError("Give at least one category, and each only once.")
            missing = tuple(text for text in MISSING_TEXTS if text not in names)
            domain = Domain(Table((Categories("value", names),), missing), all_codes(len(names)))
        else:
            masses, kind = _of_clients(counts)
            if not masses.size:
                raise InvalidInputError(
                    "The reference is empty. Give the count of at least a cell."
                )
            domain = Domain(Indices(masses.size), all_codes(masses.size))
        return cls(View(domain, np.append(masses, check_counts([other], "other")), kind))

    @classmethod
    def from_probabilities(cls, probabilities: npt.ArrayLike) -> "Reference":
        """Pi from probabilities that sum to 1; clients' records are cell numbers.

        >>> Reference.from_probabilities([0.5, 0.5]).probabilities.tolist()
        [0.5, 0.5, 0.0]
        """
        masses = check_probabilities(probabilities, "probabilities")
        domain = Domain(Indices(masses.size), all_codes(masses.size))
        return cls(View(domain, np.append(masses, 0.0)))

    @classmethod
    def load(cls, path: str | Path) -> "Reference":
        """The reference in a file written by `save`; a damaged or foreign file is refused."""
        return cls(*files.read(path))

    @classmethod
    def of(cls, reference: "Reference | str | Path") -> "Reference":
        """The reference itself, or the one in a file; anything else is refused."""
        if isinstance(reference, cls):
            return reference
        if isinstance(reference, str | Path):
            return cls.load(reference)
        raise InvalidInputError(
            f"The reference is a Reference or the path of one, got {type(reference).__name__}. "
            "Make one of public records, for example with Reference.fit(frame)."
        )

    def save(self, path: str | Path) -> None:
        """Write the reference as JSON that a person can read and `load` can check."""
        files.write(path, self.whole, self.views)

    @property
    def domain(self) -> Domain:
        """How a record becomes a cell of the whole."""
        return self.whole.domain

    @property
    def joint(self) -> bool:
        """Whether combinations of all columns are cells; if not, only `views` can be compared."""
        return self.whole.size > 0

    @property
    def probabilities(self) -> Floats:
        """Pi(x) per cell of the whole, "other" last; sums to 1."""
        return self.whole.probabilities

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content: equal exactly if domain, masses, correlation and views are.

        >>> one, other = Reference.from_counts([3, 1]), Reference.from_counts([3, 2])
        >>> one.fingerprint == Reference.from_counts([3, 1]).fingerprint
        True
        >>> one.fingerprint == other.fingerprint
        False
        """
        if not self._fingerprint:  # computed once: every client of a round asks for it
            self._fingerprint.append(files.fingerprint(self.whole, self.views))
        return self._fingerprint[0]

    def encode(self, records: Any) -> Ints:
        """The cell of each record: rows of a frame, images, or cell numbers as in the reference.

        >>> Reference.from_counts([3, 1]).encode([1, 0, 9]).tolist()
        [1, 0, 2]
        """
        self._check_joint()
        return self.domain.cells(read_levels(self.domain.encoder, records))

    def count(self, records: Any) -> Ints:
        """h(x): how many records fall into each cell, "other" last."""
        self._check_joint()
        return self.domain.count(read_levels(self.domain.encoder, records))

    def count_views(self, records: Any) -> tuple[Ints, ...]:
        """Per view: how many rows of a frame fall into each of its cells, "other" last.

        >>> import polars as pl
        >>> public = pl.DataFrame({"plan": ["basic", "basic", "plus"], "age": [20, 30, 40]})
        >>> private = pl.DataFrame({"plan": ["plus", "plus"], "age": [20, 50]})
        >>> [counts.tolist() for counts in Reference.fit(public).count_views(private)]
        [[0, 2, 0], [1, 0, 0, 1]]
        """
        levels = read_levels(self.domain.encoder, records) if self.views else {}
        return tuple(view.domain.count(levels) for view in self.views)

    def _check_joint(self) -> None:
        if self.views and not self.joint:
            raise InvalidInputError(
                "This reference has no joint cells: its columns have too many combinations, or it "
                "was built without them. Count each column by itself with `count_views`."
            )

    def __repr__(self) -> str:
        if self.views and not self.joint:
            return f"Reference({len(self.views)} views of columns, no joint cells)"
        cells, seen = self.whole.size, int(np.count_nonzero(self.whole.mass))
        return f"Reference({cells} cells and 'other', {seen} with probability above 0)"


def _of_clients(counts: npt.ArrayLike, *, by_cell: bool = False) -> tuple[Ints, Correlation | None]:
    """Counts per cell; from a table with a row per client also the intra-client correlation.

    With `by_cell` the table has a row per cell.
    """
    try:
        given = np.asarray(counts)
    except ValueError:
        raise InvalidInputError("The counts of all clients must be equally long lists.") from None
    if given.ndim != 2:
        return check_counts(counts, "counts"), None
    table = np.array([check_counts(row, "counts") for row in (given.T if by_cell else given)])
    client, cell = np.nonzero(table)
    return table.sum(axis=0), Correlation.estimate(client, cell, table[client, cell])
