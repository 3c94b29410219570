"""Where things are printed: the answer on standard output, all else on standard error.

What comes from elsewhere (a release, a relay's log, a file's name) passes through `plain` first, so
that it cannot steer the terminal it is shown on.
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from fedprikl.documents import clean, readable

notes = Console(stderr=True, highlight=False)
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


def plain(text: str) -> str:
    """The text in printable characters and line ends only: no escape sequence, no bidi override."""
    return "\n".join(map(clean, _COLOURS.sub("", text).split("\n")))


def shown(text: str) -> str:
    """A name from elsewhere, to stand in a line with markup: printable, on one line, no markup."""
    return escape(plain(text).replace("\n", "\ufffd"))


def say(text: str, *, style: str = "", console: Console | None = None) -> None:
    """Prints a text as it is: nothing in it is taken for markup or for a command to the terminal.

    On standard output, unless a console is given.
    """
    where = console or Console(highlight=False)
    where.print(Text(plain(text), style=style), soft_wrap=True)


def show(text: str, *, markup: bool = True) -> None:
    """Prints a text of our own on standard output, in which markup sets colours."""
    Console(highlight=False).print(text, markup=markup)


def show_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[int] = (),
    lines: bool = False,
) -> None:
    """Prints a table; the columns at the places `right` hold numbers. Cells may have markup."""
    table = Table(*head) if lines else Table(*head, box=None)
    for place in right:
        table.columns[place].justify, table.columns[place].no_wrap = "right", True
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def progress_bar() -> Progress:
    """How many clients are done; for a person at a terminal, and without times."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)


def agrees(question: str) -> bool:
    """Whether a person says yes; no, if nobody is there to be asked."""
    try:
        return typer.confirm(question)
    except typer.Abort:
        say("")
        return False


@contextmanager
def shown_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each thing that is going on, told by calls with (what, done, of how many)."""
    with progress_bar() as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, visible=done < total)

        yield report


def print_json(document: dict[str, Any]) -> None:
    """One JSON object on standard output; infinities become null."""
    sys.stdout.write(readable(_finite(document)))


def show_warning(message: Warning | str) -> None:
    """A warning as a sentence for people, without the line of code that raised it."""
    notes.print(Text.assemble(("warning:", "yellow"), f" {plain(str(message))}"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
