"""What a run tells people, line by line; all of it is public.

A run's log is stored by the SuperLink: only public words go there, and the noised release. Some of
the words are others' (why a client refused), and the log passes through the relay: on neither side
may a character reach a terminal that does more than show itself. `fedprikl federate` finds the
lines of a run in the stream (`parse_line`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedprikl.protocol import IdentityCheck, Round

if TYPE_CHECKING:  # the command of a site loads no estimation
    from fedprikl.protocol import Release, StepCount

MARK = "[fedprikl]"
LOST, ABSENT, NOT_COUNTED, NOBODY = "; lost: ", "; absent: ", "not counted: ", "nobody"
RELAY_SAYS = "so the relay says"  # of a refusal in the open: nobody has signed it
FIRST = ", the first of them "  # who refused
# What a refusal in the open has in it, and what people are told: these words and no others, so that
# nothing about a record can be among them.
BOTH_LIMITS = "its policy allows less: largest-epsilon, largest-delta"
REASONS = (
    ("waits for a person", "waits for a person at the site to say yes"),
    ("said no", "a person at the site said no"),
    ("it answers from", "answers at other hours only"),
    ("(largest-epsilon) and delta", BOTH_LIMITS),
    ("(largest-epsilon)", "its policy allows less: largest-epsilon"),
    ("(largest-delta)", "its policy allows less: largest-delta"),
    ("exceed the limits", BOTH_LIMITS),  # of earlier versions
    ("releases of a year", "its policy allows less: largest-epsilon-per-year"),
    ("answers nothing", "its policy allows other columns: columns"),
    ("(populations)", "its policy allows other populations: populations"),
    ("another roster", "has another roster: stop it, and start it with the newest kit"),
    ("about the reference", "lacks the reference: stop it, and start it with the newest kit"),
    ("most-counts", "its policy allows no further count: most-counts"),
    ("(releases)", "was counted as often as the plan says: releases"),
    ("newer plan", "knows a newer plan"),
    ("not set up", "is not set up; its own log says why"),
    ("Flower reports error", "lost"),
)
LESS = "Plan with less, or let the sites raise this limit of their policies."
CURES = {  # what is to be done if all who refuse have one of these reasons
    "waits for a person": "Ask again when they have said yes: `fedprikl site requests`.",
    "said no": "Ask again when they have changed their minds: `fedprikl site approve`.",
    "it answers from": "Ask again at these hours.",
    "(largest-": LESS,
    "exceed the limits": LESS,
    "releases of a year": LESS,
    "answers nothing": "Plan without these columns, or let the sites allow them: columns.",
    "(populations)": "Plan for another population, or let the sites allow it: populations.",
    "another roster": "Ask again when they have started with the newest kit.",
    "about the reference": "Ask again when they have started with the newest kit.",
    "most-counts": "Ask again when they have raised most-counts in their policies.",
    "(releases)": "Plan again with more releases (--releases).",
    "newer plan": "Ask with the newest plan.",
    "not set up": "Ask again when the sites have mended what their own logs say.",
}
REFUSES = "refuses; its own log says why"
DIGITS, MOST_NAMES = 12, 20  # of a key that are shown, and how many clients a line names
_RELEASE, _FAILURE = "release: ", "no release: "
_ESCAPES = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]")  # colours, the cursor


def printable(text: str) -> str:
    """The text without escape sequences; any other character that does not show is a space."""
    return "".join(c if c.isprintable() else " " for c in _ESCAPES.sub("", text))


def identity_line(check: IdentityCheck, absent: Iterable[str], seconds: float) -> str:
    """Who is there, and who of the roster is not."""
    words = (
        f"{MARK} roster: {len(check.identities)} sites are known, {check.left_out} left out, "
        f"{seconds:.0f} s"
    )
    return words + _some(ABSENT, sorted(map(short_name, absent)))


def cohorts_line(current: Round) -> str:
    """Who is asked."""
    sizes = [len(cohort.members) for cohort in current.cohorts]
    what = "cohort" if len(sizes) == 1 else "cohorts"
    return (
        f"{MARK} round {current.round_id}: {sum(sizes)} clients in {len(sizes)} {what} of "
        f"{min(sizes)} to {max(sizes)}"
    )


def step_line(count: "StepCount", seconds: float, names: Mapping[str, str]) -> str:
    """How a step went, and who did not answer, which the relay sees anyway.

    Not who refused: a refusal may depend on records. `names` says who a node is: a key of the
    roster, or the node's own number; of a key the first digits.
    """
    words = (
        f"{MARK} {count.step}: {count.answered} of {count.asked} answered, {count.refused} "
        f"refused, {count.lost} lost, {seconds:.0f} s"
    )
    return words + _some(LOST, [short_name(names.get(node, node)) for node in count.silent])


def _some(mark: str, names: list[str]) -> str:
    """The first names after a mark; empty if there are none."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{mark}{', '.join(names[:MOST_NAMES])}{more}" if names else ""


def reason_in_public(words: str) -> str:
    """The entry of the public list for a refusal in the open.

    >>> reason_in_public("it waits for a person at this site to say yes; ask again later")
    'waits for a person at the site to say yes'
    """
    return next((told for part, told in REASONS if part in words), REFUSES)


def cure_in_public(reasons: Collection[str]) -> str:
    """What is to be done about refusals in the open, if they are all for one listed reason.

    >>> cure_in_public(["it answers from 08:00 to 18:00 (UTC) only; ask again then"] * 2)
    'Ask again at these hours.'
    >>> cure_in_public(["it answers from 08:00", "a person at this site said no"])
    ''
    """
    if len(set(map(reason_in_public, reasons))) != 1:
        return ""
    (first, *_) = reasons
    return next((cure for part, cure in CURES.items() if part in first), "")


def not_counted_line(keys: Iterable[str], why: Mapping[str, str] | None = None) -> str:
    """Who of a roster is not in the sums, all of them: absent, refused and lost.

    The relay knows it anyway, from whom the aggregator goes on asking. `why`: of those who refused
    in the open, which the relay has read and may have written; a sealed refusal has none.
    """
    names = [
        short_name(key) + (f" ({RELAY_SAYS}: {why[key]})" if why and key in why else "")
        for key in sorted(keys)
    ]
    return f"{MARK} {NOT_COUNTED}{', '.join(names) or NOBODY}"


def not_counted(lines: Iterable[str]) -> frozenset[str] | None:
    """The first digits of the keys that a run named so; None if it said nothing of the kind.

    >>> sorted(not_counted(["[fedprikl] not counted: 0123456789ab, 23456789abcd"]))
    ['0123456789ab', '23456789abcd']
    """
    start = f"{MARK} {NOT_COUNTED}"
    said = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return frozenset(re.findall(f"[0-9a-f]{{{DIGITS}}}", said[-1])) if said else None


def short_name(who: str) -> str:
    """The first digits of a key, enough to find it in a roster; the number of a node as it is."""
    return who[:DIGITS] if len(who) == 64 else f"node {who}"


def named(line: str, names: Mapping[str, str]) -> str:
    """A line of progress with names in place of the first digits of keys.

    >>> named("input: 7 of 8 answered; lost: 0123456789ab, node 7", {"0123456789ab": "north"})
    'input: 7 of 8 answered; lost: north, node 7'
    """
    words, *marked = re.split(f"({LOST}|{ABSENT}|{NOT_COUNTED}|{FIRST})", line, maxsplit=1)
    key = f"[0-9a-f]{{{DIGITS}}}"
    return words + "".join(re.sub(key, lambda k: names.get(k[0], k[0]), text) for text in marked)


def roster_lines(path: Path) -> dict[str, str]:
    """The name behind each key in the file of a roster; empty where there is none."""
    lines = (line.split("#")[0].split() for line in path.read_text("utf-8-sig").split("\n"))
    return {key: printable(" ".join(name)) for key, *name in filter(None, lines)}


def waiting_line(found: int, needed: int, seconds: float) -> str:
    """Whom a run waits for."""
    return f"{MARK} {found} of {needed} sites are connected; waiting {seconds:.0f} s for the others"


def release_line(release: "Release") -> str:
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
