"""The one answer to a plan and period: charged everywhere, signed by all, never given twice."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedprikl.cli import monitor_command
from fedprikl.cli.app import app
from fedprikl.deployment.servers import answering
from fedprikl.deployment.servers.answering import Answered, alike, take_part
from fedprikl.deployment.servers.home import round_name
from fedprikl.deployment.servers.meeting import Settled
from fedprikl.errors import (
    BudgetExceededError,
    DeploymentError,
    FedPriKLError,
    InvalidInputError,
    LedgerDamagedError,
    ReleaseRefused,
)
from fedprikl.front import verify
from fedprikl.front.series import read_status, verify_history
from fedprikl.privacy import Ledger
from fedprikl.protocol import Release, Series, SignedPlan, SigningKey
from fedprikl.protocol.server_answer import answer as answer_on_shares
from tests.deployment.servers.test_links import free_ports
from tests.deployment.servers.test_meeting import send
from tests.deployment.servers.world import CELLS, NOW, World, reports


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World.make(tmp_path, free_ports())
    for home in made.homes:
        with Ledger.open(home.ledger) as ledger:
            ledger.set_budget("phones", epsilon=1.0, delta=1e-6, at=NOW)
    return made


def many(signed: SignedPlan, size: int = 60, period: int = 0) -> list[tuple[bytes, bytes, bytes]]:
    """Clients with 20 records each, spread like the reference."""
    return [reports(signed, counts=[4] * 5, period=period) for _ in range(size)]


def answer(
    world: World, present: Sequence[int] = (1, 2, 3), period: int = 0, wait: float = 60.0
) -> list[Answered | Exception]:
    """All servers that are there, each in a thread of its own."""
    lost = next((n for n in (1, 2, 3) if n not in present), None)

    def one(number: int) -> Answered | Exception:
        home = world.homes[number - 1]
        (task,) = home.tasks()
        try:
            return take_part(home, task, period, wait=wait, without=lost, clock=lambda: NOW)
        except FedPriKLError as error:
            return error

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(one, present))


def released(found: Sequence[Answered | Exception]) -> Release:
    """The release that all of them have."""
    assert all(isinstance(each, Answered) for each in found), found
    (release,) = {each.release.to_bytes() for each in found if isinstance(each, Answered)}
    return Release.from_bytes(release)


def left(world: World, number: int) -> float:
    with Ledger.open(world.homes[number - 1].ledger) as ledger:
        return ledger.account("phones").left


def test_release_is_signed_by_three_and_charged_by_three(world: World) -> None:
    signed = world.plan()
    send(world, *many(signed))
    release = released(answer(world))
    assert verify(release, plan=signed.plan) is release
    assert release.signers == tuple(card.signing for card in world.homes[0].cards)
    assert (release.records, release.cohorts[0].included, release.trust) == (1200, 60, "servers")
    counts = release.noisy_counts
    assert counts is not None
    assert np.abs(np.array(counts.counts) - 240).max() < 60
    assert all(left(world, number) < 0.01 for number in (1, 2, 3))
    for home in world.homes:
        assert [each.held() for each in home.intakes()] == [
            {(bytes.fromhex(signed.plan.fingerprint), 0): 0}
        ]
    assert released(answer(world)) == release  # again: the same, and nothing is charged


def test_changed_release_or_a_missing_signature_is_noticed(world: World) -> None:
    signed = world.plan(lost="counts")
    send(world, *many(signed))
    release = released(answer(world))
    *two, _ = release.signers
    fewer = replace(
        release, signer=" ".join(two), signature=" ".join(release.signature.split(" ")[:2])
    )
    with pytest.raises(InvalidInputError, match="not signed by all servers"):
        verify(fewer, plan=signed.plan)
    with pytest.raises(InvalidInputError, match="NOT genuine"):
        verify(replace(release, software="other"), plan=signed.plan)
    with pytest.raises(InvalidInputError, match="changed after it was signed"):
        verify(release, plan=replace(signed, plan=replace(signed.plan, population="others")))


@pytest.mark.parametrize("lost", [1, 3])
def test_one_server_lost_for_good(world: World, lost: int) -> None:
    signed = world.plan(lost="counts")
    send(world, *many(signed))
    release = released(answer(world, [n for n in (1, 2, 3) if n != lost]))
    assert verify(release, plan=signed.plan) is release
    assert len(release.signers) == 2
    assert release.privacy.trust.endswith("One server was lost.")
    assert [left(world, n) < 0.01 for n in (1, 2, 3)] == [n != lost for n in (1, 2, 3)]


def test_plan_that_needs_all_servers_releases_nothing(world: World) -> None:
    send(world, *many(world.plan()))
    found = answer(world, (1, 2))
    assert all(isinstance(each, ReleaseRefused) for each in found), found
    assert left(world, 1) == 1.0


def test_second_answer_is_refused_by_every_ledger(world: World) -> None:
    """Also if the releases and the reports' files are gone, or a server asks for it alone."""
    signed = world.plan()
    send(world, *many(signed))
    released(answer(world))
    for home in world.homes:
        for path in home.releases.glob("*.json"):
            path.unlink()
    for each in answer(world):
        assert isinstance(each, ReleaseRefused)
        assert "one only, whatever the reports are" in str(each)


def test_server_with_an_older_ledger_is_refused(world: World) -> None:
    """Its own note of the head tells; where that went back too, the others tell."""
    send(world, *many(world.plan()))
    home = world.homes[0]
    older = home.ledger.read_bytes()
    released(answer(world))
    home.ledger.write_bytes(older)
    for path in home.releases.glob("*.json"):
        path.unlink()
    (task,) = home.tasks()
    with pytest.raises(LedgerDamagedError, match="older copy"):
        take_part(home, task, 0, wait=0.1, clock=lambda: NOW)
    (home.state / "heads.json").unlink()
    with pytest.raises(DeploymentError, match="No other server"):
        take_part(home, task, 0, wait=0.1, clock=lambda: NOW)


def test_budget_of_one_server_stops_all_and_charges_none(world: World) -> None:
    signed = world.plan()
    send(world, *many(signed))
    with Ledger.open(world.homes[2].ledger) as ledger:
        ledger.set_budget("phones", epsilon=0.5, delta=1e-6, at=NOW)
    found = answer(world)
    assert isinstance(found[2], BudgetExceededError)
    assert [left(world, number) for number in (1, 2, 3)] == [1.0, 1.0, 0.5]
    with Ledger.open(world.homes[2].ledger) as ledger:
        ledger.set_budget("phones", epsilon=1.0, delta=1e-6, at=NOW)
    released(answer(world))


def test_failure_after_the_charge_of_some_gives_it_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server 3 cannot charge when the others have: they give it back, and can try again."""
    signed = world.plan()
    send(world, *many(signed))
    honest = answering._Part._reserve

    async def fail(self: Any, ledger: Ledger, *rest: Any) -> Any:
        if self.task.number == 3:
            raise BudgetExceededError("Spent meanwhile.")
        return await honest(self, ledger, *rest)

    monkeypatch.setattr(answering._Part, "_reserve", fail)
    assert all(isinstance(each, FedPriKLError) for each in answer(world))
    assert [left(world, number) for number in (1, 2, 3)] == [1.0] * 3
    monkeypatch.undo()
    release = released(answer(world))
    assert release.round_id == round_name(world.task().fingerprint, 0)


def test_failure_after_something_may_have_been_opened_stays_charged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = world.plan()
    send(world, *many(signed))

    async def fail(*_: Any, **__: Any) -> Any:
        raise DeploymentError("The connection to another server ended.")

    monkeypatch.setattr(answering, "answer", fail)
    assert all(isinstance(each, DeploymentError) for each in answer(world))
    monkeypatch.undo()
    assert all(left(world, number) < 0.01 for number in (1, 2, 3))
    assert all(isinstance(each, ReleaseRefused) for each in answer(world))


def noise_of(world: World, monkeypatch: pytest.MonkeyPatch, cheats: Sequence[int]) -> list[float]:
    """The noise in a release, if some servers add none of their own, or nothing random at all."""
    send(world, *many(world.plan()))

    async def cheat(runtime: Any, asked: Any, share: Any, **options: Any) -> Any:
        if cheats == (1, 2, 3):
            options["noise"] = np.zeros(CELLS + 1, np.int64)
        elif runtime.server in cheats:
            asked.__dict__["draw_noise"] = lambda _: np.zeros(CELLS + 1, np.int64)
            options["randomness"] = bytes
        return await answer_on_shares(runtime, asked, share, **options)

    monkeypatch.setattr(answering, "answer", cheat)
    counts = released(answer(world)).noisy_counts
    assert counts is not None
    found = np.array([*counts.counts, *counts.out_of_domain])
    return [float(each) for each in found - [*[240] * CELLS, 0]]


@pytest.mark.parametrize("server", [1, 3])
def test_server_that_adds_no_noise_takes_none_away(
    world: World, monkeypatch: pytest.MonkeyPatch, server: int
) -> None:
    """Six counts without any noise have a probability below 1e-5, with noise of scale 2 or more."""
    assert any(noise_of(world, monkeypatch, (server,)))


def test_that_check_would_notice_servers_without_noise(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(noise_of(world, monkeypatch, (1, 2, 3)))


def test_server_that_drops_a_client_drops_it_for_good(world: World) -> None:
    """All follow, the operators see who held what, and no second answer shows the difference."""
    send(world, *many(world.plan(), 20))
    (intake,) = world.homes[1].intakes()
    intake._db.execute("DELETE FROM reports WHERE number = 7")
    intake.close()
    found = answer(world)
    assert released(found).cohorts[0].included == 19
    first = found[0]
    assert isinstance(first, Answered)
    assert first.settled is not None
    assert first.settled.held == {1: 20, 2: 19, 3: 20}
    for path in [*world.homes[1].releases.glob("*.json"), world.homes[1].ledger]:
        path.unlink()  # it pretends that there was no answer
    assert all(isinstance(each, FedPriKLError | Answered) for each in answer(world, wait=1.0))
    assert all(left(world, number) < 0.01 for number in (1, 3))


def test_late_reports_go_into_no_period(world: World) -> None:
    """A mask hides one challenge: what was left out of a period is never checked again."""
    signed = world.plan(when=Series(every="day", first="2029-12-01", periods=31))
    first, second = many(signed), many(signed, 5, period=1)
    cut = reports(signed, counts=[4] * 5)
    send(world, *first, (cut[0], cut[1], None))
    one = released(answer(world))
    assert one.cohorts[0].included == 60
    send(world, *second)
    two = released(answer(world, period=1))
    assert two.cohorts[0].included == 5
    assert two.period is not None
    assert (two.period.number, two.period.previous) == (1, one.fingerprint)


def test_a_series_over_servers_is_judged_from_their_releases(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the releases can: no key is needed, and nothing is charged."""
    signed = world.plan(when=Series(every="day", first="2029-12-28", periods=5), lost="counts")
    drifted = [16, 1, 1, 1, 1]
    for number, counts in enumerate(([4] * 5, [4] * 5, drifted, drifted)):
        send(world, *[reports(signed, counts=counts, period=number) for _ in range(60)])
    folder, ledger = world.homes[0].releases, world.homes[1].ledger
    (tmp_path / "plan.json").write_text(json.dumps(signed.to_dict()))
    world.reference.save(tmp_path / "ref.json")
    monkeypatch.setattr(monitor_command, "now", lambda: NOW)

    def judge(place: Path, history: str = "history.db", *more: str) -> Result:
        line = ["monitor", "run", str(tmp_path / "plan.json"), "--releases", str(place)]
        line += ["--history", str(tmp_path / history), "--ledger", str(ledger), *more]
        return CliRunner().invoke(app, line)

    nothing = judge(folder)
    assert isinstance(nothing.exception, ReleaseRefused)
    assert "has no release of period 0" in str(nothing.exception)
    made = {each: released(answer(world, period=each)) for each in (0, 2, 3)}
    (folder / "other.json").write_text("{}")  # whatever else lies there is passed over
    assert judge(folder).exit_code == 3  # an alarm
    found = read_status(tmp_path / "history.db", at=NOW)
    states = ["released", "missed", "released", "released", "ahead"]
    assert [point.state for point in found.points] == states
    assert found.points[1].reason.startswith("the servers had not answered it when they")
    assert [alarm.since for alarm in found.open_alarms] == [2]
    words = verify_history(tmp_path / "history.db", ledger)
    assert "3 releases, each signed by the servers" in words
    assert "has charged no others" in words
    some = tmp_path / "some"
    some.mkdir()
    (some / "last.json").write_bytes(made[3].to_bytes())
    (some / "first.json").write_bytes(made[0].to_bytes())
    judge(some, "part.db")
    part = judge(some, "part.db")  # period 3 names the release of 2, which was made
    assert "has no release of period 2" in str(part.exception)
    changed = replace(made[2], signer="", signature="").sign(SigningKey.generate())
    (some / "changed.json").write_bytes(changed.to_bytes())
    assert "has no release of period 2" in str(judge(some, "part.db").exception)
    (some / "genuine.json").write_bytes(made[2].to_bytes())
    assert judge(some, "part.db").exit_code == 3
    late = released(answer(world, period=1))
    assert late.period is not None
    assert judge(folder, "anew.db").exit_code == 3
    again = read_status(tmp_path / "anew.db", at=NOW)
    assert [point.state for point in again.points] == [*(4 * ["released"]), "ahead"]
    refused = judge(folder, "h.db", "--client-column", "id")
    assert "nobody reads --client-column" in refused.output
    assert "There is no folder" in str(judge(tmp_path / "none", "h.db").exception)


def test_period_that_is_not_over(world: World) -> None:
    when = Series(every="day", first="2030-01-01", periods=3)
    world.plan(when=when)
    (found, *_) = answer(world)
    assert isinstance(found, InvalidInputError)
    assert "is not over" in str(found)


def test_settled_tells_no_share() -> None:
    share = np.array([12345], np.uint64)
    told = Settled((1, 2), share, b"", b"", {}, 0, NOW, "", b"")
    assert "12345" not in repr(told)
    assert not alike({"a": 1.0}, {"a": 1.1})
