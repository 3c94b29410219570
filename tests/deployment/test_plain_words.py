"""Flower's errors, in words that say what to do: with Flower's own numbers and messages."""

import json
import logging
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import create_server

import httpx
import pytest
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.exit import ExitCode
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

from fedprikl.cli.running import note_relay
from fedprikl.deployment.flower import privates
from fedprikl.deployment.flower.executor import no_task_words
from fedprikl.deployment.flower.organiser import check_connection
from fedprikl.deployment.flower.privates import explain_flower, in_plain_words
from fedprikl.deployment.tls import check_relay, write_certificates, write_node_key
from fedprikl.errors import DeploymentError

RELAY = "relay.example.org:9443"


def told(message: str) -> str:
    return in_plain_words(message, relay=RELAY, key="/srv/node")


def test_an_unregistered_site_reads_how_to_be_registered() -> None:
    error = FlowerError(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED, "Failed to activate SuperNode.")
    said = told(f"Exit Code: {ExitCode.SUPERNODE_CONNECTION_ERROR}\n[code: {error.code}] {error}")
    assert "does not know this site" in said
    assert "Send /srv/node.pub to the organiser" in said
    assert "`flwr supernode register node.pub NAME`" in said
    assert not any(code in said for code in ("305", "2004", "flower.ai"))


def test_another_version_of_flower_is_named() -> None:
    ours = RuntimeVersionMetadata.from_local_component(
        "SuperNode", package_name_value="flwr", package_version_value="1.41.0"
    )
    theirs = RuntimeVersionMetadata.from_local_component(
        "SuperLink", package_name_value="flwr", package_version_value="1.39.2"
    )
    message = theirs.check_compatibility(ours)
    assert message is not None
    for text in (message, f"Exit Code: {ExitCode.RUNTIME_VERSION_INCOMPATIBLE}\n{message}"):
        said = told(text)
        assert "another version of Flower than this machine (theirs 1.39.2, ours 1.41.0)" in said
        assert "Install the same fedprikl on both" in said


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Connection attempt failed, retrying in 3.04 seconds", "Next try in 3 s"),
        (f"Exit Code: {ExitCode.SUPERNODE_NODE_AUTH_KEY_INVALID}\nx", "ssh-keygen -t ecdsa"),
        (
            "Exit Code: 305\n[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to "
            "get local issuer certificate (_ssl.c:1006)",
            "unable to get local issuer certificate. Nothing was sent. Take ca.pem from",
        ),
        ("SuperNode ID: 17", "SuperNode ID: 17"),  # what is not known stays
    ],
)
def test_what_flower_says_and_what_is_read(message: str, words: str) -> None:
    assert words in told(message)


def test_what_the_next_line_says_better_is_left_out() -> None:
    assert told("SSL/TLS handshake error detected.") == ""


@pytest.fixture
def flower() -> Iterator[list[str]]:
    """What Flower's logger lets through."""
    logger, lines = logging.getLogger("flwr"), []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    before = list(logger.filters)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
    logger.filters[:] = before


def test_the_supernode_of_a_site_speaks_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flower: list[str]
) -> None:
    """Flower's own command, with a key that it does not take."""
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    ending = sys.modules["flwr.supercore.exit.exit"]
    monkeypatch.setattr(ending, "FORCE_EXIT_TIMEOUT_SECONDS", 1e6)  # or it would end this process
    key = tmp_path / "node"
    key.write_text("no key")
    (tmp_path / "ca.pem").write_text("no certificate")
    options = {
        "--superlink": RELAY,
        "--root-certificates": tmp_path / "ca.pem",
        "--auth-supernode-private-key": key,
    }
    words = [str(word) for option in options.items() for word in option]
    monkeypatch.setattr("sys.argv", ["flower_supernode", *words])
    with pytest.raises(SystemExit):
        privates.flower_supernode()
    assert any(line.startswith(f"{key} is no key that Flower accepts") for line in flower)
    assert not any("Exit Code" in line for line in flower)


def test_why_there_is_no_task() -> None:
    request = httpx.Request("POST", "https://relay.example.org:9443/v1/runtime")

    def refused(code: int) -> str:
        response = httpx.Response(code, request=request)
        return no_task_words(httpx.HTTPStatusError("x", request=request, response=response))

    assert "another secret. Take the relay's superexec.secret" in refused(401)
    assert refused(503) == f"{RELAY} hands out no tasks now (HTTP 503); trying again."
    down = httpx.ConnectError("Connection refused", request=request)
    assert no_task_words(down).startswith(f"The relay {RELAY} cannot be reached. Is it running")
    words = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired"
    expired = httpx.ConnectError(f"{words} (_ssl.c:1006)", request=request)
    assert "certificate has expired. Nothing was sent. Have the relay's operator renew it" in (
        no_task_words(expired)
    )


def test_the_executor_of_a_site_does_not_blame_the_relay(tmp_path: Path) -> None:
    """It asks the SuperNode of its own site: none, another's, or one with another secret."""
    (tmp_path / "secret").write_bytes(b"x" * 32)
    write_certificates(tmp_path)
    with create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    words = [sys.executable, "-m", "fedprikl.deployment.flower.executor", "site", "--poll", "9"]
    words += ["--address", f"127.0.0.1:{port}", "--secret", str(tmp_path / "secret")]
    words += ["--root-certificates", str(tmp_path / "ca.pem")]
    with subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    ) as executor:
        assert executor.stderr is not None
        said = next(line for line in executor.stderr if "answer" in line)
        executor.terminate()
    assert f"This site's own SuperNode (127.0.0.1:{port}) does not answer yet" in said
    request = httpx.Request("POST", "https://127.0.0.1:9443/v1/runtime")
    response = httpx.Response(401, request=request)
    refused = httpx.HTTPStatusError("x", request=request, response=response)
    assert no_task_words(refused, own=True) == (
        "This site's own SuperNode (127.0.0.1:9443) refuses this process (HTTP 401): it has "
        "another secret. Start this site again: both get a new one."
    )
    foreign = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get issuer"
    untrusted = httpx.ConnectError(foreign, request=request)
    for said in (
        no_task_words(untrusted, own=True),
        in_plain_words(foreign, relay="127.0.0.1:9443", own=True),
    ):
        assert "127.0.0.1:9443 is not this site's own SuperNode" in said
        assert "relay" not in said
    retry = "Connection attempt failed, retrying in 3.04 seconds"
    assert level_of(retry, own=True) == "INFO"
    assert "own SuperNode (a:1)" in in_plain_words(retry, relay="a:1", own=True)


def level_of(message: str, *, own: bool) -> str:
    """Of a warning of Flower in a process that has just started."""
    flower = logging.getLogger("flwr")
    before = list(flower.filters)
    explain_flower("a:1", own=own)
    record = logging.LogRecord("flwr", logging.WARNING, "", 0, message, (), None)
    try:
        assert flower.filter(record)
    finally:
        flower.filters = before
    return record.levelname


def test_a_relay_that_cannot_be_reached_is_a_warning_from_the_first_second() -> None:
    retry = "Connection attempt failed, retrying in 3.04 seconds"
    assert level_of(retry, own=False) == "WARNING"


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[str]:
    """A server with TLS that shakes hands and no more; its certificate is for 127.0.0.1."""
    write_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(plain, server_side=True).close()
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("ahead", [0.0, 8.0, -400.0])
def test_a_clock_that_differs_from_the_relays_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ahead: float,
) -> None:
    class Relay(BaseHTTPRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002
            return super().date_time_string(time.time() - ahead)

        def log_message(self, *_: object) -> None:
            pass

    write_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with HTTPServer(("127.0.0.1", 0), Relay) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        relay = f"127.0.0.1:{server.server_address[1]}"
        found = check_relay(relay, tmp_path / "ca.pem")
        note_relay(relay, tmp_path / "ca.pem")
        monkeypatch.setenv("FLWR_HOME", str(tmp_path))
        roots = json.dumps(str(tmp_path / "ca.pem"))
        (tmp_path / "config.toml").write_text(
            f'[superlink.mine]\naddress = "{relay}"\nroot-certificates = {roots}\n'
        )
        too_far = pytest.raises(DeploymentError, match=r"behind the clock .* Nothing was asked")
        with too_far if abs(ahead) > 300 else nullcontext():
            check_connection("mine")
        server.shutdown()
    assert abs(found - ahead) < 2
    said = " ".join(capsys.readouterr().err.split())
    if ahead == 0:
        assert said == ""
        return
    which = "ahead of" if ahead > 0 else "behind"
    assert re.search(rf"clock is \d+ s {which} the clock of the relay {relay}", said)
    assert ("It refuses this machine until" in said) == (abs(ahead) > 300)


def test_a_relay_is_looked_at_before_anything_is_started(relay: str, tmp_path: Path) -> None:
    assert check_relay(relay, tmp_path / "ca.pem") == 0.0  # it does not tell the time
    (tmp_path / "other").mkdir()
    write_certificates(tmp_path / "other")
    with pytest.raises(DeploymentError, match=r"not accepted: .*it is not this relay's"):
        check_relay(relay, tmp_path / "other" / "ca.pem")
    port = relay.rpartition(":")[2]
    with pytest.raises(DeploymentError, match=r"names another host: use the name .*\(--name\)"):
        check_relay(f"localhost:{port}", tmp_path / "ca.pem")
    write_node_key(tmp_path / "node")
    with pytest.raises(DeploymentError, match="holds no certificates"):
        check_relay(relay, tmp_path / "node")
    with create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(DeploymentError, match="cannot be reached: Connection refused"):
        check_relay(f"127.0.0.1:{free}", None)
