"""Old plans, old releases and old ledgers that somebody puts in the place of today's."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deploy.small_world import write_plan, write_roster

from fedprikl.deployment import hosted_round
from fedprikl.deployment.progress import parse_line
from fedprikl.deployment.provisioning import add_plan
from fedprikl.deployment.settings import Home, home_folder
from fedprikl.errors import (
    BudgetExceededError,
    InvalidInputError,
    LedgerDamagedError,
    ReleaseRefused,
)
from fedprikl.privacy import Head, Ledger
from fedprikl.protocol import Release, SigningKey
from fedprikl.protocol.release import newest_head
from tests.deployment.fake_grid import AT, FakeFederation
from tests.deployment.test_counted_once import all_refuse

pytestmark = pytest.mark.slow

NOW = datetime.now(UTC)


def days(number: float) -> str:
    return (NOW + timedelta(days=number)).isoformat()


# Plans


@pytest.mark.parametrize(
    "period",
    [
        {"valid_from": days(-30), "valid_until": days(-1)},
        {"valid_from": days(1), "valid_until": days(30)},
    ],
    ids=["expired", "not begun"],
)
def test_a_plan_out_of_its_time_is_refused(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, period: dict[str, str]
) -> None:
    """By an honest ServerApp before anything is sent, and by every site if it lies."""
    write_plan(federation.home, **period)
    grid = federation.grid()
    with pytest.raises(InvalidInputError, match="has expired, or is not valid yet"):
        federation.run(grid)
    assert grid.carried == []
    monkeypatch.setattr(hosted_round, "check_time", lambda *_, **__: None)
    all_refuse(federation, federation.grid(), "the plan has expired, or is not valid yet")


@pytest.mark.parametrize(
    "period",
    [
        {"valid_from": "", "valid_until": ""},
        {"valid_from": days(-1), "valid_until": ""},
        {"valid_from": "", "valid_until": days(30)},
        {"valid_from": days(-1), "valid_until": days(500)},
    ],
)
def test_a_plan_that_does_not_end_soon_enough_is_refused_by_every_site(
    federation: FakeFederation, period: dict[str, str]
) -> None:
    write_plan(federation.home, **period)
    all_refuse(federation, federation.grid(), "valid for more than 400 days, or for ever")


def test_a_site_may_allow_longer_or_shorter_plans(federation: FakeFederation) -> None:
    strict = federation.grid(longest_validity_days=20)
    all_refuse(federation, strict, "valid for more than 20 days")
    write_plan(federation.home, valid_until=days(500))
    release, _ = federation.run(federation.grid(longest_validity_days=600))
    assert release.cohorts[0].included == 8


def test_an_old_plan_is_refused_once_a_newer_one_was_seen(federation: FakeFederation) -> None:
    """The organiser replaced it, because its sealing key was stolen, say; the thief has both."""
    write_plan(federation.home, "stolen.json", serial=1, releases=9)
    write_plan(federation.home, serial=2, releases=9)
    federation.run(federation.grid(most_counts=9))
    grid = federation.grid(most_counts=9)
    with pytest.raises(ReleaseRefused, match=r"8 clients took no part.*newer plan"):
        federation.run(grid, plan="stolen.json")
    assert {message.metadata.message_type for message in grid.carried} == {"query.advertise"}
    release, _ = federation.run(federation.grid(most_counts=9))  # the newer one still works
    assert release.cohorts[0].included == 8


def test_an_old_plan_is_refused_once_a_kit_brought_a_newer_one(federation: FakeFederation) -> None:
    """Before the newer one was ever asked; one that nobody signed replaces nothing."""
    write_plan(federation.home, "newer.json", serial=7)
    newer = federation.home / "newer.json"
    document, site = json.loads(newer.read_text()), home_folder()
    newer.unlink()
    site.mkdir(exist_ok=True)
    (site / "forged.json").write_text(json.dumps(document | {"signature": "00" * 64}))
    release, _ = federation.run(federation.grid(most_counts=2))
    assert release.cohorts[0].included == 8
    write_plan(federation.home, releases=2)
    add_plan(Home(site), json.dumps(document))
    with pytest.raises(ReleaseRefused, match=r"8 clients took no part.*knows a newer plan"):
        federation.run(federation.grid(most_counts=2))


# Releases


def test_a_release_repeats_the_request_it_answers(federation: FakeFederation) -> None:
    """So that a relay that replays the line of an older run is found out."""
    write_plan(federation.home, releases=2)
    signer = SigningKey.load(Home(federation.home).signing_key).public
    seen = []
    for request in ("11" * 32, "22" * 32):
        _, lines = federation.run(federation.grid(most_counts=2), request=request)
        (told,) = [
            Release.from_bytes(found[1])
            for found in map(parse_line, lines)
            if found is not None and found[0] == "release"
        ]
        assert told.request == request
        assert told.is_signed_by(signer)
        seen.append(told)
    replayed = seen[0]
    assert replayed.request != "22" * 32
    forged = replace(replayed, request="22" * 32)
    assert not forged.is_signed_by(signer)


def test_a_request_that_is_none_is_refused(federation: FakeFederation) -> None:
    for bad in ("x", "0" * 65, "\x1b[2J"):
        with pytest.raises(InvalidInputError, match="at most 64 digits"):
            federation.run(federation.grid(), request=bad)


# Ledgers


def put_back(federation: FakeFederation) -> None:
    """A round, after which the ledger of before is back in its place."""
    home = Home(federation.home)
    write_plan(federation.home, releases=9)
    shutil.copy(home.ledger, federation.home / "copy.db")
    federation.run(federation.grid(most_counts=9))
    shutil.copy(federation.home / "copy.db", home.ledger)


def test_an_older_ledger_than_its_releases_is_refused(federation: FakeFederation) -> None:
    put_back(federation)
    grid = federation.grid(most_counts=9)
    with pytest.raises(LedgerDamagedError, match="an older copy of the file was put back"):
        federation.run(grid)
    assert grid.carried == []
    shutil.rmtree(Home(federation.home).releases)  # what gave it away
    assert federation.run(grid)[0].cohorts[0].included == 8


def test_foreign_and_damaged_releases_stop_no_round(federation: FakeFederation) -> None:
    write_plan(federation.home, releases=2)
    home = Home(federation.home)
    release, _ = federation.run(federation.grid(most_counts=2))
    far = replace(release, ledger=Head(10**9, "f" * 64))
    foreign = far.sign(SigningKey.generate())
    document: dict[str, Any] = json.loads(release.to_bytes())
    document["release"]["ledger"]["count"] = 10**9  # signed by our key, and changed
    (home.releases / "foreign.json").write_bytes(foreign.to_bytes())
    (home.releases / "changed.json").write_text(json.dumps(document))
    (home.releases / "empty.json").write_text("")
    (home.releases / "binary.json").write_bytes(b"\xff\x00")
    (home.releases / "deep.json").write_text("[" * 100_000)
    (home.releases / "folder.json").mkdir()
    (home.releases / "lost.json").symlink_to("/nowhere")
    signer = SigningKey.load(home.signing_key).public
    found = newest_head(home.releases, signer)
    assert found is not None
    assert found == release.ledger
    assert newest_head(home.folder / "no such folder", signer) is None
    assert federation.run(federation.grid(most_counts=2))[0].cohorts[0].included == 8


# Budgets


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_what_the_budget_does_not_allow_is_refused_before_anybody_is_asked(
    federation: FakeFederation, trust: str
) -> None:
    """Not even who is there; and at once, whoever is connected."""
    roster = write_roster(federation.home, federation.files)
    with Ledger.open(Home(federation.home).ledger) as ledger:
        ledger.set_budget("few", epsilon=0.5, delta=1e-6, at=AT)
    write_plan(federation.home, population="few", trust=trust, roster=roster.fingerprint)
    grid = federation.grid()
    grid.contexts.clear()
    with pytest.raises(BudgetExceededError):
        federation.run(grid)
    assert grid.carried == []
    assert grid.time.seconds == 0
