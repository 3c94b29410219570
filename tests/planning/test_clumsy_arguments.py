"""What a hurried user hands to the planner: numpy's numbers are fine, confusions are explained."""

from typing import Any

import numpy as np
import pytest

import fedprikl as fk
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import SignedPlan

REFERENCE = fk.Reference.from_counts([50, 30, 20])
USUAL: dict[str, Any] = {"clients": 12, "records": 720, "epsilon": 1.0}


def test_numbers_of_numpy_make_the_same_plan() -> None:
    numpys: dict[str, Any] = {
        "clients": np.int64(12),
        "records": np.int64(720),
        "epsilon": np.float32(1),
        "design_effect": np.float32(1.5),
        "cohort": np.int32(6),
    }
    plain = USUAL | {"design_effect": 1.5, "cohort": 6}
    plan = fk.plan(REFERENCE, **numpys).plan
    assert plan.fingerprint == fk.plan(REFERENCE, **plain).plan.fingerprint
    assert SignedPlan.from_dict(SignedPlan(plan).to_dict()).plan == plan


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"population": None}, "`population` is a text"),
        ({"aggregator": 7}, "`aggregator` is a text"),
        ({"roster": b"x"}, "`roster` is a text"),
        ({"series": "week"}, "`series` is a `fedprikl.Series`"),
        ({"ask": 1}, "one or more by name"),
        ({"clients": 10**30, "records": 10**31}, "at most 100,000,000 clients"),
        ({"releases": 10**30}, "at most 100,000 releases"),
    ],
)
def test_confusions_are_explained(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        fk.plan(REFERENCE, **(USUAL | wrong))
