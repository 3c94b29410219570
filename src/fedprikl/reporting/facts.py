"""What a release says to people: the command line and the pages show the same words."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fedprikl.protocol import Answer, Outcome, Release
from fedprikl.protocol.client import NO_ROOM
from fedprikl.reporting.column_facts import column_lines
from fedprikl.reporting.headline import headline
from fedprikl.reporting.texts import decimals, number

__all__ = ["ReleaseFacts", "absences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """A release in words, in the order in which they are shown."""

    headline: str  # the verdict, for everybody
    drift: str  # the verdict on the whole, in numbers; empty where only columns were asked
    columns: tuple[str, ...]  # a table in lines of text, with a head; empty without columns
    answers: tuple[str, ...]  # one sentence for each
    counted: str  # how many clients the answers are about, and who is missing
    privacy: str

    @classmethod
    def of(cls, release: Release, absent: Iterable[str] = ()) -> "ReleaseFacts":
        """What a release says; `absent` are lines about clients that took no part."""
        drift = ""
        if release.verdict is not None:
            drift = f"{release.verdict}."
        elif release.answers:
            drift = "There is no verdict on the whole: it could not be computed for this release."
        return cls(
            headline=headline(release),
            drift=drift,
            columns=column_lines(release.columns),
            answers=tuple(_sentence(answer, release) for answer in release.answers),
            counted="\n".join([*_counted(release.cohorts), *absent]),
            privacy=str(release.privacy),
        )

    def __str__(self) -> str:
        """All of it, as a terminal shows it: the headline is its first line."""
        numbers = "\n".join(part for part in (self.drift, *self.answers) if part)
        parts = (self.headline, "\n".join(self.columns), numbers, self.counted, self.privacy)
        return "\n\n".join(part for part in parts if part)


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


def _sentence(answer: Answer, release: Release) -> str:
    digits, between = 3, ""
    if answer.interval is not None:
        low, high = answer.interval
        digits = decimals(high - low)
        between = f" (95% interval: {number(low, digits)} to {number(high, digits)}"
        between += f"{_guarantee(answer, digits)})"
    value = f"{number(answer.value, digits)} {answer.unit}".rstrip()
    return (
        f"The records of {release.population} differ from the reference by "
        f"{answer.target} = {value}{_by_chance(answer, release.records, digits)}{between}"
        f"{_threshold(answer, release, digits)}."
    )


def _guarantee(answer: Answer, digits: int) -> str:
    """Which interval holds for every population; the other one was tried on many kinds of drift."""
    if answer.guaranteed is None:
        return ""
    if answer.guaranteed == answer.interval:
        return ", guaranteed"
    low, high = (number(end, digits) for end in answer.guaranteed)
    return f"; guaranteed: {low} to {high}"


def _by_chance(answer: Answer, records: int, digits: int) -> str:
    """The part of the value that so many records have without any drift, because they are few."""
    if answer.no_drift is None:
        return ""
    chance, many = number(answer.no_drift, digits), f"{records:,} records"
    if 0 <= answer.no_drift < answer.value:
        return f", of which about {chance} is what {many} give without any drift"
    return f"; {many} give about {chance} without any drift"


def _threshold(answer: Answer, release: Release, digits: int) -> str:
    """Where drift begins, in the unit of the answer; nothing where the verdict rests on counts."""
    witness = None if release.verdict is None else release.verdict.witness(answer.divergence)
    if witness is None:
        return ""
    return f", beside a threshold of {number(witness.threshold, digits)}"


def _counted(cohorts: Iterable[Outcome]) -> Iterable[str]:
    ended = tuple(cohorts)
    included, clients = sum(c.included for c in ended), sum(c.clients for c in ended)
    yield f"Counted: {included:,} of {clients:,} clients."
    for reason, sums in Counter(c.reason for c in ended if c.reason).items():
        what = "1 secure sum was" if sums == 1 else f"{sums:,} secure sums were"
        yield f"{what} dropped: {reason}"
