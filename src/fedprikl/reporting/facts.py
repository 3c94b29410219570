"""What a release says to people: the command line and the pages show the same words."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedprikl.estimation.statistic import UNSEEN
from fedprikl.protocol import Answer, Outcome, Release
from fedprikl.protocol.answer import CellAnswer, ColumnAnswer
from fedprikl.protocol.client import NO_ROOM
from fedprikl.reporting.page import (
    cell_name,
    clean,
    columns_wide,
    decimals,
    listed,
    number,
    padded,
    shortened,
)

FEW = 6  # columns: all are named
NAMED = 5  # of many columns
NAME = 48  # letters of a name in a sentence
HEAD = ("column", "tv", "no drift", "95% interval", "moved")
SHOWN = 15  # columns in a table of text; those that have moved are always shown
COLUMN_NAME, CELL, CELLS = 32, 28, 3  # letters of names; cells that are named
UNKNOWN = "-"
NEW = "values that the reference never saw"
NOTE = (
    "tv: the share of all records that would have to change to look like the reference; "
    "no drift: the tv to expect without any drift. Both are read off the noisy counts; the verdict "
    "rests on other numbers, each beside its threshold"
)
UNRELATED = (
    "The false-alarm rate over columns holds if records of one client are unrelated: no client ids "
    "show how alike they are."
)
SEEN = {
    "aggregator": "No client's own counts were seen by anybody: they were masked and only their "
    "sums were opened, by the aggregator, which added the noise.",
    "none": "Nobody saw exact numbers, not even sums: every client added noise before its masked "
    "counts left it.",
}
LEFT = {
    "record": "Less hidden are all records of one client together; not hidden are the number of "
    "records and who took part.",
    "client": "Not hidden is who took part.",
}
HIDDEN = {
    "record": "Every single record is hidden by random noise: had any one record been another",
    "client": "Every client is hidden by random noise, with all the records it holds: had all of "
    "one client's records been others",
}


def headline(release: Release) -> str:
    """The verdict: who differs from the reference, and which columns have moved."""
    whom = whose(release)
    if release.drifted is None:
        return f"There is no verdict on {whom}: it could not be computed."
    if not release.drifted:
        return f"No drift found among {whom}."
    verb = "differs" if _clients(release) == 1 else "differ"
    differ = f"{_capital(whom)} {verb} from the reference."
    return f"{differ} {_moved(release.columns)}" if release.columns else differ


def meaning(release: Release) -> str:
    """What the verdict means, and what it does not."""
    what = "The reference is what the records were expected to look like."
    if release.drifted is None:
        return f"{what} Nothing follows for or against a drift; the numbers below still hold."
    if release.drifted:
        return (
            f"{what} The difference is larger than chance and the added noise explain. Whether it "
            "matters is yours to judge: see how large it is."
        )
    return (
        f"{what} These records look like it, as far as {release.records:,} records and the added "
        "noise can tell. A drift that is smaller than the thresholds may still be there."
    )


def whose(release: Release) -> str:
    """The clients that were counted: "the 400 clients of aircraft"."""
    count = _clients(release)
    clients = f"the {count:,} client{'' if count == 1 else 's'}"
    if release.population.lower() in ("client", "clients"):
        return clients
    return f"{clients} of {shortened(clean(release.population), NAME)}"


def ranked(columns: Sequence[ColumnAnswer]) -> list[ColumnAnswer]:
    """Columns that have drifted first, and the largest total variation first."""

    def place(column: ColumnAnswer) -> tuple[bool, float]:
        answer = column.answer("tv")
        return not column.drifted, 0.0 if answer is None else -answer.value

    return sorted(columns, key=place)


def _moved(columns: Sequence[ColumnAnswer]) -> str:
    moved = [_name(each) for each in ranked(columns) if each.drifted]
    rest = [_name(each) for each in columns if each.drifted is False]
    unknown = [_name(each) for each in columns if each.drifted is None]
    untold = f" {_capital(listed(unknown))} could not be judged." if unknown else ""
    if not moved:
        return f"No column has clearly moved by itself.{untold}"
    if len(columns) > FEW:
        have = "has" if len(moved) == 1 else "have"
        return (
            f"{len(moved)} of {len(columns)} columns {have} moved: {listed(moved, NAMED)}.{untold}"
        )
    have = "has" if len(moved) == 1 else "have"
    still = f"; {listed(rest, FEW)} {'has' if len(rest) == 1 else 'have'} not" if rest else ""
    return f"{_capital(listed(moved, FEW))} {have} moved{still}.{untold}"


def _name(column: ColumnAnswer) -> str:
    name = shortened(clean(column.name), NAME)
    return name if len(column.columns) == 1 else f"the pair of {name}"


def _capital(text: str) -> str:
    """A sentence begins with a capital, unless its first word is no plain word, as dep_delay."""
    first = text.split(" ")[0].rstrip(",")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def _clients(release: Release) -> int:
    return sum(cohort.included for cohort in release.cohorts)


def takes_unrelated(column: ColumnAnswer) -> bool:
    """Whether its verdict takes records of one client as unrelated, for want of client ids."""
    return column.drifted is not None and column.design_effect is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """One column in words: how far it is from the reference, in total variation."""

    name: str
    value: str
    no_drift: str
    interval: str
    verdict: str  # "moved", "not moved" or "not judged"
    cells: str  # which of them moved
    found_by: str  # which statistics lie above their thresholds

    @classmethod
    def of(cls, column: ColumnAnswer, digits: int = 3) -> "ColumnFacts":
        """What a release says of a column, with so many digits after the point."""
        answer = column.answer("tv")
        value = no_drift = interval = UNKNOWN
        if answer is not None:
            if answer.interval is not None:
                low, high = answer.interval
                interval = f"{number(low, digits)} to {number(high, digits)}"
            value = number(answer.value, digits)
            if answer.no_drift is not None:
                no_drift = number(answer.no_drift, digits)
        return cls(
            name=clean(column.name),
            value=value,
            no_drift=no_drift,
            interval=interval,
            verdict={True: "moved", False: "not moved", None: "not judged"}[column.drifted],
            cells=moved_in(column) if column.drifted else "",
            found_by=_found_by(column),
        )

    @property
    def row(self) -> tuple[str, ...]:
        """As `HEAD` has it."""
        moved = ": ".join(part for part in (self.verdict, self.cells) if part)
        moved += f" (found by {self.found_by})" if self.found_by else ""
        return self.name, self.value, self.no_drift, self.interval, moved


def facts_of(columns: Sequence[ColumnAnswer]) -> list[ColumnFacts]:
    """What a release says of columns, with digits that suit the widest interval among them."""
    sizes = [answer for column in columns if (answer := column.answer("tv")) is not None]
    ends = [answer.interval for answer in sizes if answer.interval is not None]
    digits = decimals(max((high - low for low, high in ends), default=0.0))
    return [ColumnFacts.of(column, digits) for column in columns]


def moved_cells(cells: Sequence[CellAnswer]) -> str:
    """Which cells have more records than in the reference, and which fewer; the largest first."""
    parts = []
    for direction, word in (("up", "more"), ("down", "fewer")):
        moved = [cell for cell in cells if cell.moved == direction]
        moved.sort(key=lambda cell: -abs(cell.share - cell.reference))
        if moved:
            names = [shortened(cell_name(cell.label), CELL) for cell in moved]
            parts.append(f"{word} in {listed(names, CELLS)}")
    return "; ".join(parts)


def moved_in(column: ColumnAnswer) -> str:
    """Which cells of a column have moved, and whether values are new to the reference."""
    new = any(each.speaks for each in column.witnesses if each.name == UNSEEN)
    return "; ".join(part for part in (moved_cells(column.cells), new * NEW) if part)


def column_lines(columns: Sequence[ColumnAnswer]) -> tuple[str, ...]:
    """A table in lines of text; beyond `SHOWN` columns, those that have not moved are folded.

    >>> column_lines(())
    ()
    """
    if not columns:
        return ()
    order = ranked(columns)
    moved = sum(1 for column in order if column.drifted)
    shown = order[: max(SHOWN, moved)]
    rows = [HEAD, *(each.row for each in facts_of(shown))]
    short = [(shortened(row[0], COLUMN_NAME), *row[1:]) for row in rows]
    widths = [max(columns_wide(row[place]) for row in short) for place in range(len(HEAD))]
    lines = [
        "  ".join(
            padded(text, width, right=0 < place < 3)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in short
    ]
    if left := len(order) - len(shown):
        lines.append(f"and {left:,} more, none of which has moved")
    return (*lines, NOTE, *([UNRELATED] if any(map(takes_unrelated, columns)) else []))


def _found_by(column: ColumnAnswer) -> str:
    """The statistics above their thresholds: numbers of their own, not read off the counts."""
    spoke = [each for each in column.witnesses if each.speaks]
    return listed(
        [f"{clean(each.name)} {each.statistic:.4g} > {each.threshold:.4g}" for each in spoke]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """A release in words, in the order in which they are shown."""

    headline: str  # the verdict, for everybody
    drift: str  # the verdict on the whole, in numbers; empty where only columns were asked
    columns: tuple[str, ...]  # a table in lines of text, with a head; empty without columns
    answers: tuple[str, ...]  # one sentence for each
    counted: str  # how many clients the answers are about, and who is missing
    privacy: str

    @classmethod
    def of(cls, release: Release, absent: Iterable[str] = ()) -> "ReleaseFacts":
        """What a release says; `absent` are lines about clients that took no part."""
        drift = ""
        if release.verdict is not None:
            drift = f"{release.verdict}."
        elif release.answers:
            drift = "There is no verdict on the whole: it could not be computed for this release."
        return cls(
            headline=headline(release),
            drift=drift,
            columns=column_lines(release.columns),
            answers=tuple(_sentence(answer, release) for answer in release.answers),
            counted="\n".join([*_counted(release.cohorts), *absent]),
            privacy=str(release.privacy),
        )

    def __str__(self) -> str:
        """All of it, as a terminal shows it: the headline is its first line."""
        numbers = "\n".join(part for part in (self.drift, *self.answers) if part)
        parts = (self.headline, "\n".join(self.columns), numbers, self.counted, self.privacy)
        return "\n\n".join(part for part in parts if part)


def absences(reasons: Iterable[str], most_records: int) -> tuple[str, ...]:
    """Why clients took no part, each reason once. The reasons are what they told everybody."""
    room = (
        "the plan has no room for as many records as they hold "
        f"(most_records {most_records}; plan with a larger --most-records)"
    )
    return tuple(
        f"{clients:,} took no part: {room if reason == NO_ROOM else reason}."
        for reason, clients in Counter(reasons).most_common()
    )


def _sentence(answer: Answer, release: Release) -> str:
    digits, between = 3, ""
    if answer.interval is not None:
        low, high = answer.interval
        digits = decimals(high - low)
        between = f" (95% interval: {number(low, digits)} to {number(high, digits)}"
        between += f"{_guarantee(answer, digits)})"
    value = f"{number(answer.value, digits)} {answer.unit}".rstrip()
    return (
        f"The records of {release.population} differ from the reference by "
        f"{answer.target} = {value}{_by_chance(answer, release.records, digits)}{between}"
        f"{_threshold(answer, release, digits)}."
    )


def _guarantee(answer: Answer, digits: int) -> str:
    """Which interval holds for every population; the other one was tried on many kinds of drift."""
    if answer.guaranteed is None:
        return ""
    if answer.guaranteed == answer.interval:
        return ", guaranteed"
    low, high = (number(end, digits) for end in answer.guaranteed)
    return f"; guaranteed: {low} to {high}"


def _by_chance(answer: Answer, records: int, digits: int) -> str:
    """The part of the value that so many records have without any drift, because they are few."""
    if answer.no_drift is None:
        return ""
    chance, many = number(answer.no_drift, digits), f"{records:,} records"
    if 0 <= answer.no_drift < answer.value:
        return f", of which about {chance} is what {many} give without any drift"
    return f"; {many} give about {chance} without any drift"


def _threshold(answer: Answer, release: Release, digits: int) -> str:
    """Where drift begins, in the unit of the answer; nothing where the verdict rests on counts."""
    witness = None if release.verdict is None else release.verdict.witness(answer.divergence)
    if witness is None:
        return ""
    return f", beside a threshold of {number(witness.threshold, digits)}"


def _counted(cohorts: Iterable[Outcome]) -> Iterable[str]:
    ended = tuple(cohorts)
    included, clients = sum(c.included for c in ended), sum(c.clients for c in ended)
    yield f"Counted: {included:,} of {clients:,} clients."
    for reason, sums in Counter(c.reason for c in ended if c.reason).items():
        what = "1 secure sum was" if sums == 1 else f"{sums:,} secure sums were"
        yield f"{what} dropped: {reason}"


def privacy_sentences(release: Release) -> tuple[str, ...]:
    """Three sentences: what is hidden, who saw what, what is not hidden."""
    return _hidden(release), SEEN[release.trust], LEFT[release.privacy.unit]


def _hidden(release: Release) -> str:
    privacy = release.privacy
    if not privacy.holds or not privacy.claimed_epsilon or not math.isfinite(privacy.epsilon):
        return privacy.verdict
    if privacy.claimed_epsilon > 20:
        return f"Noise was added, but too little to hide much: epsilon {privacy.claimed_epsilon:g}."
    times = math.exp(privacy.claimed_epsilon)
    slack = _chance(privacy.delta) if privacy.delta else ""
    return (
        f"{HIDDEN[privacy.unit]}, no result on this page would be more than {times:.3g} times as "
        f"likely{slack} "
        f"(epsilon {privacy.claimed_epsilon:g})."
    )


def _chance(delta: float) -> str:
    often = f"1 in {1 / delta:,.0f}" if 1e-15 < delta < 0.5 else f"{delta:.2g}"
    return f", plus a chance of at most {often}"
