"""A verdict that could not have found anything says so, and one that could never does."""

import numpy as np
import pytest

from fedprikl.estimation import JudgedStatistic, Verdict
from fedprikl.estimation.findable import Extreme, extremes
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.outcome import joint_outcome
from fedprikl.reference import all_points, spread_points
from tests.estimation.small_verdicts import Design, power

pytestmark = pytest.mark.slow

TOLD = 1000  # populations that tell a power; 0.5 is seen above 0.57 with probability 5e-6


def check(seed: int, designs: int) -> tuple[int, int]:
    """How many verdicts could tell, and how many could not; no drift of 0.5 escapes the latter."""
    rng, told = np.random.default_rng(seed), 0
    for _ in range(designs):
        design = Design.random(rng)
        verdict, model, statistics = design.verdict()
        told += verdict.can_tell
        if verdict.can_tell:
            continue
        assert verdict.findable is None or verdict.findable > 0.45
        for drifted in design.drifts(0.5, rng):
            assert power(verdict, model, statistics, drifted, rng, TOLD) < 0.5, design
    return told, designs - told


def test_whoever_cannot_tell_finds_no_drift_of_half_the_largest_size() -> None:
    assert min(check(7, 60)) > 10


@pytest.mark.validation
def test_the_same_of_a_thousand_designs() -> None:
    assert min(check(8, 1000)) > 200


def test_what_is_findable_is_found_half_of_the_time(rng: np.random.Generator) -> None:
    """Towards the best of many extremes, and a third of it rarely is."""
    seen = 0
    while seen < 25:
        design = Design.random(rng)
        verdict, model, statistics = design.verdict()
        if verdict.findable is None or verdict.findable > 0.5:
            continue
        seen += 1
        best, little = (
            max(power(verdict, model, statistics, p, rng) for p in design.drifts(size, rng))
            for size in (verdict.findable, verdict.findable / 3)
        )
        assert 0.35 < best < 0.75, design
        assert little < 0.45, design


def moved_tv(model: NoDrift, towards: Extreme, share: float, rng: np.random.Generator) -> float:
    """Of what a mean population becomes, with all that left the asked cells."""
    counts = np.tile(np.rint(model.records_per_term * model.pi).astype(int), (200, 1))
    mean = towards.moved(counts, share, rng).mean(axis=0) / model.records_per_term
    gone = max(0.0, float(model.pi.sum() - mean.sum()))
    return float(np.abs(mean - model.pi).sum() + gone) / 2


def test_drifts_have_the_size_that_they_say(rng: np.random.Generator) -> None:
    for pi in ([0.7, 0.2, 0.1], [0.3, 0.3, 0.2, 0.1, 0.1], [1.0]):
        model = NoDrift.of(all_points(pi), np.array([100_000]), 1.0)
        found = extremes(model, 1.0)
        assert len(found) == (5 if len(pi) > 1 else 1)
        for each in found:
            assert moved_tv(model, each, 1.0, rng) == pytest.approx(each.tv, abs=0.01)
            assert moved_tv(model, each, 0.4, rng) == pytest.approx(0.4 * each.tv, abs=0.01)


def test_records_move_within_the_domain_unless_they_leave_it(rng: np.random.Generator) -> None:
    model = NoDrift.of(all_points([0.5, 0.3, 0.2]), np.array([300]), 1.0)
    counts = model.counts(50, rng)
    outside, *others = extremes(model, 1.0)
    assert np.all(outside.moved(counts, 0.5, rng).sum(axis=1) < 300)
    for each in others:
        assert np.abs(each.moved(counts, 0.5, rng).sum(axis=1) - 300).max() <= 1


def test_few_asked_points_in_batches_have_extremes_too(rng: np.random.Generator) -> None:
    pi = np.full(40, 1 / 40)
    points = spread_points(pi, 5, batches=2, rng=rng)
    model = NoDrift.of(points, np.array([500, 400]), 1.0)
    for each in extremes(model, float(points.pi.sum())):
        moved = each.moved(model.counts(20, rng), 0.5, rng)
        assert moved.min() >= 0
        assert np.all(moved <= model.records_per_term)


def test_the_words_of_a_verdict_that_cannot_tell() -> None:
    nothing = Verdict(statistics=(), false_alarm=0.01, design_effect=1.0, can_tell=False)
    assert nothing.outcome == "cannot tell"
    assert not nothing.drifted
    assert str(nothing) == (
        "Cannot tell: with so few records and this epsilon no drift could be found"
    )
    tv = JudgedStatistic(name="tv", value=0.2, threshold=0.6, unit="")
    little = Verdict(
        statistics=(tv,), false_alarm=0.01, design_effect=1.0, can_tell=False, findable=0.623
    )
    assert "only drifts above 0.62 (total variation) could be found" in str(little)
    assert little.to_dict()["verdict"] == "cannot tell"
    assert little.to_dict()["drifted"] is None


def test_drift_that_was_found_is_drift_however_little_could_be_found() -> None:
    tv = JudgedStatistic(name="tv", value=0.9, threshold=0.8, unit="")
    lucky = Verdict(statistics=(tv,), false_alarm=0.01, design_effect=1.0, can_tell=False)
    assert lucky.outcome == "drift"
    assert lucky.to_dict()["drifted"] is True


def test_of_several_verdicts_one_that_can_tell_is_enough() -> None:
    assert joint_outcome(["cannot tell", "none found"]) == "none found"
    assert joint_outcome(["cannot tell", "drift", "none found"]) == "drift"
    assert joint_outcome(["cannot tell"]) == "cannot tell"
    assert joint_outcome([]) is None
