"""What is released about views: noisy counts of every cell, and vectors of one number per view."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.noisy_estimates import noise_counts, read_counts
from fedprikl.estimation.noisy_verdict import VariationStatistic
from fedprikl.estimation.scoring import score_sensitivity, weighted_score
from fedprikl.estimation.statistic import ScoredStatistic, Statistic
from fedprikl.estimation.unseen_statistic import UnseenStatistic
from fedprikl.privacy import NoiseSource, VectorCalibrated
from fedprikl.privacy.integer_gaussian import IntegerGaussianMechanism
from fedprikl.privacy.integer_laplace import IntegerLaplaceMechanism
from fedprikl.reference import QueryPoints, Unseen

__all__ = ["NoisyViews", "ViewVector", "noise_views", "read_views"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ViewVector:
    """One divergence of every view, with noise."""

    score: Score
    values: Floats  # per view
    sensitivities: Floats  # Delta of each: the noise is proportional to it
    noise: VectorCalibrated

    def statistic(self, view: int, points: QueryPoints, records: Ints) -> ScoredStatistic:
        """What a verdict on one view rests on."""
        return ScoredStatistic(
            value=float(self.values[view]),
            score=self.score,
            points=points,
            records=records,
            mechanism=self.noise.for_sensitivity(float(self.sensitivities[view])),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoisyViews:
    """All that is released about views. Public."""

    counts: tuple[NoisyCounts, ...]  # of each view, in one batch
    mechanism: str  # the noise on every count, in words
    vectors: tuple[ViewVector, ...] = field(default=())  # tv, js; none where nobody is trusted

    def statistics(self, view: int, unseen: Unseen) -> tuple[Statistic, ...]:
        """The witnesses of one view; `unseen` is the law of records outside its cells."""
        noisy = self.counts[view]
        values = (each.statistic(view, noisy.points, noisy.records) for each in self.vectors)
        return (*values, VariationStatistic.of(noisy), UnseenStatistic(noisy=noisy, law=unseen))


def noise_views(
    views: Sequence[QueryPoints],
    exact: Sequence[Ints],
    records: int,
    *,
    vectors: Sequence[tuple[Score, VectorCalibrated]],
    mechanism: IntegerLaplaceMechanism | IntegerGaussianMechanism,
    source: NoiseSource,
    moved: int = 1,
) -> NoisyViews:
    """Exact counts of all cells of every view, noised before they leave the aggregator.

    `moved`: the records of whoever is protected, for which `mechanism` must be made too.
    """
    total = np.array([records])
    counts = [BatchCounts(*view, total) for view in zip(views, exact, strict=True)]
    return NoisyViews(
        counts=tuple(noise_counts(each, mechanism, source) for each in counts),
        mechanism=str(mechanism),
        vectors=tuple(_vector(counts, score, noise, source, moved) for score, noise in vectors),
    )


def read_views(
    views: Sequence[QueryPoints],
    records: int,
    noised: Sequence[Floats],
    values: Sequence[Floats],
    *,
    vectors: Sequence[tuple[Score, VectorCalibrated]],
    mechanism: IntegerLaplaceMechanism | IntegerGaussianMechanism,
    moved: int = 1,
) -> NoisyViews:
    """The same of noised numbers: `noised` counts of each view, the rest last, and vectors."""
    total = np.array([records])
    return NoisyViews(
        counts=tuple(
            read_counts(view, total, each, mechanism)
            for view, each in zip(views, noised, strict=True)
        ),
        mechanism=str(mechanism),
        vectors=tuple(
            ViewVector(
                score=score,
                values=each,
                sensitivities=_sensitivities(views, total, score, moved),
                noise=noise,
            )
            for each, (score, noise) in zip(values, vectors, strict=True)
        ),
    )


def _vector(
    counts: Sequence[BatchCounts],
    score: Score,
    noise: VectorCalibrated,
    source: NoiseSource,
    moved: int,
) -> ViewVector:
    values = np.array([weighted_score(each, score) for each in counts])
    deltas = _sensitivities([each.points for each in counts], counts[0].records, score, moved)
    return ViewVector(
        score=score,
        values=noise.add_to(values, deltas, source),
        sensitivities=deltas,
        noise=noise,
    )


def _sensitivities(views: Sequence[QueryPoints], records: Ints, score: Score, moved: int) -> Floats:
    return np.array([score_sensitivity(view, records, score, moved) for view in views])
