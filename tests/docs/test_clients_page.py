"""docs/clients.md: its example runs, and clients draw and fill up as it says."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest

from fedprikl.divergence import JS, KL, TV
from fedprikl.records import Draw
from fedprikl.records.counting import Randomness

PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/clients.md", "exec"), {})


def keys_in(order: Sequence[int]) -> Randomness:
    keys = np.array(order, dtype=np.uint64).tobytes()
    return lambda _: keys


@pytest.mark.parametrize(("r", "k"), [(2, 3), (4, 5), (4, 4), (5, 2), (5, 3)])
def test_every_set_of_k_records_has_the_same_chance(r: int, k: int) -> None:
    """Over all orders of the keys: exact. Of fewer than k records, all are drawn."""
    orders = permutations(range(r))
    drawn = Counter(
        tuple(sorted(Draw(k, randomness=keys_in(order)).places(r).tolist())) for order in orders
    )
    assert set(drawn) == set(combinations(range(r), min(r, k)))
    assert len(set(drawn.values())) == 1


def test_a_drift_looks_smaller_by_what_is_filled_up() -> None:
    """tv by the share itself, every other divergence by at least as much."""
    rng = np.random.default_rng(1)
    for share in (0.01, 0.2, 0.7):
        pi, p = rng.dirichlet(np.ones(6), 2)
        for divergence in (KL, TV, JS):
            whole, seen = (
                float(pi @ divergence.f(each / pi)) for each in (p, (1 - share) * p + share * pi)
            )
            assert seen <= (1 - share) * whole * (1 + 1e-9)
            if divergence is TV:
                assert seen == pytest.approx((1 - share) * whole)
