"""The dashboard over HTTP: what it answers, to whom, and what it refuses."""

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from fedprikl.dashboard import CachedSeries
from fedprikl.dashboard.app import dashboard
from fedprikl.deployment import web as serving_module
from fedprikl.deployment.web import AT_ONCE, open_socket, serving
from fedprikl.documents import to_plain
from fedprikl.errors import FedPriKLError, InvalidInputError
from fedprikl.monitoring.metrics import metrics_text
from fedprikl.reporting.series_page import series_page
from tests.dashboard.sources import Source
from tests.monitoring.statuses import SCENES, series
from tests.monitoring.test_metrics_text import read

STATUS = SCENES["drift"]


class Answer:
    """What came back."""

    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.code, self.body = found.status, found.read().decode()
        self.headers = {name.lower(): value for name, value in found.getheaders()}


def ask(address: str, path: str = "/", method: str = "GET", **headers: str) -> Answer:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    try:
        connection.request(
            method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        return Answer(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(dashboard(Source(STATUS))) as found:
        yield found


def test_the_page(address: str) -> None:
    for path in ("/", "/index.html"):
        found = ask(address, path)
        assert found.code == 200
        assert found.headers["content-type"] == "text/html; charset=utf-8"
        assert found.body == series_page(STATUS)


@pytest.mark.parametrize("name", ["24", "0024", "0024.html", "24.html"])
def test_the_report_of_a_period(address: str, name: str) -> None:
    found = ask(address, f"/periods/{name}")
    assert found.code == 200
    assert "Week 24: departure delay and carrier are above their thresholds." in found.body


def test_every_link_of_the_page_leads_somewhere(address: str) -> None:
    import re

    links = set(re.findall(r'href="(periods/[^"]+)"', ask(address).body))
    assert len(links) == 34
    for link in sorted(links)[::8]:
        assert ask(address, f"/{link}").code == 200
    report = ask(address, "/periods/0024.html").body
    assert re.findall(r'href="([^"#]+)"', report) == ["../index.html", "0023.html", "0025.html"]


@pytest.mark.parametrize(
    "path",
    [
        "/periods/5",  # missed
        "/periods/37",  # ahead
        "/periods/999999999",
        "/periods/-1",
        "/periods/x",
        "/periods/1e1",
        "/periods/٢",
        "/periods/",
        "/periods/..%2f..%2fetc%2fpasswd",
        "/periods/24/x",
        "/nothing",
        "/../../etc/passwd",
        "//evil.example/",
        "/docs",
        "/openapi.json",
        "/" + 3000 * "x",
    ],
)
def test_there_is_nothing_else(address: str, path: str) -> None:
    from urllib.parse import quote

    found = ask(address, quote(path, safe="/%"))
    assert found.code == 404
    assert "There is no such page." in found.body
    assert path[-20:] not in found.body


def test_json_is_the_whole_status(address: str) -> None:
    found = ask(address, "/series.json")
    assert found.headers["content-type"] == "application/json"
    assert json.loads(found.body) == json.loads(json.dumps(to_plain(STATUS)))


def test_metrics_in_both_formats(address: str) -> None:
    plain = ask(address, "/metrics")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    wanted = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    opened = ask(address, "/metrics", accept=wanted)
    assert opened.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert plain.body == opened.body == metrics_text([STATUS])
    assert read(opened.body)


def test_health(address: str) -> None:
    assert (ask(address, "/health").code, ask(address, "/health").body) == (200, "ok\n")


@pytest.mark.parametrize("path", ["/", "/metrics", "/series.json", "/health", "/nothing"])
def test_head_is_get_without_a_body(address: str, path: str) -> None:
    one, other = ask(address, path), ask(address, path, "HEAD")
    assert other.body == ""
    assert (one.code, one.headers) == (other.code, other.headers | {"date": one.headers["date"]})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/nothing"])
def test_reading_only(address: str, method: str, path: str) -> None:
    found = ask(address, path, method)
    assert found.code == 405
    assert found.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/periods/24", "/metrics", "/nothing", "/periods/5"])
def test_every_answer_has_strict_headers(address: str, path: str) -> None:
    headers = ask(address, path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers
    assert "set-cookie" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", "",
                                  "[::1", "127.0.0.1@evil.example:1x", "127.0.0.2"])  # fmt: skip
def test_other_names_of_this_machine_are_refused(address: str, host: str) -> None:
    found = ask(address, host=host)
    assert found.code == 421
    assert "aircraft" not in found.body
    assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"])
def test_its_own_names_are_known(address: str, host: str) -> None:
    assert ask(address, host=host).code == 200


def test_elsewhere_any_name_is_taken() -> None:
    with serving(dashboard(Source(STATUS), hosts=None)) as address:
        assert ask(address, host="drift.example.org").code == 200


def test_a_history_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """The page does not show the reason, which names files; the log does. Later it is back."""
    source = Source(STATUS, unreadable=True)
    with caplog.at_level(logging.ERROR), serving(dashboard(source)) as address:
        for path in ("/", "/series.json", "/metrics", "/periods/24"):
            found = ask(address, path)
            assert found.code == 500
            assert "cannot be read now" in found.body
            assert "secret" not in found.body
            assert "default-src 'none'" in found.headers["content-security-policy"]
        assert ask(address, "/health").code == 503
        assert "/srv/secret/history.db" in caplog.text
        source.unreadable = False
        assert ask(address).code == 200


def test_a_broken_history_is_shown_as_such() -> None:
    with serving(dashboard(Source(SCENES["broken"]))) as address:
        assert "This history has faults." in ask(address).body
        assert ask(address, "/health").code == 503
        assert ask(address, "/periods/24").code == 200


def test_a_release_that_is_gone_is_not_found() -> None:
    with serving(dashboard(Source(STATUS, lacking=frozenset({24})))) as address:
        assert ask(address, "/periods/24").code == 404


def test_a_status_is_kept_for_a_moment() -> None:
    source, now = Source(STATUS), 0.0
    kept = CachedSeries(source, seconds=5, clock=lambda: now)
    first = kept.status()
    now = 4.9
    assert kept.status() is first
    source.shown = series(5)
    now = 5.0
    assert kept.status() is source.shown
    assert source.asked == 2


def test_an_error_is_not_kept() -> None:
    source = Source(STATUS, unreadable=True)
    kept = CachedSeries(source, seconds=5, clock=lambda: 0.0)
    with pytest.raises(FedPriKLError):
        kept.status()
    source.unreadable = False
    assert kept.status() is STATUS


def test_many_at_once_read_the_history_once() -> None:
    source = Source(STATUS)
    kept = CachedSeries(source, seconds=60)
    barrier = threading.Barrier(8)

    def come() -> None:
        barrier.wait()
        kept.status()

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.asked == 1


def test_a_taken_port_is_told() -> None:
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInputError, match=f"port {port}: Address already in use"):
            open_socket("127.0.0.1", port)
    with pytest.raises(InvalidInputError, match="Cannot listen"):
        open_socket("no such host", 8000)


def connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname or "", parts.port or 0), 30)


def test_hundreds_of_silent_connections_keep_nobody_out(address: str) -> None:
    """Some have begun a request. The first made room for the last."""
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(address)) for _ in range(AT_ONCE + 50)]
        for one in silent[-100:]:
            one.sendall(b"GET / HTTP/1.1\r\nHost: ")
        for path in ("/health", "/", "/metrics"):
            assert ask(address, path).code == 200
        with suppress(ConnectionError):
            assert silent[0].recv(1) == b""


def test_a_request_that_drips_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "REQUEST_SECONDS", 0.2)
    with serving(dashboard(Source(STATUS))) as address, connected(address) as one:
        one.sendall(b"GET / HTTP/1.1\r\nX: ")
        with suppress(ConnectionError):
            for _ in range(3000):
                one.sendall(b"x")
                time.sleep(0.01)
            pytest.fail("It was listened to for half a minute.")


def test_an_answer_that_nobody_reads_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "REQUEST_SECONDS", 0.2)
    ended = threading.Event()

    async def endless(_: Any, __: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(200):
                await send({"type": "http.response.body", "body": bytes(2**18), "more_body": True})
        finally:
            ended.set()

    with serving(endless) as address, connected(address) as one:
        one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.wait(20)


def test_a_name_cannot_become_markup() -> None:
    with serving(dashboard(Source(SCENES["hostile"]))) as address:
        body = ask(address).body + ask(address, "/periods/7").body
    assert "<script" not in body
    assert "\x1b" not in body


def test_nothing_of_an_empty_series_fails() -> None:
    with serving(dashboard(Source(SCENES["empty"]))) as address:
        assert "No release yet." in ask(address).body
        for path in ("/metrics", "/series.json", "/health"):
            assert ask(address, path).code == 200
        assert ask(address, "/periods/0").code == 404


def test_a_hundred_columns_and_no_budget() -> None:
    status = replace(series(6, tuple(f"c{n}" for n in range(100))), budget=None, sites=())
    with serving(dashboard(Source(status))) as address:
        assert "No ledger is kept" in ask(address).body
