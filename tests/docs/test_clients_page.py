"""docs/clients.md: its example runs, and draws vary as it says."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from fedprikl.records import Draw
from fedprikl.records.counting import Randomness

PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/clients.md", "exec"), {})


def keys_in(order: Sequence[int]) -> Randomness:
    keys = np.array(order, dtype=np.uint64).tobytes()
    return lambda _: keys


def variance(r: int, k: int, inside: int) -> Fraction:
    """Of the drawn share of the first records, over all orders of the keys: exact."""
    shares = []
    for order in permutations(range(r)):
        places = Draw(k, randomness=keys_in(order)).places(r)
        shares.append(Fraction(int((places < inside).sum()), k))
    mean = Fraction(sum(shares), len(shares))
    assert mean == Fraction(inside, r)
    return Fraction(sum((share - mean) ** 2 for share in shares), len(shares))


@pytest.mark.parametrize(("r", "k"), [(2, 3), (4, 5), (4, 6), (4, 7), (4, 8), (5, 13), (5, 2)])
def test_draws_vary_as_the_page_says(r: int, k: int) -> None:
    for inside in range(1, r):
        p = Fraction(inside, r)
        replaced = p * (1 - p) / k  # of draws with replacement
        if r < k:
            m = k % r
            assert variance(r, k, inside) == p * (1 - p) * m * (r - m) / ((r - 1) * k**2)
            assert variance(r, k, inside) <= replaced / 3
        else:
            assert variance(r, k, inside) == replaced * Fraction(r - k, r - 1)
