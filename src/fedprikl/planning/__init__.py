"""Planning: from what a user knows to a plan, with what it will achieve and why."""

from fedprikl.planning.design import (
    Design,
    DesignForecast,
    DesignMoments,
    forecast_design,
    sampling_errors,
    search_designs,
)
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.planner import plan_round
from fedprikl.planning.power import smallest_drift
from fedprikl.planning.spectrum import Spectrum

__all__ = [
    "Design",
    "DesignForecast",
    "DesignMoments",
    "PlannedRound",
    "Spectrum",
    "forecast_design",
    "plan_round",
    "sampling_errors",
    "search_designs",
    "smallest_drift",
]
