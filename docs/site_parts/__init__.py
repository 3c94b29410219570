"""The parts of pages that are written when the site is built, from the code itself.

A page says where such a part belongs: `<!-- built: api -->`. Nothing that is built can be out of date.
"""

import re
from collections.abc import Callable

from site_parts.api import api
from site_parts.commands import commands
from site_parts.metrics import metrics

PARTS: dict[str, Callable[[], str]] = {"api": api, "commands": commands, "metrics": metrics}


def fill_in(_app: object, _page: str, source: list[str]) -> None:
    """Replaces the marks of a page, which Sphinx gives as a list of one text."""
    source[0] = filled(source[0])


def filled(text: str) -> str:
    """The text of a page with every built part in its place; an unknown mark is an error."""
    return re.sub(r"<!-- built: (\w+) -->", lambda mark: PARTS[mark[1]](), text)
