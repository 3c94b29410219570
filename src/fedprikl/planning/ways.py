"""Ways to release the same answers, compared on public drifts; and the choice among them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedprikl.planning.drift_cases import DriftCase, Forecast, drift_case, least, typical_error
from fedprikl.planning.trial_round import TrialRound
from fedprikl.protocol.plan import Plan

# How many times the error of a textbook's noisy counts with the whole budget another way may have,
# at any drift: if it has the whole budget too, and if other questions share it.
ALONE, SHARED = 1.05, 1.3
CLOSE, MANY = 1.2, 4  # errors of trials differ by chance up to so much: then there are more
NEARLY_GONE = ("shuffled", 2.0)  # a drift with cells of which a little is left
NAMES = {"value": "additive noise", "adaptive": "adaptive noise", "counts": "noisy counts"}


@dataclass(frozen=True, eq=False)
class Way:
    """A whole plan, and the errors of its first answer at every drift: tried when asked for."""

    trial: TrialRound
    cases: tuple[DriftCase, ...]
    _errors: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)

    @property
    def plan(self) -> Plan:
        """With its questions, shares and noise."""
        return self.trial.plan

    @property
    def name(self) -> str:
        """In words."""
        release = self.plan.question.release
        return f"{self.plan.question.noise} noise" if release == "value" else NAMES[release]

    def error(self, case: int, times: int = 1) -> float:
        """Mean absolute error at one of the cases, from so many times the usual populations."""
        if (case, times) not in self._errors:
            self._errors[case, times] = self.trial.error(self.cases[case], times)
        return self._errors[case, times]

    @property
    def errors(self) -> tuple[float, ...]:
        """At all of them."""
        return tuple(self.error(case) for case in range(len(self.cases)))

    @property
    def typical(self) -> float:
        """The geometric mean of the errors: what is minimised."""
        return typical_error(self.errors)

    @property
    def forecasts(self) -> tuple[Forecast, ...]:
        """One for every case."""
        return tuple(
            Forecast(case.kind, case.size, error)
            for case, error in zip(self.cases, self.errors, strict=True)
        )

    def predict(self, kind: str, size: float) -> float | None:
        """The error at a drift of any kind and size; None if no drift of the kind is as large."""
        case = drift_case(self.trial.pi, kind, size, self.trial.score)
        return None if case is None else self.trial.error(case)

    def is_no_worse(
        self, other: "Way", cases: Sequence[int] | None = None, allowed: float | None = None
    ) -> bool:
        """Whether it loses next to nothing against the other way at any drift.

        The first loss settles it: what a trial costs is not spent on the rest.
        """
        looked = range(len(self.cases)) if cases is None else cases
        if allowed is None:
            allowed = ALONE if len(self.plan.about_whole) == 1 else SHARED
        return all(self._loses_little(other, case, allowed) for case in looked)

    def _loses_little(self, other: "Way", case: int, allowed: float) -> bool:
        """Where chance in the trials could decide, more of them do."""
        mine, limit = self.error(case), allowed * other.error(case)
        if max(mine, limit) < CLOSE * min(mine, limit):
            mine, limit = self.error(case, MANY), allowed * other.error(case, MANY)
        return mine <= limit


def best_way(ways: Sequence[Way], counts: Way | None, whole: Way | None) -> Way:
    """The way with the least typical error that loses next to nothing to noisy counts in any trial.

    What the population looks like is unknown. So a way that wins at most drifts, but loses at one,
    is not taken where noisy counts are at hand. `whole` are a textbook's, with the whole budget.
    """
    if counts is None or whole is None:
        return least(ways, lambda way: way.typical)
    able = [way for way in ways if way.is_no_worse(whole)]
    return least([*able, counts], lambda way: way.typical)


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
        return max(_ratio(mine[kind], best[kind]) for kind in mine)

    return regret(one, other) < regret(other, one)


def _ratio(mine: float | None, best: float | None) -> float:
    if mine is None:
        return 1.0 if best is None else math.inf
    return 0.0 if best is None else mine / best


def best_limit(ways: Sequence[Way], whole: Way | None) -> Way:
    """Of ways that differ in the maximum step, the best where that matters: at large drifts.

    A limit costs nothing in a cell that is gone, and most in cells that are nearly gone. Both must
    be tried, or the tightest limit always looks best.
    """
    cases = ways[0].cases
    large = sorted(range(len(cases)), key=lambda i: round(cases[i].size, 9))[-2:]

    def typical(way: Way) -> float:
        nearly_gone = way.predict(*NEARLY_GONE)
        errors = [way.error(case) for case in large]
        return typical_error(errors if nearly_gone is None else [*errors, nearly_gone])

    able = [way for way in ways if whole is None or way.is_no_worse(whole, large)]
    return least(able or ways, typical)
