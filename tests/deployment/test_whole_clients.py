"""Sites of a round that protects whole clients: each draws exactly k of its records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deploy.small_world import write_plan

from fedprikl.checks import Ints
from fedprikl.deployment import site
from fedprikl.deployment.flower.client import unpack
from fedprikl.deployment.settings import Home
from fedprikl.deployment.site_memory import SiteMemory
from fedprikl.errors import PolicyRefusal, ReleaseRefused
from fedprikl.protocol import (
    Client,
    Series,
    SignedPlan,
    SigningKey,
    WholeClient,
)
from tests.deployment.fake_grid import FakeFederation, spent
from tests.deployment.in_process import in_process_value
from tests.deployment.test_series_federation import ROWS, plan, run, with_times
from tests.deployment.test_site_memory import Site
from tests.plans import make_plan
from tests.protocol.worlds import InsecureNoNoise

K = 7


def without_records(federation: FakeFederation, *numbers: int) -> None:
    for number in numbers:
        file = federation.files[number]
        file.write_text(file.read_text().splitlines()[0] + "\n")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each site that opens a session has drawn."""
    found: list[int] = []

    def client(counts: Ints, *arguments: Any, views: Any, **settings: Any) -> Client:
        assert {int(view.sum()) for view in views} <= {int(counts.sum())}
        found.append(int(counts.sum()))
        return Client(counts, *arguments, views=views, **settings)

    monkeypatch.setattr(site, "Client", client)
    return found


def test_sites_draw_as_many_records_as_the_invitation_says(
    federation: FakeFederation, drawn: list[int]
) -> None:
    write_plan(federation.home, unit=WholeClient(K))
    federation.files[2].write_text("age,plan\n46.0,basic\nno row\n")
    without_records(federation, 5)
    release, lines = federation.run(federation.grid())
    assert release.records == 8 * K
    assert drawn == [K] * 8
    assert "advertise: 8 of 8 answered, 0 refused, 0 lost" in lines[1]


def test_a_draw_of_all_records_is_the_round_of_all_records(federation: FakeFederation) -> None:
    """60 of 60 rows: to the bit."""
    write_plan(federation.home, unit=WholeClient(60))
    release, _ = federation.run(federation.grid(), source=InsecureNoNoise())
    assert release.value == in_process_value(federation.home, federation.files, {})


def test_a_site_without_records_stays_away_under_seal(
    federation: FakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    """Its refusal is as long as an answer, and the aggregator alone reads it."""
    write_plan(federation.home, unit=WholeClient(K, "away"))
    without_records(federation, 3)
    grid = federation.grid()
    release, _ = federation.run(grid)
    assert release.records == 7 * K
    answers = [m for m in grid.carried if m.metadata.reply_to_message_id]
    assert not any(unpack(message).refusal for message in answers)
    first = [m for m in answers if m.metadata.message_type == "query.advertise"]
    assert len({len(unpack(message).message) for message in first}) == 1
    (path,) = Home(federation.home).refusals.iterdir()
    (reason,) = json.loads(path.read_text()).values()
    assert "holds no records" in reason
    assert "holds no records" in caplog.text


def test_too_few_sites_with_records_fail_clearly(federation: FakeFederation) -> None:
    write_plan(federation.home, unit=WholeClient(K, "away"))
    without_records(federation, *range(6))
    with pytest.raises(ReleaseRefused, match="6 of the reasons are in the aggregator's folder"):
        federation.run(federation.grid())
    assert spent(federation) == 0


def test_sites_draw_from_the_records_of_the_period(
    federation: FakeFederation, drawn: list[int]
) -> None:
    with_times(federation, days=2)
    plan(federation, unit=WholeClient(3 * ROWS), releases=6)
    previous = ""
    for number in range(3):  # nobody has records of the last
        release = run(federation, number, previous=previous)
        assert release.records == 8 * 3 * ROWS
        previous = release.fingerprint
    assert drawn == [3 * ROWS] * 24


def test_a_client_that_counts_other_than_k_records_is_left_out(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is the client's own: software that draws wrongly sends nothing."""
    write_plan(federation.home, unit=WholeClient(K))
    no_draw: Callable[[Any], None] = lambda _: None  # noqa: E731
    monkeypatch.setattr(site, "draw_of", no_draw)
    with pytest.raises(ReleaseRefused, match="8 of the reasons"):
        federation.run(federation.grid())
    (path,) = Home(federation.home).refusals.iterdir()
    assert set(json.loads(path.read_text()).values()) == {
        "its counts are not those of exactly as many records as the plan draws of each client"
    }


def test_a_site_without_any_file_takes_part_like_all_others(
    federation: FakeFederation, drawn: list[int]
) -> None:
    write_plan(federation.home, unit=WholeClient(K))
    federation.files[5].write_bytes(b"")
    release, _ = federation.run(federation.grid())
    assert release.records == 8 * K
    assert drawn == [K] * 8


def test_a_site_draws_no_more_than_its_policy_allows(
    federation: FakeFederation, drawn: list[int]
) -> None:
    """Known before anything is read: a plan of a billion records would fill its memory."""
    write_plan(federation.home, unit=WholeClient(10**9), most_records=10**9)
    with pytest.raises(ReleaseRefused):
        federation.run(federation.grid())
    assert drawn == []


def test_a_client_is_in_every_count_whatever_the_population_is_called(tmp_path: Path) -> None:
    """Weeks that do not meet have no record in common, but the client is in all of them."""
    memory = Site(SiteMemory(tmp_path / "site.db", tmp_path / "data.csv"))
    at, key = "2027-12-31T12:00:00+00:00", SigningKey.generate()

    def signed(population: str, first: str, unit: str) -> SignedPlan:
        series = Series(every="week", first=first, periods=2, time_column="at")
        clients: Any = {"unit": "client", "per_client": 3} if unit == "client" else {}
        return SignedPlan.sign(
            make_plan(
                population=population,
                release="counts",
                series=series,
                releases=2 if unit == "client" else 1,
                **clients,
            ),
            key,
        )

    def count(name: str, plan: SignedPlan, period: int) -> None:
        memory.begin(name, plan, most_counts=1, at=at, period=period)
        memory.count(name, plan, most_counts=1, at=at, period=period)

    first = signed("phones", "2027-01-04", "client")
    count("a1", first, 0)
    count("a2", first, 1)
    with pytest.raises(PolicyRefusal, match="as often as"):
        count("b1", signed("other", "2027-03-01", "client"), 0)
    count("c1", signed("records", "2027-05-03", "record"), 0)  # of records, other weeks are others
