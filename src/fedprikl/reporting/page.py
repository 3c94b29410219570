"""One self-contained HTML page and its parts: no script, no font, no picture from elsewhere.

`tag` makes every element. A plain string in it is text, which is escaped; `Html` stays as it is.
"""

import html
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files

STYLE = files("fedprikl.reporting").joinpath("style.css").read_text(encoding="utf-8")
EMPTY = ("circle", "line", "path", "rect")  # elements that may have no content
NUMBER = r"(-?[0-9][0-9.e+-]*)"
BIN = re.compile(rf"<= {NUMBER}|\({NUMBER}, {NUMBER}\]|> {NUMBER}")  # as a reference names them
WIDE = "FW"  # East Asian widths: such a character takes two columns
Measure = Callable[[str], float]


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


class Html(str):
    """A piece of HTML or SVG. Any other string that is shown is text."""

    __slots__ = ()


def joined(*parts: str, between: str = "") -> Html:
    """Texts and pieces, one after the other."""
    shown = (part if isinstance(part, Html) else escaped(part) for part in parts if part)
    return Html(between.join(shown))


def tag(name: str, *content: str, **attributes: object) -> Html:
    """An element. Attributes that are None or empty are left out.

    >>> tag("p", "a < b", class_="note", id="")
    '<p class="note">a &lt; b</p>'
    >>> tag("line", x1=0, stroke_width=1.4)
    '<line x1="0" stroke-width="1.40"/>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    if name in EMPTY and not content:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{joined(*content)}</{name}>")


def _value(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else escaped(str(value))


def page(
    title: str,
    *parts: Html,
    headline: str = "",
    links: Mapping[str, str] | None = None,
) -> str:
    """A whole document; the headline is the title unless given.

    `links`, from addresses to names, stand above the main part, after one that skips them.
    """
    target = {} if links is None else {"id": "main", "tabindex": "-1"}
    content = [tag("p", title, class_="kind") if headline else "", tag("h1", headline or title)]
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8">{tag("title", title)}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<style>\n{STYLE}</style></head>\n<body>\n"
        + joined(
            *([] if links is None else _top(links)),
            tag("main", joined(*content, *parts, between="\n"), **target),
            between="\n",
        )
        + "\n</body></html>\n"
    )


def _top(links: Mapping[str, str]) -> list[Html]:
    items = [tag("li", tag("a", name, href=to)) for to, name in links.items()]
    top = tag("nav", tag("ul", *items), class_="top", aria_label="Sections") if items else Html()
    return [tag("a", "Skip to the content", class_="skip", href="#main"), top]


def section(heading: str, *parts: str, name: str = "") -> Html:
    """A heading and what stands below it; nothing at all if that is empty."""
    if not any(parts):
        return Html()
    return joined(tag("h2", heading, id=name), *parts, between="\n")


def paragraphs(text: str, style: str = "") -> Html:
    """Each line of a text as a paragraph."""
    return joined(*(tag("p", line, class_=style) for line in text.splitlines()), between="\n")


def note(text: str) -> Html:
    """What explains the rest, in smaller letters."""
    return paragraphs(text, "note")


def card(*parts: str, title: str = "") -> Html:
    """Parts in a box."""
    content = (tag("h3", title) if title else "", *parts)
    return tag("section", joined(*content, between="\n"), class_="card")


def cards(boxes: Sequence[Html]) -> Html:
    """Boxes side by side, where the page is wide enough."""
    return tag("div", joined(*boxes, between="\n"), class_="cards") if boxes else Html()


def fold(summary: str, *parts: str, printed: bool = True) -> Html:
    """What is shown on request; on paper it is open, or left out."""
    style = "printed" if printed else "folded"
    inner = joined(tag("summary", summary), *parts, between="\n")
    return tag("details", inner, class_=style)


def key(names: Mapping[str, str]) -> Html:
    """What the colours and lines of a chart mean."""
    return tag(
        "ul", *(tag("li", name, class_=style) for style, name in names.items()), class_="key"
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", look: str = ""
) -> Html:
    """A table headed by row and column. A cell that is `Html` is a whole `td`, except the first.

    Where a table is wider than its page, it scrolls by itself. `look` is a class of the style.
    """
    lines = [
        tag(
            "tr",
            tag("th", first, scope="row"),
            *(cell if isinstance(cell, Html) else tag("td", cell) for cell in others),
        )
        for first, *others in rows
    ]
    heads = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    inner = (
        tag("caption", caption) if caption else "",
        heads if head else "",
        tag("tbody", joined(*lines, between="\n")),
    )
    return tag("div", tag("table", *inner), class_=f"wide {look}".rstrip(), tabindex=0)


def marked(text: str, mark: object = True) -> Html:
    """A cell of a table that stands out, if it is marked."""
    return tag("td", text, class_="bad" if mark else "")


def fact_table(facts: Mapping[str, str]) -> Html:
    """Names and values below each other."""
    return table((), facts.items(), look="names")


def fact_list(facts: Mapping[str, str]) -> Html:
    """Names and values side by side."""
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items())
    return tag("dl", *pairs, class_="facts")
