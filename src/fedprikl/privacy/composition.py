"""Composition: what several releases about the same people give together.

Never less than the truth: exact where a closed form is known, rounded up (pessimistic) elsewhere.
The noise of every release must have been chosen without looking at the results of earlier ones
(what is asked may depend on them); see docs/ledger.md.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fedprikl.errors import InvalidInputError
from fedprikl.privacy.accounting import SAFETY, concentrated_epsilon, normal_tail
from fedprikl.privacy.charges import (
    AccountedRelease,
    BoundedRangeLoss,
    Charge,
    ComposedCharge,
    ConcentratedRelease,
    GaussianLoss,
    IntegerGaussianLoss,
    Loss,
    PureLoss,
    check_charge,
    check_zero_or_delta,
    repeat,
)
from fedprikl.privacy.laws import Numbers, calibrate

SHARES = (0.1, 0.5, 0.9)  # of delta, for the losses of bounded range beside others
GRID_POINTS = 8192  # of the discretised privacy loss, over the range of the expected total
LARGEST = 500.0  # beyond, e^epsilon nears the end of the floats: no privacy left to account for
TINY = 2.0**-10, 2.0**-20  # of a budget: where not even these fit, nothing is looked for
FFT_ERROR = 1e-12  # of delta, per convolution; observed below 1e-14

Convolved = PureLoss | IntegerGaussianLoss | GaussianLoss
Others = Counter[IntegerGaussianLoss | GaussianLoss]


def _concentrated_total(
    losses: Sequence[Loss], delta: float, kinds: type[Loss], *, without: bool
) -> float:
    """The epsilon at `delta` of losses, those of these `kinds` known by their rho.

    The smallest of: all of them as zCDP; these as zCDP with a share of delta and the others with
    the rest (basic composition of the two); or, if `without`, these with all of delta and the
    others with none. All hold for adaptive choices. Never less than the others alone, whose own
    bound may be a looser one.
    """
    others = tuple(loss for loss in losses if not isinstance(loss, kinds))
    rho = math.fsum(_concentration(loss) for loss in losses if isinstance(loss, kinds))
    if delta <= 0:
        return math.inf
    together = concentrated_epsilon(rho + math.fsum(map(_concentration, others)), delta)
    if not others:
        return together
    apart = [
        concentrated_epsilon(rho, share * delta) + _known_epsilon(others, (1 - share) * delta)
        for share in SHARES
    ]
    if without:
        apart.append(concentrated_epsilon(rho, delta) + _known_epsilon(others, 0.0))
    return max(min(together, *apart), _known_epsilon(others, delta))


def _concentration(loss: Loss) -> float:
    """rho of a loss; Bun and Steinke (2016), "Concentrated differential privacy"."""
    match loss:
        case BoundedRangeLoss(epsilon):
            return epsilon * epsilon / 8
        case ConcentratedRelease(rho=rho):
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

    >>> releases = [calibrate(Numbers(), epsilon=0.1, law="laplace")] * 50
    >>> round(total_epsilon(releases, delta=1e-6), 2)
    3.12
    """
    proved, known = _split(charges)
    left = check_zero_or_delta(delta) - math.fsum(loss.proved_delta for loss in proved)
    if left < -1e-12 * delta:  # more than rounding
        return math.inf
    spent = math.fsum(loss.proved_epsilon for loss in proved)
    return spent + _known_epsilon(known, max(left, 0.0))


def _split(charges: Iterable[Charge]) -> tuple[list[AccountedRelease], tuple[Loss, ...]]:
    """Losses known by (epsilon, delta) only, and the others; in an order of their own, so that the
    total does not depend on the order of the charges.
    """
    single: list[Charge] = []
    for charge in map(check_charge, charges):
        single += charge.parts if isinstance(charge, ComposedCharge) else (charge,)
    losses = [charge.loss for charge in sorted(single, key=repr)]
    proved = [loss for loss in losses if isinstance(loss, AccountedRelease)]
    return proved, tuple(loss for loss in losses if not isinstance(loss, AccountedRelease))


def largest_fitting_epsilon(
    charges: Sequence[Charge], *, epsilon: float, delta: float, law: str
) -> float:
    """The largest epsilon (at `delta`) of one more release that keeps the total within `epsilon`.

    Rounded down to three digits, so that it can be typed in and fits; 0 if nothing does.
    """

    def fits(candidate: float) -> bool:
        more = calibrate(Numbers(), epsilon=candidate, delta=delta, law=law)
        return total_epsilon([*charges, more], delta=delta) <= epsilon

    if law == "gaussian" and delta == 0:
        return 0.0
    if fits(epsilon):
        return epsilon
    if not any(fits(share * epsilon) for share in TINY):
        return 0.0
    low, high = 0.0, epsilon
    while high - low > 1e-3 * high:  # comes past the tiny ones, of which one fits
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    unit = 2 - math.floor(math.log10(low))
    typed = float(f"{math.floor(low * 10.0**unit)}e{-unit}")
    return typed if fits(typed) else 0.0


def _merged(losses: Iterable[Loss]) -> tuple[Counter[PureLoss], Others]:
    """How many there are of each pure loss, and of each other one.

    All Gaussian ones are one. Integer ones are taken count by count.
    """
    pure: Counter[PureLoss] = Counter()
    others: Others = Counter()
    ratios = []
    for loss in losses:
        match loss:
            case PureLoss():
                pure[loss] += 1
            case GaussianLoss(mu):
                ratios.append(mu)
            case IntegerGaussianLoss(sigma, coordinates):
                others[IntegerGaussianLoss(sigma)] += coordinates
            case _:
                raise InvalidInputError(f"A {type(loss).__name__} cannot be convolved.")
    if any(ratios):
        others[GaussianLoss(math.hypot(*ratios))] = 1
    return pure, others


def _expected_total(pure: Counter[PureLoss], others: Others, delta: float) -> float:
    """A rough size of the total, to scale the grid: as if every loss were normal."""
    normal = math.fsum(2 * count * _concentration(loss) for loss, count in others.items())
    more = math.fsum(count * loss.epsilon * loss.epsilon for loss, count in pure.items())
    return min(normal_tail(normal + more, delta), normal_tail(normal, delta) + _basic_sum(pure))


def _basic_sum(pure: Counter[PureLoss]) -> float:
    return math.fsum(loss.epsilon for loss in pure.elements())


@lru_cache(maxsize=512)
def _known_epsilon(losses: tuple[Loss, ...], delta: float) -> float:
    if len(losses) == 1:  # its own account: a release calibrated to the whole budget fits into it
        return losses[0].alone(delta)
    if any(isinstance(loss, ConcentratedRelease) for loss in losses):
        return _concentrated_total(losses, delta, ConcentratedRelease, without=True)
    pure, others = _merged(losses)
    basic = _basic_sum(pure) + _without_pure(others, delta)
    if not pure:
        return basic
    # One pure release alone counts its whole epsilon (Laplace: 2 delta above the truth); more of
    # them must not count less.
    least = max(loss.epsilon for loss in pure)
    composed = _pld_epsilon(pure, others, delta)
    if any(isinstance(loss, BoundedRangeLoss) for loss in losses):
        by_range = _concentrated_total(losses, delta, BoundedRangeLoss, without=False)
        composed = min(composed, by_range)
    return min(basic, max(composed, least))


def _without_pure(others: Others, delta: float) -> float:
    match list(others):
        case []:
            return 0.0
        case [GaussianLoss() as only]:
            return only.alone(delta) * SAFETY + 1e-12  # the root finding's tolerance
        case _:
            return _pld_epsilon(Counter(), others, delta)


def _pld_epsilon(pure: Counter[PureLoss], others: Others, delta: float) -> float:
    """The epsilon from the convolved privacy loss distributions, rounded up (pessimistic).

    The grid is a power of 2, scaled to the expected total: a longer list of releases gets the same
    or a coarser grid inside it, so that the total does not fall. Pure releases smaller than one
    step are added up instead.
    """
    usable = delta - FFT_ERROR * 2 * (len(pure) + len(others))
    if usable <= delta / 2:
        return math.inf
    expected = _expected_total(pure, others, delta)
    if not 1e-9 < expected < LARGEST:
        return math.inf
    step = 2.0 ** math.floor(math.log2(expected / GRID_POINTS))
    rounded: Counter[PureLoss] = Counter()
    for loss, count in pure.items():
        rounded[replace(loss, epsilon=_round_up(loss.epsilon))] += count
    tiny = {loss: count for loss, count in rounded.items() if loss.epsilon < step}
    large = {loss: count for loss, count in rounded.items() if loss.epsilon >= step}
    total = _convolved((*large.items(), *others.items()), step)
    added = math.fsum(count * loss.epsilon for loss, count in tiny.items())
    return float(total.get_epsilon_for_delta(usable)) * SAFETY + added


@lru_cache(maxsize=32)  # several deltas are asked of one total
def _convolved(losses: tuple[tuple[Convolved, int], ...], step: float) -> Any:
    """The distribution of the sum of so many of each loss, on a grid of this step.

    In pairs of like size: the cost grows as n log n in the number of different releases.
    """
    found = [repeat(_distribution(loss, step), count) for loss, count in losses]
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        odd = found[-1:] if len(found) % 2 else []
        found = [left.compose(right) for left, right in pairs] + odd
    return found[0]


@lru_cache(maxsize=256)
def _distribution(loss: Convolved, step: float) -> Any:
    """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
    return loss.distribution(step)


def _round_up(epsilon: float) -> float:
    """To 20 bits: rounds of one epsilon and different sensitivities differ in the last bit, and
    equal ones are convolved together.
    """
    mantissa, exponent = math.frexp(epsilon)
    return math.ldexp(math.ceil(mantissa * 2**20), exponent - 20)
