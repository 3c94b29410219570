"""The pages of the site and their blocks of code."""

import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = tuple(
    sorted(
        page.relative_to(DOCS).as_posix()
        for page in DOCS.rglob("*.md")
        if "_build" not in page.parts
    )
)
FENCE = re.compile(
    r"(?:^ *<!-- (not run|fails): (.*?) -->\n)?^( *)```(\w+)\n(.*?)^\3```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is "not run" or "fails", with the reason, or empty."""

    language: str
    text: str
    mark: str = ""
    reason: str = ""


def text_of(page: str) -> str:
    """The Markdown of a page."""
    return (DOCS / page).read_text(encoding="utf-8")


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks that name a language, in their order."""
    return [
        Block(language, block, mark, reason)
        for mark, reason, _, language, block in FENCE.findall(text)
    ]


def code_of(page: str) -> list[Block]:
    """The blocks that a reader would run."""
    return [each for each in blocks_of(text_of(page)) if each.language in ("python", "sh", "bash")]


@cache
def site_parts(name: str) -> Any:
    """A module of docs/site_parts, which Sphinx imports in the same way."""
    if str(DOCS) not in sys.path:
        sys.path.insert(0, str(DOCS))
    return import_module(name)
