"""What a release says, read with care: a release may come from anybody."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedprikl.errors import InvalidInputError

__all__ = ["ReleaseFacts"]

DEEPEST = 20  # levels of nesting; a release has four


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """The part of a release that people read, each field of the type it must have."""

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
    def of(cls, content: Mapping[str, Any]) -> "ReleaseFacts":
        """Read from the content of a release; what is not as it must be is refused."""
        try:
            if _is_deep(content):
                raise TypeError("nested too deeply")
            verdict, limits, cohorts = content["verdict"], content["interval"], content["cohorts"]
            reasons = [_text(each["dropped_because"]) for each in cohorts]
            return cls(
                population=_text(content["population"]),
                target=_text(content["target"]),
                value=_number(content["value"]),
                interval=None if limits is None else _pair(limits),
                verdict="" if verdict is None else _text(verdict["statement"]),
                statement=_text(content["privacy"]["statement"]),
                released_at=_text(content["released_at"]),
                clients=sum(_whole(each["clients"]) for each in cohorts),
                included=sum(_whole(each["included"]) for each in cohorts),
                cohorts=len(cohorts),
                dropped=tuple(reason for reason in reasons if reason),
                payload=_whole(content["payload_counts"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError):
            raise InvalidInputError(
                "This release cannot be read: a field is missing, or is not what it must be. Do "
                "not use it."
            ) from None

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


def _is_deep(content: object) -> bool:
    level: list[object] = [content]
    for _ in range(DEEPEST):
        inner = [each for each in level if isinstance(each, list | dict)]
        level = [v for each in inner for v in (each.values() if isinstance(each, dict) else each)]
    return bool(level)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise TypeError(value)
    return value


def _pair(value: object) -> tuple[float, float]:
    if not isinstance(value, list):
        raise TypeError(value)
    low, high = map(_number, value)
    return low, high
