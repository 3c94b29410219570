"""What a repetition costs to simulate, and what a client sends."""

import statistics
import time
from pathlib import Path
from typing import Any

from experiments.paper.jobs import Document, Unit, main
from experiments.paper.sweeps import LINES
from experiments.paper.world import World
from fedprikl.secure_sum import plan_sum

TIMES = 30
COHORT, MOST = 100, 1000  # clients of a secure sum, public maximum of every count
LONG = 8  # bytes of a count as a plain 64-bit number


class Costs:
    """A job: CPU milliseconds of one whole repetition per estimator, and payload in bytes."""

    name = "costs"

    def units(self) -> list[Unit]:
        """One, so that nothing else of this program runs beside it on its core."""
        return [(0,)]

    def run(self, world: World, unit: Unit) -> list[Document]:  # noqa: ARG002
        """Clients dealt, summed, points drawn, estimated: everything anew each time."""
        rows = []
        for line, setting in LINES.items():
            seconds, counts = [], 0
            for number in range(TIMES):
                repetition = world.repetition(number)
                repetition.population(0)  # data at rest
                repetition.distribution(9)
                start = time.process_time()
                counts = repetition.estimate((9, 0), setting).payload
                seconds.append(time.process_time() - start)
            entries = counts + 1  # and the number of records
            plan = plan_sum(COHORT, [MOST] * entries, randomness=bytes)  # public sizes only
            rows.append(
                {
                    "line": line,
                    "milliseconds": 1000 * statistics.median(seconds),
                    "counts": counts,
                    "payload_bytes": LONG * entries,
                    "packed_bytes": plan.ring().packed_bytes,
                }
            )
        return rows

    def collect(self, world: World, parts: dict[Unit, Any]) -> Document:  # noqa: ARG002
        """The table as it is."""
        return {"truth": "pair (9,0)", "rows": parts[0,]}

    def draw(self, document: Document, folder: Path) -> None:
        """A table needs no figure."""


JOB = Costs()

if __name__ == "__main__":
    main("costs")
