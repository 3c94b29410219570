"""Which columns drifted: one false-alarm rate for all of them.

Every column has witnesses, and every witness a threshold. All thresholds lie equally deep in the
tails of populations without drift (`column_tails.py`), and how deep is found by simulation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.column_tails import Tail, tail_of
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.statistic import Statistic, witnesses_of
from fedprikl.estimation.thresholds import (
    NullValues,
    check_false_alarm,
    simulated_draws,
    upper_limit,
)
from fedprikl.estimation.verdict import Witness
from fedprikl.reference import QueryPoints, Spread

__all__ = ["ColumnCase", "ColumnNull", "ColumnVerdict", "common_depth", "judge_columns"]

FITTED = 2_000  # populations that the tails are fitted to, apart from those that are counted
HALVINGS = 14


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnCase:
    """What was released about one column, and how its counts vary without drift. Public."""

    points: QueryPoints  # all cells of the column, one batch
    records: int  # N
    spread: float | Spread
    witnesses: tuple[Statistic, ...]

    def __post_init__(self) -> None:
        check_positive_int(self.records, "records")
        names = [witness.name for witness in self.witnesses]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError("A column has one or more witnesses, each of its own name.")

    @property
    def model(self) -> NoDrift:
        """The law of its counts without drift."""
        return NoDrift.of(self.points, np.array([self.records]), self.spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnVerdict:
    """Whether a column drifted: whether any of its witnesses is above its threshold."""

    witnesses: tuple[Witness, ...]
    design_effect: float | None  # None: not known, records of one client are taken as unrelated

    @property
    def drifted(self) -> bool:
        """Whether drift was found, at the rate that all columns share."""
        return any(witness.speaks for witness in self.witnesses)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnNull:
    """The witnesses of one column without drift: smooth tails, and values of other populations."""

    tails: tuple[Tail, ...]
    values: tuple[NullValues, ...]

    @classmethod
    def simulate(cls, column: ColumnCase, draws: int, rng: np.random.Generator) -> "ColumnNull":
        """All witnesses of the same populations, of which the first ones fit the tails."""
        model, found = column.model, [list[Floats]() for _ in column.witnesses]
        for counts in model.chunks(FITTED + draws, rng):
            for values, witness in zip(found, column.witnesses, strict=True):
                values.append(witness.simulated(model, counts, rng))
        drawn = [np.concatenate(values) for values in found]
        laws = [witness.mechanism for witness in column.witnesses]
        return cls(
            tuple(tail_of(v[:FITTED].ravel(), law) for v, law in zip(drawn, laws, strict=True)),
            tuple(NullValues(v[FITTED:], law) for v, law in zip(drawn, laws, strict=True)),
        )

    def thresholds(self, depth: float) -> tuple[float, ...]:
        """Of each witness, in its unit."""
        return tuple(tail.threshold(depth) for tail in self.tails)

    def alarms(self, depth: float) -> Floats:
        """P(any witness above its threshold), of each counted population."""
        thresholds = self.thresholds(depth)
        calm = [1 - v.above(t) for v, t in zip(self.values, thresholds, strict=True)]
        return np.asarray(1 - np.prod(calm, axis=0))


def common_depth(columns: Sequence[ColumnNull], alarms: float) -> float:
    """The least depth at which at most so many columns without drift raise an alarm, on average.

    The mean number of alarms is the sum of the columns' rates, however columns depend on each
    other, and at least the probability of any. It is counted on simulated populations, with
    an upper 99% confidence limit, whatever the tails look like.
    """

    def fits(depth: float) -> bool:
        return upper_limit(np.sum([each.alarms(depth) for each in columns], axis=0)) <= alarms

    low, high = 0.0, math.log(len(columns) / alarms) + 1
    while not fits(high):
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def judge_columns(
    columns: Sequence[ColumnCase],
    *,
    false_alarm: float,
    control: Literal["family", "discovery"] = "family",
) -> tuple[ColumnVerdict, ...]:
    """The verdicts on all columns of a release, together.

    "family": the probability that any column is called drifted, if none is, is at most
    `false_alarm`. That holds however columns depend on each other, by the union bound; columns that
    go together raise fewer alarms. Columns without drift are rarely called drifted also where
    others are.

    "discovery": of the columns called drifted, a share of at most `false_alarm` has not, on average
    (Benjamini and Hochberg, 1995): the most columns, k, that lie as deep as k false_alarm alarms on
    average. That holds for columns that are independent, or positively dependent.

    The simulation is public and has a fixed seed. Cost: 20 ms a column of 12 cells.

    >>> from fedprikl.divergence import TV, Score, Skew
    >>> from fedprikl.estimation.statistic import ScoredStatistic
    >>> from fedprikl.privacy import calibrate_laplace
    >>> from fedprikl.reference import all_points
    >>> points, noise = all_points([0.5, 0.3, 0.2]), calibrate_laplace(epsilon=1, sensitivity=0.002)
    >>> def column(tv):
    ...     witness = ScoredStatistic(
    ...         value=tv,
    ...         score=Score(Skew(0.01), TV),
    ...         points=points,
    ...         records=np.array([5000]),
    ...         mechanism=noise,
    ...     )
    ...     return ColumnCase(points=points, records=5000, spread=1.0, witnesses=(witness,))
    >>> found = judge_columns([column(0.01), column(0.05)], false_alarm=0.01)
    >>> [each.drifted for each in found]
    [False, True]
    """
    rate = check_false_alarm(false_alarm)
    if control not in ("family", "discovery"):
        raise InvalidInputError(
            f"False alarms are controlled over the 'family' or by 'discovery', got {control!r:.40}."
        )
    if not columns:
        return ()
    rng, draws = public_simulation(), simulated_draws(rate)
    nulls = [ColumnNull.simulate(column, draws, rng) for column in columns]

    def judge(alarms: float) -> tuple[ColumnVerdict, ...]:
        depth = common_depth(nulls, alarms)
        return tuple(_judge(*each, depth) for each in zip(columns, nulls, strict=True))

    expected = 1 if control == "family" else len(columns)
    while True:  # the largest number of columns that are as many as were expected
        verdicts = judge(rate * expected)
        found = sum(verdict.drifted for verdict in verdicts)
        if expected == 1 or found >= expected:
            return verdicts
        expected = max(found, 1)


def _judge(column: ColumnCase, null: ColumnNull, depth: float) -> ColumnVerdict:
    model = column.model
    return ColumnVerdict(
        witnesses=witnesses_of(column.witnesses, model, null.thresholds(depth)),
        design_effect=model.design_effect,
    )
