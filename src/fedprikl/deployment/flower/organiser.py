"""The organiser: starts a run on a SuperLink, reads what it prints, and checks its release.

The relay between organiser and aggregator is not trusted: a release is believed only if the
aggregator's key signed it, about this plan, in answer to this very request.
"""

import json
import os
import re
import select
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedprikl.checks import check_names
from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.flower.privates import FLWR, STARTED, STOPPED
from fedprikl.deployment.progress import (
    named,
    not_counted,
    parse_line,
    printable,
    roster_lines,
    short_name,
)
from fedprikl.deployment.tls import CLOCKS, check_relay, clock_words
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.monitoring.history import History
from fedprikl.protocol import Plan, Release, Roster, SignedPlan

RunConfig = Mapping[str, str | float]
CONNECTION = frozenset({"address", "federation", "insecure", "options", "root-certificates"})
RECONNECTIONS, PAUSE = 60, 2.0  # attempts to read on, and seconds before each
START = 60.0  # seconds that a run may take to be taken by the aggregator
QUIET = 5.0  # seconds without a line, after which people are told what is waited for
WAITS = frozenset({"grace", "step-timeout", "timeout", "wait"})
LONGEST = 7 * 86400.0  # seconds of each
LAST_WORDS = timedelta(seconds=15)  # after the deadline, for a release that was in time
WHERE_IT_LIES = (
    "If the aggregator has charged the round, its release lies in releases/ of the aggregator's "
    "$FEDPRIKL_HOME: `fedprikl verify` checks it."
)


def check_connection(name: str) -> None:
    """Raises a `DeploymentError` if the SuperLink of Flower's config file cannot be trusted.

    Also if this machine's clock is too far from the relay's for a release to be believed.

    Connections that Flower manages itself, like its local simulation, are left to it.
    """
    path = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "config.toml"
    try:
        known = tomllib.loads(path.read_text(encoding="utf-8")).get("superlink")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise DeploymentError(
            f"Flower's config file {path} cannot be read: {error.strerror}. Correct it."
        ) from None
    except (ValueError, RecursionError):
        raise DeploymentError(f"Flower's config file {path} is not TOML. Correct it.") from None
    found = known.get(name) if isinstance(known, dict) else None
    if not isinstance(found, dict):
        raise DeploymentError(
            f"Flower's config file {path} has no connection [superlink.{name}]. Add one with "
            "`address` and `root-certificates`."
        )
    check_names(found, CONNECTION, f"of [superlink.{name}] in Flower's config file {path}")
    address = str(found.get("address", ""))
    host, _, port = address.rpartition(":")
    if not host.strip("[]:") or not port.isdecimal() or found.get("insecure"):
        return
    ahead = check_relay(address, found.get("root-certificates"))
    if abs(ahead) > CLOCKS:  # before anything is asked and charged
        raise DeploymentError(
            f"{clock_words(ahead, address)} Nothing was asked: a new release would look like an "
            "old one."
        )


def roster_names(path: Path, plan: Plan, *, clients: int) -> dict[str, str]:
    """The name of each member by the first digits of its key, which are the name of one without.

    Refuses a roster that the plan does not name, and one with fewer clients than are waited for.
    """
    roster = Roster.load(path)
    if roster.fingerprint != plan.roster:
        raise InvalidInputError(
            f"The plan names another roster than {path}, or none. Bring the one it was planned "
            "with, or leave --roster out. Nothing was asked."
        )
    if len(roster) < clients:
        raise InvalidInputError(
            f"The roster has {len(roster)} clients, and --clients waits for {clients}: they would "
            "never come. Nothing was asked; wait for fewer."
        )
    found = {short_name(key): name for key, name in roster_lines(path).items()}
    often = Counter(found.values())
    return {
        key: name if often[name] == 1 and name else f"{name} {key}".strip()
        for key, name in found.items()
    }


def _check_genuine(release: Release, plan: Plan, *, key: str) -> None:
    """Refuses a release that another key signed, or about another plan."""
    if not release.is_signed_by(key):
        raise InvalidInputError(
            "The release is NOT genuine: another key signed it than the one you gave. Do not use "
            f"it. {WHERE_IT_LIES}"
        )
    if not release.is_about(plan):
        raise InvalidInputError(
            "The release is about another plan than yours, which has the fingerprint "
            f"{plan.fingerprint[:16]}; nothing was written. {WHERE_IT_LIES}"
        )


def _check_fresh(release: Release, *, request: str, started: datetime) -> None:
    """Refuses a release that does not answer this very request: a relay may have kept others."""
    clocks = timedelta(seconds=CLOCKS)
    try:
        released = datetime.fromisoformat(release.released_at)
        in_time = started - clocks <= released <= datetime.now(UTC) + clocks
    except (TypeError, ValueError):  # no time, or one without an offset
        in_time = False
    if release.request != request:
        raise InvalidInputError(
            "An old or foreign release was offered: it does not answer this request. Nothing was "
            f"written. The relay may have replayed it. {WHERE_IT_LIES}"
        )
    if not in_time:
        raise InvalidInputError(
            "An old or foreign release was offered: it was not made while this command ran, or "
            f"the clocks differ by more than {CLOCKS // 60} minutes. Nothing was written. "
            "The round was charged. Its release lies in releases/ of the aggregator's "
            "$FEDPRIKL_HOME: check it with `fedprikl verify`, and set the clocks."
        )


def _check_everybody(release: Release, *, members: int) -> None:
    """Refuses a release without some of the clients: a relay may leave `everybody` out.

    `members`: of the roster; 0 if it is not known here.
    """
    asked = max(members, sum(cohort.clients for cohort in release.cohorts))
    included = sum(cohort.included for cohort in release.cohorts)
    if included < asked:
        raise InvalidInputError(
            f"All or nothing was asked (--all), and the release counts {included} of {asked} "
            "clients. Nothing was written. The round was charged. Did the relay change what was "
            f"asked? {WHERE_IT_LIES}"
        )


def _check_of_period(release: Release, *, period: object, previous: object) -> None:
    """Refuses a release of another period, or with another one before it.

    It may be of an earlier run: a period has one release for ever, so an old one is no replay.
    """
    found = release.period
    if found is None or found.number != period:
        raise InvalidInputError(
            f"A release of another period than {period} was offered. Nothing was written. The "
            "relay may have replayed it."
        )
    if found.previous != previous:
        raise InvalidInputError(
            f"The release of period {period} follows another release than the newest of this "
            "history, so the history is not the one that it was asked with. Nothing was written; "
            "bring that history back."
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedSeries:
    """A series over a federation: the aggregator counts, this side keeps the history.

    `config` is what `fedprikl federate` also passes: `clients`, `wait`, `step-timeout`, `grace`.
    """

    signed: SignedPlan
    superlink: str  # the connection's name in Flower's config file
    key: str  # the aggregator's public key
    config: RunConfig = field(default_factory=dict)
    note: Callable[[str], None] = lambda _: None
    members: Mapping[str, str] = field(default_factory=dict)  # of the roster, see `roster_names`

    def recover(self, history: History, *, at: str) -> None:
        """Nothing to settle here: the aggregator tells the release of a period again."""

    def run(self, history: History, number: int, *, previous: str, at: str) -> None:
        """Has one period counted and keeps its release, and who of the roster was counted."""
        check_connection(self.superlink)  # not before: where nothing is due, no relay is needed
        lines: list[str] = []

        def tell(line: str) -> None:
            lines.append(line)
            self.note(named(line, self.members))

        try:
            release = self.ask(number, previous, tell)
        except DeploymentError as error:
            raise DeploymentError(named(str(error), self.members)) from None
        missing = not_counted(lines)
        asked = {} if missing is None else self.members
        answered = [name for key, name in asked.items() if key not in (missing or ())]
        history.keep(release.to_bytes(), asked=asked.values(), answered=answered, at=at)

    def ask(self, number: int, previous: str, tell: Callable[[str], None]) -> Release:
        """The release of a period, verified: of this key, plan, period and place in the chain.

        `previous` is the fingerprint of the newest release in the history. Safe to ask again after
        any crash: an aggregator that has released the period tells the same release.
        """
        plan = self.signed.plan.fingerprint
        asked: RunConfig = {"plan": plan, "period": number, "previous": previous}
        config = {**self.config, **asked}
        return follow_round(self.signed.plan, self.key, self.superlink, config, tell=tell)[0]


def longest_run(config: RunConfig) -> float:
    """Seconds that a run may take if every wait lasts as long as it may.

    >>> longest_run({"wait": 60.0, "step-timeout": 120.0})
    840.0
    """
    wait, step = float(config.get("wait", 60.0)), float(config.get("step-timeout", 120.0))
    return START + wait + 6 * step  # an identity check and five steps


def follow_round(
    plan: Plan,
    key: str,
    superlink: str,
    config: RunConfig,
    *,
    app: Path = APP_FOLDER,
    federation: Sequence[str] = (),
    timeout: float | None = None,
    verbose: bool = False,
    members: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Release, list[str]]:
    """Starts a run and reads what it prints, to the end: the release, verified, and the progress.

    Verified is that the aggregator's `key` signed it, about this plan, and that it answers this
    very request; of a series, that it is the release of the period. Where `everybody` was asked
    for, that all `members` of the roster are counted.

    `tell` is handed every line of progress as it comes; `verbose`: Flower's own lines too. Raises a
    `DeploymentError` that says why there is no release. After `timeout` seconds, by default
    `longest_run`, nobody waits any longer: the run carries that moment as its deadline, so that the
    aggregator does not release later, and is stopped. An interrupt stops it too.
    """
    waits: RunConfig = config if timeout is None else {**config, "timeout": timeout}
    for name in WAITS & waits.keys():
        if not 0 <= float(waits[name]) <= LONGEST:
            raise InvalidInputError(
                f"--{name} {waits[name]} is no time to wait. Give seconds, from 0 to "
                f"{LONGEST:.0f}, which is a week."
            )
    seconds = longest_run(config) if timeout is None else timeout
    started, request = datetime.now(UTC), os.urandom(16).hex()
    until = started + timedelta(seconds=seconds)
    config = {**config, "request": request, "signer": key, "deadline": until.isoformat()}
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
    release = watch.result()
    _check_genuine(release, plan, key=key)
    if "period" in config:
        _check_of_period(release, period=config["period"], previous=config["previous"])
    else:
        _check_fresh(release, request=request, started=started)
    if config.get("everybody"):
        _check_everybody(release, members=max(members, int(config.get("clients", 0))))
    return release, watch.progress


def _stop(superlink: str, run: str) -> str:
    """Stops a run, so that it releases nothing that nobody waits for; what came of it, in words."""
    if not run:
        return "Whether the relay has taken the run is unknown; its deadline will end it."
    if STOPPED in "".join(_flwr("stop", run, superlink)):
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
        [sys.executable, "-c", FLWR, *arguments],
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
        self.progress: list[str] = []
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
        if not self.progress:
            return "No aggregator took the run: start it with `fedprikl aggregator`."
        return f"The last that was heard of it: {self.progress[-1]}. {self._what_it_cost}"

    @property
    def _what_it_cost(self) -> str:
        """What an aggregator that ended without a word may have charged, and what to do."""
        found = (re.match(r"round \w+(?=:)", line) for line in self.progress)
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
            if text:
                self._read(printable(text))  # the relay's words must not steer a terminal
            elif not self.progress and not self.is_over:
                self._say_what_is_missing()

    def _read(self, line: str) -> None:
        kind, words = parse_line(line) or ("", line.strip())
        new = kind == "progress" and words not in self.progress
        if self._verbose or new:
            self._tell(line.rstrip())
        if kind == "release":
            self._release = Release.from_bytes(words)
        elif kind == "failure":
            self._failure = words
        elif new:
            self.progress.append(words)
        elif not kind and words:  # Flower's own
            self._last = [*self._last, words][-15:]
            if started := STARTED.search(words):
                self.run = started[1]

    def _say_what_is_missing(self) -> None:
        """Once for each thing that is waited for."""
        what = "the aggregator to take the run" if self.run else "the relay to take the run"
        if what != self._told:
            self._told = what
            self._tell(f"waiting for {what}, until {self._until.isoformat(timespec='seconds')}")

    def result(self) -> Release:
        """The release, not verified yet, or an error that says why there is none."""
        if self._release is not None:
            return self._release
        if self._failure:
            raise DeploymentError(f"There is no release. {self._failure}")
        status = f" ({self.status})" if self.status else ""
        silent = (
            f"The aggregator did not say how the run ended{status}: it was stopped or killed, "
            f"or it lost the relay. {self._what_it_cost}"
            if self.run
            else "Flower ended without one."
        )
        last = "\n".join(self._last)
        raise DeploymentError(f"There is no release. {silent} Flower's last words:\n{last}")
