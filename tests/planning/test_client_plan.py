"""Plans that protect whole clients: what each draws, what a year costs, what liars can do."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedprikl import Reference
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import BatchCounts
from fedprikl.estimation.scoring import weighted_score
from fedprikl.planning import PlannedRound, plan_round, planner
from fedprikl.planning.client_sizes import ClientSizes
from fedprikl.planning.liars import liar_bounds, liar_targets
from fedprikl.planning.planner import CLOSE
from fedprikl.privacy import total_epsilon
from fedprikl.protocol import Series, trust_of
from fedprikl.protocol.round import cohort_sizes
from tests.long import long

pytestmark = pytest.mark.slow

REFERENCE = Reference.from_counts([30, 20, 15, 12, 9, 6, 4, 3, 1])
CLIENTS, RECORDS, DELTA = 600, 30_000, 1e-6
YEAR = Series(every="week", first="2027-01-04", periods=52)


@cache
def planned(trust: Any = "aggregator", **options: Any) -> PlannedRound:
    return plan_round(
        REFERENCE,
        clients=CLIENTS,
        records=RECORDS,
        epsilon=1.0,
        delta=DELTA,
        trust=trust,
        unit="client",
        **options,
    )


def test_plans_with_and_without_the_whole_are_compared_by_what_they_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors of the whole and of columns are no list of the same length."""
    plans = [SimpleNamespace(taken=taken, name=name) for name, taken in enumerate((None, 1, None))]
    losses = {0: [0.1, 0.5], 1: [0.1, 0.1, 0.1, 0.2], 2: [0.1, 0.4]}
    monkeypatch.setattr(planner, "_losses", lambda each: losses[each.name])
    assert planner._fewest(plans, 1.0) is plans[1]  # type: ignore[arg-type,comparison-overlap]
    assert planner._fewest(plans, 2.1) is plans[2]  # type: ignore[arg-type,comparison-overlap]


@pytest.mark.parametrize("trust", [long("aggregator"), "none"])
def test_the_planner_chooses_how_many_records_a_client_draws(trust: str) -> None:
    found = planned(trust)
    drawn = found.plan.contribution_bound
    numbers = ClientSizes(average=RECORDS / CLIENTS).numbers()
    assert drawn in numbers
    assert found.plan.sums.most_records == drawn  # room for what is drawn, and no more
    for number in numbers:
        # By regret, of which errors are a part: they may differ a little more.
        assert found.error <= 1.1 * CLOSE * planned(trust, per_client=number).error


def test_the_plan_says_what_its_promises_rest_on() -> None:
    (about_ids, about_draws) = planned(per_client=10).notes
    assert "nothing says how correlated one client's are" in about_ids
    assert "One that holds fewer fills up with records of the reference" in about_draws
    assert planned(per_client=1).notes == ()  # one record each is unrelated to itself


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"most_records": 100}, "leave out most_records"),
        ({"per_client": 0}, "per_client"),
        ({"per_client": 5, "typical_records": 9}, "Give one of them"),
        ({"typical_records": 51}, r"holds 50 on average: .* \(--typical-records;"),
        ({"empty": "gone", "per_client": 1}, "`empty` is 'reference' or 'away', got 'gone'"),
    ],
)
def test_what_cannot_be_is_refused(options: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        planned(**options)


@pytest.mark.parametrize("name", ["per_client", "typical_records"])
def test_a_plan_about_records_draws_none(name: str) -> None:
    options: Any = {name: 3}
    with pytest.raises(InvalidInputError, match="belong to unit='client'"):
        plan_round(REFERENCE, clients=CLIENTS, records=RECORDS, epsilon=1.0, **options)


def why_so_many(found: PlannedRound) -> str:
    (why,) = (each.why for each in found.reasons if each.parameter == "per_client")
    return why


def test_no_more_are_drawn_than_most_clients_are_said_to_hold() -> None:
    found = planned(typical_records=8)
    assert found.plan.contribution_bound in (8, 4, 2)
    assert "most clients hold at least 8" in why_so_many(found)
    assert "is not known" in why_so_many(planned(per_client=10))


def test_client_ids_of_the_reference_say_what_most_clients_hold() -> None:
    """With sizes of 1 and 39 one client in two is small; without ids nobody knows."""
    sizes = np.tile([1, 39], 60)
    client = np.repeat(np.arange(120), sizes)
    cell = np.random.default_rng(1).integers(0, 5, len(client))
    frame = pl.DataFrame({"a": cell.astype(str), "who": client})
    reference = Reference.fit(frame, client="who")
    known = ClientSizes.of(reference, 100.0)
    assert sorted(set(known.relative)) == pytest.approx([0.05, 1.95])
    assert known.numbers() == (5, 2, 1)
    equal = frame.filter(pl.col("who") % 2 == 1)
    assert not ClientSizes.of(
        Reference.fit(equal, client="who"), 100.0
    ).known  # made equal on purpose, for all we know
    found = plan_round(reference, clients=200, records=20_000, epsilon=1.0, unit="client")
    assert found.plan.contribution_bound in known.numbers()
    assert "about 0% hold fewer" in why_so_many(found)
    many = plan_round(
        reference, clients=200, records=20_000, epsilon=1.0, unit="client", per_client=10
    )
    assert "about 50% hold fewer" in why_so_many(many)


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_year_of_releases_fits_into_the_budget_of_a_client(trust: Any) -> None:
    """By the ledger's own account: all of it, and hardly less."""
    plan = planned(trust, per_client=20, series=YEAR).plan
    assert plan.budget.releases == 52
    charge = trust_of(plan).charge(cohort_sizes(plan, CLIENTS))
    total = total_epsilon([charge] * 52, delta=DELTA)
    assert 0.99 < total <= 1.0
    assert plan.budget.epsilon > 3 / 52  # composed by concentration, not by adding up


def test_liars_are_stated_for_every_answer() -> None:
    found = planned(per_client=10).liars
    assert {(bound.share, bound.divergence) for bound in found} == {
        (share, name) for share in (0.01, 0.05) for name in ("kl", "tv", "js")
    }
    for bound in found:
        assert 0 < bound.faked <= bound.shift < bound.broken
    (few,) = (bound for bound in found if (bound.share, bound.divergence) == (0.01, "tv"))
    assert few.liars == 6
    assert few.shift == pytest.approx(0.01, rel=0.01)


def test_no_population_is_moved_further_than_stated() -> None:
    """Random and adversarial populations and lies, on the exact value before noise."""
    rng = np.random.default_rng(5)
    found = planned(per_client=10)
    plan, known = found.plan, found.known
    bounds = liar_bounds(known, plan, shares=(0.05,))
    lies = 10 * bounds[0].liars
    targets = [each for group in liar_targets(known, plan) for each in group]
    reached = dict.fromkeys((bound.divergence for bound in bounds), 0.0)
    for _ in range(300):
        law = rng.dirichlet(np.full(9, rng.choice([0.05, 0.5, 5.0])))
        others = rng.multinomial(10 * CLIENTS - lies, law)
        honest, lied = (others + rng.multinomial(lies, _lie(rng, law)) for _ in range(2))
        for (about, score), bound in zip(targets, bounds, strict=True):
            values = [
                weighted_score(BatchCounts(about.points, counts, about.records), score)
                for counts in (honest, lied)
            ]
            shift = abs(values[1] - values[0])
            assert shift <= bound.shift
            reached[bound.divergence] = max(reached[bound.divergence], shift / bound.shift)
    assert min(reached.values()) > 0.3  # the bound is not empty


def _lie(rng: np.random.Generator, law: Any) -> Any:
    if rng.random() < 0.5:
        return law
    return np.eye(9)[rng.integers(9)]


def test_plans_about_records_state_nothing_about_liars() -> None:
    found = plan_round(REFERENCE, clients=CLIENTS, records=RECORDS, epsilon=1.0)
    assert found.liars == ()
    assert found.to_dict()["liars"] == []


def test_more_records_than_a_client_holds_are_refused_at_once() -> None:
    """With a million of 60 the planner took 84 seconds and 5.5 GB."""
    with pytest.raises(InvalidInputError, match=r"1,000,000 records, and holds .* on average"):
        planned(per_client=1_000_000)
