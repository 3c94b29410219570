"""One self-contained HTML page: no script, no font, no picture from elsewhere."""

import html
from collections.abc import Sequence

__all__ = ["page", "paragraphs", "table"]

STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2937; max-width: 60rem;
       margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.answer { font-size: 1.25rem; background: #eff6ff; border-left: 5px solid #1f6fb2;
          padding: .8rem 1.1rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid #e5e7eb; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } .note { color: #6b7280; font-size: .93rem; }
.bad { color: #b91c1c; font-weight: 600; } footer { margin-top: 3rem; color: #6b7280; }
"""


def page(title: str, body: Sequence[str]) -> str:
    """A whole document from a title and pieces of HTML."""
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], marked: Sequence[bool]) -> str:
    """A table of texts; rows that are `marked` stand out in their last cell."""
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = [f"<table><thead><tr>{cells}</tr></thead><tbody>"]
    for row, mark in zip(rows, marked, strict=True):
        plain = "".join(f"<td>{html.escape(cell)}</td>" for cell in row[:-1])
        style = ' class="bad"' if mark else ""
        lines.append(f"<tr>{plain}<td{style}>{html.escape(row[-1])}</td></tr>")
    return "\n".join([*lines, "</tbody></table>"])


def paragraphs(text: str, style: str = "") -> str:
    """Each line of a text as a paragraph."""
    opening = f'<p class="{style}">' if style else "<p>"
    return "\n".join(f"{opening}{html.escape(line)}</p>" for line in text.splitlines())
