"""Repeated experiments on pairs of digits: one is the public reference, the other the population.

Every number comes from the package's own estimators; only the sums are computed in the open.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from experiments.handwriting import Digits
from experiments.population import Population, ask, deal_clients
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import DEFAULT_SKEW, Floor, Score, Smoothing
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import BatchCounts, Estimate, trusted_aggregator
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.reference import QueryPoints, distinct_points, iid_points

Pair = tuple[int, int]  # (reference digit, population digit): D(P_a || P_b)
Method = Literal["no privacy", "baseline", "trusted aggregator"]
Design = Literal["iid", "distinct"]
BASELINE_FLOOR = Floor(1e-4)
DEALING, POINTS, NOISE = 1, 2, 3  # streams of one seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to estimate: which estimator, which noise, which points of how many batches."""

    method: Method
    calibration: Literal["paper", "exact"] = "paper"
    design: Design = "iid"
    points: int = 10  # m
    batches: int = 20  # T
    epsilon: float = 1.0
    delta: float = 1e-6
    control: float = 0.0  # lambda
    smoothing: Smoothing = DEFAULT_SKEW
    corrected: bool = False  # remove the bias of small batches to second order

    def fitted(self, support: int) -> tuple[int, int]:
        """(m, T) that a reference with `support` cells can be asked.

        Distinct points run out: then each batch is asked all cells, or fewer batches are used.
        """
        if self.design == "iid":
            return self.points, self.batches
        points = min(self.points, support)
        return points, max(1, min(self.batches, support // points))


class Repetition:
    """One repetition: clients are dealt anew, points drawn anew, noise drawn anew.

    What does not depend on a setting is computed once and reused: the sums of each digit per
    number of batches, the points per design. All settings see the same clients, points and noise
    stream, so differences between them are theirs. Everything follows from (seed, number), so any
    slice of an experiment gives the numbers of the whole.
    """

    def __init__(self, digits: Digits, *, seed: int, number: int) -> None:
        self._digits, self._seed, self._number = digits, seed, number
        self._populations: dict[int, Population] = {}
        self._shares: dict[int, Floats] = {}
        self._sums: dict[tuple[int, int], Ints] = {}
        self._points: dict[tuple[Pair, Design, int, int], QueryPoints] = {}

    def estimate(self, pair: Pair, setting: Setting) -> Estimate:
        """D(P_a || P_b), in nats, as this setting estimates it; marked as insecure."""
        counts = self.counts(pair, setting)
        score = Score(
            setting.smoothing,
            control=setting.control,
            correction=1.0 if setting.corrected else 0.0,
        )
        if setting.method == "no privacy":
            return no_privacy(counts, score=score)
        estimator: Callable[..., Estimate] = trusted_aggregator
        if setting.method == "baseline":  # Gaussian like the paper's, whatever its calibration
            estimator = partial(baseline, noise="gaussian", calibration=setting.calibration)
        elif setting.calibration == "paper":
            estimator = printed_aggregator
        with warnings.catch_warnings():  # the true epsilon is in the result
            warnings.simplefilter("ignore", PaperCalibrationWarning)
            return estimator(
                counts,
                epsilon=setting.epsilon,
                delta=setting.delta,
                score=score,
                source=InsecureSeededNoise(self._stream(NOISE, *pair)),
            )

    def counts(self, pair: Pair, setting: Setting) -> BatchCounts:
        """The sums that the setting's points give: what the aggregator sees before noise."""
        pi = self.distribution(pair[0])
        points, batches = setting.fitted(int(np.count_nonzero(pi)))
        asked = self.points(pair, setting.design, points, batches)
        return ask(self.sums(pair[1], batches), asked)

    def population(self, digit: int) -> Population:
        """Everybody's images of the digit."""
        if digit not in self._populations:
            self._populations[digit] = self._digits.population(digit)
        return self._populations[digit]

    def distribution(self, digit: int) -> Floats:
        """P_digit(x) over everybody's images."""
        if digit not in self._shares:
            self._shares[digit] = self.population(digit).distribution
        return self._shares[digit]

    def sums(self, digit: int, batches: int) -> Ints:
        """The clients dealt into batches, and the sums of the digit's codes in each."""
        if (digit, batches) not in self._sums:
            rng = np.random.default_rng(self._stream(DEALING, batches))
            batch = deal_clients(self._digits.writers, batches, rng)
            self._sums[digit, batches] = self.population(digit).histograms(batch, batches)
        return self._sums[digit, batches]

    def points(self, pair: Pair, design: Design, points: int, batches: int) -> QueryPoints:
        """The points of a design, drawn from the reference digit."""
        key = (pair, design, points, batches)
        if key not in self._points:
            draw = iid_points if design == "iid" else distinct_points
            stream = self._stream(POINTS, *pair, design == "iid", points, batches)
            rng = np.random.default_rng(stream)
            pi = self.distribution(pair[0])
            self._points[key] = draw(pi, points, batches=batches, rng=rng)
        return self._points[key]

    def _stream(self, *key: int) -> np.random.SeedSequence:
        spawn = (key[0], self._number, *(int(part) for part in key[1:]))
        return np.random.SeedSequence(self._seed, spawn_key=spawn)
