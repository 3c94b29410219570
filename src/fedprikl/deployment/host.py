"""What a round needs of the machine it runs on and of its network."""

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fedprikl.deployment.progress import printable
from fedprikl.errors import DeploymentError
from fedprikl.privacy import SECURE_NOISE, Head, Ledger, NoiseSource
from fedprikl.protocol import Release, Reply, Transport


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


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels between the host of a round and a site, either way. The relay sees it."""

    round_id: str  # or the challenge of an identity check
    message: bytes = b""  # to the host: sealed, or the proof of an identity
    refusal: str = ""  # in the open, so never about the site's records


class Network(Protocol):
    """The sites of a federation, as the host reaches them. It is not trusted."""

    def nodes(self) -> list[str]:
        """The nodes that are connected now, by the network's own names, sorted."""
        ...

    def identify(
        self, challenge: str, nodes: Sequence[str], enough: Callable[[], bool]
    ) -> Iterable[Reply]:
        """Sends every node the challenge of an identity check; the replies as they come."""
        ...

    def check_run(self) -> None:
        """Raises if the run that the host works on has been stopped."""
        ...

    def transport(self, round_id: str) -> Transport:
        """What carries the messages of one round."""
        ...


def make_smaller(path: Path) -> None:
    """Gives the room of what was removed from a database back to the disk."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise DeploymentError(
            f"What is old was removed from {path}, but the file is not smaller: {error}. Is the "
            "disk full? Make room, and prune again."
        ) from None


def newest_head(folder: Path, public: str) -> Head | None:
    """The newest head in the releases of a folder that this key signed; None if there is none.

    Whatever else lies there is passed over: a damaged file stops no round.
    """
    heads = [_head(path, public) for path in sorted(folder.glob("*.json"))]
    return max((head for head in heads if head), key=lambda head: head.count, default=None)


def open_anchored(path: Path, releases: Path, public: str) -> Ledger:
    """The ledger, if it is no older than the releases beside it; a `LedgerDamagedError` if it is.

    To begin anew on purpose, put the old releases away together with the old ledger.
    """
    return Ledger.open(path, anchor=newest_head(releases, public))


def _head(path: Path, public: str) -> Head | None:
    try:
        release = Release.load(path)
    except Exception:  # anybody may have put anything there
        return None
    return release.ledger if release.is_signed_by(public) else None
