"""The planner's rule: candidate plans on a small grid of shares, their forecasts, least regret.

What the population looks like is unknown, so no kind of drift is preferred. For every candidate

    the smallest drift of each kind that its verdict finds, and the errors of its answers

are simulated. Candidates stay only if no answer has, at any drift that is tried, much more error
than a textbook's noisy counts with the whole budget. A candidate's regret is how many times larger
than that of the best its smallest drift of any kind is, at worst (minimax regret, Savage 1951). The
first with nearly the least regret is taken. Decision 27 has the reasons.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fedprikl.planning.design import Design, six_digits
from fedprikl.planning.known import Known
from fedprikl.planning.looking import looked_question
from fedprikl.planning.simulated_round import SimulatedRound, least, typical_error
from fedprikl.privacy import Calibrated
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import ADAPTIVE, Question, ReleaseOption

NEARLY_ALL = 0.9  # of the budget
NEARLY_GONE = ("shuffled", 2.0)  # a drift with cells of which a little is left


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Every number that the choice of a plan rests on (decision 27: what other ones would do)."""

    columns: float = 0.5  # of the budget, where the whole is asked beside columns
    tv_beside_counts: tuple[float, ...] = (0.0, 0.06, 0.12, 0.25)  # noisy counts, and tv
    tv_beside_number: tuple[float, ...] = (0.1, 0.3)  # the size as a number, tv as another
    others_beside_number: float = 0.3  # all further questions, as numbers
    tv_of_columns: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5)  # of the columns' part
    limits: tuple[float, ...] = (math.inf, 0.65, 0.5)  # of adaptive noise: of the largest step
    look: float = 0.08  # of the budget of the size: it tells small drifts from large ones
    alone: float = 1.05  # times a textbook's error, if the size has the whole budget
    shared: float = 1.45  # the same, of every answer, if questions share the budget
    close: float = 1.05  # times the least regret: simulated, so as good


RULE = Rule()


def regrets(found: Sequence[Mapping[str, float]]) -> list[float]:
    """How many times larger than the best of all each one is in anything, at worst.

    All that is found is wanted small.

    >>> regrets([{"smooth": 0.02, "heavy": 0.1}, {"smooth": 0.01, "heavy": 0.4}])
    [2.0, 4.0]
    """
    best = {name: min(each[name] for each in found) for name in found[0]}
    return [max(each[name] / best[name] for name in best) for each in found]


def least_regret(found: Sequence[Mapping[str, float]], close: float = RULE.close) -> int:
    """The place of the first with nearly the least regret: those with more for the counts come
    first, and have the smaller errors.

    >>> least_regret([{"smooth": 0.0105, "heavy": 0.1}, {"smooth": 0.01, "heavy": 0.1}])
    0
    """
    worst = regrets(found)
    return next(place for place, each in enumerate(worst) if each <= close * min(worst))


@dataclass(frozen=True, eq=False)
class Choice:
    """The candidates for the whole, with one design; and the one taken.

    Three servers release noisy counts, and of tv a number. Where a trusted aggregator takes noisy
    counts, they take the same, so that both are equally exact; elsewhere the best of their own.
    """

    known: Known
    draft: Plan
    design: Design
    noise: Calibrated  # of one number with the whole budget of a release
    rule: Rule = RULE
    _readings: dict[tuple[object, ...], SimulatedRound] = field(default_factory=dict)

    @cached_property
    def taken(self) -> SimulatedRound:
        """The one with the least regret, of those that are near a textbook's noisy counts.

        Of one question the error is all.
        """
        if self.draft.trust == "servers" and len(self.asked) > 1:
            draft = self.draft.changed(trust="aggregator", servers=None)
            trusted = replace(self, draft=draft, _readings={})
            place = trusted.all.index(trusted.taken)  # noisy counts come first
            if place < len(self.all):
                return self.all[place]
        if len(self.near) == 1:
            return self.near[0]
        if len(self.asked) == 1:
            return least(self.near, lambda each: each.typical)
        return self.near[least_regret([self._wanted_small(each) for each in self.near])]

    def _wanted_small(self, candidate: SimulatedRound) -> dict[str, float]:
        """The smallest drifts, and the error of the size where no textbook limits it."""
        size = {} if self.complete else {"error": candidate.typical}
        return candidate.rough_drifts | size

    @cached_property
    def near(self) -> tuple[SimulatedRound, ...]:
        """Candidates of which no answer has much more error than a textbook's noisy counts."""
        return tuple(filter(self._is_near, self.all)) if self.complete else self.all

    @property
    def asked(self) -> tuple[Question, ...]:
        """All questions, the size first."""
        return self.draft.questions

    @cached_property
    def all(self) -> tuple[SimulatedRound, ...]:
        """Every candidate."""
        rule, names = self.rule, [each.divergence for each in self.asked[1:]]
        if self.draft.trust == "servers":
            counted = map(self._counts, rule.tv_beside_counts if "tv" in names else (0.0,))
            alone = [replace(each, release="value") for each in self.asked if not names]
            return (*counted, *(self._reading(e, 1.0) for e in alone if e.divergence == "tv"))
        if not names:
            numbers = [self._reading(each, 1.0) for each in (*self._options, *self._looked)]
            return (*numbers, self._counts(0.0)) if self.complete else tuple(numbers)
        others = rule.others_beside_number if names != ["tv"] else 0.0
        shares = {(tv if "tv" in names else 0.0, others) for tv in rule.tv_beside_number}
        best = least(self._options, lambda each: self._reading(each, 0.5).typical)
        numbers = [self._numbers(best, *each) for each in sorted(shares)]
        if not self.complete:
            return tuple(numbers)
        counts = [self._counts(tv) for tv in rule.tv_beside_counts if "tv" in names or tv == 0]
        return (*counts, *numbers)

    @cached_property
    def _options(self) -> tuple[Question, ...]:
        """The size as one number: with additive noise, and with adaptive noise where there is."""
        size, limit = self.asked[0], self.design.maximum_step
        additive = replace(size, release="value", maximum_step=None if limit == math.inf else limit)
        if size.divergence not in ADAPTIVE:
            return (additive,)
        largest, found = self._first.largest_step, []
        for part in self.rule.limits:
            step = None if part == math.inf else six_digits(part * largest)
            found.append(replace(size, release="adaptive", maximum_step=step))
        return additive, least(found, self._large_error)

    @property
    def _looked(self) -> tuple[Question, ...]:
        """The same after a look that chooses the noise, where either noise may be the smaller: with
        the maximum step of additive noise, and with that of adaptive noise.
        """
        found = []
        for step in dict.fromkeys(each.maximum_step for each in self._options):
            number = replace(self.asked[0], maximum_step=step)
            if number.divergence in ADAPTIVE:
                small = self._reading(replace(number, release="adaptive"), 1.0)
                large = self._reading(replace(number, release="value"), 1.0)
                found.append(looked_question(small, large, share=self.rule.look))
        return tuple(filter(None, found))

    def _large_error(self, question: Question) -> float:
        """Of a number with a maximum step, where that matters: at large drifts.

        A limit costs nothing in a cell that is gone, and most in cells that are nearly gone. Both
        must be tried, or the tightest limit always looks best.
        """
        reading = self._reading(question, 1.0 if len(self.asked) == 1 else 0.5)
        sizes = sorted(range(len(reading.cases)), key=lambda i: round(reading.cases[i].size, 9))
        nearly_gone = reading.predict(*NEARLY_GONE)
        errors = [reading.error(case) for case in sizes[-2:]]
        return typical_error(errors if nearly_gone is None else [*errors, nearly_gone])

    def _counts(self, tv: float) -> SimulatedRound:
        """Noisy counts of all cells, off which everything is read; and tv as a number."""
        read = [each for each in self.asked if tv == 0 or each.divergence != "tv"]
        return self._round(
            tuple(
                replace(each, release="counts", maximum_step=None, share=(1 - tv) / len(read))
                if each in read
                else replace(each, release="value", share=tv)
                for each in self.asked
            )
        )

    def _numbers(self, size: Question, tv: float, others: float) -> SimulatedRound:
        """All answers are numbers."""
        further, found = [each.divergence for each in self.asked[1:]], []
        for each in self.asked[1:]:
            option: ReleaseOption = "adaptive" if each.divergence in ADAPTIVE else "value"
            number = others / (len(further) - ("tv" in further)) if each.divergence != "tv" else tv
            found.append(replace(each, release=option, maximum_step=None, share=number))
        left = 1 - math.fsum(each.share for each in found)
        return self._round((replace(size, share=left), *found))

    @cached_property
    def _first(self) -> SimulatedRound:
        """A round of the design: its points and populations serve all candidates."""
        plan = self.draft.asking(self.design.points, self.design.exponent)
        return SimulatedRound.of(plan.changed(batches=self.design.batches), self.known)

    @property
    def complete(self) -> bool:
        """Whether every cell is asked of everybody: else there are no noisy counts."""
        return self._first.complete

    def _round(self, questions: tuple[Question, ...]) -> SimulatedRound:
        """With the noise and epsilon of one number; what is taken is calibrated in the end."""
        plan = replace(self._first.plan, questions=questions).with_noise(self.noise.law)
        return replace(self._first, plan=plan.changed(epsilon=self.noise.epsilon))

    def _reading(
        self, question: Question, share: float, *, textbook: bool = False
    ) -> SimulatedRound:
        """One answer, released by itself with a share of the budget."""
        key = question.divergence, question.release, question.maximum_step, share, textbook
        if key not in self._readings:
            alone = self._round((replace(question, share=1.0),))
            budget = alone.plan.budget
            plan = alone.plan.changed(epsilon=share * budget.epsilon, delta=share * budget.delta)
            self._readings[key] = replace(alone, plan=plan, textbook=textbook)
        return self._readings[key]

    def _readings_of(self, question: Question, candidate: SimulatedRound) -> list[SimulatedRound]:
        """An answer of a candidate by itself, and read off its noisy counts."""
        counted = [each.share for each in candidate.plan.questions if each.release == "counts"]
        found = []
        if question.release != "counts":
            found.append(self._reading(question, question.share))
        if counted:
            read = replace(question, release="counts", maximum_step=None, look=None)
            found.append(self._reading(read, round(math.fsum(counted), 9)))
        return found

    def _is_near(self, candidate: SimulatedRound) -> bool:
        """Whether no answer, at any drift, has much more error than a textbook's noisy counts.

        Ours, with nearly all of the budget, are near: nothing need be simulated. The first answer
        that is too far settles it.
        """
        allowed = self.rule.alone if len(self.asked) == 1 else self.rule.shared
        counted = (each.share for each in candidate.plan.questions if each.release == "counts")
        if math.fsum(counted) >= NEARLY_ALL:
            return True
        for question in candidate.plan.questions:
            read = replace(question, release="counts", maximum_step=None, look=None)
            textbook = self._reading(read, 1.0, textbook=True)
            readings = self._readings_of(question, candidate)
            for case in range(len(textbook.cases)):
                limit = allowed * textbook.error(case)
                if not any(each.error(case) <= limit for each in readings):
                    return False
        return True
