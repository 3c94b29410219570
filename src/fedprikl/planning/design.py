"""Designs: how many points, for how many batches, how spread and how clipped; and their search.

Everything here is computed from public quantities: Pi, the number of records, the budget.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score, clip_steps
from fedprikl.estimation.drift_model import SEED, DriftModel, model_drift, skew_of
from fedprikl.estimation.scoring import Terms
from fedprikl.planning.drift_cases import six_digits
from fedprikl.planning.known import Spectrum

EXPONENTS = (0.5, 0.75, 1.0)
SEARCH_DRAWS = 2**12
CLIPPING = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)  # shares of the maximum step; 1: no clipping


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorParts:
    """The error to expect if the population has drifted by `divergence`.

    It has three sources: the choice of points (sampling), batches that are samples of the
    population and clipping (small-batch bias and spread), and the noise. All are in the unit of the
    divergence.

    >>> ErrorParts(divergence=0.1, sampling=0.03, bias=0.0, spread=0.0, noise_sd=0.04).error
    0.05
    """

    divergence: float
    sampling: float  # standard deviation from the choice of points
    bias: float  # of scores of small batches, and of clipping
    spread: float  # standard deviation from the choice of the batches' clients
    noise_sd: float  # standard deviation of the noise

    @property
    def error(self) -> float:
        """Root mean square of all of them."""
        return math.hypot(self.sampling, self.bias, self.spread, self.noise_sd)


def mean_error(parts: Sequence[ErrorParts]) -> float:
    """Root mean square of the predicted errors: what the search minimises."""
    return math.sqrt(sum(f.error**2 for f in parts) / len(parts))


@dataclass(frozen=True, slots=True)
class EstimateMoments:
    """Bias and variance of the estimate of a design before noise, at some drift."""

    bias: float  # against the divergence of the very records
    error_variance: float  # about that bias


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedScores:
    """Scores of simulated counts of a drift model's cells, before any clipping.

    Nearly all of a forecast's cost is spent here; looking at one more maximum step is cheap.
    """

    weights: Floats
    counts: Floats  # in the batches that are asked
    scores: Floats
    empty: Floats  # scores of empty cells
    everybody: Floats  # scores of the counts of all batches

    def moments(self, maximum_step: float = math.inf) -> EstimateMoments:
        """Of scores clipped at `maximum_step`, against the scores of everybody's counts."""
        scores = clip_steps(self.scores, self.empty, self.counts, self.weights, maximum_step)
        error = scores - self.everybody
        return EstimateMoments(
            bias=float(error.mean()),
            error_variance=_variance_of_sum(error, self.weights),
        )


def simulate_scores(
    terms: Terms, score: Score, model: DriftModel, *, client_effect: float = 1.0
) -> SimulatedScores:
    """Scores if the population had drifted as in the model, whose cells are positions in `terms`.

    Poisson counts of groups of `client_effect` alike records: batches are sets of clients, and
    records of one client are correlated. The clipping of `score` is left to `moments`.
    """
    rng, at = np.random.default_rng(SEED), model.cells
    pi, records, outside = terms.pi[at], terms.records[at], terms.outside[at]
    everybody = records / (1 - outside)
    rate = pi * model.ratios
    groups = rng.poisson(records * rate / client_effect)
    others = rng.poisson(np.maximum(everybody - records, 0.0) * rate / client_effect)
    counts = np.asarray(client_effect * groups, dtype=np.float64)
    unclipped, whole = replace(score, maximum_step=math.inf), np.maximum(1, np.round(everybody))
    return SimulatedScores(
        weights=terms.weights[at],
        counts=counts,
        scores=unclipped(counts, pi, records, outside=outside),
        empty=unclipped(0, pi, records),
        everybody=score.plain(counts + client_effect * others, pi, whole.astype(np.int64)),
    )


def _variance_of_sum(values: Floats, weights: Floats) -> float:
    """sum w^2 Var(value of the cell), from pairs of draws of the same cell."""
    return float(np.mean(weights[::2] * (values[::2] - values[1::2]) ** 2 / 2))


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
