"""Plans that protect whole clients, through the roles: who is charged what, who may take part."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl.errors import FedPriKLError, InvalidInputError
from fedprikl.privacy import InsecureSeededNoise, Ledger
from fedprikl.protocol import Plan, Policy, Question, RoundResult, SignedPlan, trust_of
from fedprikl.protocol.series import Series
from fedprikl.records import Draw, draw_counts
from tests.protocol.worlds import AT, EVERYTHING, World

K = 5
WEEKS = Series(every="week", first="2027-01-04", periods=4)


def drawn_world(clients: int = 9) -> World:
    """Every client has drawn K records."""
    world = World.make(clients=clients)
    world.held = np.array([draw_counts(row, world.reference, Draw(K)) for row in world.held])
    return world


WORLD = drawn_world()


def client_plan(**changes: Any) -> Plan:
    return WORLD.plan(
        **{"unit": "client", "per_client": K, "most_records": K, "cohort": 9} | changes
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": "client", "per_client": 0}, "records of each client must be a whole number"),
        ({"unit": "client", "per_client": 2.0}, "records of each client must be a whole number"),
        ({"unit": "client", "per_client": 3, "most_records": 2}, "more records than most_records"),
    ],
)
def test_plans_that_contradict_themselves_are_refused(changes: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        WORLD.plan(**changes)


@pytest.mark.parametrize(
    "unit",
    [
        "record",
        {"kind": "site"},
        {"kind": ["client"]},
        {"kind": "client"},
        {"kind": "record", "records": 3, "empty": "reference"},
        {"kind": "client", "records": 2.0, "empty": "reference"},
        {"kind": "client", "records": 3, "empty": "gone"},
    ],
)
def test_units_that_no_plan_has_are_refused(unit: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"field '\w+' (must be|is missing)|unknown parts"):
        Plan.from_dict(client_plan().to_dict() | {"unit": unit})


def test_the_unit_is_signed_with_the_plan() -> None:
    signed = SignedPlan.sign(client_plan(), WORLD.key)
    document = signed.to_dict()
    assert SignedPlan.from_dict(document) == signed
    document["plan"]["unit"] = {"kind": "record"}
    assert not SignedPlan.from_dict(document).is_signed_by(WORLD.key.public)


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_the_release_says_that_clients_are_protected(trust: str) -> None:
    plan = client_plan(trust=trust)
    release = WORLD.run(plan).release
    assert release.is_about(plan)
    assert (release.privacy.unit, release.privacy.per_client) == ("client", K)
    assert release.records == K * len(WORLD.held)
    assert "Protected: one client, with all the records it holds" in str(release.privacy)


def test_signed_totals_fit_the_signed_cohorts() -> None:
    plan = client_plan()
    release = WORLD.run(plan).release
    assert not replace(release, records=release.records - 1).is_about(plan)
    (cohort,) = release.cohorts
    assert not replace(release, cohorts=(replace(cohort, included=8),)).is_about(plan)


def test_a_release_about_records_is_not_one_about_clients() -> None:
    plan = client_plan()
    record = WORLD.plan(cohort=9)
    about = replace(WORLD.run(record).release, plan=plan.fingerprint)
    assert not about.is_about(plan)


def test_a_client_may_insist_that_all_of_it_is_protected() -> None:
    world = drawn_world()
    world.policy = replace(EVERYTHING, units=frozenset({"client"}))
    assert world.run(client_plan()).release.records == K * 9
    with pytest.raises(FedPriKLError, match="where one record is protected"):
        world.run(world.plan(cohort=9))


def test_usual_clients_take_part_in_both() -> None:
    assert Policy().units == {"record", "client"}


def series_plan(unit: str, releases: int) -> Plan:
    parts: Any = {"unit": "client", "per_client": K, "most_records": K} if unit == "client" else {}
    return WORLD.plan(series=WEEKS, releases=releases, release="counts", cohort=9, **parts)


def test_a_client_is_in_every_period_of_a_series() -> None:
    assert series_plan("record", 1).budget.releases == WEEKS.exposures("record") == 1
    assert series_plan("client", 4).budget.releases == WEEKS.exposures("client") == 4
    with pytest.raises(InvalidInputError, match="Each client is in 4 releases"):
        series_plan("client", 1)
    assert series_plan("record", 1).charged_times(2) is not None
    assert series_plan("client", 4).charged_times(2) is None


def test_the_periods_of_a_series_about_clients_add_up_in_the_ledger(tmp_path: Path) -> None:
    """Of records they do not: each is in one period."""
    spent = {}
    for unit, releases in (("record", 1), ("client", 4)):
        with Ledger.open(tmp_path / f"{unit}.db") as ledger:
            ledger.set_budget("testers", epsilon=9.0, delta=1e-5, at=AT)
            for period in range(2):
                _charge_period(series_plan(unit, releases), period, ledger)
            spent[unit] = ledger.account("testers").spent
    assert spent["record"] == pytest.approx(1.0)
    assert spent["client"] == pytest.approx(2.0, rel=0.3)
    assert spent["client"] > 1.5


def _charge_period(plan: Plan, period: int, ledger: Ledger) -> None:
    ledger.reserve(
        plan.population,
        trust_of(plan).charge([9]),
        round_id=f"{plan.unit.kind} {period}",
        at=AT,
        times=plan.charged_times(period),
        unit=plan.unit.kind,
    )


def test_one_record_each_and_k_1_is_unit_record_to_the_last_digit() -> None:
    """The same points, the same noise, the same words but for whom they protect."""
    world = World.make(clients=9)
    world.held = np.array([draw_counts(row, world.reference, Draw(1)) for row in world.held])

    def released(**changes: Any) -> RoundResult:
        questions = (
            Question(divergence="kl", share=0.5),
            Question(divergence="tv", share=0.3, skew=0.0),
            Question(divergence="js", share=0.2),
        )
        plan = world.plan(cohort=9, most_records=1, points=12, questions=questions, **changes)
        return world.run(plan, source=InsecureSeededNoise(7))

    record, client = released(), released(unit="client", per_client=1)
    assert [each.value for each in record.release.answers] == [
        each.value for each in client.release.answers
    ]
    assert [each.interval for each in record.release.answers] == [
        each.interval for each in client.release.answers
    ]
    assert record.release.verdict == client.release.verdict
    assert record.release.privacy.epsilon == client.release.privacy.epsilon
