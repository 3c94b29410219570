"""One self-contained HTML page: no script, no font, no picture from elsewhere."""

import html
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

# Letters have a contrast of at least 4.5 to 1 on both grounds, and graphics of at least 3.
LIGHT = {
    "ground": "#f6f7f9",
    "card": "#ffffff",
    "ink": "#1b2530",
    "muted": "#566270",
    "lines": "#d5dae1",
    "now": "#2468b0",
    "moved": "#b4510a",
    "reference": "#858f9c",
    "bad": "#a51d1d",
}
DARK = {
    "ground": "#12161b",
    "card": "#1a2027",
    "ink": "#e7ebf0",
    "muted": "#a4afbc",
    "lines": "#39434f",
    "now": "#6aaeed",
    "moved": "#f09b4d",
    "reference": "#76818e",
    "bad": "#ff8f8f",
}
NUMBER = r"(-?[0-9][0-9.e+-]*)"
WIDE = "FW"  # East Asian widths: such a character takes two columns


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


STYLE = (
    f"""
:root {{ color-scheme: light dark; {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
@media print {{ :root {{ color-scheme: light; {_variables(LIGHT)} --ground: #ffffff; }} }}
"""
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; print-color-adjust: exact; }
body { font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--ink);
       background: var(--ground); margin: 0; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 2.2rem 1rem 3rem; }
h1 { font-size: clamp(1.5rem, 1.1rem + 1.9vw, 2.3rem); line-height: 1.22; margin: .2rem 0 1rem;
     font-weight: 650; letter-spacing: -.01em; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 0 0 .3rem; }
p { margin: .4rem 0; }
.kind { color: var(--muted); margin: 0; }
.answer { font-size: 1.25rem; border-left: 5px solid var(--now); padding: .3rem 1.1rem; }
.note { color: var(--muted); font-size: .92rem; }
.bad { color: var(--bad); font-weight: 600; }
.card, details { background: var(--card); border: 1px solid var(--lines); border-radius: 10px;
                 padding: .9rem 1rem; margin: .8rem 0; }
.cards { display: grid; gap: 0 1rem; align-items: start;
         grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2.2rem; margin: 0 0 1rem; padding: 0; }
.facts div { min-width: 0; }
.facts dt { color: var(--muted); font-size: .85rem; }
.facts dd { margin: 0; font-weight: 600; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: 0; margin: .3rem 0 .7rem;
       list-style: none; color: var(--muted); font-size: .88rem; }
.key li::before { content: ""; display: inline-block; width: 1.5em; height: .65em;
                  margin-right: .45em; border-radius: 2px; }
.key .now::before { background: var(--now); } .key .moved::before { background: var(--moved); }
.key .reference::before { background: var(--reference); }
.key .mark::before { width: 0; height: 1em; border-left: 2px dashed var(--ink); border-radius: 0;
                     vertical-align: -.15em; }
.key .whisker::before { height: .6em; border: solid var(--ink); border-width: 0 1.5px;
  background: linear-gradient(var(--ink), var(--ink)) center / 100% 1.5px no-repeat;
  border-radius: 0; }
svg { display: block; width: 100%; } .paper { background: #fff; padding: .5rem; }
.paper svg { height: auto; } h3 + svg { margin-top: .6rem; }
details { padding: 0 1rem; } details[open] { padding-bottom: .9rem; }
summary { cursor: pointer; padding: .7rem 0; font-weight: 600; }
.wide { overflow-x: auto; overflow-wrap: normal; } .wide td { white-space: nowrap; }
.names td { white-space: normal; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .4rem 0 1rem; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--lines);
         vertical-align: top; font-variant-numeric: tabular-nums; }
thead th { color: var(--muted); font-weight: 600; }
th:first-child, td:first-child { text-align: left; } tbody th { font-weight: 400; min-width: 7rem; }
.last td:last-child, .last th:last-child { text-align: left; min-width: 13rem;
                                           white-space: normal; }
@media print {
  main { max-width: none; padding: 0; } body { font-size: 11pt; }
  .card, figure, tr { break-inside: avoid; } h2, h3, summary { break-after: avoid; }
  details { border: 0; padding: 0; } summary { list-style: none; }
  details.folded { display: none; }
  details.printed::details-content { content-visibility: visible; display: block; }
}
"""
)


BIN = re.compile(rf"<= {NUMBER}|\({NUMBER}, {NUMBER}\]|> {NUMBER}")  # as a reference names them
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


def page(
    title: str, body: Sequence[str], *, headline: str = "", top: str = "", style: str = ""
) -> str:
    """A whole document from a title and pieces of HTML; the headline is the title unless given.

    `top` is HTML before the main part, as links to other pages; `style` comes after the usual one.
    """
    kind = f'<p class="kind">{escaped(title)}</p>\n' if headline else ""
    target = ' id="main" tabindex="-1"' if top else ""  # of a link that skips the top
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<style>{STYLE}{style}</style></head>\n<body>\n{top}"
        f"<main{target}>\n"
        f"{kind}<h1>{escaped(headline or title)}</h1>\n"
        + "\n".join(body)
        + "\n</main>\n</body></html>\n"
    )


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    marked: Sequence[bool] = (),
    *,
    caption: str = "",
    look: str = "",
) -> str:
    """A table of texts, headed by row and column; `marked` rows stand out in their last cell.

    Where a table is wider than its page, it scrolls by itself. `look` is a class of the style.
    """
    named = f"<caption>{escaped(caption)}</caption>" if caption else ""
    cells = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in head)
    heads = f"<thead><tr>{cells}</tr></thead>" if any(head) else ""
    style = f"wide {look}".rstrip()
    lines = [f'<div class="{style}" tabindex="0"><table>{named}{heads}<tbody>']
    for place, (first, *others) in enumerate(rows):
        bad = place < len(marked) and marked[place]
        plain = "".join(f"<td>{escaped(cell)}</td>" for cell in others[:-1])
        stands_out = ' class="bad"' if bad else ""
        last = f"<td{stands_out}>{escaped(others[-1])}</td>" if others else ""
        lines.append(f'<tr><th scope="row">{escaped(first)}</th>{plain}{last}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def fact_table(facts: Mapping[str, str]) -> str:
    """Names and values."""
    return table((), [list(fact) for fact in facts.items()], look="names")


def paragraphs(text: str, style: str = "") -> str:
    """Each line of a text as a paragraph."""
    opening = f'<p class="{style}">' if style else "<p>"
    return "\n".join(f"{opening}{escaped(line)}</p>" for line in text.splitlines())


def fold(summary: str, parts: Sequence[str], *, printed: bool = True) -> str:
    """What is shown on request; on paper it is open, or left out."""
    style = "printed" if printed else "folded"
    return "\n".join(
        [f'<details class="{style}"><summary>{escaped(summary)}</summary>', *parts, "</details>"]
    )
