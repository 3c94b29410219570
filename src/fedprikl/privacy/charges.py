"""Charges: what a release costs, as data that a ledger writes and an accountant composes.

A charge is a frozen dataclass with a name (`register_charge`), under which ledgers write it and
read it back. It states its privacy loss,

    loss(outcome) = ln( P(outcome | one data set) / P(outcome | its neighbour) )

as one of the losses below. `PureLoss` serves every mechanism with a proved bound on the loss; the
other losses say more about its distribution. A release of which only (epsilon, delta) or rho is
known is its own loss. Noise that can be drawn is in `laws.py`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

from fedprikl.checks import check_epsilon, check_finite, check_positive_int
from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import dp_accounting, load_extensions, loss_distributions
from fedprikl.privacy.accounting import (
    concentrated_epsilon,
    gaussian_epsilon,
    integer_gaussian_epsilon,
)

# Of a field that a kind of charge got later: left out where it has its default, so that a ledger is
# written as ever, and whoever does not know the field refuses what it cannot account for.
LATER: Mapping[str, Any] = {"later": True}
EXTENSIONS = "fedprikl.laws"  # entry points of installed packages that register laws
ROUNDING = 1 - 2.0**-50  # more than the roundings of a share, so that the parts never exceed all

Unit = Literal["record", "client"]


class Loss:
    """What the accountant composes. Data, never the mechanism itself."""

    __slots__ = ()
    gaussian: ClassVar[bool] = False  # whether an audit may use the stronger test for such noise

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite if none is proved at this delta."""
        raise NotImplementedError


@dataclass(frozen=True)
class PureLoss(Loss):
    """A loss that never exceeds `epsilon`: (epsilon, 0)-DP.

    Nothing more is assumed. The worst mechanism of this kind is randomised response, whose loss is
    epsilon or -epsilon, so composition uses that one (Kairouz, Oh and Viswanath 2015). Independent
    noise on several `coordinates` loses epsilon / coordinates on each.

    >>> PureLoss(0.5).alone(delta=0.0)
    0.5
    """

    epsilon: float
    coordinates: int = 1

    def __post_init__(self) -> None:
        _check_size(self.epsilon)

    def alone(self, delta: float) -> float:  # noqa: ARG002  holds for every delta
        """The epsilon of this release alone."""
        return self.epsilon

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        return repeat(self._one(self.epsilon / self.coordinates, step), self.coordinates)

    @staticmethod
    def _one(epsilon: float, step: float) -> Any:
        bound = dp_accounting().pld.common.DifferentialPrivacyParameters(epsilon, 0.0)
        return loss_distributions().from_privacy_parameters(
            bound, value_discretization_interval=step
        )


@dataclass(frozen=True)
class LaplaceLoss(PureLoss):
    """Of continuous Laplace noise, of scale Delta coordinates / epsilon on each number.

    The slack for the sampler's grid is inside epsilon: shifted by k steps, its discrete noise loses
    no more than the continuous noise shifted by k + 1. No smaller shifts lose more: one number
    shifted by t loses delta(e) = 1 - exp((e - t/b) / 2) for 0 <= e <= t/b, which grows with t, and
    independent losses that are each dominated are dominated together (Zhu, Dong and Wang 2022,
    theorem 10).
    """

    @staticmethod
    def _one(epsilon: float, step: float) -> Any:
        return loss_distributions().from_laplace_mechanism(
            1 / epsilon, value_discretization_interval=step
        )


@dataclass(frozen=True)
class BoundedRangeLoss(PureLoss):
    """A loss that lies, for any two neighbours, in some interval of length `epsilon` around 0.

    Every exponential mechanism has such a loss (Dong, Durfee and Rogers 2020, "Optimal differential
    privacy composition for exponential mechanisms"), and concentrates like Gaussian noise: it is
    epsilon^2/8-zCDP (Cesar and Rogers 2021, "Bounding, concentrating, and truncating"). A merely
    pure loss is epsilon^2/2-zCDP.

    >>> BoundedRangeLoss(0.5).alone(delta=0.0)
    0.5
    """


@dataclass(frozen=True)
class GaussianLoss(Loss):
    """Of Gaussian noise; `mu` is Delta / sigma. The loss is normal: N(mu^2 / 2, mu^2).

    Several are one: mu^2 is the sum of their squares.
    """

    mu: float
    gaussian: ClassVar[bool] = True

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
        mu = max(self.mu, step / 1024)  # the library squares 1/mu
        return loss_distributions().from_gaussian_mechanism(
            1 / mu, value_discretization_interval=step
        )


@dataclass(frozen=True)
class IntegerGaussianLoss(Loss):
    """Of discrete Gaussian noise on `coordinates` counts, each changed by 1."""

    sigma: float
    coordinates: int = 1

    def __post_init__(self) -> None:
        _check_size(self.sigma)
        check_positive_int(self.coordinates, "coordinates")

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite if delta is 0."""
        return integer_gaussian_epsilon(self.sigma, self.coordinates, delta)

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        one = loss_distributions().from_discrete_gaussian_mechanism(
            self.sigma, value_discretization_interval=step
        )
        return repeat(one, self.coordinates)


def repeat(distribution: Any, count: int) -> Any:
    """The distribution of the sum of so many independent losses."""
    return distribution if count == 1 else distribution.self_compose(count)


def _check_size(value: float) -> None:
    """A negative loss, or one that is no number, would make a budget look larger than it is."""
    if not value >= 0:
        raise InvalidInputError(f"A privacy loss is at least 0, got {value}.")


class Charge:
    """What a ledger can charge. Base of all of them; each is a frozen dataclass."""

    __slots__ = ()

    @property
    def loss(self) -> Any:
        """What the accountant composes. A release that is known by its loss only is the loss."""
        return self

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        raise NotImplementedError

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        return str(self)


_KINDS: dict[str, type[Any]] = {}
_NAMES: dict[type[Any], str] = {}
Registered = TypeVar("Registered", bound=type[Any])


def register_charge(kind: str) -> Callable[[Registered], Registered]:
    """Class decorator: ledgers write and read charges of this class under the name `kind`.

    A name stands for one class for ever, because a ledger keeps it for ever.
    """

    def register(cls: Registered) -> Registered:
        if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise InvalidInputError(f"{cls.__name__} must be a frozen dataclass: a charge is data.")
        refuse_taken(_KINDS.get(kind), cls, f"A charge of kind {kind!r}")
        _KINDS[kind], _NAMES[cls] = cls, kind
        return cls

    return register


def refuse_taken(known: type[Any] | None, cls: type[Any], what: str) -> None:
    """Refuses a name that stands for another class; the same class again is a reload."""
    places = {(each.__module__, each.__qualname__) for each in (known or cls, cls)}
    if len(places) > 1:
        raise InvalidInputError(f"{what} exists already; choose a new name.")


def charge_named(kind: Any) -> type[Charge] | None:
    """The class that was registered under this name, if need be by an installed extension."""
    if kind not in _KINDS:
        load_extensions(EXTENSIONS)
    return _KINDS.get(kind)


def check_charge(charge: Charge) -> Charge:
    """The charge, if it is of a registered kind and its privacy can be computed."""
    if type(charge) not in _NAMES:
        raise InvalidInputError(
            f"A {type(charge).__name__} cannot be charged. Charge a registered mechanism, or an "
            "`AccountedRelease` with its proved epsilon and delta."
        )
    charge.check()
    if not isinstance(charge.loss, Loss):
        raise InvalidInputError(
            f"The loss of a {type(charge).__name__} cannot be composed. State one of "
            "`fedprikl.privacy.charges`, as PureLoss(epsilon)."
        )
    return charge


def charge_to_dict(charge: Charge) -> dict[str, Any]:
    """Plain values for JSON; `charge_from_dict` gives an equal charge back.

    That is checked: a charge that cannot be read back would make the whole ledger unreadable.
    """
    document: dict[str, Any] = _plain(check_charge(charge))
    if charge_from_dict(json.loads(canonical(document))) != charge:
        raise InvalidInputError(
            f"A {type(charge).__name__} is not the same after it is written and read. "
            "Give it fields that are numbers, text or charges."
        )
    return document


def _plain(value: Any) -> Any:
    """A charge as an object with its kind; a charge may hold others."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if type(value) not in _NAMES:
        return str(value) if is_dataclass(value) else value  # text does not come back: refused
    content = {
        each.name: _plain(getattr(value, each.name))
        for each in fields(value)
        if each.metadata != LATER or getattr(value, each.name) != each.default
    }
    return {"kind": _NAMES[type(value)]} | content


def charge_from_dict(document: Mapping[str, Any]) -> Charge:
    """The charge that was written; unknown kinds and fields are refused."""
    content = dict(document)
    if "moved" in content:  # as it was called in ledgers of version 5
        content["contribution"] = content.pop("moved")
    kind = content.pop("kind", None)
    made = charge_named(kind)
    if made is None:
        known = ", ".join(sorted(_KINDS))
        raise InvalidInputError(
            f"Unknown kind of charge {kind!r}; known are {known}. If it belongs to an extension, "
            "install it, or import the module that registers it."
        )
    try:
        charge = made(**content)
    except TypeError:
        raise InvalidInputError(f"The fields of a charge of kind {kind!r} do not match.") from None
    return check_charge(charge)


def as_charge(value: Any) -> Any:
    """A part of a charge, read where a ledger has written it."""
    return charge_from_dict(value) if isinstance(value, Mapping) else value


@register_charge("accounted")
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedRelease(Charge, Loss):
    """A release that was proved (epsilon, delta)-private elsewhere, its inner structure unknown.

    Only basic composition holds for it: its epsilon and its delta are added to the rest.

    >>> print(AccountedRelease(proved_epsilon=0.5, proved_delta=1e-9))
    a release of epsilon 0.5, delta 1e-09
    """

    proved_epsilon: float
    proved_delta: float = 0.0

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite below its own delta."""
        return self.proved_epsilon if delta >= self.proved_delta else math.inf

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_epsilon(self.proved_epsilon)
        check_zero_or_delta(self.proved_delta)

    def __str__(self) -> str:
        return f"a release of epsilon {self.proved_epsilon:.4g}, delta {self.proved_delta:g}"


@register_charge("concentrated")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConcentratedRelease(Charge, Loss):
    """A release that is rho-zCDP: all Renyi divergences are at most alpha rho.

    Several are one: rho is their sum (Bun and Steinke 2016, "Concentrated differential privacy").
    So many releases of Gaussian noise cost far less than the sum of their epsilons.

    >>> print(ConcentratedRelease(rho=0.01))
    a release of concentration 0.01
    >>> round(ConcentratedRelease(rho=0.01).alone(delta=1e-6), 3)
    0.622
    """

    rho: float

    def alone(self, delta: float) -> float:
        """The epsilon of this release alone; infinite if delta is 0."""
        return concentrated_epsilon(self.rho, delta)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        if check_finite(self.rho, "rho") <= 0:
            raise InvalidInputError("The concentration of a release is above 0.")

    def __str__(self) -> str:
        return f"a release of concentration {self.rho:.4g}"


@register_charge("together")
@dataclass(frozen=True, slots=True)
class ComposedCharge(Charge, Loss):
    """What one release of several numbers costs: one charge, whose parts are composed one by one.

    >>> from fedprikl.privacy import Numbers, calibrate, total_epsilon
    >>> parts = tuple(calibrate(Numbers(), epsilon=e, law="laplace") for e in (0.25, 0.75))
    >>> charge = ComposedCharge(parts)
    >>> print(charge)
    Laplace noise of scale 4 and Laplace noise of scale 1.333
    >>> 0.75 < total_epsilon([charge], delta=1e-6) <= 1.0
    True
    """

    parts: tuple[Charge, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(map(as_charge, self.parts)))

    def alone(self, delta: float) -> float:
        """A bound on the epsilon of this release alone: all epsilons, delta shared out equally."""
        return math.fsum(part.loss.alone(delta / len(self.parts)) for part in self.parts)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        if len(self.parts) < 2 or any(isinstance(part, ComposedCharge) for part in self.parts):
            raise InvalidInputError("A charge of several parts has two or more, each a single one.")
        for part in self.parts:
            check_charge(part)

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        return " and ".join(part.per_unit() for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(map(str, self.parts))


def compose_charges(parts: Sequence[Charge]) -> Charge:
    """The charge of one release with all these parts."""
    return parts[0] if len(parts) == 1 else ComposedCharge(tuple(parts))


def share_out(total: float, shares: Sequence[float]) -> tuple[float, ...]:
    """The total in parts proportional to the shares; whatever the rounding, their sum is no more.

    >>> share_out(1.0, [1.0]), sum(share_out(1.0, [0.1, 0.3, 0.6])) <= 1.0
    ((1.0,), True)
    """
    if len(shares) == 1:
        return (total,)
    whole = math.fsum(shares)
    return tuple(total * (share / whole) * ROUNDING for share in shares)


def check_zero_or_delta(value: float, name: str = "delta") -> float:
    """A delta of at least 0 and under 1. At 0, only pure releases (Laplace) fit."""
    delta = check_finite(value, name)
    if not 0 <= delta < 1:
        raise InvalidInputError(
            f"{name} must be at least 0 and under 1, got {delta}. "
            "Use well under one in the number of records, like 1e-6."
        )
    return delta


def check_unit(value: Any) -> Unit:
    """The unit itself; anything else is refused."""
    if value not in get_args(Unit):
        raise InvalidInputError(f"The unit is 'record' or 'client', got {value!r:.40}.")
    found: Unit = value
    return found


def unit_entry(unit: Unit) -> dict[str, str]:
    """What an entry of a ledger says of it: nothing for records, as ledgers have always had it."""
    return {} if check_unit(unit) == "record" else {"unit": unit}
