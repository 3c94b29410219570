"""Designs: how many points, for how many batches, how spread and how clipped; and their search.

Everything here is computed from public quantities: Pi, the number of records, the budget.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints, check_probabilities
from fedprikl.divergence import Score, clip_steps
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.drift_model import SEED, DriftModel, model_drift, skew_of
from fedprikl.estimation.scoring import Terms

SINGLE, GROUPS = 1024, 1024  # cells that stand for themselves, and groups of the others
EXPONENTS = (0.5, 0.75, 1.0)
SEARCH_DRAWS = 2**12
CLIPPING = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)  # shares of the maximum step; 1: no clipping


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Probabilities above 0, falling, and how many cells have each (nearly)."""

    pi: Floats
    copies: Ints

    @classmethod
    def of(cls, probabilities: Floats) -> "Spectrum":
        """The spectrum of a reference. Cost: a sort."""
        checked = check_probabilities(probabilities, "probabilities")
        falling = np.sort(checked[checked > 0])[::-1]
        if len(falling) <= SINGLE + GROUPS:
            return cls(falling, np.ones(len(falling), np.int64))
        starts = np.concatenate(
            [np.arange(SINGLE), np.linspace(SINGLE, len(falling), GROUPS, endpoint=False)]
        ).astype(np.int64)
        copies = np.diff(starts, append=len(falling))
        return cls(np.add.reduceat(falling, starts) / copies, copies)

    @property
    def cells(self) -> int:
        """Cells with probability above 0."""
        return int(self.copies.sum())

    @property
    def mass(self) -> Floats:
        """Of all cells of each probability."""
        mass: Floats = self.pi * self.copies
        return mass

    def shares(self, points: int, exponent: float) -> Floats:
        """f(x) = min(1, k Pi^exponent) with sum m: `spread_shares` for the spectrum."""
        if points >= self.cells:
            return np.ones(len(self.pi))
        if not 0 <= exponent <= 1:
            raise InvalidInputError(f"The exponent lies between 0 and 1, got {exponent}.")
        sizes = self.pi**exponent  # falling, so those that reach 1 come first
        before = np.concatenate([[0], np.cumsum(self.copies)[:-1]])
        rest = np.cumsum((sizes * self.copies)[::-1])[::-1]
        scale = (points - before) / rest  # if all before are certain and none after
        first = int(np.argmax(scale * sizes < 1))
        shares: Floats = np.minimum(1.0, scale[first] * sizes)
        shares[:first] = 1.0
        return shares


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


def simulated_moments(
    terms: Terms, score: Score, model: DriftModel, *, client_effect: float = 1.0
) -> Callable[[float], tuple[float, float]]:
    """Bias and variance before noise if the population had drifted as in the model, whose cells
    are positions in `terms`: for each maximum step.

    Both are of the error against the divergence of the very records. Poisson counts of groups of
    `client_effect` equal records: batches are sets of clients, and records of one client are
    correlated. Nearly all of a forecast's cost is spent here; one more maximum step is cheap.
    """
    rng, at = np.random.default_rng(SEED), model.cells
    pi, records, outside = terms.pi[at], terms.records[at], terms.outside[at]
    weights, everybody = terms.weights[at], records / (1 - outside)
    rate = pi * model.ratios
    groups = rng.poisson(records * rate / client_effect)
    others = rng.poisson(np.maximum(everybody - records, 0.0) * rate / client_effect)
    counts = np.asarray(client_effect * groups, dtype=np.float64)
    unclipped, whole = replace(score, maximum_step=math.inf), np.maximum(1, np.round(everybody))
    scores, empty = unclipped(counts, pi, records, outside=outside), unclipped(0, pi, records)
    truth = score.plain(counts + client_effect * others, pi, whole.astype(np.int64))

    def moments(maximum_step: float = math.inf) -> tuple[float, float]:
        error = clip_steps(scores, empty, counts, weights, maximum_step) - truth
        # sum w^2 Var(value of the cell), from pairs of draws of the same cell
        variance = float(np.mean(weights[::2] * (error[::2] - error[1::2]) ** 2 / 2))
        return float(error.mean()), variance

    return moments


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
        return math.sqrt(sum(f.error**2 for f in self.forecasts) / len(self.forecasts))


def search_designs(
    spectrum: Spectrum,
    *,
    score: Score,
    records: int,
    points: Mapping[int, int],
    noise_per_sensitivity: float,
    client_effect: float = 1.0,
    contribution_bound: int = 1,
) -> list[DesignForecast]:
    """Forecasts of all designs: every number of batches, exponent and maximum step.

    `score` is that of the plan; its maximum step does not matter. `points` says how many points
    there may be for each number of batches, `noise_per_sensitivity` is the standard deviation of
    the noise per unit of sensitivity, `client_effect` the design effect of clients whose records
    are correlated, `contribution_bound` the records of one protected unit.
    A design is judged by its mean square error over the divergence's `drifts`. Cost: a fixed number
    of simulated scores for each design, whatever the size of the domain.
    """
    noise, found = contribution_bound * noise_per_sensitivity, list[DesignForecast]()
    for design in _unclipped_designs(spectrum, points):
        layout = _Layout(spectrum, design, records, replace(score, maximum_step=math.inf))
        found += layout.forecasts(_models(spectrum, score.plain), noise, client_effect)
    return found


@lru_cache(maxsize=16)  # a plan asks for the same ones several times
def _models(spectrum: Spectrum, score: Score) -> list[DriftModel]:
    return [
        model_drift(spectrum.mass, spectrum.pi, divergence=drift, score=score, draws=SEARCH_DRAWS)
        for drift in score.divergence.drifts(skew_of(score))
    ]


def _unclipped_designs(spectrum: Spectrum, points: Mapping[int, int]) -> list[Design]:
    if points.get(1, 0) >= spectrum.cells:  # everything is asked of everybody
        return [Design(points=spectrum.cells, batches=1, exponent=1.0)]
    return [
        Design(points=min(most, spectrum.cells), batches=batches, exponent=exponent)
        for batches, most in points.items()
        for exponent in EXPONENTS
    ]


class _Layout:
    """How often each cell is asked, before a maximum step is chosen."""

    def __init__(self, spectrum: Spectrum, design: Design, records: int, score: Score) -> None:
        self.spectrum, self.design, self.records, self.score = spectrum, design, records, score
        # Batches that are asked for the cell, on average
        self.wanted = design.batches * spectrum.shares(design.points, design.exponent)
        self.inclusion = np.minimum(self.wanted, 1.0)

    def forecasts(
        self, models: Sequence[DriftModel], noise_per_sensitivity: float, client_effect: float
    ) -> Iterator[DesignForecast]:
        """The errors for each maximum step, given as a share of the one before clipping."""
        chance, fewest = np.random.default_rng(SEED).random(len(self.wanted)), self._terms(1e-9)
        steps = -self._steps(fewest, 0)  # how far the first record of a cell lowers the estimate
        rising = max(0.0, float(self._steps(fewest, fewest.records - 1).max()))  # 0 for KL
        terms = self._terms(chance)
        moments = [
            simulated_moments(terms, self.score, model, client_effect=client_effect)
            for model in models
        ]
        for share in CLIPPING:
            limit = math.inf if share == 1 else six_digits(share * float(steps.max()))
            falling = self._expected_sensitivity(np.minimum(steps, limit))
            clipped = [at(limit) for at in moments]
            found = tuple(
                ErrorParts(
                    divergence=model.divergence,
                    sampling=math.sqrt(self._sampling_variance(model)),
                    bias=bias,
                    spread=math.sqrt(variance),
                    noise_sd=noise_per_sensitivity * (falling + rising),
                )
                for model, (bias, variance) in zip(models, clipped, strict=True)
            )
            yield DesignForecast(replace(self.design, maximum_step=limit), found)

    def _terms(self, rounding: Floats | float) -> Terms:
        """The terms of one draw of the design; with almost no `rounding`, of the fewest copies."""
        batches = self.design.batches
        share = np.clip(np.floor(self.wanted + rounding), 1.0, batches) / batches
        return Terms(
            of_point=np.arange(len(share)),
            pi=self.spectrum.pi,
            weights=self.spectrum.pi / self.inclusion,
            records=np.maximum(1, np.round(share * self.records)).astype(np.int64),
            outside=np.clip(1 - share, 0.0, None),
        )

    def _steps(self, terms: Terms, before: Ints | int) -> Floats:
        """How far a record that is added to so many raises the estimate."""
        found = self.score.increments(before, terms.pi, terms.records, outside=terms.outside)
        return np.asarray(terms.weights * found)

    def _expected_sensitivity(self, steps: Floats) -> float:
        """Root mean square of the largest step among the cells that are asked.

        A cell is asked with probability i(x): it counts if no steeper one is asked.
        """
        order = np.argsort(-steps, kind="stable")
        none = (1 - self.inclusion[order]) ** self.spectrum.copies[order]
        none_before = np.concatenate([[1.0], np.cumprod(none)[:-1]])
        return math.sqrt(float(np.sum(steps[order] ** 2 * (1 - none) * none_before)))

    def _sampling_variance(self, model: DriftModel) -> float:
        """Of the choice of points (Hajek's approximation for designs of fixed size)."""
        pi, copies = self.spectrum.pi, self.spectrum.copies
        chance, left = self.inclusion, copies * (1 - self.inclusion)
        fixed = float(np.sum(left * chance))
        if fixed <= 0:
            return 0.0
        square = model.mean_square * float(np.sum(left / chance * pi**2))
        level = model.divergence * float(np.sum(left * pi))
        return max(square - level**2 / fixed, 0.0)


def six_digits(value: float) -> float:
    """What a plan states of a number that was simulated: the same on every processor.

    >>> six_digits(0.1 * 3), six_digits(0.3), six_digits(1234567.8)
    (0.3, 0.3, 1234570.0)
    """
    return float(f"{value:.6g}")
