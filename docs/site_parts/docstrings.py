"""Docstrings as Markdown: sections become bold words, parameters a list, examples code."""

import re
from itertools import groupby

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
PARAMETER = re.compile(r"^(\w[\w, ]*)\n((?: {4}.*\n?|\n(?= {4}))+)", re.MULTILINE)


def markdown(doc: str) -> str:
    r"""A docstring in numpy's style as Markdown.

    >>> print(markdown("One.\n\n>>> 1 + 1\n2"))
    One.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    opening, *sections = SECTION.split(doc)
    parts = [_blocks(opening)]
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        inside = PARAMETER.sub(_parameter, body) if name == "Parameters" else _blocks(body)
        parts.append(f"**{name}**\n\n{inside}")
    return "\n\n".join(part.strip() for part in parts)


def _parameter(found: re.Match[str]) -> str:
    names = ", ".join(f"`{name}`" for name in found[1].split(", "))
    return f"- {names}: {' '.join(found[2].split())}\n"


def _blocks(text: str) -> str:
    """Paragraphs as they are; indented ones and examples as code."""
    paragraphs = re.split(r"\n\s*\n", text.strip("\n"))
    kinds = groupby(paragraphs, key=_kind)
    return "\n\n".join(_block(kind, "\n\n".join(group)) for kind, group in kinds)


def _kind(paragraph: str) -> str:
    if paragraph.startswith(">>>"):
        return "pycon"
    return "text" if paragraph.startswith("    ") else ""


def _block(kind: str, text: str) -> str:
    if not kind:
        return text
    lines = [line[4:] if kind == "text" else line for line in text.splitlines()]
    shown = [re.sub(r"  # doctest: .*", "", line) for line in lines if line != "<BLANKLINE>"]
    return "\n".join([f"```{kind}", *shown, "```"])
