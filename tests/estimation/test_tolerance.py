"""Drifts within the tolerance are not called larger, whatever cells they are in."""

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.divergence import TV, Score, Skew
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.estimation.findable import Extreme
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.outcome import Tolerance
from fedprikl.estimation.statistic import scored_statistic
from fedprikl.estimation.tolerance import counted_variation, judge_tolerance
from fedprikl.privacy import InsecureSeededNoise, Numbers, calibrate
from fedprikl.reference import all_points

PI = np.array([0.3, 0.25, 0.2, 0.12, 0.08, 0.04, 0.01])
POINTS, RECORDS, LEVEL = all_points(PI), 4000, 0.01
NOISE = calibrate(Numbers(sensitivity=2 / RECORDS), epsilon=0.5, law="laplace")


def moved(kind: str, tv: float, pi: Floats) -> Floats:
    """P at this total variation from Pi, out of the domain last."""
    p = np.append(pi, 0.0)
    to = {"heaviest": 0, "rarest": len(pi) - 1, "outside": len(pi)}.get(kind)
    if to is None:  # spread over all cells
        shift = np.append(np.where(np.arange(len(pi)) % 2, -1.0, 1.0) * pi, 0.0)
        shift -= p * shift.sum()
        return np.asarray(p + shift * 2 * tv / np.abs(shift).sum())
    p *= 1 - tv / (1 - p[to])
    p[to] += tv / (1 - np.append(pi, 0.0)[to])
    return p


def found(kind: str, tv: float, *, value: bool, tolerated: float = 0.05, pi: Floats = PI) -> float:
    """How often 300 populations are called beyond the tolerance."""
    rng, points = np.random.default_rng(1), all_points(pi)
    model, seen, statistic = NoDrift.of(points, np.array([RECORDS]), 1.0), [], None
    for _ in range(300):
        held = rng.multinomial(RECORDS, moved(kind, tv, pi))
        if value:
            exact = np.abs(held[:-1] / RECORDS - pi).sum() / 2 + held[-1] / RECORDS / 2
            released = NOISE.add_to([exact], InsecureSeededNoise(int(rng.integers(2**31))))
            statistic = scored_statistic(
                float(released[0]),
                score=Score(Skew(0.0), TV),
                points=points,
                records=np.array([RECORDS]),
                mechanism=NOISE,
            )
        else:
            noisy = held + np.round(rng.normal(0, 4.0, len(held)))
            counts = NoisyCounts.of(noisy, [RECORDS], [CountNoise(sd=4.0)])
            statistic = counted_variation(points, counts)
        seen.append(statistic.observed(model))
    assert statistic is not None
    judged = judge_tolerance([statistic], model, tolerated=tolerated, level=LEVEL)
    assert judged is not None  # its threshold depends on no value
    return float(np.mean(np.array(seen) > judged.threshold))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprikl.estimation.tolerance.DRAWS", 500)


@pytest.mark.parametrize("kind", ["heaviest", "rarest", "outside", "spread"])
@pytest.mark.parametrize("value", [True, False])
def test_drifts_within_the_tolerance_are_not_called_larger(kind: str, value: bool) -> None:
    """At a rate of 1%, 12 of 300 have a probability below 1e-4."""
    assert found(kind, 0.05, value=value) <= 11 / 300


@pytest.mark.parametrize("kind", ["rarest", "outside"])
def test_a_cell_that_was_rare_varies_more(kind: str) -> None:
    """From 1% to 6% of the records, say: without drift it varied by less than half as much."""
    assert found(kind, 0.05, value=False, pi=np.array([0.99, 0.01])) <= 11 / 300


def test_that_check_would_catch_what_varies_without_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the population that has not drifted decides alone, as it did, 9 to 12% are called."""
    monkeypatch.setattr(
        "fedprikl.estimation.tolerance.extremes",
        lambda *_: [Extreme(1.0, lambda counts, _share, _rng: counts)],
    )
    assert found("rarest", 0.05, value=False, pi=np.array([0.99, 0.01])) > 14 / 300


@pytest.mark.parametrize("value", [True, False])
def test_that_check_would_catch_a_smaller_tolerance(value: bool) -> None:
    assert found("rarest", 0.05, value=value, tolerated=0.01) > 0.5


@pytest.mark.parametrize("kind", ["heaviest", "rarest", "outside", "spread"])
def test_drifts_beyond_the_tolerance_are_found(kind: str) -> None:
    assert found(kind, 0.12, value=False) > 0.9


def test_the_smaller_of_two_total_variations_decides() -> None:
    model = NoDrift.of(POINTS, np.array([RECORDS]), 1.0)
    loud, quiet = (
        counted_variation(POINTS, NoisyCounts.of([*(RECORDS * PI), 0.0], [RECORDS], [law]))
        for law in (CountNoise(sd=300.0), CountNoise(sd=1.0))
    )
    both = judge_tolerance([loud, quiet], model, tolerated=0.05, level=LEVEL)
    alone = judge_tolerance([quiet], model, tolerated=0.05, level=LEVEL)
    assert both is not None
    assert alone is not None
    assert both.threshold == pytest.approx(alone.threshold, rel=0.05)
    assert judge_tolerance([], model, tolerated=0.05, level=LEVEL) is None
    assert judge_tolerance([quiet], model, tolerated=0.0, level=LEVEL) is None


def test_a_tolerance_is_a_total_variation() -> None:
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        Tolerance(tolerated=1.0, value=0.0, threshold=0.0)
