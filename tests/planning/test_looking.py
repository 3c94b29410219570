"""Where a look switches: where the forecast errors of the two noises cross."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedprikl.planning.looking import looked_question
from fedprikl.planning.simulated_round import SimulatedRound
from fedprikl.protocol import Look, Question

SIZES = [0.0, 0.05, 1.0, 0.2, 2.0]


@dataclass
class Forecasts:
    """Errors at drifts of these sizes."""

    errors: list[float]
    plan: Any = None

    @property
    def cases(self) -> list[Any]:
        return [SimpleNamespace(size=size) for size in SIZES]

    def error(self, case: int) -> float:
        return self.errors[case]


def looked(small: list[float]) -> Question | None:
    plan = SimpleNamespace(question=Question(release="adaptive", maximum_step=0.1))
    rounds = (Forecasts(small, plan), Forecasts([1.0] * len(SIZES), plan))
    return looked_question(*(cast("SimulatedRound", each) for each in rounds), share=0.1)


def test_it_switches_between_the_sizes_where_the_errors_cross() -> None:
    found = looked([0.2, 0.3, 1.5, 0.6, 1.8])
    look = Look(share=0.1, switch=0.447214)
    assert found == Question(release="looked", maximum_step=0.1, look=look)


def test_below_the_least_drift_it_is_half_of_that() -> None:
    found = looked([0.5, 1.5, 1.5, 1.5, 1.5])
    assert found is not None
    assert found.look == Look(share=0.1, switch=0.025)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_where_one_noise_is_always_the_smaller_nobody_looks(ratio: float) -> None:
    assert looked([ratio] * len(SIZES)) is None
