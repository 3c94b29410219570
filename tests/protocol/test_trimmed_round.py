"""Rounds that trim the scores of cohorts: what is released, and what lying clients can do to it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl import Reference
from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, ReleaseRefused
from fedprikl.estimation import TrimmedMean, estimate_trimmed_mean
from fedprikl.privacy import Calibrated
from fedprikl.protocol import Client, Invitation, Plan, Question, RoundResult, trust_of
from fedprikl.protocol.scored_sum import ScoredSum
from fedprikl.secure_sum import Leaves
from tests.protocol.worlds import InsecureNoNoise, World, budgeted

CLIENTS, COHORT, K, CELLS = 30, 5, 20, 6
MASS = np.array([30, 25, 20, 12, 8, 5])


def world() -> World:
    """Clients with K records each, none of which has drifted."""
    held = np.random.default_rng(4).multinomial(K, MASS / MASS.sum(), size=CLIENTS)
    return World(np.hstack([held, np.zeros((CLIENTS, 1), np.int64)]), Reference.from_counts(MASS))


def plan_of(here: World, **changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "points": CELLS,
        "cohort": COHORT,
        "unit": "client",
        "per_client": K,
        "most_records": K,
        "trim": 0.2,
    }
    return here.plan(**(settings | changes))


def sums_of(here: World, result: RoundResult, without: frozenset[str] = frozenset()) -> Ints:
    """The counts of every cohort in the open."""
    cohorts = [
        [here.held[int(name[1:])] for name in cohort.members if name not in without]
        for cohort in result.round.cohorts
    ]
    return np.stack([np.sum(members, axis=0) for members in cohorts if members])


@pytest.mark.parametrize("name", ["kl", "tv"])
def test_the_release_is_the_trimmed_mean_of_the_cohorts(name: str, tmp_path: Path) -> None:
    here = world()
    plan = plan_of(here, divergence=name)
    with budgeted(tmp_path / "ledger.db") as ledger:
        result = here.run(plan, source=InsecureNoNoise(), ledger=ledger)
        assert ledger.account("testers").spent == pytest.approx(1.0, abs=1e-6)
    assert len(result.outcomes) == CLIENTS // COHORT
    trust, points = trust_of(plan), result.round.points
    assert isinstance(trust, ScoredSum)
    assert points is not None
    counts, records = sums_of(here, result)[:, points.cells], np.full(6, K * COHORT)
    expected = estimate_trimmed_mean(
        points,
        counts,
        records,
        trim=0.2,
        moved=K,
        calibrated=Calibrated(1.0, 1e-6),
        score=trust.score,
        client_effect=1.0,
        source=InsecureNoNoise(),
    )
    release = result.release
    assert release.value == pytest.approx(expected.value, abs=1e-12)
    assert release.is_about(plan)
    assert release.privacy.sensitivity == expected.privacy.sensitivity
    assert release.verdict is not None
    (witness,) = release.verdict.witnesses
    mean = TrimmedMean.of(points, records, 0.2)
    assert mean.cut == 1
    assert witness.statistic == pytest.approx(mean.value(counts.ravel(), trust.score), abs=1e-12)
    assert not release.verdict.drifted
    assert release.interval is not None
    assert release.answers[0].guaranteed is None


def test_cohorts_that_are_dropped_are_not_in_the_mean() -> None:
    """Nobody of a cohort comes, and one client of another: the others are trimmed."""
    here = world()
    plan = plan_of(here)
    dealt = here.run(plan).round.cohorts
    gone = {*dealt[0].members, dealt[1].members[0]}
    result = here.run(
        plan, leaves=dict.fromkeys(gone, Leaves.BEFORE_ADVERT), source=InsecureNoNoise()
    )
    included = [outcome.included for outcome in result.outcomes]
    assert included == [0, 4, 5, 5, 5, 5]
    points, trust = result.round.points, trust_of(plan)
    assert points is not None
    assert isinstance(trust, ScoredSum)
    counts = sums_of(here, result, frozenset(gone))[:, points.cells]
    mean = TrimmedMean.of(points, K * np.array([4, 5, 5, 5, 5]), 0.2)
    assert result.release.verdict is not None
    seen = result.release.verdict.witnesses[0].statistic
    assert seen == pytest.approx(mean.value(counts.ravel(), trust.score), abs=1e-12)


def test_a_round_with_too_few_cohorts_to_trim_releases_nothing() -> None:
    """An untrimmed mean is not what the plan has bounded."""
    here = world()
    plan = plan_of(here)
    first, second, *_ = here.run(plan).round.cohorts
    gone = dict.fromkeys((*first.members, *second.members), Leaves.BEFORE_ADVERT)
    with pytest.raises(ReleaseRefused, match="4 cohorts are left, too few to cut any off"):
        here.run(plan, leaves=gone)


class Breaking(Client):
    """Hands a count to the sum that only several clients of its cohort could have together."""

    def _vector(self, invitation: Invitation) -> Ints:
        vector = super()._vector(invitation)
        vector[0] += 3 * K
        return vector


def test_a_client_that_breaks_the_protocol_hardly_moves_a_trimmed_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It moves a pooled sum much; of cohorts that are alike, it can only take one's place."""
    monkeypatch.setattr("fedprikl.secure_sum.sum_client.SumClient._check_values", lambda _, v: v)
    here, moved = world(), {}
    for trim in (0.0, 0.2):
        plan = plan_of(here, divergence="tv", trim=trim)
        seen = []
        for kind in (Client, Breaking):
            clients = here.clients(InsecureNoNoise())
            clients["c0"] = kind(
                here.held[0], here.reference, policy=here.policy, randomness=lambda n: b"x" * n
            )
            result = here.run(plan, clients=clients, source=InsecureNoNoise())
            assert result.release.verdict is not None
            seen.append(result.release.verdict.witnesses[0].statistic)
        moved[trim] = abs(seen[1] - seen[0])
    points, trust = result.round.points, trust_of(plan)
    assert points is not None
    assert isinstance(trust, ScoredSum)
    mean = TrimmedMean.of(points, np.full(6, K * COHORT), 0.2)
    counts = sums_of(here, result)[:, points.cells]
    honest = mean.scores(counts.ravel(), trust.score)[None]
    allowed = mean.shifts(honest, 1, mean.extremes(trust.score))[0]
    assert moved[0.2] <= allowed + 1e-12
    assert allowed < mean.largest_shift(1, trust.score) / 3
    assert moved[0.0] > 3 * moved[0.2]


@pytest.mark.parametrize(
    "changes",
    [
        {"trim": 0.5},
        {"trim": -0.1},
        {"trim": float("nan")},
        {"trim": "0.1"},
        {"unit": "record", "per_client": None},
        {"trust": "none"},
        {"batches": 2},
        {"release": "counts"},
        {"release": "adaptive"},
    ],
)
def test_plans_that_cannot_trim_are_refused(changes: dict[str, Any]) -> None:
    here = world()
    assert plan_of(here).trim == 0.2
    with pytest.raises(InvalidInputError, match="trim"):
        plan_of(here, **changes)


def test_a_plan_says_how_much_it_trims() -> None:
    plan = plan_of(world())
    assert Plan.from_dict(plan.to_dict()) == plan
    document = plan.to_dict()
    del document["trim"]
    with pytest.raises(InvalidInputError, match="trim"):
        Plan.from_dict(document)


def test_all_questions_are_trimmed() -> None:
    here = world()
    plan = Plan(
        population="testers",
        reference=here.reference.fingerprint,
        epsilon=1.0,
        questions=tuple(
            Question(divergence=name, points=CELLS, share=0.5) for name in ("kl", "tv")
        ),
        cohort=COHORT,
        unit="client",
        per_client=K,
        most_records=K,
        trim=0.2,
    )
    release = here.run(plan).release
    assert [answer.divergence for answer in release.answers] == ["kl", "tv"]
    assert release.verdict is not None
    assert all("mean of cohorts" in witness.unit for witness in release.verdict.witnesses)
