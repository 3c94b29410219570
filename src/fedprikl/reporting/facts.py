"""What a release says to people."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fedprikl.protocol import Release
from fedprikl.protocol.client import NO_ROOM

__all__ = ["ReleaseFacts", "absences", "decimals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """The part of a release that people read."""

    population: str
    target: str
    value: float
    interval: tuple[float, float] | None
    verdict: str  # empty where there is none
    statement: str  # of privacy
    released_at: str
    clients: int  # invited
    included: int
    cohorts: int
    dropped: tuple[str, ...]  # why, for each cohort that was
    payload: int

    @classmethod
    def of(cls, release: Release) -> "ReleaseFacts":
        """Of a release, whose content has been checked field by field."""
        content = release.content
        verdict, cohorts = content["verdict"], content["cohorts"]
        reasons = [cohort["dropped_because"] for cohort in cohorts]
        return cls(
            population=content["population"],
            target=content["target"],
            value=release.value,
            interval=release.interval,
            verdict="" if verdict is None else verdict["statement"],
            statement=content["privacy"]["statement"],
            released_at=content["released_at"],
            clients=sum(cohort["clients"] for cohort in cohorts),
            included=sum(cohort["included"] for cohort in cohorts),
            cohorts=len(cohorts),
            dropped=tuple(reason for reason in reasons if reason),
            payload=content["payload_counts"],
        )

    @property
    def counted(self) -> str:
        """How many clients the answer is about, and the secure sums that failed."""
        lines = [f"Counted: {self.included:,} of {self.clients:,} clients."]
        for reason, sums in Counter(self.dropped).items():
            what = "1 secure sum was" if sums == 1 else f"{sums:,} secure sums were"
            lines.append(f"{what} dropped: {reason}")
        return "\n".join(lines)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        digits, between = 3, ""
        if self.interval is not None:
            low, high = self.interval
            digits = decimals(high - low)
            between = f" (95% interval: {_shown(low, digits)} to {_shown(high, digits)})"
        return (
            f"The records of {self.population} differ from the reference by "
            f"{self.target} = {_shown(self.value, digits)} nats{between}."
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


def _shown(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if abs(value) < 1e9 else f"{value:.6g}"
