"""What the answer of three servers takes, whatever the number of clients.

    python benchmarks/servers_answer.py [--json]

For 421, 1,200 and 5,000 cells, epsilon 1: noisy counts of all cells, and a tv, with the noise drawn
by the three servers together. They compute in one process, one after the other, so `seconds` is the
time of all three; `mib` is what all of them send to each other, `steps` how often they wait for
each other.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprikl.privacy import SECURE_NOISE
from fedprikl.protocol import AskedView, Budget, Plan, Question, Servers
from fedprikl.protocol.server_answer import ServersAnswer, answer
from fedprikl.protocol.sums import ServersSum
from fedprikl.reference import all_points
from fedprikl.secure_sum.line_runtime import LineRuntime, compute_together, in_memory
from fedprikl.secure_sum.line_shares import SERVERS, expand, split

CELLS, RECORDS = (421, 1_200, 5_000), 100_000


def measure(cells: int) -> dict[str, Any]:
    """One answer."""
    plan = Plan(
        population="p",
        reference=64 * "0",
        trust="servers",
        servers=Servers(),
        budget=Budget(epsilon=1.0),
        views=(AskedView(points=cells),),
        questions=(
            Question(share=0.75, release="counts"),
            Question(divergence="tv", share=0.25, skew=0.0),
        ),
    )
    held = np.random.default_rng(1).multinomial(RECORDS, np.full(cells, 1 / cells))
    total, seed = np.array([*held, 0, RECORDS]), os.urandom(32)
    shares = dict(zip(SERVERS, (expand(seed, len(total)), *split(total, seed)), strict=True))
    asked = ServersAnswer(ServersSum(plan), (all_points(np.full(cells, 1 / cells)),))
    sent, steps = [0], [0]

    async def exchange(messages: Mapping[int, bytes]) -> Mapping[int, bytes]:
        sent[0] += sum(map(len, messages.values()))
        steps[0] += 1
        return await in_memory(messages)

    begin = time.perf_counter()
    compute_together(
        {
            n: answer(LineRuntime(n, exchange), asked, share, included=RECORDS, source=SECURE_NOISE)
            for n, share in shares.items()
        }
    )
    seconds = time.perf_counter() - begin
    return {
        "cells": cells,
        "seconds": round(seconds, 3),
        "mib": round(sent[0] / 2**20, 1),
        "steps": steps[0] // len(SERVERS),
    }


def main() -> None:
    """Prints a line, or a JSON object, for each number of cells."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    rows = [measure(cells) for cells in CELLS]
    if given.json:
        print(json.dumps({"answers": rows}))
        return
    for row in rows:
        print("  ".join(f"{name} {value:>9}" for name, value in row.items()))


if __name__ == "__main__":
    main()
