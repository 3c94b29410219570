"""The aggregator's view does not depend on who contributed what, only on the sum.

Exact on the masking itself, by enumerating every mask of a tiny ring; statistical on the
whole protocol, by comparing two worlds with the same sum. Both are shown to catch
protocols that are broken.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.stats import chi2_contingency

from fedprikl.checks import Ints
from fedprikl.secure_sum import AggregatorStep, sum_client
from fedprikl.secure_sum import masking as masks
from fedprikl.secure_sum import sum_aggregator as unmasking
from fedprikl.secure_sum.masking import (
    Ring,
    Words,
    agree,
    apply_masks,
    pair_mask,
    pair_sign,
    self_mask,
    stream_of,
)
from fedprikl.secure_sum.messages import MaskedInput, UnmaskShares
from fedprikl.secure_sum.shamir import from_limbs, reconstruct

from .helpers import Cohort, make_plan

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-9

# Exact: three clients, one entry, the ring of integers modulo 4, all 4^6 masks.

TINY = Ring([1], 3)
PAIRS = [(0, 1), (0, 2), (1, 2)]
Mask = dict[tuple[int, int], int]
View = tuple[int, ...]
Reveal = Callable[[list[int], list[int], Mask, list[int]], View]


def everyone_alive(y: list[int], selfs: list[int], _pairs: Mask, _x: list[int]) -> View:
    """All three inputs are in: the three self masks are opened."""
    return (*y, *selfs)


def last_one_late(y: list[int], selfs: list[int], pairs: Mask, _x: list[int]) -> View:
    """Client 2 was declared dropped, its pair masks are opened, then its input arrives."""
    return (*y, selfs[0], selfs[1], pairs[0, 2], pairs[1, 2])


def last_one_corrupt(y: list[int], selfs: list[int], pairs: Mask, x: list[int]) -> View:
    """Client 2 tells the aggregator all it knows."""
    return (*y, *selfs, pairs[0, 2], pairs[1, 2], x[2])


def views(x: list[int], reveal: Reveal, *, self_masks: bool = True, reuse: bool = False) -> object:
    """How often each view of the aggregator occurs, over all masks."""
    seen: Counter[View] = Counter()
    values = range(4)
    for drawn in itertools.product(values, repeat=6):
        selfs = list(drawn[:3]) if self_masks else [0, 0, 0]
        shared = [drawn[3]] * 3 if reuse else drawn[3:]
        pairs = dict(zip(PAIRS, shared, strict=True))
        y = [masked(i, x[i], selfs[i], pairs) for i in range(3)]
        seen[reveal(y, selfs, pairs, x)] += 1
    return seen


def masked(i: int, x: int, own: int, pairs: Mask) -> int:
    """One masked entry, by the production code."""
    words = [(1, _word(own))]
    words += [(pair_sign(i, j), _word(pairs[min(i, j), max(i, j)])) for j in range(3) if j != i]
    return int(apply_masks(TINY, [x], words)[0])


def _word(value: int) -> Words:
    return np.array([value], dtype=np.uint32)


SAME_SUM = [
    (everyone_alive, [1, 0, 1], [0, 1, 1]),
    (everyone_alive, [1, 1, 0], [0, 1, 1]),
    (last_one_late, [1, 0, 1], [0, 1, 0]),
    (last_one_corrupt, [1, 0, 1], [0, 1, 1]),
]


@pytest.mark.parametrize(("reveal", "x", "other"), SAME_SUM)
def test_view_is_exactly_the_same_for_inputs_of_the_same_sum(
    reveal: Reveal, x: list[int], other: list[int]
) -> None:
    assert views(x, reveal) == views(other, reveal)


def test_that_check_catches_a_missing_self_mask() -> None:
    assert views([1, 0, 1], last_one_late, self_masks=False) != views(
        [0, 1, 0], last_one_late, self_masks=False
    )


def test_that_check_catches_a_mask_reused_for_every_pair() -> None:
    assert views([1, 0, 1], everyone_alive, reuse=True) != views(
        [0, 1, 1], everyone_alive, reuse=True
    )


def test_that_check_sees_different_sums() -> None:
    assert views([1, 0, 1], everyone_alive) != views([1, 1, 1], everyone_alive)


# Statistical: four real clients, two entries modulo 8, the whole protocol.

LATE = 3
ONE_WORLD: Ints = np.array([[1, 0], [0, 1], [1, 1], [1, 0]])
OTHER_WORLD: Ints = np.array([[0, 1], [1, 0], [1, 1], [0, 1]])


def residuals(inputs: Ints, seed: int, runs: int) -> Iterator[Ints]:
    """Per run, what is left of the inputs when all that the aggregator can open is removed.

    Client 3 is declared dropped, and its input arrives late, so the aggregator holds all
    four masked inputs, the self masks of 0, 1 and 2, and the pair masks of 3.
    """
    plan = make_plan(4, 2, maxima=(1, 1), seed=1)
    for run in range(runs):
        cohort = Cohort(plan, seed=seed + run, inputs=inputs).until(AggregatorStep.INPUTS)
        late = cohort.answer(LATE)
        in_time = cohort.answer_all(without=[LATE])
        cohort.next()
        cohort.until(AggregatorStep.UNMASK)
        answers = [UnmaskShares.decode(data) for data in cohort.answer_all().values()]
        packed = [MaskedInput.decode(data).packed for data in (*in_time.values(), late)]
        yield _strip(cohort, packed, answers)


def _strip(cohort: Cohort, packed: list[bytes], answers: list[UnmaskShares]) -> Ints:
    plan, ring = cohort.plan, cohort.plan.ring()
    opener: Any = unmasking  # its masks, which a broken variant replaces
    seeds = [_opened(answers, owner, False) for owner in range(3)]
    late_key = X25519PrivateKey.from_private_bytes(_opened(answers, LATE, True))
    left = []
    for i in range(4):
        known = []
        if i != LATE:
            own = opener.self_mask(seeds[i], i, round_id=plan.round_id, ring=ring)
            known.append((-1, own))
        for j in range(3) if i == LATE else [LATE]:
            public = cohort.aggregator._adverts[i if j == LATE else j].mask_key
            shared = agree(late_key, public)
            assert shared is not None
            mask = opener.pair_mask(shared, i, j, round_id=plan.round_id, ring=ring)
            known.append((-pair_sign(i, j), mask))
        left.append(apply_masks(ring, ring.unpack(packed[i]), known).astype(np.int64))
    return np.array(left)


def _opened(answers: list[UnmaskShares], owner: int, dropped: bool) -> bytes:
    held = [
        (answer.sender + 1, dict(answer.mask_keys if dropped else answer.self_seeds)[owner])
        for answer in answers
        if answer.sender != owner
    ][:2]
    points = np.array([[point for point, _ in held]])
    shares = np.array([[np.frombuffer(piece, dtype="<u2") for _, piece in held]])
    secret = from_limbs(reconstruct(points, shares.astype(np.int64))[0])
    assert secret is not None
    return secret


def worlds_look_alike(runs: int) -> bool:
    """Whether so many runs in either world agree in all residuals, their sums and differences.

    64 chi-square tests of homogeneity with 8 cells each; together they raise a false alarm
    with probability FALSE_ALARM.
    """
    one, other = (
        np.array(list(residuals(world, seed, runs))).reshape(runs, 8)
        for world, seed in ((ONE_WORLD, 10_000), (OTHER_WORLD, 20_000))
    )
    weights = [row for row in itertools.product((-1, 0, 1), repeat=8) if _is_test(row)]
    for weight in weights:
        cells = [np.bincount(world @ np.array(weight) % 8, minlength=8) for world in (one, other)]
        table = np.array(cells)[:, np.sum(cells, axis=0) > 0]
        if chi2_contingency(table).pvalue < FALSE_ALARM / len(weights):
            return False
    return True


def _is_test(weights: tuple[int, ...]) -> bool:
    """One entry, or the sum or difference of two."""
    used = [weight for weight in weights if weight]
    return 1 <= len(used) <= 2 and used[0] == 1


def test_whole_protocol_hides_who_contributed_what() -> None:
    assert worlds_look_alike(runs=200)


def test_that_check_catches_a_missing_self_mask_in_the_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_mask(seed: bytes, owner: int, *, round_id: bytes, ring: Ring) -> Words:
        return np.zeros_like(self_mask(seed, owner, round_id=round_id, ring=ring))

    for module in (sum_client, unmasking):
        monkeypatch.setattr(module, "self_mask", no_mask)
    assert not worlds_look_alike(runs=60)


def test_that_check_catches_a_mask_stream_reused_for_every_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first_word_again(key: bytes, zeros: bytes) -> bytes:
        return stream_of(key, bytes(4)) * (len(zeros) // 4)

    monkeypatch.setattr(masks, "stream_of", first_word_again)
    assert not worlds_look_alike(runs=60)


def test_that_check_catches_a_mask_stream_reused_for_every_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every pair uses one public stream: the aggregator can as well remove it everywhere."""

    def same_for_all(_shared: bytes, _i: int, _j: int, *, round_id: bytes, ring: Ring) -> Words:
        return pair_mask(bytes(32), 0, 1, round_id=round_id, ring=ring)

    for module in (sum_client, unmasking):
        monkeypatch.setattr(module, "pair_mask", same_for_all)
    assert not worlds_look_alike(runs=60)


def test_no_mask_stream_serves_two_purposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over two rounds with the same seeds: each pair's stream twice, each self mask once."""
    keys: list[bytes] = []

    def recorded(key: bytes, zeros: bytes) -> bytes:
        keys.append(key)
        return stream_of(key, zeros)

    monkeypatch.setattr(masks, "stream_of", recorded)
    for plan_seed in (1, 2):
        cohort = Cohort(make_plan(5, 3, seed=plan_seed), seed=4).until(AggregatorStep.INPUTS)
        cohort.answer_all()
    assert sorted(Counter(keys).values()) == [1] * 10 + [2] * 20
