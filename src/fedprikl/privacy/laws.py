"""Noise laws. This file holds them, `calibrate`, and the contract for adding one.

A mechanism is a law times what it noises and who adds it:

    law        Numbers                       Counts                     SharedCounts
    laplace    LaplaceMechanism              IntegerLaplaceMechanism    SharedLaplaceMechanism
    gaussian   GaussianMechanism             IntegerGaussianMechanism   SharedGaussianMechanism
    adaptive   InverseSensitivityMechanism

One party adds noise to numbers and counts; to shared counts, each of several parties adds a share
(`shares.py`). The noise of the adaptive law depends on the data (`adaptive.py`).

To add a law, write one frozen dataclass in a file of its own:

    @register_charge("my_law")           # the name that ledgers write
    @register_law("my_law", on=Numbers)  # the name that plans write
    @dataclass(frozen=True, slots=True, kw_only=True)
    class MyMechanism(Mechanism): ...

It must provide

    fields               numbers or text, all that a ledger writes; `sensitivity` or a property
    calibrated           class method: the least noise for (epsilon, delta), or InvalidInputError
    add_to               draws, from the given source only
    standard_deviation   of the noise on each number
    survival             P(noise > x)
    loss                 its privacy loss (`charges.py`); `check` refuses senseless fields
    __str__              the law in words

What has a default in `Mechanism` may be replaced by closed forms. Then a plan can name the law
(`noise="my_law"`), and whoever has imported the file accepts the plan, draws the noise, charges it
and reads it back from a ledger. If the package that holds the file is installed, it is imported
where its name is met: list the module as an entry point of the group "fedprikl.laws". "auto"
chooses among the laws that every party has, so all parties choose the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import numpy.typing as npt

from fedprikl.checks import (
    Floats,
    check_delta,
    check_epsilon,
    check_finite,
    check_open_unit,
    check_positive_int,
)
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import load_extensions, scipy
from fedprikl.privacy.accounting import (
    SAFETY,
    SMALLEST_DELTA,
    check_accounted_delta,
    concentration_of,
    gaussian_epsilon,
    gaussian_sigma,
    integer_gaussian_epsilon,
)
from fedprikl.privacy.charges import (
    EXTENSIONS,
    LATER,
    Charge,
    ConcentratedRelease,
    GaussianLoss,
    IntegerGaussianLoss,
    LaplaceLoss,
    Loss,
    PureLoss,
    Registered,
    as_charge,
    check_charge,
    check_zero_or_delta,
    refuse_taken,
    register_charge,
)
from fedprikl.privacy.noise import GRID_SLACK, NoiseSource
from fedprikl.search import bisect

if TYPE_CHECKING:
    from fedprikl.privacy.shares import SharedMechanism

AUTOMATIC = ("laplace", "gaussian")  # that "auto" chooses among; of equal ones the first
HALVINGS = 60  # of the search for a quantile
# A normal error in cells of equal width, each with its exact probability.
ERROR_CELLS, ERROR_REACH = 4000, 9.0
# The exact account of integer noise sums over its values: 24 sigma of them.
SIGMA_RANGE = (0.1, 2e4)  # per contributed record
ROUNDING = 1 + 1e-12  # of the way from rho or epsilon to the noise and back


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers (`coordinates` of them) that one party noises.

    Whoever is protected may change all of them at once, each by at most `sensitivity`.
    """

    sensitivity: float = 1.0
    coordinates: int = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts that one party noises.

    One record changes at most `coordinates` of them, by 1 each: two in every table of counts, for
    it leaves one cell and enters another. Whoever is protected has `contribution` records: 1, or
    those of a client.
    """

    coordinates: int = 2
    contribution: int = 1

    def __post_init__(self) -> None:
        check_positive_int(self.coordinates, "coordinates")
        check_positive_int(self.contribution, "contribution")

    @property
    def changes(self) -> int:
        """How many counts may change, each by 1; fewer by more in L1."""
        return self.coordinates * self.contribution


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Counts to which every party adds a share of the noise, before anybody sees their sum.

    `shares` are those that are in every sum that can be opened: of honest parties that stay.
    `failure` is the probability that a secure sum opens to less than its cohort; delta pays for it.
    """

    shares: int
    coordinates: int = 2
    contribution: int = 1
    failure: float = 0.0

    def __post_init__(self) -> None:
        check_zero_or_delta(self.failure, "failure")
        for name in ("shares", "coordinates", "contribution"):
            check_positive_int(getattr(self, name), name)

    @property
    def changes(self) -> int:
        """How many counts may change, each by 1; fewer by more in L1."""
        return self.coordinates * self.contribution

    def usable(self, delta: float) -> float:
        """What a failure of the secure sum leaves of delta."""
        if check_delta(delta) <= self.failure:
            raise InvalidInputError(
                f"A sum may open to less than its cohort with probability {self.failure:.2g}, "
                f"which is not below the delta of {delta:g}. Raise delta, or use smaller cohorts: "
                "they need no such allowance."
            )
        return delta - self.failure


Noised = Numbers | Counts | SharedCounts
"""What is noised, and by whom."""


class Mechanism(Charge):
    """Independent noise of one known law on each released number. Base of all of them."""

    __slots__ = ()

    if TYPE_CHECKING:  # a field of a dataclass may take its place

        @property
        def sensitivity(self) -> float:
            """How far whoever is protected can move what is released, in the law's norm."""

    @classmethod
    def calibrated(cls, on: Any, *, epsilon: float, delta: float) -> Self:
        """The least noise that gives (epsilon, delta)."""
        raise NotImplementedError

    @classmethod
    def deviation(cls, on: Any, *, epsilon: float, delta: float) -> float:
        """The standard deviation that `calibrated` noise would have; infinite if there is none."""
        try:
            return cls.calibrated(on, epsilon=epsilon, delta=delta).standard_deviation
        except InvalidInputError:
            return math.inf

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each number."""
        raise NotImplementedError

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise, drawn from `source` only."""
        raise NotImplementedError

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        raise NotImplementedError

    @property
    def laplace_scale(self) -> float | None:
        """Of noise that is discrete Laplace noise; None of any other."""
        return None

    def charge(self, delta: float) -> Charge:  # noqa: ARG002  what is charged is what draws
        """What a release with this noise costs, where this delta is allowed."""
        return self

    def epsilon(self, delta: float) -> float:
        """What one release truly gives at this delta; infinite if nothing is proved."""
        return float(self.loss.alone(delta))

    def proved_delta(self, delta: float) -> float:
        """The delta to state beside `epsilon(delta)`: 0 if the guarantee is pure."""
        pure = self.loss.alone(0.0)
        return 0.0 if math.isfinite(pure) and pure <= self.epsilon(delta) else delta

    def quantile(self, probability: float, *, error_sd: float = 0.0) -> float:
        """The least x with P(noise + error <= x) >= probability, for a normal error of this sd."""
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
        return bisect(lambda x: above(x) > tail, -reach, reach, halvings=HALVINGS)[1]


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


_LAWS: dict[str, dict[type[Any], type[Any]]] = {}


def register_law(name: str, *, on: type[Noised]) -> Callable[[Registered], Registered]:
    """Class decorator: noise of this law, where plans write `name`, is of this class."""

    def register(cls: Registered) -> Registered:
        known = _LAWS.setdefault(name, {})
        refuse_taken(known.get(on), cls, f"The noise {name!r} on {on.__name__}")
        known[on] = cls
        return cls

    return register


def check_law(name: str, *, on: type[Noised]) -> None:
    """Refuses what a plan cannot name as its noise: neither "auto" nor a law of additive noise."""
    if name != "auto" and not issubclass(_mechanism(name, on), Mechanism):
        raise InvalidInputError(f"The noise {name!r} is no law of additive noise.")


@overload
def calibrate(
    on: Numbers | Counts, *, epsilon: float, delta: float = 0.0, law: str = "auto"
) -> Mechanism: ...
@overload
def calibrate(
    on: SharedCounts, *, epsilon: float, delta: float = 0.0, law: str = "auto"
) -> "SharedMechanism": ...
def calibrate(on: Noised, *, epsilon: float, delta: float = 0.0, law: str = "auto") -> Any:
    """The least noise that gives (epsilon, delta): of this law, or of that with the least ("auto").

    >>> print(calibrate(Numbers(sensitivity=0.1), epsilon=0.5, delta=1e-6))
    Laplace noise of scale 0.2
    >>> print(calibrate(Numbers(sensitivity=0.1), epsilon=0.5, delta=1e-6, law="gaussian"))
    Gaussian noise of standard deviation 0.8058
    >>> print(calibrate(Counts(contribution=20), epsilon=1.0, delta=1e-6))
    discrete Laplace noise of scale 40 on each count
    >>> print(calibrate(SharedCounts(shares=100), epsilon=1.0, delta=1e-6))
    discrete Laplace noise in shares, of standard deviation 2.799 or more on each count
    """
    name = resolve_law(on, epsilon=epsilon, delta=delta, law=law)
    return _mechanism(name, type(on)).calibrated(on, epsilon=epsilon, delta=delta)


def resolve_law(on: Noised, *, epsilon: float, delta: float, law: str) -> str:
    """The law with the smallest standard deviation, if "auto"; else the law itself."""
    check_epsilon(epsilon)
    check_zero_or_delta(delta)
    if law != "auto":
        return law
    sizes = {
        name: _mechanism(name, type(on)).deviation(on, epsilon=epsilon, delta=delta)
        for name in AUTOMATIC
    }
    return min(AUTOMATIC, key=lambda name: sizes[name])


def _mechanism(name: str, on: type[Noised]) -> Any:
    """The class of a law, for this; an installed extension is loaded for it."""
    if name not in _LAWS:
        load_extensions(EXTENSIONS)
    if name not in _LAWS:
        raise InvalidInputError(
            f"There is no noise {name!r:.60}; known are auto, {', '.join(sorted(_LAWS))}. If it "
            "belongs to an extension, install it, or import the module that registers it."
        )
    if on not in _LAWS[name]:
        raise InvalidInputError(
            f"The noise {name!r} is not for {on.__name__}. Use one of {', '.join(AUTOMATIC)}."
        )
    return _LAWS[name][on]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The noise of a release at (epsilon, delta): what is charged is what draws.

    The sensitivity of a number follows from the batch sizes, which are known only when the sums are
    open; the budget is charged before. Noise is scaled to the sensitivity, so the noise for a
    sensitivity of 1 costs the same: that is the `charge`. "auto" is resolved here, once.

    >>> noise = Calibrated(Numbers(), epsilon=1.0, delta=1e-6)
    >>> print(noise.charge)
    Laplace noise of scale 1
    >>> print(noise.for_sensitivity(0.02))
    Laplace noise of scale 0.02
    >>> print(Calibrated(Numbers(coordinates=3), epsilon=1.0, delta=1e-6).charge)
    Laplace noise of scale 3 per unit of sensitivity on each of 3 numbers
    """

    on: Noised
    epsilon: float
    delta: float
    law: str = "auto"
    noise: Any = field(init=False)  # on numbers: for a sensitivity of 1

    def __post_init__(self) -> None:
        law = resolve_law(self.on, epsilon=self.epsilon, delta=self.delta, law=self.law)
        noise = calibrate(self.on, epsilon=self.epsilon, delta=self.delta, law=law)
        object.__setattr__(self, "law", law)
        object.__setattr__(self, "noise", noise)

    @property
    def charge(self) -> Any:
        """What the ledger reserves."""
        if isinstance(self.on, Numbers) and self.on.coordinates > 1:
            return VectorMechanism(one=self.noise, coordinates=self.on.coordinates)
        return self.noise.charge(self.delta)

    def for_sensitivity(self, sensitivity: float) -> Mechanism:
        """The noise on a number that whoever is protected moves by at most so much."""
        on = Numbers(sensitivity, self.on.coordinates)
        return calibrate(on, epsilon=self.epsilon, delta=self.delta, law=self.law)

    def add_to(
        self, values: npt.ArrayLike, sensitivities: npt.ArrayLike, source: NoiseSource
    ) -> Floats:
        """Each number with independent noise for its own sensitivity.

        A sensitivity must be public, and hold for the values as computed: `rounding_slack` included
        (`score_sensitivity` does). One of 0 is refused: what no record can move needs no noise, and
        belongs to no private vector.
        """
        numbers, bounds = np.asarray(values, np.float64), np.asarray(sensitivities, np.float64)
        if {numbers.shape, bounds.shape} != {(self.on.coordinates,)}:
            raise InvalidInputError(
                f"This noise is for {self.on.coordinates} numbers with a sensitivity each."
            )
        if not np.all(np.isfinite(bounds) & (bounds > 0)):
            raise InvalidInputError("Every number needs a finite sensitivity above 0.")
        noisy = [
            self.for_sensitivity(float(bound)).add_to([number], source)
            for number, bound in zip(numbers, bounds, strict=True)
        ]
        return np.concatenate(noisy)


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


def _relative(words: str, noise: float, sensitivity: float) -> str:
    if sensitivity <= 0:
        return f"{words} {noise:.4g}"
    return f"{words} {noise / sensitivity:.4g} per unit of sensitivity"


@register_charge("laplace")
@register_law("laplace", on=Numbers)
@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceMechanism(Mechanism):
    """Numbers plus Laplace noise. Pure: delta is 0.

        density(x) = exp(-|x| / b) / (2 b),    epsilon = Delta / b

    Dwork, McSherry, Nissim and Smith (2006). What is drawn lies on a grid of 2^-40, and epsilon
    leaves room for that.

    >>> mechanism = calibrate(Numbers(sensitivity=0.1), epsilon=0.5, law="laplace")
    >>> round(mechanism.quantile(0.975), 3), mechanism.epsilon(0.0) <= 0.5
    (0.599, True)
    """

    scale: float  # b
    sensitivity: float  # Delta, L1

    @classmethod
    def calibrated(cls, on: Numbers, *, epsilon: float, delta: float) -> Self:  # noqa: ARG003
        """Of scale d Delta / epsilon, for d numbers that change at once."""
        reach = (check_sensitivity(on.sensitivity) + GRID_SLACK) * SAFETY
        each = epsilon / check_positive_int(on.coordinates, "coordinates")
        return cls(scale=reach / each, sensitivity=on.sensitivity)

    @property
    def standard_deviation(self) -> float:
        """Of the noise: sqrt(2) b."""
        return math.sqrt(2) * self.scale

    @property
    def loss(self) -> LaplaceLoss:
        """What the accountant composes."""
        return LaplaceLoss((self.sensitivity + GRID_SLACK) / self.scale)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_noise(self.scale, "scale")
        check_sensitivity(self.sensitivity)

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise."""
        return source.laplace(values, scale=self.scale)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        tail = np.exp(-np.abs(x) / self.scale) / 2
        return np.where(x > 0, tail, 1 - tail)

    def quantile(self, probability: float, *, error_sd: float = 0.0) -> float:
        """Quantile (above 1/2) of the noise plus an independent normal error of this sd."""
        if error_sd < 1e-9 * self.scale:
            return -self.scale * math.log(2 * (1 - probability))
        below = _laplace_normal_cdf(self.scale, error_sd)
        bound = 20 * (self.scale + error_sd) * max(1.0, -math.log(1 - probability))
        return float(scipy.optimize.brentq(lambda x: below(x) - probability, 0.0, bound))

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        return _relative("Laplace noise of scale", self.scale, self.sensitivity)

    def __str__(self) -> str:
        return f"Laplace noise of scale {self.scale:.4g}"


def _laplace_normal_cdf(scale: float, sd: float) -> Callable[[float], float]:
    """P(Laplace(scale) + N(0, sd^2) <= x), in closed form, with products as sums of logarithms."""
    shift = sd / scale
    square = shift**2 / 2

    def below(x: float) -> float:
        rising = math.exp(square + x / scale + scipy.special.log_ndtr(-x / sd - shift))
        falling = math.exp(square - x / scale + scipy.special.log_ndtr(x / sd - shift))
        return float(scipy.special.ndtr(x / sd) + (rising - falling) / 2)

    return below


@register_charge("gaussian")
@register_law("gaussian", on=Numbers)
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMechanism(Mechanism):
    """Numbers plus Gaussian noise of equal sd on each.

        delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu),    mu = Delta / sigma

    The exact profile of Balle and Wang (2018), not the classic bound sqrt(2 ln(1.25/delta)).
    It composes better than Laplace noise, and is smaller for many releases.

    >>> mechanism = calibrate(Numbers(), epsilon=0.5, delta=1e-6, law="gaussian")
    >>> round(mechanism.epsilon(1e-6), 6), mechanism.epsilon(1e-6) <= 0.5
    (0.5, True)
    """

    sigma: float
    sensitivity: float  # Delta, L2 over all released numbers

    @classmethod
    def calibrated(cls, on: Numbers, *, epsilon: float, delta: float) -> Self:
        """For every epsilon > 0; of d numbers, all have mu = (Delta + slack) / sigma / sqrt(d)."""
        sigma = gaussian_sigma(epsilon, check_accounted_delta(delta))
        length = math.sqrt(check_positive_int(on.coordinates, "coordinates"))
        reach = length * (check_sensitivity(on.sensitivity) + GRID_SLACK) * SAFETY
        return cls(sigma=sigma * reach, sensitivity=on.sensitivity)

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each number."""
        return self.sigma

    def epsilon(self, delta: float) -> float:
        """The exact Gaussian profile (Balle and Wang 2018), not the classic bound."""
        if self.sigma == 0:
            return math.inf
        return gaussian_epsilon(self.sigma / (self.sensitivity + GRID_SLACK), check_delta(delta))

    @property
    def loss(self) -> GaussianLoss:
        """What the accountant composes."""
        return GaussianLoss((self.sensitivity + GRID_SLACK) / self.sigma)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_noise(self.sigma, "sigma")
        check_sensitivity(self.sensitivity)

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise."""
        return source.gaussian(values, sigma=self.sigma)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        return np.asarray(scipy.special.ndtr(-x / self.sigma))

    def quantile(self, probability: float, *, error_sd: float = 0.0) -> float:
        """Quantile of the noise plus an independent normal error of this sd."""
        return float(scipy.special.ndtri(probability) * math.hypot(self.sigma, error_sd))

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        return _relative("Gaussian noise of standard deviation", self.sigma, self.sensitivity)

    def __str__(self) -> str:
        return f"Gaussian noise of standard deviation {self.sigma:.4g}"


@register_charge("vector")
@dataclass(frozen=True, slots=True, kw_only=True)
class VectorMechanism(Charge):
    """Independent noise of one law on each of `coordinates` numbers.

    Whoever is protected may change all of them at once, number j by at most its own sensitivity
    Delta_j. `one` is the noise for a sensitivity of 1; number j gets Delta_j times as much. So each
    number costs as much as `one`, and all of them (docs/decisions/0015-columns.md)

        Laplace:  epsilon = d / b,    Gaussian:  mu = sqrt(d) / sigma

    >>> one = LaplaceMechanism(scale=6.0, sensitivity=1.0)
    >>> charge = VectorMechanism(one=one, coordinates=3)
    >>> print(charge)
    Laplace noise of scale 6 per unit of sensitivity on each of 3 numbers
    >>> round(charge.epsilon(delta=1e-6), 6)
    0.5
    """

    one: Mechanism  # for a sensitivity of 1
    coordinates: int  # d

    def __post_init__(self) -> None:
        object.__setattr__(self, "one", as_charge(self.one))

    @property
    def loss(self) -> Loss:
        """What the accountant composes: all numbers change as far as they can."""
        loss, d = self.one.loss, self.coordinates
        if isinstance(loss, GaussianLoss):
            return GaussianLoss(math.sqrt(d) * loss.mu)
        if isinstance(loss, PureLoss):
            return replace(loss, epsilon=d * loss.epsilon, coordinates=d * loss.coordinates)
        raise InvalidInputError("Noise on several numbers is pure or Gaussian noise.")

    def epsilon(self, delta: float) -> float:
        """What one release truly gives at this delta; infinite if nothing is proved."""
        return self.loss.alone(check_delta(delta))

    def proved_delta(self, delta: float) -> float:
        """The delta to state beside `epsilon(delta)`: 0 for Laplace noise."""
        return self.one.proved_delta(delta)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_positive_int(self.coordinates, "coordinates")
        check_charge(self.one)
        if not isinstance(self.one, Mechanism) or self.one.sensitivity != 1:
            raise InvalidInputError(
                "Noise on several numbers is that of one number, stated for a sensitivity of 1."
            )

    def __str__(self) -> str:
        return f"{self.one.per_unit()} on each of {self.coordinates} numbers"


@register_charge("integer_laplace")
@register_law("laplace", on=Counts)
@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerLaplaceMechanism(Mechanism):
    """Counts plus discrete Laplace noise; one record changes `coordinates` of them by 1 each.

    A protected client has `contribution` records: coordinates contribution in L1, whichever counts
    they change.

        P(noise = k)  proportional to  exp(-|k| / scale)

    Pure: delta is 0. Ghosh, Roughgarden and Sundararajan (2009). OpenDP's sampler is exact.

    >>> mechanism = calibrate(Counts(), epsilon=1.0, law="laplace")
    >>> print(mechanism)
    discrete Laplace noise of scale 2 on each count
    >>> round(mechanism.standard_deviation, 3)
    2.799
    """

    scale: float  # b
    coordinates: int  # 2 if two asked cells can change, 1 if only one is asked
    contribution: int = field(default=1, metadata=LATER)  # records of whoever is protected

    @classmethod
    def calibrated(cls, on: Counts, *, epsilon: float, delta: float) -> Self:  # noqa: ARG003
        """Of scale coordinates contribution / epsilon."""
        scale = on.changes * ROUNDING / epsilon
        return cls(scale=scale, coordinates=on.coordinates, contribution=on.contribution)

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each count: a little under sqrt(2) b."""
        return math.sqrt(laplace_variance(self.scale))

    @property
    def laplace_scale(self) -> float:
        """Of the noise, which is discrete Laplace noise."""
        return self.scale

    @property
    def sensitivity(self) -> float:
        """L1, over all counts."""
        return float(self.coordinates * self.contribution)

    @property
    def loss(self) -> PureLoss:
        """What the accountant composes. Many records may change one count: no more than pure."""
        epsilon = math.nextafter(self.sensitivity / self.scale, math.inf)
        return PureLoss(epsilon, 1 if self.contribution > 1 else self.coordinates)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_noise(self.scale, "scale")
        Counts(self.coordinates, self.contribution)

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each count with independent noise; whole numbers, as floats."""
        return source.integer_laplace(values, scale=self.scale).astype(np.float64)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x) = p^k / (1 + p) for k = floor(x) + 1 >= 1, with p = exp(-1 / scale)."""
        k = np.floor(x) + 1
        tail = np.exp(-np.where(k >= 1, k, 1 - k) / self.scale) / (1 + math.exp(-1 / self.scale))
        return np.where(k >= 1, tail, 1 - tail)

    def __str__(self) -> str:
        return f"discrete Laplace noise of scale {self.scale:.4g} on each count"


def laplace_variance(scale: float) -> float:
    """Of the discrete Laplace distribution: 2 p / (1 - p)^2 with p = exp(-1 / scale)."""
    p = math.exp(-1 / scale)
    return 2 * p / math.expm1(-1 / scale) ** 2


@register_charge("integer_gaussian")
@register_law("gaussian", on=Counts)
@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerGaussianMechanism(Mechanism):
    """Counts plus discrete Gaussian noise; one record changes `coordinates` of them by 1 each.

    A protected client has k = `contribution` records, which change the counts by at most
    k sqrt(coordinates) in L2: zCDP of rho = coordinates k^2 / (2 sigma^2), whichever they change.

        P(noise = k)  proportional to  exp(-k^2 / (2 sigma^2))

    Canonne, Kamath and Steinke (2020). OpenDP's sampler is exact.

    >>> mechanism = calibrate(Counts(), epsilon=1.0, delta=1e-6, law="gaussian")
    >>> print(mechanism)
    integer Gaussian noise of standard deviation 5.977 on each count
    >>> mechanism.epsilon(1e-6) <= 1.0
    True
    """

    sigma: float
    coordinates: int  # 2 if two asked cells can change, 1 if only one is asked
    contribution: int = field(default=1, metadata=LATER)  # records of whoever is protected

    @classmethod
    def calibrated(cls, on: Counts, *, epsilon: float, delta: float) -> Self:
        """By its rho for the records of a client, else from the exact probabilities."""
        sigma = _integer_sigma(on, epsilon, check_accounted_delta(delta))
        return cls(sigma=sigma, coordinates=on.coordinates, contribution=on.contribution)

    @property
    def sensitivity(self) -> float:
        """L2, over all counts."""
        return self.contribution * math.sqrt(self.coordinates)

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each count (the discrete Gaussian's parameter, to many digits)."""
        return self.sigma

    def epsilon(self, delta: float) -> float:
        """From the exact probabilities of the discrete noise, rounded up (pessimistic).

        From its rho where several records change. Infinite for a delta below 1e-30, where nothing
        is accounted.
        """
        return self.loss.alone(delta) if check_delta(delta) >= SMALLEST_DELTA else math.inf

    @property
    def loss(self) -> IntegerGaussianLoss | ConcentratedRelease:
        """What the accountant composes."""
        if self.contribution > 1:
            return ConcentratedRelease(rho=(self.sensitivity / self.sigma) ** 2 / 2)
        return IntegerGaussianLoss(self.sigma, self.coordinates)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        on = Counts(self.coordinates, self.contribution)
        low, high = (on.contribution * end for end in SIGMA_RANGE)
        if not low <= check_finite(self.sigma, "sigma") <= high:
            raise InvalidInputError(
                f"Integer noise is accounted for a sigma from {low:g} to {high:g}, got "
                f"{self.sigma:g}. Below there is no privacy; above, use Gaussian noise."
            )

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each count with independent noise; whole numbers, as floats."""
        return source.integer_gaussian(values, sigma=self.sigma).astype(np.float64)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        above = _survival_table(self.sigma)
        reach = len(above) // 2
        place = np.clip(np.floor(x), -reach - 1, reach).astype(np.int64)
        return np.where(place < -reach, 1.0, above[place + reach])

    def __str__(self) -> str:
        return f"integer Gaussian noise of standard deviation {self.sigma:.4g} on each count"


@lru_cache(maxsize=256)
def _integer_sigma(on: Counts, epsilon: float, delta: float) -> float:
    """Starts at the continuous Gaussian and grows until the exact account holds: at once, unless
    sigma is below 1, where whole numbers are coarse.
    """
    if on.contribution > 1:
        return client_sigma(on, epsilon, delta) * ROUNDING
    sigma = math.sqrt(on.coordinates) * gaussian_sigma(epsilon, delta)
    while (reached := integer_gaussian_epsilon(sigma, on.coordinates, delta)) > epsilon:
        sigma *= max(reached / epsilon, 1 + 1e-6)
    return sigma


def client_sigma(on: Counts | SharedCounts, epsilon: float, delta: float) -> float:
    """Of the Gaussian noise that hides all records of a client, by its rho."""
    return on.contribution * math.sqrt(on.coordinates / (2 * concentration_of(epsilon, delta)))


@lru_cache(maxsize=64)
def _survival_table(sigma: float) -> Floats:
    """P(noise > k) for k from -reach to reach; e^-72 of the noise lies beyond 12 sigma."""
    reach = math.ceil(12 * sigma) + 1
    weights = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
    at_least = np.cumsum(weights[::-1])[::-1]
    above: Floats = np.append(at_least[1:], 0.0) / at_least[0]
    return above
