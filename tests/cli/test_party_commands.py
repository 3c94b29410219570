"""`fedprikl site`, `aggregator` and `relay`: what is said before anything is started."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from deploy.small_world import write_policy
from typer.testing import CliRunner

from fedprikl.cli import aggregator_command, relay_command, running, site_command
from fedprikl.cli.app import app
from fedprikl.cli.running import private_folder
from fedprikl.deployment import tls
from fedprikl.deployment.flower.parties import relay_processes
from fedprikl.deployment.supervisor import Child
from fedprikl.deployment.tls import write_node_key
from fedprikl.errors import DeploymentError
from fedprikl.privacy import Ledger
from fedprikl.protocol import SealingKey, SigningKey
from fedprikl.store import replace_file
from tests.cli.test_round_commands import fails
from tests.protocol.worlds import World

ADDRESS = "relay.example.org:9443"
runner = CliRunner()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a command would have started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path / "home"))
    found: dict[str, Any] = {}

    def run_party(name: str, home: Path, children: Any, *, health_port: int, **_: object) -> None:
        with private_folder(home, name) as private:
            made = {child.name: child for child in children(private)}
            files = {path.name: path.stat().st_mode & 0o777 for path in private.iterdir()}
            found.update(name=name, home=home, port=health_port, made=made, files=files)

    def down(address: str, _: Path | None) -> None:
        raise DeploymentError(f"The relay {address} cannot be reached: it is made up.")

    for module in (site_command, aggregator_command, relay_command):
        monkeypatch.setattr(module, "run_party", run_party)
    monkeypatch.setattr(running, "check_relay", down)
    return found


@pytest.fixture
def site(started: dict[str, Any]) -> list[str]:
    assert started == {}
    world = World.make(clients=9)
    world.reference.save("ref.json")
    for name in ("ca.pem", "records.csv", 'odd".csv'):
        Path(name).write_text("x")
    write_node_key(Path("node"))
    write_policy(Path(), SigningKey.generate().public).rename("policy.toml")
    words = "--root-certificates ca.pem --node-key node --data records.csv --policy policy.toml"
    return ["site", "run", ADDRESS, *words.split(), "--reference", "ref.json"]


def option(child: Child, name: str) -> str:
    command = list(child.command)
    return command[command.index(name) + 1]


def test_a_site_is_a_supernode_and_an_executor_that_know_each_other(
    site: list[str], started: dict[str, Any]
) -> None:
    result = runner.invoke(app, [*site, "--poll", "2"])
    assert result.exit_code == 0, result.output
    said = result.stderr.replace("\n", " ")
    assert f"The relay {ADDRESS} cannot be reached: it is made up. Starting all the same" in said
    node, executor = started["made"]["supernode"], started["made"]["executor"]
    assert option(node, "--isolation") == "process"
    assert option(node, "--host") == "127.0.0.1"
    assert option(node, "--superexec-auth-secret-file") == option(executor, "--secret")
    assert option(node, "--ssl-ca-certfile") == option(executor, "--root-certificates")
    assert option(executor, "--address") == f"127.0.0.1:{option(node, '--port')}"
    assert option(executor, "--poll") == "2.0"
    policy = Path("policy.toml").resolve()
    assert f'policy="{policy}"' in option(node, "--node-config")
    assert started["files"]["secret"] == started["files"]["server.key"] == 0o600
    assert "--insecure" not in node.command
    assert "--ledger" not in executor.command
    assert executor.environment["OPENBLAS_NUM_THREADS"] == "1"
    assert not Path("home/run-site").exists()


def test_a_site_with_a_budget_of_its_own_preloads_what_keeps_count(
    site: list[str], started: dict[str, Any]
) -> None:
    Path("home").mkdir()
    with Ledger.open(Path("home/ledger.db")):
        pass
    assert runner.invoke(app, site).exit_code == 0
    assert "--ledger" in started["made"]["executor"].command


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--node-key", "none"), "ssh-keygen -t ecdsa"),
        (("--node-key", "records.csv"), "as ssh-keygen makes it"),
        (("--root-certificates", "none"), "relay's ca.pem"),
        (("--root-certificates", "."), "is a folder, no certificate file"),
        (("--data", "none"), "no file or folder of records none"),
        (("--reference", "none"), "none"),
        (("--data", 'odd".csv'), "Flower cannot carry the setting --data"),
        (("--policy", "none"), "There is no policy"),
        (("--policy", "records.csv"), "no TOML file"),
        (("--trusted-entities", "none"), "trusted entities"),
    ],
)
def test_a_site_that_cannot_work_is_not_started(
    site: list[str],
    started: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    words: str,
) -> None:
    assert words in fails(monkeypatch, capsys, *site, *change)
    assert started == {}


def test_a_misspelt_variable_of_the_environment_starts_no_party(
    site: list[str],
    started: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A party would take another folder than the one it was told, and forget what it answered."""
    parties = (site, ["relay", "relay", "--name", "x"], ["aggregator", ADDRESS, "--secret", "x"])
    for line in parties:
        with monkeypatch.context() as patch:
            patch.setenv("FEDPRIKL_HOEM", "/srv/site")
            assert "Did you mean FEDPRIKL_HOME?" in fails(patch, capsys, *line)
    assert started == {}


def test_an_address_has_a_port(
    site: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site[2] = "relay.example.org"
    assert "Write host:port" in fails(monkeypatch, capsys, *site)


def test_an_aggregator_needs_its_keys_and_the_relays_secret(
    started: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["aggregator", ADDRESS, "--secret", "superexec.secret"]
    assert "the relay's superexec.secret" in fails(monkeypatch, capsys, *line)
    Path("superexec.secret").write_text("x")
    assert "fedprikl keys" in fails(monkeypatch, capsys, *line)
    assert started == {}
    Path("home").mkdir()
    SealingKey.generate().save(Path("home/sealing.pem"))
    assert runner.invoke(app, line).exit_code == 0
    (executor,) = started["made"].values()
    assert option(executor, "--address") == ADDRESS
    assert "--app" not in executor.command
    assert started["port"] == 8471


@pytest.mark.parametrize("files", range(4))
def test_a_relay_whose_first_start_was_cut_off_starts_again(
    started: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: int,
) -> None:
    """After so many files, as a kill would; the next start makes all of them, and they fit."""
    line, written = ["relay", "relay", "--name", "127.0.0.1"], list[Path]()

    def write(path: Path, content: bytes, *, mode: int) -> None:
        if len(written) == files:
            raise SystemExit(137)
        written.append(path)
        replace_file(path, content, mode=mode)

    with monkeypatch.context() as patch:
        patch.setattr(tls, "replace_file", write)
        assert runner.invoke(app, line).exit_code == 137
    assert started == {}
    assert runner.invoke(app, line).exit_code == 0
    assert started["name"] == "relay"
    context = ssl.create_default_context(cafile="relay/ca.pem")
    context.load_cert_chain("relay/server.pem", "relay/server.key")
    assert len(Path("relay/superexec.secret").read_bytes()) == 32
    left = {"ca.pem", "server.pem", "server.key", "superexec.secret", "relay.lock"}
    assert {path.name for path in Path("relay").iterdir()} == left
    before = Path("relay/ca.pem").read_bytes()
    assert runner.invoke(app, line).exit_code == 0
    assert Path("relay/ca.pem").read_bytes() == before
    Path("relay/server.key").unlink()  # not by a start: nothing is thrown away
    assert "lacks server.key" in fails(monkeypatch, capsys, *line)
    assert Path("relay/ca.pem").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *((("--days", days), "up to 36500 days") for days in ("nan", "inf", "1e9", "-5", "0")),
        *((("--name", name), "no name of a host") for name in ("", "größe.de", "a b", "a" * 65)),
    ],
)
def test_a_relay_that_cannot_have_a_certificate_makes_nothing(
    started: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    words: str,
) -> None:
    assert words in fails(monkeypatch, capsys, "relay", "relay", "--name", "x", *change)
    assert not Path("relay").exists()
    assert started == {}


@pytest.mark.parametrize("name", ["relay.example.org", "my_relay", "10.0.0.1", "::1"])
def test_a_relay_never_replaces_certificates_that_are_there(
    started: dict[str, Any], name: str
) -> None:
    """Also after a start of an earlier version that was cut off, which left a mark."""
    Path("relay").mkdir()
    for file in ("ca.pem", "server.pem", "server.key", "unfinished"):
        Path("relay", file).write_text("mine")
    assert runner.invoke(app, ["relay", "relay", "--name", name]).exit_code == 0
    assert started["name"] == "relay"
    for file in ("ca.pem", "server.pem", "server.key"):
        assert Path("relay", file).read_text() == "mine"


def test_a_relay_makes_what_it_needs_once(started: dict[str, Any]) -> None:
    line = ["relay", "relay", "--name", "relay.example.org"]
    first = runner.invoke(app, line)
    assert first.exit_code == 0, first.output
    files = ["ca.pem", "server.pem", "server.key", "superexec.secret"]
    assert all(f"made relay/{name}" in first.stderr.replace("\n", "") for name in files)
    before = {name: Path("relay", name).read_bytes() for name in files}
    assert Path("relay/superexec.secret").stat().st_mode & 0o077 == 0
    assert "made" not in runner.invoke(app, line).stderr
    assert {name: Path("relay", name).read_bytes() for name in files} == before
    (superlink,) = started["made"].values()
    assert option(superlink, "--isolation") == "process"
    assert "--enable-supernode-auth" in superlink.command
    assert isinstance(relay_processes(Path(), host="h", port=1), list)


def test_two_processes_do_not_share_a_home(tmp_path: Path) -> None:
    with private_folder(tmp_path, "site") as first:
        (first / "secret").write_text("x")
        assert first.stat().st_mode & 0o077 == 0
        with (
            pytest.raises(DeploymentError, match="is running already"),
            private_folder(tmp_path, "site"),
        ):
            pass
        assert (first / "secret").exists()
    assert not first.exists()
