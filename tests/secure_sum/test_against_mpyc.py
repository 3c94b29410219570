"""Another implementation computes the same from the same shares: MPyC, in three processes."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedprikl.checks import Ints
from fedprikl.protocol.server_answer import _rising
from fedprikl.secure_sum.line_runtime import LineRuntime
from fedprikl.secure_sum.line_shares import PRIME, SERVERS, Field, restore, to_field
from tests.secure_sum.three import run_three, shares_of

pytest.importorskip("mpyc", reason="pip install mpyc")
ROOT = Path(__file__).parents[2]


def free_ports(number: int) -> list[int]:
    held = [socket.socket() for _ in range(number)]
    for each in held:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def by_mpyc(shares: dict[int, Field], expected: Ints, folder: Path) -> set[int]:
    """What each of three processes prints."""
    path = folder / "shares.json"
    content = {"shares": [shares[n].tolist() for n in SERVERS], "expected": expected.tolist()}
    path.write_text(json.dumps(content))
    places = [word for port in free_ports(3) for word in ("-P", f"localhost:{port}")]
    line = [sys.executable, "-m", "tests.secure_sum.mpyc_server", str(path), "--no-log", *places]
    running = [
        subprocess.Popen([*line, "-I", str(n)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    try:
        return {int(each.communicate(timeout=60)[0].split()[-1]) for each in running}
    finally:
        for each in running:
            each.kill()


@pytest.mark.validation
def test_mpyc_finds_the_same_total_variation(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    held, expected = rng.multinomial(5000, np.full(30, 1 / 30)), rng.multinomial(5000, [0.1] * 10)
    expected = np.repeat(expected // 3, 3)
    shares = shares_of(held, rng.bytes(32))

    async def compute(runtime: LineRuntime) -> Field:
        short = (to_field(expected) + (np.uint64(PRIME) - shares[runtime.server])) % np.uint64(
            PRIME
        )
        return await _rising(runtime, [short], rng.bytes)

    (ours,) = restore(run_three(compute))
    assert ours == np.maximum(expected - held, 0).sum()
    assert by_mpyc(shares, expected, tmp_path) == {ours}
