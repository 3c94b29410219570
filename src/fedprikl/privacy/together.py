"""Several mechanisms in one release: their charge, and the share of the budget each has."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedprikl.errors import InvalidInputError
from fedprikl.privacy.losses import JointLoss
from fedprikl.privacy.mechanism import (
    Charge,
    Written,
    charge_from_dict,
    check_charge,
    register_mechanism,
)

__all__ = ["Together", "charge_together", "share_out"]

ROUNDING = 1 - 2.0**-50  # more than the roundings of a share, so that the parts never exceed all


@register_mechanism("together")
@dataclass(frozen=True, slots=True)
class Together(Written):
    """What one release of several numbers costs: one charge, whose parts are composed one by one.

    >>> from fedprikl.privacy import calibrate_laplace, total_epsilon
    >>> parts = tuple(calibrate_laplace(epsilon=e, sensitivity=1.0) for e in (0.25, 0.75))
    >>> charge = Together(parts)
    >>> print(charge)
    Laplace noise of scale 4 and Laplace noise of scale 1.333
    >>> 0.75 < total_epsilon([charge], delta=1e-6) <= 1.0
    True
    """

    parts: tuple[Charge, ...]

    def __post_init__(self) -> None:
        written = (
            charge_from_dict(part) if isinstance(part, Mapping) else part for part in self.parts
        )
        object.__setattr__(self, "parts", tuple(written))

    @property
    def loss(self) -> JointLoss:
        """What the accountant composes."""
        return JointLoss(tuple(part.loss for part in self.parts))

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        if len(self.parts) < 2 or any(isinstance(part, Together) for part in self.parts):
            raise InvalidInputError("A charge of several parts has two or more, each a single one.")
        for part in self.parts:
            check_charge(part)

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        return " and ".join(part.per_unit() for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(map(str, self.parts))


def charge_together(parts: Sequence[Charge]) -> Charge:
    """The charge of one release with these mechanisms."""
    return parts[0] if len(parts) == 1 else Together(tuple(parts))


def share_out(total: float, shares: Sequence[float]) -> tuple[float, ...]:
    """The total in parts proportional to the shares; whatever the rounding, their sum is no more.

    >>> share_out(1.0, [1.0]), sum(share_out(1.0, [0.1, 0.3, 0.6])) <= 1.0
    ((1.0,), True)
    """
    if len(shares) == 1:
        return (total,)
    whole = math.fsum(shares)
    return tuple(total * (share / whole) * ROUNDING for share in shares)
