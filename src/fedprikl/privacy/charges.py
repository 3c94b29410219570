"""What a ledger can charge: a mechanism, or a release known only by its (epsilon, delta).

A charge is data, so it can be written down and read back; an unknown kind is refused.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedprikl.checks import check_epsilon, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.calibration import (
    GaussianMechanism,
    IntegerGaussianMechanism,
    LaplaceMechanism,
    Mechanism,
)

__all__ = [
    "AccountedRelease",
    "Charge",
    "charge_from_dict",
    "charge_to_dict",
    "check_charge",
    "check_zero_or_delta",
]

# The exact account of integer noise sums over its values: 24 sigma of them.
INTEGER_SIGMA_RANGE = (0.1, 2e4)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedRelease:
    """A release that was proved (epsilon, delta)-private elsewhere, its inner structure unknown.

    Only basic composition holds for it: its epsilon and its delta are added to the rest.
    """

    proved_epsilon: float
    proved_delta: float = 0.0

    def __str__(self) -> str:
        return f"a release of epsilon {self.proved_epsilon:.4g}, delta {self.proved_delta:g}"


Charge = Mechanism | AccountedRelease

_KINDS: dict[str, type[Charge]] = {
    "accounted": AccountedRelease,
    "gaussian": GaussianMechanism,
    "integer_gaussian": IntegerGaussianMechanism,
    "laplace": LaplaceMechanism,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def check_zero_or_delta(value: float, name: str = "delta") -> float:
    """A delta of at least 0 and under 1. At 0, only pure releases (Laplace) fit."""
    delta = check_finite(value, name)
    if not 0 <= delta < 1:
        raise InvalidInputError(
            f"{name} must be at least 0 and under 1, got {delta}. "
            "Use well under one in the number of records, like 1e-6."
        )
    return delta


def check_charge(charge: Charge) -> Charge:
    """The charge, if its privacy can be computed: noise above 0, everything finite."""
    if isinstance(charge, LaplaceMechanism):
        _check_noise(charge.scale, "scale")
        _check_sensitivity(charge.sensitivity)
    elif isinstance(charge, GaussianMechanism):
        _check_noise(charge.sigma, "sigma")
        _check_sensitivity(charge.sensitivity)
    elif isinstance(charge, IntegerGaussianMechanism):
        low, high = INTEGER_SIGMA_RANGE
        if not low <= check_finite(charge.sigma, "sigma") <= high:
            raise InvalidInputError(
                f"Integer noise is accounted for a sigma from {low:g} to {high:g}, got "
                f"{charge.sigma:g}. Below there is no privacy; above, use Gaussian noise."
            )
        check_positive_int(charge.coordinates, "coordinates")
    elif isinstance(charge, AccountedRelease):
        check_epsilon(charge.proved_epsilon)
        check_zero_or_delta(charge.proved_delta)
    else:
        raise InvalidInputError(
            f"A {type(charge).__name__} cannot be charged. Charge a mechanism, or an "
            "`AccountedRelease` with its proved epsilon and delta."
        )
    return charge


def charge_to_dict(charge: Charge) -> dict[str, Any]:
    """Plain values for JSON; `charge_from_dict` gives an equal charge back."""
    return {"kind": _NAMES[type(check_charge(charge))]} | asdict(charge)


def charge_from_dict(document: Mapping[str, Any]) -> Charge:
    """The charge that was written; unknown kinds and fields are refused."""
    fields = dict(document)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise InvalidInputError(f"Unknown kind of charge {kind!r}; known are {known}.")
    try:
        charge = _KINDS[kind](**fields)
    except TypeError:
        raise InvalidInputError(f"The fields of a charge of kind {kind!r} do not match.") from None
    return check_charge(charge)


def _check_noise(value: float, name: str) -> None:
    if check_finite(value, name) <= 0:
        raise InvalidInputError(
            f"The noise {name} must be above 0, got {value}: without noise there is no privacy, "
            "and no budget covers the release."
        )


def _check_sensitivity(value: float) -> None:
    if check_finite(value, "sensitivity") < 0:
        raise InvalidInputError(f"A sensitivity cannot be negative, got {value}.")
