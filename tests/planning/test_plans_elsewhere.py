"""A plan is the same on every processor, and so are its forecasts, up to rounding.

NumPy and OpenBLAS choose their code by the processor; here they are told to be another one.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl import Reference
from fedprikl.divergence import Score
from fedprikl.documents import to_plain
from fedprikl.estimation import CountNoise
from fedprikl.estimation.drift_model import drifted_ratios
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.simulated_releases import CountsNoise, simulated_errors
from fedprikl.estimation.verdict import SmoothTail
from fedprikl.planning import plan_round
from fedprikl.reference import all_points
from tests.golden.compare import differences
from tests.long import long

CPU = Path("/proc/cpuinfo")
WIDE = CPU.exists() and " avx512f " in CPU.read_text(encoding="utf-8")
ROOT = Path(__file__).parents[2]
OLDER = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR" if WIDE else "X86_V3"}
PROCESSORS = ({"OPENBLAS_CORETYPE": "Haswell"}, OLDER | {"OPENBLAS_CORETYPE": "Prescott"})
PLANS = "from tests.planning.test_plans_elsewhere import plans; print(plans())"


def plans() -> str:
    """All cells asked of everybody, and few of many equally likely ones; as JSON."""
    counts = Reference.from_counts([31, 22, 15, 12, 9, 7, 4, 3, 1])
    even = Reference.from_probabilities(np.full(60, 1 / 60))
    known: dict[str, Any] = {"clients": 100, "records": 4000, "epsilon": 1.0}
    found = {
        "whole": plan_round(counts, design_effect=1.0, **known),
        "some": plan_round(even, payload=30, **known),
        "alone": plan_round(counts, trust="none", **known),
    }
    return json.dumps(
        {
            name: {
                "plan": planned.plan.to_dict(),
                "forecasts": to_plain(planned.forecasts),
                "smallest_drifts": planned.smallest_drifts,
            }
            for name, planned in found.items()
        }
    )


@pytest.fixture(scope="module")
def here() -> Any:
    return json.loads(plans())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the choices are those of x86-64")
@pytest.mark.parametrize("processor", [long(PROCESSORS[0]), PROCESSORS[1]], ids=["one", "older"])
def test_a_plan_is_the_same_elsewhere(processor: Mapping[str, str], here: Any) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLANS],
        env={**os.environ, "PYTHONPATH": path, **processor},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert differences(here, json.loads(ended.stdout)) == {}


# Shares that add up to a little less than 1, to 1 and to a little more, by rounding alone.
ROUNDED = [1 - 1e-15, 1.0, 1 + 1e-15]
POINTS, RECORDS = all_points(np.array([31, 22, 15, 12, 9, 7, 4, 3, 1]) / 104), np.array([4000])


@pytest.mark.parametrize("kind", ["smooth", "rare", "heavy", "shuffled"])
def test_rounding_moves_no_draw_of_a_trial(kind: str) -> None:
    ratios = drifted_ratios(POINTS.pi, kind, 0.05, Score())
    assert ratios is not None
    first, *others = (
        simulated_errors(
            POINTS, RECORDS, ratios * factor, Score(), CountsNoise(CountNoise(sd=3.0))
        ).signed
        for factor in ROUNDED
    )
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("effect", [1.0, 2.5])
def test_rounding_moves_no_draw_of_a_verdict(effect: float) -> None:
    model = NoDrift.of(POINTS, RECORDS, effect)
    ratios = drifted_ratios(POINTS.pi, "smooth", 0.2, Score())
    assert ratios is not None
    first, *others = (
        model.counts(50, public_simulation(), ratios[None] * factor) for factor in ROUNDED
    )
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_rounding_moves_no_threshold_of_a_column(rng: np.random.Generator) -> None:
    """Statistics of few records are often equal, also where a tail is fitted to the largest."""
    values = rng.binomial(20, 0.3, 2000) / 20
    rounded = values * (1 + 1e-15 * rng.standard_normal(2000))
    found, other = (SmoothTail.of(each).threshold(8.0) for each in (values, rounded))
    assert other == pytest.approx(found, rel=1e-9)
