"""What `pip install fedprikl` gives: its size, how fast it starts, and a site that works."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the aggregator's side of the test runs over Flower's messages")

from deploy.small_world import write_plan, write_roster
from flwr.app import Message

from fedprikl.deployment.flower.client import pack, unpack
from fedprikl.deployment.site import Envelope
from fedprikl.errors import ReleaseRefused
from tests.deployment.conftest import task_identity  # noqa: F401  a fixture
from tests.deployment.fake_grid import FakeFederation, FakeGrid
from tests.deployment.in_process import in_process_value
from tests.protocol.worlds import InsecureNoNoise

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).with_name("site_process.py")
NOT_NEEDED = ("dp_accounting", "flwr", "matplotlib", "opendp", "pandas", "pyarrow", "scipy")
MEGABYTES = 120  # 92 measured without compiled files, of which NumPy is 61
NO_INDEX = ("from versions: none", "Could not fetch", "NewConnectionError", "No such file")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the built wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python(folder)), "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--no-compile", "--only-binary", ":all:", str(wheel)],
        capture_output=True,
        text=True,
    )
    if done.returncode and any(words in done.stderr for words in NO_INDEX):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return folder


def python(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def run(folder: Path, *line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python(folder), *line], capture_output=True, text=True, env=environment(), cwd=folder
    )


def environment() -> dict[str, str]:
    left_out = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def cpu(folder: Path, *line: str) -> float:
    """CPU seconds, of the second run: the first compiles."""
    run(folder, *line)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(folder, *line).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.validation
def test_it_is_small(clean: Path) -> None:
    for name in NOT_NEEDED:
        assert run(clean, "-c", f"import {name}").returncode != 0
    files = [file for file in (clean / "venv" / "lib").rglob("*") if file.is_file()]
    compiled = {file for file in files if file.suffix == ".pyc"}
    assert sum(file.stat().st_size for file in {*files} - compiled) < MEGABYTES * 1e6


def test_it_starts_fast(clean: Path) -> None:
    """0.02 and 0.16 s measured."""
    assert cpu(clean, "-c", "import fedprikl") < 0.3
    assert cpu(clean, "-m", "fedprikl", "--help") < 0.4


def test_a_missing_extra_is_named(clean: Path) -> None:
    made = "fk.Reference.from_counts([5, 3])"
    code = f"import fedprikl as fk; fk.plan({made}, clients=9, records=99, epsilon=1)"
    said = run(clean, "-c", code).stderr
    assert "MissingExtraError" in said
    assert "pip install 'fedprikl[plan]'" in said
    (clean / "some.parquet").write_bytes(b"PAR1")
    done = run(clean, "-m", "fedprikl", "reference", "some.parquet", "-o", "ref.json")
    assert done.returncode == 1
    assert done.stderr.startswith("fedprikl: This needs pyarrow")
    assert "pip install 'fedprikl[parquet]'" in done.stderr
    options = ("--data", "--reference", "--policy", "--node-key")
    words = [word for option in options for word in (option, "x")]
    site = run(clean, "-m", "fedprikl", "site", "run", "relay.example.org:9443", *words)
    assert "pip install 'fedprikl[flower]'" in site.stderr


@contextmanager
def sites_of(clean: Path, home: Path) -> Iterator[subprocess.Popen[str]]:
    with (
        home.with_suffix(".log").open("w") as log,
        subprocess.Popen(
            [python(clean), SITE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment() | {"FEDPRIKL_HOME": str(home)},
        ) as process,
    ):
        yield process
        assert process.stdin is not None
        process.stdin.close()


def deliver(process: subprocess.Popen[str], grid: FakeGrid, message: Message) -> Message:
    """Hands a message to the process of the clean environment, instead of to a ClientApp here."""
    asked, node = unpack(message), message.metadata.dst_node_id
    line: dict[str, Any] = {
        "node": node,
        "config": dict(grid.contexts[node].node_config),
        "what": message.metadata.message_type.removeprefix("query."),
        "round": asked.round_id,
        "message": asked.message.hex(),
    }
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()
    told = json.loads(process.stdout.readline())
    answer = Envelope(asked.round_id, bytes.fromhex(told["message"]), told["refusal"])
    return Message(pack(answer), reply_to=message)


@pytest.mark.parametrize("roster", [False, True])
def test_a_site_answers_a_round(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roster: bool
) -> None:
    """Of a trusted aggregator: all eight sites are counted, as they are in one process."""
    federation = FakeFederation.make(tmp_path, monkeypatch)
    if roster:
        known = write_roster(federation.home, federation.files)
        write_plan(federation.home, roster=known.fingerprint)
    grid = federation.grid()
    with sites_of(clean, tmp_path / "site") as process:
        monkeypatch.setattr(grid, "deliver", partial(deliver, process, grid))
        release, _ = federation.run(grid, source=InsecureNoNoise())
    assert release.value == in_process_value(federation.home, federation.files, {})


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_site_without_a_trusted_aggregator(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    """Shares of Laplace noise are our own. Gaussian ones are OpenDP's: no count leaves without."""
    federation = FakeFederation.make(tmp_path, monkeypatch)
    known = write_roster(federation.home, federation.files)
    nobody: dict[str, Any] = {"trust": "none", "corruption": 0.0, "noise": noise}
    write_plan(federation.home, roster=known.fingerprint, **nobody)
    grid = federation.grid()
    with sites_of(clean, tmp_path / "site") as process:
        monkeypatch.setattr(grid, "deliver", partial(deliver, process, grid))
        if noise == "laplace":
            release, _ = federation.run(grid)
            assert sum(cohort.included for cohort in release.cohorts) == 8
        else:
            with pytest.raises(ReleaseRefused):
                federation.run(grid)
    said = (tmp_path / "site.log").read_text()
    assert ("pip install 'fedprikl[plan]'" in said) is (noise == "gaussian")
