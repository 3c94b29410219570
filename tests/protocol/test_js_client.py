"""The client in JavaScript makes the published bytes, and reports that the library opens."""

import http.server
import json
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl.protocol.keys import SealingKey
from fedprikl.protocol.report import open_report
from fedprikl.secure_sum.line_shares import PRIME, restore
from tests.browser import chromium
from tests.protocol.test_report_vectors import GOOD, load

CLIENT = Path(__file__).parents[2] / "contrib" / "js"
VECTORS = [load(path) for path in GOOD if path.name.startswith("x25519")]


def node(script: str, given: object = None) -> Any:
    """What a module returns as `found`, with `given` and the client at hand."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"node {version.stdout.strip()} is older than 20")
    head = "".join(
        f"import * as {name} from {json.dumps((CLIENT / f'{name}.mjs').as_uri())};"
        for name in ("report", "vectors")
    )
    done = subprocess.run(
        [program, "--no-warnings", "--input-type=module"],
        input=f"{head} const given = {json.dumps(given)}; let found; {script}; "
        "console.log(JSON.stringify(found));",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_short_and_needs_nothing() -> None:
    text = (CLIENT / "report.mjs").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 300
    assert "import " not in text.replace('import { report } from "./report.mjs"', "")


def test_it_makes_the_published_messages() -> None:
    found = node("found = await Promise.all(given.map(vectors.messagesOf))", VECTORS)
    assert len(found) >= 3
    assert found == [vector["messages"] for vector in VECTORS]


def test_the_library_opens_what_it_makes() -> None:
    rng = np.random.default_rng(29)
    keys = [SealingKey.generate() for _ in range(3)]
    counts = [[0], [1, -1, PRIME // 2, -(PRIME // 2)], rng.integers(0, 10**6, 421).tolist()]
    given = {
        "counts": [[str(each) for each in vector] for vector in counts],
        "plan": "ab" * 32,
        "period": 12,
        "servers": [key.public for key in keys],
    }
    made = "Promise.all(given.counts.map((each) => report.makeReports(each, given)))"
    found = node(f"found = (await {made}).map((three) => three.map(report.toHex))", given)
    for vector, messages in zip(counts, found, strict=True):
        shares = {}
        for server, message in enumerate(messages, start=1):
            _, shares[server] = open_report(
                bytes.fromhex(message),
                keys[server - 1],
                plan=b"\xab" * 32,
                period=12,
                server=server,
                entries=len(vector),
            )
        assert restore(shares)[:-1].tolist() == vector


@pytest.mark.parametrize(
    ("counts", "change"),
    [
        ("[0.5]", "{}"),
        ("['2000000000000000000']", "{}"),
        ("[1]", "{period: -1}"),
        ("[1]", "{period: 2**32}"),
        ("[1]", "{plan: 'ab'}"),
        ("[1]", "{servers: ['00'.repeat(32), '00'.repeat(32), '00'.repeat(32)]}"),  # of low order
    ],
)
def test_it_makes_nothing_of_wrong_input(counts: str, change: str) -> None:
    given = {"plan": "ab" * 32, "period": 0, "servers": [SealingKey.generate().public] * 3}
    node(
        f"try {{ await report.makeReports({counts}, {{...given, ...{change}}}); }} "
        "catch (error) { found = error.name; }; if (!found) throw 'made';",
        given,
    )


SENDING = """
const kept = new Map();
const storage = { getItem: (name) => kept.get(name) ?? null, setItem: (n, v) => kept.set(n, v) };
const sent = [];
let down = given.down;
const fetch = async (url, { body }) => {
  sent.push([url, report.toHex(body)]);
  if (url.startsWith("https://b.") && down-- > 0) {
    if (given.status === 0) throw new TypeError("cut off");
    return new Response('{"error": "words"}', { status: given.status });
  }
  return new Response('{"accepted": true}');
};
const addresses = ["https://a.example", "https://b.example/", "https://c.example/x"];
const options = { ...given, addresses, storage, fetch, delay: 0.001, attempts: 3 };
const tell = (work) => work.then(() => "done", (error) => error.constructor.name + error.message);
const first = await tell(report.report([1, 2, 3], options));
const again = await tell(report.report([7, 7, 7], options));
found = { first, again, sent };
"""


@pytest.mark.parametrize(
    ("status", "down", "first", "again"),
    [
        (503, 0, "done", "done"),
        (503, 2, "done", "done"),
        (0, 2, "done", "done"),
        (500, 3, "UnreachableErrorhttps://b.example did not take", "done"),
        (0, 3, "UnreachableErrorhttps://b.example did not take", "done"),
        (409, 9, "RefusedErrorhttps://b.example refused the report: words", "RefusedError"),
    ],
)
def test_it_sends_one_report_until_it_is_taken(
    status: int, down: int, first: str, again: str
) -> None:
    given = {"plan": "ab" * 32, "period": 0, "servers": [SealingKey.generate().public] * 3}
    found = node(SENDING, {**given, "status": status, "down": down})
    assert found["first"].startswith(first)
    assert found["again"].startswith(again)
    by_address: dict[str, set[str]] = {}
    for url, body in found["sent"]:
        by_address.setdefault(url, set()).add(body)
    assert sorted(by_address) == [
        "https://a.example/v1/reports",
        "https://b.example/v1/reports",
        "https://c.example/x/v1/reports",
    ]
    assert all(len(bodies) == 1 for bodies in by_address.values())  # never another report


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".mjs": "text/javascript", ".html": "text/html"}  # noqa: RUF012

    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow
def test_it_makes_the_published_messages_in_a_browser(tmp_path: Path) -> None:
    for path in CLIENT.glob("*.mjs"):
        shutil.copy(path, tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html><title>A client</title>")
    handler = partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with chromium() as browser:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
            found = page.evaluate(
                "async (given) => { const { messagesOf } = await import('./vectors.mjs'); "
                "return Promise.all(given.map(messagesOf)); }",
                VECTORS,
            )
        server.shutdown()
    assert found == [vector["messages"] for vector in VECTORS]
