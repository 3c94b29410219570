"""`fedprikl federate`: starts a round on a running federation and follows it to the release."""

import importlib.util
import json as json_module
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.console import notes, plain, print_json, say
from fedprikl.cli.options import check_key, plan_words
from fedprikl.cli.outputs import check_outputs
from fedprikl.cli.released import print_release, write_release
from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.flower.connection import check_connection
from fedprikl.deployment.progress import parse_line
from fedprikl.errors import DeploymentError, InvalidInputError, MissingExtraError
from fedprikl.front.plan_checks import check_valid, now
from fedprikl.protocol import Release, SignedPlan

__all__ = ["federate_command"]

RECONNECTIONS, PAUSE = 60, 2.0  # attempts to read on, and seconds before each
CLOCKS = timedelta(minutes=5)  # how far the aggregator's clock may be from this one


def federate_command(
    superlink: Annotated[
        str, typer.Argument(help="Name of the SuperLink connection in Flower's config file.")
    ],
    plan: Annotated[
        Path, typer.Option(help="Your copy of the plan; its name is the aggregator's too.")
    ] = Path("plan.json"),
    key: Annotated[
        str, typer.Option(help="The aggregator's public signing key, 64 hexadecimal digits.")
    ] = "",
    clients: Annotated[int, typer.Option(min=3, help="Wait until so many are connected.")] = 3,
    wait: Annotated[float, typer.Option(help="Seconds to wait for them.")] = 60.0,
    step_timeout: Annotated[float, typer.Option(help="Seconds a step waits for answers.")] = 120.0,
    grace: Annotated[
        float, typer.Option(help="Seconds a step waits on once so many answered as the plan needs.")
    ] = 30.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The signed release.")] = Path(
        "release.json"
    ),
    report: Annotated[Path, typer.Option(help="The report for people.")] = Path("report.html"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    flower_app: Annotated[
        Path,
        typer.Option("--app", help="Flower app to run.", show_default="the one of this package"),
    ] = APP_FOLDER,
    federation: Annotated[
        list[str] | None,
        typer.Option("--federation-config", help="Passed on to Flower, for simulations."),
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Show Flower's own lines too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Starts a round against a SuperLink, shows its progress, verifies and writes the release.

    Exit code 1, with the reason, if the round ends without a release.

    Example: `fedprikl federate my-superlink --plan plan.json --key 3f5a... --clients 20`
    """
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtraError("Federations need Flower: pip install 'fedprikl[flower]'.")
    key = check_key(key)
    check_outputs(output, report, force=force)
    signed = SignedPlan.load(plan)
    check_valid(signed.plan, now())
    check_connection(superlink)
    request, started = os.urandom(16).hex(), datetime.now(UTC)
    config: dict[str, str | float] = {
        "plan": plan.name,
        "request": request,
        "clients": clients,
        "wait": wait,
        "step-timeout": step_timeout,
        "grace": grace,
    }
    say(f"plan: {plan_words(signed)}", console=notes)
    release, progress = _follow(flower_app, superlink, config, federation or [], verbose)
    if not (release.is_signed_by(key) if key else release.is_intact):
        raise InvalidInputError("The release is NOT genuine: another key signed it. Do not use it.")
    if release.plan != signed.plan.fingerprint:
        raise InvalidInputError(
            f"The aggregator's {plan.name} is another plan than {plan}. The release is about its "
            "plan, not yours; nothing was written."
        )
    _check_fresh(release, request, started)
    write_release(release, signed.plan, {}, output=output, report=report)
    if json:
        print_json(release.to_dict() | {"progress": progress, "report": str(report)})
        return
    print_release(release)
    genuine = "with the key you gave" if key else "by its signer; compare it with the key you know"
    say(f"\nverified: signed {genuine}\nsigner: {release.signer}")
    say(f"release: {output}\nreport: {report}")


def _check_fresh(release: Release, request: str, started: datetime) -> None:
    """Refuses a release that does not answer this very request: a relay may have kept others."""
    try:
        released = datetime.fromisoformat(release.released_at)
        in_time = started - CLOCKS <= released <= datetime.now(UTC) + CLOCKS
    except (TypeError, ValueError):  # no time, or one without an offset
        in_time = False
    if release.request != request:
        raise InvalidInputError(
            "An old or foreign release was offered: it does not answer this request. Nothing was "
            "written. The relay may have replayed it; ask the aggregator what its ledger says."
        )
    if not in_time:
        raise InvalidInputError(
            "An old or foreign release was offered: it was not made while this command ran, or "
            f"the clocks differ by more than {CLOCKS.seconds // 60} minutes. Nothing was written."
        )


def _follow(
    flower_app: Path,
    superlink: str,
    config: dict[str, str | float],
    federation: list[str],
    verbose: bool,
) -> tuple[Release, list[str]]:
    """Starts the run and reads what it prints, to the end: the release and the progress."""
    watch = _Watch(verbose)
    watch.follow(_flwr_run(flower_app, superlink, config, federation))
    for _ in range(RECONNECTIONS):
        if watch.is_over or not watch.run or watch.status.startswith("finished"):
            break
        watch.status = _status(superlink, watch.run)
        time.sleep(PAUSE)
        watch.follow(_flwr("log", watch.run, superlink, "--stream"))  # the stream broke off
    return watch.result()


def _flwr_run(
    flower_app: Path, superlink: str, config: dict[str, str | float], federation: list[str]
) -> Iterator[str]:
    """The lines of `flwr run --stream`, which is how Flower starts a run."""
    values = " ".join(f"{name}={json_module.dumps(value)}" for name, value in config.items())
    more = [word for text in federation for word in ("--federation-config", text)]
    return _flwr("run", str(flower_app), superlink, "--stream", "--run-config", values, *more)


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
        (found,) = json_module.loads(listed[listed.find("{") :])["runs"]
        words = (found["status"], found["status-details"])
        return plain(": ".join(word for word in words if word))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


class _Watch:
    """What the lines of a run have said so far; a stream may break off and be taken up again."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
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
        """Reads a stream to its end and shows the progress; what was shown is not shown again."""
        for line in map(plain, lines):  # the relay's words must not steer this terminal
            found = parse_line(line)
            new = found is not None and found[0] == "progress" and found[1] not in self._progress
            if self._verbose or new:
                say(line.rstrip(), console=notes)
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
