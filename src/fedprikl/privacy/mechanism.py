"""Mechanisms: noise that can be drawn, accounted, stated and written down.

A mechanism is one frozen dataclass in one file. `register_mechanism` gives it a name, under which a
ledger writes it and reads it back. Callers use the operations of `Mechanism` and never ask which
kind it is.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_epsilon, check_finite, check_open_unit
from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy
from fedprikl.privacy.losses import ConcentratedLoss, JointLoss, Loss, ProvedLoss
from fedprikl.privacy.noise import NoiseSource

# Of a field that a kind of charge got later: left out where it has its default, so that a ledger is
# written as ever, and whoever does not know the field refuses what it cannot account for.
LATER: Mapping[str, Any] = {"later": True}

BISECTIONS = 60
# A normal error in cells of equal width, each with its exact probability.
ERROR_CELLS, ERROR_REACH = 4000, 9.0
ROUNDING = 1 - 2.0**-50  # more than the roundings of a share, so that the parts never exceed all


class Charge(Protocol):
    """What a ledger can charge: a mechanism, or a release known by its (epsilon, delta) only."""

    @property
    def loss(self) -> Loss:
        """What the accountant composes."""
        ...

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `charge_from_dict` gives an equal charge back."""
        ...

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        ...


class Mechanism(Charge, Protocol):
    """Independent noise of one known law on each released number."""

    @property
    def sensitivity(self) -> float:
        """How far one substituted record can move what is released, in the mechanism's norm."""
        ...

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each number."""
        ...

    def epsilon(self, delta: float) -> float:
        """What one release truly gives at this delta; infinite if nothing is proved."""
        ...

    def proved_delta(self, delta: float) -> float:
        """The delta to state beside `epsilon(delta)`: 0 if the guarantee is pure."""
        ...

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise, drawn from `source` only."""
        ...

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        ...

    def quantile(self, probability: float, *, error_sd: float = 0.0) -> float:
        """The least x with P(noise + error <= x) >= probability, for a normal error of this sd."""
        ...


class Written:
    """A charge as JSON and in words. Base of every charge."""

    __slots__ = ()

    def to_dict(self: Charge) -> dict[str, Any]:
        """Plain values for JSON; `charge_from_dict` gives an equal charge back."""
        return charge_to_dict(self)

    def per_unit(self: Charge) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        return str(self)


class AdditiveMechanism(Written):
    """Base of mechanisms: what follows from `survival`, `standard_deviation` and `loss`."""

    __slots__ = ()

    def epsilon(self: Mechanism, delta: float) -> float:
        """What one release truly gives at this delta; infinite if nothing is proved."""
        return self.loss.alone(delta)

    def proved_delta(self: Mechanism, delta: float) -> float:
        """The delta to state beside `epsilon(delta)`: 0 if the guarantee is pure."""
        return 0.0 if self.loss.alone(0.0) <= self.epsilon(delta) else delta

    def quantile(self: Mechanism, probability: float, *, error_sd: float = 0.0) -> float:
        """By bisection: the least x with P(noise + error > x) <= 1 - probability."""
        tail = 1 - check_open_unit(probability, "probability", "Use 0.95 for the 95% quantile.")
        above = _survival_with_error(self.survival, error_sd)
        reach = self.standard_deviation + error_sd or 1.0
        while not above(-reach) > tail >= above(reach):
            reach *= 2
            if reach == math.inf:
                raise InvalidInputError(
                    f"A {type(self).__name__} has no such quantile; its survival function must "
                    "fall from 1 to 0."
                )
        low, high = -reach, reach
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if above(middle) <= tail else (middle, high)
        return high


def _survival_with_error(
    survival: Callable[[Floats], Floats], error_sd: float
) -> Callable[[float], float]:
    """P(noise + N(0, error_sd^2) > x), as a function of x."""
    if error_sd == 0:
        return lambda x: float(survival(np.array([x]))[0])
    edges = np.linspace(-ERROR_REACH, ERROR_REACH, ERROR_CELLS + 1)
    masses = np.diff(scipy.special.ndtr(edges))
    errors = error_sd * (edges[1:] + edges[:-1]) / 2
    return lambda x: float(masses @ survival(x - errors))


_KINDS: dict[str, type[Any]] = {}
_NAMES: dict[type[Any], str] = {}
Registered = TypeVar("Registered", bound=type[Any])


def register_mechanism(kind: str) -> Callable[[Registered], Registered]:
    """Class decorator: ledgers write and read charges of this class under the name `kind`.

    A name stands for one class for ever, because a ledger keeps it for ever.
    """

    def register(cls: Registered) -> Registered:
        if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise InvalidInputError(f"{cls.__name__} must be a frozen dataclass: a charge is data.")
        known = _KINDS.get(kind)
        if known is not None and _place(known) != _place(cls):  # the same place: a reload
            raise InvalidInputError(f"A charge of kind {kind!r} exists already; choose a new name.")
        _KINDS[kind], _NAMES[cls] = cls, kind
        return cls

    return register


def _place(cls: type[Any]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def mechanism_named(kind: str) -> type[Any] | None:
    """The class that was registered under this name."""
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
            "`fedprikl.privacy.losses`, as PureLoss(epsilon)."
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
    if not is_dataclass(value):
        return value
    if type(value) not in _NAMES:
        return asdict(cast(Any, value))  # it does not come back, and is refused for that
    content = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    for each in fields(value):
        if each.metadata == LATER and content[each.name] == each.default:
            del content[each.name]
    return {"kind": _NAMES[type(value)]} | content


def charge_from_dict(document: Mapping[str, Any]) -> Charge:
    """The charge that was written; unknown kinds and fields are refused."""
    content = dict(document)
    kind = content.pop("kind", None)
    if kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise InvalidInputError(
            f"Unknown kind of charge {kind!r}; known are {known}. If it belongs to an extension, "
            "import the module that registers it."
        )
    try:
        charge: Charge = _KINDS[kind](**content)
    except TypeError:
        raise InvalidInputError(f"The fields of a charge of kind {kind!r} do not match.") from None
    return check_charge(charge)


def check_noise(value: float, name: str) -> None:
    """Refuses a scale that is no noise."""
    if check_finite(value, name) <= 0:
        raise InvalidInputError(
            f"The noise {name} must be above 0, got {value}: without noise there is no privacy, "
            "and no budget covers the release."
        )


def check_sensitivity(value: float) -> float:
    """A finite sensitivity of at least 0."""
    if check_finite(value, "sensitivity") < 0:
        raise InvalidInputError(f"A sensitivity cannot be negative, got {value}.")
    return float(value)


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
