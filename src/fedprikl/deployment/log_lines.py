"""Lines of a party's log: one format for all of its processes, with time and level.

    2027-01-04T09:00:00Z INFO executor: ...
    {"time": "2027-01-04T09:00:00Z", "level": "INFO", "process": "executor", "message": "..."}

The processes write as they like, Flower's in colours. A release is no line of a log: it is a file.
"""

import json
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

from fedprikl.deployment.progress import parse_line, printable

LogFormat = Literal["text", "json"]
_TIME = r"(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)? +)?"
_USUAL = "Public key already in use"  # `fedprikl federation ask` registers all sites again
_LEVEL = re.compile(rf"^{_TIME}(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b\s*:?\s*(.*)$")


def log_line(text: str, process: str, *, at: datetime, form: LogFormat) -> str:
    r"""One line of a process as a line of the log; empty for what does not belong there.

    >>> at = datetime(2027, 1, 4, 9, tzinfo=UTC)
    >>> log_line("\x1b[92mINFO \x1b[0m:      Starting", "supernode", at=at, form="text")
    '2027-01-04T09:00:00Z INFO supernode: Starting'
    >>> log_line("2027-01-04 08:59:59,9 ERROR no disk", "executor", at=at, form="json")[-53:]
    '"ERROR", "process": "executor", "message": "no disk"}'
    """
    clean = printable(text).strip()
    told = parse_line(clean)
    if not clean or (told is not None and told[0] == "release"):
        return ""
    found = _LEVEL.match(clean)
    level, words = (found[1], found[2]) if found else ("INFO", clean)
    if told is not None and told[0] == "failure":
        level = "ERROR"
    if _USUAL in words:
        level = "INFO"
    time = f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if form == "json":
        content = {"time": time, "level": level, "process": process, "message": words}
        return json.dumps(content, ensure_ascii=False)
    return f"{time} {level} {process}: {words}"


def log_to(
    form: LogFormat, stream: TextIO | None = None, now: Callable[[], datetime] | None = None
) -> Callable[[str, str], None]:
    """What takes (process, text), from any thread, and writes the lines; by default to stderr."""
    turn = threading.Lock()

    def write(process: str, text: str) -> None:
        at, where = (now or (lambda: datetime.now(UTC)))(), stream or sys.stderr
        for each in text.splitlines():
            if line := log_line(each, process, at=at, form=form):
                with turn:
                    print(line, file=where, flush=True)

    return write
