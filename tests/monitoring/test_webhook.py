"""The webhook against a real server on this machine."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedprikl.errors import HookError, InvalidInputError
from fedprikl.monitoring.notifications import Webhook, WebhookSecret, notifications
from tests.monitoring.statuses import SCENES

KEY = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
(MISSED, *_), ALARM = notifications(SCENES["drift"])[:3], notifications(SCENES["drift"])[-1]
Answers = Callable[[int], tuple[int, dict[str, str]]]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


class Receiver(HTTPServer):
    """Answers as it is told, and remembers what it got."""

    got: list[tuple[str, dict[str, str], bytes]]
    answers: Answers


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        code, headers = self.server.answers(len(self.server.got))
        headers_got = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((self.path, headers_got, body))
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    do_POST = do_GET = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def receiver(*codes: int, headers: dict[str, str] | None = None) -> Iterator[Receiver]:
    with Receiver(("127.0.0.1", 0), _Handler) as server:
        server.got = []
        server.answers = lambda n: (codes[min(n, len(codes) - 1)], headers or {})
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def hook(server: Receiver, waits: list[float] | None = None, **more: Any) -> Webhook:
    waits = [] if waits is None else waits
    url = f"http://127.0.0.1:{server.server_port}/in/very-secret-token"
    return Webhook(url=url, sleep=waits.append, **more)


def test_the_receiver_gets_the_notification() -> None:
    with receiver(204) as server:
        hook(server).deliver(ALARM)
    ((path, headers, body),) = server.got
    assert path == "/in/very-secret-token"
    assert headers["content-type"] == "application/json"
    assert headers["webhook-id"] == ALARM.identity
    assert "webhook-signature" not in headers
    said = json.loads(body)
    assert body == ALARM.to_bytes()
    assert said["words"] == "Drift since week 23 (14 June 2027), mostly departure delay."
    assert said["alarm"]["columns"] == ["departure delay", "carrier"]


def test_the_signature_is_the_receivers() -> None:
    """Computed here as a receiver does, from what arrived."""
    with receiver(200) as server:
        secret = WebhookSecret.from_text(f"whsec_{KEY}")
        hook(server, secret=secret, clock=lambda: 1_800_000_000.9).deliver(ALARM)
    ((_, headers, body),) = server.got
    assert headers["webhook-timestamp"] == "1800000000"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = hmac.new(base64.b64decode(KEY), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(expected).decode()}"


def test_it_tries_again_with_a_new_time_and_the_same_identity() -> None:
    waits: list[float] = []
    times = iter((10.0, 20.0, 30.0))
    with receiver(503, 429, 200) as server:
        hook(server, waits, clock=lambda: next(times)).deliver(ALARM)
    assert waits == [1.0, 2.0]
    assert [headers["webhook-timestamp"] for _, headers, _ in server.got] == ["10", "20", "30"]
    assert len({headers["webhook-id"] for _, headers, _ in server.got}) == 1


def test_it_gives_up_and_says_so_without_the_address() -> None:
    with receiver(500) as server, pytest.raises(HookError) as caught:
        hook(server, attempts=3).deliver(ALARM)
    assert len(server.got) == 3
    assert "3 of 3 attempts" in str(caught.value)
    assert "500" in str(caught.value)
    assert "very-secret-token" not in str(caught.value)


@pytest.mark.parametrize("code", [400, 401, 404, 410])
def test_a_refusal_is_not_repeated(code: int) -> None:
    with receiver(code) as server, pytest.raises(HookError, match=f"answered {code}"):
        hook(server).deliver(ALARM)
    assert len(server.got) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(code: int) -> None:
    with receiver(200) as other:
        to = {"Location": f"http://127.0.0.1:{other.server_port}/elsewhere"}
        with receiver(code, headers=to) as server, pytest.raises(HookError, match="redirect"):
            hook(server).deliver(ALARM)
        assert len(server.got) == 1
    assert other.got == []


def test_nobody_is_there() -> None:
    waits: list[float] = []
    with receiver(200) as server:
        gone = hook(server, waits, attempts=2)
    with pytest.raises(HookError, match="cannot be reached"):
        gone.deliver(ALARM)
    assert waits == [1.0]


def test_a_receiver_that_does_not_answer_is_left() -> None:
    release = threading.Event()
    with receiver(200) as server:
        server.answers = lambda _: (200 if release.wait(5) else 500, {})
        with pytest.raises(HookError, match=r"no answer within 0\.1 seconds"):
            hook(server, attempts=1, timeout=0.1).deliver(ALARM)
        release.set()


def test_a_receiver_that_drips_is_left() -> None:
    """A byte now and then, for ever: no single wait is long, the whole attempt is."""
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            one, _ = listening.accept()
            with one, suppress(ConnectionError):
                one.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                for _ in range(3000):
                    if left.wait(0.01):
                        break
                    one.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(HookError, match=r"no answer within 0\.3 seconds"):
            Webhook(url=url, attempts=1, timeout=0.3).deliver(ALARM)
        assert thread.is_alive()  # it was left, it did not end
        left.set()
        thread.join()
        for each in threading.enumerate():
            if each.name == "webhook":
                each.join()


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/x",
        "javascript:alert(1)",
        "https://",
        "news",
        "",
        "http://a b/",
        "http://host/\r\nX-Evil: 1",
        "https://user:password@example.org/",
        "http://[::1",
        "http://host:port/",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Webhook(url=url)
    assert "password@" not in str(caught.value)


def test_nothing_secret_prints(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"whsec_{KEY}\n", encoding="utf-8")
    secret = WebhookSecret.from_file(tmp_path / "secret")
    made = Webhook(url="https://example.org/token-in-path", secret=secret)
    said = f"{secret!r} {made!r} {made} {secret}"
    assert KEY not in said
    assert "MfKQ" not in said
    assert repr(base64.b64decode(KEY)) not in said
    assert "token-in-path" not in said


def test_where_secrets_come_from(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"  whsec_{KEY}\n", encoding="utf-8")
    one = WebhookSecret.from_file(tmp_path / "secret")
    assert one == WebhookSecret.from_text(f"whsec_{KEY}")
    assert one != WebhookSecret.from_text("another text of at least 24 bytes")
    with pytest.raises(InvalidInputError, match="Cannot read"):
        WebhookSecret.from_file(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["", "short", "whsec_AAAA", "whsec_not base64 at all, not at all"])
def test_weak_secrets_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        WebhookSecret.from_text(text)
    assert not text or text not in str(caught.value)
