"""What one report to three servers costs a client beyond counting: CPU and bytes.

    python benchmarks/report_cost.py [--json]

client_ms        CPU milliseconds of one report of 421 cells with the hybrid suite, from the counts
                 to the three sealed messages: the median of batches
payload_bytes    bytes of the three messages together, with the hybrid suite
payload_ratio    payload_bytes over its bar, 2.2 vectors of 8 bytes and 1.2 KB per server

The bars are 1 ms and a ratio of 1. `benchmarks/servers.py` prints the same numbers.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedprikl.protocol.keys import HybridKey, OpeningKey, SealingKey, SigningKey
from fedprikl.protocol.report import SuiteName, make_reports, message_bytes

CELLS = 421
ENTRIES = CELLS + 2  # all other records, and N
BATCHES, REPORTS = 15, 40
VECTORS, PER_SERVER = 2.2, {"hybrid": 1200, "x25519": 0}  # bytes
BARS = {"client_ms": 1.0, "payload_ratio": 1.0}


def keys(suite: SuiteName) -> list[OpeningKey]:
    """Of three servers."""
    kind = HybridKey if suite == "hybrid" else SealingKey
    return [kind.generate() for _ in range(3)]


def reporter(suite: SuiteName, identity: SigningKey | None = None) -> Callable[[], object]:
    """Makes one report of random counts."""
    counts = np.random.default_rng(0).integers(0, 50, CELLS)
    publics = [key.public for key in keys(suite)]

    def one() -> object:
        records = int(counts.sum())
        vector = np.append(counts, [0, records])
        return make_reports(
            vector, plan=bytes(32), period=0, suite=suite, servers=publics, identity=identity
        )

    return one


def client_ms(suite: SuiteName = "hybrid", identity: SigningKey | None = None) -> float:
    """CPU milliseconds of one report: the median of batches."""
    one, found = reporter(suite, identity), []
    one()
    for _ in range(BATCHES):
        start = time.process_time()
        for _ in range(REPORTS):
            one()
        found.append((time.process_time() - start) / REPORTS * 1000)
    return statistics.median(found)


def first_ms(suite: SuiteName = "hybrid") -> float:
    """CPU milliseconds of the first report of a process, which reads the servers' keys too."""
    found = []
    for _ in range(BATCHES):
        one = reporter(suite)
        start = time.process_time()
        one()
        found.append((time.process_time() - start) * 1000)
    return statistics.median(found)


def payload_bytes(suite: SuiteName = "hybrid", *, signed: bool = False) -> int:
    """Bytes of the three messages together."""
    return sum(
        message_bytes(ENTRIES, server=server, suite=suite, signed=signed) for server in (1, 2, 3)
    )


def payload_bar(suite: SuiteName = "hybrid") -> float:
    """The most that three messages may have."""
    return VECTORS * 8 * CELLS + 3 * PER_SERVER[suite]


def measured() -> dict[str, Any]:
    """All numbers."""
    identity = SigningKey.generate()
    return {
        "cells": CELLS,
        "client_ms": client_ms(),
        "payload_bytes": payload_bytes(),
        "payload_ratio": max(
            payload_bytes("hybrid") / payload_bar("hybrid"),
            payload_bytes("x25519") / payload_bar("x25519"),
        ),
        "others": {
            "client_ms, x25519": client_ms("x25519"),
            "client_ms, hybrid, signed": client_ms("hybrid", identity),
            "client_ms, hybrid, first of a process": first_ms(),
            "payload_bytes, x25519": payload_bytes("x25519"),
            "payload_bytes, hybrid, signed": payload_bytes("hybrid", signed=True),
        },
        "bars": BARS,
    }


def main() -> int:
    """Prints the numbers; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    as_json, found = parser.parse_args().json, measured()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for name in ("client_ms", "payload_bytes", "payload_ratio"):
            print(f"{name:40} {found[name]:10.3f}")
        for name, value in found["others"].items():
            print(f"{name:40} {value:10.3f}")
    return int(any(found[name] > bar for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
