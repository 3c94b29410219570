"""A plan with three servers on this machine, that do as they are told, and a client's records."""

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedprikl.deployment.tls import write_certificates
from fedprikl.documents import readable
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    SealingKey,
    Servers,
    SignedPlan,
    SigningKey,
)
from fedprikl.protocol.keys import HybridKey
from fedprikl.reference import Reference

Reply = tuple[int, dict[str, Any], dict[str, str]]
TAKEN: Reply = (200, {"accepted": True}, {})
REFERENCE = Reference.from_counts([50, 30, 20])
ORGANISER = SigningKey.generate()
KEYS: dict[str, list[SealingKey] | list[HybridKey]] = {
    "x25519": [SealingKey.generate() for _ in range(3)],
    "hybrid": [HybridKey.generate() for _ in range(3)],
}


@dataclass
class Scripted:
    """A server with a list of answers; when it is empty, it takes everything."""

    replies: list[Reply | None] = field(default_factory=list)  # None: cuts the connection
    got: list[bytes] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving(script: Scripted, folder: Path) -> Iterator[None]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reply = script.replies.pop(0) if script.replies else TAKEN
            if self.path != "/x/v1/reports":
                reply = (404, {"error": "no such place"}, {})
            script.got.append(body)
            if reply is None:
                self.connection.close()
                return
            status, said, headers = reply
            answer = json.dumps(said).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    with Quiet(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        script.address = f"https://127.0.0.1:{server.server_port}/x"
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def three_servers(folder: Path) -> Iterator[list[Scripted]]:
    """Their certificate is server.pem, of the authority ca.pem."""
    write_certificates(folder)
    scripts = [Scripted() for _ in range(3)]
    with ExitStack() as stack:
        for script in scripts:
            stack.enter_context(serving(script, folder))
        yield scripts


def plan_for(addresses: tuple[str, ...], *, suite: Any = "hybrid", **changes: Any) -> SignedPlan:
    servers = Servers(
        suite=suite,
        sealing=tuple(key.public for key in KEYS[suite]),
        signing=tuple(SigningKey.generate().public for _ in range(3)),
        addresses=addresses,
    )
    given: dict[str, Any] = {
        "population": "people",
        "reference": REFERENCE.fingerprint,
        "trust": "servers",
        "servers": servers,
        "budget": Budget(epsilon=1.0),
        "views": (AskedView(points=3),),
        "questions": (Question(release="counts"),),
    }
    return SignedPlan.sign(Plan(**(given | changes)), ORGANISER)


def write_plan(folder: Path, signed: SignedPlan) -> Path:
    """plan.json, with ref.json beside it."""
    path = folder / "plan.json"
    path.write_text(readable(signed.to_dict()), encoding="utf-8")
    REFERENCE.save(folder / "ref.json")
    return path
