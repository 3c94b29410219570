"""The budget of all planned releases, and of all parts of one: what each may spend."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from fedprikl.checks import check_delta, check_epsilon, check_positive_int
from fedprikl.planning.known import Known
from fedprikl.planning.simulated_round import least
from fedprikl.privacy import (
    AUTOMATIC,
    AccountedRelease,
    Calibrated,
    Charge,
    Mechanism,
    Numbers,
    calibrate,
    total_epsilon,
)
from fedprikl.protocol.answering import expected_noise
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.sums import NoisyHistogram, trust_of

STEPS = 13  # of the bisection: four digits
# Of the budget, kept free: the ledger may lie on another processor, whose convolutions differ by
# 1e-8 at a delta of 1e-9. Without it the last planned release could be refused there.
STEADY = 1e-6


@lru_cache(maxsize=64)
def split_budget(*, epsilon: float, delta: float, releases: int = 1) -> Calibrated:
    """The noise of one number that is smallest, if `releases` of them fit into (epsilon, delta).

    One Laplace release has a third of the Gaussian's deviation at (1, 1e-6); Gaussian noise
    composes better, and wins for many releases. Totals are those that the ledger will charge.
    """

    def best(law: str) -> Calibrated:
        def charge(share: float) -> Mechanism:
            return calibrate(Numbers(), epsilon=share, delta=delta, law=law)

        share = largest_epsilon(charge, epsilon=epsilon, delta=delta, releases=releases)
        return Calibrated(Numbers(), share, delta, law)

    return least(map(best, AUTOMATIC), lambda found: found.noise.standard_deviation)


def largest_epsilon(
    charge: Callable[[float], Charge],
    *,
    epsilon: float,
    delta: float,
    releases: int,
    parts: int = 1,
) -> float:
    """The largest epsilon of one release of which `releases` fit into (epsilon, delta).

    `charge` says what a release with this epsilon costs: of one number or of several, with whatever
    noise. Where a release has several `parts`, it is what their epsilons add up to. The total is
    the ledger's own.

    >>> one = largest_epsilon(
    ...     lambda share: calibrate(Numbers(), epsilon=share, law="laplace"),
    ...     epsilon=1.0,
    ...     delta=1e-6,
    ...     releases=4,
    ... )
    >>> 0.2499 < one < 0.3
    True
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if check_positive_int(releases, "releases") == parts == 1:
        return epsilon

    def excess(share: float) -> float:
        total = total_epsilon([charge(share)] * releases, delta=delta)
        return math.log(total / epsilon) if total > 0 else -math.inf

    low, high = epsilon / releases * (1 - 1e-9), epsilon * parts
    if (above := excess(high)) <= -STEADY:
        return high
    while (below := excess(low)) > 0:  # each release may spend delta too: a share can be too much
        low /= 2
    # A sum of shares, `low`, has no convolution: it fits everywhere, whatever is kept free.
    found = min(below, -STEADY) + STEADY, above + STEADY
    return _last_that_fits(lambda share: excess(share) + STEADY, (low, high), found)


def _last_that_fits(
    excess: Callable[[float], float], ends: tuple[float, float], found: tuple[float, float]
) -> float:
    """Where a bisection of the logarithm ends. An excess costs tens of milliseconds, and is nearly
    a line: so the next place to look at is where the line through two of them vanishes.
    """
    (first, last), (below, above), rose = (0, 2**STEPS), found, None
    while last - first > 1:
        share = below / (below - above) if math.isfinite(below - above) else 0.5
        guess = min(max(first + round((last - first) * share), first + 1), last - 1)
        value = excess(_bisected(ends, guess))
        fits = value <= 0
        # An end that stays twice counts half: a curve would be approached from one side only.
        half = 0.5 if fits is rose else 1.0
        if fits:
            first, below, above = guess, value, above * half
        else:
            last, below, above = guess, below * half, value
        rose = fits
    return _bisected(ends, first)


def _bisected(ends: tuple[float, float], place: int) -> float:
    """The lower end after so many halvings of the ratio of two ends; `place` says which halves."""
    low, high = ends
    for step in reversed(range(STEPS)):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if place >> step & 1 else (low, middle)
    return low


def fitted(plan: Plan, cohorts: Sequence[int] = ()) -> Plan:
    """The plan whose releases, with all their parts, spend its budget as far as possible.

    The epsilons of the parts are calibrated together: what all parts of all releases cost together
    is the plan's total.
    """

    def charge(epsilon: float) -> Charge:
        return trust_of(plan.changed(epsilon=epsilon, parts=1.0)).charge(cohorts)

    (total, delta), releases = plan.budget.total, plan.budget.releases
    parts = 1 if plan.trust == "none" else len(plan.groups)
    summed = largest_epsilon(charge, epsilon=total, delta=delta, releases=releases, parts=parts)
    own = total if releases == 1 else summed
    if releases > 1 and parts > 1:
        alone = total_epsilon([charge(summed)], delta=plan.budget.delta)
        own = min(summed, float(f"{alone * (1 + 2 * STEADY):.9g}"))  # as on other processors
    return plan.changed(epsilon=own, parts=max(1.0, math.floor(1e5 * summed / own) / 1e5))


def afforded(plan: Plan) -> Plan:
    """The same with the noise that is smaller, where the aggregator is trusted."""
    return least((fitted(plan.with_noise(noise)) for noise in AUTOMATIC), _noise_size)


def _noise_size(plan: Plan) -> float:
    """Of the first answer and of a column's counts: to compare plans that differ in noise only."""
    trust, found = trust_of(plan), 0.0
    assert not isinstance(trust, NoisyHistogram)  # noqa: S101  the aggregator adds the noise
    if plan.points:
        law = trust.noise_of(plan.question).law
        found = law.noise.standard_deviation if isinstance(law, Calibrated) else 1 / law.epsilon
    if plan.columns:
        found += trust.column_counts.standard_deviation
    return found


def shared_evenly(plan: Plan) -> Plan:
    """The plan with an even share of its budget for each release, as noise shares are charged."""
    (total, delta), releases = plan.budget.total, plan.budget.releases
    return plan.changed(epsilon=total / releases, delta=delta / releases)


def shared_over_time(known: Known, plan: Plan) -> Plan:
    """The plan of a series without a trusted party: an even share for each release of a unit.

    Gaussian shares of many releases compose better where rho is known, as for whole clients.
    """
    even = shared_evenly(plan)
    if plan.unit.kind == "record" or plan.budget.releases == 1:
        return even
    cohorts, gaussian = cohort_sizes(plan, known.clients), plan.with_noise("gaussian")
    first = gaussian.changed(epsilon=even.budget.epsilon)
    if isinstance(trust_of(first).charge(cohorts), AccountedRelease):
        return even
    return least(
        (even, fitted(gaussian, cohorts)),
        lambda each: expected_noise(NoisyHistogram(each), cohorts).sd,
    )
