"""The audit of a plan: everything that it releases is attacked, through the code that releases.

1. For each question two neighbouring data sets are made up that its noise hides worst.
2. The release is computed for both, with a listener beside the noise. It notes which noise is asked
   for, and on which numbers. What that noise gives the pair is the first bound on epsilon.
3. The same noise is drawn thousands of times, from the source that releases use. How well the two
   data sets are told apart is the second bound, how large the noise is the third.

Where a look chooses the noise, the look is attacked with its part of epsilon, and either noise with
the rest. Of noise shares, those of the fewest honest clients with which a sum can be opened are
added up. Three servers are attacked as one of them could (`servers_audit.py`).
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, product
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
    account_of,
    additive_attack,
    drawn_below,
    nothing_hidden,
)
from fedprikl.audit.calibrations import worst_neighbours
from fedprikl.audit.lower_bounds import AuditResult
from fedprikl.audit.servers_audit import servers_attacks
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import BatchCounts, weighted_score
from fedprikl.estimation.adaptive import adaptive_ranges
from fedprikl.estimation.scoring import Terms
from fedprikl.privacy import (
    SECURE_NOISE,
    InverseSensitivityMechanism,
    LookedMechanism,
    NoiseSource,
    Ranges,
    SharedCounts,
    laplace_variance,
)
from fedprikl.privacy.shares import SharedGaussianMechanism
from fedprikl.protocol import Plan, Question, trust_of
from fedprikl.protocol.answering import Noised, as_drawn, noise_sums, places_of, points_of
from fedprikl.protocol.round import plan_cohort
from fedprikl.protocol.sums import NoisyHistogram, OpenedSum, QuestionNoise, ScoredSum, ServersSum
from fedprikl.reference import QueryPoints, Reference

Pair = tuple[Ints, Ints]  # counts of the points in either data set
HELD = (0, 1, 2, 4, 8)  # units in a cell that gets one more
UNITS = (200, 2000, 20_000)  # units in all
MOST_STEPS = 2**20  # that are looked at
SHARES = 500_000  # noise shares that are drawn; of Laplace noise, which is faster, 5 times as many
BATCH = 20  # units of a batch
COHORT = 50  # clients of the audited cohort, at most
FAR = 1e9  # a switch that no look is beyond
LOOKS = 20  # releases whose look lies on either side of the switch
Report = Callable[[str, int, int], None]


def counts_pair(points: QueryPoints, records: Ints, k: int) -> Pair:
    """One cell holds all records; then k of them are in another, or outside all cells.

    No other change of a unit with k records is larger, in sum or in square.
    """
    left = np.zeros(len(points), np.int64)
    left[0] = records[0]
    right = left.copy()
    right[0] -= k
    right[1:2] += k
    return left, right


def value_pair(points: QueryPoints, records: Ints, score: Score, k: int) -> Pair:
    """The data sets whose weighted scores lie furthest apart; of several records, nearly so."""
    if k == 1:
        one, other = worst_neighbours(points, records, score)
        return one.counts, other.counts

    def distance(pair: Pair) -> float:
        left, right = (weighted_score(BatchCounts(points, h, records), score) for h in pair)
        return abs(left - right)

    return max(_client_pairs(points, records, score, k), key=distance)


def _client_pairs(points: QueryPoints, records: Ints, score: Score, k: int) -> Iterator[Pair]:
    """All records of a client change to the empty cells whose scores fall fastest: from outside, or
    from the cell whose score rises fastest, which holds all records.
    """
    terms, mine = Terms.of(points, records), np.flatnonzero(points.batch == 0)

    def steps(some: Ints, counts: Ints) -> Floats:
        """w (s(h + 1) - s(h)) of points (rows) at counts."""
        at = terms.of_point[some][:, None]
        law = {"outside": terms.outside[at], "weights": terms.weights[at]}
        found = score.increments(counts, terms.pi[at], terms.records[at], **law)
        return np.asarray(terms.weights[at] * found)

    first = steps(mine, np.zeros((1, 1), np.int64))[:, 0]
    steepest = mine[np.argsort(first, kind="stable")][: MOST_STEPS // k + 1]
    falls = -steps(steepest, np.arange(k)[None, :])
    full = terms.records[terms.of_point[mine]][:, None]
    source = int(mine[np.argmax(steps(mine, full - 1)[:, 0])])
    for filled in (False, True):
        left, open_ = np.zeros(len(points), np.int64), falls.copy()
        if filled:
            same = terms.of_point == terms.of_point[source]
            left[same] = records[points.batch[same]]
            open_[steepest == source] = -np.inf
        right = left.copy()
        right[source] -= k * filled
        chosen = np.argsort(-open_.ravel(), kind="stable")[:k] // k
        yield left, right + np.bincount(steepest[chosen], minlength=len(points))


def adaptive_pairs(points: QueryPoints, k: int) -> Iterator[tuple[Ints, Pair]]:
    """One more unit in a cell that holds none or few, with the records of each batch.

    All others are spread as the reference says, or outside all cells.
    """
    mine = np.flatnonzero(points.batch == 0)
    order = mine[np.argsort(points.pi[mine], kind="stable")]
    cells = sorted({int(order[place]) for place in (0, len(order) // 2, -1)})
    spread = (points.pi, np.zeros(len(points)))
    for cell, units, held, shares in product(cells, UNITS, HELD, spread):
        left = np.floor((units - held - 1) * k * shares).astype(np.int64)
        left[cell] = held * k
        right = left.copy()
        right[cell] += k
        yield np.full(points.batches, units * k), (left, right)


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

    `trials` are releases of either data set (default: as many as take some seconds). A plan whose
    parts cost more together than it says is refused.
    """
    trust, found = trust_of(plan), list[tuple[str, AuditResult]]()
    trust.check_parts()  # what they cost together is computed, not attacked
    if isinstance(trust, NoisyHistogram):
        attacks, number = iter([_shares_attack(trust, source)]), 1
    elif isinstance(trust, ServersSum):
        attacks, number = _servers_attacks(trust, reference, source), len(plan.groups)
    else:
        attacks = _World(trust, reference, source).switched(FAR).attacks()
        number = len(plan.groups) + 2 * sum(each.look is not None for each in plan.questions)
    progress("attacking", 0, number)
    for claim, attack in attacks:
        chance = false_alarm / number
        result = attack.run(claim, trials, chance) if attack else nothing_hidden(claim, chance)
        found.append((claim.question, result))
        progress("attacking", len(found), number)
    return AuditedPlan(tuple(found), false_alarm)


def _records_of_unit(plan: Plan) -> int:
    """Records in which neighbours differ, by the plan's own words."""
    return plan.unit.records if plan.unit.kind == "client" else 1


def _name(group: Sequence[Question]) -> str:
    """What the audit calls questions that one noise answers."""
    first, asked = group[0], ", ".join(each.divergence for each in group)
    if first.of_whole:
        return f"{asked}: {'noisy counts' if first.release == 'counts' else first.release}"
    what = "noisy counts" if first.release == "counts" else asked
    return f"{what} of {len(first.views)} columns"


class _World:
    """Releases of a trusted aggregator about made-up data, with the code that releases."""

    def __init__(self, trust: ScoredSum, reference: Reference, source: NoiseSource) -> None:
        plan, rng = trust.plan, np.random.default_rng(1)
        self.trust, self.plan, self.source, self.k = trust, plan, source, _records_of_unit(plan)
        whole = trust.draw_points(reference.probabilities, rng) if plan.points else None
        self.points = points_of(plan, reference, whole)  # of each view, the whole first
        self.records = np.full(plan.sums.batches, BATCH * self.k)

    def switched(self, switch: float) -> "_World":
        """The same world where looks switch elsewhere: so either noise can be made to follow."""

        def asked(question: Question) -> Question:
            known = question.look
            look = None if known is None else replace(known, switch=switch)
            return replace(question, look=look)

        other, plan = copy(self), self.plan
        other.plan = replace(plan, questions=tuple(map(asked, plan.questions)))
        other.trust = ScoredSum(other.plan)
        return other

    def attacks(self) -> Iterator[tuple[Claim, Attack | None]]:
        """One for each noise, which may cost its share of the plan's epsilon and delta."""
        first, budget = 0, self.plan.budget
        epsilon = budget.epsilon * budget.parts
        for noise in as_drawn(self.trust.noises):
            share = math.fsum(each.share for each in noise.questions)
            claim = Claim(_name(noise.questions), share * epsilon, share * budget.delta)
            if isinstance(noise.law, LookedMechanism):
                yield from self._looked_attacks(noise, noise.law, claim, first)
                continue
            if isinstance(noise.law, InverseSensitivityMechanism):
                yield claim, self._adaptive_attack(noise.questions[0], [noise.law.epsilon])
                continue
            views = len(noise.questions[0].views)
            yield claim, self._additive_attack(noise, slice(first, first + views))
            first += views

    def _looked_attacks(
        self, noise: QuestionNoise, law: LookedMechanism, claim: Claim, first: int
    ) -> Iterator[tuple[Claim, Attack | None]]:
        """On the look, on the value after a small one, and on the value after a large one."""
        question, epsilons = noise.questions[0], [law.look.epsilon, law.small.epsilon]
        assert question.look is not None  # noqa: S101  its noise says so
        share = question.look.share
        parts = {"look": share, "after a small look": 1 - share, "after a large look": 1 - share}
        look, small, large = (
            Claim(f"{claim.question}, {name}", part * claim.epsilon, claim.delta)
            for name, part in parts.items()
        )
        yield look, self._adaptive_attack(question, epsilons)
        yield small, self._adaptive_attack(question, epsilons, place=1)
        yield large, self.switched(-FAR)._additive_attack(noise, slice(first, first + 1))

    def _additive_attack(self, noise: QuestionNoise, asked: slice) -> Attack | None:
        """On data sets that differ in all views of a question; `asked` is its noise of all."""
        pairs = {place: self._pair(noise, place) for place in places_of(self.plan, noise)}
        heard = []
        for side in (0, 1):
            counts = {place: pair[side] for place, pair in pairs.items()}
            listener, released = self._release(self.records, counts)
            if not self._all_noisy(released, listener):
                return None
            heard.append(listener.asked[asked])
        return additive_attack(*heard)

    def _pair(self, noise: QuestionNoise, place: int) -> Pair:
        """Two data sets that the noise on a view hides worst."""
        points, records = self.points[place], self.records
        if points.batches < len(records):  # all batches are asked the same
            records = np.array([int(records.sum())])
        if noise.is_counts:
            return counts_pair(points, records, self.k)
        return value_pair(points, records, self.trust.score_of(noise.questions[0]), self.k)

    def _adaptive_attack(
        self, question: Question, epsilons: Sequence[float], place: int = 0
    ) -> Attack:
        """On several pairs of data sets; of all adaptive answers, on the one at this place."""
        score, points, epsilon = self.trust.score_of(question), self.points[0], epsilons[place]

        def ranges_of(counts: Ints, records: Ints, epsilon: float) -> Ranges:
            exact = BatchCounts(points, counts, records)
            return adaptive_ranges(exact, score, epsilon=epsilon, contribution=self.k)

        found = []
        for records, pair in adaptive_pairs(points, self.k):
            left, right = (ranges_of(counts, records, epsilon) for counts in pair)
            law = Losses.of((left, right), epsilon)
            found.append((law.power, law.largest, (left, right), pair, records))
        _, _, ranges, pair, records = max(found, key=lambda each: each[0])
        drawn = [self._release(records, {0: counts})[0].ends for counts in pair]
        asked = [
            [drawn_below(ranges_of(counts, records, each), each) for each in epsilons]
            for counts in pair
        ]
        return Adaptive(
            ranges=ranges,
            hardest=max(found, key=lambda each: each[1])[2],
            epsilon=epsilon,
            same=drawn == asked and self._follows_the_look(question, records, pair[0]),
            source=self.source,
        )

    def _follows_the_look(self, question: Question, records: Ints, counts: Ints) -> bool:
        """Whether the look as released, and nothing else, chooses the noise.

        The switch is put where the number itself lies, so that looks are on either side of it.
        """
        if question.look is None:
            return True
        exact = BatchCounts(self.points[0], counts, records)
        switch = weighted_score(exact, self.trust.score_of(question))
        world, numbers = self.switched(switch), (n for n in self.trust.noises if not n.is_counts)
        place = [each.questions[0].look is not None for each in numbers].index(True)
        found = (world._release(records, {0: counts}) for _ in range(LOOKS))
        return all(
            (len(listener.ends) == 1) is (released.values[place][0] > switch)
            for listener, released in found
        )

    def _release(self, records: Ints, counts: Mapping[int, Ints]) -> tuple[Listener, Noised]:
        """What is released about counts of some views, and which noise was asked for."""
        batches = range(len(records))
        sums = [
            OpenedSum(tuple(self._of_batch(i, counts, t) for i in range(len(self.points))), held)
            for t, held in zip(batches, records.tolist(), strict=True)
        ]
        listener = Listener(self.source)
        return listener, noise_sums(self.trust, self.points, sums, source=listener)

    def _of_batch(self, place: int, counts: Mapping[int, Ints], batch: int) -> Ints:
        """The counts of a view in a batch; those that all batches are asked are in the first."""
        points = self.points[place]
        found = counts.get(place, np.zeros(len(points), np.int64))
        if points.batches == self.plan.sums.batches:
            return np.asarray(found[points.batch == batch])
        return found if batch == 0 else np.zeros_like(found)

    def _all_noisy(self, released: Noised, listener: Listener) -> bool:
        """Whether the numbers with noise are released, and nothing else but adaptive answers."""
        numbers = Counter(chain(*released.values, *released.counts))
        given = Counter(chain(*(each.tolist() for each in listener.given)))
        return given <= numbers and numbers.total() == given.total() + len(listener.ends)


def _servers_attacks(
    trust: ServersSum, reference: Reference, source: NoiseSource
) -> Iterator[tuple[Claim, Attack | None]]:
    """On three servers, one of which is corrupt."""
    world = _World(trust, reference, source)

    def pair(noise: QuestionNoise, place: int) -> Pair:
        points = world.points[place]
        if noise.is_counts:
            return counts_pair(points, world.records, world.k)
        return value_pair(points, world.records, trust.score_of(noise.questions[0]), world.k)

    return servers_attacks(
        trust,
        world.points,
        source,
        records=int(world.records[0]),
        pair=pair,
        name=lambda noise: _name(noise.questions),
    )


def _shares_attack(trust: NoisyHistogram, source: NoiseSource) -> tuple[Claim, Attack | None]:
    """The noisy counts of a cohort of which as many are missing, and collude, as may be."""
    plan, k = trust.plan, _records_of_unit(trust.plan)
    clients = min(plan.sums.cohort, COHORT)
    inputs = max(trust.degree(clients).threshold + 1, math.floor((1 - plan.sums.dropout) * clients))
    honest = inputs - max(1, math.ceil(plan.sums.corruption * clients))
    share = trust.share(clients)
    name = f"noise shares of {honest} honest clients, of a cohort of {clients}"
    claim = Claim(name, plan.budget.epsilon, plan.budget.delta)

    def listen(side: int) -> Asked:
        """The sum, in which one client's records are all in the first cell, or in the second."""
        listener = Listener(source)
        vector = trust.vector(
            [k * (np.arange(view.points) == side) for view in plan.views],
            k,
            sums=plan_cohort(plan, clients=clients),
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
    if made is None:
        return claim, None
    budget = SHARES if made.laws[0].gaussian else 5 * SHARES
    return claim, replace(made, account=account, budget=budget // honest)
