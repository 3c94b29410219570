"""The vector of a report: blocks that add up to N, of cells that all parties find by themselves."""

from typing import Any

import numpy as np
import pytest

import fedprikl as fk
from fedprikl.protocol import AskedView, Budget, Plan, Question, Servers
from fedprikl.protocol.report_vector import (
    report_blocks,
    report_entries,
    report_points,
    report_vector,
)
from fedprikl.records import open_records

RNG = np.random.default_rng(7)
FRAME = {"age": RNG.integers(0, 6, 400), "plan": RNG.choice(["a", "b", "c"], 400)}


def world(points: int) -> tuple[fk.Reference, Plan]:
    import pandas as pd

    reference = fk.Reference.fit(pd.DataFrame(FRAME), bins=4)
    columns = [view for view in reference.views if len(view.columns) == 1]
    asked = tuple(AskedView(columns=view.columns, points=view.size) for view in columns)
    whole = (AskedView(points=points),) if points else ()
    about: dict[str, Any] = {"divergence": "tv", "views": tuple(v.columns for v in asked)}
    counts = Question(**about, skew=0.0, share=0.5, release="counts")
    value = Question(**about, skew=0.0, share=0.5)
    first = Question(share=0.5, release="counts") if points else value
    plan = Plan(
        population="p",
        reference=reference.fingerprint,
        trust="servers",
        servers=Servers(),
        budget=Budget(epsilon=1.0),
        views=(*whole, *asked),
        questions=(first, counts),
    )
    return reference, plan


@pytest.mark.parametrize("points", [0, 5])
def test_blocks_add_up_to_the_number_of_records(points: int) -> None:
    import pandas as pd

    reference, plan = world(points)
    records = pd.DataFrame({"age": [0, 1, 99, None, 3], "plan": ["a", "z", "b", "c", "c"]})
    counted = open_records(records).count(reference)
    asked = report_points(plan, reference, 0)
    vector = report_vector(plan, reference, counted, asked)
    blocks = report_blocks(plan)
    assert len(vector) == report_entries(plan) == sum(blocks) + 1
    assert vector[-1] == 5
    starts = np.cumsum([0, *blocks[:-1]])
    assert np.add.reduceat(vector[:-1], starts).tolist() == [5] * len(blocks)
    if asked is not None:
        assert vector[: len(asked.cells)].tolist() == counted.counts[asked.cells].tolist()


def test_all_parties_find_the_same_cells_and_other_periods_others() -> None:
    reference, plan = world(5)
    first, again = report_points(plan, reference, 3), report_points(plan, reference, 3)
    assert first is not None
    assert first == again
    others = [report_points(plan, reference, number) for number in range(20)]
    assert len(set(others)) > 1
    assert len(set(first.cells.tolist())) == 5
    assert report_points(world(0)[1], reference, 0) is None
