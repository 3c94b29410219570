"""What is recorded: one function per case, all of it computed from fixed seeds.

A refactoring may change the calls below, and nothing else: neither the keys of what is returned nor
the numbers in values.json. Keys say what a number is, whatever the code calls it.
"""

import itertools
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from fedprikl import InsecureSeededNoise, Reference
from fedprikl.checks import Floats
from fedprikl.divergence import (
    Additive,
    Floor,
    Score,
    Skew,
    skewed_divergence,
)
from fedprikl.documents import to_plain
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import (
    BatchCounts,
    Estimate,
    NoisyCounts,
    Verdict,
    score_sensitivity,
    trusted_aggregator,
)
from fedprikl.estimation.drift_model import fit_drift
from fedprikl.estimation.scoring import increments_per_batch
from fedprikl.paper import (
    baseline,
    classic_constant,
    no_privacy,
    paper_noise_gain,
    paper_term_sensitivity,
    paper_true_epsilon,
    printed_aggregator,
)
from fedprikl.planning import (
    DesignForecast,
    Spectrum,
    search_designs,
)
from fedprikl.planning.budget import split_budget
from fedprikl.planning.design import ErrorParts
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.planner import plan_round
from fedprikl.privacy import (
    AccountedRelease,
    Charge,
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    LaplaceMechanism,
    Ledger,
    Numbers,
    PrivacyStatement,
    SharedCounts,
    calibrate,
    exact_sensitivity,
    rounding_slack,
    terms_sensitivity,
    total_epsilon,
    worst_substitution,
)
from fedprikl.privacy.composition import largest_fitting_epsilon
from fedprikl.privacy.shares import SharedGaussianMechanism, SharedLaplaceMechanism
from fedprikl.protocol import (
    Client,
    Plan,
    Question,
    RoundResult,
    Server,
    SignedPlan,
    run_round,
    trust_of,
)
from fedprikl.reference import QueryPoints, distinct_points, iid_points, spread_points
from fedprikl.secure_sum import Leaves
from tests.protocol.worlds import AT, World, budgeted

Case = Callable[[], dict[str, Any]]
EPSILON, DELTA = 1.0, 1e-6
KINDS: tuple[Any, ...] = ("auto", "laplace", "gaussian")
RELEASED: tuple[Any, ...] = ("terms", "mean")
TRUSTS: tuple[Any, ...] = ("aggregator", "none")


# What is recorded of each kind of object.


def show_estimate(found: Estimate, *, groups: bool = True) -> dict[str, Any]:
    judged = found.statistic is not None
    return {
        "value": found.value,
        "interval": found.interval,
        "noise_sd": found.noise_sd,
        "counts_per_client": found.payload,
        "verdict": show_verdict(found.verdict()) if judged else None,
        "verdict_with_groups": show_verdict(found.verdict(0.05, spread=3.0))
        if judged and groups
        else None,
        "privacy": show_privacy(found.privacy),
    }


def show_verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "statistic": verdict.statistics[0].value,
        "threshold": verdict.statistics[0].threshold,
        "drifted": verdict.drifted,
        "false_alarm": verdict.false_alarm,
        "design_effect": verdict.design_effect,
    }


def show_privacy(statement: PrivacyStatement) -> dict[str, Any]:
    return {
        "true_epsilon": statement.epsilon,
        "claimed_epsilon": statement.claimed_epsilon,
        "delta": statement.delta,
        "sensitivity": statement.sensitivity,
        "insecure": statement.insecure,
        "holds": statement.holds,
    }


def show_mechanism(mechanism: Any) -> dict[str, Any]:
    """Of noise that one party adds."""
    kinds: dict[type[Any], tuple[str, str, str]] = {
        LaplaceMechanism: ("laplace", "scale", "sensitivity"),
        GaussianMechanism: ("gaussian", "sigma", "sensitivity"),
        IntegerLaplaceMechanism: ("integer laplace", "scale", "coordinates"),
        IntegerGaussianMechanism: ("integer gaussian", "sigma", "coordinates"),
    }
    kind, noise, reach = kinds[type(mechanism)]
    return {
        "kind": kind,
        "noise": getattr(mechanism, noise),
        "reach": getattr(mechanism, reach),
        "standard_deviation": mechanism.standard_deviation,
        "epsilon": {f"{delta:g}": mechanism.epsilon(delta) for delta in (1e-4, 1e-6, 1e-9)},
        "words": str(mechanism),
    }


def show_shared(mechanism: SharedLaplaceMechanism | SharedGaussianMechanism) -> dict[str, Any]:
    """Of noise that clients add in shares."""
    laplace = isinstance(mechanism, SharedLaplaceMechanism)
    return {
        "kind": "laplace" if laplace else "gaussian",
        "noise": mechanism.scale
        if isinstance(mechanism, SharedLaplaceMechanism)
        else mechanism.sigma,
        "shares": mechanism.on.shares,
        "failure": mechanism.on.failure,
        "standard_deviation": mechanism.standard_deviation,
        "share_variance": mechanism.share_variance,
        "sensitivity": mechanism.sensitivity,
        "largest_share": mechanism.reach,
        "epsilon": {f"{delta:g}": mechanism.epsilon(delta) for delta in (1e-4, 1e-6)},
        "charge": show_charge(mechanism.charge(1e-4)),
        "draw": mechanism.draw_share(5, InsecureSeededNoise(4)),
        "words": str(mechanism),
    }


def show_charge(charge: Charge) -> dict[str, Any]:
    """What a ledger writes down."""
    if isinstance(charge, AccountedRelease):
        return {
            "kind": "accounted",
            "epsilon": charge.proved_epsilon,
            "delta": charge.proved_delta,
        }
    if isinstance(charge, LaplaceMechanism):
        return {"kind": "laplace", "noise": charge.scale, "sensitivity": charge.sensitivity}
    if isinstance(charge, GaussianMechanism):
        return {"kind": "gaussian", "noise": charge.sigma, "sensitivity": charge.sensitivity}
    assert isinstance(charge, IntegerGaussianMechanism)
    return {"kind": "integer gaussian", "noise": charge.sigma, "moved": charge.coordinates}


def show_forecast(forecast: ErrorParts) -> dict[str, Any]:
    return {
        "divergence": forecast.divergence,
        "error": forecast.error,
        "sampling": forecast.sampling,
        "bias": forecast.bias,
        "spread": forecast.spread,
        "noise": forecast.noise_sd,
    }


def show_design(found: DesignForecast) -> dict[str, Any]:
    return {
        "points": found.design.points,
        "batches": found.design.batches,
        "exponent": found.design.exponent,
        "largest_step": found.design.maximum_step,
        "error": found.error,
        "forecasts": [show_forecast(each) for each in found.forecasts],
    }


# 1. Estimators: from counts to a released number.


def zipf(cells: int) -> Floats:
    mass = 1 / np.arange(1.0, cells + 1)
    probabilities: Floats = mass / mass.sum()
    return probabilities


def drawn_counts(points: QueryPoints, *, cells: int, records: int) -> BatchCounts:
    """Records of a population that has drifted, dealt to the batches."""
    rng = np.random.default_rng(11)
    mass = zipf(cells) * rng.gamma(2.0, 0.5, cells)
    held = rng.multinomial(records // points.batches, mass / mass.sum(), points.batches)
    return BatchCounts(points, held[points.batch, points.cells], held.sum(axis=1))


def spread_counts(batches: int) -> BatchCounts:
    points = spread_points(zipf(40), 14, batches=batches, rng=np.random.default_rng(5))
    return drawn_counts(points, cells=40, records=6000)


def iid_counts(batches: int = 3) -> BatchCounts:
    points = iid_points(zipf(40), 9, batches=batches, rng=np.random.default_rng(6))
    return drawn_counts(points, cells=40, records=6000)


def distinct_counts() -> BatchCounts:
    points = distinct_points(zipf(40), 8, batches=2, rng=np.random.default_rng(7))
    return drawn_counts(points, cells=40, records=6000)


def trusted(noise: Any, batches: int) -> dict[str, Any]:
    """With and without a limit on a record's step, clients whose records are alike or not."""
    return {
        f"limit {limit:g}, client effect {effect:g}": show_estimate(
            trusted_aggregator(
                spread_counts(batches),
                epsilon=EPSILON,
                delta=DELTA,
                score=Score(Skew(0.01), correction=effect, maximum_step=limit),
                noise=noise,
                client_effect=effect,
                source=InsecureSeededNoise(21),
            ),
            groups=effect > 1 and limit < math.inf,
        )
        for limit, effect in itertools.product((math.inf, 0.02), (1.0, 2.5))
    }


def trusted_defaults() -> dict[str, Any]:
    """What is released if only epsilon is said, and other smoothings and designs."""
    source = InsecureSeededNoise(22)
    return {
        "spread": show_estimate(trusted_aggregator(spread_counts(2), epsilon=0.3, source=source)),
        "i.i.d.": show_estimate(trusted_aggregator(iid_counts(), epsilon=2.0, source=source)),
        "distinct, additive": show_estimate(
            trusted_aggregator(
                distinct_counts(),
                epsilon=1.0,
                score=Score(Additive(0.5, 40), control=0.3),
                source=source,
            )
        ),
        "distinct, floor": show_estimate(
            trusted_aggregator(
                distinct_counts(), epsilon=1.0, score=Score(Floor(0.001)), source=source
            )
        ),
    }


def paper_calibration(released: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PaperCalibrationWarning)
        found = {
            f"{batches} batches, control {control:g}": printed_aggregator(
                iid_counts(batches),
                epsilon=EPSILON,
                delta=DELTA,
                score=Score(control=control),
                released=released,
                source=InsecureSeededNoise(23),
            )
            for batches, control in itertools.product((1, 3), (0.0, 0.5))
        }
    return {name: show_estimate(each) for name, each in found.items()}


def baseline_exact(noise: Any) -> dict[str, Any]:
    skewed: dict[str, Any] = {"score": Score(Skew(0.02))}
    return {
        name: show_estimate(
            baseline(
                counts,
                epsilon=0.5,
                delta=DELTA,
                noise=noise,
                source=InsecureSeededNoise(24),
                **more,
            )
        )
        for name, counts, more in (
            ("i.i.d.", iid_counts(), {}),
            ("distinct, skew", distinct_counts(), skewed),
        )
    }


def baseline_paper() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PaperCalibrationWarning)
        found = baseline(
            iid_counts(), epsilon=0.5, calibration="paper", source=InsecureSeededNoise(25)
        )
    return show_estimate(found)


def without_privacy() -> dict[str, Any]:
    return {
        "i.i.d.": show_estimate(no_privacy(iid_counts())),
        "spread, corrected": show_estimate(
            no_privacy(spread_counts(4), score=Score(correction=1.0))
        ),
        "i.i.d., control 1": show_estimate(no_privacy(iid_counts(), score=Score(control=1.0))),
    }


# 2. Mechanisms: noise, sensitivities, composition.


def mechanisms(on: Counts | Numbers) -> dict[str, Any]:
    return {
        f"epsilon {epsilon:g}, delta {delta:g}, {kind}": show_mechanism(
            calibrate(on, epsilon=epsilon, delta=delta, law=kind)
        )
        for (epsilon, delta), kind in itertools.product(
            ((0.1, 1e-9), (1.0, 1e-6), (6.0, 1e-4)), KINDS
        )
    }


def shared_mechanisms() -> dict[str, Any]:
    return {
        f"epsilon {epsilon:g}, delta {delta:g}, {shares} shares, {kind}": show_shared(
            calibrate(
                SharedCounts(shares=shares, failure=failure), epsilon=epsilon, delta=delta, law=kind
            )
        )
        for (epsilon, delta, shares, failure), kind in itertools.product(
            ((0.5, 1e-6, 30, 0.0), (1.0, 1e-6, 200, 1e-12), (6.0, 1e-4, 5, 0.0)), KINDS
        )
    }


def some_charges() -> dict[str, list[Charge]]:
    laplace = calibrate(Numbers(), epsilon=0.3, delta=1e-6, law="laplace")
    other = calibrate(Numbers(0.2), epsilon=0.1, delta=1e-6, law="laplace")
    gaussian = calibrate(Numbers(2.0), epsilon=0.5, delta=1e-7, law="gaussian")
    integer = IntegerGaussianMechanism(sigma=12.0, coordinates=2)
    accounted = AccountedRelease(proved_epsilon=0.25, proved_delta=2e-7)
    return {
        "none": [],
        "laplace": [laplace],
        "gaussian": [gaussian],
        "integer": [integer],
        "accounted": [accounted, accounted],
        "three laplace": [laplace] * 3,
        "ten laplace and another": [*[laplace] * 10, other],
        "four gaussian": [gaussian] * 4,
        "laplace and gaussian": [laplace, gaussian, gaussian],
        "integer and gaussian": [integer, gaussian],
        "all kinds": [laplace, laplace, other, gaussian, integer, integer, accounted],
    }


def composition() -> dict[str, Any]:
    return {
        f"{name}, delta {delta:g}": total_epsilon(charges, delta=delta)
        for name, charges in some_charges().items()
        for delta in (0.0, 1e-6, 1e-5)
    }


def fitting() -> dict[str, Any]:
    charges = some_charges()
    found: dict[str, Any] = {}
    kinds: tuple[tuple[str, Any], ...] = (
        ("none", "laplace"),
        ("none", "gaussian"),
        ("laplace", "laplace"),
        ("four gaussian", "gaussian"),
        ("accounted", "gaussian"),
    )
    for name, kind in kinds:
        fits = largest_fitting_epsilon(charges[name], epsilon=1.5, delta=1e-5, law=kind)
        found[f"{kind} after {name}"] = fits
    for releases in (1, 3):
        share = split_budget(epsilon=1.0, delta=1e-6, releases=releases)
        found[f"{releases} releases"] = {
            "kind": share.law,
            "epsilon": share.epsilon,
            "noise_per_sensitivity": share.noise.standard_deviation,
        }
    return found


def sensitivities() -> dict[str, Any]:
    return {
        f"{design}, {name}": show_sensitivity(counts, score)
        for design, counts in (
            ("i.i.d.", iid_counts()),
            ("distinct", distinct_counts()),
            ("spread", spread_counts(4)),
        )
        for name, score in (
            ("skew", Score()),
            ("corrected", Score(Skew(0.05), correction=1.0)),
            ("control", Score(control=0.7)),
            ("limited", Score(correction=2.0, maximum_step=0.01)),
            ("additive", Score(Additive(1.0, 40))),
            ("floor", Score(Floor(0.001), control=-1.0)),
        )
    }


def show_sensitivity(counts: BatchCounts, score: Score) -> dict[str, Any]:
    points, records = counts.points, counts.records
    batches = increments_per_batch(points, records, score)
    worst = worst_substitution(batches)
    draws = [points.draws[points.batch == t] for t in range(points.batches)]
    return {
        "released": score_sensitivity(points, records, score),
        "exact": exact_sensitivity(batches),
        "every_term": terms_sensitivity(batches, draws),
        "batch": worst.batch,
        "gaining": worst.gaining,
        "gains_at": worst.gain_at,
        "losing": worst.losing,
        "loses_at": worst.lose_at,
    }


def paper_formulas() -> dict[str, Any]:
    return {
        "constant": [classic_constant(delta) for delta in (1e-3, 1e-6)],
        "gain": paper_noise_gain(epsilon=0.7, delta=1e-6, batches=4),
        "term": paper_term_sensitivity(control=-0.6, records=5000, pi_min=0.003),
        "rounding": rounding_slack(17.3),
        "true_epsilon": {
            f"{released}, repeated {repeated}": paper_true_epsilon(
                epsilon=0.5,
                delta=1e-6,
                points=20,
                batches=5,
                released=released,
                repeated=repeated,
            )
            for released, repeated in itertools.product(RELEASED, (False, True))
        },
    }


# 3. Divergence: scores, exact values, what drift is expected to look like.


def scores() -> dict[str, Any]:
    counts, pi = np.array([0, 1, 2, 7, 40, 250]), np.array([0.1, 0.003, 0.01, 0.2, 0.05, 0.4])
    records = np.array([500, 500, 800, 1000, 1000, 900])
    found = {}
    for name, score in (
        ("skew", Score()),
        ("skew, control", Score(Skew(0.05), control=0.4)),
        ("corrected", Score(correction=1.0)),
        ("corrected for groups", Score(Skew(0.02), correction=3.0)),
        ("limited", Score(correction=1.0, maximum_step=0.05)),
        ("additive", Score(Additive(0.5, 30), control=-0.2)),
        ("floor", Score(Floor(0.004), control=-1.0)),
        ("unsmoothed", Score(Skew(0.0), control=1.0)),
    ):
        bounded = score.finite
        extremes = score.extreme_increments(pi, records, outside=0.6, weights=0.8)
        found[name] = {
            "target": score.target,
            "values": score(counts, pi, records),
            "values_of_samples": score(counts, pi, records, outside=0.75, weights=0.3),
            "ratios": score.ratio(counts, pi, records),
            "increments": score.increments(counts + 1, pi, records, outside=0.75, weights=0.3),
            "bounds": score.bound(pi, records) if bounded else None,
            "lowest": extremes.lowest,
            "lowest_at": extremes.lowest_at,
            "highest": extremes.highest,
            "highest_at": extremes.highest_at,
        }
    return found


def exact_divergences() -> dict[str, Any]:
    pi, other = zipf(12), zipf(12)[::-1]
    near, gap = pi * (1 + 1e-6 * np.cos(np.arange(12))), np.where(np.arange(12) == 3, 0.0, pi)
    near, gap = near / near.sum(), gap / gap.sum()
    return {
        name: {
            "plain": skewed_divergence(pi, second, skew=0.0),
            "reversed": skewed_divergence(second, pi, skew=0.0),
            "skewed": [skewed_divergence(pi, second, skew=skew) for skew in (0.001, 0.01, 0.2)],
        }
        for name, second in (("same", pi), ("other", other), ("near", near), ("gap", gap))
    }


def drift_fits() -> dict[str, Any]:
    found = {}
    for cells, divergence, gamma in itertools.product(
        (9, 700), (0.0, 0.02, 0.5, 3.0), (0.01, 0.03)
    ):
        pi = zipf(cells)
        drift = fit_drift(pi, pi, divergence=divergence, score=Score(Skew(gamma)))
        found[f"{cells} cells, {divergence:g} nats, skew {gamma:g}"] = {
            "rarity": drift.rarity,
            "shape": drift.alpha,
            "quantiles": drift.ratios(pi[:5], np.array([0.02, 0.2, 0.5, 0.9, 0.999])),
        }
    return found


def design_search() -> dict[str, Any]:
    searched = search_designs(
        Spectrum.of(zipf(400)),
        records=20_000,
        points={1: 30, 4: 25},
        noise_per_sensitivity=1.4,
        score=Score(correction=1.5),
        client_effect=1.5,
    )
    return {
        "errors": [each.error for each in searched],
        "best": show_design(min(searched, key=lambda each: each.error)),
    }


# 4. Planner: from what a user knows to a plan.


def table_reference() -> Reference:
    rng = np.random.default_rng(31)
    frame = pl.DataFrame(
        {
            "city": [f"c{x}" for x in rng.integers(0, 6, 400)],
            "tariff": rng.choice(["a", "b", "c"], 400, p=[0.6, 0.3, 0.1]).tolist(),
            "age": rng.integers(18, 80, 400),
        }
    )
    return Reference.fit(frame, bins=3)


def related_reference() -> Reference:
    """Records of one client are alike."""
    rng = np.random.default_rng(32)
    client, favourite = np.repeat(np.arange(60), 8), rng.integers(0, 12, 60)
    cell = np.where(rng.random(480) < 0.4, favourite[client], rng.integers(0, 12, 480))
    frame = pl.DataFrame({"user": client, "cell": [f"k{x}" for x in cell]})
    return Reference.fit(frame, client="user")


REFERENCES: dict[str, tuple[Callable[[], Reference], dict[str, Any]]] = {
    "dense": (
        lambda: Reference.from_counts([30, 20, 15, 12, 9, 6, 4, 3, 1]),
        {"clients": 40, "records": 4000},
    ),
    "long tail": (
        lambda: Reference.from_probabilities(zipf(5000)),
        {"clients": 1000, "records": 50_000, "payload": 120},
    ),
    "table": (
        table_reference,
        {"clients": 200, "records": 6000, "payload": 60, "ask": ("kl", "tv", "js")},
    ),
    "table with columns": (table_reference, {"clients": 200, "records": 6000}),
    "related clients": (
        related_reference,
        {"clients": 400, "records": 3000, "payload": 22},
    ),
}


def planned(reference: str, trust: Any) -> dict[str, Any]:
    make, known = REFERENCES[reference]
    return {
        f"{releases} releases": show_planned(
            plan_round(make(), epsilon=EPSILON, trust=trust, releases=releases, **known)
        )
        for releases in (1, 3)
    }


def planned_otherwise() -> dict[str, Any]:
    """Many releases, for which Gaussian noise is smaller; and everything a user may say."""
    pi = Reference.from_probabilities(zipf(300))
    return {
        "12 releases": show_planned(
            plan_round(pi, clients=900, records=90_000, epsilon=1.0, payload=100, releases=12)
        ),
        **{
            f"options, trust {trust}": show_planned(
                plan_round(
                    pi,
                    clients=300,
                    records=9000,
                    epsilon=2.0,
                    delta=1e-5,
                    payload=90,
                    trust=trust,
                    population="people",
                    skew=0.02,
                    most_records=500,
                    cohort=30,
                    false_alarm=0.05,
                    design_effect=2.5,
                    threshold=0.2,
                )
            )
            for trust in TRUSTS
        },
    }


def show_planned(found: PlannedRound) -> dict[str, Any]:
    cost = found.cost
    return {
        "plan": show_plan(found.plan),
        "releases": found.releases,
        "error": found.error,
        "forecasts": to_plain(found.forecasts),
        "smallest_drifts": found.smallest_drifts,
        "error_with_twice_the_payload": found.doublings["payload"],
        "error_with_twice_the_epsilon": found.doublings["epsilon"],
        "cost": {
            "cohorts": cost.cohorts,
            "clients": cost.clients,
            "neighbours": cost.neighbours,
            "masked_bytes": cost.masked_bytes,
            "sent_bytes": cost.sent_bytes,
            "received_bytes": cost.received_bytes,
        },
        "reasons": show_reasons(found),
    }


def show_reasons(found: PlannedRound) -> dict[str, Any]:
    """What is chosen, and the numbers in the sentence why; its words may change."""
    neutral = {"maximum_step": "largest_step"}
    return {
        neutral.get(reason.parameter, reason.parameter): {
            "value": reason.value,
            "numbers": re.findall(r"\d[\d.,]*\d(?:e[+-]\d+)?", reason.why),
        }
        for reason in found.reasons
    }


def show_plan(plan: Plan) -> dict[str, Any]:
    """Every field but fingerprints and keys."""
    question, score = plan.question, trust_of(plan).score
    return {
        "trust": plan.trust,
        "population": plan.population,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "points": plan.points,
        "batches": plan.sums.batches,
        "skew": question.skew,
        "control": score.control,
        "exponent": plan.whole.exponent,
        "largest_step": question.maximum_step,
        "noise": plan.question.noise,
        "cohort": plan.sums.cohort,
        "dropout": plan.sums.dropout,
        "corruption": plan.sums.corruption,
        "most_records": plan.sums.most_records,
        "drawn_threshold": plan.verdict.threshold,
        "false_alarm": plan.verdict.false_alarm,
        "design_effect": plan.verdict.design_effect,
        "client_effect": plan.verdict.client_effect,
        "releases": plan.budget.releases,
        "budget_epsilon": plan.budget.total_epsilon,
        "budget_delta": plan.budget.total_delta,
        "score_correction": score.correction,
        "score_largest_step": score.maximum_step,
    }


# 5. Rounds over real secure sums, with a ledger and clients who leave.

LEAVING = {
    "c2": Leaves.BEFORE_INPUT,
    "c9": Leaves.BEFORE_ECHO,
    "c17": Leaves.BEFORE_UNMASK,
    "c21": Leaves.BEFORE_ADVERT,
}
MANY_LEAVING = {f"c{i}": Leaves.BEFORE_INPUT for i in range(10)}
TRUSTED, ALONE = {"trust": "aggregator"}, {"trust": "none"}


def fixed_bytes(seed: int) -> Callable[[int], bytes]:
    """NOT SECRET: the same random bytes every time."""
    rng = np.random.default_rng(seed)
    return lambda size: rng.bytes(size)


def rounds(
    *,
    clients: int,
    plan: Mapping[str, Any],
    leaving: Mapping[str, Leaves] = LEAVING,
    releases: int = 1,
    drifted: bool = False,
) -> dict[str, Any]:
    """Rounds of one plan. Every client has its own noise, so their order does not matter."""
    world = World.make(clients=clients, cells=16, seed=8)
    if drifted:
        world.held[:, :-1] = np.roll(world.held[:, :-1], 5, axis=1)
    members = {
        name: Client(
            world.held[i],
            world.reference,
            policy=world.policy,
            randomness=fixed_bytes(500 + i),
            source=InsecureSeededNoise(1000 + i),
        )
        for i, name in enumerate(world.names())
    }
    server = Server(SignedPlan.sign(world.plan(**plan), world.key), world.reference)
    aggregator, randomness = InsecureSeededNoise(41), fixed_bytes(42)
    with tempfile.TemporaryDirectory() as folder, budgeted(Path(folder) / "ledger.db") as ledger:
        found = []
        for number in range(releases):
            result = run_round(
                server,
                members,
                key=world.key,
                ledger=ledger,
                software="golden",
                at=AT,
                rng=np.random.default_rng(43 + number),
                leaves=leaving,
                randomness=randomness,
                source=aggregator,
            )
            found.append(show_round(result))
        return {"rounds": found, "ledger": show_account(ledger)}


def show_round(result: RoundResult) -> dict[str, Any]:
    release, points = result.release, result.round.points
    assert points is not None
    (answer,), verdict, privacy = release.answers, release.verdict, release.privacy
    return {
        "value": answer.value,
        "interval": answer.interval,
        "target": answer.target,
        "counts_per_client": release.payload,
        "verdict": verdict and show_verdict(verdict),
        "privacy": {"true_epsilon": privacy.epsilon}
        | {
            name: getattr(privacy, name)
            for name in ("claimed_epsilon", "delta", "sensitivity", "insecure", "holds")
        },
        "noisy_counts": release.noisy_counts and show_noisy(release.noisy_counts),
        "cohorts": [
            {
                "batch": cohort.batch,
                "clients": cohort.clients,
                "included": cohort.included,
                "dropped": cohort.reason != "",
            }
            for cohort in release.cohorts
        ],
        "members": [cohort.members for cohort in result.round.cohorts],
        "asked_cells": points.cells,
        "asked_batch": points.batch,
        "weights": points.weights,
        "refused": len(result.refusals),
    }


def show_noisy(noisy: NoisyCounts) -> dict[str, Any]:
    (scale,) = {law.scale for law in noisy.noise}
    return {
        "cells": noisy.cells,
        "batch": noisy.batch,
        "counts": noisy.counts,
        "rest": noisy.out_of_domain,
        "records": noisy.records,
        "noise_sd": [law.sd for law in noisy.noise],
        "kind": noisy.noise[0].kind,
        "scale": scale,
        "sums": None if scale is None else [law.variables for law in noisy.noise],
    }


def show_account(ledger: Ledger) -> dict[str, Any]:
    account = ledger.account("testers")
    return {
        "charges": [show_charge(entry.charge) for entry in account.rounds],
        "states": [entry.state for entry in account.rounds],
        "spent": account.spent,
        "left": account.left,
    }


def with_control(control: float, case: Case) -> dict[str, Any]:
    """With the paper's lambda, which no plan has: a round takes whatever score it is given."""
    plain = Question.score
    with patch.object(
        Question, "score", lambda *args, **more: replace(plain(*args, **more), control=control)
    ):
        return case()


GROUPED = {"exponent": 0.5, "maximum_step": 0.03, "client_effect": 1.5, "design_effect": 2.0}
ROUNDS: dict[str, Case] = {
    "trusted, laplace, 1 batch": partial(rounds, clients=24, plan=TRUSTED),
    "trusted, laplace, 4 batches": partial(
        rounds, clients=40, plan=TRUSTED | GROUPED | {"batches": 4, "noise": "laplace"}
    ),
    "trusted, laplace, drifted": partial(
        rounds, clients=40, plan=TRUSTED | {"points": 14, "cohort": 40}, drifted=True
    ),
    "trusted, laplace, a cohort dropped": partial(
        rounds, clients=24, plan=TRUSTED, leaving=MANY_LEAVING
    ),
    "trusted, gaussian, 1 batch, 3 releases": partial(
        rounds,
        clients=24,
        plan=TRUSTED
        | {"noise": "gaussian", "epsilon": 0.5, "releases": 3}
        | {"total_epsilon": 1.0, "total_delta": 1e-6},
        releases=3,
    ),
    "trusted, gaussian, 4 batches": partial(
        with_control,
        0.2,
        partial(rounds, clients=40, plan=TRUSTED | {"batches": 4, "noise": "gaussian"}),
    ),
    "alone, laplace, 1 batch": partial(
        rounds, clients=30, plan=ALONE | {"cohort": 30, "noise": "laplace", "design_effect": 1.5}
    ),
    "alone, laplace, 4 batches": partial(
        rounds, clients=60, plan=ALONE | {"cohort": 15, "batches": 4, "points": 3}
    ),
    "alone, gaussian, 1 batch": partial(
        rounds, clients=30, plan=ALONE | {"cohort": 30, "noise": "gaussian", "epsilon": 2.0}
    ),
    "alone, laplace, drifted": partial(
        rounds, clients=40, plan=ALONE | {"points": 12, "cohort": 40}, drifted=True
    ),
    "alone, gaussian, 2 cohorts": partial(
        rounds, clients=41, plan=ALONE | {"cohort": 20, "noise": "gaussian", "epsilon": 4.0}
    ),
}


CASES: dict[str, Case] = {
    **{
        f"estimators: trusted, {noise}, {batches} batches": partial(trusted, noise, batches)
        for noise, batches in itertools.product(("laplace", "gaussian"), (1, 4))
    },
    "estimators: trusted, defaults": trusted_defaults,
    "estimators: paper's calibration, terms": partial(paper_calibration, "terms"),
    "estimators: paper's calibration, mean": partial(paper_calibration, "mean"),
    "estimators: baseline, laplace": partial(baseline_exact, "laplace"),
    "estimators: baseline, gaussian": partial(baseline_exact, "gaussian"),
    "estimators: baseline, paper's": baseline_paper,
    "estimators: no privacy": without_privacy,
    "mechanisms: one number": partial(mechanisms, Numbers(0.37)),
    "mechanisms: one count": partial(mechanisms, Counts(coordinates=1)),
    "mechanisms: many counts": partial(mechanisms, Counts()),
    "mechanisms: shares": shared_mechanisms,
    "mechanisms: composition": composition,
    "mechanisms: what fits": fitting,
    "mechanisms: sensitivities": sensitivities,
    "mechanisms: the paper's formulas": paper_formulas,
    "divergence: scores": scores,
    "divergence: exact": exact_divergences,
    "divergence: drift": drift_fits,
    "divergence: search": design_search,
    **{
        f"planner: {reference}, trust {trust}": partial(planned, reference, trust)
        for reference, trust in itertools.product(REFERENCES, TRUSTS)
    },
    "planner: otherwise": planned_otherwise,
    **{f"rounds: {name}": case for name, case in ROUNDS.items()},
}
