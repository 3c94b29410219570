"""The audit of a plan: everything that it releases is attacked, through the code that releases.

1. For each question two neighbouring data sets are made up that its noise hides worst.
2. The release is computed for both, with a listener beside the noise. It notes which noise is asked
   for, and on which numbers. What that noise gives the pair is the first bound on epsilon.
3. The same noise is drawn thousands of times, from the source that releases use. How well the two
   data sets are told apart is the second bound, how large the noise is the third.

Of noise shares, those of the fewest honest clients with which a sum can be opened are added up.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprikl.audit.attacks import (
    Adaptive,
    Additive,
    Asked,
    Attack,
    Claim,
    Listener,
    Losses,
    NothingHidden,
    account_of,
    additive_attack,
    drawn_below,
)
from fedprikl.audit.calibrations import worst_neighbours
from fedprikl.audit.lower_bounds import AuditResult
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import BatchCounts, Estimates, weighted_score
from fedprikl.estimation.adaptive import adaptive_ranges
from fedprikl.estimation.scoring import Terms
from fedprikl.privacy import SECURE_NOISE, NoiseSource, SharedCounts, laplace_variance
from fedprikl.privacy.shares import SharedGaussianMechanism
from fedprikl.protocol import (
    Plan,
    Question,
    trust_of,
)
from fedprikl.protocol.cohort_sums import OpenedSum, asked_views, view_score
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.question_noise import AdaptiveNoise, CountsNoise
from fedprikl.protocol.round import size_cohort
from fedprikl.protocol.scored_sum import ScoredSum
from fedprikl.reference import QueryPoints, Reference

Pair = tuple[Ints, Ints]  # counts of the points in either data set
HELD = (0, 1, 2, 4, 8)  # units in a cell that gets one more
UNITS = (200, 2000, 20_000)  # units in all
MOST_STEPS = 2**20  # that are looked at
SHARES = 500_000  # noise shares that are drawn; of Laplace noise, which is faster, 5 times as many
UNIT_WORDS = 20  # records of a batch, times those of whoever is protected
COHORT = 50  # clients of the audited cohort, at most


def counts_pair(points: QueryPoints, records: Ints, moved: int) -> Pair:
    """One cell holds all records; then `moved` of them are in another, or outside all cells.

    No other change moves counts further, in sum or in square.
    """
    left = np.zeros(len(points), np.int64)
    left[0] = records[0]
    right = left.copy()
    right[0] -= moved
    right[1:2] += moved
    return left, right


def value_pair(points: QueryPoints, records: Ints, score: Score, moved: int) -> Pair:
    """The data sets whose weighted scores lie furthest apart; of several records, nearly so."""
    if moved == 1:
        one, other = worst_neighbours(points, records, score)
        return one.counts, other.counts

    def distance(pair: Pair) -> float:
        left, right = (weighted_score(BatchCounts(points, h, records), score) for h in pair)
        return abs(left - right)

    return max(_client_pairs(points, records, score, moved), key=distance)


def _client_pairs(points: QueryPoints, records: Ints, score: Score, moved: int) -> Iterator[Pair]:
    """A client of the first batch moves to the empty cells whose scores fall fastest: from outside,
    or from the cell whose score rises fastest, which holds all records.
    """
    terms, mine = Terms.of(points, records), np.flatnonzero(points.batch == 0)

    def steps(some: Ints, counts: Ints) -> Floats:
        """w (s(h + 1) - s(h)) of points (rows) at counts."""
        at = terms.of_point[some][:, None]
        law = {"outside": terms.outside[at], "weights": terms.weights[at]}
        found = score.increments(counts, terms.pi[at], terms.records[at], **law)
        return np.asarray(terms.weights[at] * found)

    first = steps(mine, np.zeros((1, 1), np.int64))[:, 0]
    steepest = mine[np.argsort(first, kind="stable")][: MOST_STEPS // moved + 1]
    falls = -steps(steepest, np.arange(moved)[None, :])
    full = terms.records[terms.of_point[mine]][:, None]
    source = int(mine[np.argmax(steps(mine, full - 1)[:, 0])])
    for filled in (False, True):
        left, open_ = np.zeros(len(points), np.int64), falls.copy()
        if filled:
            same = terms.of_point == terms.of_point[source]
            left[same] = records[points.batch[same]]
            open_[steepest == source] = -np.inf
        right = left.copy()
        right[source] -= moved * filled
        chosen = np.argsort(-open_.ravel(), kind="stable")[:moved] // moved
        yield left, right + np.bincount(steepest[chosen], minlength=len(points))


def adaptive_pairs(points: QueryPoints, moved: int) -> Iterator[tuple[Ints, Pair]]:
    """One more unit in a cell that holds none or few, with the records of each batch.

    All others are spread as the reference says, or outside all cells.
    """
    mine = np.flatnonzero(points.batch == 0)
    order = mine[np.argsort(points.pi[mine], kind="stable")]
    for cell in sorted({int(order[place]) for place in (0, len(order) // 2, -1)}):
        for units in UNITS:
            for held in HELD:
                records = np.full(points.batches, units * moved)
                for shares in (points.pi, np.zeros(len(points))):
                    left = np.floor((units - held - 1) * moved * shares).astype(np.int64)
                    left[cell] = held * moved
                    right = left.copy()
                    right[cell] += moved
                    yield records, (left, right)


Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class AuditedPlan:
    """What the audit found. `refuted` is wrong with probability at most `false_alarm`."""

    questions: tuple[tuple[str, AuditResult], ...]  # each by its name
    false_alarm: float

    @property
    def refuted(self) -> bool:
        """Whether any question costs more than its share of the plan's epsilon."""
        return any(result.refuted for _, result in self.questions)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "refuted": self.refuted,
            "false_alarm": self.false_alarm,
            "questions": [{"question": name} | result.to_dict() for name, result in self.questions],
        }


def audit_plan(
    plan: Plan,
    reference: Reference,
    *,
    trials: int | None = None,
    false_alarm: float = 1e-6,
    source: NoiseSource = SECURE_NOISE,
    progress: Report = lambda *_: None,
) -> AuditedPlan:
    """Attacks every question of the plan: each may cost its share of epsilon and delta.

    `trials` are releases of either data set (default: as many as take some seconds).
    """
    trust, found = trust_of(plan), list[tuple[str, AuditResult]]()
    if isinstance(trust, NoisyHistogram):
        claims = [_shares_claim(trust)]
        attacks = iter([_shares_attack(trust, source)])
    else:
        claims, attacks = _claims(trust), _attacks(trust, reference, source)
    progress("attacking", 0, len(claims))
    for claim, attack in zip(claims, attacks, strict=True):
        found.append((claim.question, attack.run(claim, trials, false_alarm / len(claims))))
        progress("attacking", len(found), len(claims))
    return AuditedPlan(tuple(found), false_alarm)


def _attacks(trust: ScoredSum, reference: Reference, source: NoiseSource) -> Iterator[Attack]:
    """One for each noise of a trusted aggregator."""
    plan, rng = trust.plan, np.random.default_rng(1)
    points = trust.draw_points(reference.probabilities, rng) if plan.points else None
    views = [view.points() for view in asked_views(plan, reference)]
    world = _World(trust, points, views, source)
    records = np.full(plan.sums.batches, UNIT_WORDS * _moved(plan))
    additive = [noise for noise in trust.noises if not isinstance(noise, AdaptiveNoise)]
    for noise in trust.noises:
        assert points is not None  # noqa: S101  there are questions
        counted = isinstance(noise, CountsNoise)
        score = trust.score_of(noise.questions[0])
        if isinstance(noise, AdaptiveNoise):
            yield _adaptive_attack(world, noise)
            continue
        pair = (
            counts_pair(points, records, _moved(plan))
            if counted
            else value_pair(points, records, score, _moved(plan))
        )
        place = additive.index(noise)
        heard = [world.listen(pair, side, records) for side in (0, 1)]
        yield _attack(heard, slice(place, place + 1))
    first, total = len(additive), np.array([int(records.sum())])
    for group in _released_of(plan):
        pairs = [
            counts_pair(view, total, _moved(plan))
            if group[0].release == "counts"
            else value_pair(view, total, view_score(group[0].divergence), _moved(plan))
            for view in views
        ]
        heard = [world.listen_to_views(pairs, side, records) for side in (0, 1)]
        yield _attack(heard, slice(first, first + len(views)))
        first += len(views)


def _claims(trust: ScoredSum) -> list[Claim]:
    """What each noise may cost: its share of the plan's epsilon and delta."""
    plan, found = trust.plan, list[Claim]()
    for noise in trust.noises:
        share = math.fsum(question.share for question in noise.questions)
        asked = ", ".join(question.divergence for question in noise.questions)
        how = "noisy counts" if isinstance(noise, CountsNoise) else noise.questions[0].release
        found.append(
            Claim(f"{asked}: {how}", share * plan.budget.epsilon, share * plan.budget.delta)
        )
    for group in _released_of(plan):
        share = math.fsum(question.share for question in group)
        what = "noisy counts" if group[0].release == "counts" else group[0].divergence
        title = f"{what} of {len(plan.columns)} columns"
        found.append(Claim(title, share * plan.budget.epsilon, share * plan.budget.delta))
    return found


def _released_of(plan: Plan) -> list[tuple[Question, ...]]:
    """What is released about columns, in the order in which noise is asked for."""
    groups = [group for group in plan.groups if not group[0].of_whole]
    return groups[-1:] + groups[:-1]  # noisy counts first


def _moved(plan: Plan) -> int:
    """Records in which neighbours differ, by the plan's own words."""
    return plan.unit.records if plan.unit.kind == "client" else 1


def _attack(heard: Sequence[list[Asked] | None], places: slice) -> Attack:
    left, right = heard
    if left is None or right is None:
        return NothingHidden()
    return additive_attack(left[places], right[places])


@dataclass(frozen=True, slots=True, eq=False)
class _World:
    """Releases about made-up data."""

    trust: ScoredSum
    points: QueryPoints | None
    views: Sequence[QueryPoints]
    source: NoiseSource

    def listen(self, pair: Pair, side: int, records: Ints) -> list[Asked] | None:
        """Which noise the release about one of two data sets asks for."""
        return self._heard(self._opened(pair, side, records))

    def ends(self, pair: Pair, side: int, records: Ints) -> list[int]:
        """Below which numbers adaptive answers are drawn."""
        listener = Listener(self.source)
        self._estimate(self._opened(pair, side, records), listener)
        return listener.ends

    def listen_to_views(
        self, pairs: Sequence[Pair], side: int, records: Ints
    ) -> list[Asked] | None:
        """The same, of data sets that differ in all views."""
        nothing = np.zeros(0 if self.points is None else len(self.points), np.int64)
        counted = np.concatenate([pair[side] for pair in pairs])
        first, *others = self._opened((nothing, nothing), side, records)
        return self._heard([replace(first, views=counted), *others])

    def _opened(self, pair: Pair, side: int, records: Ints) -> list[OpenedSum]:
        """One sum for each batch."""
        batch = np.zeros(0, np.int64) if self.points is None else self.points.batch
        empty = np.zeros(self.trust.plan.column_points, np.int64)
        return [OpenedSum(pair[side][batch == t], empty, int(n)) for t, n in enumerate(records)]

    def _estimate(self, sums: Sequence[OpenedSum], listener: Listener) -> Estimates:
        cohorts, rng = [self.trust.plan.sums.cohort], np.random.default_rng(1)
        return self.trust.estimate(self.points, self.views, sums, cohorts, source=listener, rng=rng)

    def _heard(self, sums: Sequence[OpenedSum]) -> list[Asked] | None:
        """None where anything else is released than the numbers with noise."""
        listener = Listener(self.source)
        released = _released(self.trust, self._estimate(sums, listener))
        given = np.concatenate([np.zeros(0), *listener.given])
        return listener.asked if np.array_equal(released, given) else None


def _released(trust: ScoredSum, found: Estimates) -> Floats:
    """All numbers with additive noise, in the order in which it is asked for."""
    parts = []
    for noise in trust.noises:
        if isinstance(noise, CountsNoise) and found.noisy_counts is not None:
            parts.append(np.array(found.noisy_counts.numbers))
        elif not isinstance(noise, AdaptiveNoise):
            places = [trust.plan.about_whole.index(question) for question in noise.questions]
            parts.append(np.array([found.each[place].value for place in places]))
    if found.columns is not None:
        parts += [np.array(each.numbers) for each in found.columns.counts]
        parts += [vector.values for vector in found.columns.vectors]
    return np.concatenate([np.zeros(0), *parts])


def _adaptive_attack(world: _World, noise: AdaptiveNoise) -> Attack:
    """On several pairs of data sets."""
    plan, points = world.trust.plan, world.points
    assert points is not None  # noqa: S101  there are questions
    epsilon, score = noise.charge.epsilon, world.trust.score_of(noise.questions[0])
    found = []
    for records, pair in adaptive_pairs(points, _moved(plan)):
        left, right = (
            adaptive_ranges(
                BatchCounts(points, counts, records), score, epsilon=epsilon, moved=_moved(plan)
            )
            for counts in pair
        )
        law = Losses.of((left, right), epsilon)
        found.append((law.power, law.largest, (left, right), pair, records))
    _, _, ranges, pair, records = max(found, key=lambda each: each[0])
    ends = [world.ends(pair, side, records) for side in (0, 1)]
    return Adaptive(
        ranges=ranges,
        hardest=max(found, key=lambda each: each[1])[2],
        epsilon=epsilon,
        same=ends == [[drawn_below(each, epsilon)] for each in ranges],
        source=world.source,
    )


def _audited_cohort(trust: NoisyHistogram) -> tuple[int, int]:
    """The clients of the audited cohort, and the fewest honest ones whose sum can be opened: as
    many are missing, and collude, as may be.
    """
    plan = trust.plan
    clients = min(plan.sums.cohort, COHORT)
    inputs = max(trust.degree(clients).threshold + 1, math.floor((1 - plan.sums.dropout) * clients))
    return clients, inputs - max(1, math.ceil(plan.sums.corruption * clients))


def _shares_claim(trust: NoisyHistogram) -> Claim:
    clients, honest = _audited_cohort(trust)
    name = f"noise shares of {honest} honest clients, of a cohort of {clients}"
    return Claim(name, trust.plan.budget.epsilon, trust.plan.budget.delta)


def _shares_attack(trust: NoisyHistogram, source: NoiseSource) -> Attack:
    """The noisy counts of a cohort of which as many are missing, and collude, as may be."""
    plan, (clients, honest) = trust.plan, _audited_cohort(trust)
    share = trust.share(clients)

    def listen(side: int) -> Asked:
        """The sum, in which one client's records are all in the first cell, or in the second."""
        listener, sizes = Listener(source), [view.points for view in plan.columns]
        blocks = [
            np.array([*(_moved(plan) * (cell == side) for cell in range(size))])
            for size in [plan.points, *sizes]
        ]
        vector = trust.vector(
            blocks[0],
            blocks[1:],
            _moved(plan),
            sums=size_cohort(plan, clients=clients, points=plan.points),
            source=listener,
            randomness=os.urandom,
        )
        (one,), (noise,) = listener.asked, listener.given

        def summed(values: Floats) -> Floats:
            drawn = one.draw(np.zeros(honest * len(values)))
            clipped = np.clip(drawn, -share.reach, share.reach).reshape(honest, -1)
            return np.asarray(values + clipped.sum(axis=0))

        known = share.reach + np.clip(noise, -share.reach, share.reach)
        exact = vector[:-2].astype(np.float64) - known
        return replace(one, values=exact, draw=summed, variance=honest * one.variance)

    def account(attack: Additive, factor: float, delta: float) -> float:
        law, shifts = attack.laws[0], np.abs(attack.right - attack.left)
        if not law.gaussian or factor == math.inf:
            missing = math.sqrt(law.variance / laplace_variance(law.scale))
            return account_of(attack, factor * min(1.0, missing), delta)
        on = SharedCounts(honest, len(shifts), round(float(shifts.max())), share.on.failure)
        summed = SharedGaussianMechanism(on=on, sigma=factor * law.scale)
        return summed.epsilon(delta)

    made = additive_attack([listen(0)], [listen(1)])
    if not isinstance(made, Additive):
        return made
    budget = SHARES if made.laws[0].gaussian else 5 * SHARES
    return replace(made, account=account, budget=budget // honest)
