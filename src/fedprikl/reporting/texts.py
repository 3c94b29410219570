"""Texts and numbers for people. Whatever a release says may be hostile: it is shown, not obeyed."""

import html
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime

__all__ = [
    "cell_name",
    "clean",
    "columns_wide",
    "date",
    "decimals",
    "escaped",
    "letters_wide",
    "listed",
    "number",
    "padded",
    "percent",
    "shortened",
    "wrapped",
]

NUMBER = r"(-?[0-9][0-9.e+-]*)"
BIN = re.compile(rf"<= {NUMBER}|\({NUMBER}, {NUMBER}\]|> {NUMBER}")  # as a reference names them
Measure = Callable[[str], float]
WIDE = "FW"  # East Asian widths: such a character takes two columns


def clean(text: str) -> str:
    r"""The text on one line, in printable characters: nothing in it steers a page or a terminal.

    >>> clean("a\x1b[2Jb\u202ec")
    'a\ufffd[2Jb\ufffdc'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def cell_name(label: str) -> str:
    """A category by its name, and a bin of numbers in words.

    >>> [cell_name(label) for label in ("<= 5.4", "(5.4, 8.3]", "> 38.9", "JFK")]
    ['up to 5.4', '5.4 to 8.3', 'over 38.9', 'JFK']
    """
    found = BIN.fullmatch(label)
    if found is None:
        return clean(label)
    most, low, high, over = found.groups()
    return f"up to {most}" if most else f"over {over}" if over else f"{low} to {high}"


def escaped(text: str) -> str:
    """The text inside HTML or SVG, or inside an attribute.

    >>> escaped('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(clean(text))


def columns_wide(text: str) -> int:
    """How many columns of a terminal the text takes.

    >>> columns_wide("ab"), columns_wide("\u6f22\u5b57")
    (2, 4)
    """
    return sum(2 if unicodedata.east_asian_width(each) in WIDE else 1 for each in text)


def letters_wide(text: str) -> float:
    """About how many average letters of a proportional font the text takes, rounded up.

    >>> letters_wide("nnn"), letters_wide("WW")
    (3.0, 3.2)
    """
    return sum(_letter(each) for each in text)


def _letter(each: str) -> float:
    if each in "mwMW@%…" or unicodedata.east_asian_width(each) in "FWN":
        return 1.6 if each.isascii() or each == "…" else 2.0
    return 1.2 if each.isupper() or not each.isascii() else 1.0


def shortened(text: str, most: int, *, measure: Measure = columns_wide) -> str:
    """The text in at most so many columns, with an ellipsis where something is left out.

    >>> shortened("departure", 20), shortened("departure", 6)
    ('departure', 'depar…')
    """
    if measure(text) <= most:
        return text
    taken, kept = measure("…"), 0
    while (taken := taken + measure(text[kept])) <= most:
        kept += 1
    return f"{text[:kept].rstrip()}…"


def wrapped(text: str, most: int, lines: int = 2, *, measure: Measure = columns_wide) -> list[str]:
    """The text in at most so many lines, broken between words where that is possible.

    >>> wrapped("minutes of delay at departure", 18)
    ['minutes of delay', 'at departure']
    """
    if lines == 1 or measure(text) <= most:
        return [shortened(text, most, measure=measure)]
    head = shortened(text, most, measure=measure)[:-1]
    broken = head[: head.rfind(" ")] if " " in head[1:] and text[len(head)] != " " else head
    return [broken, *wrapped(text[len(broken) :].lstrip(), most, lines - 1, measure=measure)]


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """The text with spaces, so that it takes so many columns."""
    spaces = " " * (columns - columns_wide(text))
    return spaces + text if right else text + spaces


def listed(texts: Sequence[str], most: int = 5) -> str:
    """The texts as people list them; beyond `most`, how many more there are.

    >>> listed(["age", "plan", "city"]), listed(["a", "b", "c", "d"], most=2)
    ('age, plan and city', 'a, b and 2 more')
    """
    shown = list(texts[:most])
    if len(texts) > most:
        shown.append(f"{len(texts) - most:,} more")
    *first, last = shown or [""]
    return f"{', '.join(first)} and {last}" if first else last


def decimals(width: float) -> int:
    """Digits after the point that tell the two ends of an interval apart: at least 3.

    >>> decimals(0.2), decimals(0.0004)
    (3, 5)
    """
    if not 0 < width < math.inf:
        return 3
    return min(max(3, 1 - math.floor(math.log10(width))), 12)


def number(value: float, digits: int) -> str:
    """A value with so many digits after the point."""
    return f"{value:.{digits}f}" if abs(value) < 1e9 else f"{value:.6g}"


def percent(share: float) -> str:
    """A share of 1 in percent, with digits that small shares need.

    >>> percent(0.1234), percent(0.00123), percent(0)
    ('12.3%', '0.12%', '0.0%')
    """
    if abs(share) > 100:  # no share at all
        return f"{100 * share:.3g}%"
    return f"{100 * share:.{2 if 5e-5 <= abs(share) < 0.01 else 1}f}%"


def date(at: str) -> str:
    """A time of ISO 8601 as people write it; anything else as it is.

    >>> date("2030-01-31T12:00:00+00:00")
    '31 January 2030, 12:00 UTC'
    """
    try:
        when = datetime.fromisoformat(at)
    except ValueError:
        return at
    zone = "" if when.utcoffset() is None else f" {when.tzname()}"
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"
