"""Connections between servers: who may connect, steps, and who is lost."""

import asyncio
import os
import socket
import ssl
from pathlib import Path

import pytest

from fedprikl.deployment.servers.home import ServerHome
from fedprikl.deployment.servers.links import Links, _end, connected
from fedprikl.errors import DeploymentError
from tests.deployment.servers.world import World


def free_ports() -> list[int]:
    found = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path, free_ports())


async def talk(
    home: ServerHome, wait: float = 60.0, without: int | None = None
) -> tuple[tuple[int, ...], dict[int, bytes]]:
    async with connected(home, wait=wait, without=without, seconds=60) as links:
        await links.broadcast(b"hello from %d" % links.number)
        large = bytes([links.number]) * 3_000_000
        found = await links.broadcast(large)
        return links.present, {
            n: bytes({*body}) for n, body in found.items() if len(body) == len(large)
        }


def test_three_servers_talk_in_steps(world: World) -> None:
    async def run() -> list[tuple[tuple[int, ...], dict[int, bytes]]]:
        return await asyncio.gather(*map(talk, world.homes))

    for number, (present, found) in enumerate(asyncio.run(run()), start=1):
        assert present == (1, 2, 3)
        assert found == {n: bytes([n]) for n in (1, 2, 3) if n != number}


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_two_servers_go_on_without_the_third(world: World, lost: int) -> None:
    async def run() -> list[tuple[tuple[int, ...], dict[int, bytes]]]:
        homes = [home for home in world.homes if home.number != lost]
        return await asyncio.gather(*(talk(home, without=lost) for home in homes))

    assert {present for present, _ in asyncio.run(run())} == {
        tuple(n for n in (1, 2, 3) if n != lost)
    }


def test_one_server_alone_does_nothing(world: World) -> None:
    with pytest.raises(DeploymentError, match="No other server was there"):
        asyncio.run(talk(world.homes[1], wait=0.1))


def test_stranger_with_a_certificate_of_its_own_is_not_let_in(world: World, tmp_path: Path) -> None:
    """It knows the cards, and poses as server 1 with another key."""
    stranger = World.make(tmp_path / "stranger", free_ports()).homes[0]
    own = stranger.card
    cards = [own, *world.homes[0].cards[1:]]
    stranger.__dict__["cards"] = tuple(cards)

    async def run() -> tuple[object, ...]:
        return await asyncio.gather(
            talk(stranger, wait=1.0), talk(world.homes[2], wait=1.0), return_exceptions=True
        )

    found = asyncio.run(run())
    assert all(isinstance(each, DeploymentError) for each in found)
    assert "No other server was there" in str(found[1])


def test_caller_without_a_certificate_is_not_let_in(world: World) -> None:
    host, _, port = world.homes[2].card.peer.rpartition(":")

    async def knock() -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(100):
            try:
                reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
                continue
            writer.write(os.urandom(100))
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            await _end(writer)
            return

    async def run() -> None:
        task = asyncio.create_task(knock())
        with pytest.raises(DeploymentError, match="No other server"):
            await talk(world.homes[2], wait=1.0)
        await task

    asyncio.run(run())


def test_another_step_and_silence_are_noticed(world: World) -> None:
    async def side(home: ServerHome, steps: int) -> None:
        async with connected(home, wait=60.0, without=3) as links:
            links._step = steps
            await links.broadcast(b"")

    async def run(*steps: int) -> list[object]:
        homes = world.homes[:2]
        return await asyncio.gather(*map(side, homes, steps), return_exceptions=True)

    assert any("another step" in str(each) for each in asyncio.run(run(0, 1)))

    async def silent() -> None:
        ours, theirs = socket.socketpair()
        links = Links(1, {2: await asyncio.open_connection(sock=ours)}, seconds=0.05)
        with pytest.raises(DeploymentError, match="did not answer for"):
            await links.broadcast(b"x")
        theirs.close()
        with pytest.raises(DeploymentError, match="connection to another server ended"):
            await links.broadcast(b"x")
        links.streams[2][1].close()

    asyncio.run(silent())
