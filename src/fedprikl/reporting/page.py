"""One self-contained HTML page: no script, no font, no picture from elsewhere."""

from collections.abc import Mapping, Sequence

from fedprikl.reporting.style import STYLE
from fedprikl.reporting.texts import escaped

__all__ = ["fact_table", "fold", "page", "paragraphs", "table"]


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
