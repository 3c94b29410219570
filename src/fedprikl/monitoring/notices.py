"""What there is to tell about a series: each notice has an identity, so that it is told once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fedprikl.documents import canonical, digest
from fedprikl.monitoring.status import AlarmFacts, SeriesStatus
from fedprikl.monitoring.words import alarm_words, headline, period_name
from fedprikl.shapes import to_plain

__all__ = ["Notice", "notices"]

NO_REASON = "no reason is known"
Kind = Literal["alarm", "missed", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One piece of news about a series. All of it is public."""

    kind: Kind
    population: str
    period: int | None  # None: of no period
    words: str
    headline: str  # of the series
    at: str
    plan: str  # fingerprint
    reference: str  # fingerprint
    alarm: AlarmFacts | None = None

    @property
    def identity(self) -> str:
        """The same for the same news, whenever it is looked at."""
        number = None if self.alarm is None else [self.alarm.number, self.alarm.state]
        words = self.words if self.kind == "fault" else ""
        return digest([self.plan, self.kind, self.period, number, words])[:32]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: what a hook receives."""
        return {
            "id": self.identity,
            "kind": self.kind,
            "population": self.population,
            "period": self.period,
            "words": self.words,
            "headline": self.headline,
            "at": self.at,
            "plan": self.plan,
            "reference": self.reference,
            "alarm": to_plain(self.alarm),
        }

    def to_bytes(self) -> bytes:
        """The same as bytes: what is sent, and signed."""
        return canonical(self.to_dict())


def notices(status: SeriesStatus) -> tuple[Notice, ...]:
    """All that is worth telling, oldest first: missed periods, alarms, faults of the history.

    An alarm is news again when its state changes. Which notices were delivered already is for the
    caller to remember, by `Notice.identity`.
    """
    return tuple(_found(status))


def _found(status: SeriesStatus) -> Iterator[Notice]:
    for point in status.points:
        if point.state == "missed":
            name = period_name(point.number, status.every).capitalize()
            yield _notice(
                status, "missed", point.number, f"{name} was missed: {point.reason or NO_REASON}."
            )
    for alarm in status.alarms:
        words = alarm_words(alarm, status)
        yield _notice(status, "alarm", alarm.raised, words, alarm=alarm)
    for fault in status.faults:
        yield _notice(status, "fault", None, fault)


def _notice(
    status: SeriesStatus,
    kind: Kind,
    period: int | None,
    words: str,
    *,
    alarm: AlarmFacts | None = None,
) -> Notice:
    return Notice(
        kind=kind,
        population=status.population,
        period=period,
        words=words,
        headline=headline(status),
        at=status.at,
        plan=status.plan,
        reference=status.reference,
        alarm=alarm,
    )
