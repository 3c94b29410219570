"""Three servers settle which reports are counted, over real TLS, and what cheating ones can do."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl.deployment.servers import meeting
from fedprikl.deployment.servers.home import ServerHome, round_name
from fedprikl.deployment.servers.links import Links, connected
from fedprikl.deployment.servers.meeting import Settled, settle
from fedprikl.documents import canonical
from fedprikl.errors import DeploymentError, FedPriKLError, InvalidInputError, LedgerDamagedError
from fedprikl.protocol import SignedPlan
from fedprikl.protocol.report import make_reports
from fedprikl.protocol.server_share import check_weights, combine, commitment
from fedprikl.secure_sum.line_shares import PRIME, restore
from fedprikl.store import Head
from tests.deployment.servers.test_links import free_ports
from tests.deployment.servers.world import NOW, World, call, reports

HEAD = Head(3, 64 * "a")
Change = Callable[[Links], None]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path, free_ports())


def send(world: World, *clients: Sequence[bytes | None]) -> None:
    """Each client's three messages; None: it did not get that far."""

    async def run() -> None:
        for number in (1, 2, 3):
            app = world.collector(number)
            for client in clients:
                if (message := client[number - 1]) is not None:
                    assert (await call(app, message))[0] == 200
            app._intake.close()

    asyncio.run(run())


def verify(_: Head) -> None:
    """A ledger that holds everything."""


async def one(home: ServerHome, change: Change = lambda _: None, **options: Any) -> Settled:
    (task,) = home.tasks()
    async with connected(home, wait=60.0, without=options.pop("without", None)) as links:
        change(links)
        defaults: dict[str, Any] = {"head": HEAD, "verify": verify, "at": NOW}
        return await settle(home, task, 0, links, **(defaults | options))


def meet(
    world: World, present: Sequence[int] = (1, 2, 3), **changes: Change
) -> list[Settled | BaseException]:
    lost = next((n for n in (1, 2, 3) if n not in present), None)

    async def run() -> list[Settled | BaseException]:
        homes = [world.homes[n - 1] for n in present]
        return await asyncio.gather(
            *(
                one(h, changes.get(f"server{h.number}", lambda _: None), without=lost)
                for h in homes
            ),
            return_exceptions=True,
        )

    return asyncio.run(run())


def total(found: Sequence[Settled | BaseException]) -> list[int]:
    settled = [each for each in found if isinstance(each, Settled)]
    assert len(settled) == len(found), found
    assert len({each.digest for each in settled}) == 1
    first = settled[0].present
    found_sum = restore({n: each.share for n, each in zip(first, settled, strict=True)})
    return [int(each) for each in found_sum]


def errors(found: Sequence[Settled | BaseException]) -> str:
    assert all(isinstance(each, FedPriKLError) for each in found), found
    return " ".join(map(str, found))


def clients(signed: SignedPlan, size: int = 4) -> list[tuple[bytes, bytes, bytes]]:
    return [reports(signed, counts=[n, 0, 1, 0, 0], outside=2) for n in range(size)]


SUM = [6, 0, 4, 0, 0, 8, 18]


def test_all_reports_are_counted_once(world: World) -> None:
    sent = clients(world.plan())
    send(world, *sent, sent[0])
    found = meet(world)
    assert total(found) == SUM
    assert isinstance(found[1], Settled)
    assert (found[1].reports, found[1].included, found[1].held) == (4, 4, {1: 4, 2: 4, 3: 4})
    assert "share" not in repr(found[1])


def test_report_at_two_collectors_of_a_server_counts_once(world: World) -> None:
    """A client that comes back may reach another collector behind a load balancer."""
    sent = clients(world.plan())
    send(world, *sent)
    for number in (1, 3):
        app = world.collector(number, name="b")
        for client in sent[:3]:
            assert asyncio.run(call(app, client[number - 1]))[0] == 200
        app._intake.close()
    found = meet(world)
    assert total(found) == SUM
    assert isinstance(found[0], Settled)
    assert found[0].held == {1: 4, 2: 4, 3: 4}


def test_older_store_with_its_mark_shows_in_what_the_others_hold(world: World) -> None:
    """The collector starts: its note of the last report went back too. All leave reports out."""
    signed = world.plan()
    folder = world.homes[1].folder
    send(world, *clients(signed))
    older = {path: path.read_bytes() for path in folder.glob("reports-a.db*")}
    send(world, *[reports(signed, counts=[9, 9, 9, 9, 9]) for _ in range(2)])
    for path in folder.glob("reports-a.db*"):
        path.unlink()
    for path, content in older.items():
        path.write_bytes(content)
    world.collector(2)._intake.close()
    found = meet(world)
    assert total(found) == SUM
    assert isinstance(found[1], Settled)
    assert (found[1].missing, found[1].held) == (2, {1: 6, 2: 4, 3: 6})


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_one_server_is_lost(world: World, lost: int) -> None:
    send(world, *clients(world.plan()))
    assert total(meet(world, [n for n in (1, 2, 3) if n != lost])) == SUM


def test_report_that_was_cut_off_is_counted_by_nobody(world: World) -> None:
    signed = world.plan()
    first, second, _ = reports(signed)
    send(world, *clients(signed), (first, second, None), (first, None, None))
    found = meet(world)
    assert total(found) == SUM
    assert isinstance(found[2], Settled)
    assert found[2].held == {1: 5, 2: 5, 3: 4}
    assert found[2].missing == 1


def test_reports_that_are_no_counts_are_left_out(world: World) -> None:
    """Shares on no line (of two reports with the same id), and blocks that do not add up."""
    signed = world.plan()
    draws = iter([bytes(16), bytes(32), bytes(32), bytes(16), bytes([1]) * 32, bytes(32)])
    one, other = (
        meeting_reports(signed, [1, 0, 0, 0, 0, 0, 1], lambda _: next(draws)) for _ in range(2)
    )
    wrong = reports(signed, vector=[5, 0, 0, 0, 0, 0, 1])
    send(world, *clients(signed), (one[0], one[1], other[2]), wrong)
    found = meet(world)
    assert total(found) == SUM
    assert all(isinstance(each, Settled) and each.included == 4 for each in found)


def meeting_reports(
    signed: SignedPlan, vector: Sequence[int], randomness: Callable[[int], bytes]
) -> tuple[bytes, bytes, bytes]:
    servers = signed.plan.servers
    assert servers is not None
    return make_reports(
        np.array(vector),
        plan=bytes.fromhex(signed.plan.fingerprint),
        period=0,
        suite=servers.suite,
        servers=servers.sealing,
        randomness=randomness,
    )


def test_no_report_comes_after_the_end(world: World) -> None:
    signed = world.plan()
    send(world, *clients(signed))
    assert total(meet(world)) == SUM
    late = reports(signed)
    for number in (1, 2, 3):
        assert asyncio.run(call(world.collector(number), late[number - 1]))[0] == 410


def test_collector_that_begins_after_the_end_takes_no_report(world: World) -> None:
    """Its file is new, and an answer that broke off would count what it took when it is repeated:
    a report that was made when the challenge was known.
    """
    signed = world.plan()
    send(world, *clients(signed))
    meet(world, (1, 2))
    late = reports(signed)
    for number in (1, 2):
        app = world.collector(number, name="late")
        assert asyncio.run(call(app, late[number - 1]))[0] == 410
        app._intake.close()
    assert asyncio.run(call(world.collector(3, name="late"), late[2]))[0] == 200  # not closed yet
    assert total(meet(world)) == SUM
    assert {home.is_closed(world.task().fingerprint, 0) for home in world.homes} == {True}
    assert not world.homes[0].is_closed(world.task().fingerprint, 1)


@pytest.mark.parametrize("folder", ["state", "releases"])
def test_period_that_an_earlier_version_closed_takes_no_report(world: World, folder: str) -> None:
    """It wrote its challenge, and then its release, and no `.closed`."""
    signed, home = world.plan(), world.homes[0]
    name = round_name(world.task().fingerprint, 0)
    (home.folder / folder / f"{name}.json").write_text("{}")
    assert asyncio.run(call(world.collector(1, name="new"), reports(signed)[0]))[0] == 410


def test_it_can_be_repeated_with_the_same_challenge(world: World) -> None:
    """One attempt with two servers, one with three: every report gets the same numbers."""
    send(world, *clients(world.plan()))
    assert total(meet(world, (1, 2))) == SUM
    kept = {path.read_bytes() for home in world.homes for path in home.state.glob("*.json")}
    assert total(meet(world)) == SUM
    name = round_name(world.task().fingerprint, 0)
    states = {(home.state / f"{name}.json").read_bytes() for home in world.homes}
    assert len(states) == 1
    assert states <= kept


def test_second_challenge_is_refused(world: World) -> None:
    send(world, *clients(world.plan()))
    meet(world)
    name = round_name(world.task().fingerprint, 0)
    (world.homes[1].state / f"{name}.json").write_text(f'{{"challenge": "{64 * "0"}"}}')
    assert "different challenges" in errors(meet(world))


def changing(step: int, change: Callable[[bytes, int], bytes]) -> Change:
    """A server that sends something else in one step; `change` gets the message and to whom."""

    def apply(links: Links) -> None:
        honest, count = links.exchange, iter(range(1, 100))

        async def exchange(sent: Any) -> dict[int, bytes]:
            if next(count) == step:
                sent = {n: change(message, n) for n, message in sent.items()}
            return await honest(sent)

        links.exchange = exchange  # type: ignore

    return apply


HELLO, IDS, CHECKS = 1, 2, 6
ODD: tuple[Any, ...] = (
    *(None, True, -1, "x", [], [1], ["a", 1], [-1, "a"], [True, "a"], {"1": 3}, {"1": [1]}),
)


@pytest.mark.parametrize("field", ["head", "seen", "challenge", "at", "previous", "more"])
def test_server_that_says_hello_in_another_way_is_refused(world: World, field: str) -> None:
    """Whatever it says, the others end with a sentence, and nothing was published."""
    send(world, *clients(world.plan()))

    def odd(value: Any) -> Callable[[bytes, int], bytes]:
        return lambda message, _: canonical(json.loads(message) | {field: value})

    for value in ODD:
        if value == "x" and field in ("challenge", "at", "previous"):
            continue
        found = meet(world, server2=changing(HELLO, odd(value)))
        assert "did not say hello as servers do" in errors(found)
    assert total(meet(world)) == SUM


def test_server_that_claims_other_reports_adds_nothing(world: World) -> None:
    """Ids that it made up are held by nobody else; it believes in another set, and all stop."""
    send(world, *clients(world.plan()))
    claim = changing(
        IDS,
        lambda ids, _: b"".join(sorted([bytes(16), ids[:16], ids[16:32], ids[32:48], ids[48:]])),
    )
    assert total(meet(world, server2=claim)) == SUM


def test_server_that_drops_a_client_at_one_other_is_noticed(world: World) -> None:
    send(world, *clients(world.plan()))
    told_one = changing(IDS, lambda ids, to: ids[16:] if to == 1 else ids)
    assert "different reports" in errors(meet(world, server2=told_one))


@pytest.mark.parametrize("answer", ["hello", "secret"])
def test_server_that_shows_each_of_the_others_another_challenge(world: World, answer: str) -> None:
    """No checks are published, no challenge is kept, and an honest attempt goes through."""
    send(world, *clients(world.plan()))
    found, sent = equivocate(world, answer)
    assert all("different reports or challenges" in str(each) for each in found[:2])
    # Hello, ids, the challenge if it is drawn, and a digest: no numbers of reports.
    assert [len(each) for each in sent.values()] == [3 if answer == "hello" else 5] * 2
    assert {len(each[-1]) for each in sent.values()} == {32}
    name = round_name(world.task().fingerprint, 0)
    assert not any((home.state / f"{name}.json").exists() for home in world.homes)
    assert total(meet(world)) == SUM


def test_two_challenges_would_show_each_clients_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the comparison before the checks is for: without it a mask hides nothing."""
    signed = world.plan()
    vector = [1, 0, 0, 0, 0, 0, 1]
    send(world, *(reports(signed, vector=vector) for _ in range(4)))
    monkeypatch.setattr(meeting, "_same", _believe)
    _, sent = equivocate(world, "hello")
    weights = {n: check_weights(CHOSEN[n], world.task().blocks) for n in (1, 2)}
    task = world.task(3)
    intakes = world.homes[2].intakes()
    ids, rows = next(meeting._stored(intakes, task, 0))
    for intake in intakes:
        intake.close()
    rows = rows[np.argsort(ids)]
    shown = []
    for n in (1, 2):
        theirs = np.frombuffer(sent[n][2], "<u8").reshape(-1, 2)[:, 0].astype(np.uint64)
        shown.append(restore({n: theirs, 3: combine(rows, weights[n])[:, 0]}).astype(object))
    of_counts = (weights[1][:-1, 0].astype(object) - weights[2][:-1, 0].astype(object)) @ vector
    assert {(a - b) % PRIME for a, b in zip(*shown, strict=True)} == {int(of_counts) % PRIME}


CHOSEN = {1: 32 * b"x", 2: 32 * b"y"}


async def _believe(*_: object) -> None:
    """No comparison."""


def equivocate(world: World, answer: str) -> tuple[list[Any], dict[int, list[bytes]]]:
    """Server 3 shows 1 and 2 a challenge each; what all ended with, and what both sent it."""
    sent: dict[int, list[bytes]] = {1: [], 2: []}

    def noted(number: int) -> Change:
        def apply(links: Links) -> None:
            honest = links.exchange

            async def exchange(messages: Any) -> dict[int, bytes]:
                sent[number].append(messages[3])
                return await honest(messages)

            links.exchange = exchange  # type: ignore

        return apply

    def hello(message: bytes, to: int) -> bytes:
        return canonical(json.loads(message) | {"challenge": CHOSEN[to].hex()})

    def both(links: Links) -> None:
        changing(3, lambda _, to: commitment(CHOSEN[to]))(links)
        changing(4, lambda _, to: CHOSEN[to])(links)

    cheat = changing(HELLO, hello) if answer == "hello" else both
    return meet(world, server1=noted(1), server2=noted(2), server3=cheat), sent


def test_two_servers_publish_nothing_that_a_mask_hides(world: World) -> None:
    """One of them could ask the third for another challenge. So of each report they send one
    number, which is 0 for every honest client, whatever the challenge.
    """
    send(world, *clients(world.plan()))
    sizes = list[int]()

    def note(data: bytes, _: int) -> bytes:
        sizes.append(len(data))
        return data

    assert total(meet(world, (1, 3), server1=changing(CHECKS, note))) == SUM
    assert sizes == [8 * 4]


def test_server_that_names_few_reports_cannot_single_out_a_client(world: World) -> None:
    send(world, *clients(world.plan(), 8))
    few = changing(IDS, lambda ids, _: ids[: 3 * 16])
    found = meet(world, server2=few)
    assert "3 of the 8 reports of this server are held by all" in str(found[0])
    assert "answer without it" in str(found[2])


def test_wrong_check_numbers_leave_reports_out_and_are_noticed(world: World) -> None:
    """A server that lies to one of the others only: their digests differ."""
    send(world, *clients(world.plan()))
    lie = changing(CHECKS, lambda data, to: bytes(16) + data[16:] if to == 3 else data)
    assert "different reports" in errors(meet(world, server1=lie))


def test_server_that_changes_its_part_of_the_challenge(world: World) -> None:
    send(world, *clients(world.plan()))
    late = changing(4, lambda _secret, _: bytes(32))
    assert "reveals another part" in " ".join(map(str, meet(world, server2=late)))


def test_another_period_and_an_older_ledger(world: World) -> None:
    send(world, *clients(world.plan()))
    total(meet(world))

    def older(_: Head) -> None:
        raise LedgerDamagedError("an older copy of the file was put back")

    async def run() -> list[Any]:
        return await asyncio.gather(
            one(world.homes[0], verify=older),
            *(one(home) for home in world.homes[1:]),
            return_exceptions=True,
        )

    found = asyncio.run(run())
    assert "older copy" in str(found[0])
    assert all("connection" in str(each) for each in found[1:])


@pytest.mark.parametrize("size", [0, 2])
def test_too_few_reported(world: World, size: int) -> None:
    send(world, *clients(world.plan(), size))
    assert f"{size} are whole and held by all" in errors(meet(world))


def test_folder_without_reports(world: World) -> None:
    world.plan()
    with pytest.raises(DeploymentError, match="no collector has run"):
        meeting.shut([], world.task(), 0)
    with pytest.raises(InvalidInputError, match="a challenge that is none"):
        meeting._bytes("zz")
