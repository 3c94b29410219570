"""The parts of pages that are written when the site is built, from the code itself.

A page says where such a part belongs: `<!-- built: api -->`. What is built is never out of date.
"""

import re
from collections.abc import Callable

from fedprikl.protocol import Plan, Release
from site_parts.api import api
from site_parts.commands import commands
from site_parts.formats import format_versions
from site_parts.metrics import aggregator_metrics, series_metrics
from site_parts.notebook import notebook
from site_parts.schemas import fields_text, schema_text

PARTS: dict[str, Callable[[], str]] = {
    "api": api,
    "commands": commands,
    "aggregator_metrics": aggregator_metrics,
    "notebook": notebook,
    "series_metrics": series_metrics,
    "format_versions": format_versions,
    "plan_fields": lambda: fields_text(Plan),
    "plan_schema": lambda: schema_text("plan"),
    "reference_schema": lambda: schema_text("reference"),
    "release_fields": lambda: fields_text(Release),
    "release_schema": lambda: schema_text("release"),
}


# Pages outside docs/ that the site includes: links to them lead to the included page.
INCLUDED = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "experiments/paper/RESULTS.md": "project/results.md",
}


def fill_in(_app: object, _page: str, source: list[str]) -> None:
    """Replaces the marks and links of a page, which Sphinx gives as a list of one text."""
    text = filled(source[0])
    for outside, page in INCLUDED.items():
        text = re.sub(rf"\]\((\.\./)+{outside}(#[\w-]+)?\)", rf"](/{page}\2)", text)
    source[0] = text


def filled(text: str) -> str:
    """The text of a page with every built part in its place; an unknown mark is an error.

    What is only for readers of the repository, who see no built part, is left out.
    """
    text = re.sub(r"<!-- repository only -->.*?<!-- end -->\n*", "", text, flags=re.DOTALL)
    return re.sub(r"<!-- built: (\w+) -->", lambda mark: PARTS[mark[1]](), text)
