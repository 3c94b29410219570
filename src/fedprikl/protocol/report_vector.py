"""What a client counts for a plan with three servers, and the vector that it reports.

All of it follows from plan, reference and period, so that a client needs no conversation.
"""

import hashlib

import numpy as np

from fedprikl.checks import Ints
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.sums import view_places
from fedprikl.records import RecordCounts
from fedprikl.reference import QueryPoints, Reference, spread_points

_LABEL = b"fedprikl/points/1/"


def report_points(plan: Plan, reference: Reference, period: int) -> QueryPoints | None:
    """The points of the whole that every client is asked; None if only columns are.

    Another processor may round the last bits of a share differently. It then asks for another cell
    only if the random start lies that close to a limit: of m points, with a probability of about
    m 2^-50.
    """
    if not plan.points:
        return None
    seed = _LABEL + bytes.fromhex(plan.fingerprint) + period.to_bytes(4, "little")
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(seed).digest(), "little"))
    asked = plan.whole
    return spread_points(
        reference.probabilities, asked.points, batches=1, exponent=asked.exponent, rng=rng
    )


def report_blocks(plan: Plan) -> tuple[int, ...]:
    """Counts of each view: its asked cells, and all other records. Each block adds up to N."""
    return tuple(view.points + 1 for view in plan.views)


def report_entries(plan: Plan) -> int:
    """Length of a report's vector: all blocks, and N."""
    return sum(report_blocks(plan)) + 1


def report_vector(
    plan: Plan, reference: Reference, counted: RecordCounts, points: QueryPoints | None
) -> Ints:
    """SECRET: for each view the counts of its asked cells and of all other records, then N."""
    asked = [counted.views[place][:-1] for place in view_places(plan, reference)]
    if points is not None:
        asked.insert(0, counted.counts[points.cells])
    records = counted.total
    blocks = [np.append(block, records - block.sum()) for block in asked]
    return np.append(np.concatenate(blocks), records).astype(np.int64)
