"""How many waiting sites one relay can serve: polls per second of its CPU time.

    python benchmarks/relay.py [--json] [--polls 400]

A site that waits asks the relay for a message every 3 s, fixed in Flower 1.41. Four registered
sites poll here as fast as they are answered, with TLS and node authentication. `polls_per_core` is
how many polls the relay answers in a second of its own CPU time, which depends less than wall time
on what else the machine does. `sites_per_core` is three times that: so many waiting sites fill one
core, and a relay uses little more than one.
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supernode.fleet_http_connection import http_request_response
from shown import show

sys.path.insert(0, str(Path(__file__).parents[1]))  # deploy/ is not part of the package

from deploy.loopback import Loopback

SITES = 4
EVERY = 3.0  # seconds between two polls of a SuperNode


def poll(federation: Loopback, number: int, polls: int) -> None:
    """One site that asks again and again, and is never answered with a message."""
    found = load_ssh_private_key((federation.site(number) / "node").read_bytes(), None)
    key = cast(EllipticCurvePrivateKey, found)
    with http_request_response(
        f"127.0.0.1:{federation.port}",
        insecure=False,
        root_certificates=(federation.relay / "ca.pem").read_bytes(),
        authentication_keys=(key, key.public_key()),
    ) as (_, receive, *_):
        for _ in range(polls):
            receive()


def polls_per_core(polls: int) -> float:
    """Polls that a relay answers in a second of CPU time."""
    with tempfile.TemporaryDirectory(prefix="fedprikl-") as name, Loopback(Path(name)) as relay:
        relay.start_superlink()
        numbers = relay.register(SITES)
        with ThreadPoolExecutor(SITES) as threads:
            list(threads.map(lambda number: poll(relay, number, polls // 10), numbers))  # warm
            cpu = relay.cpu("superlink")
            list(threads.map(lambda number: poll(relay, number, polls), numbers))
        return SITES * polls / (relay.cpu("superlink") - cpu)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    answered = polls_per_core(options.polls)
    found = {"polls_per_core": round(answered, 1), "sites_per_core": int(EVERY * answered)}
    show(found, as_json=options.json)


if __name__ == "__main__":
    main()
