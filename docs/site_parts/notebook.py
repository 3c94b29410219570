"""The notebook as a page: run when the site is built, with what each cell shows."""

import ast
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "tutorial.ipynb"
FENCE = 6 * "`"  # longer than any in a cell


def notebook() -> str:
    """Markdown of all cells: texts one heading lower, code, and what it prints and shows."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"^#", "##", source, flags=re.MULTILINE))
        else:
            parts += [_fenced("python", source), *_run(source, names)]
    return "\n\n".join(parts)


def _run(source: str, names: dict[str, Any]) -> list[str]:
    """What a cell prints, and the value of its last line if that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    shown, printed = None, io.StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)  # noqa: S102
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)  # noqa: S307
    found = [_fenced("text", printed.getvalue().rstrip())] if printed.getvalue() else []
    return found if shown is None else [*found, _shown(shown)]


def _shown(value: Any) -> str:
    """As a notebook shows it: a page, a picture, or its short form."""
    if hasattr(value, "savefig"):
        picture = io.StringIO()
        value.savefig(picture, format="svg", metadata={"Date": None})
        return _html(re.sub(r"^.*?(?=<svg)", "", picture.getvalue(), flags=re.DOTALL))
    if hasattr(value, "_repr_html_"):
        return _html(value._repr_html_())
    return _fenced("text", repr(value))


def _html(text: str) -> str:
    return _fenced("{raw} html", f'<div class="shown">{text}</div>')


def _fenced(kind: str, text: str) -> str:
    return f"{FENCE}{kind}\n{text}\n{FENCE}"
