"""What a release says about itself, part by part, on releases written by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import CountNoise, JudgedStatistic, NoisyCounts, Verdict
from fedprikl.estimation.statistic import COUNTS
from fedprikl.privacy import Head, PrivacyStatement
from fedprikl.protocol import (
    Answer,
    ColumnAnswer,
    Outcome,
    Plan,
    Release,
    ReleasedPeriod,
    Series,
    SigningKey,
)
from fedprikl.protocol.release import LOST, newest_head, own_releases
from tests.plans import AskColumns, make_plan
from tests.protocol.test_servers_plan import NAMED
from tests.protocol.test_servers_plan import plan as servers_plan

KEYS = [SigningKey.generate() for _ in range(4)]
SERVERS = replace(NAMED, signing=tuple(key.public for key in KEYS[:3]))
PLAN = make_plan()
COUNTED = NoisyCounts.of([0.0], [480], [CountNoise(sd=3.0)])
TWELVE_MONTHS = Series(every="month", first="2027-01-01", periods=12)


def verdict(value: float, *names: str, can_tell: bool = True, **more: Any) -> Verdict:
    """On statistics with thresholds of 1."""
    judged = (
        JudgedStatistic(name=name, value=value, threshold=1.0, unit="") for name in names or ("kl",)
    )
    more = {"false_alarm": 0.01, "design_effect": 1.5, "can_tell": can_tell} | more
    return Verdict(statistics=tuple(judged), **more)


def column(name: str, found: Verdict | None = None, **more: Any) -> ColumnAnswer:
    counts = NoisyCounts.of([9.0, 8.0, 7.0, 0.0], [40], [CountNoise(sd=3.0)])
    given: dict[str, Any] = {"verdict": found, "answers": (), "cells": (), "counts": counts}
    return ColumnAnswer(columns=(name,), **(given | more))


def answer(divergence: str = "kl", **more: Any) -> Answer:
    (asked,) = PLAN.questions
    given: dict[str, Any] = {
        "value": 0.5,
        "interval": (0.25, 0.75),
        "no_drift": None,
        "target": asked.target,
        "unit": "nats",
        "mechanism": "noise",
    }
    return Answer(divergence=divergence, **(given | more))


def release(plan: Plan = PLAN, /, **changes: Any) -> Release:
    unit, per_client, away = plan.stated_unit
    privacy = PrivacyStatement(
        epsilon=1.0,
        delta=0.0,
        claimed_epsilon=plan.budget.epsilon,
        mechanism="noise",
        released="one number",
        trust="the aggregator.",
        unit=unit,
        per_client=per_client,
        away=away,
    )
    given: dict[str, Any] = {
        "round_id": "a",
        "population": plan.population,
        "trust": plan.trust,
        "plan": plan.fingerprint,
        "reference": plan.reference,
        "answers": (answer(),),
        "verdict": verdict(0.5),
        "privacy": privacy,
        "cohorts": (Outcome(batch=0, clients=9, included=8),),
        "payload": 6,
        "records": 480,
        "software": "tests",
        "released_at": "2030-01-31T12:00:00+00:00",
    }
    return Release(**(given | changes))


def test_a_column_says_what_its_verdict_says() -> None:
    found = column("a", verdict(2.0, findable=0.25))
    assert (found.outcome, found.drifted, found.findable) == ("drift", True, 0.25)
    assert found.design_effect == 1.5
    assert [each.name for each in found.statistics] == ["kl"]
    assert found.to_dict()["drifted"] is True
    assert column("a", verdict(0.5)).drifted is False
    assert column("a", verdict(0.5, can_tell=False)).drifted is None
    without = column("a")
    assert (without.outcome, without.drifted, without.findable) == (None, None, None)
    assert (without.design_effect, without.statistics) == (None, ())


def test_a_column_has_one_answer_for_each_divergence() -> None:
    found = column("a", answers=(answer("tv"), answer("kl")))
    assert found.answer("kl") == answer("kl")
    assert found.answer("js") is None
    with pytest.raises(InvalidInputError, match="names one or more"):
        replace(found, columns=())
    assert replace(found, columns=("a", "b")).name == "a and b"


def test_all_verdicts_together() -> None:
    columns = (column("a", verdict(0.5, findable=0.3)), column("b", verdict(2.0, findable=0.2)))
    found = release(columns=(*columns, column("c")), verdict=None)
    assert (found.outcome, found.drifted, found.drifted_columns) == ("drift", True, ("b",))
    assert found.findable == 0.2
    assert len(found.verdicts) == 2
    assert release(columns=columns[:1]).drifted is False
    assert release().findable is None
    nothing = release(verdict=None)
    assert (nothing.outcome, nothing.drifted) == (None, None)


def test_the_first_answer_is_the_value() -> None:
    found = release(answers=(answer(), answer("tv", value=9.0, interval=None)))
    assert (found.value, found.interval) == (0.5, (0.25, 0.75))
    only_columns = release(answers=(), columns=(column("a"),))
    assert only_columns.interval is None
    with pytest.raises(InvalidInputError, match="the whole has no value"):
        _ = only_columns.value


@pytest.mark.parametrize(
    "possible",
    [
        {"answers": (answer(interval=(0.5, 0.5)),)},
        {"answers": (answer(guaranteed=(0.5, 0.5)),)},
        {"cohorts": (Outcome(batch=0, clients=9, included=9),)},
        {"answers": (), "columns": (column("a"),), "trust": "none"},
        {"columns": (column("a"), column("b"))},
    ],
)
def test_what_is_just_possible_is_a_release(possible: dict[str, Any]) -> None:
    release(**possible)


@pytest.mark.parametrize(
    ("impossible", "words"),
    [
        ({"answers": (answer(interval=(0.6, 0.5)),)}, "ends before it begins"),
        ({"answers": (answer(guaranteed=(0.6, 0.5)),)}, "ends before it begins"),
        ({"columns": (column("a", answers=(answer(interval=(1, 0)),)),)}, "ends before it begins"),
        ({"columns": (column("a"), column("a"))}, "every question once"),
        ({"answers": (answer(), answer())}, "every question once"),
        ({"answers": ()}, "at least one question"),
        ({"noisy_counts": COUNTED, "records": 481}, "of other records"),
        ({"trust": "none"}, "noisy counts if no party is trusted"),
        ({"software": "\n"}, "not printable"),
    ],
)
def test_what_contradicts_itself_is_none(impossible: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        release(**impossible)


@pytest.mark.parametrize(
    ("amounts", "possible"),
    [
        ({"epsilon": 0.0, "delta": 0.0, "claimed_epsilon": 0.0}, True),
        ({"claimed_epsilon": None}, True),
        ({"delta": 0.999}, True),
        ({"epsilon": -0.1}, False),
        ({"delta": -0.1}, False),
        ({"delta": 1.0}, False),
        ({"claimed_epsilon": -0.1}, False),
    ],
)
def test_no_privacy_is_less_than_none(amounts: dict[str, Any], possible: bool) -> None:
    stated = replace(release().privacy, **amounts)
    if possible:
        release(privacy=stated)
    else:
        with pytest.raises(InvalidInputError, match="impossible"):
            release(privacy=stated)


def test_a_period_of_the_plan_and_none_beyond() -> None:
    plan = make_plan(series=TWELVE_MONTHS, release="counts")
    last = ReleasedPeriod.of(plan, 11, "before")
    assert last is not None
    assert (last.number, last.previous, last.start[:10], last.end[:10]) == (
        *(11, "before"),
        *("2027-12-01", "2028-01-01"),
    )
    assert ReleasedPeriod.of(plan, 12, "") is None
    assert ReleasedPeriod.of(plan, None, "") is None
    assert ReleasedPeriod.of(PLAN, 0, "") is None


def test_a_release_of_a_series_stands_where_the_plan_has_a_period() -> None:
    plan = make_plan(series=TWELVE_MONTHS, release="counts")
    place = ReleasedPeriod.of(plan, 3, "")
    assert place is not None
    found = release(plan, period=place, noisy_counts=COUNTED, verdict=verdict(0.5, COUNTS))
    assert found.is_about(plan) is True
    assert replace(found, period=replace(place, number=4)).is_about(plan) is False
    assert replace(found, period=None).is_about(plan) is False
    assert release(period=place).is_about(PLAN) is False


def test_a_release_is_about_its_plan_and_no_other() -> None:
    assert release().is_about(PLAN) is True
    privacy = release().privacy
    others: list[dict[str, Any]] = [
        {"plan": "another"},
        {"population": "others"},
        {"reference": "another"},
        {"trust": "servers"},
        {"answers": (answer("tv"),)},
        {"answers": (answer(target="D(Pi || P)"),)},
        {"columns": (column("a"),)},
        {"noisy_counts": COUNTED},
        {"verdict": verdict(0.5, "tv")},
        {"verdict": verdict(0.5, COUNTS)},
        {"privacy": replace(privacy, claimed_epsilon=2.0)},
        {"privacy": replace(privacy, unit="client", per_client=5)},
    ]
    for changes in others:
        assert release(**changes).is_about(PLAN) is False, changes


def test_verdicts_rest_on_what_was_asked_of_their_view() -> None:
    asked = AskColumns(views=(("a",),), sizes=(3,), counts=0.5)
    half = replace(PLAN.questions[0], share=0.5)
    plan = make_plan(columns=asked, questions=(half,))
    assert release(plan, columns=(column("a", verdict(0.5, COUNTS)),)).is_about(plan)
    assert release(plan, columns=(column("a"),), verdict=None).is_about(plan)
    assert not release(plan, columns=(column("b", verdict(0.5, COUNTS)),)).is_about(plan)
    assert not release(plan, columns=(column("a", verdict(0.5, "tv")),)).is_about(plan)
    swapped = {"verdict": verdict(0.5, COUNTS), "columns": (column("a", verdict(0.5, "kl")),)}
    assert not release(plan, **swapped).is_about(plan)
    fewer = NoisyCounts.of([9.0, 8.0, 0.0], [40], [CountNoise(sd=3.0)])
    assert not release(plan, columns=(column("a", verdict(0.5, COUNTS), counts=fewer),)).is_about(
        plan
    )


def test_of_whole_clients_as_many_records_as_they_draw() -> None:
    plan = make_plan(unit="client", per_client=5)
    assert release(plan, records=5 * 8).is_about(plan)
    assert not release(plan, records=5 * 9).is_about(plan)


def test_a_signature_is_of_its_signer_only() -> None:
    first, second = (release().sign(key) for key in KEYS[:2])
    assert first.is_signed_by(KEYS[0].public)
    assert first.is_intact
    assert not first.is_signed_by(KEYS[1].public)
    assert not replace(first, signature=second.signature).is_intact
    assert not replace(first, records=1).is_intact
    both = first.countersign(KEYS[1])
    assert both.signers == (KEYS[0].public, KEYS[1].public)
    assert both.is_intact
    assert all(both.is_signed_by(key.public) for key in KEYS[:2])
    assert not replace(both, signer=" ".join(reversed(both.signers))).is_intact
    assert not replace(both, signature=f"{first.signature} {'0' * 128}").is_intact
    alone = release().countersign(KEYS[0])
    assert (alone.signer, alone.signature) == (first.signer, first.signature)


@pytest.mark.parametrize("lost", ["nothing", "counts"])
@pytest.mark.parametrize("said", [False, True])
def test_all_servers_sign_or_two_if_one_may_be_lost_and_it_says_so(lost: Any, said: bool) -> None:
    asked = servers_plan(servers=replace(SERVERS, lost=lost))
    words = f"Three servers. {LOST}" if said else "Three servers."
    found = release(asked, privacy=replace(release().privacy, trust=words))
    signed = [found]
    for key in (KEYS[0], KEYS[2], KEYS[3], KEYS[1]):  # the third one is a stranger
        signed.append(signed[-1].countersign(key))
    two_are_enough = said and lost == "counts"
    assert [each.has_signers_of(asked) for each in signed] == [
        *(False, False),
        *(two_are_enough, two_are_enough),
        True,
    ]


def test_plans_that_name_no_server_name_no_signer() -> None:
    assert release().has_signers_of(PLAN)
    assert release().has_signers_of(servers_plan(servers=replace(SERVERS, signing=())))


def test_own_releases_of_a_folder_and_the_newest_ledger(tmp_path: Path) -> None:
    mine, others = KEYS[:2]
    for name, count, key in [("a", 3, mine), ("b", 5, mine), ("c", 9, others), ("d", 4, mine)]:
        signed = release(ledger=Head(count, name)).sign(key)
        (tmp_path / f"{name}.json").write_bytes(signed.to_bytes())
    (tmp_path / "e.json").write_bytes(release().sign(mine).to_bytes())
    (tmp_path / "f.json").write_text("{}")
    found = [each.ledger for each in own_releases(tmp_path, mine.public)]
    assert found == [Head(3, "a"), Head(5, "b"), Head(4, "d"), None]
    assert newest_head(tmp_path, mine.public) == Head(5, "b")
    assert newest_head(tmp_path, KEYS[2].public) is None


def test_a_file_that_is_no_release_says_so_with_its_name(tmp_path: Path) -> None:
    path, whole = tmp_path / "r.json", release().sign(KEYS[0])
    for damaged in (whole.to_dict() | {"more": 1}, whole.to_dict() | {"release": []}):
        path.write_bytes(canonical(damaged))
        with pytest.raises(InvalidInputError, match=r"r\.json: This is not a fedprikl release"):
            Release.load(path)
    path.write_bytes(whole.to_bytes())
    assert Release.load(path) == whole
