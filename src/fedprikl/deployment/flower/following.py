"""A run on a SuperLink, as the organiser sees it: start it, read what it prints, to the release."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fedprikl.deployment.progress import parse_line, printable
from fedprikl.errors import DeploymentError
from fedprikl.protocol import Release

__all__ = ["RunConfig", "follow_round"]

RunConfig = Mapping[str, str | float]
RECONNECTIONS, PAUSE = 60, 2.0  # attempts to read on, and seconds before each


def follow_round(
    app: Path,
    superlink: str,
    config: RunConfig,
    federation: Sequence[str] = (),
    *,
    verbose: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Release, list[str]]:
    """Starts a run and reads what it prints, to the end: the release, unchecked, and the progress.

    `tell` is handed every line of progress as it comes; `verbose`: Flower's own lines too. Raises a
    `DeploymentError` that says why there is no release.
    """
    watch = _Watch(verbose, tell)
    watch.follow(_flwr_run(app, superlink, config, federation))
    for _ in range(RECONNECTIONS):
        if watch.is_over or not watch.run or watch.status.startswith("finished"):
            break
        watch.status = _status(superlink, watch.run)
        time.sleep(PAUSE)
        watch.follow(_flwr("log", watch.run, superlink, "--stream"))  # the stream broke off
    return watch.result()


def _flwr_run(
    app: Path, superlink: str, config: RunConfig, federation: Sequence[str]
) -> Iterator[str]:
    """The lines of `flwr run --stream`, which is how Flower starts a run."""
    values = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    more = [word for text in federation for word in ("--federation-config", text)]
    return _flwr("run", str(app), superlink, "--stream", "--run-config", values, *more)


def _flwr(*arguments: str) -> Iterator[str]:
    """The lines that Flower's own command prints."""
    with subprocess.Popen(  # noqa: S603  the arguments are a list, no shell reads them
        [sys.executable, "-c", "from flwr.cli.app import app; app()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            yield from process.stdout or ()
        finally:
            process.terminate()


def _status(superlink: str, run: str) -> str:
    """What Flower says of a run, "finished:failed: why"; nothing if it cannot be asked now."""
    listed = "".join(_flwr("list", superlink, "--run-id", run, "--format", "json"))
    try:
        (found,) = json.loads(listed[listed.find("{") :])["runs"]
        words = (found["status"], found["status-details"])
        return printable(": ".join(word for word in words if word))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


class _Watch:
    """What the lines of a run have said so far; a stream may break off and be taken up again."""

    def __init__(self, verbose: bool, tell: Callable[[str], None]) -> None:
        self._verbose, self._tell = verbose, tell
        self._progress: list[str] = []
        self._last: list[str] = []
        self._failure = ""
        self._release: Release | None = None
        self.run = ""  # Flower's name of it
        self.status = ""  # what Flower said of it when the stream broke off

    @property
    def is_over(self) -> bool:
        return self._release is not None or bool(self._failure)

    def follow(self, lines: Iterator[str]) -> None:
        """Reads a stream to its end and tells the progress; what was told is not told again."""
        for line in map(printable, lines):  # the relay's words must not steer a terminal
            found = parse_line(line)
            new = found is not None and found[0] == "progress" and found[1] not in self._progress
            if self._verbose or new:
                self._tell(line.rstrip())
            match found:
                case None:
                    self._note(line.strip())
                case ("release", words):
                    self._release = Release.from_bytes(words)
                case ("failure", words):
                    self._failure = words
                case (_, words) if new:
                    self._progress.append(words)

    def _note(self, line: str) -> None:
        if line:
            self._last = [*self._last, line][-15:]
        if started := re.search(r"started run (\d+)", line):
            self.run = started[1]

    def result(self) -> tuple[Release, list[str]]:
        """The release and the progress, or an error that says why there is no release."""
        if self._release is None:
            last = "\n".join(self._last)
            status = f" ({self.status})" if self.status else ""
            detail = self._failure or f"Flower ended without one{status}. Its last words:\n{last}"
            raise DeploymentError(f"There is no release. {detail}")
        return self._release, self._progress
