"""All clients, over real HTTPS, to three real collectors: Python, the command, Node, Chromium."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedprikl as fk
from fedprikl.cli.app import app
from fedprikl.deployment.reporter import prepare
from fedprikl.deployment.web import address_of, open_socket, serving
from fedprikl.documents import readable
from fedprikl.errors import DeploymentError
from fedprikl.protocol import SignedPlan
from fedprikl.protocol.report import open_report
from fedprikl.secure_sum.line_shares import add, restore
from tests.browser import chromium
from tests.deployment.servers.world import World
from tests.protocol.test_js_client import CLIENT, node

RECORDS = [0, 1, 1, 4, 4, 4, 9]
COUNTS = [1, 2, 0, 0, 3, 1, 7]  # five cells, all other records, all records


class Running:
    """Three collectors on this machine, and a plan of its own for each test."""

    def __init__(self, world: World, addresses: tuple[str, ...]) -> None:
        self.world = world
        self.roots = world.folder / "servers.pem"
        authorities = [home.tls.certificate.with_name("ca.pem") for home in world.homes]
        self.roots.write_bytes(b"".join(path.read_bytes() for path in authorities))
        names = ("python hybrid", "python x25519", "command hybrid", "node x25519", "page x25519")
        self.plans = {name: self._plan(name, addresses) for name in names}

    def _plan(self, name: str, addresses: tuple[str, ...]) -> SignedPlan:
        plan = self.world.plan(suite=name.split()[1]).plan
        assert plan.servers is not None
        servers = replace(plan.servers, addresses=addresses)
        plan = replace(plan, population=name, servers=servers)
        signed = SignedPlan.sign(plan, self.world.organiser)
        for home in self.world.homes:
            home.accept(signed, self.world.reference, None)
        return signed

    def sums(self, signed: SignedPlan) -> tuple[list[int], int]:
        """What the reports of a plan add up to, by their shares, and how many there are."""
        found, number = {}, 0
        for home in self.world.homes:
            (task,) = [each for each in home.tasks() if each.signed == signed]
            (intake,) = home.intakes()
            number = len(intake.reports(task.fingerprint, 0))
            shares = [
                open_report(
                    message,
                    task.key,
                    plan=task.fingerprint,
                    period=0,
                    server=task.number,
                    entries=task.entries,
                )[1]
                for messages in intake.messages(task.fingerprint, 0)
                for message in messages
            ]
            found[task.number] = add(shares)
            intake.close()
        return restore(found)[:-1].tolist(), number


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    world = World.make(tmp_path_factory.mktemp("servers"))
    sockets = [open_socket("127.0.0.1", 0) for _ in world.homes]
    found = Running(world, tuple(address_of(each, "https") for each in sockets))
    with ExitStack() as stack:
        for number, (home, each) in enumerate(zip(world.homes, sockets, strict=True), start=1):
            stack.enter_context(serving(world.collector(number), each, home.tls))
        yield found


@pytest.mark.parametrize("suite", ["x25519", "hybrid"])
def test_python_clients(suite: str, running: Running, tmp_path: Path) -> None:
    signed, done = running.plans[f"python {suite}"], []
    reference, roots = running.world.reference, running.roots

    def client(number: int) -> None:
        home = tmp_path / str(number)
        for _ in range(2):  # some call it twice
            done.append(fk.report(signed, RECORDS, reference=reference, home=home, roots=roots))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(5)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert len({each.report_id for each in done}) == 5
    assert running.sums(signed) == ([5 * count for count in COUNTS], 5)
    # Bytes that are sent again count once, also if the client does not know that they were taken.
    job = prepare(signed, reference=reference, home=tmp_path / "late")
    kept = job.make(job.count(RECORDS))
    for _ in range(2):
        fk.report(signed, RECORDS, reference=reference, home=tmp_path / "late", roots=roots)
        kept.save(job.path)
    assert running.sums(signed)[1] == 6


def test_a_plan_that_the_servers_do_not_know_is_not_taken(running: Running, tmp_path: Path) -> None:
    """Yet: it may be that they accept it a moment later. So the client tries again."""
    other = SignedPlan(replace(running.plans["node x25519"].plan, population="others"))
    given: dict[str, Any] = {"reference": running.world.reference, "roots": running.roots}
    with pytest.raises(DeploymentError, match="takes no reports of this plan"):
        fk.report(other, RECORDS, home=tmp_path, attempts=1, **given)


def test_the_command(running: Running, tmp_path: Path) -> None:
    signed = running.plans["command hybrid"]
    (tmp_path / "plan.json").write_text(readable(signed.to_dict()), encoding="utf-8")
    running.world.reference.save(tmp_path / "ref.json")
    (tmp_path / "records.csv").write_text("cell\n" + "\n".join(map(str, RECORDS)) + "\n")
    files = [tmp_path / "plan.json", tmp_path / "records.csv", "--home", tmp_path / "home"]
    roots = ["--root-certificates", running.roots]
    done = CliRunner().invoke(app, ["report", *map(str, [*files, *roots])])
    assert done.exit_code == 0, done.output
    assert running.sums(signed) == (COUNTS, 1)


def sheet_of(running: Running, signed: SignedPlan) -> dict[str, Any]:
    """What `fedprikl report --dry-run --json` prints for an app."""
    folder = running.world.folder
    (folder / "plan.json").write_text(readable(signed.to_dict()), encoding="utf-8")
    running.world.reference.save(folder / "ref.json")
    shown = CliRunner().invoke(
        app, ["report", str(folder / "plan.json"), "--dry-run", "--json", "--home", str(folder)]
    )
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


IN_JAVASCRIPT = """
const kept = new Map();
const storage = { getItem: (name) => kept.get(name) ?? null, setItem: (n, v) => kept.set(n, v) };
for (let i = 0; i < 3; i++) await report.report(given.counts, { ...given.sheet, storage });
found = [...kept.keys()];
"""


def test_node(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = running.plans["node x25519"]
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(running.roots))
    node(IN_JAVASCRIPT, {"sheet": sheet_of(running, signed), "counts": COUNTS})
    assert running.sums(signed) == (COUNTS, 1)


@pytest.mark.slow
def test_a_browser(running: Running) -> None:
    """From a page of another origin, as an app's would be."""
    signed = running.plans["page x25519"]
    given = {"sheet": sheet_of(running, signed), "counts": COUNTS}

    async def page(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<!doctype html><title>x</title>"})

    module = (CLIENT / "report.mjs").read_text(encoding="utf-8")
    script = (
        "async ({ module, given }) => { const file = new Blob([module], "
        "{ type: 'text/javascript' }); const report = await import(URL.createObjectURL(file)); "
        "await report.report(given.counts, { ...given.sheet, storage: localStorage }); }"
    )
    with serving(page) as address, chromium() as browser:
        tab = browser.new_context(ignore_https_errors=True).new_page()
        tab.goto(address)
        tab.evaluate(script, {"module": module, "given": given})
    assert running.sums(signed) == (COUNTS, 1)
