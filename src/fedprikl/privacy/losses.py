"""Privacy losses: what a release tells the accountant. Data, never the mechanism itself.

    loss(outcome) = ln( P(outcome | one data set) / P(outcome | its neighbour) )

A new mechanism states one of these. `PureLoss` serves every mechanism with a proved bound on the
loss; a subclass may know the distribution of the loss more closely.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import dp_accounting, loss_distributions
from fedprikl.privacy.accounting import (
    concentrated_epsilon,
    gaussian_epsilon,
    integer_gaussian_epsilon,
)


@dataclass(frozen=True)
class PureLoss:
    """A loss that never exceeds `epsilon`: (epsilon, 0)-DP.

    Nothing more is assumed. The worst mechanism of this kind is randomised response, whose loss is
    epsilon or -epsilon, so composition uses that one (Kairouz, Oh and Viswanath 2015).

    >>> PureLoss(0.5).alone(delta=0.0)
    0.5
    """

    epsilon: float
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_size(self.epsilon)

    def alone(self, delta: float) -> float:  # noqa: ARG002  holds for every delta
        """The epsilon of this release alone."""
        return self.epsilon

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        return _bounded_distribution(self.epsilon, step)


@dataclass(frozen=True)
class LaplaceLoss(PureLoss):
    """Of continuous Laplace noise of scale Delta / epsilon on one number.

    The slack for the sampler's grid is inside epsilon: shifted by k steps, its discrete noise loses
    no more than the continuous noise shifted by k + 1.
    """

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        return _laplace_distribution(self.epsilon, step)


@dataclass(frozen=True)
class LaplaceVectorLoss(PureLoss):
    """Of independent Laplace noise on `coordinates` numbers, each losing epsilon / coordinates.

    No smaller moves lose more: one number moved by t loses delta(e) = 1 - exp((e - t/b) / 2) for
    0 <= e <= t/b, which grows with t, and independent losses that are each dominated are dominated
    together (Zhu, Dong and Wang 2022, theorem 10).
    """

    coordinates: int = 1

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        one = LaplaceLoss(self.epsilon / self.coordinates)
        return repeat(one.distribution(step), self.coordinates)


@dataclass(frozen=True)
class BoundedRangeLoss(PureLoss):
    """A loss that lies, for any two neighbours, in some interval of length `epsilon` around 0.

    Every exponential mechanism has such a loss (Dong, Durfee and Rogers 2020, "Optimal differential
    privacy composition for exponential mechanisms"), and concentrates like Gaussian noise: it is
    epsilon^2/8-zCDP (Cesar and Rogers 2021, "Bounding, concentrating, and truncating"). A merely
    pure loss is epsilon^2/2-zCDP.

    >>> BoundedRangeLoss(0.5).alone(delta=0.0), BoundedRangeLoss(0.5).concentrated
    (0.5, 0.03125)
    """

    @property
    def concentrated(self) -> float:
        """rho of zero-concentrated differential privacy."""
        return self.epsilon * self.epsilon / 8


@dataclass(frozen=True)
class GaussianLoss:
    """Of Gaussian noise; `mu` is Delta / sigma. The loss is normal: N(mu^2 / 2, mu^2).

    Several are one: mu^2 is the sum of their squares.
    """

    mu: float
    gaussian: ClassVar[bool] = True  # an audit may use the stronger test for Gaussian noise

    def __post_init__(self) -> None:
        _check_size(self.mu)

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite if delta is 0."""
        if self.mu <= delta * 2.5:  # delta(0) = 2 Phi(mu/2) - 1 < 0.4 mu
            return 0.0
        if delta == 0 or self.mu > 1e4:
            return math.inf
        return gaussian_epsilon(1 / self.mu, delta)

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        return _gaussian_distribution(max(self.mu, step / 1024), step)  # the library squares 1/mu


@dataclass(frozen=True)
class IntegerGaussianLoss:
    """Of discrete Gaussian noise on `coordinates` counts, each moved by 1."""

    sigma: float
    coordinates: int = 1
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_size(self.sigma)
        check_positive_int(self.coordinates, "coordinates")

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite if delta is 0."""
        if delta == 0:
            return math.inf
        return integer_gaussian_epsilon(self.sigma, self.coordinates, delta)

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        return repeat(_integer_distribution(self.sigma, step), self.coordinates)


@dataclass(frozen=True)
class ConcentratedLoss:
    """A loss known only to be rho-zCDP: all Renyi divergences are at most alpha rho.

    Several are one: rho is their sum (Bun and Steinke 2016, "Concentrated differential privacy").

    >>> round(ConcentratedLoss(0.01).alone(delta=1e-6), 3)
    0.622
    """

    rho: float
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_size(self.rho)

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite if delta is 0."""
        return concentrated_epsilon(self.rho, delta)


@dataclass(frozen=True)
class ProvedLoss:
    """Of a release known only by its (epsilon, delta): basic composition adds both."""

    epsilon: float
    delta: float
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_size(self.epsilon)
        _check_size(self.delta)

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite below its own delta."""
        return self.epsilon if delta >= self.delta else math.inf


@dataclass(frozen=True)
class JointLoss:
    """Of one release by several mechanisms with noise of their own. The accountant composes each.

    >>> JointLoss((PureLoss(0.25), PureLoss(0.5))).alone(delta=1e-6)
    0.75
    """

    parts: tuple["Loss", ...]
    gaussian: ClassVar[bool] = False

    def alone(self, delta: float) -> float:
        """A bound on the epsilon of this release alone: all epsilons, delta shared out equally."""
        return math.fsum(part.alone(delta / len(self.parts)) for part in self.parts)


Loss = PureLoss | GaussianLoss | IntegerGaussianLoss | ConcentratedLoss | ProvedLoss | JointLoss


def repeat(distribution: Any, count: int) -> Any:
    """The distribution of the sum of so many independent losses."""
    return distribution if count == 1 else distribution.self_compose(count)


def _check_size(value: float) -> None:
    """A negative loss, or one that is no number, would make a budget look larger than it is."""
    if not value >= 0:
        raise InvalidInputError(f"A privacy loss is at least 0, got {value}.")


@lru_cache(maxsize=256)
def _bounded_distribution(epsilon: float, step: float) -> Any:
    bound = dp_accounting().pld.common.DifferentialPrivacyParameters(epsilon, 0.0)
    return loss_distributions().from_privacy_parameters(bound, value_discretization_interval=step)


@lru_cache(maxsize=256)
def _laplace_distribution(epsilon: float, step: float) -> Any:
    return loss_distributions().from_laplace_mechanism(
        1 / epsilon, value_discretization_interval=step
    )


@lru_cache(maxsize=64)
def _gaussian_distribution(mu: float, step: float) -> Any:
    return loss_distributions().from_gaussian_mechanism(1 / mu, value_discretization_interval=step)


@lru_cache(maxsize=64)
def _integer_distribution(sigma: float, step: float) -> Any:
    return loss_distributions().from_discrete_gaussian_mechanism(
        sigma, value_discretization_interval=step
    )


Unit = Literal["record", "client"]


def check_unit(value: Any) -> Unit:
    """The unit itself; anything else is refused."""
    if value not in get_args(Unit):
        raise InvalidInputError(f"The unit is 'record' or 'client', got {value!r:.40}.")
    found: Unit = value
    return found


def unit_entry(unit: Unit) -> dict[str, str]:
    """What an entry of a ledger says of it: nothing for records, as ledgers have always had it."""
    return {} if check_unit(unit) == "record" else {"unit": unit}
