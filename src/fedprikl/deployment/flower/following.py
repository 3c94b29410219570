"""A run on a SuperLink, as the organiser sees it: start it, read what it prints, to the release."""

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedprikl.deployment.answers import check_genuine, check_of_period
from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.progress import parse_line, printable
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import Plan, Release

RunConfig = Mapping[str, str | float]
RECONNECTIONS, PAUSE = 60, 2.0  # attempts to read on, and seconds before each
START = 60.0  # seconds that a run may take to be taken by the aggregator
QUIET = 5.0  # seconds without a line, after which people are told what is waited for
WAITS = frozenset({"grace", "step-timeout", "timeout", "wait"})
LONGEST = 7 * 86400.0  # seconds of each
LAST_WORDS = timedelta(seconds=15)  # after the deadline, for a release that was in time


def longest_run(config: RunConfig) -> float:
    """Seconds that a run may take if every wait lasts as long as it may.

    >>> longest_run({"wait": 60.0, "step-timeout": 120.0})
    840.0
    """
    wait, step = float(config.get("wait", 60.0)), float(config.get("step-timeout", 120.0))
    return START + wait + 6 * step  # an identity check and five steps


def check_waits(config: RunConfig) -> None:
    """Refuses what is no time to wait for anything."""
    for name in WAITS & config.keys():
        if not 0 <= float(config[name]) <= LONGEST:
            raise InvalidInputError(
                f"--{name} {config[name]} is no time to wait. Give seconds, from 0 to "
                f"{LONGEST:.0f}, which is a week."
            )


def follow_round(
    app: Path,
    superlink: str,
    config: RunConfig,
    federation: Sequence[str] = (),
    *,
    timeout: float | None = None,
    verbose: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Release, list[str]]:
    """Starts a run and reads what it prints, to the end: the release, unchecked, and the progress.

    `tell` is handed every line of progress as it comes; `verbose`: Flower's own lines too. Raises a
    `DeploymentError` that says why there is no release. After `timeout` seconds, by default
    `longest_run`, nobody waits any longer: the run carries that moment as its deadline, so that the
    aggregator does not release later, and is stopped. An interrupt stops it too.
    """
    check_waits(config if timeout is None else {**config, "timeout": timeout})
    seconds = longest_run(config) if timeout is None else timeout
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    config = {**config, "deadline": until.isoformat()}
    watch = _Watch(verbose, tell, until)
    try:
        watch.follow(_flwr_run(app, superlink, config, federation))
        for _ in range(RECONNECTIONS):
            if watch.is_over or not watch.run or watch.status.startswith("finished"):
                break
            watch.status = _status(superlink, watch.run)
            time.sleep(PAUSE)
            watch.follow(_flwr("log", watch.run, superlink, "--stream"))  # the stream broke off
    except TimeoutError:
        raise DeploymentError(
            f"There is no release after {seconds:.0f} s. {_stop(superlink, watch.run)} "
            f"{watch.whom_it_waited_for}"
        ) from None
    except KeyboardInterrupt:
        tell(_stop(superlink, watch.run))
        raise
    return watch.result()


def _stop(superlink: str, run: str) -> str:
    """Stops a run, so that it releases nothing that nobody waits for; what came of it, in words."""
    if not run:
        return "Whether the relay has taken the run is unknown; its deadline will end it."
    said = "".join(_flwr("stop", run, superlink))
    if "successfully stopped" in said:
        return f"Run {run} was stopped."
    return f"Run {run} could not be stopped, or is over; its deadline ends it. See `flwr list`."


def _flwr_run(
    app: Path, superlink: str, config: RunConfig, federation: Sequence[str]
) -> Iterator[str]:
    """The lines of `flwr run --stream`, which is how Flower starts a run."""
    values = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    more = [word for text in federation for word in ("--federation-config", text)]
    return _flwr("run", str(app), superlink, "--stream", "--run-config", values, *more)


def _flwr(*arguments: str) -> Iterator[str]:
    """The lines that Flower's own command prints; see `_lines`."""
    with subprocess.Popen(  # noqa: S603  the arguments are a list, no shell reads them
        [sys.executable, "-c", "from flwr.cli.app import app; app()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            if process.stdout is not None:
                yield from _lines(process.stdout.fileno())
        finally:
            process.terminate()


def _lines(pipe: int) -> Iterator[str]:
    """The lines of a pipe as they come, and an empty text whenever none has come for a while."""
    rest = b""
    while True:
        if not select.select([pipe], [], [], QUIET)[0]:
            yield ""
            continue
        piece = os.read(pipe, 65536)
        if not piece:
            break
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") + "\n" for line in whole)
    if rest:
        yield rest.decode("utf-8", "replace")


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

    def __init__(self, verbose: bool, tell: Callable[[str], None], until: datetime) -> None:
        self._verbose, self._tell, self._until = verbose, tell, until
        self._progress: list[str] = []
        self._last: list[str] = []
        self._failure = ""
        self._release: Release | None = None
        self._told = ""  # whom it said it waits for
        self.run = ""  # Flower's name of it
        self.status = ""  # what Flower said of it when the stream broke off

    @property
    def is_over(self) -> bool:
        return self._release is not None or bool(self._failure)

    @property
    def whom_it_waited_for(self) -> str:
        """What is missing, as far as this side can know."""
        if not self.run:
            return "The relay did not take the run: check that it is running."
        if not self._progress:
            return "No aggregator took the run: start it with `fedprikl aggregator`."
        return f"The last that was heard of it: {self._progress[-1]}. {self._what_it_cost}"

    @property
    def _what_it_cost(self) -> str:
        """What an aggregator that ended without a word may have charged, and what to do."""
        found = (re.match(r"round \w+(?=:)", line) for line in self._progress)
        what = next((name[0] for name in found if name), "the run")
        return (
            f"What {what} has charged is in the aggregator's ledger: run `fedprikl ledger` in its "
            "$FEDPRIKL_HOME. A round that is missing there, or cancelled, was not charged. A round "
            "that is open or committed stays charged; its release, if it was made, is in releases/."
            " See that the aggregator runs, then run this again: a round that has its noise is "
            "finished, and a period that was released is told again, at no charge. If sites then "
            "say that they were counted already, plan one more release (`fedprikl plan --releases "
            "2`)."
        )

    def follow(self, lines: Iterator[str]) -> None:
        """Reads a stream to its end and tells the progress; what was told is not told again.

        Raises a `TimeoutError` a little after the deadline: a release may be under way until then.
        """
        for text in lines:
            if datetime.now(UTC) > self._until + LAST_WORDS:
                raise TimeoutError
            if not text:
                self._say_what_is_missing()
                continue
            line = printable(text)  # the relay's words must not steer a terminal
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

    def _say_what_is_missing(self) -> None:
        """Once for each thing that is waited for."""
        if self._progress or self.is_over:
            return
        what = "the aggregator to take the run" if self.run else "the relay to take the run"
        if what != self._told:
            self._told = what
            self._tell(f"waiting for {what}, until {self._until.isoformat(timespec='seconds')}")

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
            silent = (
                f"The aggregator did not say how the run ended{status}: it was stopped or killed, "
                f"or it lost the relay. {self._what_it_cost}"
                if self.run
                else "Flower ended without one."
            )
            detail = self._failure or f"{silent} Flower's last words:\n{last}"
            raise DeploymentError(f"There is no release. {detail}")
        return self._release, self._progress


def ask_for_period(
    superlink: str,
    plan: Plan,
    *,
    name: str,
    period: int,
    previous: str,
    key: str,
    config: RunConfig | None = None,
    app: Path = APP_FOLDER,
    federation: Sequence[str] = (),
    verbose: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Release:
    """The release of a period, verified: of this key, plan, period and place in the chain.

    `name` is the plan's file in the aggregator's folder, `previous` the fingerprint of the newest
    release in the organiser's history, `config` what `fedprikl federate` also passes: `clients`,
    `wait`, `step-timeout`, `grace`. Safe to ask again after any crash: an aggregator that has
    released the period tells the same release.
    """
    asked: RunConfig = {
        **(config or {}),
        "plan": name,
        "period": period,
        "previous": previous,
        "request": os.urandom(16).hex(),
        "signer": key,
    }
    release, _ = follow_round(app, superlink, asked, federation, verbose=verbose, tell=tell)
    check_genuine(release, plan, key=key)
    check_of_period(release, period=period, previous=previous)
    return release
