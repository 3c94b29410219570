"""What a round needs from the machine it runs on: time, noise, and a place to tell people."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fedprikl.deployment.progress import printable
from fedprikl.privacy import SECURE_NOISE, NoiseSource

__all__ = ["Clock", "Host", "now", "print_line"]


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds, as an argument."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def print_line(line: str) -> None:
    """Into the run's log, which the relay stores and terminals show: printable characters only."""
    print(printable(line), flush=True)


def now() -> str:
    """ISO 8601, with an offset."""
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True, slots=True)
class Host:
    """The aggregator's machine, for one round."""

    clock: Clock = field(default_factory=Clock)
    now: Callable[[], str] = now
    say: Callable[[str], None] = print_line
    source: NoiseSource = SECURE_NOISE
