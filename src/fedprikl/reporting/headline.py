"""The verdict in words that need no statistics: what the report and the terminal say first."""

from collections.abc import Sequence

from fedprikl.protocol import Release
from fedprikl.protocol.column_answer import ColumnAnswer
from fedprikl.reporting.texts import clean, listed, shortened

__all__ = ["headline", "meaning", "ranked", "whose"]

FEW = 6  # columns: all are named
NAMED = 5  # of many columns
NAME = 48  # letters of a name in a sentence


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
