"""Planning: from what a user knows to a plan, with what it will achieve and why."""

from fedprikl.planning.design import Design, DesignForecast, Spectrum, search_designs
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.planner import plan_round
from fedprikl.planning.simulated_round import Forecast

__all__ = [
    "Design",
    "DesignForecast",
    "Forecast",
    "PlannedRound",
    "Spectrum",
    "plan_round",
    "search_designs",
]
