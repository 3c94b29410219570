"""Three servers in one process: reports, roles, computation, ledger, release."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl.errors import InvalidInputError, ReleaseRefused
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    Release,
    RoundResult,
    SealingKey,
    Server,
    Servers,
    SignedPlan,
    WholeClient,
    finish_round,
    run_round,
)
from fedprikl.protocol.aggregator import Aggregator
from fedprikl.protocol.release import LOST
from fedprikl.protocol.round import Invitation
from fedprikl.protocol.server_round import LocalServer, ThreeServers
from fedprikl.secure_sum import Leaves
from tests.protocol.worlds import AT, InsecureNoNoise, World

WORLD = World.make(clients=9)


def plan(world: World = WORLD, **changes: Any) -> Plan:
    given: dict[str, Any] = {
        "population": "p",
        "reference": world.reference.fingerprint,
        "trust": "servers",
        "servers": Servers(suite="x25519", lost="counts"),
        "budget": Budget(epsilon=1.0),
        "views": (AskedView(points=12),),
        "questions": (
            Question(share=0.75, release="counts"),
            Question(divergence="tv", share=0.25, skew=0.0),
        ),
    }
    return Plan(**(given | changes))


def run(agreed: Plan, world: World = WORLD, **more: Any) -> RoundResult:
    given: dict[str, Any] = {"key": world.key, "ledger": None, "software": "tests", "at": AT}
    given |= {"rng": np.random.default_rng(1), "source": InsecureNoNoise()}
    server = Server(SignedPlan.sign(agreed, world.key), world.reference)
    return run_round(server, more.pop("clients", None) or world.clients(), **(given | more))


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers draw together whatever the source is; so their coins are switched off."""

    async def nothing(_: Any, __: Any, size: int, ___: Any) -> Any:
        return np.zeros(size, np.uint64)

    monkeypatch.setattr("fedprikl.protocol.server_answer.laplace_noise", nothing)


def counts_of(release: Release) -> list[float]:
    assert release.noisy_counts is not None
    return [*release.noisy_counts.counts, *release.noisy_counts.out_of_domain]


@pytest.mark.parametrize("lost", [None, 1, 2, 3])
def test_without_noise_the_release_has_the_sums(
    lost: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_noise(monkeypatch)
    release = run(plan(), lost=lost).release
    total = WORLD.held.sum(axis=0)
    assert counts_of(release) == total.tolist()
    assert release.records == total.sum()
    assert release.is_about(plan())
    assert release.privacy.trust.endswith(LOST) is (lost is not None)
    assert "two colluding servers learn the counts of every client" in release.privacy.trust
    if lost is None:
        shares = total[:-1] / total.sum()
        tv = float(np.maximum(WORLD.reference.probabilities[:-1] - shares, 0).sum())
        values = {each.divergence: each.value for each in release.answers}
        assert values["tv"] == pytest.approx(tv, abs=0.03)  # with what the counts say


def test_clients_that_leave_or_report_twice_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    result = run(plan(), leaves={"c3": Leaves.BEFORE_INPUT, "c4": Leaves.BEFORE_UNMASK})
    assert result.counted == set(WORLD.names()) - {"c3"}
    assert counts_of(result.release) == np.delete(WORLD.held, 3, axis=0).sum(axis=0).tolist()


def servers_of(agreed: Plan, **more: Any) -> ThreeServers:
    current = Server(SignedPlan(agreed), WORLD.reference).open_round(
        WORLD.names(), rng=np.random.default_rng(1), randomness=lambda size: bytes(size)
    )
    aggregator = Aggregator(current, key=WORLD.key, ledger=None, software="tests")
    return ThreeServers(current, aggregator, source=InsecureNoNoise(), **more)


def test_an_inconsistent_report_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose three shares lie on no line: found by the challenge, and by all servers."""
    without_noise(monkeypatch)
    take = LocalServer.take

    def bend(self: LocalServer, message: bytes) -> bytes | None:
        found = take(self, message)
        if self.role.number == 3 and len(self._kept) == 1 and found is not None:
            self._kept[found][2] += np.uint64(1)
        return found

    monkeypatch.setattr(LocalServer, "take", bend)
    servers = servers_of(plan())
    servers.collect(WORLD.clients(), at=AT)
    release = Release.from_bytes(servers.release(at=AT, rng=np.random.default_rng(1)))
    assert [(each.clients, each.included) for each in release.cohorts] == [(9, 8)]
    left_out = set(WORLD.names()) - servers.counted
    rows = [
        row for name, row in zip(WORLD.names(), WORLD.held, strict=True) if name not in left_out
    ]
    assert counts_of(release) == np.sum(rows, axis=0).tolist()


def test_what_is_no_report_is_not_taken() -> None:
    servers = servers_of(plan())
    first, second, _ = servers._servers.values()
    (cohort,) = servers._round.cohorts
    message = Invitation.to_member(servers._round, cohort, 0).to_bytes()
    keys = [server.key.public for server in servers._servers.values()]
    reports = WORLD.clients()[cohort.members[0]].report(message, keys, at=AT)
    assert first.take(reports[1]) is None
    assert first.take(reports[0][:-1]) is None
    assert second.take(b"") is None
    taken = first.take(reports[0])
    assert taken == first.take(reports[0])  # the same again counts once
    assert repr(first) == "<LocalServer 1, 1 reports>"


def test_the_budget_is_charged_and_nothing_without_reports(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("p", epsilon=2.0, delta=1e-5, at=AT)
        gone = dict.fromkeys(WORLD.names()[2:], Leaves.BEFORE_INPUT)
        with pytest.raises(ReleaseRefused, match="2 reports are left"):
            run(plan(), ledger=ledger, leaves=gone)
        assert ledger.account("p").spent == 0
        release = run(plan(), ledger=ledger).release
        assert 0.5 < ledger.account("p").spent <= 1.0
        assert release.ledger is not None
        assert release.privacy.epsilon <= 1.0
        run(plan(), ledger=ledger, lost=2)
        assert 1.0 < ledger.account("p").spent <= 2.0


def test_a_crash_after_the_noise_loses_nothing(tmp_path: Path) -> None:
    class CrashError(Exception):
        pass

    def crash(_: RoundResult) -> None:
        raise CrashError

    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("p", epsilon=2.0, delta=1e-5, at=AT)
        with pytest.raises(CrashError):
            run(plan(), ledger=ledger, keep=crash)
        found = finish_round(
            ledger, plan(), WORLD.reference, key=lambda: WORLD.key, at=AT, keep=lambda *_: None
        )
        assert found is not None
        assert found.is_about(plan())


def test_whole_clients_are_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    rng = np.random.default_rng(5)
    held = rng.multinomial(20, np.full(13, 1 / 13), size=9)
    world = World(held, WORLD.reference)
    release = run(plan(unit=WholeClient(20)), world).release
    assert counts_of(release) == held.sum(axis=0).tolist()
    assert (release.records, release.privacy.per_client) == (180, 20)


def test_named_servers_are_not_in_this_process() -> None:
    keys = tuple(SealingKey.generate().public for _ in range(3))
    with pytest.raises(InvalidInputError, match="plan without --servers"):
        run(plan(servers=Servers(suite="x25519", sealing=keys)))


def test_what_a_server_holds_never_prints() -> None:
    servers = servers_of(plan())
    servers.collect(WORLD.clients(), at=AT)
    shown = repr(vars(servers)) + repr([vars(each.role) for each in servers._servers.values()])
    share = next(iter(servers._servers[2]._kept.values()))
    assert str(share[0]) not in shown
