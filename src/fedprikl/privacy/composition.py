"""Composition: what several releases about the same people give together.

Never less than the truth: exact where a closed form is known, rounded up (pessimistic) elsewhere.
The noise of every release must have been chosen without looking at the results of earlier ones
(what is asked may depend on them); see docs/ledger.md.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from fedprikl.checks import check_epsilon
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.accounting import SAFETY, concentrated_epsilon
from fedprikl.privacy.inverse_sensitivity import InverseSensitivityMechanism
from fedprikl.privacy.losses import (
    BoundedRangeLoss,
    ConcentratedLoss,
    GaussianLoss,
    IntegerGaussianLoss,
    Loss,
    ProvedLoss,
    PureLoss,
    repeat,
)
from fedprikl.privacy.mechanism import Charge, Together, check_charge, check_zero_or_delta
from fedprikl.privacy.real_noise import calibrate_gaussian, calibrate_laplace

SHARES = (0.1, 0.5, 0.9)  # of delta, for the losses of bounded range beside others
GRID_POINTS = 8192  # of the discretised privacy loss, over the range of the expected total
LARGEST = 500.0  # beyond, e^epsilon nears the end of the floats: no privacy left to account for
TINY = 2.0**-10, 2.0**-20  # of a budget: where not even these fit, nothing is looked for
FFT_ERROR = 1e-12  # of delta, per convolution; observed below 1e-14


def bounded_range_epsilon(
    losses: Sequence[Loss], delta: float, others: Callable[[tuple[Loss, ...], float], float]
) -> float:
    """The epsilon at `delta` of losses of which some have a bounded range; infinite if none has.

    The smaller of: all of them as zCDP; or these as zCDP with a share of delta, and the `others` on
    their own with the rest (basic composition of the two). Both hold for adaptive choices. Never
    less than the others alone, whose own bound may be a looser one.
    """
    bounded = [loss for loss in losses if isinstance(loss, BoundedRangeLoss)]
    rest = tuple(loss for loss in losses if not isinstance(loss, BoundedRangeLoss))
    if not bounded or delta <= 0:
        return math.inf
    rho = math.fsum(loss.concentrated for loss in bounded)
    together = concentrated_epsilon(rho + math.fsum(map(_concentration, rest)), delta)
    if not rest:
        return together
    apart = (
        concentrated_epsilon(rho, share * delta) + others(rest, (1 - share) * delta)
        for share in SHARES
    )
    return max(min(together, *apart), others(rest, delta))


def known_by_rho_epsilon(
    losses: Sequence[Loss], delta: float, others: Callable[[tuple[Loss, ...], float], float]
) -> float:
    """The epsilon at `delta` of losses of which some are known by their rho only.

    The smaller of: all of them as zCDP; these with a share of delta and the `others` with the rest;
    or these with all of delta, if the others need none. Never less than the others alone.
    """
    known = [loss for loss in losses if isinstance(loss, ConcentratedLoss)]
    rest = tuple(loss for loss in losses if not isinstance(loss, ConcentratedLoss))
    if delta <= 0:
        return math.inf
    rho = math.fsum(loss.rho for loss in known)
    if not rest:
        return concentrated_epsilon(rho, delta)
    together = concentrated_epsilon(rho + math.fsum(map(_concentration, rest)), delta)
    apart = (
        concentrated_epsilon(rho, share * delta) + others(rest, (1 - share) * delta)
        for share in SHARES
    )
    without = concentrated_epsilon(rho, delta) + others(rest, 0.0)
    return max(min(together, without, *apart), others(rest, delta))


def _concentration(loss: Loss) -> float:
    """rho of a loss; Bun and Steinke (2016), "Concentrated differential privacy"."""
    match loss:
        case BoundedRangeLoss():
            return loss.concentrated
        case ConcentratedLoss(rho):
            return rho
        case PureLoss(epsilon):
            return epsilon * epsilon / 2
        case GaussianLoss(mu):
            return mu * mu / 2  # a product becomes infinite, a power raises
        case IntegerGaussianLoss(sigma, coordinates):
            return coordinates * (1 / sigma) * (1 / sigma) / 2 if sigma > 0 else math.inf
        case _:
            return math.inf


def total_epsilon(charges: Iterable[Charge], *, delta: float) -> float:
    """The epsilon at `delta` of all charges together, against the same record.

    Gaussian only: exact, mu^2 = sum (Delta/sigma)^2. With pure or integer noise: the smaller of
    the convolved privacy loss distributions (dp-accounting, pessimistic) and basic composition.
    With losses of bounded range (adaptive noise) also what their concentration gives, which is all
    that is known of Gaussian noise on the counts of whole clients.
    An `AccountedRelease` adds its epsilon, and takes its delta from what the rest may use.
    Infinite if no finite epsilon holds at this delta. Only the charges' losses are looked at.

    >>> releases = [calibrate_laplace(epsilon=0.1, sensitivity=1.0)] * 50
    >>> round(total_epsilon(releases, delta=1e-6), 2)
    3.12
    """
    proved, known = _split(charges)
    left = check_zero_or_delta(delta) - math.fsum(loss.delta for loss in proved)
    if left < -1e-12 * delta:  # more than rounding
        return math.inf
    spent = math.fsum(loss.epsilon for loss in proved)
    return spent + _known_epsilon(known, max(left, 0.0))


def basic_epsilon(charges: Iterable[Charge], *, delta: float) -> float:
    """The sum of all epsilons, delta shared out equally among those that need one.

    Looser than `total_epsilon`; kept as an independent bound that a reader can check by hand.
    """
    proved, known = _split(charges)
    pure = [loss.epsilon for loss in known if isinstance(loss, PureLoss)]
    noisy = [loss for loss in known if not isinstance(loss, PureLoss)]
    left = check_zero_or_delta(delta) - math.fsum(loss.delta for loss in proved)
    if left < 0 or (noisy and left == 0):
        return math.inf
    shares = [loss.alone(left / len(noisy)) for loss in noisy]
    return math.fsum([*pure, *(loss.epsilon for loss in proved), *shares])


def _split(charges: Iterable[Charge]) -> tuple[list[ProvedLoss], tuple[Loss, ...]]:
    """Losses known by (epsilon, delta) only, and the others; in an order of their own, so that the
    total does not depend on the order of the charges.
    """
    checked = [check_charge(charge) for charge in charges]
    single = [part for charge in checked for part in _parts(charge)]
    losses = [charge.loss for charge in sorted(single, key=repr)]
    proved = [loss for loss in losses if isinstance(loss, ProvedLoss)]
    return proved, tuple(loss for loss in losses if not isinstance(loss, ProvedLoss))


def _parts(charge: Charge) -> tuple[Charge, ...]:
    return charge.parts if isinstance(charge, Together) else (charge,)


def largest_fitting_epsilon(
    charges: Sequence[Charge],
    *,
    epsilon: float,
    delta: float,
    kind: Literal["laplace", "gaussian", "adaptive"],
) -> float:
    """The largest epsilon (at `delta`) of one more release that keeps the total within `epsilon`.

    Rounded down to three digits, so that it can be typed in and fits; 0 if nothing does.
    """
    check_epsilon(epsilon)

    def fits(candidate: float) -> bool:
        more = _release(kind, epsilon=candidate, delta=delta)
        return total_epsilon([*charges, more], delta=delta) <= epsilon

    if kind == "gaussian" and delta == 0:
        return 0.0
    low, high = 0.0, epsilon
    if fits(high):
        return high
    if not any(fits(share * epsilon) for share in TINY):
        return 0.0
    while high - low > 1e-3 * high and high > 1e-6 * epsilon:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    typed = _round_down(low)
    return typed if typed > 0 and fits(typed) else 0.0


def _release(kind: str, *, epsilon: float, delta: float) -> Charge:
    if kind == "laplace":
        return calibrate_laplace(epsilon=epsilon, sensitivity=1.0)
    if kind == "gaussian":
        return calibrate_gaussian(epsilon=epsilon, delta=delta, sensitivity=1.0)
    if kind == "adaptive":
        return InverseSensitivityMechanism(epsilon=epsilon)
    raise InvalidInputError(f"`kind` must be 'laplace', 'gaussian' or 'adaptive', got {kind!r}.")


def _round_down(value: float, digits: int = 3) -> float:
    if value <= 0:
        return 0.0
    unit = digits - 1 - math.floor(math.log10(value))
    return float(f"{math.floor(value * 10.0**unit)}e{-unit}")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Losses by kind. All Gaussian ones are one: a Gaussian release of ratio mu."""

    pure: Counter[PureLoss]  # how many
    mu: float
    integer: Counter[float]  # sigma: how many counts moved by 1

    @classmethod
    def of(cls, losses: Iterable[Loss]) -> "_Parts":
        pure: Counter[PureLoss] = Counter()
        integer: Counter[float] = Counter()
        ratios = []
        for loss in losses:
            match loss:
                case PureLoss():
                    pure[loss] += 1
                case GaussianLoss(mu):
                    ratios.append(mu)
                case IntegerGaussianLoss(sigma, coordinates):
                    integer[sigma] += coordinates
                case _:
                    raise InvalidInputError(f"A {type(loss).__name__} cannot be convolved.")
        return cls(pure, math.hypot(*ratios), integer)

    @property
    def pure_sum(self) -> float:
        return math.fsum(loss.epsilon for loss in self.pure.elements())

    def expected_total(self, delta: float) -> float:
        """A rough size of the total, to scale the grid: as if every loss were normal."""
        integer = math.fsum(count / sigma**2 for sigma, count in self.integer.items())
        gaussian = self.mu * self.mu + integer
        pure = math.fsum(count * loss.epsilon * loss.epsilon for loss, count in self.pure.items())
        return min(
            _normal_tail(gaussian + pure, delta),
            _normal_tail(gaussian, delta) + self.pure_sum,
        )


def _normal_tail(variance: float, delta: float) -> float:
    return math.sqrt(2 * variance * math.log(1 / delta)) + variance / 2


@lru_cache(maxsize=512)
def _known_epsilon(losses: tuple[Loss, ...], delta: float) -> float:
    if len(losses) == 1:  # its own account: a release calibrated to the whole budget fits into it
        return losses[0].alone(delta)
    if any(isinstance(loss, ConcentratedLoss) for loss in losses):
        return known_by_rho_epsilon(losses, delta, _known_epsilon)
    parts = _Parts.of(losses)
    basic = parts.pure_sum + _without_pure(parts, delta)
    if not parts.pure:
        return basic
    # One pure release alone counts its whole epsilon (Laplace: 2 delta above the truth); more of
    # them must not count less.
    least = max(loss.epsilon for loss in parts.pure)
    composed = min(_pld_epsilon(parts, delta), bounded_range_epsilon(losses, delta, _known_epsilon))
    return min(basic, max(composed, least))


def _without_pure(parts: _Parts, delta: float) -> float:
    if parts.integer:
        return _pld_epsilon(_Parts(Counter(), parts.mu, parts.integer), delta)
    if parts.mu == 0:
        return 0.0
    return GaussianLoss(parts.mu).alone(delta) * SAFETY + 1e-12  # the root finding's tolerance


def _pld_epsilon(parts: _Parts, delta: float) -> float:
    """The epsilon from the convolved privacy loss distributions, rounded up (pessimistic).

    The grid is a power of 2, scaled to the expected total: a longer list of releases gets the same
    or a coarser grid inside it, so that the total does not fall. Pure releases smaller than one
    step are added up instead.
    """
    pieces = len(parts.pure) + len(parts.integer) + (parts.mu > 0)
    usable = delta - FFT_ERROR * 2 * pieces
    if usable <= delta / 2:
        return math.inf
    expected = parts.expected_total(delta)
    if not 1e-9 < expected < LARGEST:
        return math.inf
    step = 2.0 ** math.floor(math.log2(expected / GRID_POINTS))
    pure: Counter[PureLoss] = Counter()
    for loss, count in parts.pure.items():
        pure[replace(loss, epsilon=_round_up(loss.epsilon))] += count
    tiny = {loss: count for loss, count in pure.items() if loss.epsilon < step}
    convolved = {loss: count for loss, count in pure.items() if loss.epsilon >= step}
    total = _convolved(tuple(convolved.items()), tuple(parts.integer.items()), parts.mu, step)
    added = math.fsum(count * loss.epsilon for loss, count in tiny.items())
    return float(total.get_epsilon_for_delta(usable)) * SAFETY + added


@lru_cache(maxsize=32)  # several deltas are asked of one total
def _convolved(
    pure: tuple[tuple[PureLoss, int], ...],
    integer: tuple[tuple[float, int], ...],
    mu: float,
    step: float,
) -> Any:
    """The distribution of the sum of all losses, on a grid of this step."""
    losses = [repeat(loss.distribution(step), count) for loss, count in pure]
    losses += [IntegerGaussianLoss(s, n).distribution(step) for s, n in integer]
    if mu > 0:
        losses.append(GaussianLoss(mu).distribution(step))
    return _compose_all(losses)


def _round_up(epsilon: float) -> float:
    """To 20 bits: rounds of one epsilon and different sensitivities differ in the last bit, and
    equal ones are convolved together.
    """
    mantissa, exponent = math.frexp(epsilon)
    return math.ldexp(math.ceil(mantissa * 2**20), exponent - 20)


def _compose_all(losses: list[Any]) -> Any:
    """In pairs of like size: the cost grows as n log n in the number of different releases."""
    while len(losses) > 1:
        pairs = zip(losses[::2], losses[1::2], strict=False)
        odd = losses[-1:] if len(losses) % 2 else []
        losses = [left.compose(right) for left, right in pairs] + odd
    return losses[0]
