"""What a run prints for people, and how `fedprikl federate` finds it in the stream.

A run's log is stored by the SuperLink: only public words go here, and the noised release. Some of
the words are others' (why a client refused), and the log passes through the relay: on neither side
may a character reach a terminal that does more than show itself.
"""

import re

from fedprikl.protocol import IdentityCheck, Release, Round, StepCount

__all__ = [
    "cohorts_line",
    "failure_line",
    "identity_line",
    "parse_line",
    "printable",
    "release_line",
    "step_line",
]

MARK = "[fedprikl]"
_RELEASE, _FAILURE = "release: ", "no release: "
_ESCAPES = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]")  # colours, the cursor


def printable(text: str) -> str:
    """The text without escape sequences; any other character that does not show is a space."""
    return "".join(c if c.isprintable() else " " for c in _ESCAPES.sub("", text))


def identity_line(check: IdentityCheck, seconds: float) -> str:
    """Who is there."""
    return (
        f"{MARK} roster: {len(check.identities)} SuperNodes are known, {check.left_out} left out, "
        f"{seconds:.0f} s"
    )


def cohorts_line(current: Round) -> str:
    """Who is asked."""
    sizes = [len(cohort.members) for cohort in current.cohorts]
    what = "cohort" if len(sizes) == 1 else "cohorts"
    return (
        f"{MARK} round {current.round_id}: {sum(sizes)} clients in {len(sizes)} {what} of "
        f"{min(sizes)} to {max(sizes)}"
    )


def step_line(count: StepCount, seconds: float) -> str:
    """How a step went."""
    return (
        f"{MARK} {count.step}: {count.answered} of {count.asked} answered, {count.refused} "
        f"refused, {count.lost} lost, {seconds:.0f} s"
    )


def release_line(release: Release) -> str:
    """The release itself, on one line."""
    return f"{MARK} {_RELEASE}{release.to_bytes().decode()}"


def failure_line(reason: str) -> str:
    """Why there is none."""
    return f"{MARK} {_FAILURE}{printable(reason)}"


def parse_line(line: str) -> tuple[str, str] | None:
    """("release" | "failure" | "progress", words) of a line of a run's log; None for Flower's."""
    clean = printable(line).strip()
    if not clean.startswith(f"{MARK} "):
        return None
    words = clean.removeprefix(f"{MARK} ")
    for kind, start in (("release", _RELEASE), ("failure", _FAILURE)):
        if words.startswith(start):
            return kind, words.removeprefix(start)
    return "progress", words
