"""Release options of a trusted aggregator, compared on public drifts; and the choice among them.

The first answer is the size of the drift. It is released as one number with additive noise, as one
number with adaptive noise, or read off noisy counts. Further questions serve the verdict.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fedprikl.estimation.no_drift import public_simulation
from fedprikl.planning.budget import afforded
from fedprikl.planning.design import Design, six_digits
from fedprikl.planning.known import Known
from fedprikl.planning.simulated_round import SimulatedRound, least, typical_error
from fedprikl.privacy import Calibrated
from fedprikl.protocol.plan import Budget, Plan
from fedprikl.protocol.question import ADAPTIVE, Question, ReleaseOption

DRAWS = 400  # populations without drift
QUIET = 0.35  # noise over the spread of a statistic without drift: more would cost power
LEAST, MOST = 0.03, {"tv": 0.55}  # of the budget, for one further question
USUAL_MOST = 0.15
HOPELESS = 4.0  # times the most: the noise would still be twice the spread, and dominate
MOST_TOGETHER = 0.5  # of all further questions: the first one is the size
MOST_BESIDE_COUNTS = 0.08  # where the counts tell the size and most of the verdict
BESIDE_NOISE_DOMINATED = (0.25, 0.2, 0.16, 0.12)  # where noise dominates: what the size can spare
FOR_THE_VERDICT = 1.5  # times the error that noisy counts may have, if they find more
LIMITS = (math.inf, 0.8, 0.65, 0.5)  # of adaptive noise: shares of the largest step
NEARLY_GONE = ("shuffled", 2.0)  # a drift with cells of which a little is left


@dataclass(frozen=True, eq=False)
class ReleaseOptions:
    """The options to release the answers of one design, each with its shares of the budget."""

    known: Known
    draft: Plan
    design: Design
    noise: Calibrated  # of one number with the whole budget of a release
    _affordable: dict[tuple[tuple[str, float], ...], tuple[str, Budget]] = field(
        default_factory=dict
    )

    @cached_property
    def taken(self) -> SimulatedRound:
        """The best for the size, or noisy counts for the verdict."""
        best, counts, textbook = self.best_for_size, self.counts, self._textbook
        # Few plans get further: the verdict is costly to simulate.
        if counts is None or textbook is None or best is counts or len(self.draft.questions) == 1:
            return best
        near = counts.noise_dominated or counts.typical <= FOR_THE_VERDICT * best.typical
        if not near or not counts.is_no_worse(textbook, allowed=FOR_THE_VERDICT):
            return best
        found = (each.smallest_drifts | {"size": each.typical} for each in (counts, best))
        return counts if regrets_less(*found) else best

    @cached_property
    def best_for_size(self) -> SimulatedRound:
        """The one with the least typical error that loses next to nothing to noisy counts.

        What the population looks like is unknown. So an option that wins at most drifts, but loses
        at one, is not taken where noisy counts are at hand.
        """
        others = [each for each in self.all if each is not self.counts]
        if self.counts is not None and self._textbook is not None:
            able = [each for each in others if each.is_no_worse(self._textbook)]
            others = [*able, self.counts]
        return least(others, lambda each: each.typical)

    @cached_property
    def all(self) -> tuple[SimulatedRound, ...]:
        """Additive noise, adaptive noise and noisy counts, as far as each is possible."""
        found = [self._option("value", self.design.maximum_step)]
        if self.draft.question.divergence in ADAPTIVE:
            largest = self._first.largest_step
            limits = [six_digits(part * largest) if part < 1 else math.inf for part in LIMITS]
            tried = [self._option("adaptive", limit) for limit in limits]
            found.append(_best_limit(tried, self._textbook))
        return tuple(found if self.counts is None else [*found, self.counts])

    @cached_property
    def counts(self) -> SimulatedRound | None:
        """Noisy counts: if every cell is asked of everybody, and cohorts are not told apart.

        Where their noise dominates, they leave more of the budget to `tv`, as much as is possible
        before the size suffers.
        """
        usual, textbook = self._usual_counts, self._textbook
        if usual is None or textbook is None or not usual.noise_dominated:
            return usual
        if "tv" not in self._shares:
            return usual
        sharing = (self._option("counts", math.inf, most) for most in BESIDE_NOISE_DOMINATED)
        able = (each for each in sharing if each.is_no_worse(textbook, allowed=FOR_THE_VERDICT))
        return next(able, usual)

    @cached_property
    def _usual_counts(self) -> SimulatedRound | None:
        return self._option("counts", math.inf) if self._first.complete else None

    @cached_property
    def _textbook(self) -> SimulatedRound | None:
        """A textbook's noisy counts with the whole budget: what others are measured against."""
        if self._usual_counts is None:
            return None
        first = self._usual_counts.plan.question
        plan = replace(self._usual_counts.plan, questions=(replace(first, share=1.0),))
        return replace(self._first, plan=self._afforded(plan), textbook=True)

    @cached_property
    def _first(self) -> SimulatedRound:
        """A round of the design, before an option is chosen: its points serve all of them."""
        plan = self.draft.asking(self.design.points, self.design.exponent).changed(
            batches=self.design.batches, questions=self._questions("value", math.inf, {})
        )
        return SimulatedRound.of(plan, self.known)

    @cached_property
    def _shares(self) -> Mapping[str, float]:
        """The share of each further question whose answer has noise of its own.

        The least for which the noise is at most 0.35 of the spread that the statistic has without
        drift anyway: from there on more budget hardly helps the verdict. Where that is far out of
        reach, the least that is given at all.
        """
        counts, found = self._first.no_drift.counts(DRAWS, public_simulation()), {}
        for question in self.draft.questions[1:]:
            score = question.score(correction=self.draft.verdict.client_effect, limited=True)
            spread = float(np.std(self._first.before_noise(counts, score)))
            noise = self.noise.for_sensitivity(self._first.sensitivity(score)).standard_deviation
            most = MOST.get(question.divergence, USUAL_MOST)
            wanted = noise / (QUIET * spread) if spread > 0 else most
            hopeless = wanted > HOPELESS * most
            found[question.divergence] = LEAST if hopeless else float(np.clip(wanted, LEAST, most))
        scale = MOST_TOGETHER / max(MOST_TOGETHER, sum(found.values()))
        return {name: six_digits(scale * share) for name, share in found.items()}

    def _option(
        self, release: ReleaseOption, maximum_step: float, beside: float = MOST_BESIDE_COUNTS
    ) -> SimulatedRound:
        shares = self._shares
        if release == "counts":
            shares = {name: min(share, beside) for name, share in shares.items() if name == "tv"}
        questions = self._questions(release, maximum_step, shares)
        plan = self._afforded(replace(self._first.plan, questions=questions))
        return replace(self._first, plan=plan)

    def _afforded(self, plan: Plan) -> Plan:
        """With the noise and the epsilon of which all releases fit into the budget."""
        charged = tuple((question.release, question.share) for question in plan.questions)
        if charged not in self._affordable:  # a maximum step costs nothing
            best = afforded(plan)
            self._affordable[charged] = best.question.noise, best.budget
        noise, budget = self._affordable[charged]
        return plan.with_noise(noise).changed(budget=budget)

    def _questions(
        self, release: ReleaseOption, maximum_step: float, shares: Mapping[str, float]
    ) -> tuple[Question, ...]:
        """All of them, of one design. Those without a share of their own divide what is left."""
        asked = self.draft.questions
        left = (1 - math.fsum(shares.values())) / (len(asked) - len(shares))
        limited = release != "counts" and maximum_step < math.inf
        found = [replace(asked[0], maximum_step=maximum_step if limited else None, release=release)]
        for question in asked[1:]:
            name, option = question.divergence, release
            if release != "counts" or name in shares:
                option = "adaptive" if name in ADAPTIVE else "value"
            found.append(replace(question, maximum_step=None, release=option))
        return tuple(replace(each, share=shares.get(each.divergence, left)) for each in found)


def regrets_less(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> bool:
    """Whether the worst loss of one against the other is less than that of the other against it.

    Both are what is wanted small: the smallest drifts of every kind that are found (None is found
    by no means), and the error of the size. A loss is a ratio. What the population is like
    is unknown, so the largest ratio decides (minimax regret, Savage 1951).

    >>> regrets_less({"smooth": 0.02, "heavy": 0.1}, {"smooth": 0.015, "heavy": 0.4})
    True
    >>> regrets_less({"smooth": 0.05, "heavy": None}, {"smooth": 0.1, "heavy": 1.0})
    False
    """

    def regret(mine: Mapping[str, float | None], best: Mapping[str, float | None]) -> float:
        sizes = ((mine[kind] or math.inf, best[kind] or math.inf) for kind in mine)
        return max(1.0 if size == against else size / against for size, against in sizes)

    return regret(one, other) < regret(other, one)


def _best_limit(
    options: Sequence[SimulatedRound], textbook: SimulatedRound | None
) -> SimulatedRound:
    """Of options that differ in the maximum step, the best where that matters: at large drifts.

    A limit costs nothing in a cell that is gone, and most in cells that are nearly gone. Both must
    be tried, or the tightest limit always looks best.
    """
    cases = options[0].cases
    large = sorted(range(len(cases)), key=lambda i: round(cases[i].size, 9))[-2:]

    def typical(option: SimulatedRound) -> float:
        nearly_gone = option.predict(*NEARLY_GONE)
        errors = [option.error(case) for case in large]
        return typical_error(errors if nearly_gone is None else [*errors, nearly_gone])

    able = [each for each in options if textbook is None or each.is_no_worse(textbook, large)]
    return least(able or options, typical)
