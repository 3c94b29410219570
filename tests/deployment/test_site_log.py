"""A site's log: a yes before counts leave, what left, what a year of it costs, and no way back."""

import math
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deploy.small_world import write_plan

from fedprikl.deployment import site_log
from fedprikl.deployment.flower.client import unpack
from fedprikl.deployment.policy import Approve, SitePolicy
from fedprikl.deployment.settings import Home, home_folder
from fedprikl.deployment.site import Envelope, _refuse
from fedprikl.deployment.site_log import WAITS, SiteLog, plan_in_words
from fedprikl.deployment.site_memory import SiteMemory
from fedprikl.errors import (
    DeploymentError,
    InvalidInputError,
    MissingExtraError,
    PolicyRefusal,
    ReleaseRefused,
)
from fedprikl.protocol import Invitation, Policy, Step
from tests.deployment.fake_grid import FakeFederation
from tests.protocol.worlds import AT, World

WORLD = World.make(clients=9)
KEY = WORLD.key.public


def invitation(**plan: Any) -> Invitation:
    this = WORLD.run(WORLD.plan(cohort=9, **plan)).round
    return Invitation.to_member(this, this.cohorts[0], 0)


def policy(approve: Approve = "always", yearly: float | None = None) -> SitePolicy:
    limits = Policy(organisers=frozenset({KEY}))
    return SitePolicy(
        organisers={"north": KEY}, limits=limits, approve=approve, epsilon_per_year=yearly
    )


@pytest.fixture
def log(tmp_path: Path) -> SiteLog:
    return SiteLog(tmp_path / "log.db")


def later(days: float) -> str:
    return (datetime.fromisoformat(AT) + timedelta(days=days)).isoformat()


def test_what_left_is_written_down(log: SiteLog) -> None:
    asked = invitation()
    log.check(asked, policy(), at=AT)
    assert log.read().sent == []
    log.send(asked, policy(), at=AT)
    (sent,) = log.read().sent
    assert (sent.organiser, sent.key, sent.at) == ("north", KEY, AT)
    assert (sent.plan, sent.round_id) == (asked.signed.plan.fingerprint, asked.round_id)
    assert (sent.views, sent.counts, sent.epsilon) == (("the whole",), len(asked.cells), 1.0)
    assert log.plan_of(sent.document) == asked.signed


@pytest.mark.parametrize("mode", ["new plans", "every round"])
def test_without_a_yes_a_round_waits_and_is_noted_once(log: SiteLog, mode: Approve) -> None:
    asked = invitation()
    for _ in range(3):
        with pytest.raises(PolicyRefusal, match=WAITS):
            log.check(asked, policy(mode), at=AT)
    with pytest.raises(PolicyRefusal, match=WAITS):
        log.send(asked, policy(mode), at=AT)
    (request,) = log.read().requests.values()
    assert (request.state, request.organiser, request.number) == ("waiting", "north", 1)
    log.decide(1, yes=False, by="ann", at=AT)
    with pytest.raises(PolicyRefusal, match="said no"):
        log.check(asked, policy(mode), at=AT)
    assert log.decide(1, yes=True, by="ann", at=AT).by == "ann"
    log.check(asked, policy(mode), at=AT)
    log.send(asked, policy(mode), at=AT)
    if mode == "new plans":
        log.check(asked, policy(mode), at=AT)
        return
    with pytest.raises(PolicyRefusal, match=WAITS):  # a yes is for one round
        log.send(asked, policy(mode), at=AT)
    with pytest.raises(InvalidInputError, match="the counts have left"):
        log.decide(1, yes=True, by="ann", at=AT)
    with pytest.raises(PolicyRefusal, match=WAITS):
        log.check(asked, policy(mode), at=AT)
    assert [each.state for each in log.read().requests.values()] == ["used", "waiting"]


def test_a_yes_to_one_plan_is_none_to_another_nor_to_a_round(log: SiteLog) -> None:
    one, other = invitation(), invitation(epsilon=0.5)
    for asked in (one, other):
        with pytest.raises(PolicyRefusal, match=WAITS):
            log.check(asked, policy("new plans"), at=AT)
    log.decide(1, yes=True, by="ann", at=AT)
    log.check(one, policy("new plans"), at=AT)
    with pytest.raises(PolicyRefusal, match=WAITS):
        log.check(other, policy("new plans"), at=AT)
    with pytest.raises(PolicyRefusal, match=WAITS):
        log.check(one, policy("every round"), at=AT)
    with pytest.raises(InvalidInputError, match=r"There is no request 7\. Known: 1, 2"):
        log.decide(7, yes=True, by="ann", at=AT)


def test_the_total_of_a_year_is_kept_and_falls_when_the_year_is_over(log: SiteLog) -> None:
    asked, limit = invitation(), policy(yearly=1.0)
    log.check(asked, limit, at=AT)
    log.send(asked, limit, at=AT)
    for try_again in (log.check, log.send):
        with pytest.raises(PolicyRefusal, match=r"a year would cost a record epsilon .* allows 1"):
            try_again(asked, limit, at=later(364))
    assert len(log.read().sent) == 1
    log.check(asked, limit, at=later(366))
    log.send(asked, limit, at=later(366))
    with pytest.raises(PolicyRefusal, match="a year"):  # a clock that goes back frees nothing
        log.check(asked, limit, at=later(1))


def test_releases_are_composed_where_the_sum_is_too_much(
    log: SiteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten small releases cost less together than their sum; without the library the sum holds."""
    asked = invitation(epsilon=0.1)
    for _ in range(9):
        log.send(asked, policy(), at=AT)
    log.check(asked, policy(yearly=1.0), at=AT)  # the sum: nothing is composed
    composed = log.spent(policy(yearly=0.1), at=AT)
    assert 0.1 < composed <= 0.9 * (1 + 1e-9)
    monkeypatch.setattr(site_log, "worst_epsilon", _not_installed)
    assert log.spent(policy(yearly=0.1), at=AT) == pytest.approx(0.9)
    with pytest.raises(PolicyRefusal, match="epsilon 1 "):
        log.check(asked, policy(yearly=0.95), at=AT)


def _not_installed(*_: Any, **__: Any) -> float:
    raise MissingExtraError("no dp-accounting")


def test_delta_adds_up_too(log: SiteLog) -> None:
    asked = invitation(epsilon=0.01)
    limit = replace(policy(yearly=5.0), delta_per_year=1.5e-6)
    log.send(asked, limit, at=AT)  # delta 1e-6
    simple = site_log._safe_sum([(site_log._known(0.01, 1e-6), None)] * 2, 1.5e-6)
    assert simple == float("inf")


@pytest.mark.parametrize(
    "damage",
    ["UPDATE entries SET body = replace(body, '1.0', '0.1')", "DELETE FROM entries"],
)
def test_an_entry_that_was_changed_is_found_out(log: SiteLog, tmp_path: Path, damage: str) -> None:
    head = log.send(invitation(), policy(), at=AT)
    with sqlite3.connect(tmp_path / "log.db") as db:
        for trigger in ("updated", "deleted"):
            db.execute(f"DROP TRIGGER entries_are_never_{trigger}")
        db.execute(damage)
    with pytest.raises(DeploymentError, match="nobody knows what has left"):
        SiteLog(tmp_path / "log.db", head).read()


def test_a_log_that_was_put_back_or_removed_is_found_out(log: SiteLog, tmp_path: Path) -> None:
    head = log.send(invitation(), policy(), at=AT)
    (tmp_path / "log.db").unlink()
    with pytest.raises(DeploymentError, match="an older copy of the file was put back"):
        SiteLog(tmp_path / "log.db", head).check(invitation(), policy(), at=AT)


def test_words_say_what_is_asked() -> None:
    lines = "\n".join(plan_in_words(invitation().signed))
    for words in ("'testers'", "the whole table", "epsilon 1, delta 1e-06", "one record"):
        assert words in lines
    assert "the aggregator alone" in lines


# Over a federation


@pytest.mark.slow
def test_a_person_says_yes_and_the_round_goes_on(federation: FakeFederation) -> None:
    grid = federation.grid(approve="new plans")
    with pytest.raises(ReleaseRefused, match="waits for a person at this site to say yes"):
        federation.run(grid)
    assert {unpack(message).refusal for message in grid.carried} == {"", WAITS}
    log = SiteLog(home_folder() / "log.db")
    (request,) = log.read().requests.values()  # all sites of this test have one folder
    log.decide(request.number, yes=True, by="ann", at=request.at)
    assert federation.run(federation.grid(approve="new plans"))[0].cohorts[0].included == 8
    sent = log.read().sent
    assert len(sent) == 8
    assert {each.organiser for each in sent} == {"small world"}
    head = SiteMemory(home_folder() / "site.db", Path()).log_head()
    assert head is not None
    assert head.hash == log.entries()[-1].hash


@pytest.mark.slow
def test_a_site_whose_log_is_gone_answers_nothing(federation: FakeFederation) -> None:
    federation.run(federation.grid())
    (home_folder() / "log.db").unlink()
    write_plan(federation.home, "more.json", releases=2)
    grid = federation.grid(most_counts=2)
    with pytest.raises(ReleaseRefused, match="not set up for this round"):
        federation.run(grid, plan="more.json")


@pytest.mark.slow
def test_one_plans_rounds_do_not_use_up_anothers(federation: FakeFederation) -> None:
    """`releases` are those of a plan; the site's own `most-counts` is about all of them."""
    write_plan(federation.home, "other.json", epsilon=0.5)
    federation.run(federation.grid(most_counts=2))
    release, _ = federation.run(federation.grid(most_counts=2), plan="other.json")
    assert release.cohorts[0].included == 8
    write_plan(federation.home, "third.json", epsilon=0.4)
    with pytest.raises(ReleaseRefused, match=r"2 times under all plans together.*most-counts"):
        federation.run(federation.grid(most_counts=2), plan="third.json")


def test_that_a_person_is_waited_for_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="fedprikl")
    for reason in (WAITS, "a person at this site said no"):
        assert _refuse(Envelope("r1"), reason).refusal == reason
    assert [each.levelname for each in caplog.records] == ["INFO", "ERROR"]


@pytest.mark.slow
@pytest.mark.parametrize("older", [True, False], ids=["older copy", "gone"])
def test_counts_that_the_memory_lacks_are_known_by_the_log(
    federation: FakeFederation, older: bool
) -> None:
    """Else the sums of two rounds could be subtracted after a backup was brought back."""
    memory = home_folder() / "site.db"
    if older:
        grid = federation.grid()
        grid.delay = lambda _, step: math.inf if step is Step.INPUT else 0.0
        with pytest.raises(ReleaseRefused):
            federation.run(grid)
        copy = memory.read_bytes()
    federation.run(federation.grid())
    memory.unlink()
    if older:
        memory.write_bytes(copy)
    Home(federation.home).cohorts.unlink()
    with pytest.raises(ReleaseRefused, match="counted 8 times under this plan"):
        federation.run(federation.grid())
