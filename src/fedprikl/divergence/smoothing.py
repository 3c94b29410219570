"""Smoothings: public rules, fixed before any data is seen, that keep scores finite.

Each turns the count h of a cell into an effective ratio v(h) = P'(x) / Pi(x). The paper calls P'
the "prespecified effective distribution" [rem:min_occurance]; it is the target of the estimate, and
`str` describes it.

>>> str(Skew(0.01)), str(Floor(0.001))
('0.01 Pi + 0.99 P', 'max(P, 0.001)')
"""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_finite, check_open_unit, check_positive_int
from fedprikl.errors import InvalidInputError

Line = tuple[Floats, Floats]  # offset and slope of v(h) = offset + slope h


@dataclass(frozen=True, slots=True)
class Skew:
    """P' = gamma Pi + (1 - gamma) P: the default, with the same effect on every cell.

    With gamma = 0, P' = P. Where f(0) is infinite, as for KL, an empty cell then has an infinite
    score, and no noise can make it private.

    >>> str(Skew(0.0))
    'P'
    """

    gamma: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_skew(self.gamma))

    def line(self, pi: Floats, records: Ints) -> Line:
        """v = gamma + (1 - gamma) h / (N Pi)."""
        return np.full(np.shape(pi), self.gamma), (1 - self.gamma) / (records * pi)

    def __str__(self) -> str:
        return f"{self.gamma:g} Pi + {1 - self.gamma:g} P" if self.gamma else "P"


@dataclass(frozen=True, slots=True)
class Additive:
    """P' = (h + pseudo) / (N + pseudo |X|): Laplace smoothing, the paper's suggestion.

    Not negligible on large domains: on 2^16 cells it pulls every P' towards uniform.
    """

    pseudo: float
    cells: int

    def __post_init__(self) -> None:
        check_positive_int(self.cells, "cells")
        if check_finite(self.pseudo, "pseudo") <= 0:
            raise InvalidInputError(f"The pseudo-count must be above 0, got {self.pseudo}.")

    def line(self, pi: Floats, records: Ints) -> Line:
        """v = (h + pseudo) / ((N + pseudo |X|) Pi)."""
        slope = 1 / ((records + self.pseudo * self.cells) * pi)
        return self.pseudo * slope, slope

    def __str__(self) -> str:
        return f"P with {self.pseudo:g} added to each of {self.cells} cells"


@dataclass(frozen=True, slots=True)
class Floor:
    """P' = max(P, tau): the paper's clipping in the baseline [alg:sys_dist]. Not a distribution."""

    tau: float

    def __post_init__(self) -> None:
        tau = check_open_unit(
            self.tau, "tau", "It is the smallest frequency that counts; try 1e-4."
        )
        object.__setattr__(self, "tau", tau)

    def line(self, pi: Floats, records: Ints) -> Line:
        """v before the floor: h / (N Pi)."""
        return NO_SKEW.line(pi, records)

    def __str__(self) -> str:
        return f"max(P, {self.tau:g})"


def check_skew(value: float) -> float:
    """A skew: at least 0 and below 1."""
    gamma = check_finite(value, "skew")
    if not 0 <= gamma < 1:
        raise InvalidInputError(
            f"The skew must be at least 0 and below 1, got {gamma}. It is the share of Pi mixed "
            "into P; try 0.01."
        )
    return gamma


DEFAULT_SKEW, NO_SKEW = Skew(), Skew(0.0)
Smoothing = Skew | Additive | Floor
