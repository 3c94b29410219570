"""A look at a site's first records, for its own people: what a reference would not know in them.

What it finds depends on records. So it is shown at the site, and nothing that leaves depends on it:
a site starts and answers all the same.
"""

from collections.abc import Iterator

import numpy as np

from fedprikl.records.clients import FileRecords
from fedprikl.records.counting import CellReader
from fedprikl.reference import Reference
from fedprikl.reference.rows import Chunk

LOOKED = 10_000  # records, about: whole blocks are read
UNLIKE = 0.25  # a cell that has so much more of the records than of the reference


def look_at_records(records: FileRecords, reference: Reference) -> Iterator[str]:
    """What people should know before the first round: unreadable lines, columns that are unlike."""
    reader = CellReader(reference)
    chunks = list(_first_chunks(records, reader))
    lines = sum(len(chunk.unreadable) for chunk in chunks)
    rows = lines + sum(chunk.rows for chunk in chunks)
    if lines:
        yield (
            f"{lines:,} of the first {rows:,} records cannot be read, so they count as 'other' in "
            "every column. Of CSV files, are --encoding and --separator right?"
        )
    if rows == lines:
        return
    levels = [reader.levels(chunk.columns) for chunk in chunks]
    for view in reference.views:
        if len(view.columns) != 1:
            continue
        counts = np.sum([view.domain.count(each) for each in levels], axis=0)
        shares = counts / counts.sum()
        cell = int(np.argmax(shares - view.probabilities))
        share, usual = float(shares[cell]), float(view.probabilities[cell])
        if share - usual < UNLIKE:
            continue
        what = "no value, or one that the reference never saw"
        if cell != view.domain.other:
            what = view.domain.label(cell)
        yield (
            f"column {view.name!r}: {share:.0%} of the first {rows - lines:,} records have {what}; "
            f"of the reference {usual:.0%}. Is it in the same unit and spelling?"
        )


def _first_chunks(records: FileRecords, reader: CellReader) -> Iterator[Chunk]:
    seen = 0
    for source, columns in records.open(reader):
        for chunk in source.chunks(columns):
            yield chunk
            seen += chunk.rows + len(chunk.unreadable)
            if seen >= LOOKED:
                return
