"""Noise of three servers: each adds a share; what a corrupt one knows of its own does not count.

Two honest servers give the planned law, and a third share lies on top: 1.5 times its variance. With
one server lost, one honest server of two gives all of it: twice the variance. What the shares of
the honest ones add up to is charged as the law that it is, so that many releases, and all parts of
one, compose as for a trusted aggregator.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.libraries import scipy
from fedprikl.privacy.accounting import WIDE
from fedprikl.privacy.charges import AccountedRelease, Charge
from fedprikl.privacy.laws import (
    Calibrated,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    Mechanism,
    SharedCounts,
    calibrate,
    resolve_law,
)
from fedprikl.privacy.noise import NoiseSource
from fedprikl.privacy.shares import (
    GAUSSIAN_ROUNDING,
    LARGEST_TOTAL,
    SHAPE,
    SharedLaplaceMechanism,
    SharedMechanism,
    log_beyond_reach,
)

SERVERS = 3
HONEST = 2  # of three servers; of two, if one is lost, one
FARTHEST, GRID = 60.0, 12_001  # of the table of a sum of Laplace shares, in scales
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
    """The noise of three servers at (epsilon, delta): what is charged is what two honest ones draw.

    >>> noise = ServersNoise(SharedCounts(HONEST), epsilon=1.0, delta=1e-6)
    >>> print(noise.noise)
    Laplace noise in shares of 3 servers, of standard deviation 3.428 on each count
    >>> print(noise.after_loss.noise)
    Laplace noise in shares of 2 servers, of standard deviation 3.959 on each count
    """

    parties: int = SERVERS

    def __post_init__(self) -> None:
        law = resolve_law(self.on, epsilon=self.epsilon, delta=self.delta, law=self.law)
        shared = calibrate(self.shares, epsilon=self.epsilon, delta=self.delta, law=law)
        object.__setattr__(self, "law", law)
        object.__setattr__(self, "noise", ServersMechanism(shared=shared, parties=self.parties))

    @property
    def shares(self) -> SharedCounts:
        """What is noised, and by how many honest servers."""
        assert isinstance(self.on, SharedCounts)  # noqa: S101  servers noise nothing else
        return self.on

    @property
    def charge(self) -> Charge:
        """The law of the honest shares, without the delta of their drawing (`left_over`)."""
        shared, on = self.noise.shared, self.shares
        many = {"coordinates": on.coordinates, "contribution": on.contribution}
        if isinstance(shared, SharedLaplaceMechanism):
            return IntegerLaplaceMechanism(scale=shared.scale, **many)
        if shared.sigma < WIDE:  # narrow ones do not add up to one of their kind
            narrow: Charge = shared.charge(self.delta)
            return narrow
        sigma = math.sqrt(on.shares) * shared.sigma / GAUSSIAN_ROUNDING
        return IntegerGaussianMechanism(sigma=sigma, **many)

    @property
    def left_over(self) -> AccountedRelease:
        """Cut tails, the shape of a sum of wide shares, and masks of comparisons."""
        shared, on = self.noise.shared, self.shares
        if isinstance(shared, SharedLaplaceMechanism):
            return AccountedRelease(
                proved_epsilon=TINY, proved_delta=shared.proved_delta(self.delta)
            )
        draws = on.changes * on.shares
        cut = 2 * draws * math.exp(log_beyond_reach(shared.sigma) + LARGEST_TOTAL)
        return AccountedRelease(proved_epsilon=2 * draws * SHAPE, proved_delta=on.failure + cut)

    @property
    def after_loss(self) -> "ServersNoise":
        """The noise on the same, if one server is lost: each of two adds all of it."""
        on = SharedCounts(1, self.shares.coordinates, self.shares.contribution)
        return ServersNoise(on, self.epsilon, self.delta, self.law, parties=2)

    def for_sensitivity(self, sensitivity: float) -> Mechanism:
        """The noise on a value that whoever is protected moves by at most so much."""
        unit = sensitivity / self.shares.contribution
        shared: SharedMechanism = self.noise.shared
        return ServersMechanism(shared=shared, parties=self.parties, unit=unit)
