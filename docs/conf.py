"""How the site is built: Sphinx, MyST for Markdown, the furo theme. `make docs` runs it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from pygments.lexers import TextLexer  # noqa: E402
from site_parts import fill_in  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

project = "fedprikl"
author = "The fedprikl authors"
project_copyright = author
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3  # links to headings, as on GitHub
nitpicky = True

html_theme = "furo"
html_title = "fedprikl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"


def setup(app: Sphinx) -> None:
    """Parts that are built from the code, and a language that Pygments does not know."""
    app.connect("source-read", fill_in)
    app.add_lexer("cron", TextLexer)
