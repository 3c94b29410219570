"""Designs: how many points, for how many batches, how spread and how clipped; and their search.

Everything here is computed from public quantities: Pi, the number of records, the budget.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.estimation.drift_model import SEED, DriftModel, model_drift, skew_of
from fedprikl.estimation.terms import Terms
from fedprikl.planning.error_parts import ErrorParts, mean_error
from fedprikl.planning.forecast import six_digits
from fedprikl.planning.simulated_scores import simulate_scores
from fedprikl.planning.spectrum import Spectrum

__all__ = [
    "EXPONENTS",
    "Design",
    "DesignForecast",
    "search_designs",
]

EXPONENTS = (0.5, 0.75, 1.0)
SEARCH_DRAWS = 2**12
CLIPPING = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)  # shares of the maximum step; 1: no clipping


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is asked of whom, and the maximum step of a record."""

    points: int  # m
    batches: int  # T
    exponent: float  # cells are asked of a share of the batches in proportion to Pi^exponent
    maximum_step: float = math.inf  # c


@dataclass(frozen=True, slots=True)
class DesignForecast:
    """A design and the errors it is predicted to have, one per assumed drift."""

    design: Design
    forecasts: tuple[ErrorParts, ...]

    @property
    def error(self) -> float:
        """Root mean square over the assumed drifts: what the search minimises."""
        return mean_error(self.forecasts)


def search_designs(
    spectrum: Spectrum,
    *,
    score: Score,
    records: int,
    points: Mapping[int, int],
    noise_per_sensitivity: float,
    client_effect: float = 1.0,
    moved: int = 1,
) -> list[DesignForecast]:
    """Forecasts of all designs: every number of batches, exponent and maximum step.

    `score` is that of the plan; its maximum step does not matter. `points` says how many points
    there may be for each number of batches, `noise_per_sensitivity` is the standard deviation of
    the noise per unit of sensitivity, `client_effect` the design effect of clients whose records
    are correlated, `moved` the records that one protected unit can move.
    A design is judged by its mean square error over the divergence's `drifts`. Cost: a fixed number
    of simulated scores for each design, whatever the size of the domain.
    """
    models = _models(spectrum, score.plain)
    return [
        forecast
        for layout in _layouts(spectrum, points)
        for forecast in _forecasts(
            layout, score, models, records, moved * noise_per_sensitivity, CLIPPING, client_effect
        )
    ]


@lru_cache(maxsize=16)  # a plan asks for the same ones several times
def _models(spectrum: Spectrum, score: Score) -> list[DriftModel]:
    return [
        model_drift(spectrum.mass, spectrum.pi, divergence=drift, score=score, draws=SEARCH_DRAWS)
        for drift in score.divergence.drifts(skew_of(score))
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """How often each cell is asked, before a maximum step is chosen."""

    spectrum: Spectrum
    points: int
    batches: int
    exponent: float
    wanted: Floats  # batches that are asked for the cell, on average
    inclusion: Floats

    @classmethod
    def of(cls, spectrum: Spectrum, points: int, batches: int, exponent: float) -> "_Layout":
        wanted = batches * spectrum.shares(points, exponent)
        return cls(spectrum, points, batches, exponent, wanted, np.minimum(wanted, 1.0))

    def terms(self, records: int, *, fewest: bool = False) -> Terms:
        """The terms of one draw of the design; with `fewest`, all copies rounded down."""
        chance = np.random.default_rng(SEED).random(len(self.wanted))
        copies = np.floor(self.wanted + (1e-9 if fewest else chance))
        share = np.clip(copies, 1.0, self.batches) / self.batches
        return Terms(
            of_point=np.arange(len(share)),
            pi=self.spectrum.pi,
            weights=self.spectrum.pi / self.inclusion,
            records=np.maximum(1, np.round(share * records)).astype(np.int64),
            outside=np.clip(1 - share, 0.0, None),
        )

    def first_steps(self, records: int, score: Score) -> Floats:
        """How far the first record of each cell lowers the estimate: its step before clipping."""
        return -self._steps(self.terms(records, fewest=True), score, last=False)

    def last_step(self, records: int, score: Score) -> float:
        """How far a record can raise the estimate, at most; 0 if f stops rising, as for KL."""
        steps = self._steps(self.terms(records, fewest=True), score, last=True)
        return max(0.0, float(steps.max()))

    def _steps(self, terms: Terms, score: Score, *, last: bool) -> Floats:
        before = terms.records - 1 if last else np.zeros(len(terms.pi))
        unclipped = replace(score, maximum_step=math.inf)
        steps: Floats = terms.weights * unclipped.increments(
            before, terms.pi, terms.records, outside=terms.outside
        )
        return steps

    def expected_sensitivity(self, steps: Floats) -> float:
        """Root mean square of the largest step among the cells that are asked.

        A cell is asked with probability i(x): it counts if no steeper one is asked.
        """
        order = np.argsort(-steps, kind="stable")
        none = (1 - self.inclusion[order]) ** self.spectrum.copies[order]
        none_before = np.concatenate([[1.0], np.cumprod(none)[:-1]])
        return math.sqrt(float(np.sum(steps[order] ** 2 * (1 - none) * none_before)))

    def sampling_variance(self, model: DriftModel) -> float:
        """Of the choice of points (Hajek's approximation for designs of fixed size)."""
        pi, copies = self.spectrum.pi, self.spectrum.copies
        chance, left = self.inclusion, copies * (1 - self.inclusion)
        fixed = float(np.sum(left * chance))
        if fixed <= 0:
            return 0.0
        square = model.mean_square * float(np.sum(left / chance * pi**2))
        level = model.divergence * float(np.sum(left * pi))
        return max(square - level**2 / fixed, 0.0)


def _layouts(spectrum: Spectrum, points: Mapping[int, int]) -> Iterator[_Layout]:
    if points.get(1, 0) >= spectrum.cells:
        yield _Layout.of(spectrum, spectrum.cells, 1, 1.0)  # everything is asked of everybody
        return
    for batches, most in points.items():
        for exponent in EXPONENTS:
            yield _Layout.of(spectrum, min(most, spectrum.cells), batches, exponent)


def _forecasts(
    layout: _Layout,
    score: Score,
    models: Sequence[DriftModel],
    records: int,
    noise_per_sensitivity: float,
    clipping: Sequence[float],
    client_effect: float,
) -> Iterator[DesignForecast]:
    """The errors of a layout for each maximum step, given as a share of the one before clipping."""
    terms, steps = layout.terms(records), layout.first_steps(records, score)
    rising = layout.last_step(records, score)
    drawn = [simulate_scores(terms, score, each, client_effect=client_effect) for each in models]
    sampling = [math.sqrt(layout.sampling_variance(model)) for model in models]
    for share in clipping:
        maximum_step = math.inf if share == 1 else six_digits(share * float(steps.max()))
        design = Design(
            points=layout.points,
            batches=layout.batches,
            exponent=layout.exponent,
            maximum_step=maximum_step,
        )
        falling = layout.expected_sensitivity(np.minimum(steps, maximum_step))
        noise_sd = noise_per_sensitivity * (falling + rising)
        forecasts = []
        for model, scores, chosen in zip(models, drawn, sampling, strict=True):
            seen = scores.moments(maximum_step)
            forecasts.append(
                ErrorParts(
                    divergence=model.divergence,
                    sampling=chosen,
                    bias=seen.bias,
                    spread=math.sqrt(seen.error_variance),
                    noise_sd=noise_sd,
                )
            )
        yield DesignForecast(design, tuple(forecasts))
