"""What a comparison ends with. All of it is public."""

import importlib.util
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedprikl.documents import readable
from fedprikl.errors import InvalidInputError, MissingExtraError
from fedprikl.estimation import Verdict, VerdictOutcome
from fedprikl.libraries import narwhals as nw
from fedprikl.monitoring.status import BudgetFacts
from fedprikl.privacy import PrivacyStatement
from fedprikl.protocol import Answer, ColumnAnswer, Plan, Release
from fedprikl.reference import Reference
from fedprikl.reference.columns import Times
from fedprikl.reporting import (
    ColumnValues,
    absences,
    release_figure,
    release_page,
    release_summary,
    release_words,
    spending_words,
)
from fedprikl.reporting.facts import ranked, statistic_of
from fedprikl.reporting.values import Quality, Typical
from fedprikl.store import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FrameLibrary = Literal["pandas", "polars", "pyarrow"]
ONLY_COLUMNS = (
    "The plan asks about columns only, so the table as a whole has no value. Each column has: "
    "result.columns.to_frame(), or result.columns['age'].answer('tv') of one."
)


OF_WHOLE = (  # columns of a frame about the whole
    *("population", "divergence", "target", "value", "unit", "low", "high", "no_drift", "verdict"),
    *("drifted", "threshold", "false_alarm", "epsilon", "delta", "trust", "clients", "included"),
    "released_at",
)


def frame_of(
    rows: Sequence[Mapping[str, Any]],
    library: FrameLibrary | None = None,
    names: Iterable[str] = (),
) -> Any:
    """A frame of the rows, by default of the first library imported already, or installed.

    It has columns of these names also without any row.
    """
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return nw.from_dict(columns, backend=_library(library)).to_native()


def library_of(clients: Any) -> FrameLibrary | None:
    """The library of the frames that were given; None of files and arrays."""
    while isinstance(clients, Mapping | list | tuple) and clients:
        clients = next(iter(clients.values() if isinstance(clients, Mapping) else clients))
    name = type(clients).__module__.partition(".")[0]
    return name if name in get_args(FrameLibrary) else None  # type: ignore[return-value]


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


@dataclass(frozen=True, slots=True, repr=False)
class ColumnTable:
    """The answers about each column, and each pair of columns, of a release.

    >>> table = ColumnTable(())
    >>> len(table), table.drifted
    (0, ())
    """

    answers: tuple[ColumnAnswer, ...]
    values: ColumnValues | None = None  # of the same release
    library: FrameLibrary | None = None  # of frames, unless another is named

    def __iter__(self) -> Iterator[ColumnAnswer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, name: str | tuple[str, ...]) -> ColumnAnswer:
        wanted = (name,) if isinstance(name, str) else tuple(name)
        for answer in self.answers:
            if answer.columns == wanted:
                return answer
        known = ", ".join(repr(answer.name) for answer in self.answers) or "none"
        raise InvalidInputError(f"The release has no answer about {name!r}; it has {known}.")

    @property
    def drifted(self) -> tuple[str, ...]:
        """The names of those that have drifted."""
        return tuple(answer.name for answer in self.answers if answer.drifted)

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per column, in a data frame of pandas, polars or pyarrow.

        `up` and `down` are the cells that clearly have more or fewer records; new values are among
        them. Medians of numbers are infinite where they lie in an outermost bin. Those of times
        (`median_time`) are texts, and empty there.
        """
        typical = {} if self.values is None else self.values.typical
        rows = [
            _row(answer, typical.get(answer.name), self._new(answer)) for answer in self.answers
        ]
        return frame_of(rows, library or self.library)

    def _new(self, answer: ColumnAnswer) -> Quality | None:
        """Its new values, where the reference is known."""
        return None if self.values is None else self.values.new(answer)

    def quality(self, library: FrameLibrary | None = None) -> Any:
        """One row per kind of bad values of a column (missing, new, outermost), in a data frame."""
        rows = [] if self.values is None else self.values.plain()
        return frame_of(rows, library or self.library)

    def cells(self, library: FrameLibrary | None = None) -> Any:
        """One row per cell of every column, in a data frame. The last one of a single column has
        its new values, which the reference does not know.
        """
        rows = []
        for answer in self.answers:
            for cell, count in zip(answer.cells, answer.counts.counts, strict=True):
                shares = cell.reference, cell.share, cell.interval
                rows.append(_cell_row(answer, cell.label, *shares, cell.shifted, count))
            new = self._new(answer)
            if new is not None:
                count = math.fsum(answer.counts.out_of_domain)
                shares = new.before, new.now, new.interval
                rows.append(_cell_row(answer, new.what, *shares, new.change, count))
        return frame_of(rows, library or self.library)

    def __repr__(self) -> str:
        return f"<ColumnTable of {len(self)}: drifted are {', '.join(self.drifted) or 'none'}>"


def _row(answer: ColumnAnswer, typical: Typical | None, new: Quality | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "column": answer.name,
        "verdict": answer.outcome,
        "drifted": answer.drifted,
    }
    for name in ("tv", "kl"):
        size = answer.answer(name)
        low, high = (size and size.interval) or (math.nan, math.nan)
        no_drift = None if size is None else size.no_drift
        row |= {
            name: math.nan if size is None else size.value,
            f"{name}_low": low,
            f"{name}_high": high,
            f"{name}_no_drift": math.nan if no_drift is None else no_drift,
        }
    shifted: list[tuple[str, str]] = [(cell.label, cell.shifted) for cell in answer.cells]
    shifted += [] if new is None else [(new.what, new.change)]
    return (
        row
        | _medians(typical)
        | {way: ", ".join(label for label, to in shifted if to == way) for way in ("up", "down")}
    )


def _medians(typical: Typical | None) -> dict[str, Any]:
    """Of numbers, and as texts those of times: a frame has one type per column."""
    names = ("reference_median", "median", "median_low", "median_high")
    numbers, times = dict.fromkeys(names, math.nan), {f"{name}_time": "" for name in names}
    if typical is None:
        return numbers | times
    found = dict(zip(names, (typical.before, typical.now, *typical.interval), strict=True))
    if not isinstance(typical.column, Times):
        return found | times
    shown = {
        f"{name}_time": typical.column.show(at) for name, at in found.items() if math.isfinite(at)
    }
    return numbers | times | shown


def _cell_row(
    answer: ColumnAnswer,
    label: str,
    reference: float,
    share: float,
    interval: tuple[float, float],
    shifted: str,
    count: float,
) -> dict[str, Any]:
    low, high = interval
    return {
        "column": answer.name,
        "cell": label,
        "reference": reference,
        "share": share,
        "low": low,
        "high": high,
        "shifted": shifted,
        "noisy_count": count,
    }


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Comparison:
    """Whether and how far a population has drifted from the reference, and what it cost.

    `fedprikl.compare` makes it. Everything in it follows from the signed release, the plan and
    public facts of the round. In a notebook it shows itself as a page; `print` shows it as text.

    >>> import numpy as np
    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([500, 300, 200])
    >>> planned = fk.plan(reference, clients=6, records=600, epsilon=1.0)
    >>> rng = np.random.default_rng(1)
    >>> clients = [rng.choice(3, 100, p=[0.1, 0.1, 0.8]) for _ in range(6)]
    >>> noise = fk.InsecureSeededNoise(1)  # for an example that repeats; never for real records
    >>> result = fk.compare(reference, clients, planned, ledger=None, source=noise)
    >>> result.drifted, result.outcome
    (True, 'drift')
    >>> low, high = result.interval
    >>> low < result.value < high
    True
    >>> result.privacy.claimed_epsilon
    1.0
    >>> fk.verify(result.release).value == result.value
    True
    """

    release: Release
    plan: Plan
    refusals: Mapping[str, str]  # client -> why it took no part
    left_out: Mapping[str, str]  # client -> why its records cannot be used
    payload_bytes: int  # masked counts that each client sent
    reference: Reference
    spending: tuple[BudgetFacts, float] | None  # the budget now, and spent before; without a ledger
    library: FrameLibrary | None = None  # that of the clients' frames
    notes: tuple[str, ...] = ()  # what the user should know besides

    @property
    def columns(self) -> ColumnTable:
        """What was found about each column: `columns["age"].drifted`, `columns.to_frame()`."""
        return ColumnTable(self.release.columns, self._values, self.library)

    @property
    def _values(self) -> ColumnValues:
        return ColumnValues(self.release, self.plan, self.reference)

    @property
    def epsilon_left(self) -> float | None:
        """Of the population's budget; None without a ledger."""
        return None if self.spending is None else self.spending[0].left

    @property
    def value(self) -> float:
        """The released estimate of the first divergence, noise included; see `columns`, too."""
        if not self.release.answers:
            raise InvalidInputError(ONLY_COLUMNS)
        return self.release.value

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95% interval, where there is one."""
        return self.release.interval

    @property
    def target(self) -> str | None:
        """What was estimated, in the paper's symbols; None if only columns were asked."""
        return self.release.answers[0].target if self.release.answers else None

    @property
    def verdict(self) -> Verdict | None:
        """On the whole, at its part of the plan's false-alarm rate; None if there is none."""
        return self.release.verdict

    @property
    def outcome(self) -> VerdictOutcome | None:
        """What was found: "drift", "none found" or "cannot tell"; None without a verdict.

        It cannot be told where not even large drifts could have been found.
        """
        return self.release.outcome

    @property
    def drifted(self) -> bool | None:
        """Whether drift was found, in the whole or in a column; None where it cannot be told."""
        return self.release.drifted

    @property
    def privacy(self) -> PrivacyStatement:
        """What is protected, to which degree, and who is trusted."""
        return self.release.privacy

    @property
    def absent(self) -> tuple[str, ...]:
        """Why clients took no part, each reason once."""
        return absences(self.refusals.values(), self.plan.sums.most_records)

    @property
    def costs(self) -> dict[str, str]:
        """What the round cost, for people."""
        return {
            "budget": "no ledger was kept"
            if self.spending is None
            else spending_words(*self.spending, self.privacy.claimed_epsilon or 0.0),
            "bytes of masked counts per client": f"{self.payload_bytes:,}",
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the signed release, and what else is known of the round."""
        return self.release.to_dict() | {
            "verdict": self.outcome,
            "drifted": self.drifted,
            "findable": self.release.findable,
            "drifted_columns": list(self.columns.drifted),
            "refusals": dict(self.refusals),
            "left_out": dict(self.left_out),
            "epsilon_left": self.epsilon_left,
        }

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per answer about the whole, in a data frame of pandas, polars or pyarrow.

        By default the library of the clients' frames; of files, the first that was imported
        already, or that is installed. `columns.to_frame()` has one row per column. It is empty if
        the plan asks about columns only.
        """
        rows = [self._row(answer) for answer in self.release.answers]
        return frame_of(rows, library or self.library, names=OF_WHOLE)

    def plot(self) -> "Figure":
        """A matplotlib figure: how far each column is from the reference, and what shifted.

        Needs the extra `report`.
        """
        return release_figure(self.release, self._values)

    def _row(self, answer: Answer) -> dict[str, Any]:
        low, high = answer.interval or (math.nan, math.nan)
        release = self.release
        statistic = statistic_of(answer, release)
        claimed = release.privacy.claimed_epsilon
        return {
            "population": release.population,
            "divergence": answer.divergence,
            "target": answer.target,
            "value": answer.value,
            "unit": answer.unit,
            "low": low,
            "high": high,
            "no_drift": math.nan if answer.no_drift is None else answer.no_drift,
            "verdict": self.outcome,
            "drifted": self.drifted,
            "threshold": math.nan if statistic is None else statistic.threshold,
            "false_alarm": self.plan.verdict.false_alarm,
            "epsilon": math.nan if claimed is None else float(claimed),
            "delta": float(release.privacy.delta),
            "trust": release.trust,
            "clients": sum(cohort.clients for cohort in release.cohorts),
            "included": sum(cohort.included for cohort in release.cohorts),
            "released_at": release.released_at,
        }

    def save(self, path: str | Path) -> None:
        """Writes the signed release, as `fedprikl estimate` does; `fedprikl verify` reads it."""
        write_whole(Path(path), readable(self.release.to_dict()))

    def save_html(self, path: str | Path) -> None:
        """Writes the report: one page without scripts, fonts or pictures from elsewhere."""
        more = (*self.absent, *self.notes)
        page = release_page(self.release, self.plan, self.costs, more, self.reference)
        write_whole(Path(path), page)

    def _repr_html_(self) -> str:
        more = (*self.absent, *self.notes)
        return release_summary(self.release, self.plan, more, self.reference)

    def __str__(self) -> str:
        return release_words(self.release, (*self.absent, *self.notes), self.value_lines)

    @property
    def value_lines(self) -> tuple[str, ...]:
        """Typical values before and now, and what changed in the quality of the data."""
        return tuple(self._values.lines(ranked(self.release.columns)))

    def __repr__(self) -> str:
        between = "" if self.interval is None else "[{:.4g}, {:.4g}], ".format(*self.interval)
        value = f"{self.value:.4g} " if self.release.answers else ""
        return (
            f"<Comparison of {self.plan.population!r}: {self.outcome or 'no verdict'}, "
            f"{value}{between}epsilon {self.plan.budget.epsilon:g}>"
        )
