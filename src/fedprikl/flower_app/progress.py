"""What a run prints for people, and how `fedprikl federate` finds it in the stream.

A run's log is stored by the SuperLink: only public words go here, and the noised release.
"""

import re

from fedprikl.federation import Release, RollCall, Round, StepCount

__all__ = [
    "cohorts_line",
    "failure_line",
    "parse_line",
    "release_line",
    "roll_line",
    "step_line",
]

MARK = "[fedprikl]"
_RELEASE, _FAILURE = "release: ", "no release: "
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


def roll_line(roll: RollCall, seconds: float) -> str:
    """Who is there."""
    return (
        f"{MARK} roster: {len(roll.identities)} SuperNodes are known, {roll.left_out} left out, "
        f"{seconds:.1f} s"
    )


def cohorts_line(this: Round) -> str:
    """Who is asked."""
    sizes = [len(cohort.members) for cohort in this.cohorts]
    what = "cohort" if len(sizes) == 1 else "cohorts"
    return (
        f"{MARK} round {this.round_id}: {sum(sizes)} clients in {len(sizes)} {what} of "
        f"{min(sizes)} to {max(sizes)}"
    )


def step_line(count: StepCount, seconds: float) -> str:
    """How a step went."""
    return (
        f"{MARK} {count.step}: {count.answered} of {count.asked} answered, {count.refused} "
        f"refused, {count.lost} lost, {seconds:.1f} s"
    )


def release_line(release: Release) -> str:
    """The release itself, on one line."""
    return f"{MARK} {_RELEASE}{release.to_bytes().decode()}"


def failure_line(reason: str) -> str:
    """Why there is none."""
    return f"{MARK} {_FAILURE}{reason}"


def parse_line(line: str) -> tuple[str, str] | None:
    """("release" | "failure" | "progress", words) of a line of a run's log; None for Flower's."""
    clean = _COLOURS.sub("", line).strip()
    if not clean.startswith(f"{MARK} "):
        return None
    words = clean.removeprefix(f"{MARK} ")
    for kind, start in (("release", _RELEASE), ("failure", _FAILURE)):
        if words.startswith(start):
            return kind, words.removeprefix(start)
    return "progress", words
