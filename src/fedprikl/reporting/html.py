"""One self-contained HTML page and its parts: no script, no font, no picture from elsewhere.

`tag` makes every element. A plain string in it is text, which is escaped; `Html` stays as it is.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import chain, repeat

from fedprikl.documents import clean

STYLE = files("fedprikl.reporting").joinpath("style.css").read_text(encoding="utf-8")
EMPTY = ("circle", "line", "path", "rect")  # elements that may have no content


def escaped(text: str) -> str:
    """The text inside HTML or SVG, or inside an attribute.

    >>> escaped('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(clean(text))


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
    tone: str = "",
    links: Mapping[str, str] | None = None,
) -> str:
    """A whole document; the headline is the title unless given, in the colour of a tone.

    `links`, from addresses to names, stand above the main part, after one that skips them.
    """
    target = {} if links is None else {"id": "main", "tabindex": "-1"}
    content = [
        tag("p", title, class_="kind") if headline else "",
        tag("h1", headline or title, class_=tone),
    ]
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


def section(heading: str, *parts: str, intro: str = "", name: str = "") -> Html:
    """A heading, a note and what stands below them; nothing at all if that is empty."""
    if not any(parts):
        return Html()
    return joined(tag("h2", heading, id=name), note(intro), *parts, between="\n")


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
    return tag("div", joined(*boxes, between="\n"), class_="cards") if any(boxes) else Html()


def fold(summary: str, *parts: str, printed: bool = True) -> Html:
    """What is shown on request; on paper it is open, or left out. Nothing if there is nothing."""
    if not any(parts):
        return Html()
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

    Where a table is wider than its page, it scrolls by itself. `look` is a class of the style: on
    a phone, a row of a "stacked" one is a list, with the names of its columns.
    """
    names = head[1:] if "stacked" in look else ()
    lines = [
        tag(
            "tr",
            tag("th", first, scope="row"),
            *(
                cell if isinstance(cell, Html) else tag("td", cell, data_name=name)
                for cell, name in zip(others, chain(names, repeat("")), strict=False)
            ),
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
