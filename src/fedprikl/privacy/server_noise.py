"""Noise of three servers, none of which knows all of it.

Laplace noise is drawn by all of them together, on shares (`JointLaplace`): it is the very noise of
a trusted aggregator, and no server knows any of it. Of Gaussian noise each server adds a share, and
what a corrupt one knows of its own does not count: two honest servers give the planned law, and a
third share lies on top, 1.5 times its variance. With one server lost nothing is drawn together, and
each of two adds all of the noise. What is drawn is charged as the law that it is, so that many
releases, and all parts of one, compose as for a trusted aggregator.
"""

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.libraries import scipy
from fedprikl.privacy.accounting import WIDE
from fedprikl.privacy.charges import AccountedRelease, Charge, ComposedCharge
from fedprikl.privacy.laws import (
    Calibrated,
    Counts,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    Mechanism,
    Numbers,
    SharedCounts,
    calibrate,
    laplace_variance,
)
from fedprikl.privacy.noise import NoiseSource
from fedprikl.privacy.shares import (
    GAUSSIAN_ROUNDING,
    LARGEST_TOTAL,
    SHAPE,
    SharedGaussianMechanism,
    SharedLaplaceMechanism,
    SharedMechanism,
    log_beyond_reach,
)

SERVERS = 3
HONEST = 2  # of three servers; of two, if one is lost, one
FARTHEST, GRID = 60.0, 12_001  # of Laplace noise, in scales; of the table of its sums
COIN_BITS = 61
TINY = 1e-30  # an epsilon that no total shows


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersMechanism(Mechanism):
    """Whole numbers times `unit`, to each of which `parties` servers add a share."""

    shared: SharedMechanism
    parties: int = SERVERS
    unit: float = 1.0

    @property
    def sensitivity(self) -> float:
        """In the law's norm."""
        return self.unit * self.shared.sensitivity

    @property
    def standard_deviation(self) -> float:
        """Of all shares together."""
        return self.unit * math.sqrt(self.parties * self.shared.share_variance)

    @property
    def laplace_scale(self) -> float | None:
        """Of each of the discrete Laplace variables that the noise is a sum of; None: of none."""
        scale = self.shared.laplace_scale
        return None if scale is None else self.unit * scale

    def epsilon(self, delta: float) -> float:
        """What the honest servers' shares give at this delta."""
        return self.shared.epsilon(delta)

    def proved_delta(self, delta: float) -> float:
        """The delta to state beside it."""
        return self.shared.proved_delta(delta)

    def charges(self, delta: float) -> tuple[Charge, ...]:
        """What a release costs, in parts: Laplace shares add up to noise of their kind."""
        shared, on = self.shared, self.shared.on
        if isinstance(shared, SharedLaplaceMechanism):
            law = IntegerLaplaceMechanism(
                scale=shared.scale, coordinates=on.coordinates, contribution=on.contribution
            )
            rest = AccountedRelease(proved_epsilon=TINY, proved_delta=shared.proved_delta(delta))
            return law, rest
        charge = shared.charge(delta)
        return charge.parts if isinstance(charge, ComposedCharge) else (charge,)

    def draw(self, entries: int, source: NoiseSource) -> Ints:
        """SECRET: one server's share of the noise on so many whole numbers."""
        return self.shared.draw_share(entries, source)

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with the noise of all servers: what their computation on shares gives."""
        exact = np.asarray(values, np.float64)
        noise = sum(self.draw(exact.size, source) for _ in range(self.parties))
        return np.asarray(exact + self.unit * np.reshape(noise, exact.shape))

    def survival(self, x: Floats) -> Floats:
        """P(noise > x): normal, or that of a sum of Laplace shares, taken as continuous."""
        if self.laplace_scale is None:
            return np.asarray(scipy.special.ndtr(-x / self.standard_deviation))
        beyond, steps = _laplace_tails(self.parties / self.shared.on.shares)
        tail = np.interp(np.abs(x) / self.laplace_scale, steps, beyond, right=0.0)
        return np.where(x > 0, tail, 1 - tail)

    def __str__(self) -> str:
        law = "Gaussian" if self.laplace_scale is None else "Laplace"
        where = "each count" if self.unit == 1 else "each value"
        return (
            f"{law} noise in shares of {self.parties} servers, of standard deviation "
            f"{self.standard_deviation:.4g} on {where}"
        )


@lru_cache(maxsize=8)
def _laplace_tails(shape: float) -> tuple[Floats, Floats]:
    """P(X > x) on a grid of x, for X the difference of two Gamma variables of this shape.

    density = (x/2)^(shape - 1/2) K_(shape - 1/2)(x) / (sqrt(pi) Gamma(shape)),    x > 0
    """
    steps = np.linspace(0.0, FARTHEST, GRID)
    order = shape - 0.5
    density = np.zeros(GRID)
    density[1:] = (steps[1:] / 2) ** order * scipy.special.kv(order, steps[1:])
    density[0] = 2 * density[1] - density[2] if order <= 0 else scipy.special.gamma(order) / 2
    area = np.cumsum((density[1:] + density[:-1])[::-1])[::-1]
    beyond = np.append(area, 0.0)
    return beyond / (2 * beyond[0]), steps


@dataclass(frozen=True, slots=True)
class ServersNoise(Calibrated):
    """The noise of three servers at (epsilon, delta): what is charged is what draws.

    >>> noise = ServersNoise(SharedCounts(HONEST), epsilon=1.0, delta=1e-6)
    >>> print(noise.noise)
    discrete Laplace noise of scale 2 on each count
    >>> print(noise.after_loss)
    Laplace noise in shares of 2 servers, of standard deviation 3.959 on each count
    """

    def __post_init__(self) -> None:
        epsilon, delta, law = self.epsilon, self.delta, self.law
        if law == "auto":
            laplace = math.sqrt(laplace_variance(self.shares.changes / epsilon))
            shared = SharedGaussianMechanism.deviation(self.shares, epsilon=epsilon, delta=delta)
            law = "laplace" if laplace <= math.sqrt(SERVERS / HONEST) * shared else "gaussian"
        noise: Mechanism = calibrate(self._counts, epsilon=epsilon, delta=delta, law="laplace")
        if law != "laplace":
            shared_law = calibrate(self.shares, epsilon=epsilon, delta=delta, law=law)
            noise = ServersMechanism(shared=shared_law)
        object.__setattr__(self, "law", law)
        object.__setattr__(self, "noise", noise)

    @property
    def shares(self) -> SharedCounts:
        """What is noised, and by how many honest servers."""
        assert isinstance(self.on, SharedCounts)  # noqa: S101  servers noise nothing else
        return self.on

    @property
    def _counts(self) -> Counts:
        return Counts(self.shares.coordinates, self.shares.contribution)

    @property
    def joint(self) -> "JointLaplace | None":
        """How the servers draw Laplace noise together; None: each draws a share."""
        scale = self.noise.laplace_scale if self.law == "laplace" else None
        return None if scale is None else JointLaplace(scale)

    @property
    def charge(self) -> Charge:
        """The law of the noise, without the delta of its drawing (`left_over`)."""
        if not isinstance(self.noise, ServersMechanism):
            laplace: Charge = self.noise
            return laplace
        shared, on = self.noise.shared, self.shares
        if isinstance(shared, SharedLaplaceMechanism) or shared.sigma < WIDE:
            return shared.charge(self.delta)  # narrow ones do not add up to one of their kind
        sigma = math.sqrt(on.shares) * shared.sigma / GAUSSIAN_ROUNDING
        return IntegerGaussianMechanism(
            sigma=sigma, coordinates=on.coordinates, contribution=on.contribution
        )

    @property
    def left_over(self) -> AccountedRelease:
        """What delta pays beside the law: its drawing, and masks of comparisons."""
        failure = self.shares.failure
        if (joint := self.joint) is not None:
            drawn = (1 + math.exp(min(self.epsilon, LARGEST_TOTAL))) * joint.distance
            return AccountedRelease(
                proved_epsilon=TINY, proved_delta=failure + self.shares.changes * drawn
            )
        draws = self.shares.changes * self.shares.shares
        cut = 2 * draws * math.exp(log_beyond_reach(self.noise.shared.sigma) + LARGEST_TOTAL)
        return AccountedRelease(proved_epsilon=2 * draws * SHAPE, proved_delta=failure + cut)

    @property
    def after_loss(self) -> ServersMechanism:
        """The noise on the same, if one server is lost: each of two adds all of it."""
        on = SharedCounts(1, self.shares.coordinates, self.shares.contribution)
        shared = calibrate(on, epsilon=self.epsilon, delta=self.delta)
        return ServersMechanism(shared=shared, parties=2)

    def for_sensitivity(self, sensitivity: float) -> Mechanism:
        """The noise on a value that whoever is protected moves by at most so much."""
        if not isinstance(self.noise, ServersMechanism):
            on = Numbers(sensitivity, self.shares.coordinates)
            return calibrate(on, epsilon=self.epsilon, delta=self.delta, law="laplace")
        unit = sensitivity / self.shares.contribution
        return ServersMechanism(shared=self.noise.shared, unit=unit)


@dataclass(frozen=True, slots=True)
class JointLaplace:
    """Discrete Laplace noise of a scale b from independent coins that nobody sees.

    The binary digits of a geometric variable are independent,

        P(digit i is 1) = 1 / (1 + exp(2^i / b)),

    and discrete Laplace noise is the difference of two such variables (Ghosh, Roughgarden and
    Sundararajan 2009). A coin is exact to 2^-61, and fails with another 2^-61; what the digits
    leave out has a probability below e^-60.

    >>> JointLaplace(2.0).digits, JointLaplace(2.0).distance < 2**-54
    (7, True)
    """

    scale: float

    @property
    def digits(self) -> int:
        """Of each of the two variables."""
        return max(1, math.ceil(math.log2(FARTHEST * self.scale)))

    @property
    def distance(self) -> float:
        """Of what is drawn from the law, in total variation, for one number."""
        return 2 * (self.digits * 2.0**-60 + math.exp(-FARTHEST))

    @property
    def chances(self) -> npt.NDArray[np.uint64]:
        """Of each digit, the lowest first, in units of 2^-61."""
        with localcontext(Context(prec=60)):
            exact = (1 / (1 + (2**i / Decimal(self.scale)).exp()) for i in range(self.digits))
            return np.array([int(each * 2**COIN_BITS) for each in exact], dtype=np.uint64)
