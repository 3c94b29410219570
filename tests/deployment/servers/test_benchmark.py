"""The benchmark of three servers runs, loses nothing, and prints its keys."""

import pytest

from tests.benchmark_modules import loaded

KEYS = {
    *("client_ms", "payload_bytes", "reports_per_core_second", "intake_per_second", "clients"),
    *("seconds", "peak_mib", "growth"),
}


@pytest.mark.validation
def test_a_tenth_of_it() -> None:
    with loaded("servers", ()) as bench:
        found = bench.servers.measured(tenth=True, million=False)
    assert set(found) >= KEYS
    assert found["payload_bytes"] <= 2.2 * 8 * 421 + 3 * 1200
    assert found["peak_mib"] < 512
