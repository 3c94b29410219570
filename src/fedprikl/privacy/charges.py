"""Releases known only by what is proved of them: an (epsilon, delta), or a rho."""

from dataclasses import dataclass

from fedprikl.checks import check_epsilon, check_finite
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.losses import ConcentratedLoss, ProvedLoss
from fedprikl.privacy.mechanism import Written, register_mechanism

__all__ = ["AccountedRelease", "ConcentratedRelease", "check_zero_or_delta"]


@register_mechanism("accounted")
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedRelease(Written):
    """A release that was proved (epsilon, delta)-private elsewhere, its inner structure unknown.

    Only basic composition holds for it: its epsilon and its delta are added to the rest.

    >>> print(AccountedRelease(proved_epsilon=0.5, proved_delta=1e-9))
    a release of epsilon 0.5, delta 1e-09
    """

    proved_epsilon: float
    proved_delta: float = 0.0

    @property
    def loss(self) -> ProvedLoss:
        """What the accountant composes."""
        return ProvedLoss(self.proved_epsilon, self.proved_delta)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_epsilon(self.proved_epsilon)
        check_zero_or_delta(self.proved_delta)

    def __str__(self) -> str:
        return f"a release of epsilon {self.proved_epsilon:.4g}, delta {self.proved_delta:g}"


@register_mechanism("concentrated")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConcentratedRelease(Written):
    """A release that is rho-zCDP: zero-concentrated differential privacy.

    Several add their rho: many releases of Gaussian noise cost far less than the sum of their
    epsilons.

    >>> print(ConcentratedRelease(rho=0.01))
    a release of concentration 0.01
    """

    rho: float

    @property
    def loss(self) -> ConcentratedLoss:
        """What the accountant composes."""
        return ConcentratedLoss(self.rho)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        if check_finite(self.rho, "rho") <= 0:
            raise InvalidInputError("The concentration of a release is above 0.")

    def __str__(self) -> str:
        return f"a release of concentration {self.rho:.4g}"


def check_zero_or_delta(value: float, name: str = "delta") -> float:
    """A delta of at least 0 and under 1. At 0, only pure releases (Laplace) fit."""
    delta = check_finite(value, name)
    if not 0 <= delta < 1:
        raise InvalidInputError(
            f"{name} must be at least 0 and under 1, got {delta}. "
            "Use well under one in the number of records, like 1e-6."
        )
    return delta
