"""What is released about views: noisy counts of every cell, and vectors of one number per view."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.noisy_counts import CountNoise, CountsDesign, NoisyCounts
from fedprikl.estimation.scoring import BatchCounts, score_sensitivity, weighted_score
from fedprikl.estimation.statistic import (
    Statistic,
    out_of_domain_statistic,
    scored_statistic,
    variation_statistic,
)
from fedprikl.privacy import Calibrated, Mechanism, NoiseSource
from fedprikl.reference import OutOfDomain, QueryPoints

Released = tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ViewVector:
    """One divergence of every view, with noise."""

    score: Score
    values: Floats  # per view
    sensitivities: Floats  # Delta of each: the noise is proportional to it
    noise: Calibrated


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoisyViews:
    """All that is released about views. Public."""

    counts: tuple[NoisyCounts, ...]  # of each view, in one batch
    mechanism: str  # the noise on every count, in words
    vectors: tuple[ViewVector, ...] = ()  # tv, js; none where nobody is trusted

    def statistics(
        self, view: int, points: QueryPoints, outside: OutOfDomain
    ) -> tuple[Statistic, ...]:
        """The statistics of one view; `outside` is the law of records outside its cells."""
        noisy = self.counts[view]
        design = CountsDesign.of(points, noisy)
        values = (
            scored_statistic(
                float(each.values[view]),
                score=each.score,
                points=points,
                records=design.records,
                mechanism=each.noise.for_sensitivity(float(each.sensitivities[view])),
            )
            for each in self.vectors
        )
        return (
            *values,
            variation_statistic(design, np.array(noisy.counts)),
            out_of_domain_statistic(points, noisy, outside),
        )


def noise_counts(
    counts: BatchCounts,
    mechanism: Mechanism,
    source: NoiseSource,
) -> NoisyCounts:
    """Exact counts of the points, and of all other cells of a batch, with integer noise on each."""
    points, records = counts.points, counts.records
    asked = np.bincount(points.batch, weights=counts.counts, minlength=points.batches)
    exact = np.concatenate([counts.counts, records - asked.astype(np.int64)])
    laws = [CountNoise.of(mechanism)] * points.batches
    return NoisyCounts.of(mechanism.add_to(exact, source), records, laws, points)


def noise_views(
    views: Sequence[QueryPoints],
    exact: Sequence[Ints],
    records: int,
    *,
    vectors: Sequence[tuple[Score, Calibrated]],
    mechanism: Mechanism,
    source: NoiseSource,
    moved: int = 1,
) -> tuple[tuple[Released, ...], tuple[Released, ...]]:
    """Exact counts of all cells of every view, noised before they leave the aggregator.

    The counts of each view, the out-of-domain count last, and the vectors. `moved`: the records of
    whoever is protected, for which `mechanism` must be made too.
    """
    total = np.array([records])
    counts = [BatchCounts(*view, total) for view in zip(views, exact, strict=True)]
    noised = tuple(noise_counts(each, mechanism, source).numbers for each in counts)
    values = []
    for score, noise in vectors:
        plain = np.array([weighted_score(each, score) for each in counts])
        deltas = _sensitivities(views, total, score, moved)
        values.append(tuple(noise.add_to(plain, deltas, source).tolist()))
    return noised, tuple(values)


def read_views(
    views: Sequence[QueryPoints],
    records: int,
    noised: Sequence[Released],
    values: Sequence[Released],
    *,
    vectors: Sequence[tuple[Score, Calibrated]],
    mechanism: Mechanism,
    moved: int = 1,
) -> NoisyViews:
    """What the numbers of `noise_views` say."""
    total, law = np.array([records]), CountNoise.of(mechanism)
    return NoisyViews(
        counts=tuple(NoisyCounts.of(each, [records], [law]) for each in noised),
        mechanism=str(mechanism),
        vectors=tuple(
            ViewVector(
                score=score,
                values=np.array(each),
                sensitivities=_sensitivities(views, total, score, moved),
                noise=noise,
            )
            for each, (score, noise) in zip(values, vectors, strict=True)
        ),
    )


def _sensitivities(views: Sequence[QueryPoints], records: Ints, score: Score, moved: int) -> Floats:
    return np.array([score_sensitivity(view, records, score, moved) for view in views])
