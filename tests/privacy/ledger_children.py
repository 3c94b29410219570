"""What child processes do in the crash and race tests: use a ledger until they are killed."""

import hashlib
import os
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from fedprikl.errors import BudgetExceededError
from fedprikl.privacy import AccountedRelease, Ledger, SecureNoise

AT = "2030-01-31T12:00:00+00:00"
COST = AccountedRelease(proved_epsilon=0.75)


class Stops:
    """Says where it is and waits to be killed, at one named point."""

    def __init__(self, pipe: Connection, point: str) -> None:
        self._pipe, self._point = pipe, point

    def at(self, point: str) -> None:
        if point == self._point:
            self._pipe.send(point)
            time.sleep(600)

    def before_the_commit_of(self, ledger: Ledger, name: str) -> None:
        """SQLite calls back before it starts a statement, here the end of the transaction."""

        def trace(statement: str) -> None:
            if statement == "COMMIT":
                self.at(name)

        ledger._store.connection.set_trace_callback(trace)


def publish(path: Path, text: str) -> None:
    """The release leaves: from here on it is in the world."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def one_round(path: Path, world: Path, pipe: Connection, point: str) -> None:
    """reserve, draw noise, release, commit; stopped at `point`."""
    stops = Stops(pipe, point)
    with Ledger.open(path) as ledger:
        stops.at("opened")
        stops.before_the_commit_of(ledger, "inside reserve")
        reserved = ledger.reserve("phones", COST, round_id="one", at=AT)
        stops.at("reserved")
        (noisy,) = SecureNoise().laplace([0.5], scale=1.0)
        stops.at("noise drawn")
        publish(world, f"one {noisy}")
        stops.at("released")
        release_hash = hashlib.sha256(str(noisy).encode()).hexdigest()
        stops.before_the_commit_of(ledger, "inside commit")
        ledger.commit(reserved, release_hash=release_hash, at=AT)
        stops.at("committed")


def many_rounds(path: Path, world: Path, pipe: Connection, life: int) -> None:
    """Round after round without pause, a word after each, until killed."""
    with Ledger.open(path) as ledger:
        for i in range(10_000):
            name = f"life {life} round {i}"
            cost = AccountedRelease(proved_epsilon=2.0**-20)
            reserved = ledger.reserve("phones", cost, round_id=name, at=AT)
            publish(world, name)
            ledger.commit(reserved, release_hash="0" * 64, at=AT)
            pipe.send(name)


def reserve_as_much_as_possible(
    path: Path, start: Barrier, results: Any, name: int, tries: int
) -> None:
    """All processes at once; the budget must stop them together."""
    start.wait(60)
    with Ledger.open(path) as ledger:  # the first one here creates the file
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT)
        won = 0
        for i in range(tries):
            try:
                ledger.reserve(
                    "phones",
                    AccountedRelease(proved_epsilon=0.125),
                    round_id=f"{name}-{i}",
                    at=AT,
                )
                won += 1
            except BudgetExceededError:
                pass
        results.put(won)


def check_and_then_charge(path: Path, start: Barrier, results: Any, name: int) -> None:
    """WRONG on purpose: the check is not in the transaction that charges."""
    with Ledger.open(path) as ledger:
        enough = ledger.account("phones").left >= COST.proved_epsilon
        start.wait(60)
        if enough:
            body = {
                "event": "reserve",
                "population": "phones",
                "round": str(name),
                "mechanism": {"kind": "accounted", "proved_epsilon": 0.75, "proved_delta": 0.0},
                "at": AT,
                "note": "",
            }
            with ledger._store.writing():
                ledger._store.append(body)
        results.put(int(enough))
