"""The planner: from what a user knows to the plan with the smallest predicted error.

It reads the reference and public numbers, nothing else: no parameter can depend on private data.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

import numpy as np

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import (
    Forecast,
    NoisyRound,
    forecast_noisy,
    judge_release,
    mean_error,
    release_mechanism,
    smallest_noisy_drift,
)
from fedprikl.planning.design import (
    DRIFTS,
    EXPONENTS,
    Design,
    DesignForecast,
    DesignMoments,
    forecast_design,
    sampling_errors,
    search_designs,
)
from fedprikl.planning.explain import Reason, common_reasons, design_reasons
from fedprikl.planning.planned_round import PlannedRound, SumCost
from fedprikl.planning.power import smallest_drift
from fedprikl.planning.release_budget import ReleaseBudget, split_budget
from fedprikl.planning.spectrum import Spectrum
from fedprikl.privacy import SharedLaplaceMechanism
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes, noise_share, plan_cohort
from fedprikl.reference import QueryPoints, Reference, spread_points

__all__ = ["Trust", "noisy_round", "plan_round"]

Trust = Literal["aggregator", "none"]
BATCHES = (1, 2, 4, 8, 16, 32, 64)
COHORT = 50  # clients of a secure sum with a trusted aggregator
LARGEST_COHORT = 5000  # without one, each cohort carries its own noise: as few as possible
MOST_POINTS = 1000  # what clients accept by default
ROOM = 16  # times the average number of records that one client may hold
PRECISION = 1e-3  # of the smallest drift, relative
SEED = 0  # of the points that a prediction is made for; a round draws its own


def plan_round(
    reference: Reference,
    *,
    clients: int,
    records: int,
    epsilon: float,
    delta: float = 1e-6,
    payload: int = 1024,
    trust: Trust = "aggregator",
    releases: int = 1,
    population: str = "clients",
    skew: float = 0.01,
    most_records: int | None = None,
    cohort: int | None = None,
    false_alarm: float = 0.01,
    design_effect: float | None = None,
    threshold: float | None = None,
    aggregator: str = "",
    roster: str = "",
) -> PlannedRound:
    """The plan with the smallest predicted error that sends at most `payload` bytes of counts.

    `epsilon` and `delta` are for all `releases` together. `most_records` is the largest number of
    records one client may hold (default: 16 times the average); a client with more stays away.
    `design_effect` says how much records of one client resemble each other; by default what the
    reference shows, or 1. `aggregator` is the key that answers are sealed to, where a relay carries
    them, `roster` the fingerprint of the clients who may take part. Cost: about a second, whatever
    the domain.

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([500, 300, 200])
    >>> small = fk.plan(reference, clients=100, records=10_000, epsilon=0.5)
    >>> large = fk.plan(reference, clients=100, records=10_000, epsilon=2.0)
    >>> large.error < small.error  # noise falls as 1 / epsilon
    True
    """
    for value, name in ((clients, "clients"), (records, "records"), (payload, "payload")):
        check_positive_int(value, name)
    if trust not in get_args(Trust):
        raise InvalidInputError(f"Trust is 'aggregator' or 'none', got {trust!r}.")
    if clients < 3:
        raise InvalidInputError("A secure sum needs at least 3 clients, or it hides nobody.")
    client_effect = design_effect or 1.0
    if design_effect is None:
        design_effect = reference.design_effect(clients=clients, records=records)
        if reference.correlation is not None:
            client_effect = reference.correlation.design_effect(clients=clients, records=records)
    alone = trust == "none"
    budget = split_budget(epsilon=epsilon, delta=delta, releases=releases)
    if alone:  # charged one by one, so epsilon and delta are shared out
        budget = replace(budget, epsilon=epsilon / releases)
    draft = Plan(
        population=population,
        reference=reference.fingerprint,
        epsilon=budget.epsilon,
        delta=delta / releases if alone else delta,
        points=1,
        estimator="baseline" if alone else "exact",
        skew=skew,
        noise="auto" if alone else budget.noise,
        cohort=max(3, min(clients, cohort or (LARGEST_COHORT if alone else COHORT))),
        most_records=most_records or _room(records / clients),
        false_alarm=false_alarm,
        design_effect=design_effect,
        client_effect=client_effect,
        threshold=threshold,
        aggregator=aggregator,
        roster=roster,
        releases=releases,
        budget_epsilon=epsilon,
        budget_delta=delta,
    )
    asked = _Asked(reference, Spectrum.of(reference.probabilities), clients, records, payload)
    if alone:
        return _plan_alone(asked, draft, releases)
    return _plan_trusted(asked, draft, budget, releases)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What the user said. Public."""

    reference: Reference
    spectrum: Spectrum
    clients: int
    records: int
    payload: int

    def points_that_fit(self, plan: Plan) -> int:
        """The most points whose counts, packed, fit into the payload."""
        sums = plan_cohort(plan, self._largest_cohort(plan), 1)
        first, *others = ((top * sums.clients).bit_length() for top in sums.maxima)
        points = (8 * self.payload - sum(others)) // first
        if points < 1:
            raise InvalidInputError(
                f"A payload of {self.payload} bytes has no room for a count of {first} bits beside "
                "the number of records. Allow more bytes, or lower most_records."
            )
        return min(points, self.spectrum.cells, MOST_POINTS)

    def cost(self, plan: Plan) -> SumCost:
        """Of the secure sums of this plan."""
        sums = plan_cohort(plan, self._largest_cohort(plan), plan.points)
        members = self.clients // plan.batches
        return SumCost.of(sums, plan.batches * len(cohort_sizes(plan, members)))

    def _largest_cohort(self, plan: Plan) -> int:
        return max(cohort_sizes(plan, math.ceil(self.clients / plan.batches)))

    def noisy_round(self, plan: Plan) -> NoisyRound:
        """What a round without a trusted party would release."""
        return noisy_round(self.reference, plan, clients=self.clients, records=self.records)


def noisy_round(
    reference: Reference,
    plan: Plan,
    *,
    clients: int,
    records: int,
    points: QueryPoints | None = None,
) -> NoisyRound:
    """A round without a trusted party in which every client stays, on some `points` of the plan."""
    if points is None:
        points = spread_points(
            reference.probabilities,
            plan.points,
            batches=1,
            exponent=plan.exponent,
            rng=np.random.default_rng(SEED),
        )
    variance, scale = 0.0, None
    for size in cohort_sizes(plan, clients):
        minimum = plan_cohort(plan, size, plan.points).minimum
        share = noise_share(plan, clients=size, minimum=minimum)
        if isinstance(share, SharedLaplaceMechanism):
            scale = share.scale
        variance += 0.0 if share is None else size * share.share_variance
    return NoisyRound(points, records=records, noise_sd=math.sqrt(variance), laplace_scale=scale)


def _plan_trusted(asked: _Asked, draft: Plan, budget: ReleaseBudget, releases: int) -> PlannedRound:
    """With a trusted aggregator: all designs are searched."""
    searched = _search(asked, draft, budget)
    best = _best(asked, draft, budget, searched)
    design = best.design
    plan = replace(
        draft,
        points=design.points,
        batches=design.batches,
        exponent=design.exponent,
        maximum_step=None if design.maximum_step == math.inf else design.maximum_step,
    )

    def doublings() -> dict[str, float]:
        wider = replace(asked, payload=2 * asked.payload)
        quieter = replace(budget, gain=budget.gain / 2)
        return {
            "payload": _best(wider, draft, budget).error,
            "epsilon": _best(
                asked, draft, quieter, [each.with_noise(0.5) for each in searched]
            ).error,
        }

    return PlannedRound(
        plan=plan,
        releases=releases,
        forecasts=best.forecasts,
        cost=asked.cost(plan),
        find_smallest=cache(lambda: _smallest_drift(asked, plan, design)),
        find_doublings=cache(doublings),
        reasons=(
            *common_reasons(
                plan,
                budget=budget,
                releases=releases,
                support=asked.spectrum.cells,
                most_points=MOST_POINTS,
            ),
            *design_reasons(best, searched),
        ),
    )


def _search(asked: _Asked, draft: Plan, budget: ReleaseBudget) -> list[DesignForecast]:
    points = {
        batches: asked.points_that_fit(replace(draft, batches=batches))
        for batches in BATCHES
        if batches == 1 or asked.clients // batches >= draft.cohort
    }
    return search_designs(
        asked.spectrum,
        records=asked.records,
        points=points,
        noise_gain=budget.gain,
        gamma=draft.skew,
        client_effect=draft.client_effect,
    )


def _best(
    asked: _Asked,
    draft: Plan,
    budget: ReleaseBudget,
    searched: list[DesignForecast] | None = None,
) -> DesignForecast:
    """The winner of the search, its errors predicted anew."""
    found = searched or _search(asked, draft, budget)
    return forecast_design(
        asked.spectrum,
        min(found, key=lambda each: each.error).design,
        records=asked.records,
        noise_gain=budget.gain,
        gamma=draft.skew,
        client_effect=draft.client_effect,
    )


def _smallest_drift(asked: _Asked, plan: Plan, design: Design) -> float | None:
    """The least drift found with 95% power.

    The alarm is the verdict's own, for points drawn like those of a round. How a drifted population
    spreads is predicted from moments: its spread is that of records in groups, as the verdict has
    them, its mean that of unrelated records. Groups leave cells empty, which raises the mean;
    clients are less lumpy than groups, and a plan must not count on it.
    """
    points = spread_points(
        asked.reference.probabilities,
        plan.points,
        batches=plan.batches,
        exponent=plan.exponent,
        rng=np.random.default_rng(SEED),
    )
    records = np.full(plan.batches, max(1, asked.records // plan.batches))
    noise = release_mechanism(
        points,
        records,
        epsilon=plan.epsilon,
        delta=plan.delta,
        score=plan.score,
        calibration="exact",
        noise=plan.noise,
    )
    alarm = judge_release(
        0.0,
        plan.false_alarm,
        plan.design_effect,
        noise=noise,
        points=points,
        records=records,
        score=plan.score,
    ).threshold
    actual = DesignMoments.of(
        asked.spectrum,
        design,
        records=asked.records,
        gamma=plan.skew,
        client_effect=plan.client_effect,
    )
    grouped = actual.in_groups(plan.design_effect)

    def moments(divergence: float) -> tuple[float, float]:
        return actual(divergence)[0], grouped(divergence)[1]

    largest = 0.85 * -math.log(plan.skew)
    return smallest_drift(moments, noise, alarm, largest=largest, precision=PRECISION)


def _plan_alone(asked: _Asked, draft: Plan, releases: int) -> PlannedRound:
    """Without a trusted party: one batch, cohorts as large as can be."""
    points = asked.points_that_fit(draft)
    exponents = EXPONENTS if points < asked.spectrum.cells else (1.0,)
    options = [replace(draft, points=points, exponent=exponent) for exponent in exponents]
    forecasts = {option: _forecast_alone(asked, option) for option in options}
    plan = min(options, key=lambda option: mean_error(forecasts[option]))

    def doublings() -> dict[str, float]:
        wider = replace(asked, payload=2 * asked.payload)
        with_more = replace(plan, points=wider.points_that_fit(plan))
        richer = replace(plan, epsilon=2 * plan.epsilon)
        return {
            "payload": mean_error(forecasts.get(with_more) or _forecast_alone(asked, with_more)),
            "epsilon": mean_error(_forecast_alone(asked, richer)),
        }

    return PlannedRound(
        plan=plan,
        releases=releases,
        forecasts=forecasts[plan],
        cost=asked.cost(plan),
        find_smallest=cache(
            lambda: smallest_noisy_drift(
                asked.noisy_round(plan),
                gamma=plan.skew,
                false_alarm=plan.false_alarm,
                design_effect=plan.design_effect,
            )
        ),
        find_doublings=cache(doublings),
        reasons=(
            *common_reasons(
                plan,
                budget=None,
                releases=releases,
                support=asked.spectrum.cells,
                most_points=MOST_POINTS,
            ),
            Reason("batches", "1", "each further batch would carry noise of its own"),
            Reason(
                "cohort",
                f"{plan.cohort:,}",
                "as many clients in one secure sum as can be, because each sum carries its noise",
            ),
            Reason(
                "noise",
                plan.noise,
                "Laplace or Gaussian shares, whichever is smaller; added by the clients themselves",
            ),
        ),
    )


def _forecast_alone(asked: _Asked, plan: Plan) -> tuple[Forecast, ...]:
    sampling = sampling_errors(
        asked.spectrum, points=plan.points, exponent=plan.exponent, gamma=plan.skew
    )
    this = asked.noisy_round(plan)
    return forecast_noisy(this, gamma=plan.skew, drifts=DRIFTS, sampling=sampling)


def _room(average: float) -> int:
    """A generous number of records for one client, of the form 2^k - 1: it costs k bits."""
    return int(max(255, 2 ** math.ceil(math.log2(ROOM * average + 1)) - 1))
