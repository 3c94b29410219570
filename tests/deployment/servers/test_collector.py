"""Reports over HTTP: what is kept, and every way in which a report is refused."""

import asyncio
import contextlib
import socket
import sqlite3
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl.deployment.servers import collector
from fedprikl.deployment.servers.collector import Collector
from fedprikl.deployment.servers.intake import Intake
from fedprikl.deployment.servers.meeting import shut
from fedprikl.deployment.web import serving
from fedprikl.errors import IntakeError
from fedprikl.protocol import Roster, Series, SignedPlan, SigningKey
from fedprikl.protocol.plan import Validity
from fedprikl.protocol.report import make_reports, message_bytes
from tests.deployment.servers.world import Answer, World, call, reports


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path)


def post(app: Collector, *bodies: bytes) -> list[Answer]:
    """One after the other."""

    async def run() -> list[Answer]:
        return [await call(app, body) for body in bodies]

    return asyncio.run(run())


def statuses(app: Collector, *bodies: bytes) -> list[int]:
    return [status for status, _, _ in post(app, *bodies)]


def held(world: World, signed: SignedPlan, number: int = 1, period: int = 0) -> int:
    plan = bytes.fromhex(signed.plan.fingerprint)
    return sum(len(each.reports(plan, period)) for each in world.homes[number - 1].intakes())


@pytest.mark.parametrize("suite", ["x25519", "hybrid"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_report_is_kept_once(world: World, suite: str, number: int) -> None:
    signed = world.plan(suite=suite)
    mine, app = reports(signed)[number - 1], world.collector(number)
    assert statuses(app, mine, mine, reports(signed)[number - 1]) == [200, 200, 200]
    assert app.counts == {"new": 2, "again": 1}
    assert held(world, signed, number) == 2
    again = world.collector(number)  # after a restart
    assert statuses(again, mine) == [200]


def test_report_for_another_server_plan_or_period_is_refused(world: World) -> None:
    signed = world.plan()
    other = world.plan(budget={"delta": 1e-7})
    app = world.collector()
    _, second, third = reports(signed)
    assert statuses(app, second, third) == [422, 422]
    assert statuses(world.collector(2), third) == [422]
    mine = bytearray(reports(signed)[0])
    here, there = (bytes.fromhex(each.plan.fingerprint) for each in (signed, other))
    moved = bytes(mine).replace(here, there)
    later = mine[:8] + (1).to_bytes(4, "little") + mine[12:]
    assert statuses(app, moved, bytes(later), bytes(mine)) == [422, 404, 200]
    assert held(world, signed) == 1
    assert held(world, other) == 0


def test_truncated_and_changed_reports_are_refused(world: World) -> None:
    signed = world.plan()
    app, mine = world.collector(2), reports(signed)[1]
    changed = [mine[:i] + bytes([mine[i] ^ 1]) + mine[i + 1 :] for i in range(0, len(mine), 7)]
    cut = [mine[:size] for size in range(0, len(mine), 13)]
    found = statuses(app, *changed, *cut)
    assert set(found) <= {422, 404}
    assert held(world, signed, 2) == 0


def test_report_of_the_same_id_and_other_content_is_told(world: World) -> None:
    signed = world.plan()
    fixed = iter([bytes(16), bytes(32), bytes(32)] * 2)
    servers = signed.plan.servers
    assert servers is not None
    sent = [
        make_reports(
            np.array(vector),
            plan=bytes.fromhex(signed.plan.fingerprint),
            period=0,
            suite="x25519",
            servers=servers.sealing,
            randomness=lambda _: next(fixed),
        )[1]
        for vector in ([1, 0, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0, 1])
    ]
    assert statuses(world.collector(2), *sent) == [200, 409]


def test_roster_is_kept_to(world: World) -> None:
    keys = [SigningKey.generate() for _ in range(3)]
    roster = Roster(frozenset(bytes.fromhex(key.public) for key in keys))
    signed = world.plan(roster)
    app = world.collector()
    stranger, nobody = SigningKey.generate(), None
    bodies = [reports(signed, identity=who)[0] for who in (keys[0], keys[1], stranger, nobody)]
    assert statuses(app, *bodies) == [200, 200, 403, 403]
    second = reports(signed, identity=keys[0])[0]
    assert statuses(app, second) == [409]
    stolen = second.replace(bytes.fromhex(keys[0].public), bytes.fromhex(keys[2].public))
    assert statuses(app, stolen) == [422]
    assert held(world, signed) == 2


def test_signed_report_without_a_roster_is_refused(world: World) -> None:
    signed = world.plan()
    assert statuses(world.collector(), reports(signed, identity=SigningKey.generate())[0]) == [422]


def test_late_report_is_refused(world: World) -> None:
    signed = world.plan(when=Series(every="day", first="2029-12-01", periods=31))
    plan, app = bytes.fromhex(signed.plan.fingerprint), world.collector()
    early, mine, future = (reports(signed, period=n)[0] for n in (3, 3, 31))
    assert statuses(app, early) == [200]
    (intake,) = world.homes[0].intakes()
    intake.shut(plan, 3)
    assert statuses(app, mine, mine) == [410, 410]
    assert statuses(app, early) == [200]
    assert statuses(app, future) == [404]
    relabelled = mine[:8] + (5).to_bytes(4, "little") + mine[12:]
    assert statuses(app, relabelled) == [422]
    intake.forget(plan, 3)
    assert statuses(app, early) == [410]  # counted, and sent again: in no other period
    assert held(world, signed, period=4) == 0


def test_an_identity_counts_once_at_all_collectors_of_a_server(world: World) -> None:
    people = [SigningKey.generate() for _ in range(4)]
    roster = Roster(frozenset(bytes.fromhex(key.public) for key in people))
    signed = world.plan(roster=roster)
    (task,) = world.homes[0].tasks()
    apps = [world.collector(), world.collector(name="b")]
    sent = [reports(signed, identity=people[0])[0] for _ in apps]
    assert [statuses(app, message) for app, message in zip(apps, sent, strict=True)] == [[200]] * 2
    intakes = world.homes[0].intakes()
    assert len(intakes) == 2
    assert shut(intakes, task, 0) == min(message[44:60] for message in sent)


def test_several_reports_at_once_are_one_commit(world: World) -> None:
    signed = world.plan()
    app, commits = world.collector(), list[int]()
    add = app._intake.add
    app._intake.add = lambda batch: commits.append(len(batch)) or add(batch)  # type: ignore

    async def run() -> list[int]:
        found = await asyncio.gather(*(call(app, reports(signed)[0]) for _ in range(50)))
        return [status for status, _, _ in found]

    assert asyncio.run(run()) == [200] * 50
    assert sum(commits) == 50
    assert len(commits) < 10


def test_back_pressure(world: World) -> None:
    signed = world.plan()
    app = world.collector(waiting=2)

    async def run() -> list[Answer]:
        return await asyncio.gather(*(call(app, reports(signed)[0]) for _ in range(10)))

    found = asyncio.run(run())
    refused = [headers for status, _, headers in found if status == 503]
    assert refused
    assert all(headers["retry-after"] == "2" for headers in refused)
    assert held(world, signed) == 10 - len(refused)
    assert statuses(app, reports(signed)[0]) == [200]


def test_disk_that_fails_acknowledges_nothing(world: World) -> None:
    signed = world.plan()
    app = world.collector()
    add = app._intake.add

    def fail(_: Any) -> Any:
        raise IntakeError("The disk is full.")

    app._intake.add = fail  # type: ignore
    assert statuses(app, reports(signed)[0]) == [503]
    assert asyncio.run(call(app, method="GET", path="/health"))[0] == 503
    app._intake.add = add  # type: ignore[method-assign]
    assert statuses(app, reports(signed)[0]) == [200]
    assert asyncio.run(call(app, method="GET", path="/health"))[:2] == (200, "ok\n")


def test_disk_without_room_for_the_mark_keeps_reports(world: World) -> None:
    """Whoever waits for the disk gets an answer, whatever fails beside the reports."""
    signed = world.plan()
    app = world.collector()
    mark = world.homes[0].folder / "reports-a.db.last"
    mark.mkdir()

    async def send(body: bytes) -> Answer:
        return await asyncio.wait_for(call(app, body), 10)

    assert [asyncio.run(send(reports(signed)[0]))[0] for _ in range(2)] == [200, 200]
    mark.rmdir()
    assert held(world, signed) == 2


def test_slow_and_cut_uploads(world: World) -> None:
    signed = world.plan()
    app, mine = world.collector(seconds=0.05), reports(signed)[0]

    async def run() -> list[Answer]:
        part = {"type": "http.request", "body": mine[:50], "more_body": True}
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        slow = await call(app, mine, pieces=[part, never])
        cut = await call(app, mine, pieces=[part, {"type": "http.disconnect"}])
        long = {"type": "http.request", "body": mine + b"x" * 999, "more_body": True}
        return [slow, cut, await call(app, mine, pieces=[long])]

    found = asyncio.run(run())
    assert [status for status, _, _ in found] == [408, 422, 413]
    assert found[0][2]["connection"] == "close"
    assert held(world, signed) == 0


def test_slow_senders_keep_nobody_out(world: World) -> None:
    """Over real HTTPS: more of them than there are places, with half a head or half a body each."""
    signed, home = world.plan(), world.homes[0]
    roots = ssl.create_default_context(cafile=str(home.folder / "ca.pem"))
    mine = reports(signed)[0]
    head = f"POST /v1/reports HTTP/1.1\r\nHost: s\r\nContent-Length: {len(mine)}\r\n".encode()
    with ExitStack() as stack:
        address = stack.enter_context(serving(world.collector(), tls=home.tls, at_once=4))
        host, port = address.removeprefix("https://").rstrip("/").split(":")

        def connect(words: bytes) -> ssl.SSLSocket:
            plain = socket.create_connection((host, int(port)), timeout=60)
            found = stack.enter_context(roots.wrap_socket(plain, server_hostname=host))
            found.sendall(words)
            return found

        for words in (head, head + b"\r\n" + mine[:40]) * 4:
            connect(words)
        answer = connect(head + b"\r\n" + mine).recv(100)
    assert b" 200 " in answer
    assert held(world, signed) == 1


def test_lengths(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = world.plan()
    app = world.collector(2)
    longest = message_bytes(7, server=2, suite="x25519", signed=True)

    async def run(length: bytes) -> int:
        return (await call(app, reports(signed)[1], length=length))[0]

    told = [b"", b"-1", b"x", str(longest + 1).encode(), b"9" * 30]
    # A plan with longer reports may have been accepted since the last look: come again.
    assert [asyncio.run(run(each)) for each in told] == [411, 411, 411, 503, 503]
    monkeypatch.setattr(collector, "RELOAD", 0.0)
    assert [asyncio.run(run(each)) for each in told] == [411, 411, 411, 413, 413]


def test_other_requests(world: World) -> None:
    world.plan()
    app = world.collector()

    async def ask(method: str, path: str) -> Answer:
        return await call(app, method=method, path=path)

    asked = [("GET", "/v1/reports"), ("POST", "/health"), ("GET", "/"), ("PUT", "/v1/reports")]
    assert [asyncio.run(ask(*each))[0] for each in asked] == [405, 405, 404, 405]
    app._release = lambda plan, period: f'{{"release": "{plan[:2]}-{period}"}}' if period else None
    assert asyncio.run(ask("GET", f"/v1/releases/{64 * 'a'}/0"))[0] == 404
    status, text, headers = asyncio.run(ask("GET", f"/v1/releases/{64 * 'a'}/7"))
    assert (status, text, headers["content-type"]) == (
        *(200, '{"release": "aa-7"}\n'),
        "application/json",
    )
    status, _, headers = asyncio.run(ask("OPTIONS", "/v1/reports"))
    assert (status, headers["access-control-allow-methods"]) == (200, "POST")


def test_metrics(world: World) -> None:
    signed = world.plan()
    app, mine = world.collector(clock=lambda: "2077-01-01T00:00:00+00:00"), reports(signed)[0]
    statuses(app, mine, mine, b"nonsense")
    status, text, _ = asyncio.run(call(app, method="GET", path="/metrics"))
    assert status == 200
    plan = signed.plan.fingerprint[:16]
    for line in (
        'fedprikl_server_reports_total{outcome="new"} 1',
        'fedprikl_server_reports_total{outcome="again"} 1',
        'fedprikl_server_reports_total{outcome="422"} 1',
        f'fedprikl_server_reports_held{{plan="{plan}",period="0"}} 1',
        "fedprikl_server_waiting 0",
        "fedprikl_server_lag_seconds ",
        "fedprikl_server_certificate_days -",
    ):
        assert line in text
    assert asyncio.run(call(app, method="GET", path="/health"))[0] == 503


def test_plan_that_is_accepted_later_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = world.collector()
    monkeypatch.setattr("fedprikl.deployment.servers.collector.RELOAD", 0.0)
    signed = world.plan()
    assert statuses(app, reports(signed)[0]) == [200]


def test_expired_plan_takes_no_reports(world: World) -> None:
    signed = world.plan(validity=Validity(valid_until="2029-01-01T00:00:00+00:00"))
    assert statuses(world.collector(), reports(signed)[0]) == [404]


def test_older_store_is_noticed(world: World) -> None:
    signed = world.plan()
    path = world.homes[0].folder / "reports-a.db"
    app = world.collector()
    statuses(app, reports(signed)[0])
    app._intake._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = path.read_bytes()
    statuses(app, reports(signed)[0])
    app._intake.close()
    path.write_bytes(older)
    with pytest.raises(IntakeError, match="an older copy was put back"):
        world.collector()
    path.with_name("reports-a.db.last").unlink()
    assert held(world, signed) == 1


def malformed(rng: np.random.Generator, mine: bytes) -> bytes:
    """Anything that is not a report, much of it near one."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.bytes(int(rng.integers(0, len(mine) + 1)))
    if kind == 1:
        return mine[: int(rng.integers(0, len(mine)))]
    changed = bytearray(mine)
    for _ in range(int(rng.integers(1, 4))):
        changed[int(rng.integers(len(mine)))] ^= int(rng.integers(1, 256))
    return bytes(changed) if kind == 2 else mine[:60] + rng.bytes(len(mine) - 60)


@pytest.mark.parametrize("bodies", [300, pytest.param(10_000, marks=pytest.mark.validation)])
def test_malformed_bodies_are_refused(world: World, bodies: int) -> None:
    signed = world.plan()
    rng, app = np.random.default_rng(29), world.collector(2)
    mine = reports(signed)[1]
    sent = [malformed(rng, mine) for _ in range(bodies)]
    assert {*statuses(app, *(each for each in sent if each != mine))} <= {422, 403, 404}
    assert held(world, signed, 2) == 0
    assert statuses(app, mine) == [200]


def test_foreign_file_is_no_store(world: World) -> None:
    path = world.homes[0].folder / "reports-a.db"
    path.write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(IntakeError, match="cannot be read"):
        world.collector()


def test_several_that_open_a_new_store_at_once_all_have_it(tmp_path: Path) -> None:
    """A server that answers and a collector that begins; each with a connection of its own."""
    for number in range(20):
        begin = threading.Barrier(4)

        def opened(path: Path, begin: threading.Barrier = begin) -> dict[tuple[bytes, int], int]:
            begin.wait()
            intake = Intake(path)
            found = intake.held()
            intake.close()
            return found

        with ThreadPoolExecutor(4) as threads:
            found = threads.map(opened, [tmp_path / f"reports-{number}.db"] * 4)
        assert list(found) == [{}] * 4


def test_database_of_others_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "reports-a.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (name TEXT)")
    with pytest.raises(IntakeError, match="not a file of reports"):
        Intake(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
