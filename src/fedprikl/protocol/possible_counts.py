"""What becomes of a sum that cannot be right, because a client lied: it is made possible.

Dropping the cohort would tell a liar about the others: by shifting one entry it could make the fate
of the round depend on an exact count.
"""

import numpy as np

from fedprikl.checks import Ints

__all__ = ["possible_counts"]


def possible_counts(opened: Ints, *, top: int, records: int) -> Ints:
    """Counts of at least 0 that sum to at most `records`, near the opened ones.

        f(h) = h up to `top`, then falling:  max(0, 2 top - h)
        g_i  = C_i - C_(i-1),   C_i = min(records, f(h_1) + ... + f(h_i))

    Counts that are possible stay as they are. The ring is at least 2 `top` around, so f moves by at
    most 1 if h does, also where it wraps. A record that leaves one cell for another moves g in the
    same way or not at all: the clipped cumulative sums differ by 1 between the two cells, up to the
    first place where they reach `records`. Only where an entry is beyond `top`, which no honest
    cohort reaches, can a record move g like two records: such a liar can double epsilon, and learns
    nothing from whether there is a release.
    """
    folded = np.where(opened <= top, opened, np.maximum(2 * top - opened, 0))
    clipped = np.minimum(np.cumsum(np.minimum(folded, records)), records)
    possible: Ints = np.diff(clipped, prepend=0)
    return possible
