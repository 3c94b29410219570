"""A real federation: a relay with TLS and node authentication, an aggregator, six sites.

One round serves most of these tests. Its ServerApp adds no noise (`noiseless.py`), so that its
release can be compared to the bit. Another round came before it, whose aggregator was killed in the
middle, and the log stream broke off once. The app that the relay ships is hostile.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pytest
from deploy.loopback import CONNECTION, Loopback
from deploy.small_world import (
    node_configs,
    set_up_aggregator,
    with_policy,
    write_plan,
    write_sites,
)
from flwr.app import ConfigRecord

from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.flower.privates import Runtime
from fedprikl.deployment.settings import Home
from fedprikl.deployment.site import Envelope
from fedprikl.deployment.tls import write_node_key
from fedprikl.errors import MessageDecodeError
from fedprikl.privacy import Ledger
from fedprikl.protocol import Invitation, Release, SealingKey, SigningKey, Step
from fedprikl.records import open_records
from fedprikl.reference import Reference
from fedprikl.secure_sum import Leaves
from fedprikl.secure_sum.messages import EchoInbox, PeerKeys, ShareInbox, Survivors, decode
from tests.deployment.attack import sums_of_a_relay
from tests.deployment.fake_grid import read_counters
from tests.deployment.in_process import in_process_value
from tests.deployment.test_warm_executor import wait_until
from tests.protocol.test_views import contains

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parent.parent.parent
ALL, KILLED, REFUSING = 6, 3, 5
HOSTILE = """
import os, pathlib
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
pathlib.Path({mark!r}, str(os.getpid())).touch()
client = ClientApp()
server = ServerApp()
"""


@dataclass
class Finished:
    """What the shared round left behind."""

    federation: Loopback
    files: list[Path]
    output: str
    code: int
    void_output: str  # of the round whose ServerApp was killed
    void_code: int

    @property
    def home(self) -> Path:
        return self.federation.aggregator


def keep_everything(database: Path) -> None:
    """The relay never forgets: a copy of every object and message that it ever stores."""
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("CREATE TABLE kept (content BLOB)")
        for event in ("INSERT ON objects", "UPDATE OF content ON objects"):
            name = event.split()[0].lower()
            db.execute(
                f"CREATE TRIGGER keep_{name} AFTER {event} "  # noqa: S608
                "BEGIN INSERT INTO kept VALUES (new.content); END"
            )


def await_step(federation: Loopback, step: Step, number: int, rounds: int = 1) -> None:
    """Until a site's memory says that it works on this step, so before it has answered."""
    end = time.monotonic() + 240
    while True:
        found = federation.rounds(number).values()
        if len(found) >= rounds and max(found) > list(Step).index(step):
            return
        if time.monotonic() > end:
            raise AssertionError(f"site {number} never came to {step}")
        time.sleep(0.02)


def start_round(federation: Loopback, test_app: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        federation.federate_command(
            *("--clients", str(ALL), "--app", str(test_app)),
            *("--step-timeout", "120", "--grace", "20"),
        ),
        env=federation.environment(federation.folder),
        cwd=federation.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def break_stream(process: subprocess.Popen[str]) -> None:
    """Ends Flower's own command, through which `fedprikl federate` reads the log."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(int(children[0]), signal.SIGKILL)


def hostile_app(folder: Path) -> Path:
    """What a relay may ship: code that leaves a mark wherever it is imported."""
    app = folder / "app"
    app.mkdir()
    (folder / "ran").mkdir()
    text = (APP_FOLDER / "pyproject.toml").read_text(encoding="utf-8")
    for kind in ("server", "client"):
        text = text.replace(f"fedprikl.deployment.flower.{kind}:app", f"hostile:{kind}")
    (app / "pyproject.toml").write_text(text)
    (app / "hostile.py").write_text(HOSTILE.format(mark=str(folder / "ran")))
    return app


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("loopback")
    files = write_sites(folder, sites=ALL, rows=300)
    test_app = hostile_app(folder)
    with (
        pytest.MonkeyPatch.context() as patch,
        Loopback(folder, server_app="tests.deployment.noiseless:app") as federation,
    ):
        patch.setenv("PYTHONPATH", f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}")
        set_up_aggregator(federation.aggregator, folder / "public.csv", dropout=0.34, releases=2)
        federation.start_relay()
        keep_everything(federation.database)
        configs = node_configs(federation.aggregator, files, most_counts=2)
        configs[REFUSING] = with_policy(configs[REFUSING], smallest_cohort=100)
        federation.add_sites(configs)
        shutil.copy(federation.aggregator / "plan.json", folder / "plan.json")
        with start_round(federation, test_app) as void:
            await_step(federation, Step.ADVERTISE, KILLED)
            federation.kill("aggregator")
            federation.start_aggregator()
            with start_round(federation, test_app) as process:
                await_step(federation, Step.SHARE, KILLED, rounds=2)
                break_stream(process)
                await_step(federation, Step.INPUT, KILLED, rounds=2)
                federation.kill(f"site{KILLED}")
                output, _ = process.communicate(timeout=300)
            void_output, _ = void.communicate(timeout=120)
        yield Finished(federation, files, output, process.returncode, void_output, void.returncode)
    assert federation.left_behind() == []


def test_the_release_is_the_in_process_one_to_the_bit(finished: Finished) -> None:
    assert finished.code == 0, finished.output
    release = Release.load(finished.federation.folder / "release.json")
    assert release.is_signed_by(SigningKey.load(Home(finished.home).signing_key).public)
    assert release.privacy.insecure is True  # a test's noise says so
    gone = {
        finished.files[KILLED]: Leaves.BEFORE_INPUT,
        finished.files[REFUSING]: Leaves.BEFORE_ADVERT,
    }
    assert release.value == in_process_value(finished.home, finished.files, gone)
    assert [c.included for c in release.cohorts] == [ALL - 2]


def test_a_serverapp_killed_in_the_middle_leaves_a_void_round(finished: Finished) -> None:
    assert finished.void_code == 1
    assert "There is no release" in finished.void_output
    assert "6 clients in 1 cohort of 6 to 6" in finished.void_output
    assert "Traceback" not in finished.void_output
    said = " ".join(finished.void_output.split())
    assert re.search(r"What round \w+ has charged is in the aggregator's ledger", said), said
    assert "See that the aggregator runs, then run this again" in said
    (release,) = Home(finished.home).releases.iterdir()
    assert release.stem == Release.load(finished.federation.folder / "release.json").round_id
    begun = finished.federation.rounds(0)
    assert len(begun) == 2  # both were real; the ledger was charged once (next test)


def test_progress_is_shown_and_the_budget_charged(finished: Finished) -> None:
    for words in (
        "6 clients in 1 cohort of 6 to 6",
        "advertise: 5 of 6 answered, 1 refused, 0 lost",
        "input: 4 of 5 answered, 0 refused, 1 lost",
        "reveal: 4 of 4 answered",
        "released, verified and written to",
        "report: report.html",
    ):
        assert words in finished.output
    with Ledger.open(Home(finished.home).ledger) as ledger:
        assert ledger.account("sites").spent == pytest.approx(1.0, abs=1e-6)
    counters = read_counters(Home(finished.home).metrics)
    assert counters['fedprikl_rounds_total{outcome="released"}'] == 1
    assert counters['fedprikl_clients_lost_total{step="input"}'] == 1


def stored(database: Path) -> tuple[list[bytes], list[Envelope]]:
    """Everything the relay has kept, raw, and the parcels in it."""
    with closing(sqlite3.connect(database)) as db, db:
        raw = [row[0] for row in db.execute("SELECT content FROM kept") if row[0]]
        everything = list(raw)
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608  names of the database
                everything += [str(value).encode() for value in row if isinstance(value, str)]
                everything += [value for value in row if isinstance(value, bytes)]
    found = []
    for content in raw:
        try:
            record = ConfigRecord.inflate(content)
            found.append(Envelope(str(record["round"]), bytes(record["message"])))  # type: ignore[arg-type]
        except (ValueError, KeyError):
            continue
    return everything, found


def test_nobody_can_compute_counts_or_sums_from_what_the_relay_stored(finished: Finished) -> None:
    everything, found = stored(finished.federation.database)
    this = Release.load(finished.federation.folder / "release.json").round_id
    letters = [parcel for parcel in found if parcel.message and parcel.round_id == this]
    # Both ways, of all steps; the survivors are one text for all, so Flower stores it once.
    assert len({p.message for p in letters}) == (6 + 6) + (5 + 5) + (5 + 4) + (1 + 4) + (4 + 4)
    invitations = [
        Invitation.from_bytes(p.message) for p in letters if p.message.startswith(b'{"batch":')
    ]
    assert len({each.index for each in invitations}) == ALL
    # No node ids here: every letter is tried as every member's.
    tried = [(each.index, parcel) for each in invitations for parcel in letters]
    own = [(each.index, Envelope(each.round_id, each.to_bytes())) for each in invitations]
    assert sums_of_a_relay(tried + own) is None
    reference = Reference.load(Home(finished.home).reference)
    cells = list(invitations[0].cells)
    held = np.array([open_records(f).count(reference).counts for f in finished.files])
    vectors = np.column_stack((held[:, cells], held.sum(axis=1)))
    included = np.delete(vectors, [KILLED, REFUSING], axis=0).sum(axis=0)
    for vector in (*vectors, included):
        assert not contains(everything, vector[:6])
    seeds = SealingKey.load(Home(finished.home).sealing_key)._private.private_bytes_raw()
    assert seeds not in b"".join(everything)


def test_no_answer_of_a_client_is_stored_unsealed(finished: Finished) -> None:
    """Every kept letter is an invitation, a letter of the aggregator's, or opaque."""
    _, found = stored(finished.federation.database)
    messages = []
    for parcel in found:
        with suppress(MessageDecodeError):
            messages.append(decode(parcel.message))
    assert {type(message) for message in messages} == {PeerKeys, ShareInbox, Survivors, EchoInbox}


def test_code_that_the_relay_ships_is_not_run(finished: Finished) -> None:
    """Neither at a site nor at the aggregator: both run what is installed there."""
    assert list((finished.federation.folder / "ran").iterdir()) == []
    with closing(sqlite3.connect(finished.federation.database)) as db, db:
        shipped = b"".join(row[0] for row in db.execute("SELECT content FROM fab"))
    assert b"hostile.py" in shipped


def acquired(runtime: Runtime) -> str:
    with runtime.tasks("site") as acquire:
        return acquire()


def test_nobody_else_on_the_machine_gets_a_sites_messages(finished: Finished) -> None:
    """By default the port hands a site's next message, and its state, to whoever asks."""
    federation = finished.federation
    running = federation.processes(federation.site(0)).values()
    (node,) = (words for words in running if "flower_supernode" in words)
    assert not any("--token" in words for words in running)
    option = dict(pairwise(node.split()))
    runtime = Runtime(
        address=f"127.0.0.1:{option['--port']}",
        roots=Path(option["--ssl-ca-certfile"]).read_bytes(),
        secret=Path(option["--superexec-auth-secret-file"]).read_bytes(),
    )
    assert acquired(runtime) == ""  # with the secret: there is none
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        acquired(replace(runtime, secret=b"guessed"))
    impostor = replace(runtime, roots=(finished.federation.relay / "ca.pem").read_bytes())
    with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
        acquired(impostor)
    private = Path(option["--superexec-auth-secret-file"])
    assert (private.parent.stat().st_mode & 0o077, private.stat().st_mode & 0o077) == (0, 0)
    assert option["--host"] == "127.0.0.1"


def spent(home: Path) -> float:
    with Ledger.open(Home(home).ledger) as ledger:
        return ledger.account("sites").spent


def is_well(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
        return bool(json.loads(answer.read())["well"])
    return False


def kill_executor(federation: Loopback, number: int) -> None:
    """Its site starts another."""
    running = federation.processes(federation.site(number)).items()
    (pid,) = (pid for pid, words in running if "flower.executor" in words)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.validation
def test_a_run_without_an_aggregator_is_never_charged(finished: Finished) -> None:
    """The aggregator dies after a release, is absent, comes back: nothing moves until asked."""
    federation, home = finished.federation, finished.home
    before, rounds = spent(home), federation.rounds(0)
    assert before == pytest.approx(1.0, abs=1e-6)
    federation.kill("aggregator")
    mine = federation.folder / "again"
    mine.mkdir()
    asking = ("--clients", "4", "-o", f"{mine}/release.json", "--report", f"{mine}/report.html")
    result = federation.federate(*asking, "--timeout", "15")
    assert result.returncode == 1
    assert "waiting for the aggregator to take the run, until" in result.stderr
    assert "was stopped. No aggregator took the run" in result.stderr
    federation.start_aggregator()
    wait_until(lambda: is_well(federation.health_port), 60)
    time.sleep(3)  # it polls twice a second, so it would have taken the run
    assert federation.rounds(0) == rounds
    assert spent(home) == before
    assert len(list(Home(home).releases.iterdir())) == 1
    kill_executor(federation, 0)
    result = federation.federate(*asking)  # and one that is waited for is released
    assert result.returncode == 0, result.stderr
    assert "reveal: 4 of 4 answered" in result.stderr  # with the site that lost its executor
    assert spent(home) == pytest.approx(2.0, abs=1e-4)


@pytest.mark.validation
def test_a_run_that_cannot_be_says_why_and_fails(finished: Finished) -> None:
    federation = finished.federation
    before = list(Home(finished.home).releases.iterdir())
    write_plan(finished.home, "spoilt.json", aggregator=SealingKey.generate().public)
    mine = federation.folder / "mine"
    mine.mkdir(exist_ok=True)
    shutil.copy(finished.home / "spoilt.json", mine / "spoilt.json")
    result = federation.federate(
        *("--plan", str(mine / "spoilt.json")),
        *("-o", str(mine / "none.json"), "--report", str(mine / "none.html")),
    )
    assert result.returncode == 1
    assert "The plan names another aggregator's sealing key" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (mine / "none.json").exists()
    assert list(Home(finished.home).releases.iterdir()) == before
    listed = subprocess.run(
        [Path(sys.executable).parent / "flwr", "list", CONNECTION, "--format", "json"],
        env=federation.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    statuses = [run["status"] for run in json.loads(listed.stdout)["runs"]]
    assert statuses.count("finished:failed") >= 1


def test_a_site_that_is_not_registered_reads_what_to_do(finished: Finished) -> None:
    said = what_a_stranger_reads(finished.federation, finished.files[0])
    assert "does not know this site. Send " in said
    assert "`flwr supernode register node.pub NAME`" in said
    assert "Exit Code" not in said


def what_a_stranger_reads(federation: Loopback, data: Path) -> str:
    """The log of a site whose key nobody has registered."""
    home = federation.folder / "stranger"
    home.mkdir()
    write_node_key(home / "node")
    (config,) = node_configs(federation.aggregator, [data])
    federation.start(
        "stranger",
        f"{sys.executable} -m fedprikl site run 127.0.0.1:{federation.port}",
        {
            "root-certificates": federation.relay / "ca.pem",
            "node-key": home / "node",
            **{name: config[name] for name in ("data", "reference", "policy")},
            "health-port": 0,
        },
        home=home,
    )
    log = home / "stranger.log"
    wait_until(lambda: "it is started again" in log.read_text(errors="replace"), 120)
    federation.kill("stranger")
    return log.read_text(errors="replace")


def test_a_site_stops_cleanly(finished: Finished) -> None:
    federation = finished.federation
    site = federation.site(1)
    assert len(federation.processes(site)) == 3  # fedprikl site, SuperNode, executor
    assert federation.stop("site1") == 0
    assert federation.processes(site) == {}
    assert not (site / "run-site").exists()


@pytest.mark.validation
def test_an_expired_certificate_is_said_to_be_one(tmp_path: Path) -> None:
    with Loopback(tmp_path, days=-1.0) as federation:
        set_up_aggregator(federation.aggregator, _public(tmp_path))
        federation.start_relay()
        shutil.copy(federation.aggregator / "plan.json", tmp_path / "plan.json")
        result = federation.federate()
    assert result.returncode == 1
    assert "certificate has expired" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "release.json").exists()


def _public(folder: Path) -> Path:
    write_sites(folder, sites=3, rows=10)
    return folder / "public.csv"
