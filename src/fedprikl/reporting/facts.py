"""What a release says to people: the command line and the pages show the same words."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fedprikl.protocol import Answer, Outcome, Release
from fedprikl.protocol.client import NO_ROOM

__all__ = ["ReleaseFacts", "absences", "decimals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """A release in words, in the order in which they are shown."""

    drift: str  # whether there is any
    answers: tuple[str, ...]  # one sentence for each
    counted: str  # how many clients the answers are about, and who is missing
    privacy: str

    @classmethod
    def of(cls, release: Release, absent: Iterable[str] = ()) -> "ReleaseFacts":
        """What a release says; `absent` are lines about clients that took no part."""
        drift = "There is no verdict: it could not be computed for this release."
        if release.verdict is not None:
            drift = f"{release.verdict}."
        return cls(
            drift=drift,
            answers=tuple(_sentence(answer, release) for answer in release.answers),
            counted="\n".join([*_counted(release.cohorts), *absent]),
            privacy=str(release.privacy),
        )


def absences(reasons: Iterable[str], most_records: int) -> tuple[str, ...]:
    """Why clients took no part, each reason once. The reasons are what they told everybody."""
    room = (
        "the plan has no room for as many records as they hold "
        f"(most_records {most_records}; plan with a larger --most-records)"
    )
    return tuple(
        f"{clients:,} took no part: {room if reason == NO_ROOM else reason}."
        for reason, clients in Counter(reasons).most_common()
    )


def decimals(width: float) -> int:
    """Digits after the point that tell the two ends of an interval apart: at least 3.

    >>> decimals(0.2), decimals(0.0004)
    (3, 5)
    """
    if not 0 < width < math.inf:
        return 3
    return min(max(3, 1 - math.floor(math.log10(width))), 12)


def _sentence(answer: Answer, release: Release) -> str:
    digits, between = 3, ""
    if answer.interval is not None:
        low, high = answer.interval
        digits = decimals(high - low)
        between = f" (95% interval: {_shown(low, digits)} to {_shown(high, digits)}"
        between += f"{_guarantee(answer, digits)})"
    value = f"{_shown(answer.value, digits)} {answer.unit}".rstrip()
    return (
        f"The records of {release.population} differ from the reference by "
        f"{answer.target} = {value}{_by_chance(answer, release.records, digits)}{between}."
    )


def _guarantee(answer: Answer, digits: int) -> str:
    """Which interval holds for every population; the other one was tried on many kinds of drift."""
    if answer.guaranteed is None:
        return ""
    if answer.guaranteed == answer.interval:
        return ", guaranteed"
    low, high = (_shown(end, digits) for end in answer.guaranteed)
    return f"; guaranteed: {low} to {high}"


def _by_chance(answer: Answer, records: int, digits: int) -> str:
    """The part of the value that so many records have without any drift, because they are few."""
    if answer.no_drift is None:
        return ""
    chance, many = _shown(answer.no_drift, digits), f"{records:,} records"
    if 0 <= answer.no_drift < answer.value:
        return f", of which about {chance} is what {many} give without any drift"
    return f"; {many} give about {chance} without any drift"


def _counted(cohorts: Iterable[Outcome]) -> Iterable[str]:
    ended = tuple(cohorts)
    included, clients = sum(c.included for c in ended), sum(c.clients for c in ended)
    yield f"Counted: {included:,} of {clients:,} clients."
    for reason, sums in Counter(c.reason for c in ended if c.reason).items():
        what = "1 secure sum was" if sums == 1 else f"{sums:,} secure sums were"
        yield f"{what} dropped: {reason}"


def _shown(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if abs(value) < 1e9 else f"{value:.6g}"
