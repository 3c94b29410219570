"""What a run prints for people, and how `fedprikl federate` finds it in the stream.

A run's log is stored by the SuperLink: only public words go here, and the noised release. Some of
the words are others' (why a client refused), and the log passes through the relay: on neither side
may a character reach a terminal that does more than show itself.
"""

import re
from collections.abc import Mapping

from fedprikl.protocol import IdentityCheck, Release, Round, StepCount

__all__ = [
    "MARK",
    "cohorts_line",
    "failure_line",
    "identity_line",
    "named",
    "parse_line",
    "printable",
    "release_line",
    "short_name",
    "step_line",
    "waiting_line",
]

MARK = "[fedprikl]"
LOST = "lost: "
DIGITS, MOST_NAMES = 12, 20  # of a key that are shown, and how many clients a line names
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


def step_line(count: StepCount, seconds: float, names: Mapping[str, str]) -> str:
    """How a step went, and who did not answer, which the relay sees anyway.

    Not who refused: a refusal may depend on records. `names` says who a node is: a key of the
    roster, or the node's own number; of a key the first digits.
    """
    words = (
        f"{MARK} {count.step}: {count.answered} of {count.asked} answered, {count.refused} "
        f"refused, {count.lost} lost, {seconds:.0f} s"
    )
    lost = [short_name(names.get(node, node)) for node in count.silent]
    if not lost:
        return words
    more = f" and {len(lost) - MOST_NAMES} more" if len(lost) > MOST_NAMES else ""
    return f"{words}; {LOST}{', '.join(lost[:MOST_NAMES])}{more}"


def short_name(who: str) -> str:
    """The first digits of a key, enough to find it in a roster; the number of a node as it is."""
    return who[:DIGITS] if len(who) == 64 else f"node {who}"


def named(line: str, names: Mapping[str, str]) -> str:
    """A line of progress with names in place of the first digits of keys.

    >>> named("input: 7 of 8 answered; lost: 0123456789ab, node 7", {"0123456789ab": "north"})
    'input: 7 of 8 answered; lost: north, node 7'
    """
    words, mark, lost = line.partition(f"; {LOST}")
    found = re.sub(f"[0-9a-f]{{{DIGITS}}}", lambda key: names.get(key[0], key[0]), lost)
    return f"{words}{mark}{found}"


def waiting_line(found: int, needed: int, seconds: float) -> str:
    """Whom a run waits for."""
    return f"{MARK} {found} of {needed} sites are connected; waiting {seconds:.0f} s for the others"


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
