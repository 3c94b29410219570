"""The health endpoint of a supervisor: GET /health on 127.0.0.1, 200 if all is well, else 503."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedprikl.errors import DeploymentError

__all__ = ["serve_health"]

Health = Callable[[], Mapping[str, object]]


@contextmanager
def serve_health(port: int, health: Health) -> Iterator[int]:
    """Answers on a port of this machine while the block lasts; the port. 0: any that is free.

    It is for everybody on this machine, so `health` tells no more than that processes run.
    """
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(health))
    except OSError as error:
        raise DeploymentError(
            f"The health port {port} cannot be used: {error.strerror}. Choose another with "
            "--health-port."
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _handler(health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            found = health() if self.path == "/health" else None
            content = b"" if found is None else json.dumps(found).encode() + b"\n"
            self.send_response(404 if found is None else 200 if found["well"] else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Silent: it is asked every few seconds."""

    return Handler
